//! Requests of one kind that wait: a line for each client, and whose turn it is.
//!
//! ```text
//! a client comes to an empty line        tag = max(tag, V)
//! the client with the lowest tag is next V = tag,  tag = tag + work;  of equal ones that which came first
//! ```
//! This is start-time fair queueing over estimated work: whoever has asked for little is served before whoever asks for
//! much, a client that comes alone is next, and nobody gains by sending more at once. Inside a line the order is that of
//! arrival. What a line's client owes is kept while the line is empty.
//!
//! Equal questions wait as one entry, whoever asks them. Knows neither time nor servers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_control::Timestamp;
use tidegate_control::admission::{Class, QueryKey};

use super::estimate::{Estimate, Shape};

/// A request that waits, and whoever asked for the same since.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) first: Waiter<T>,
    pub(super) joined: Vec<Waiter<T>>,
    pub(super) key: Option<QueryKey>,
    pub(super) class: Class,
    pub(super) shape: Shape,
    /// Estimated nanoseconds, and whether requests like this one were seen before.
    pub(super) work: u64,
    pub(super) is_known: bool,
    pub(super) keeps_appointments: bool,
}

#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) value: T,
    pub(super) arrived: Timestamp,
    pub(super) deadline: Timestamp,
}

#[derive(Debug)]
struct Line<T> {
    entries: VecDeque<Entry<T>>,
    /// Number of the first entry; an entry's number never changes.
    front: u64,
    tag: u64,
    /// When the line was last empty and somebody came: of equal tags the older is next.
    turn: u64,
    work: u64,
}

#[derive(Debug)]
pub(super) struct Lane<T> {
    lines: BTreeMap<u64, Line<T>>,
    /// Lines with something in them, by tag and turn; and those that only owe something, by tag.
    ready: BTreeSet<(u64, u64, u64)>,
    owing: BTreeSet<(u64, u64)>,
    virtual_time: u64,
    turns: u64,
    /// Which entry an equal question may join.
    shared: BTreeMap<QueryKey, (u64, u64)>,
    items: usize,
    work: u64,
}

impl<T> Lane<T> {
    pub(super) fn new() -> Self {
        Self {
            lines: BTreeMap::new(),
            ready: BTreeSet::new(),
            owing: BTreeSet::new(),
            virtual_time: 0,
            turns: 0,
            shared: BTreeMap::new(),
            items: 0,
            work: 0,
        }
    }

    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Estimated nanoseconds of all that waits.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Clients with something waiting.
    pub(super) fn clients(&self) -> usize {
        self.ready.len()
    }

    /// Estimates anew what was not known when it came.
    pub(super) fn reassess(&mut self, estimate: impl Fn(Class, Shape) -> Estimate) {
        self.work = 0;
        for line in self.lines.values_mut() {
            line.work = 0;
            for entry in &mut line.entries {
                if !entry.is_known {
                    let Estimate { nanos, is_known, .. } = estimate(entry.class, entry.shape);
                    (entry.work, entry.is_known) = (nanos, is_known);
                }
                line.work = line.work.saturating_add(entry.work);
            }
            self.work = self.work.saturating_add(line.work);
        }
    }

    /// Requests of a client that wait, and their estimated nanoseconds.
    pub(super) fn of(&self, client: u64) -> (usize, u64) {
        self.lines.get(&client).map_or((0, 0), |line| (line.entries.len(), line.work))
    }

    pub(super) fn push(&mut self, client: u64, entry: Entry<T>) {
        let line = Line { entries: VecDeque::new(), front: 0, tag: 0, turn: 0, work: 0 };
        let line = self.lines.entry(client).or_insert(line);
        if line.entries.is_empty() {
            self.owing.remove(&(line.tag, client));
            line.tag = line.tag.max(self.virtual_time);
            self.turns += 1;
            line.turn = self.turns;
            self.ready.insert((line.tag, line.turn, client));
        }
        if let Some(key) = entry.key {
            self.shared.insert(key, (client, line.front + line.entries.len() as u64));
        }
        line.work = line.work.saturating_add(entry.work);
        self.work = self.work.saturating_add(entry.work);
        self.items += 1;
        line.entries.push_back(entry);
    }

