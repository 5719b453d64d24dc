//! What somebody gains who wants more than its due: by names, by wants, by tickets of others. In virtual time.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, PoolConfig};
use tidegate_control::appointments::TicketKey;

use super::names::HEARD_ENOUGH;
use super::tests::Fixed;
use super::{Caller, Entered, RequestQueue};
use crate::machine::order::{Arrival, KpPlace, Servers, Shape, Taken, WaitTerms};
use crate::machine::standing::{KpRole, KpStanding};

const WORK: Duration = Duration::from_millis(1);

struct Hall {
    queue: RequestQueue<u64>,
    now: Timestamp,
}

impl Hall {
    fn new() -> Self {
        let servers = Servers { threads: 1, long_max: 1, worth: 1, apart_max: 0 };
        let queue = RequestQueue::new(&PoolConfig::default(), servers, TicketKey::new([3; 16])).unwrap();
        Self { queue, now: Timestamp::from_nanos(1) }
    }

    /// Whether it is let in.
    fn ask(&mut self, caller: &Caller) -> bool {
        let shape = Shape { exact: 1, kind: 1, size: 0, own: 0 };
        let (class, kp, terms, patience) =
            (Class::Query, KpPlace::default(), WaitTerms::default(), Duration::from_secs(10));
        let hints = self.queue.hints(self.now, class, caller);
        let value = caller.client;
        let arrival = Arrival { class, key: None, kp, check: None, shape, patience, terms, value };
        matches!(self.queue.offer(self.now, arrival, caller, &hints, &mut Fixed), Entered::Waits)
    }

    /// Serves the next one.
    fn serve(&mut self) -> Option<u64> {
        let Taken { job, value, .. } = self.queue.take(self.now)?;
        self.now = self.now + WORK;
        self.queue.served(job, WORK);
        Some(value)
    }

    /// These are heard so often that they are known.
    fn introduce(&mut self, callers: &[Caller]) {
        for _ in 0..=HEARD_ENOUGH {
            for caller in callers {
                assert!(self.ask(caller));
                assert_eq!(self.serve(), Some(caller.client));
            }
        }
    }
}

fn kp(household: u64, client: u64) -> Caller {
    // Numbers of households are hashes of another kind than those of clients.
    Caller { client, household: household | 1 << 63, ..Caller::default() }
}

#[test]
fn whoever_calls_itself_something_else_in_each_request_is_one_client() {
    let mut hall = Hall::new();
    let honest: Vec<Caller> = (1..=20).map(|client| kp(1, client)).collect();
    hall.introduce(&honest);
    // From the same address, two thousand requests by as many names.
    let let_in = (0..2000).filter(|name| hall.ask(&kp(1, 1_000_000 + name))).count();
    assert!(let_in <= 200, "{let_in}: what one client may have waiting, not two thousand");
    hall.serve();
    for caller in &honest {
        assert!(hall.ask(caller), "nobody is refused for it");
    }
    let served: Vec<u64> = (0..21).filter_map(|_| hall.serve()).collect();
    let theirs = served.iter().filter(|client| **client >= 1_000_000).count();
    assert!(theirs <= 1, "at most one of it before each of them has had its turn: {served:?}");
}

#[test]
fn three_hundred_names_of_one_address_are_three_hundred_and_one_greedy_name_is_one() {
    let mut hall = Hall::new();
    let room: Vec<Caller> = (1..=300).map(|client| kp(1, client)).collect();
    hall.introduce(&room);
    while hall.ask(&room[0]) {}
    hall.serve();
    for caller in &room[1..] {
        assert!(hall.ask(caller));
    }
    let served: Vec<u64> = (0..299).filter_map(|_| hall.serve()).collect();
    assert_eq!(served, (2..=300).collect::<Vec<u64>>());
}

#[test]
fn an_address_with_three_hundred_names_has_no_more_than_one_with_one() {
    let mut hall = Hall::new();
    let room: Vec<Caller> = (1..=300).map(|client| kp(1, client)).collect();
    let alone = kp(2, 9999);
    hall.introduce(&room);
    hall.introduce(&[alone]);
    for caller in &room {
        assert!(hall.ask(caller));
    }
    for _ in 0..60 {
        assert!(hall.ask(&alone));
    }
    let served: Vec<u64> = (0..100).filter_map(|_| hall.serve()).collect();
    let own = served.iter().filter(|client| **client == 9999).count();
    assert!((49..=51).contains(&own), "{own} of 100");
}

#[test]
fn wishes_under_ever_new_names_slow_nobody_and_those_of_known_names_are_counted_each() {
    let mut hall = Hall::new();
    let want = Some(Duration::from_millis(10));
    let stretch = |hall: &mut Hall| {
        let honest = Caller { want: Some(Duration::from_secs(1)), ..kp(2, 7) };
        hall.queue.hints(hall.now, Class::Query, &honest).stretch.unwrap()
    };
    for _ in 0..=HEARD_ENOUGH {
        stretch(&mut hall);
        assert!(hall.ask(&kp(2, 7)));
        hall.serve();
    }
    for name in 0..2000 {
        hall.ask(&Caller { want, ..kp(1, 1_000_000 + name) });
        hall.serve();
    }
    assert!(stretch(&mut hall) < 1.5, "{}", stretch(&mut hall));
    // Two hundred that stay who they are want 20 000 a second of a thousand.
    for _ in 0..8 {
        for client in 1..=200 {
            hall.ask(&Caller { want, ..kp(1, client) });
            hall.serve();
        }
    }
    assert!(stretch(&mut hall) > 2.0, "{}", stretch(&mut hall));
}

#[test]
fn what_customers_were_promised_does_not_send_a_service_away_nor_slow_it() {
    let mut hall = Hall::new();
    hall.introduce(&[kp(1, 1)]);
    let customer = |client| Caller { accepts_tickets: true, ..kp(client, client) };
    let refused = (10..2000).filter(|client| !hall.ask(&customer(*client))).count();
    assert!(refused > 500, "{refused}: the book is full");
    let standing = KpStanding { role: KpRole::Service, ..KpStanding::default() };
    let want = Some(Duration::from_secs(1));
    let agent = Caller { accepts_tickets: true, want, standing, ..kp(5000, 5000) };
    for _ in 0..=HEARD_ENOUGH {
        assert!(hall.ask(&agent));
        let is_next = hall.serve() == Some(5000) || hall.serve() == Some(5000);
        assert!(is_next, "behind one customer at most");
    }
    let told = hall.queue.hints(hall.now, Class::Query, &agent);
    assert_eq!(told.stretch, Some(1.0));
}
