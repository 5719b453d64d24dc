use super::*;

const NOW: Duration = Duration::from_secs(1);

fn op(count: u64) -> DiskOp {
    DiskOp::Remove { file: FileKey { epoch: 1, count } }
}

fn published(writer: &mut StreamWriter) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    while let WriterAct::Publish { number, expected_last, .. } = writer.poll(NOW) {
        sent.push((number, expected_last));
    }
    sent
}

fn doubtful() -> StreamWriter {
    let mut writer = StreamWriter::new(3, 100);
    for count in 0..6 {
        writer.push(op(count));
    }
    assert_eq!(published(&mut writer), [(1, 100)], "one is under way");
    writer.on_answer(1, 0, Answer::Kept(101), NOW);
    assert_eq!(published(&mut writer), [(2, 101)]);
    writer.on_answer(2, 0, Answer::Maybe, NOW);
    assert_eq!(writer.poll(NOW), WriterAct::Wait(NOW + RETRY_MIN));
    assert_eq!(writer.poll(NOW + RETRY_MIN), WriterAct::Probe { attempt: 1 });
    writer
}

#[test]
fn a_maybe_that_had_arrived_is_not_sent_again() {
    let mut writer = doubtful();
    writer.on_probe(1, Some(ProbeAnswer { sequence: 102, epoch: 3, number: 2 }), NOW);
    assert_eq!(writer.kept(), 2);
    assert_eq!(published(&mut writer), [(3, 102)]);
}

#[test]
fn a_late_answer_of_an_earlier_attempt_is_true_and_a_late_refusal_says_nothing() {
    let mut writer = doubtful();
    writer.on_probe(1, Some(ProbeAnswer { sequence: 101, epoch: 3, number: 1 }), NOW);
    assert_eq!(published(&mut writer), [(2, 101)], "again");
    writer.on_answer(2, 0, Answer::WrongLast, NOW);
    writer.on_answer(2, 0, Answer::Kept(102), NOW);
    assert_eq!((writer.kept(), writer.ending()), (2, None));
}

#[test]
fn another_epoch_is_the_end_and_nothing_is_taken_after_it() {
    let mut writer = doubtful();
    writer.on_probe(1, Some(ProbeAnswer { sequence: 102, epoch: 4, number: 0 }), NOW);
    let ending = Ending::Fenced { by: 4 };
    assert_eq!(writer.has_room(1, 1), Err(Refusal::Ended(ending)));
    writer.on_answer(2, 1, Answer::Kept(102), NOW);
    assert_eq!((writer.kept(), writer.poll(NOW)), (1, WriterAct::Idle));
}

#[test]
fn an_engine_that_has_forgotten_what_it_kept_is_found_out() {
    let mut writer = doubtful();
    writer.on_probe(1, Some(ProbeAnswer { sequence: 100, epoch: 3, number: 0 }), NOW);
    assert_eq!(writer.ending(), Some(Ending::TailLost));
}

#[test]
fn an_answer_that_comes_between_a_question_and_its_answer_is_no_loss() {
    let mut writer = doubtful();
    writer.on_answer(2, 0, Answer::Kept(102), NOW);
    writer.on_probe(1, Some(ProbeAnswer { sequence: 101, epoch: 3, number: 1 }), NOW);
    assert_eq!((writer.kept(), writer.ending()), (2, None));
}

#[test]
fn bytes_are_thrown_away_only_after_their_removal_is_kept() {
    let mut writer = StreamWriter::new(3, 100);
    writer.push(op(7));
    assert_eq!(published(&mut writer).len(), 1);
    writer.on_answer(1, 0, Answer::Kept(101), NOW);
    let purge =
        |attempt| WriterAct::Purge { subject: Subject::File(FileKey { epoch: 1, count: 7 }), below: None, attempt };
    assert_eq!(writer.poll(NOW), purge(1));
    writer.on_purged(1, false);
    assert_eq!(writer.poll(NOW), purge(2), "tried again");
    writer.on_purged(2, true);
    assert_eq!(writer.poll(NOW), WriterAct::Idle);
}

#[test]
fn what_waits_is_bounded() {
    let mut writer = StreamWriter::new(1, 1);
    assert_eq!(writer.has_room(QUEUE_BYTES_MAX, 1), Ok(()));
    assert_eq!(writer.has_room(QUEUE_BYTES_MAX + 1, 1), Err(Refusal::Full));
    for count in 0..QUEUE_OPS_MAX as u64 {
        writer.push(op(count));
    }
    assert_eq!(writer.has_room(0, 1), Err(Refusal::Full));
}
