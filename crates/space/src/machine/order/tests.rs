use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn readers() -> Order<u32> {
    let servers = Servers { threads: 4, long_max: 2, worth: 2, apart_max: 0 };
    Order::new(&PoolConfig::default(), servers, |_| false).unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn query(client: u64, exact: u64, value: u32) -> Arrival<u32> {
    let shape = Shape { exact, kind: exact, size: 0, own: 0 };
    let (class, patience) = (Class::Query, Duration::from_secs(10));
    let (kp, terms) = (client.into(), WaitTerms::default());
    Arrival { class, key: None, kp, check: None, shape, patience, terms, value }
}

/// Teaches the order what requests of this shape cost.
fn teach(order: &mut Order<u32>, exact: u64, cost: Duration) {
    assert!(matches!(order.offer(at(0), query(1000, exact, 0)), Offered::Queued));
    let taken = order.take(at(0), &[]).unwrap();
    order.on_served(taken.job, cost);
}

#[test]
fn large_changes_are_under_way_without_keeping_anybody_and_the_next_of_them_waits() {
    let servers = Servers { threads: usize::MAX, long_max: usize::MAX, worth: 1, apart_max: 2 };
    let mut order = Order::new(&PoolConfig::default(), servers, |_| false).unwrap();
    let change = |client: u64, size: u32, value: u32| Arrival {
        class: Class::Update,
        shape: Shape { exact: 0, kind: 7, size, own: 0 },
        ..query(client, 0, value)
    };
    for (size, cost) in [(1, MS / 20), (100_000, MS * 900)] {
        assert!(matches!(order.offer(at(0), change(1, size, 0)), Offered::Queued));
        order.take(at(0), &[]).map(|taken| order.on_served(taken.job, cost)).unwrap();
    }
    for n in 1..=3 {
        assert!(matches!(order.offer(at(0), change(u64::from(n), 100_000, n)), Offered::Queued));
    }
    let running: Vec<_> = std::iter::from_fn(|| order.take(at(0), &[])).collect();
    assert_eq!(running.len(), 2, "the third one waits in its lane");
    let small = Shape { exact: 0, kind: 7, size: 1, own: 0 };
    assert!(order.wait_of(at(0), Class::Update, 9.into(), small) < MS, "nobody else waits for them");
    let large = Shape { exact: 0, kind: 7, size: 100_000, own: 0 };
    assert!(order.wait_of(at(0), Class::Update, 9.into(), large) >= MS * 1800, "but those who are like them do");
    assert!(matches!(order.offer(at(0), change(9, 1, 77)), Offered::Queued));
    let next = order.take(at(0), &[]).unwrap();
    assert_eq!(next.value, 77);
    for taken in running.into_iter().chain([next]) {
        order.on_served(taken.job, MS);
    }
    assert_eq!(order.take(at(1), &[]).map(|taken| taken.value), Some(3));
}

/// Whoever joined what waited at the end of a long line waited there, too.
#[test]
fn who_asks_the_same_as_one_with_a_long_line_is_answered_at_its_own_turn() {
    for (flow, executions) in [(0, 1), (9, 2)] {
        let mut order = readers();
        teach(&mut order, 1, MS * 10);
        let asked = |client: u64, key: u128, value: u32, flow: u64| Arrival {
            key: Some(QueryKey(key)),
            terms: WaitTerms { flow, ..WaitTerms::default() },
            ..query(client, 1, value)
        };
        for n in 0..50 {
            assert!(matches!(order.offer(at(0), asked(7, n.into(), n, flow)), Offered::Queued));
        }
        let running: Vec<_> = std::iter::from_fn(|| order.take(at(0), &[])).collect();
        let joins = order.offer(at(1), asked(8, 40, 1000, 0));
        assert_eq!(matches!(joins, Offered::Joined), flow == 0, "{joins:?}");
        for taken in running {
            order.on_served(taken.job, MS * 10);
        }
        let next = order.take(at(10), &[]).unwrap();
        assert!(next.value == 1000 || next.joined == [1000], "it is next: {next:?}");
        order.on_served(next.job, MS * 10);
        let mut same = 1;
        while let Some(taken) = order.take(at(20), &[]) {
            same += u32::from(taken.value == 40);
            order.on_served(taken.job, MS * 10);
        }
        assert_eq!(same, executions);
    }
}

/// Told by half of its patience alone, whoever asks for much was sent away a thousand times in two seconds.
#[test]
fn who_is_refused_is_told_when_there_is_room_for_its_own_work() {
    let mut order = readers();
    teach(&mut order, 1, MS * 1500);
    for n in 0..2 {
        assert!(matches!(order.offer(at(0), query(10 + u64::from(n), 1, n)), Offered::Queued));
    }
    let running: Vec<_> = std::iter::from_fn(|| order.take(at(0), &[])).collect();
    assert_eq!(running.len(), 2);
    let impatient = || Arrival { patience: MS * 2000, ..query(20, 1, 9) };
    let Offered::Denied(_, told) = order.offer(at(0), impatient()) else { panic!("two seconds are not enough") };
    assert_eq!(told, MS * 1250, "half a second is left of its patience, and half of that is waited for");
    assert!(matches!(order.offer(at(0) + told, impatient()), Offered::Queued));
    for taken in running {
        order.on_served(taken.job, MS * 1500);
    }
}

/// Queries of one shape of which some take long: their mean is that of none of them.
#[test]
fn a_shape_of_which_some_took_long_does_not_get_the_last_server() {
    let mut order = readers();
    let of = |client: u64, value: u32| {
        let shape = Shape { exact: 0, kind: 5, size: 0, own: 0 }.asked_by(client);
        Arrival { shape, ..query(client, 0, value) }
    };
    let mut serve = |client: u64, cost: Duration| {
        assert!(matches!(order.offer(at(0), of(client, 0)), Offered::Queued));
        let taken = order.take(at(0), &[]).unwrap();
        order.on_served(taken.job, cost);
    };
    (0..20).for_each(|_| serve(1, MS));
    serve(2, MS * 900);
    (0..10).for_each(|_| serve(1, MS));
    // By the mean of the shape all of them are short: about two milliseconds.
    for n in 0..4 {
        assert!(matches!(order.offer(at(0), of(2 + u64::from(n), n)), Offered::Queued));
    }
    let running: Vec<_> = std::iter::from_fn(|| order.take(at(0), &[])).collect();
    assert_eq!(running.len(), 3, "the last server stays free");
    assert!(matches!(order.offer(at(1), of(1, 77)), Offered::Queued));
    let own = order.take(at(1), &[]).unwrap();
    assert_eq!(own.value, 77, "for one whose own were always short");
    for taken in running.into_iter().chain([own]) {
        order.on_served(taken.job, MS);
    }
}

fn of_shape(client: u64, value: u32) -> Arrival<u32> {
    let shape = Shape { exact: 0, kind: 5, size: 0, own: 0 }.asked_by(client);
    Arrival { shape, ..query(client, 0, value) }
}

fn returned(taken: Taken<u32>) -> (Job, Vec<Returned<u32>>) {
    let all = std::iter::once(taken.value).chain(taken.joined);
    let back = |value| Returned { value, arrived: at(0), deadline: at(100_000), check: None };
    (taken.job, all.map(back).collect())
}

/// Four that are taken for short and take long had every server until they were done.
#[test]
fn what_was_taken_for_short_and_keeps_others_waiting_yields_and_goes_on_as_a_long_one() {
    let mut order = readers();
    for _ in 0..20 {
        assert!(matches!(order.offer(at(0), of_shape(1, 0)), Offered::Queued));
        order.take(at(0), &[]).map(|taken| order.on_served(taken.job, MS * 15)).unwrap();
    }
    for n in 0..4 {
        assert!(matches!(order.offer(at(0), of_shape(2 + u64::from(n), n)), Offered::Queued));
    }
    let mut running: Vec<_> = std::iter::from_fn(|| order.take(at(0), &[])).collect();
    assert_eq!(running.len(), 4);
    assert!(matches!(order.offer(at(1), of_shape(1, 77)), Offered::Queued));
    assert_eq!(order.poll_yielding(at(55)), None, "such requests may take as long");
    let stopped: Vec<u64> = std::iter::from_fn(|| order.poll_yielding(at(70))).collect();
    let last: Vec<u64> = running[2..].iter().rev().map(|taken| taken.job.number()).collect();
    assert_eq!(stopped, last, "those that began last, as many as are too many");
    for taken in running.drain(2..).collect::<Vec<_>>() {
        let (job, requests) = returned(taken);
        order.take_back(job, requests, MS * 70);
    }
    let short = order.take(at(70), &[]).unwrap();
    assert_eq!(short.value, 77);
    assert!(order.take(at(70), &[]).is_none(), "two that take long are under way, and the others wait for these");
    order.on_served(short.job, MS * 15);
    for (taken, next) in running.into_iter().zip([2, 3]) {
        order.on_served(taken.job, MS * 900);
        let again = order.take(at(900), &[]).unwrap();
        assert_eq!((again.value, again.job.is_long()), (next, true));
        assert!(matches!(order.offer(at(900), of_shape(1, 78)), Offered::Queued));
        assert_eq!(order.poll_yielding(at(1_000)), None, "it is not stopped a second time");
        let short = order.take(at(1_000), &[]).unwrap();
        order.on_served(short.job, MS * 15);
        order.on_cancelled(again.job, MS);
    }
}

#[test]
fn who_was_let_go_on_is_not_stopped_later() {
    let mut order = readers();
    teach(&mut order, 1, MS);
    let begin = |order: &mut Order<u32>, millis: u64, n: u32| {
        assert!(matches!(order.offer(at(millis), query(2, 50 + u64::from(n), n)), Offered::Queued));
        order.take(at(millis), &[]).unwrap().job
    };
    let mut running: Vec<Job> = (0..2).map(|n| begin(&mut order, 0, n)).collect();
    assert_eq!(order.poll_yielding(at(3_000)), None, "two may take long");
    running.push(begin(&mut order, 3_000, 2));
    assert_eq!(order.poll_yielding(at(3_040)), None);
    assert_eq!(order.poll_yielding(at(3_060)), Some(running[2].number()), "and not one that would lose three seconds");
    assert_eq!(order.poll_yielding(at(3_070)), None);
    for job in running {
        order.on_cancelled(job, MS);
    }
}

#[test]
fn slow_queries_leave_a_server_to_what_is_short() {
    let mut order = readers();
    teach(&mut order, 1, MS);
    // Four unknown ones that will take long: three begin, the last server stays.
    for n in 0..4 {
        assert!(matches!(order.offer(at(0), query(7, 50 + u64::from(n), n)), Offered::Queued));
    }
    let running: Vec<_> = std::iter::from_fn(|| order.take(at(0), &[])).collect();
    assert_eq!(running.len(), 3);
    assert!(matches!(order.offer(at(9_000), query(8, 1, 77)), Offered::Queued));
    let short = order.take(at(9_000), &[]).unwrap();
    assert_eq!(short.value, 77);
    order.on_served(short.job, MS);
    assert!(order.take(at(9_000), &[]).is_none(), "the fourth is not known to be short");
    // What was given up is known: from now on at most two of them run at once.
    for taken in running {
        order.on_cancelled(taken.job, MS * 3_000);
    }
    let fourth = order.take(at(10_000), &[]).unwrap();
    for n in 0..3 {
        assert!(matches!(order.offer(at(10_000), query(7, 50 + u64::from(n), n)), Offered::Queued));
    }
    let second = order.take(at(10_060), &[]).unwrap();
    assert!(order.take(at(10_060), &[]).is_none(), "the one that overran is long, too");
    assert!(matches!(order.offer(at(10_060), query(8, 1, 78)), Offered::Queued));
    let short = order.take(at(10_060), &[]).unwrap();
    assert_eq!(short.value, 78);
    for job in [fourth.job, second.job, short.job] {
        order.on_cancelled(job, MS);
    }
}

#[test]
fn a_client_that_asks_one_thing_after_the_other_is_never_refused() {
    let mut order = readers();
    let mut now = at(0);
    for n in 0..200u32 {
        // Whatever each took, from a microsecond to several seconds.
        let cost = Duration::from_micros(1 << (n % 22));
        assert!(matches!(order.offer(now, query(1, u64::from(n % 5) + 1, n)), Offered::Queued), "{n}");
        let taken = order.take(now, &[]).unwrap();
        now = now + cost;
        order.on_served(taken.job, cost);
    }
}

#[test]
fn only_what_would_be_late_is_refused_and_is_told_when_to_come() {
    let mut order = readers();
    teach(&mut order, 1, MS * 40);
    let mut refused = None;
    for client in 0..2000 {
        if let Offered::Denied(_, retry_after) = order.offer(at(0), query(client, 1, 0)) {
            refused = Some((client, retry_after));
            break;
        }
    }
    // Ten seconds of two processors are 500 requests of 40 ms.
    let (client, retry_after) = refused.unwrap();
    assert!((495..=501).contains(&client), "{client}");
    assert!(retry_after >= MS * 4_900 && retry_after <= MS * 5_100, "{retry_after:?}");
}

#[test]
fn one_that_sends_much_at_once_is_refused_alone() {
    let mut order = readers();
    teach(&mut order, 1, MS);
    let denied = (0..1000).filter(|n| matches!(order.offer(at(0), query(1, 1, *n)), Offered::Denied(..))).count();
    assert_eq!(denied, 1000 - 200, "100 ms of work for two");
    assert!(matches!(order.offer(at(0), query(2, 1, 5000)), Offered::Queued));
    order.take(at(0), &[]).unwrap();
    assert_eq!(order.take(at(0), &[]).unwrap().value, 5000, "and it is next");
}

#[test]
fn equal_questions_wait_as_one_and_who_waited_too_long_is_not_served() {
    let mut order = readers();
    let equal = |value, patience| Arrival { key: Some(QueryKey(9)), patience, ..query(u64::from(value), 1, value) };
    assert!(matches!(order.offer(at(0), equal(1, MS)), Offered::Queued));
    assert!(matches!(order.offer(at(0), equal(2, MS * 100)), Offered::Joined));
    let taken = order.take(at(50), &[]).unwrap();
    let ended = order.poll_ended().map(|ended| (ended.value, ended.why));
    assert_eq!((taken.value, taken.joined.len(), ended), (2, 0, Some((1, EndedBy::Time))));
    order.on_served(taken.job, MS);
    assert!(order.is_empty() && order.backlog(at(51)).is_zero());
}

#[test]
fn promises_take_at_most_half_while_others_wait() {
    let mut order = readers();
    teach(&mut order, 1, MS);
    for n in 0..60 {
        assert!(matches!(order.offer(at(0), query(1, 1, n)), Offered::Queued));
        let promised = Arrival {
            terms: WaitTerms { is_promised: true, ..WaitTerms::default() },
            ..query(u64::from(n) + 10, 1, n)
        };
        assert!(matches!(order.offer(at(0), promised), Offered::Queued));
    }
    let mut promised = 0;
    for _ in 0..40 {
        let taken = order.take(at(0), &[]).unwrap();
        promised += u32::from(taken.job.is_promised);
        order.on_served(taken.job, MS);
    }
    assert!((20..=36).contains(&promised), "{promised}: before others, and not instead of them");
}

proptest! {
    /// Every request ends once: taken, joined, denied or ended; and the order never rests while a server is free for what
    /// waits.
    #[test]
    fn every_request_ends_once(
        steps in prop::collection::vec((0..6u64, 1..8u64, 0..4u8, 1..200u64), 1..200),
    ) {
        let mut order = readers();
        let (mut now, mut offered, mut over) = (0u64, 0u32, 0u32);
        let mut running: Vec<Taken<u32>> = Vec::new();
        for (client, exact, what, millis) in steps {
            now += millis;
            match what {
                0 => {
                    offered += 1;
                    let key = (exact % 2 == 0).then_some(QueryKey(exact.into()));
                    let patience = MS * u32::try_from(millis * 50).unwrap();
                    let request = Arrival { key, patience, ..query(client, exact, offered) };
                    over += u32::from(matches!(order.offer(at(now), request), Offered::Denied(..)));
                }
                1 => {
                    if let Some(taken) = order.take(at(now), &[]) {
                        over += 1 + taken.joined.len() as u32;
                        running.push(taken);
                    }
                }
                2 => {
                    if let Some(taken) = running.pop() {
                        order.on_served(taken.job, MS * u32::try_from(millis).unwrap());
                    }
                }
                _ => {
                    while let Some(number) = order.poll_yielding(at(now)) {
                        let place = running.iter().position(|taken| taken.job.number() == number).unwrap();
                        let (job, requests) = returned(running.remove(place));
                        over -= requests.len() as u32;
                        order.take_back(job, requests, MS * 60);
                    }
                }
            }
            over += std::iter::from_fn(|| order.poll_ended()).count() as u32;
        }
        running.drain(..).for_each(|taken| order.on_cancelled(taken.job, MS));
        // With all servers free whatever waits is taken.
        while let Some(taken) = order.take(at(now), &[]) {
            over += 1 + taken.joined.len() as u32;
            order.on_served(taken.job, MS);
        }
        over += std::iter::from_fn(|| order.poll_ended()).count() as u32;
        prop_assert!(order.is_empty());
        prop_assert_eq!(offered, over);
    }
}

fn service() -> KpStanding {
    KpStanding { role: KpRole::Service, ..KpStanding::default() }
}

fn of(role: KpRole, household: u64, client: u64, value: u32) -> Arrival<u32> {
    let kp = KpPlace { household, client, standing: KpStanding { role, ..KpStanding::default() } };
    Arrival { kp, ..query(client, 1, value) }
}

#[test]
fn services_come_before_customers_who_are_never_locked_out() {
    let mut order = readers();
    teach(&mut order, 1, MS);
    for n in 0..320 {
        assert!(matches!(order.offer(at(0), of(KpRole::Customer, n, n, 0)), Offered::Queued));
        assert!(matches!(order.offer(at(0), of(KpRole::Service, n, n, 1)), Offered::Queued));
    }
    let mut served = Vec::new();
    for _ in 0..160 {
        let taken = order.take(at(0), &[]).unwrap();
        served.push(taken.value);
        order.on_served(taken.job, MS);
    }
    assert_eq!(served[0], 1, "{served:?}");
    let customers = served.iter().filter(|value| **value == 0).count();
    assert!((9..=11).contains(&customers), "{customers} of 160: a sixteenth");
}

#[test]
fn a_service_that_comes_to_a_queue_full_of_customers_is_next_and_is_not_refused_for_them() {
    let mut order = readers();
    teach(&mut order, 1, MS * 10);
    let patience = MS * 200;
    for client in 0..2000 {
        order.offer(at(0), Arrival { patience: MS * 100_000, ..of(KpRole::Customer, client, client, 0) });
    }
    let customer = Arrival { patience, ..of(KpRole::Customer, 5000, 5000, 0) };
    assert!(matches!(order.offer(at(0), customer), Offered::Denied(..)));
    let agent = Arrival { patience, ..of(KpRole::Service, 6000, 6000, 7) };
    assert!(matches!(order.offer(at(0), agent), Offered::Queued));
    assert_eq!(order.take(at(0), &[]).unwrap().value, 7);
}

#[test]
fn a_later_check_of_the_same_takes_the_place_of_the_earlier_one() {
    let mut order = readers();
    let check = |client, check, value| Arrival { check: Some(check), ..query(client, 1, value) };
    assert!(matches!(order.offer(at(0), check(1, 11, 1)), Offered::Queued));
    assert!(matches!(order.offer(at(0), check(2, 22, 2)), Offered::Queued));
    assert!(matches!(order.offer(at(5), check(1, 11, 3)), Offered::Joined));
    let ended = order.poll_ended().map(|ended| (ended.value, ended.why));
    assert_eq!(ended, Some((1, EndedBy::Outdated)));
    assert_eq!(order.items(), 2);
    let taken = order.take(at(9), &[]).unwrap();
    assert_eq!((taken.value, taken.queued), (3, MS * 4), "in the place of the one that waited, with its own time");
    assert_eq!(order.take(at(9), &[]).unwrap().value, 2);
    // Among equal questions of several askers, only that of the same asker goes.
    let equal =
        |client, check, value| Arrival { key: Some(QueryKey(9)), check: Some(check), ..query(client, 2, value) };
    for (client, value) in [(1, 10), (2, 20), (2, 21)] {
        order.offer(at(10), equal(client, client, value));
    }
    assert_eq!(order.poll_ended().map(|ended| ended.value), Some(20));
    let taken = order.take(at(10), &[]).unwrap();
    assert_eq!((taken.value, taken.joined), (10, vec![21]));
}

#[test]
fn who_has_left_is_not_served_and_keeps_nobody_out() {
    let servers = Servers { threads: 4, long_max: 2, worth: 2, apart_max: 0 };
    let mut order: Order<u32> = Order::new(&PoolConfig::default(), servers, |value| *value >= 1000).unwrap();
    teach(&mut order, 1, MS * 10);
    let patient = |client, value| Arrival { patience: MS * 200, ..query(client, 1, value) };
    let patience = MS * 100_000;
    for client in 0..200 {
        let left = Arrival { patience, ..query(client, 1, 1000) };
        assert!(matches!(order.offer(at(100), left), Offered::Queued));
    }
    assert_eq!(order.items(), 200, "a second of work for two");
    assert!(
        matches!(order.offer(at(200), patient(5000, 1)), Offered::Queued),
        "they are swept out before it is refused"
    );
    assert_eq!(order.items(), 1);
    let taken = order.take(at(200), &[]).unwrap();
    assert_eq!(taken.value, 1);
    assert!(std::iter::from_fn(|| order.poll_ended()).all(|ended| ended.why == EndedBy::Outdated));
}

/// The papers' pool (P19, Table I): queues of a fixed length, in the order of arrival, whoever asks.
fn paper(policy: Policy, length: u32) -> Order<u32> {
    let mut config = PoolConfig::paper(length);
    for class in &mut config.classes {
        (class.policy, class.parked_max) = (policy, 2);
    }
    Order::new(&config, Servers { threads: 4, long_max: 2, worth: 2, apart_max: 0 }, |_| false).unwrap()
}

fn offered(order: &mut Order<u32>, count: u32) -> Vec<&'static str> {
    let word = |offered| match offered {
        Offered::Queued => "in",
        Offered::Joined => "joined",
        Offered::Postponed => "postponed",
        Offered::Denied(..) => "denied",
        Offered::Dropped(_) => "dropped",
    };
    (0..count).map(|n| word(order.offer(at(0), query(u64::from(n % 2), 1, n)))).collect()
}

