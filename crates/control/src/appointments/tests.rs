use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng};

fn book() -> Appointments {
    Appointments::new(&AppointmentsConfig::default(), TicketKey::new(*b"0123456789abcdef")).unwrap()
}

fn visitor(work_ms: u64, ticket: Option<Ticket>) -> Visitor<'static> {
    Visitor { client: b"kp-1", work: Duration::from_millis(work_ms), ticket }
}

fn rng() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(3)
}

/// Fills the book until somebody gets a ticket.
fn first_ticket(book: &mut Appointments, now: Timestamp) -> Ticket {
    loop {
        if let Appointment::Deny { ticket: Some(ticket), .. } =
            book.decide(now, &visitor(10, None), Server::Busy, &mut rng())
        {
            return ticket;
        }
    }
}

#[test]
fn a_ticket_is_honoured_once_in_time_and_by_its_owner() {
    let mut book = book();
    let ticket = first_ticket(&mut book, Timestamp::ZERO);
    let mut honoured = |now, client: &'static [u8], ticket| {
        // Full again, so that nobody gets in without a ticket.
        book.on_backlog(now, Duration::from_secs(10));
        let visitor = Visitor { client, work: Duration::from_millis(10), ticket: Some(ticket) };
        book.decide(now, &visitor, Server::Busy, &mut rng()) == Appointment::Admit
    };
    let slot = ticket.slot;
    assert!(!honoured(slot, b"kp-2", ticket), "somebody else's");
    assert!(!honoured(slot, b"kp-1", Ticket { mac: ticket.mac ^ 1, ..ticket }), "forged");
    assert!(!honoured(slot, b"kp-1", Ticket { slot: slot + Duration::from_nanos(1), ..ticket }), "moved");
    assert!(honoured(slot + Duration::from_secs(1), b"kp-1", ticket), "in time");
    assert!(!honoured(slot + Duration::from_secs(1), b"kp-1", ticket), "a second time");
    assert!(!honoured(slot, b"kp-1", ticket), "a second time");

    let now = slot + Duration::from_secs(20);
    book.on_backlog(now, Duration::from_secs(10));
    let ticket = first_ticket(&mut book, now);
    let mut honoured = |now| {
        book.on_backlog(now, Duration::from_secs(10));
        book.decide(now, &visitor(10, Some(ticket)), Server::Busy, &mut rng()) == Appointment::Admit
    };
    assert!(!honoured(Timestamp::from_nanos(ticket.slot.as_nanos() - 1_000_000_001)), "too early");
    assert!(!honoured(ticket.slot + Duration::from_millis(1001)), "too late");
}

#[test]
fn an_idle_server_admits_whoever_comes() {
    let mut book = book();
    first_ticket(&mut book, Timestamp::ZERO);
    assert_eq!(book.decide(Timestamp::ZERO, &visitor(10, None), Server::Idle, &mut rng()), Appointment::Admit);
}

#[test]
fn beyond_the_horizon_there_is_no_promise() {
    let (mut book, now) = (book(), Timestamp::from_secs_f64(5.0));
    book.on_backlog(now, Duration::MAX);
    for _ in 0..1000 {
        let Appointment::Deny { retry_after, ticket } = book.decide(now, &visitor(10, None), Server::Busy, &mut rng())
        else {
            panic!("admitted into a full book");
        };
        assert_eq!(ticket, None);
        assert!((Duration::from_secs(120)..Duration::from_secs(240)).contains(&retry_after));
    }
    assert!(book.wait(now) <= Duration::from_secs(240));
}

/// An idle server takes whatever comes; that must not shut out everybody else for a day.
#[test]
fn work_taken_while_idle_closes_the_book_for_two_horizons_at_most() {
    let (mut book, now) = (book(), Timestamp::from_secs_f64(5.0));
    for _ in 0..1000 {
        assert_eq!(book.decide(now, &visitor(120_000, None), Server::Idle, &mut rng()), Appointment::Admit);
    }
    // 120 s + 120 s + 50 µs: the end of the work of the last slot that may be promised.
    assert!(book.wait(now) <= Duration::from_millis(240_001), "{:?}", book.wait(now));
    let later = now + Duration::from_secs(130);
    let decision = book.decide(later, &visitor(10, None), Server::Busy, &mut rng());
    assert!(matches!(decision, Appointment::Deny { ticket: Some(_), .. }), "{decision:?}");
}

/// The longest work that counts, promised at the end of the horizon, still keeps its room.
#[test]
fn the_furthest_promise_is_kept() {
    let (mut book, now) = (book(), Timestamp::ZERO);
    book.on_backlog(now, Duration::from_secs(120));
    let slot = |decision| match decision {
        Appointment::Deny { ticket: Some(ticket), .. } => ticket.slot,
        _ => panic!("no slot: {decision:?}"),
    };
    let first = slot(book.decide(now, &visitor(120_000, None), Server::Busy, &mut rng()));
    let second = slot(book.decide(now + Duration::from_secs(130), &visitor(10, None), Server::Busy, &mut rng()));
    assert!(second.since(first).as_secs_f64() >= 120.0, "{:?}", second.since(first));
}

