//! Who subscribes, as the writer knows it: numbers without gaps for each, and a chair that stays free for a while when
//! a connection is lost, so that whoever comes back is told exactly what was missed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use tidegate_graph::SubscriberId;

use crate::limits::{DESERTED_INTERVAL, LINGER_MAX, LINGER_TIME, SKIPS_MAX};
use crate::outlet::Outlet;

/// A subscriber.
pub(crate) struct Seat {
    /// Its name on the wire.
    name: String,
    /// What it watches: whoever comes back must ask for the same.
    watched: String,
    /// None while nobody listens.
    pub(crate) outlet: Option<Arc<Outlet>>,
    /// The last number it was told.
    told: u64,
    /// From which of our numbers on the graph is ahead by how much: it leaves numbers out, we do not.
    skips: VecDeque<(u64, u64)>,
    since: Instant,
}

impl Seat {
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

    /// The graph's number of what was told last.
    pub(crate) fn last(&self) -> u64 {
        self.sequence_of(self.told).unwrap_or(0)
    }
}

#[derive(Default)]
pub(crate) struct Seats {
    by_id: HashMap<u64, Seat>,
    names: HashMap<String, u64>,
    /// Those that nobody listens to, the first to go first.
    free: BTreeSet<(Instant, u64)>,
    /// When it was last looked whose connections are gone.
    looked: Option<Instant>,
}

impl Seats {
    pub(crate) fn sit(&mut self, id: SubscriberId, name: String, watched: String, outlet: Option<Arc<Outlet>>) {
        self.names.insert(name.clone(), id.0);
        let (skips, since) = (VecDeque::from([(0, 0)]), Instant::now());
        self.by_id.insert(id.0, Seat { name, watched, outlet: None, told: 0, skips, since });
        self.take(id, outlet);
    }

    /// The space begins anew: whoever listens is told that its subscription is over.
    pub(crate) fn end_all(&mut self) {
        for (id, seat) in std::mem::take(self).by_id {
            if let Some(outlet) = seat.outlet {
                outlet.end(SubscriberId(id));
            }
        }
    }

    /// Whether a connection listens.
    pub(crate) fn is_heard(&self, id: SubscriberId) -> bool {
        self.by_id.get(&id.0).is_some_and(|seat| seat.outlet.is_some())
    }

    pub(crate) fn get_mut(&mut self, id: SubscriberId) -> Option<&mut Seat> {
        self.by_id.get_mut(&id.0)
    }

    /// Who had this name, watched the same, and what the graph calls the last thing that it has. A number that is written
    /// in a circle of `round` stands for the latest that it can be.
    pub(crate) fn find(&self, name: &str, watched: &str, told: u64, round: Option<u64>) -> Option<(SubscriberId, u64)> {
        let id = *self.names.get(name)?;
        let seat = self.by_id.get(&id).filter(|seat| seat.watched == watched)?;
        let told = match round {
            Some(round) if told > 0 && seat.told > told => seat.told - (seat.told - told) % round,
            _ => told,
        };
        Some((SubscriberId(id), seat.sequence_of(told)?))
    }

    /// Somebody sits here again; or nobody, who has just been told something. Whoever sat here before is returned.
    pub(crate) fn take(&mut self, id: SubscriberId, outlet: Option<Arc<Outlet>>) -> Option<Arc<Outlet>> {
        let seat = self.by_id.get_mut(&id.0)?;
        if seat.outlet.is_none() {
            self.free.remove(&(seat.since, id.0));
        }
        let before = std::mem::replace(&mut seat.outlet, outlet);
        seat.since = Instant::now();
        if seat.outlet.is_none() {
            self.free.insert((seat.since, id.0));
        }
        before
    }

