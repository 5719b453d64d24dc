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
    let early = Timestamp::ZERO;
    let mut honoured = |now, client: &'static [u8], ticket| {
        // Full again, so that nobody gets in without a ticket.
        book.on_backlog(now, Duration::from_secs(10));
        let visitor = Visitor { client, work: Duration::from_millis(10), ticket: Some(ticket) };
        book.decide(now, &visitor, Server::Busy, &mut rng()) == Appointment::Admit
    };
    let slot = ticket.slot;
    assert!(!honoured(slot + Duration::from_millis(1001), b"kp-1", ticket), "too late");
    assert!(!honoured(early, b"kp-2", ticket), "somebody else's");
    assert!(!honoured(slot, b"kp-1", Ticket { mac: ticket.mac ^ 1, ..ticket }), "forged");
    assert!(!honoured(slot, b"kp-1", Ticket { slot: slot + Duration::from_nanos(1), ..ticket }), "moved");
    assert!(honoured(slot + Duration::from_secs(1), b"kp-1", ticket), "in time");
    assert!(!honoured(slot, b"kp-1", ticket), "a second time");
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

#[test]
fn promises_slip_when_the_server_became_slower() {
    let mut book = book();
    book.on_backlog(Timestamp::ZERO, Duration::from_secs(3));
    assert_eq!(book.wait(Timestamp::ZERO), Duration::from_millis(2900));
    book.on_backlog(Timestamp::ZERO, Duration::from_secs(1));
    assert_eq!(book.wait(Timestamp::ZERO), Duration::from_millis(2900), "and are not taken back");
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
    Visit { work_us: u64, server: Server },
    Pass { micros: u64 },
    Backlog { millis: u64 },
    GoBack { micros: u64 },
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

proptest! {
    /// Invariant 15: slots increase strictly, each leaves room for the work promised before it, and the promised work of
    /// any window is at most ρ times its length.
    #[test]
    fn slots_leave_room_for_the_work_promised(operations in prop::collection::vec(operation(), 1..300)) {
        let (mut book, mut now, mut rng) = (book(), Timestamp::from_secs_f64(1.0), rng());
        let mut promised: Vec<(Timestamp, f64)> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Pass { micros } => now = now + Duration::from_micros(micros),
                Operation::GoBack { micros } => now = Timestamp::from_nanos(now.as_nanos() - micros * 1000),
                Operation::Backlog { millis } => book.on_backlog(now, Duration::from_millis(millis)),
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
}
