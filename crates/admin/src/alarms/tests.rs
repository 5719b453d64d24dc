//! Alarms in virtual time: what raises one, what keeps it, what clears it.

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs_f64(secs as f64)
}

fn losing(subject: &str, is_strong: bool) -> Condition {
    let (kind, text) = (AlarmKind::Losing, format!("{subject} loses"));
    Condition { kind, subject: subject.to_owned(), text, weight: 1.0, is_strong }
}

/// What each second has; the seconds at which something was raised or cleared.
fn changes(seconds: impl IntoIterator<Item = Option<bool>>) -> Vec<(u64, bool)> {
    let mut board = AlarmBoard::default();
    let mut changes = Vec::new();
    for (second, seen) in seconds.into_iter().enumerate() {
        let conditions = seen.map(|is_strong| losing("r", is_strong)).into_iter().collect();
        let changed = board.observe(conditions, &[], at(second as u64));
        changes.extend(changed.iter().map(|alarm| (second as u64, alarm.cleared_at.is_none())));
    }
    changes
}

#[test]
fn a_condition_that_lasts_raises_one_alarm_which_ends_when_it_has_been_gone() {
    let flood = (0..100).map(|second| (10..40).contains(&second).then_some(true));
    assert_eq!(changes(flood), [(15, true), (54, false)]);
}

#[test]
fn a_moment_raises_nothing_and_a_gap_does_not_end_it() {
    assert_eq!(changes((0..60).map(|second| (10..14).contains(&second).then_some(true))), []);
    let with_gaps = (0..120).map(|second| (second < 60 && second % 13 != 7).then_some(true));
    assert_eq!(changes(with_gaps), [(5, true), (73, false)], "one alarm");
}

#[test]
fn what_is_weak_keeps_an_alarm_and_raises_none() {
    assert_eq!(changes([Some(false); 60]), []);
    let fading = (0..100).map(|second| match second {
        0..=9 => Some(true),
        10..=59 => Some(false),
        _ => None,
    });
    assert_eq!(changes(fading), [(5, true), (74, false)]);
}

#[test]
fn a_ban_is_told_at_once_and_ends_at_once() {
    let mut board = AlarmBoard::default();
    let ban = || Condition { kind: AlarmKind::Ban, ..losing("pest", true) };
    assert!(board.observe(vec![ban()], &[], at(0))[0].raised_at.is_some());
    assert_eq!(board.observe(vec![ban()], &[], at(600)), [], "while it lasts nothing is told");
    assert!(!board.is_busy(), "and nobody has to look often for it");
    assert!(board.observe(Vec::new(), &[], at(601))[0].cleared_at.is_some());
    assert_eq!((board.raised().count(), board.cleared().count()), (0, 1));
}

#[test]
fn what_was_cut_from_a_look_is_not_over() {
    let mut board = AlarmBoard::default();
    for second in 0..10 {
        board.observe(vec![losing("r", true)], &[], at(second));
    }
    for second in 10..100 {
        let others = vec![losing("worse", true)];
        let told = board.observe(others, &[AlarmKind::Losing], at(second));
        assert!(told.iter().all(|alarm| alarm.cleared_at.is_none()), "{told:?}");
    }
    assert_eq!(board.raised().count(), 2);
    let told = board.observe(vec![losing("worse", true)], &[AlarmKind::Flooding], at(100));
    assert_eq!(told.len(), 1, "a look that has all of its kind ends it: {told:?}");
    assert_eq!((told[0].subject.as_str(), told[0].cleared_at), ("r", Some(at(100))));
}

#[test]
fn a_crowd_of_a_kind_does_not_hide_another() {
    let mut board = AlarmBoard::default();
    board.observe((0..200).map(|n| losing(&format!("r{n}"), true)).collect(), &[], at(0));
    let disk = Condition { kind: AlarmKind::Disk, ..losing("store", true) };
    assert_eq!(board.observe(vec![disk], &[], at(1)).len(), 1);
}

#[test]
fn kinds_are_cut_when_there_are_more_than_the_lists_have() {
    use crate::situation::TroubleReport;
    assert_eq!(TroubleReport::default().cut_kinds(), []);
    let slow = TroubleReport { losing: ALARMS_MAX, slow: 1, ..TroubleReport::default() };
    assert_eq!(slow.cut_kinds(), [AlarmKind::QueueFull], "the losing are all there");
    let losing = TroubleReport { losing: ALARMS_MAX + 1, ..TroubleReport::default() };
    assert_eq!(losing.cut_kinds(), [AlarmKind::Flooding, AlarmKind::Losing, AlarmKind::QueueFull]);
    let unknown = TroubleReport { is_blame_missing: true, ..TroubleReport::default() };
    assert_eq!(unknown.cut_kinds(), [AlarmKind::Flooding]);
}

#[test]
fn a_crowd_is_bounded() {
    let mut board = AlarmBoard::default();
    for second in 0..2000_u64 {
        let crowd = (0..200).map(|n| losing(&format!("r{n}-{}", second / 40), true)).collect();
        board.observe(crowd, &[], at(second));
        assert!(board.raised().count() <= ALARMS_MAX && board.cleared().count() <= CLEARED_MAX);
    }
    assert_eq!(board.cleared().count(), CLEARED_MAX);
}

proptest! {
    /// Raised and cleared take turns, and nothing is told twice.
    #[test]
    fn every_alarm_that_is_cleared_was_raised(seen in prop::collection::vec(prop::option::of(any::<bool>()), 0..300)) {
        let told = changes(seen);
        prop_assert!(told.iter().enumerate().all(|(n, (_, is_raised))| *is_raised == (n % 2 == 0)), "{told:?}");
    }
}

#[test]
fn an_alarm_remembers_its_worst_moment() {
    let mut board = AlarmBoard::default();
    for second in 0..40_u64 {
        let weight = if second == 12 { 900.0 } else { 10.0 };
        let text = format!("loses {weight}/s");
        let conditions = if second < 20 { vec![Condition { text, weight, ..losing("r", true) }] } else { Vec::new() };
        board.observe(conditions, &[], at(second));
    }
    let over = board.cleared().next().expect("over");
    assert_eq!((over.text.as_str(), over.worst_text.as_str()), ("loses 10/s", "loses 900/s"));
    assert_eq!((over.since, over.cleared_at), (at(0), Some(at(34))));
}

#[test]
fn what_is_about_to_be_raised_or_cleared_is_known() {
    let mut board = AlarmBoard::default();
    let pending = |board: &AlarmBoard| {
        board.pending().map(|(alarm, after)| (alarm.subject.clone(), after.as_secs())).collect::<Vec<_>>()
    };
    for second in 0..3 {
        board.observe(vec![losing("r", true)], &[], at(second));
    }
    assert_eq!((pending(&board), board.raised().count()), (vec![("r".to_owned(), 5)], 0));
    board.observe(vec![losing("r", true)], &[], at(5));
    let fading = |board: &AlarmBoard, looked_at| board.raised().next().and_then(|alarm| alarm.fading(looked_at));
    assert_eq!((pending(&board).len(), fading(&board, at(5))), (0, None));
    board.observe(Vec::new(), &[], at(12));
    assert_eq!(fading(&board, at(12)), Some(Duration::from_secs(15)), "not seen at the last look");
}