#[test]
fn the_papers_queues_have_a_length_and_each_of_its_policies() {
    for (policy, fate) in [
        (Policy::Deny, ["in", "in", "in", "denied", "denied", "denied"]),
        (Policy::TailDrop, ["in", "in", "in", "dropped", "dropped", "dropped"]),
        (Policy::HeadDrop, ["in"; 6]),
        (Policy::Postpone, ["in", "in", "in", "postponed", "postponed", "denied"]),
    ] {
        let mut order = paper(policy, 3);
        assert_eq!(offered(&mut order, 6), fate, "{policy:?}");
        let displaced: Vec<_> = std::iter::from_fn(|| order.poll_ended()).map(|it| (it.value, it.why)).collect();
        let expected: &[u32] = if policy == Policy::HeadDrop { &[0, 1, 2] } else { &[] };
        assert_eq!(displaced, expected.iter().map(|value| (*value, EndedBy::Displaced)).collect::<Vec<_>>());
        let first = if policy == Policy::HeadDrop { 3 } else { 0 };
        let mut served = Vec::new();
        // Long after its time, as the papers do: nobody looks at deadlines.
        while let Some(taken) = order.take(at(1_000_000), &[]) {
            served.push(taken.value);
            order.on_served(taken.job, MS);
        }
        assert_eq!(served[..3], [first, first + 1, first + 2], "in the order of arrival");
    }
}

#[test]
fn the_papers_queues_are_by_type_and_take_turns() {
    let mut order = paper(Policy::TailDrop, 3);
    for n in 0..3 {
        assert!(matches!(order.offer(at(0), query(1, 1, n)), Offered::Queued));
    }
    let change = |n| Arrival { class: Class::Update, ..query(1, 2, n) };
    assert!(matches!(order.offer(at(0), query(2, 1, 9)), Offered::Dropped(9)));
    assert!(matches!(order.offer(at(0), change(10)), Offered::Queued), "another type, another queue");
    let mut served = Vec::new();
    for _ in 0..2 {
        let taken = order.take(at(0), &[]).unwrap();
        served.push(taken.value);
        order.on_served(taken.job, MS);
    }
    served.sort_unstable();
    assert_eq!(served, [0, 10]);
    let urgent = Arrival { kp: KpPlace { household: 1, client: 1, standing: service() }, ..query(1, 1, 11) };
    assert!(matches!(order.offer(at(0), urgent), Offered::Queued));
    let rest: Vec<u32> = std::iter::from_fn(|| order.take(at(0), &[])).map(|taken| taken.value).collect();
    assert_eq!(rest, [1, 2, 11], "nobody comes first");
}
