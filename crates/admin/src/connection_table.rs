//! Who has a place at the admin API, and who has to go when there is none left. Pure: no sockets, no clock.
//!
//! Whoever has not sent a complete request has a place only until somebody else wants it: a newcomer always gets one, at
//! the cost of the connection that has been silent the longest. So nobody keeps the door shut by opening connections
//! and saying nothing, however many and from wherever: a proxy or this machine is one address for everybody, and no limit
//! per address could tell them apart. The limit per address there is keeps one address from taking all of what strangers
//! may hold. Only requests of users who have shown their password are sure of their place, and not all places are
//! theirs, so that health checks come in whatever operators do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::limits::{CONNECTIONS_MAX, KNOWN_MAX, SILENT_PER_ADDRESS_MAX};

/// What a connection is doing, in the order in which they have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// There is no complete head of a request: none yet, or none since the last answer.
    Silent,
    /// A request is being answered, of whoever that is.
    Asking,
    /// A user's request is being answered.
    Known,
}

/// `H` is what ends a connection.
#[derive(Debug)]
pub(crate) struct ConnectionTable<H> {
    taken: BTreeMap<u64, TrackedConnection<H>>,
    next: u64,
    /// Counts changes: the only notion of time.
    changes: u64,
}

#[derive(Debug)]
struct TrackedConnection<H> {
    from: IpAddr,
    phase: Phase,
    /// When the phase began.
    since: u64,
    handle: H,
}

impl<H> Default for ConnectionTable<H> {
    fn default() -> Self {
        Self { taken: BTreeMap::new(), next: 0, changes: 0 }
    }
}

impl<H> ConnectionTable<H> {
    /// Somebody has come, who gets a number. What ends whoever has to go for it is returned.
    pub(crate) fn enter(&mut self, from: IpAddr, handle: impl FnOnce(u64) -> H) -> Option<H> {
        let from = network(from);
        let evicted = if self.silent(from) >= SILENT_PER_ADDRESS_MAX {
            self.least(|seat| seat.from == from && seat.phase == Phase::Silent)
        } else if self.taken.len() >= CONNECTIONS_MAX {
            self.least(|seat| seat.phase != Phase::Known)
        } else {
            None
        };
        let evicted = evicted.and_then(|number| self.leave(number));
        let number = self.next;
        self.next += 1;
        self.changes += 1;
        let seat = TrackedConnection { from, phase: Phase::Silent, since: self.changes, handle: handle(number) };
        self.taken.insert(number, seat);
        evicted
    }

    /// A connection does something else now. False: there are no more places for that.
    pub(crate) fn turn(&mut self, number: u64, phase: Phase) -> bool {
        if phase == Phase::Known && self.known() >= KNOWN_MAX {
            return false;
        }
        self.changes += 1;
        let since = self.changes;
        if let Some(seat) = self.taken.get_mut(&number) {
            (seat.phase, seat.since) = (phase, since);
        }
        true
    }

    /// A connection has no place any more.
    pub(crate) fn leave(&mut self, number: u64) -> Option<H> {
        self.taken.remove(&number).map(|seat| seat.handle)
    }

    /// Sends away whoever has been silent the longest, if anybody is.
    pub(crate) fn evict_silent(&mut self) -> Option<H> {
        let number = self.least(|seat| seat.phase == Phase::Silent)?;
        self.leave(number)
    }

    /// Places that are taken.
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    fn known(&self) -> usize {
        self.taken.values().filter(|seat| seat.phase == Phase::Known).count()
    }

    fn silent(&self, from: IpAddr) -> usize {
        self.taken.values().filter(|seat| seat.from == from && seat.phase == Phase::Silent).count()
    }

