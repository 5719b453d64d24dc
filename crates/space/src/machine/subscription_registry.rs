//! Who subscribes: numbers without gaps for each subscription, and a subscription that stays for a while when its
//! connection is lost, so that whoever comes back is told exactly what was missed.
//!
//! Pure: time is an argument, and a connection is whatever its driver knows it by (`C`), equal to itself alone. Driven by
//! the writer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_graph::SubscriberId;

use crate::limits::{DESERTED_INTERVAL, LINGER_MAX, LINGER_TIME, SKIPS_MAX};

/// A subscription.
#[derive(Debug)]
pub(crate) struct RegisteredSubscription<C> {
    /// Its name on the wire.
    name: String,
    /// What it watches: whoever comes back must ask for the same.
    watched: String,
    /// None while nobody listens.
    connection: Option<C>,
    /// The last number it was told.
    told: u64,
    /// From which of our numbers on the graph is ahead by how much: it leaves numbers out, we do not.
    skips: VecDeque<(u64, u64)>,
    /// When its connection came, or went.
    since: Timestamp,
}

impl<C> RegisteredSubscription<C> {
    /// The graph's number of one of ours, if that is still known.
    fn sequence_of(&self, told: u64) -> Option<u64> {
        if told > self.told {
            return None;
        }
        let (_, ahead) = self.skips.iter().rev().find(|(from, _)| *from <= told)?;
        Some(told + ahead)
    }

    /// The next number, for something that the graph calls by this one.
    pub(crate) fn number(&mut self, sequence: u64) -> u64 {
        self.told += 1;
        let ahead = sequence.saturating_sub(self.told);
        if self.skips.back().is_none_or(|(_, before)| *before != ahead) {
            if self.skips.len() >= SKIPS_MAX {
                self.skips.pop_front();
            }
            self.skips.push_back((self.told, ahead));
        }
        self.told
    }

    /// The last number it was told.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// The graph's number of what was told last.
    pub(crate) fn last(&self) -> u64 {
        self.sequence_of(self.told).unwrap_or(0)
    }
}

#[derive(Debug)]
pub(crate) struct SubscriptionRegistry<C> {
    by_id: BTreeMap<u64, RegisteredSubscription<C>>,
    names: BTreeMap<String, u64>,
    /// Those that nobody listens to, the first to go first.
    lingering: BTreeSet<(Timestamp, u64)>,
    /// When it was last looked whose connections are gone.
    looked: Option<Timestamp>,
}

impl<C> Default for SubscriptionRegistry<C> {
    fn default() -> Self {
        Self { by_id: BTreeMap::new(), names: BTreeMap::new(), lingering: BTreeSet::new(), looked: None }
    }
}

impl<C: Clone + Eq> SubscriptionRegistry<C> {
    pub(crate) fn add(
        &mut self,
        now: Timestamp,
        id: SubscriberId,
        name: String,
        watched: String,
        connection: Option<C>,
    ) {
        self.names.insert(name.clone(), id.0);
        let skips = VecDeque::from([(0, 0)]);
        let subscription = RegisteredSubscription { name, watched, connection: None, told: 0, skips, since: now };
        self.by_id.insert(id.0, subscription);
        self.attach(now, id, connection);
    }

    /// The space begins anew: everybody who listens, to be told that the subscription is over.
    pub(crate) fn end_all(&mut self) -> Vec<(SubscriberId, C)> {
        let all = std::mem::take(self).by_id;
        all.into_iter().filter_map(|(id, it)| Some((SubscriberId(id), it.connection?))).collect()
    }

    /// Work of all who listen when they come back: a query is evaluated anew for the first who wants it, and whoever wants
    /// the same joins.
    pub(crate) fn return_work(&self) -> Duration {
        let heard = self.by_id.values().filter(|it| it.connection.is_some());
        let (mut watched, mut work) = (BTreeSet::new(), Duration::ZERO);
        for it in heard {
            work += if watched.insert(it.watched.as_str()) { RETURN_COST } else { JOINED_RETURN_COST };
        }
        work
    }

    /// Whether a connection listens.
    pub(crate) fn is_heard(&self, id: SubscriberId) -> bool {
        self.connection(id).is_some()
    }