/// `w_deny`: with a denial of 1 ms, 1000 visitors who are sent away with a slot need a second more.
#[test]
fn denials_cost_time_too() {
    let end = |denial_ms: u64, backlog: u64| {
        let config =
            AppointmentsConfig { denial_cost: Duration::from_millis(denial_ms), ..AppointmentsConfig::default() };
        let mut book = Appointments::new(&config, TicketKey::new([1; 16])).unwrap();
        book.on_backlog(Timestamp::ZERO, Duration::from_secs(backlog));
        for _ in 0..1000 {
            let decision = book.decide(Timestamp::ZERO, &visitor(10, None), Server::Busy, &mut rng());
            assert!(matches!(decision, Appointment::Deny { .. }));
        }
        book.wait(Timestamp::ZERO).as_secs_f64()
    };
    assert!((end(1, 10) - end(0, 10) - 1.0).abs() < 1e-3, "with a slot");
    assert!((end(1, 130) - end(0, 130) - 1.0).abs() < 1e-3, "beyond the horizon, without one");
}

/// A ticket is honoured once, also if the clock is set ahead, so that it is forgotten, and back again.
#[test]
fn going_back_in_time_does_not_renew_a_ticket() {
    for ahead in [Duration::from_millis(1500), Duration::from_secs(3), Duration::from_secs(3_000_000_000)] {
        let (mut book, start) = (book(), Timestamp::from_secs_f64(5.0));
        let ticket = first_ticket(&mut book, start);
        let mut show = |now| {
            book.on_backlog(now, Duration::from_secs(10));
            book.decide(now, &visitor(10, Some(ticket)), Server::Busy, &mut rng()) == Appointment::Admit
        };
        assert!(show(ticket.slot));
        assert!(!show(ticket.slot + ahead), "too late");
        for back in [1000, 999, 600, 1, 0] {
            assert!(!show(ticket.slot + Duration::from_millis(back)), "again, {ahead:?} ahead and {back} ms after");
        }
    }
}

#[test]
fn a_clock_that_goes_back_takes_the_book_along() {
    let (mut book, then, now) = (book(), Timestamp::from_secs_f64(1e6), Timestamp::from_secs_f64(10.0));
    book.on_backlog(then, Duration::from_secs(3));
    book.on_backlog(now, Duration::ZERO);
    assert_eq!(book.wait(now), Duration::from_secs(3));
}

#[test]
fn promises_slip_when_the_server_became_slower() {
    let mut book = book();
    book.on_backlog(Timestamp::ZERO, Duration::from_secs(3));
    assert_eq!(book.wait(Timestamp::ZERO), Duration::from_secs(3));
    book.on_backlog(Timestamp::ZERO, Duration::from_secs(1));
    assert_eq!(book.wait(Timestamp::ZERO), Duration::from_secs(3), "and are not taken back");
}

/// A book that is full by chance gives no slots, so that it is not full for everybody after.
#[test]
fn a_few_too_many_are_asked_to_try_again_and_many_get_slots() {
    let (mut book, now) = (book(), Timestamp::from_secs_f64(5.0));
    book.on_backlog(now, Duration::from_millis(101));
    let mut visit = |now| book.decide(now, &visitor(5, None), Server::Busy, &mut rng());
    for _ in 0..44 {
        let Appointment::Deny { retry_after, ticket: None } = visit(now) else { panic!("a slot, or admitted") };
        assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&retry_after));
    }
    assert!(matches!(visit(now), Appointment::Deny { ticket: Some(_), .. }), "half of the last 64 is overload");
    assert!((0.5..0.52).contains(&book.refused()), "{}", book.refused());
    // Their work is not in the book: 44 denials of 50 µs, and one slot.
    assert!(book.wait(now) < Duration::from_millis(109), "{:?}", book.wait(now));
}

#[test]
fn a_wrong_configuration_is_named() {
    let error = Appointments::new(
        &AppointmentsConfig { horizon: Duration::ZERO, ..AppointmentsConfig::default() },
        TicketKey::new([0; 16]),
    )
    .unwrap_err();
    assert_eq!(error.field, "horizon");
}

