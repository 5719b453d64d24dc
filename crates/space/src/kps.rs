//! The knowledge processors (KPs) that come to the doors: what each counts for in the queues, and what became of its requests
//! of late, for whoever asks why. A bounded number of them, those that were heard last.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Asks;

use crate::access_policy::{AccessPolicy, KpClass, KpIdentity};
use crate::counts::ConnectionKind;
use crate::handle::SpaceHandle;
use crate::machine::delegation::ClientDelegation;
use crate::machine::request::{DeclinedBy, Refused, SpaceResponse, cut};
use crate::machine::request_limits::{LimitOwner, RequestLimit, RequestLimits};
use crate::machine::request_queue::Caller;
use crate::machine::standing::KpStanding;
use crate::shared_state::lock;

/// A KP, for an operator.
#[derive(Clone, Debug)]
pub struct KpReport {
    /// What it calls itself; none if it says nothing.
    pub name: Option<Box<str>>,
    /// The user whose password was right.
    pub user: Option<Box<str>>,
    /// Where it connects from.
    pub address: IpAddr,
    /// By which door it came last.
    pub door: &'static str,
    /// The class of its last request.
    pub class: Box<str>,
    /// What that means in the queues.
    pub standing: KpStanding,
    /// How long ago its last request came.
    pub silent: Duration,
    /// What became of its requests.
    pub counts: KpCounts,
    /// What an operator allows it, or its user; as of its last request.
    pub limit: Option<RequestLimit>,
    /// Its subscriptions that it may be asked to check by itself, and those that it is.
    pub delegation: ClientDelegation,
}

/// What became of the requests of a KP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KpCounts {
    /// Requests that came.
    pub requests: u64,
    /// Of these, those that were answered.
    pub answered: u64,
    /// Sent away because there was too much to do.
    pub refused: u64,
    /// Sent away because it, or its user, asks more than an operator allows.
    pub limited: u64,
    /// Let go because it left, or asked again.
    pub outdated: u64,
    /// Anything else: wrong, late, failed, too long.
    pub failed: u64,
    /// Classes that it asked for without the right to them.
    pub claims_ignored: u64,
    /// The longest that an answer of the last few took to begin, and the mean of it.
    pub waited_max: Duration,
    /// The mean over the last sixteen or so.
    pub waited_mean: Duration,
}

#[derive(Debug)]
struct KpRecord {
    name: Option<Box<str>>,
    user: Option<Box<str>>,
    address: IpAddr,
    door: &'static str,
    class: Box<str>,
    standing: KpStanding,
    heard: Timestamp,
    limit: Option<RequestLimit>,
    counts: KpCounts,
}

/// Two generations: when the younger is full, the older is forgotten.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, KpRecord>,
    old: HashMap<u64, KpRecord>,
}

impl Generations {
    /// Moves a KP to the young ones.
    fn find(&mut self, client: u64) -> Option<&mut KpRecord> {
        if let Some(record) = self.old.remove(&client) {
            self.insert(client, record);
        }
        self.young.get_mut(&client)
    }