    /// The connection that listens.
    pub(crate) fn connection(&self, id: SubscriberId) -> Option<&C> {
        self.by_id.get(&id.0)?.connection.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: SubscriberId) -> Option<&mut RegisteredSubscription<C>> {
        self.by_id.get_mut(&id.0)
    }

    /// Who had this name, watched the same, and what the graph calls the last thing that it has. A number that is written
    /// in a circle of `round` stands for the latest that it can be.
    pub(crate) fn find(&self, name: &str, watched: &str, told: u64, round: Option<u64>) -> Option<(SubscriberId, u64)> {
        let id = *self.names.get(name)?;
        let subscription = self.by_id.get(&id).filter(|it| it.watched == watched)?;
        let told = match round {
            Some(round) if told > 0 && subscription.told > told => {
                subscription.told - (subscription.told - told) % round
            }
            _ => told,
        };
        Some((SubscriberId(id), subscription.sequence_of(told)?))
    }

    /// A connection listens from now on; or none, and whoever comes back within [`LINGER_TIME`] of now goes on. Whoever
    /// listened before is returned.
    pub(crate) fn attach(&mut self, now: Timestamp, id: SubscriberId, connection: Option<C>) -> Option<C> {
        let subscription = self.by_id.get_mut(&id.0)?;
        if subscription.connection.is_none() {
            self.lingering.remove(&(subscription.since, id.0));
        }
        let before = std::mem::replace(&mut subscription.connection, connection);
        subscription.since = now;
        if subscription.connection.is_none() {
            self.lingering.insert((now, id.0));
        }
        before
    }

