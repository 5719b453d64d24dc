//! How a gateway is found (section 6.1): it says now and then to everybody that it is there, and answers whoever looks for one.
//!
//! What is said to everybody goes to one address, of a broadcast or of a group. The driver has the sockets.

use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::packet::Packet;

/// How often everybody hears at most that somebody was looking: a question costs one answer to who asks, and no more than this to all.
const INFO_EVERY: Duration = Duration::from_secs(1);

/// What is to be said to whoever has sent a datagram to everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeaconAnswer {
    /// The words.
    pub bytes: Vec<u8>,
    /// Everybody is to hear them as well: others may wait for the same answer.
    pub is_for_all: bool,
}

/// A gateway that wants to be found.
#[derive(Debug)]
pub struct SnBeacon {
    gateway: u8,
    interval: Duration,
    advertise_at: Timestamp,
    informed_at: Option<Timestamp>,
    advertised: u64,
    searched: u64,
}

impl SnBeacon {
    /// Begins at once, and goes on at this interval: whole seconds, from 1 to 65 535.
    pub fn new(gateway: u8, interval: Duration, now: Timestamp) -> Self {
        let interval = Duration::from_secs(interval.as_secs().clamp(1, u16::MAX.into()));
        Self { gateway, interval, advertise_at: now, informed_at: None, advertised: 0, searched: 0 }
    }

    /// ADVERTISE and questions so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.advertised, self.searched)
    }

    /// When `turn` should be called.
    pub fn poll_timeout(&self) -> Timestamp {
        self.advertise_at
    }

    /// What everybody is to hear now, if it is time. What was missed is not made up for.
    pub fn turn(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if now < self.advertise_at {
            return None;
        }
        self.advertise_at = now + self.interval;
        self.advertised += 1;
        let seconds = self.interval.as_secs() as u16;
        Some(Packet::Advertise { gateway: self.gateway, seconds }.bytes())
    }

    /// A datagram that somebody has sent to everybody. Only a question has an answer: whoever wants more knows by then where to say it.
    pub fn handle_datagram(&mut self, bytes: &[u8], now: Timestamp) -> Option<BeaconAnswer> {
        let Some(Packet::SearchGw { .. }) = Packet::read(bytes) else { return None };
        self.searched += 1;
        let is_for_all = self.informed_at.is_none_or(|then| now.since(then) >= INFO_EVERY);
        if is_for_all {
            self.informed_at = Some(now);
        }
        Some(BeaconAnswer { bytes: Packet::GwInfo { gateway: self.gateway, address: &[] }.bytes(), is_for_all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn everybody_hears_at_once_and_then_at_each_interval() {
        let mut beacon = SnBeacon::new(7, Duration::from_secs(900), at(5));
        let words = Packet::Advertise { gateway: 7, seconds: 900 }.bytes();
        assert_eq!(beacon.turn(at(5)), Some(words.clone()));
        assert_eq!((beacon.turn(at(5)), beacon.turn(at(904))), (None, None));
        assert_eq!(beacon.poll_timeout(), at(905));
        // A process that stood still says it once, not as often as it should have.
        assert_eq!(beacon.turn(at(9000)), Some(words));
        assert_eq!((beacon.turn(at(9001)), beacon.counts()), (None, (2, 0)));
    }

    #[test]
    fn an_interval_is_whole_seconds_that_fit_into_two_bytes() {
        for (asked, said) in [(0, 1), (65_535, 65_535), (1_000_000, 65_535)] {
            let mut beacon = SnBeacon::new(1, Duration::from_secs(asked), at(0));
            assert_eq!(beacon.turn(at(0)), Some(Packet::Advertise { gateway: 1, seconds: said }.bytes()));
            assert_eq!(beacon.poll_timeout(), at(said.into()));
        }
    }

    #[test]
    fn who_looks_is_answered_each_time_and_all_others_once_a_second() {
        let mut beacon = SnBeacon::new(9, Duration::from_secs(900), at(0));
        let search = Packet::SearchGw { radius: 1 }.bytes();
        let mut ask = |now| beacon.handle_datagram(&search, now).map(|answer| (answer.bytes, answer.is_for_all));
        let info = Packet::GwInfo { gateway: 9, address: &[] }.bytes();
        assert_eq!(ask(at(1)), Some((info.clone(), true)));
        for _ in 0..100 {
            assert_eq!(ask(at(1)), Some((info.clone(), false)));
        }
        assert_eq!(ask(at(2)), Some((info.clone(), true)));
        assert!(info.len() <= search.len(), "an answer is no larger than its question");
        assert_eq!(beacon.counts(), (0, 102));
    }

    #[test]
    fn nothing_but_a_question_is_answered() {
        let mut beacon = SnBeacon::new(9, Duration::from_secs(900), at(0));
        let others = [
            Packet::Advertise { gateway: 1, seconds: 1 }.bytes(),
            Packet::GwInfo { gateway: 1, address: &[] }.bytes(),
            Packet::Connect { will: false, clean: true, protocol: 1, seconds: 60, client_id: "x" }.bytes(),
            Packet::PingReq { client_id: "" }.bytes(),
            alloc::vec![3, 1],
            Vec::new(),
        ];
        for bytes in others {
            assert_eq!(beacon.handle_datagram(&bytes, at(1)), None, "{bytes:?}");
        }
        assert_eq!(beacon.counts(), (0, 0));
    }
}
