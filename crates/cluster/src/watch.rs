//! Who is alive, and whose lineage may be adopted.
//!
//! A lease is over when it was read several times within [`LEASE`] and has not changed: by the clock of who reads, so clocks may be
//! apart by minutes, and what could not be read does not count as silence. It decides about comfort only. That two nodes never
//! write the same lineage is held by the stream ([`crate::StreamWriter`]), however wrong a lease is.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::entry::Opening;
use crate::handover::Reason;
use crate::limits::{ADDRESS_BYTES_MAX, LEASE, NODES_MAX, READINGS_MIN};
use crate::names::NodeName;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which of its processes, and how often that one has begun to stand by ([`next_incarnation`]).
    pub incarnation: u64,
    /// The epoch it carries; 0 for a node that stands by.
    pub epoch: u64,
    /// It has ended in good order: nobody has to wait for it.
    pub has_left: bool,
    /// Where clients find it, in its own words.
    pub address: String,
}

/// The next number of a process: those of one process have all but their last 16 bits in common.
pub fn next_incarnation(before: u64) -> u64 {
    before & !0xFFFF | (before.wrapping_add(1) & 0xFFFF)
}

/// Whether two numbers are of one process, which has stood by again in between.
pub fn is_one_process(one: u64, other: u64) -> bool {
    one >> 16 == other >> 16
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, epoch, has_left, address } = self;
        write!(f, "1 {incarnation:016x} {epoch} {} {address}", if *has_left { "left" } else { "here" })
    }
}

impl Lease {
    /// Reads one; None if it is not understood. Anybody may have written it who may write to the engine.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        if words.next() != Some("1") {
            return None;
        }
        let incarnation = u64::from_str_radix(words.next()?, 16).ok()?;
        let epoch = words.next()?.parse().ok()?;
        let has_left = match words.next()? {
            "left" => true,
            "here" => false,
            _ => return None,
        };
        let address = words.next()?;
        let is_plain = address.len() <= ADDRESS_BYTES_MAX && !address.chars().any(char::is_control);
        is_plain.then(|| Self { incarnation, epoch, has_left, address: address.to_owned() })
    }
}

/// A lease that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it said.
    pub lease: Lease,
    revision: u64,
    /// When it was first read like this, and how often since.
    since: Duration,
    readings: u32,
    /// Whether it was another one before: somebody renews it.
    has_changed: bool,
}

impl Seen {
    /// Whether its node is to be counted on.
    pub fn is_alive(&self, now: Duration) -> bool {
        !self.lease.has_left && (now.saturating_sub(self.since) < LEASE || self.readings < READINGS_MIN)
    }
}

/// What a node that stands by does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look again later.
    Wait,
    /// Carry the lineage on: its owner is gone, or there was none.
    Adopt,
    /// Another process has this node's name, and is alive.
    NameTaken {
        /// Where it says it is.
        address: String,
    },
}

/// The leases of a cluster, as one of its nodes reads them.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    me: NodeName,
    incarnation: u64,
    seen: BTreeMap<NodeName, Seen>,
    began: Option<Duration>,
    readings: u32,
}

impl LeaseWatch {
    /// For this process of this node.
    pub fn new(me: NodeName, incarnation: u64) -> Self {
        Self { me, incarnation, seen: BTreeMap::new(), began: None, readings: 0 }
    }

    /// What was read, of all nodes: what is not there is gone. At most [`NODES_MAX`] count.
    pub fn on_reading(&mut self, now: Duration, table: Vec<(NodeName, u64, Lease)>) {
        self.began.get_or_insert(now);
        self.readings = self.readings.saturating_add(1);
        let mut before = std::mem::take(&mut self.seen);
        for (node, revision, lease) in table.into_iter().take(NODES_MAX) {
            let seen = match before.remove(&node) {
                Some(mut seen) if seen.revision == revision => {
                    seen.readings = seen.readings.saturating_add(1);
                    seen
                }
                known => {
                    let has_changed = known.is_some_and(|known| known.lease.incarnation == lease.incarnation);
                    Seen { lease, revision, since: now, readings: 1, has_changed }
                }
            };
            self.seen.insert(node, seen);
        }
    }