    /// Detaches connections that went before they knew of their subscriptions, now and then.
    pub(crate) fn detach_gone(&mut self, now: Timestamp, is_gone: impl Fn(&C) -> bool) {
        if self.looked.is_some_and(|looked| now.since(looked) < DESERTED_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        let is_deserted = |it: &RegisteredSubscription<C>| it.connection.as_ref().is_some_and(&is_gone);
        let deserted: Vec<u64> = self.by_id.iter().filter(|(_, it)| is_deserted(it)).map(|(id, _)| *id).collect();
        for id in deserted {
            self.attach(now, SubscriberId(id), None);
        }
    }

    /// Whether this connection still has it; another one may have taken it since.
    pub(crate) fn is_of(&self, id: SubscriberId, connection: &C) -> bool {
        self.connection(id) == Some(connection)
    }

    /// False if there is none of this number.
    pub(crate) fn remove(&mut self, id: SubscriberId) -> bool {
        let Some(subscription) = self.by_id.remove(&id.0) else { return false };
        self.names.remove(&subscription.name);
        self.lingering.remove(&(subscription.since, id.0));
        true
    }

    /// Whose time is over, or whose place is needed; it is to be removed.
    pub(crate) fn poll_over(&self, now: Timestamp) -> Option<SubscriberId> {
        let (since, id) = self.lingering.first()?;
        let is_over = now.since(*since) >= LINGER_TIME || self.lingering.len() > LINGER_MAX;
        is_over.then_some(SubscriberId(*id))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// A subscription that comes back: what the request queue assumes of a new one, and its text.
const RETURN_COST: Duration = Duration::from_micros(300);
/// One whose query stands by then.
const JOINED_RETURN_COST: Duration = Duration::from_micros(20);

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    type Registry = SubscriptionRegistry<u8>;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn add(registry: &mut Registry, now: Timestamp, id: u64) {
        registry.add(now, SubscriberId(id), format!("name {id}"), "watched".into(), None);
    }

    #[test]
    fn numbers_have_no_gaps_and_lead_back_to_those_of_the_graph() {
        let mut registry = Registry::default();
        add(&mut registry, at(0), 1);
        let one = registry.get_mut(SubscriberId(1)).unwrap();
        // The graph leaves 3 and 6 out.
        let told: Vec<u64> = [1, 2, 4, 5, 7].into_iter().map(|sequence| one.number(sequence)).collect();
        assert_eq!((told, one.last()), (vec![1, 2, 3, 4, 5], 7));
        let find = |told| registry.find("name 1", "watched", told, None).map(|(_, sequence)| sequence);
        let all: Vec<_> = (0..=6).map(find).collect();
        assert_eq!(all, [Some(0), Some(1), Some(2), Some(4), Some(5), Some(7), None]);
        assert_eq!(registry.find("name 1", "other", 1, None), None);
        assert_eq!(registry.find("name 2", "watched", 1, None), None);
        let one = registry.get_mut(SubscriberId(1)).unwrap();
        for n in 0..SKIPS_MAX as u64 {
            one.number(10 + 2 * n);
        }
        assert_eq!(registry.find("name 1", "watched", 1, None), None, "too long ago");
    }

    #[test]
    fn numbers_in_a_circle_stand_for_the_latest() {
        let mut registry = Registry::default();
        add(&mut registry, at(0), 1);
        let one = registry.get_mut(SubscriberId(1)).unwrap();
        for n in 1..=25 {
            one.number(n);
        }
        let find = |told| registry.find("name 1", "watched", told, Some(10)).map(|(_, sequence)| sequence);
        assert_eq!([find(5), find(4), find(6), find(10), find(0)], [25, 24, 16, 20, 0].map(Some));
    }

    #[test]
    fn who_comes_back_for_the_same_costs_little() {
        let mut registry = Registry::default();
        for id in 0..1000 {
            let watched = format!("watched {}", if id < 900 { 0 } else { id });
            registry.add(at(0), SubscriberId(id), format!("name {id}"), watched, (id % 2 == 0).then_some(1));
        }
        assert_eq!(registry.return_work(), 51 * RETURN_COST + 449 * JOINED_RETURN_COST, "and who is away comes later");
    }

    #[test]
    fn subscriptions_of_connections_that_are_gone_linger() {
        let mut registry = Registry::default();
        for (id, connection) in [(1, 10), (2, 20)] {
            registry.add(at(0), SubscriberId(id), format!("name {id}"), "watched".into(), Some(connection));
        }
        let lingering = |registry: &Registry| registry.lingering.iter().map(|(_, id)| *id).collect::<Vec<_>>();
        registry.detach_gone(at(0), |connection| *connection == 20);
        assert_eq!(lingering(&registry), [2]);
        registry.detach_gone(at(1), |_| true);
        assert_eq!(lingering(&registry), [2], "only now and then");
        registry.detach_gone(at(0) + DESERTED_INTERVAL, |_| true);
        assert_eq!(lingering(&registry), [2, 1]);
    }

    #[test]
    fn subscriptions_linger_for_a_while_and_not_all_of_them() {
        let mut registry = Registry::default();
        for id in 1..=LINGER_MAX as u64 {
            add(&mut registry, at(id), id);
        }
        // One that asks again and again.
        let now = at(LINGER_MAX as u64 + 1);
        registry.attach(now, SubscriberId(2), None);
        let start = at(2);
        assert_eq!(registry.poll_over(start), None);
        add(&mut registry, now, 0);
        assert_eq!(registry.poll_over(start), Some(SubscriberId(1)), "one too many");
        registry.remove(SubscriberId(1));
        assert_eq!(registry.poll_over(start), None);
        let mut gone = Vec::new();
        while let Some(id) = registry.poll_over(now + LINGER_TIME) {
            registry.remove(id);
            gone.push(id.0);
        }
        assert_eq!((gone.len(), &gone[gone.len() - 2..]), (LINGER_MAX, &[0, 2][..]));
        assert!(registry.by_id.is_empty() && registry.names.is_empty() && registry.lingering.is_empty());
    }

    /// What may happen to a registry.
    #[derive(Clone, Copy, Debug)]
    enum Operation {
        Add(u64, Option<u8>),
        Attach(u64, Option<u8>),
        Remove(u64),
        /// The graph has something with so many numbers left out before it.
        Tell(u64, u64),
        /// A connection ends without a word, and it is looked.
        Desert(u8),
        Pass(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let connection = || prop::option::of(0..4u8);
        prop_oneof![
            (0..12u64, connection()).prop_map(|(id, connection)| Operation::Add(id, connection)),
            (0..12u64, connection()).prop_map(|(id, connection)| Operation::Attach(id, connection)),
            (0..12u64).prop_map(Operation::Remove),
            (0..12u64, 0..3u64).prop_map(|(id, left_out)| Operation::Tell(id, left_out)),
            (0..4u8).prop_map(Operation::Desert),
            (0..100u64).prop_map(Operation::Pass),
        ]
    }

    /// The naive model: a list of everything.
    #[derive(Debug, Default)]
    struct Model {
        all: BTreeMap<u64, One>,
        looked: Option<Timestamp>,
    }

    #[derive(Debug, Default)]
    struct One {
        connection: Option<u8>,
        since: Timestamp,
        /// The graph's number of each that was told; the first is the baseline.
        told: Vec<u64>,
    }

    impl Model {
        fn apply(&mut self, now: Timestamp, operation: Operation) {
            match operation {
                Operation::Add(id, connection) => {
                    self.all.entry(id).or_insert(One { connection, since: now, told: vec![0] });
                }
                Operation::Attach(id, connection) => {
                    if let Some(one) = self.all.get_mut(&id) {
                        (one.connection, one.since) = (connection, now);
                    }
                }
                Operation::Remove(id) => drop(self.all.remove(&id)),
                Operation::Tell(id, left_out) => {
                    if let Some(one) = self.all.get_mut(&id) {
                        let next = one.told.last().unwrap() + 1 + left_out;
                        one.told.push(next);
                    }
                }
                Operation::Desert(gone) => {
                    if self.looked.is_none_or(|looked| now.since(looked) >= DESERTED_INTERVAL) {
                        self.looked = Some(now);
                        for one in self.all.values_mut().filter(|one| one.connection == Some(gone)) {
                            (one.connection, one.since) = (None, now);
                        }
                    }
                }
                Operation::Pass(_) => {}
            }
            self.all.retain(|_, one| one.connection.is_some() || now.since(one.since) < LINGER_TIME);
        }
    }

    fn apply(registry: &mut Registry, now: Timestamp, operation: Operation) {
        match operation {
            Operation::Add(id, connection) if !registry.by_id.contains_key(&id) => {
                registry.add(now, SubscriberId(id), format!("name {id}"), format!("watched {id}"), connection);
            }
            Operation::Add(..) | Operation::Pass(_) => {}
            Operation::Attach(id, connection) => drop(registry.attach(now, SubscriberId(id), connection)),
            Operation::Remove(id) => drop(registry.remove(SubscriberId(id))),
            Operation::Tell(id, left_out) => {
                if let Some(one) = registry.get_mut(SubscriberId(id)) {
                    let (next, told) = (one.last() + 1 + left_out, one.told);
                    assert_eq!(one.number(next), told + 1, "without a gap");
                }
            }
            Operation::Desert(gone) => registry.detach_gone(now, |connection| *connection == gone),
        }
        while let Some(id) = registry.poll_over(now) {
            registry.remove(id);
        }
    }

    /// What must hold whatever happened.
    fn invariants(registry: &Registry, model: &Model) {
        assert_eq!(registry.by_id.keys().collect::<Vec<_>>(), model.all.keys().collect::<Vec<_>>());
        assert_eq!(registry.names.len(), registry.by_id.len());
        let silent = registry.by_id.values().filter(|it| it.connection.is_none()).count();
        assert_eq!(registry.lingering.len(), silent);
        for (id, one) in &model.all {
            assert_eq!(registry.connection(SubscriberId(*id)), one.connection.as_ref());
            assert_eq!(registry.is_heard(SubscriberId(*id)), one.connection.is_some());
            let find = |told| registry.find(&format!("name {id}"), &format!("watched {id}"), told, None);
            for (told, sequence) in one.told.iter().enumerate() {
                // What is too long ago is not known; what is known is right.
                let found = find(told as u64).map(|(_, sequence)| sequence);
                assert!(found.is_none_or(|found| found == *sequence), "{told}: {found:?}");
                let skips = one.told[told..].windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
                assert!(found.is_some() || skips >= SKIPS_MAX - 1, "{told} is forgotten after {skips}");
            }
            assert_eq!(find(one.told.len() as u64), None, "nobody has what was never told");
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_it_is_what_a_plain_list_would_be(
            operations in prop::collection::vec(operation(), 1..120),
        ) {
            let (mut registry, mut model, mut now) = (Registry::default(), Model::default(), at(1));
            for operation in operations {
                if let Operation::Pass(seconds) = operation {
                    now = now + Duration::from_secs(seconds);
                }
                apply(&mut registry, now, operation);
                model.apply(now, operation);
                invariants(&registry, &model);
            }
            prop_assert_eq!(registry.len(), model.all.len());
        }
    }
}