#[derive(Clone, Debug)]
enum Operation {
    Visit {
        work_us: u64,
        server: Server,
    },
    Pass {
        micros: u64,
    },
    Backlog {
        millis: u64,
    },
    GoBack {
        micros: u64,
    },
    /// One visitor comes at this time of a broken clock.
    Jump {
        to: u64,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let server = prop_oneof![Just(Server::Idle), Just(Server::Busy)];
    prop_oneof![
        8 => (0..50_000_u64, server).prop_map(|(work_us, server)| Operation::Visit { work_us, server }),
        4 => (0..200_000_u64).prop_map(|micros| Operation::Pass { micros }),
        1 => (0..500_u64).prop_map(|millis| Operation::Backlog { millis }),
        1 => (0..1000_u64).prop_map(|micros| Operation::GoBack { micros }),
    ]
}

fn broken_clock() -> impl Strategy<Value = Operation> {
    prop_oneof![9 => operation(), 1 => any::<u64>().prop_map(|to| Operation::Jump { to })]
}

proptest! {
    /// Invariant 15: slots increase strictly, each leaves room for the work promised before it, and the promised work of
    /// any window is at most ρ times its length.
    #[test]
    fn slots_leave_room_for_the_work_promised(operations in prop::collection::vec(operation(), 1..300)) {
        let config = AppointmentsConfig { utilisation: 0.97, ..AppointmentsConfig::default() };
        let mut book = Appointments::new(&config, TicketKey::new(*b"0123456789abcdef")).unwrap();
        let (mut now, mut rng) = (Timestamp::from_secs_f64(1.0), rng());
        let mut promised: Vec<(Timestamp, f64)> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Pass { micros } => now = now + Duration::from_micros(micros),
                Operation::GoBack { micros } => now = Timestamp::from_nanos(now.as_nanos() - micros * 1000),
                Operation::Backlog { millis } => book.on_backlog(now, Duration::from_millis(millis)),
                Operation::Jump { .. } => unreachable!("not with this clock"),
                Operation::Visit { work_us, server } => {
                    let visitor = Visitor { client: b"x", work: Duration::from_micros(work_us), ticket: None };
                    let decision = book.decide(now, &visitor, server, &mut rng);
                    if let Appointment::Deny { retry_after, ticket: Some(ticket) } = decision {
                        prop_assert_eq!(now + retry_after, ticket.slot);
                        promised.push((ticket.slot, work_us as f64 * 1e-6));
                    }
                }
            }
        }
        for pair in promised.windows(2) {
            let gap = pair[1].0.since(pair[0].0).as_secs_f64();
            prop_assert!(pair[1].0 > pair[0].0);
            prop_assert!(gap >= pair[0].1 / 0.97 - 1e-9, "gap {gap} after {} s of work", pair[0].1);
        }
        for first in 0..promised.len() {
            let mut work = 0.0;
            for last in first..promised.len() {
                let window = promised[last].0.since(promised[first].0).as_secs_f64();
                prop_assert!(work <= 0.97 * window + 0.1 + 1e-9);
                work += promised[last].1;
            }
        }
    }
    /// F141: whatever the clock did, no ticket is honoured twice, and when it goes on everybody gets in: at once when the
    /// server is idle, and with a slot that is kept when it is not.
    #[test]
    fn a_broken_clock_does_not_close_the_book(operations in prop::collection::vec(broken_clock(), 1..100)) {
        let (mut book, mut now, mut rng) = (book(), Timestamp::from_secs_f64(1.0), rng());
        let (mut tickets, mut honoured) = (Vec::new(), Vec::new());
        for operation in operations {
            let mut moment = now;
            match operation {
                Operation::Pass { micros } => now = now + Duration::from_micros(micros),
                Operation::GoBack { micros } => now = Timestamp::from_nanos(now.as_nanos() - micros * 1000),
                Operation::Backlog { millis } => book.on_backlog(now, Duration::from_millis(millis)),
                Operation::Jump { to } => moment = Timestamp::from_nanos(to),
                Operation::Visit { work_us, .. } => {
                    let visitor = Visitor { client: b"x", work: Duration::from_micros(work_us), ticket: None };
                    if let Appointment::Deny { ticket, .. } = book.decide(now, &visitor, Server::Busy, &mut rng) {
                        tickets.extend(ticket);
                    }
                }
            }
            book.on_backlog(moment, Duration::from_secs(2));
            for ticket in &tickets {
                let shown = Visitor { client: b"x", work: Duration::from_millis(1), ticket: Some(*ticket) };
                if book.decide(moment, &shown, Server::Busy, &mut rng) == Appointment::Admit {
                    prop_assert!(!honoured.contains(ticket), "{ticket} twice");
                    honoured.push(*ticket);
                }
            }
        }
        let client = visitor(1, None);
        prop_assert_eq!(book.decide(now, &client, Server::Idle, &mut rng), Appointment::Admit);
        // The horizon is 120 s and the book ends 244 s from now at the latest.
        now = now + Duration::from_secs(125);
        book.on_backlog(now, Duration::from_secs(2));
        let Appointment::Deny { retry_after, ticket: Some(ticket) } = book.decide(now, &client, Server::Busy, &mut rng)
        else {
            return Err(TestCaseError::fail("no slot"));
        };
        prop_assert!(retry_after <= Duration::from_secs(120));
        let back = visitor(1, Some(ticket));
        prop_assert_eq!(book.decide(now + retry_after, &back, Server::Busy, &mut rng), Appointment::Admit);
    }
}