    /// Everybody who was read.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Seen)> {
        self.seen.iter()
    }

    /// What to do about a lineage with this opening; None if it has none yet.
    pub fn decide(&self, now: Duration, owner: Option<&Opening>) -> Decision {
        if let Some(seen) = self.seen.get(&self.me).filter(|seen| seen.lease.incarnation != self.incarnation) {
            if seen.has_changed && seen.is_alive(now) {
                return Decision::NameTaken { address: seen.lease.address.clone() };
            }
            if seen.is_alive(now) {
                return Decision::Wait;
            }
        }
        let Some(owner) = owner else { return Decision::Adopt };
        if owner.node == self.me {
            // The process before this one; its folder is here.
            return Decision::Adopt;
        }
        let is_over = match self.seen.get(&owner.node) {
            Some(seen) if seen.lease.incarnation == owner.incarnation => !seen.is_alive(now),
            // It has come back, and has the folder: it goes first for as long as a lease.
            Some(seen) => now.saturating_sub(seen.since.min(self.began.unwrap_or(now))) >= LEASE && self.is_sure(now),
            None => self.is_sure(now),
        };
        if is_over { Decision::Adopt } else { Decision::Wait }
    }

    /// Why a lineage with this opening may be adopted now, for who asks later.
    pub fn reason(&self, now: Duration, owner: Option<&Opening>) -> Reason {
        let Some(owner) = owner else { return Reason::First };
        if owner.node == self.me {
            return Reason::Again;
        }
        match self.seen.get(&owner.node) {
            Some(seen) if seen.lease.incarnation != owner.incarnation => Reason::Declined,
            Some(seen) if seen.lease.has_left => Reason::Left,
            Some(seen) => Reason::Silent(now.saturating_sub(seen.since)),
            None => Reason::Silent(now.saturating_sub(self.began.unwrap_or(now))),
        }
    }

    /// Whether others were looked at for long enough to miss somebody.
    fn is_sure(&self, now: Duration) -> bool {
        self.readings >= READINGS_MIN && self.began.is_some_and(|began| now.saturating_sub(began) >= LEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(incarnation: u64) -> Lease {
        Lease { incarnation, epoch: 0, has_left: false, address: "mqtt.example:1883".into() }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn owner(node: &str, incarnation: u64) -> Opening {
        Opening { node: node.parse().unwrap(), incarnation, cluster: 1 }
    }

    fn watch() -> LeaseWatch {
        LeaseWatch::new("b".parse().unwrap(), 2)
    }

    fn table(leases: &[(&str, u64, Lease)]) -> Vec<(NodeName, u64, Lease)> {
        leases.iter().map(|(node, revision, lease)| (node.parse().unwrap(), *revision, lease.clone())).collect()
    }

    #[test]
    fn a_lease_is_read_as_it_was_written_and_nothing_else_is() {
        let lease = Lease { epoch: 7, has_left: true, ..lease(u64::MAX) };
        assert_eq!(Lease::parse(&lease.to_string()), Some(lease));
        for bad in ["", "2 1 0 here a", "1 x 0 here a", "1 1 0 gone a", "1 1 0 here", "1 1 0 here a\nb"] {
            assert_eq!(Lease::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_numbers_of_a_process_differ_and_are_known_as_its() {
        let mut number = 0x1234_5678_9abc_fffe;
        for next in [0x1234_5678_9abc_ffff, 0x1234_5678_9abc_0000, 0x1234_5678_9abc_0001] {
            assert_eq!(next_incarnation(number), next);
            assert!(is_one_process(number, next) && !is_one_process(next, next ^ 1 << 16));
            number = next;
        }
    }

    #[test]
    fn a_silent_owner_is_adopted_after_its_lease_and_one_that_has_left_at_once() {
        let (mut watch, owner) = (watch(), owner("a", 1));
        for second in 0..6 {
            watch.on_reading(seconds(second), table(&[("a", 5, lease(1))]));
            assert_eq!(watch.decide(seconds(second), Some(&owner)), Decision::Wait);
        }
        assert_eq!(watch.decide(seconds(6), Some(&owner)), Decision::Adopt);
        assert_eq!(watch.reason(seconds(6), Some(&owner)), Reason::Silent(seconds(6)));
        watch.on_reading(seconds(6), table(&[("a", 6, lease(1))]));
        assert_eq!(watch.decide(seconds(6), Some(&owner)), Decision::Wait, "there it is again");
        watch.on_reading(seconds(7), table(&[("a", 7, Lease { has_left: true, ..lease(1) })]));
        assert_eq!(watch.decide(seconds(7), Some(&owner)), Decision::Adopt);
        assert_eq!(watch.reason(seconds(7), Some(&owner)), Reason::Left);
    }

    #[test]
    fn what_was_not_read_is_no_silence() {
        let (mut watch, owner) = (watch(), owner("a", 1));
        watch.on_reading(seconds(0), table(&[("a", 5, lease(1))]));
        // The engine stalls, for nine seconds; then the same is read once more.
        watch.on_reading(seconds(9), table(&[("a", 5, lease(1))]));
        assert_eq!(watch.decide(seconds(9), Some(&owner)), Decision::Wait);
        watch.on_reading(seconds(10), table(&[("a", 5, lease(1))]));
        assert_eq!(watch.decide(seconds(10), Some(&owner)), Decision::Adopt);
    }

    #[test]
    fn an_owner_that_has_come_back_goes_first() {
        let (mut watch, owner) = (watch(), owner("a", 1));
        for second in 0..6 {
            watch.on_reading(seconds(second), table(&[("a", second, lease(9))]));
            assert_eq!(watch.decide(seconds(second), Some(&owner)), Decision::Wait, "{second}");
        }
        watch.on_reading(seconds(6), table(&[("a", 6, lease(9))]));
        assert_eq!(watch.decide(seconds(6), Some(&owner)), Decision::Adopt, "it had its time");
        assert_eq!(watch.reason(seconds(6), Some(&owner)), Reason::Declined);
    }

    #[test]
    fn a_name_that_somebody_else_renews_is_taken_and_a_dead_one_is_free() {
        let mut watch = watch();
        watch.on_reading(seconds(0), table(&[("b", 1, lease(1))]));
        assert_eq!(watch.decide(seconds(0), None), Decision::Wait, "it may be the process before this one");
        watch.on_reading(seconds(2), table(&[("b", 2, lease(1))]));
        let address = "mqtt.example:1883".to_owned();
        assert_eq!(watch.decide(seconds(2), None), Decision::NameTaken { address });
        let mut watch = super::LeaseWatch::new("b".parse().unwrap(), 2);
        for second in 0..7 {
            watch.on_reading(seconds(second), table(&[("b", 1, lease(1))]));
        }
        assert_eq!(watch.decide(seconds(6), Some(&owner("b", 1))), Decision::Adopt);
    }

    #[test]
    fn an_empty_cluster_is_begun_by_whoever_comes() {
        let mut watch = watch();
        watch.on_reading(seconds(0), Vec::new());
        assert_eq!(watch.decide(seconds(0), None), Decision::Adopt);
        assert_eq!(watch.reason(seconds(0), None), Reason::First);
        let owner = owner("a", 1);
        assert_eq!(watch.decide(seconds(0), Some(&owner)), Decision::Wait, "nobody was missed for long enough");
    }
}
