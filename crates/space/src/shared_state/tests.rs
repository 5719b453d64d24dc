use tidegate_graph::{Query, QueryLimits};

use super::*;
use crate::admission::{ClassAdmission, Policy};
use crate::machine::request::Form;

/// Nobody works here: what is offered waits.
fn offered(shared: &Shared, patience: Duration) -> oneshot::Receiver<Result<SpaceResponse, Refused>> {
    let (reply, answer) = oneshot::channel();
    let ask = SpaceRequest::Edit { remove: Vec::new(), insert: Vec::new() };
    let asker = RequestOrigin { patience, ..RequestOrigin::new(0, None) };
    shared.offer(ask, asker, ReplyTo { progress: Arc::default(), charge: None, reply });
    answer
}

#[test]
fn what_would_wait_too_long_is_refused_at_once_with_the_time_to_come_back() {
    let shared = Shared::new((1, 2), &SpaceAdmission::default()).unwrap();
    let mut waiting = Vec::new();
    let retry_after = loop {
        let mut answer = offered(&shared, Duration::from_secs(10));
        match answer.try_recv() {
            Ok(Err(Refused::Busy(hints))) => break hints.retry_after.unwrap(),
            Ok(other) => panic!("{other:?}"),
            Err(_) => waiting.push(answer),
        }
        assert!(waiting.len() <= 10_000, "nothing is ever refused");
    };
    // A tenth of a second of changes that are taken to last 50 µs.
    assert_eq!(waiting.len(), 2000);
    assert!(retry_after >= Duration::from_millis(90), "{retry_after:?}");
    assert_eq!(shared.counts.all(), [("update", "busy", 1)]);
}

#[test]
fn a_later_check_of_the_same_client_makes_the_earlier_one_out_of_date() {
    let shared = Shared::new((1, 2), &SpaceAdmission::default()).unwrap();
    let ask = |client: u64, is_check: bool| {
        let (reply, answer) = oneshot::channel();
        let query = Query::parse("SELECT ?o { <urn:lamp> <urn:state> ?o }", &QueryLimits::default()).unwrap();
        let form = Form::Results(sparesults::QueryResultsFormat::Json);
        let request = SpaceRequest::Query { query: Box::new(query), form };
        let caller = Caller { client, ..Caller::default() };
        let asker = RequestOrigin { is_check, ..RequestOrigin::new(0, None).of(caller) };
        shared.offer(request, asker, ReplyTo { progress: Arc::default(), charge: None, reply });
        answer
    };
    let (mut first, mut other, mut plain) = (ask(1, true), ask(2, true), ask(1, false));
    let mut later = ask(1, true);
    assert!(matches!(first.try_recv(), Ok(Err(Refused::Outdated))));
    for waiting in [&mut other, &mut plain, &mut later] {
        assert!(waiting.try_recv().is_err(), "of others, and what is no check, nothing is known to be old");
    }
    assert_eq!(shared.counts.all(), [("query", "outdated", 1)]);
    let decisions = lock(&shared.desk).front.decisions();
    let made: Vec<_> = decisions.into_iter().filter(|(_, _, number)| *number > 0).collect();
    assert_eq!(made, [("query", "outdated", 1)]);
}

#[test]
fn an_operator_chooses_how_long_the_line_is_and_what_happens_beyond() {
    let line = ClassAdmission { policy: Policy::Postpone, delay_max: Duration::from_millis(1) };
    let shared = Shared::new((1, 2), &SpaceAdmission { update: line, ..SpaceAdmission::default() }).unwrap();
    // Twenty of 50 µs each are a millisecond; the others wait, too, and nobody is refused.
    let mut waiting: Vec<_> = (0..100).map(|_| offered(&shared, Duration::from_secs(10))).collect();
    assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_err()));
    let line = ClassAdmission { policy: Policy::Deny, ..line };
    let shared = Shared::new((1, 2), &SpaceAdmission { update: line, ..SpaceAdmission::default() }).unwrap();
    let mut waiting: Vec<_> = (0..100).map(|_| offered(&shared, Duration::from_secs(10))).collect();
    let refused = waiting.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
    assert_eq!(
        refused,
        100 - crate::machine::order::CLIENT_FREE,
        "what a client may have under way is not refused for delay"
    );
    let line = ClassAdmission { delay_max: Duration::ZERO, ..line };
    assert!(Shared::new((1, 2), &SpaceAdmission { update: line, ..SpaceAdmission::default() }).is_none());
}

#[test]
fn who_cannot_wait_is_told_so_and_after_the_end_nobody_waits() {
    let shared = Shared::new((1, 2), &SpaceAdmission::default()).unwrap();
    let _first = offered(&shared, Duration::from_secs(10));
    let _second = offered(&shared, Duration::from_secs(10));
    let mut hopeless = offered(&shared, Duration::from_micros(1));
    assert!(matches!(hopeless.try_recv(), Ok(Err(Refused::Busy(_)))));
    shared.close();
    assert!(matches!(offered(&shared, Duration::from_secs(1)).try_recv(), Ok(Err(Refused::Closing))));
}