    /// An equal question that waits, if as many do not wait with it yet as may.
    pub(super) fn equal(&mut self, key: QueryKey, joined_max: usize) -> Option<&mut Entry<T>> {
        let (client, number) = *self.shared.get(&key)?;
        let line = self.lines.get_mut(&client)?;
        let entry = line.entries.get_mut(usize::try_from(number - line.front).ok()?)?;
        (entry.joined.len() < joined_max).then_some(entry)
    }

    /// Whether anybody's first request is wanted; looks at a bounded number of clients.
    pub(super) fn has(&self, is_wanted: impl Fn(&Entry<T>) -> bool) -> bool {
        self.find(is_wanted).is_some()
    }

    fn find(&self, is_wanted: impl Fn(&Entry<T>) -> bool) -> Option<(u64, u64, u64)> {
        let head = |client: &u64| self.lines.get(client).and_then(|line| line.entries.front());
        self.ready.iter().take(LOOKS_MAX).find(|(_, _, client)| head(client).is_some_and(&is_wanted)).copied()
    }

    /// The next request of which this is true, and whose it is.
    pub(super) fn pop(&mut self, is_wanted: impl Fn(&Entry<T>) -> bool) -> Option<(u64, Entry<T>)> {
        let (tag, turn, client) = self.find(is_wanted)?;
        self.ready.remove(&(tag, turn, client));
        self.virtual_time = self.virtual_time.max(tag);
        let entry = self.take_first(client)?;
        self.settle(client, tag.saturating_add(entry.work.max(1)));
        Some((client, entry))
    }

    /// Takes the oldest request of a client, without a turn.
    pub(super) fn displace(&mut self, client: u64) -> Option<Entry<T>> {
        let (tag, turn) = self.lines.get(&client).map(|line| (line.tag, line.turn))?;
        let entry = self.take_first(client)?;
        self.ready.remove(&(tag, turn, client));
        self.settle(client, tag);
        Some(entry)
    }

    /// Takes out the lines of which everything may go, but for those that are next, up to so many nanoseconds of work; what is
    /// left of these is returned, too.
    pub(super) fn shed(&mut self, mut keep: u64, may_go: impl Fn(&Entry<T>) -> bool) -> (u64, Vec<(u64, Entry<T>)>) {
        let mut leaving = Vec::new();
        for (_, _, client) in &self.ready {
            let Some(line) = self.lines.get(client) else { continue };
            if keep == 0 && line.entries.iter().all(&may_go) {
                leaving.push(*client);
            } else {
                keep = keep.saturating_sub(line.work);
            }
        }
        let mut shed = Vec::new();
        for client in leaving {
            while let Some(entry) = self.displace(client) {
                shed.push((client, entry));
            }
        }
        (keep, shed)
    }

    /// A request took longer than estimated: its client pays for it.
    pub(super) fn charge(&mut self, client: u64, nanos: u64) {
        let Some((tag, turn)) = self.lines.get(&client).map(|line| (line.tag, line.turn)) else { return };
        self.ready.remove(&(tag, turn, client));
        self.owing.remove(&(tag, client));
        self.settle(client, tag.saturating_add(nanos));
    }

    /// Nobody waits and nothing runs: whoever owes something harmed nobody.
    pub(super) fn forgive(&mut self) {
        if self.items == 0 {
            self.lines.clear();
            self.owing.clear();
        }
    }

    fn take_first(&mut self, client: u64) -> Option<Entry<T>> {
        let line = self.lines.get_mut(&client)?;
        let entry = line.entries.pop_front()?;
        if let Some(key) = entry.key
            && self.shared.get(&key) == Some(&(client, line.front))
        {
            self.shared.remove(&key);
        }
        line.front += 1;
        line.work = line.work.saturating_sub(entry.work);
        self.work = self.work.saturating_sub(entry.work);
        self.items -= 1;
        Some(entry)
    }

