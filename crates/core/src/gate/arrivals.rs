//! Who is let in while the broker is pressed, and when those come back who are not.
//!
//! *Known* is a client that has a session here, or that published within the last hour: its coming costs little and was
//! to be expected. Known clients are always let in. Of the others:
//! - at level 2 (strained) so many a second are let in; from level 3 on, or without memory, none: 0x89, server busy;
//! - at any level, one user, or one network without users, may bring so many new names a second: 0x9F, connection rate
//!   exceeded. Whoever floods with ever new identifiers is one visitor here, not thousands (F057).
//!
//! Everybody who is sent away gets an appointment of its own (`pace-retry-after-ms`), one interval behind the one before:
//! a storm that comes back in time comes back in a line (CONTROL §8.4, without the promise). Before MQTT 5 there is no
//! word for it but "unavailable".

use alloc::string::String;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_wire_mqtt::ReasonCode;

use super::memory::Kind;
use super::publisher::Publisher;
use super::publishers::key_of;
use crate::access::Identity;
use crate::connect::Unwelcome;
use crate::limits::{APPOINTMENT_MAX, APPOINTMENT_MIN, NEWCOMERS_MAX, STRANGER_BYTES};
use crate::parent::parent_name;
use crate::settings::Rate;
use crate::state::ShardState;

#[derive(Debug)]
pub(crate) struct Arrivals {
    /// By user or network: when its next new name would be due, if they came evenly.
    newcomers: HashMap<String, Timestamp, FixedState>,
    /// When those that owe nothing were last cleared away: not for every visitor, that would be work to flood us with.
    swept_at: Timestamp,
    /// The same for all new names, while they are paced.
    paced: Timestamp,
    appointments: ReturnTimes,
}

impl Arrivals {
    pub(crate) fn new(seed: u64) -> Self {
        let newcomers = HashMap::with_hasher(FixedState::with_seed(seed));
        let (swept_at, paced) = (Timestamp::ZERO, Timestamp::ZERO);
        Self { newcomers, swept_at, paced, appointments: ReturnTimes::default() }
    }

    /// Whether another new name from there is within its rate.
    fn may_bring(&mut self, from: String, rate: &Rate, now: Timestamp) -> bool {
        if self.newcomers.len() >= NEWCOMERS_MAX && !self.newcomers.contains_key(&from) {
            if now.since(self.swept_at) >= SWEEP_EVERY {
                self.swept_at = now;
                self.newcomers.retain(|_, due| *due > now);
            }
            if self.newcomers.len() >= NEWCOMERS_MAX {
                // So many at once: they share what is left, under no name.
                return rate.conforms(self.newcomers.entry(String::new()).or_default(), now);
            }
        }
        rate.conforms(self.newcomers.entry(from).or_default(), now)
    }

    /// The same, and nothing is spent.
    fn could_bring(&self, from: &str, rate: &Rate, now: Timestamp) -> bool {
        let mut due = self.newcomers.get(from).copied().unwrap_or_default();
        rate.conforms(&mut due, now)
    }
}

/// Whether the name that a visitor gives is known to be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameProof {
    /// It has shown that.
    Proven,
    /// It says so: what it costs is not that user's.
    Claimed,
}

const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Times to come back, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct ReturnTimes {
    next: Timestamp,
    count: u64,
}

impl ReturnTimes {
    /// How long the next one is to stay away. Beyond the horizon nobody knows anything: a time between half of it and the
    /// whole, spread evenly by the golden ratio.
    pub(crate) fn give(&mut self, interval: Duration, now: Timestamp) -> Duration {
        // Nothing is due later than the horizon, also if the clock went back.
        let next = self.next.max(now + APPOINTMENT_MIN);
        self.count = self.count.wrapping_add(1);
        if next.since(now) > APPOINTMENT_MAX {
            let part = (self.count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as f64 / f64::from(1 << 20);
            return APPOINTMENT_MAX.mul_f64(0.5 + 0.5 * part);
        }
        self.next = next + interval;
        next.since(now)
    }
}

impl ShardState {
    /// Whether a client may come in now.
    pub(crate) fn check_arrival(
        &mut self,
        client_id: &str,
        identity: &Identity,
        proof: NameProof,
        now: Timestamp,
    ) -> Result<(), Unwelcome> {
        if self.is_known(client_id, identity) {
            return Ok(());
        }
        let settings = self.settings.arrivals;
        let from = parent_name(identity);
        // A calm broker turns nobody away: names that come once are forgotten again.
        let is_within = match proof {
            NameProof::Proven => self.arrivals.may_bring(from, &settings.new_clients, now),
            NameProof::Claimed => [from, network_of(identity)]
                .iter()
                .all(|from| self.arrivals.could_bring(from, &settings.new_clients, now)),
        };
        if !is_within && self.gate.level >= Level::Strained {
            self.stats.connects_refused_rate += 1;
            let retry_after = self.arrivals.appointments.give(settings.paced.interval(), now);
            let words = "too many new client identifiers from this user or network";
            return Err(Unwelcome { reason: ReasonCode::ConnectionRateExceeded, later: Some((words, retry_after)) });
        }
        let words = if !self.memory.has_room(Kind::Session, STRANGER_BYTES) {
            "out of memory: only known clients are let in"
        } else if self.gate.level >= Level::Overloaded {
            "overloaded: only known clients are let in"
        } else if self.gate.level == Level::Strained && !settings.paced.conforms(&mut self.arrivals.paced, now) {
            "busy: new clients are let in one after the other"
        } else {
            return Ok(());
        };
        self.stats.connects_refused_busy += 1;
        let retry_after = self.arrivals.appointments.give(settings.paced.interval(), now);
        Err(Unwelcome { reason: ReasonCode::ServerBusy, later: Some((words, retry_after)) })
    }