    /// Frees the chairs of connections that went before they knew of them, now and then.
    pub(crate) fn free_deserted(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < DESERTED_INTERVAL) {
            return;
        }
        self.looked = Some(now);
        let is_deserted = |seat: &Seat| seat.outlet.as_ref().is_some_and(|outlet| outlet.is_closed());
        let deserted: Vec<u64> = self.by_id.iter().filter(|(_, seat)| is_deserted(seat)).map(|(id, _)| *id).collect();
        for id in deserted {
            self.take(SubscriberId(id), None);
        }
    }

    /// Whether this connection still has it; another one may have taken it since.
    pub(crate) fn is_of(&self, id: SubscriberId, outlet: &Arc<Outlet>) -> bool {
        let seat = self.by_id.get(&id.0);
        seat.and_then(|seat| seat.outlet.as_ref()).is_some_and(|other| Arc::ptr_eq(other, outlet))
    }

    pub(crate) fn remove(&mut self, id: SubscriberId) {
        if let Some(seat) = self.by_id.remove(&id.0) {
            self.names.remove(&seat.name);
            self.free.remove(&(seat.since, id.0));
        }
    }

    /// Whose time is over, or whose chair is needed; it is to be removed.
    pub(crate) fn over(&self, now: Instant) -> Option<SubscriberId> {
        let (since, id) = self.free.first()?;
        let is_over = now.saturating_duration_since(*since) >= LINGER_TIME || self.free.len() > LINGER_MAX;
        is_over.then_some(SubscriberId(*id))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sit(seats: &mut Seats, id: u64) {
        seats.sit(SubscriberId(id), format!("name {id}"), "watched".into(), None);
    }

    #[test]
    fn numbers_have_no_gaps_and_lead_back_to_those_of_the_graph() {
        let mut seats = Seats::default();
        sit(&mut seats, 1);
        let seat = seats.get_mut(SubscriberId(1)).unwrap();
        // The graph leaves 3 and 6 out.
        let told: Vec<u64> = [1, 2, 4, 5, 7].into_iter().map(|sequence| seat.number(sequence)).collect();
        assert_eq!((told, seat.last()), (vec![1, 2, 3, 4, 5], 7));
        let find = |told| seats.find("name 1", "watched", told, None).map(|(_, sequence)| sequence);
        let all: Vec<_> = (0..=6).map(find).collect();
        assert_eq!(all, [Some(0), Some(1), Some(2), Some(4), Some(5), Some(7), None]);
        assert_eq!(seats.find("name 1", "other", 1, None), None);
        assert_eq!(seats.find("name 2", "watched", 1, None), None);
        let seat = seats.get_mut(SubscriberId(1)).unwrap();
        for n in 0..SKIPS_MAX as u64 {
            seat.number(10 + 2 * n);
        }
        assert_eq!(seats.find("name 1", "watched", 1, None), None, "too long ago");
    }

    #[test]
    fn numbers_in_a_circle_stand_for_the_latest() {
        let mut seats = Seats::default();
        sit(&mut seats, 1);
        let seat = seats.get_mut(SubscriberId(1)).unwrap();
        for n in 1..=25 {
            seat.number(n);
        }
        let find = |told| seats.find("name 1", "watched", told, Some(10)).map(|(_, sequence)| sequence);
        assert_eq!([find(5), find(4), find(6), find(10), find(0)], [25, 24, 16, 20, 0].map(Some));
    }

    #[test]
    fn chairs_of_connections_that_are_gone_are_free() {
        let service = crate::Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
        let (mut seats, (here, inlet)) = (Seats::default(), crate::outlet(&service.handle()));
        let (gone, _) = crate::outlet(&service.handle());
        for (id, outlet) in [(1, here), (2, gone)] {
            seats.sit(SubscriberId(id), format!("name {id}"), "watched".into(), Some(outlet));
        }
        let now = Instant::now();
        seats.free_deserted(now);
        let free = |seats: &Seats| seats.free.iter().map(|(_, id)| *id).collect::<Vec<_>>();
        assert_eq!(free(&seats), [2]);
        drop(inlet);
        seats.free_deserted(now);
        assert_eq!(free(&seats), [2], "only now and then");
        seats.free_deserted(now + DESERTED_INTERVAL);
        assert_eq!(free(&seats), [2, 1]);
    }

    #[test]
    fn chairs_are_kept_for_a_while_and_not_for_everybody() {
        let mut seats = Seats::default();
        for id in 1..=LINGER_MAX as u64 {
            sit(&mut seats, id);
        }
        let now = Instant::now();
        for _ in 0..2 * LINGER_MAX {
            // One that asks again and again.
            seats.take(SubscriberId(2), None);
        }
        assert_eq!(seats.over(now), None);
        sit(&mut seats, 0);
        assert_eq!(seats.over(now), Some(SubscriberId(1)), "one too many");
        seats.remove(SubscriberId(1));
        assert_eq!(seats.over(now), None);
        let later = Instant::now() + LINGER_TIME + Duration::from_secs(1);
        let mut gone = Vec::new();
        while let Some(id) = seats.over(later) {
            seats.remove(id);
            gone.push(id.0);
        }
        assert_eq!((gone.len(), &gone[gone.len() - 2..]), (LINGER_MAX, &[2, 0][..]));
        assert!(seats.by_id.is_empty() && seats.names.is_empty() && seats.free.is_empty());
    }
}