    /// Puts a line where its tag says; lines that owe nothing any more are forgotten.
    fn settle(&mut self, client: u64, tag: u64) {
        if let Some(line) = self.lines.get_mut(&client) {
            line.tag = tag;
            if line.entries.is_empty() {
                self.owing.insert((tag, client));
            } else {
                self.ready.insert((tag, line.turn, client));
            }
        }
        while let Some((tag, client)) = self.owing.first().copied()
            && (tag <= self.virtual_time || self.owing.len() > OWING_MAX)
        {
            self.owing.pop_first();
            self.lines.remove(&client);
        }
    }
}

/// Clients whose first request is looked at for one that fits a server: more than have one under way.
const LOOKS_MAX: usize = 64;
/// Clients that owe something and have nothing waiting; beyond, the smallest debts are forgiven.
const OWING_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(work: u64, value: u32) -> Entry<u32> {
        let (arrived, deadline) = (Timestamp::ZERO, Timestamp::MAX);
        let first = Waiter { value, arrived, deadline };
        let shape = Shape::default();
        let (joined, class) = (Vec::new(), Class::Query);
        Entry { first, joined, key: None, class, shape, work, is_known: true, keeps_appointments: false }
    }

    fn next(lane: &mut Lane<u32>) -> Option<(u64, u32)> {
        lane.pop(|_| true).map(|(client, entry)| (client, entry.first.value))
    }

    /// Clients that ask once in a while owe nothing, so all have the same tag: those with high numbers waited for as long as
    /// others came.
    #[test]
    fn of_clients_that_owe_the_same_the_one_that_came_first_is_next() {
        let mut lane = Lane::new();
        for client in [9, 4, 7] {
            lane.push(client, entry(10, 0));
        }
        assert_eq!(next(&mut lane), Some((9, 0)));
        lane.push(1, entry(10, 0));
        let order: Vec<u64> = std::iter::from_fn(|| next(&mut lane)).map(|(client, _)| client).collect();
        assert_eq!(order, [4, 7, 1]);
    }

    #[test]
    fn whoever_comes_alone_is_next_behind_at_most_one_of_each() {
        let mut lane = Lane::new();
        for n in 0..100 {
            lane.push(1, entry(10, n));
        }
        assert_eq!(next(&mut lane), Some((1, 0)));
        lane.push(2, entry(10, 1000));
        assert_eq!(next(&mut lane), Some((2, 1000)), "its line was empty, the other one owes");
        assert_eq!(next(&mut lane), Some((1, 1)));
    }

    #[test]
    fn who_was_found_to_be_dear_waits_for_it() {
        let mut lane = Lane::new();
        lane.push(1, entry(1, 0));
        lane.pop(|_| true).unwrap();
        lane.charge(1, 1000);
        lane.push(1, entry(1, 1));
        for n in 0..5 {
            lane.push(2, entry(100, n));
        }
        let order: Vec<u64> = std::iter::from_fn(|| next(&mut lane)).map(|(client, _)| client).collect();
        assert_eq!(order, [2, 2, 2, 2, 2, 1]);
        lane.charge(1, 1000);
        lane.forgive();
        assert_eq!((lane.lines.len(), lane.owing.len()), (0, 0));
    }

    proptest! {
        /// Over any backlog two clients that both wait differ by at most one request of each.
        #[test]
        fn work_is_shared_by_client_whatever_each_sends(
            requests in prop::collection::vec((0..4u64, 1..100u64), 1..200),
        ) {
            let mut lane = Lane::new();
            let mut left = [0usize; 4];
            for (place, (client, work)) in requests.iter().enumerate() {
                lane.push(*client, entry(*work, place as u32));
                left[*client as usize] += 1;
            }
            let (mut done, mut last) = ([0u64; 4], [None; 4]);
            while let Some((client, entry)) = lane.pop(|_| true) {
                let of = client as usize;
                prop_assert!(last[of] < Some(entry.first.value), "in the order of arrival");
                (last[of], left[of]) = (Some(entry.first.value), left[of] - 1);
                done[of] += entry.work;
                for other in 0..4 {
                    if left[of] > 0 && left[other] > 0 {
                        prop_assert!(done[of].abs_diff(done[other]) <= 200, "{done:?}");
                    }
                }
            }
            prop_assert_eq!((lane.items(), lane.work(), left), (0, 0, [0; 4]));
        }
    }
}