    fn insert(&mut self, client: u64, record: KpRecord) {
        if self.young.len() >= KPS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(client, record);
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct KpDirectory {
    known: Mutex<Generations>,
    /// Only looked at for those who have one.
    limits: Mutex<RequestLimits>,
    claims_ignored: AtomicU64,
    /// As of the last look.
    delegations: Mutex<BTreeMap<u64, ClientDelegation>>,
}

impl KpDirectory {
    /// What has been delegated, by client.
    pub(crate) fn show_delegations(&self, delegations: BTreeMap<u64, ClientDelegation>) {
        *lock(&self.delegations) = delegations;
    }

    fn on_heard(
        &self,
        now: Timestamp,
        client: u64,
        kp: &KpIdentity<'_>,
        (class, limit): (&KpClass, Option<RequestLimit>),
        door: ConnectionKind,
    ) {
        let mut known = lock(&self.known);
        if known.find(client).is_none() {
            let own = |text: &str| Box::from(cut(text, NAME_SHOWN_BYTES));
            let (name, user, class) = (kp.name.map(own), kp.user.map(own), own(&class.name));
            let (address, standing, counts) = (kp.address, KpStanding::default(), KpCounts::default());
            let record =
                KpRecord { name, user, address, door: door.name(), class, standing, heard: now, limit, counts };
            known.insert(client, record);
        }
        let Some(record) = known.find(client) else { return };
        (record.door, record.heard, record.standing) = (door.name(), now, class.standing);
        record.limit = limit;
        if *record.class != *class.name {
            record.class = Box::from(&*class.name);
        }
        record.counts.requests += 1;
        if class.is_claim_ignored {
            record.counts.claims_ignored += 1;
            self.claims_ignored.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request of a KP is answered.
    pub(crate) fn on_answered(&self, client: u64, outcome: &Result<SpaceResponse, Refused>) {
        let mut known = lock(&self.known);
        let Some(counts) = known.find(client).map(|record| &mut record.counts) else { return };
        match outcome {
            Ok(response) => {
                let waited = response.hints.queued.unwrap_or_default();
                counts.answered += 1;
                // The first one is the mean.
                let part = u32::try_from(counts.answered).unwrap_or(u32::MAX).min(16);
                counts.waited_mean = (counts.waited_mean * (part - 1) + waited) / part;
                counts.waited_max = waited.max(counts.waited_max.mul_f64(WAITED_FADES));
            }
            Err(Refused::Busy(_) | Refused::Dropped) => counts.refused += 1,
            Err(Refused::Limited(_)) => counts.limited += 1,
            Err(Refused::Outdated) => counts.outdated += 1,
            Err(Refused::Declined(DeclinedBy::NoNeed)) => counts.answered += 1,
            // It is told what they say.
            Err(Refused::Declined(DeclinedBy::Others)) => {}
            Err(_) => counts.failed += 1,
        }
    }

    fn all(&self, now: Timestamp) -> Vec<KpReport> {
        let delegations = lock(&self.delegations).clone();
        let known = lock(&self.known);
        let report = |(client, record): (&u64, &KpRecord)| KpReport {
            name: record.name.clone(),
            user: record.user.clone(),
            address: record.address,
            door: record.door,
            class: record.class.clone(),
            standing: record.standing,
            silent: now.since(record.heard),
            limit: record.limit,
            counts: record.counts,
            delegation: delegations.get(client).copied().unwrap_or_default(),
        };
        known.young.iter().chain(&known.old).map(report).collect()
    }
}

impl SpaceHandle {
    /// What a request of a KP counts for: its line, its household, its class, and what it says about pace.
    pub(crate) fn caller(
        &self,
        policy: &dyn AccessPolicy,
        kp: &KpIdentity<'_>,
        asks: &Asks,
        door: ConnectionKind,
    ) -> Caller {
        let class = policy.class_of(kp, asks.class.as_deref());
        let household = self.household(kp);
        let client = self.number(&(household, kp.address.to_canonical(), kp.name.unwrap_or_default()));
        let (now, limit) = (self.shared.now(), policy.limit_of(kp));
        self.shared.kps.on_heard(now, client, kp, (&class, limit), door);
        let limited = limit.and_then(|limit| {
            let account = match limit.owner {
                LimitOwner::Kp => self.number(&("limit", household, kp.name.unwrap_or_default())),
                LimitOwner::User => self.number(&("limit", kp.user.unwrap_or_default())),
            };
            lock(&self.shared.kps.limits).admit(now, account, &limit).err()
        });
        Caller { limited, ..Caller::new(client, asks).of(household, class.standing) }
    }

    /// A request of a KP has ended without anything asked of the space.
    pub(crate) fn note_declined(&self, client: u64, by: DeclinedBy) {
        self.shared.kps.on_answered(client, &Err(Refused::Declined(by)));
    }

    /// All KPs of one user; without one, of one address, and of what one host of IPv6 can choose from.
    fn household(&self, kp: &KpIdentity<'_>) -> u64 {
        let number = match (kp.user, kp.address.to_canonical()) {
            (Some(user), _) => self.number(&("user", user)),
            (None, IpAddr::V4(address)) => self.number(&("v4", address)),
            (None, IpAddr::V6(address)) => self.number(&("v6", &address.segments()[..4])),
        };
        number.max(1)
    }

    /// The KPs that were heard of late, those that come most often first.
    pub fn kps(&self) -> Vec<KpReport> {
        let mut all = self.shared.kps.all(self.shared.now());
        all.sort_by(|a, b| b.counts.requests.cmp(&a.counts.requests).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// Claims of a better class without the right to it.
    pub fn class_claims_ignored(&self) -> u64 {
        self.shared.kps.claims_ignored.load(Ordering::Relaxed)
    }
}

/// KPs that are remembered: as many as there may be connections of one door.
const KPS_MAX: usize = 8192;
/// What is left of the longest wait with each answer: some hundred later it is forgotten.
const WAITED_FADES: f64 = 0.98;
/// Bytes of a name in the list.
const NAME_SHOWN_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(directory: &KpDirectory, client: u64, name: &str) {
        let kp = KpIdentity { user: None, address: [127, 0, 0, 1].into(), name: Some(name) };
        directory.on_heard(Timestamp::ZERO, client, &kp, (&KpClass::default(), None), ConnectionKind::Ssap);
    }

    #[test]
    fn the_list_is_bounded_and_keeps_those_that_come_back() {
        let directory = KpDirectory::default();
        for client in 0..3 * KPS_MAX as u64 {
            heard(&directory, client, "x");
            heard(&directory, 7, "stays");
        }
        let all = directory.all(Timestamp::ZERO);
        assert!(all.len() <= KPS_MAX, "{}", all.len());
        let stays = all.iter().find(|kp| kp.name.as_deref() == Some("stays"));
        assert_eq!(stays.map(|kp| kp.counts.requests), Some(3 * KPS_MAX as u64 + 1));
    }

    #[test]
    fn what_became_of_requests_is_counted_and_names_are_cut_between_letters() {
        let directory = KpDirectory::default();
        heard(&directory, 1, &"ä".repeat(NAME_SHOWN_BYTES));
        for refused in [Refused::Late, Refused::Outdated, Refused::Dropped, Refused::busy(Duration::ZERO)] {
            directory.on_answered(1, &Err(refused));
        }
        directory.on_answered(2, &Err(Refused::Late));
        let all = directory.all(Timestamp::ZERO);
        let counts = all[0].counts;
        assert_eq!((all.len(), counts.requests, counts.failed, counts.outdated, counts.refused), (1, 1, 1, 1, 2));
        assert_eq!(all[0].name.as_deref().map(str::len), Some(NAME_SHOWN_BYTES));
    }
}