    /// Who has to go first, of some: by phase, then of the address with the most silent ones, then the oldest.
    fn least(&self, of: impl Fn(&TrackedConnection<H>) -> bool) -> Option<u64> {
        let rank = |seat: &TrackedConnection<H>| (seat.phase, std::cmp::Reverse(self.silent(seat.from)), seat.since);
        let candidates = self.taken.iter().filter(|(_, seat)| of(seat));
        candidates.min_by_key(|(_, seat)| rank(seat)).map(|(number, _)| *number)
    }
}

/// What counts as one address: those of IPv6 cost nothing, a /64 is what one customer has.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        ip @ IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Enters `count` from one address; who had to go.
    fn crowd(seats: &mut ConnectionTable<u64>, from: u8, count: usize) -> Vec<u64> {
        (0..count).filter_map(|_| seats.enter(at(from), |number| number)).collect()
    }

    #[test]
    fn silent_ones_of_one_address_push_out_each_other_oldest_first() {
        let mut seats = ConnectionTable::default();
        let gone = crowd(&mut seats, 1, 3 * SILENT_PER_ADDRESS_MAX);
        assert_eq!(gone, (0..2 * SILENT_PER_ADDRESS_MAX as u64).collect::<Vec<_>>());
        assert_eq!(crowd(&mut seats, 2, 5), [0; 0], "nobody else's affair");
    }

    #[test]
    fn a_newcomer_always_finds_a_place_and_those_who_ask_keep_theirs_before_the_silent() {
        let mut seats = ConnectionTable::default();
        seats.enter(at(9), |number| number);
        assert!(seats.turn(0, Phase::Asking));
        for from in 1..=20 {
            crowd(&mut seats, from, SILENT_PER_ADDRESS_MAX);
            assert!(seats.len() <= CONNECTIONS_MAX);
        }
        assert!(seats.taken.contains_key(&0), "a request is being answered");
        // Nobody but those who ask: the oldest of them goes.
        let numbers: Vec<u64> = seats.taken.keys().copied().collect();
        for number in numbers {
            assert!(seats.turn(number, Phase::Asking));
        }
        assert_eq!(seats.enter(at(30), |number| number), Some(0));
    }

    #[test]
    fn users_are_sure_of_their_places_and_leave_some_to_health_checks() {
        let mut seats = ConnectionTable::default();
        for number in 0..CONNECTIONS_MAX as u64 {
            seats.enter(at(number as u8), |number| number);
            assert_eq!(seats.turn(number, Phase::Known), number < KNOWN_MAX as u64);
        }
        for round in 0..3 * CONNECTIONS_MAX {
            let gone = seats.enter(at(200), |number| number).unwrap();
            assert!(gone >= KNOWN_MAX as u64, "{round}");
        }
        assert_eq!(seats.known(), KNOWN_MAX);
    }

    #[test]
    fn the_address_with_the_most_silent_ones_pays_for_a_full_house() {
        let mut seats = ConnectionTable::default();
        crowd(&mut seats, 1, 3);
        for from in 2.. {
            let left = CONNECTIONS_MAX - seats.len();
            crowd(&mut seats, from, SILENT_PER_ADDRESS_MAX.min(left));
            if seats.len() == CONNECTIONS_MAX {
                break;
            }
        }
        assert!(seats.enter(at(100), |number| number).unwrap() >= 3, "not of those with three");
    }

    #[test]
    fn who_was_answered_is_as_new_as_a_newcomer() {
        let mut seats = ConnectionTable::default();
        crowd(&mut seats, 1, 2);
        assert!(seats.turn(0, Phase::Asking) && seats.turn(0, Phase::Silent));
        assert_eq!((seats.evict_silent(), seats.evict_silent(), seats.evict_silent()), (Some(1), Some(0), None));
    }

    #[test]
    fn the_addresses_of_one_ipv6_customer_are_one() {
        let six = |net: u16, host: u16| network(IpAddr::from([0x2001, 0xdb8, 0, net, 0, 0, 0, host]));
        assert!(six(1, 1) == six(1, 2) && six(1, 1) != six(2, 1));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), at(1));
    }
}