    /// Somebody that had only claimed to be this user was let in, so it is: its new name is the user's to pay for. If it
    /// was not let in, the network pays that it came from.
    pub(crate) fn settle_arrival(&mut self, client_id: &str, identity: &Identity, is_let_in: bool, now: Timestamp) {
        if is_let_in && self.is_known(client_id, identity) {
            return;
        }
        let (from, rate) =
            (if is_let_in { parent_name(identity) } else { network_of(identity) }, self.settings.arrivals);
        self.arrivals.may_bring(from, &rate.new_clients, now);
    }

    fn is_known(&self, client_id: &str, identity: &Identity) -> bool {
        let publishers = &self.gate.publishers;
        let find = || publishers.get(publishers.find(&key_of(identity, client_id))?);
        self.session_named(client_id).is_some() || find().is_some_and(Publisher::is_learned)
    }
}

/// Where somebody comes from, whoever it says it is.
fn network_of(identity: &Identity) -> String {
    parent_name(&Identity { user: None, ..identity.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    fn f137_a_storm_gets_a_line_of_appointments_and_never_the_same_twice() {
        let (mut appointments, now) = (ReturnTimes::default(), Timestamp::from_secs_f64(50.0));
        let given: Vec<Duration> = (0..10_000).map(|_| appointments.give(Duration::from_millis(5), now)).collect();
        assert_eq!(given[0], APPOINTMENT_MIN);
        assert!(given.windows(2).all(|pair| pair[1] == pair[0] + Duration::from_millis(5)));
        // Far beyond what the line holds: still within the horizon, and no two the same.
        let late: BTreeSet<Duration> = (0..50_000).map(|_| appointments.give(Duration::from_millis(5), now)).collect();
        assert!(late.len() > 49_000 && late.last().is_some_and(|last| *last <= APPOINTMENT_MAX), "{}", late.len());
        // Every tenth of the second half of the horizon gets its share.
        let far: Vec<_> = late.iter().filter(|wait| **wait >= APPOINTMENT_MAX / 2).collect();
        for tenth in 0..10_u32 {
            let from = APPOINTMENT_MAX / 2 + APPOINTMENT_MAX / 20 * tenth;
            let share = far.iter().filter(|wait| (from..from + APPOINTMENT_MAX / 20).contains(*wait)).count();
            assert!(share * 12 > far.len(), "{tenth}: {share} of {}", far.len());
        }
    }

    #[test]
    fn f141_a_clock_that_goes_back_freezes_no_appointment() {
        let mut appointments = ReturnTimes::default();
        appointments.give(Duration::from_millis(5), Timestamp::from_secs_f64(1e9));
        let wait = appointments.give(Duration::from_millis(5), Timestamp::from_secs_f64(5.0));
        assert!(wait <= APPOINTMENT_MAX);
    }

    #[test]
    fn what_is_only_looked_at_costs_nothing() {
        let (mut arrivals, now) = (Arrivals::new(1), Timestamp::from_secs_f64(1e6));
        let rate = Rate::new(1, Duration::from_secs(1000), 1);
        assert!((0..10_000).all(|_| arrivals.could_bring("Uann", &rate, now)));
        assert!(arrivals.may_bring("Uann".into(), &rate, now), "all of it is there");
        assert!(!arrivals.could_bring("Uann", &rate, now));
    }

    #[test]
    fn f057_the_table_of_visitors_is_bounded_and_the_rest_share_one_budget() {
        let mut arrivals = Arrivals::new(1);
        let rate = Rate::new(1, Duration::from_secs(1000), 1);
        let now = Timestamp::from_secs_f64(1e6);
        let mut brought = 0;
        for n in 0..2 * NEWCOMERS_MAX {
            brought += usize::from(arrivals.may_bring(alloc::format!("{n}"), &rate, now));
        }
        assert!(arrivals.newcomers.len() <= NEWCOMERS_MAX + 1);
        assert!(brought <= NEWCOMERS_MAX + 1, "{brought}");
        assert!(arrivals.may_bring("later".into(), &rate, now + Duration::from_secs(2000)));
    }
}
