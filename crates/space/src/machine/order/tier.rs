//! What waits of one role: a lane for each kind of request, and which lane is next.
//!
//! Lanes share by weight over estimated work, so that no kind starves. Knows neither time nor servers, nor the other role.

use super::lane::{Entry, Lane, LineId};

#[derive(Debug)]
pub(super) struct Tier<T> {
    pub(super) lanes: [Lane<T>; LANES],
    /// What each lane has used, by its weight; the lowest is next.
    tags: [u64; LANES],
    virtual_time: u64,
}

impl<T> Tier<T> {
    pub(super) fn new() -> Self {
        Self { lanes: std::array::from_fn(|_| Lane::new()), tags: [0; LANES], virtual_time: 0 }
    }

    pub(super) fn push(&mut self, lane: usize, id: LineId, entry: Entry<T>) {
        if self.lanes[lane].items() == 0 {
            // A lane that had nothing to do has saved nothing up.
            self.tags[lane] = self.tags[lane].max(self.virtual_time);
        }
        self.lanes[lane].push(id, entry);
    }

    /// The next lane, of those that may be served, in which somebody's first request is wanted.
    pub(super) fn next(
        &self,
        may: impl Fn(usize) -> bool,
        held: &[u64],
        is_wanted: impl Fn(&Entry<T>) -> bool + Copy,
    ) -> Option<usize> {
        let waiting = (0..LANES).filter(|lane| self.lanes[*lane].items() > 0 && may(*lane));
        waiting.filter(|lane| self.lanes[*lane].has(held, is_wanted)).min_by_key(|lane| self.tags[*lane])
    }

    /// Something of a lane is under way.
    pub(super) fn on_started(&mut self, lane: usize, work: u64, weight: u32) {
        self.virtual_time = self.virtual_time.max(self.tags[lane]);
        self.tags[lane] = self.tags[lane].saturating_add(work.max(1) / u64::from(weight.max(1)) + 1);
    }

    /// Nothing waits, and nothing is under way: nobody owes anything.
    pub(super) fn forgive(&mut self) {
        self.lanes.iter_mut().for_each(Lane::forgive);
        self.tags = [self.virtual_time; LANES];
    }

    pub(super) fn items(&self) -> usize {
        self.lanes.iter().map(Lane::items).sum()
    }

    /// Estimated nanoseconds of all that waits.
    pub(super) fn work(&self) -> u64 {
        self.lanes.iter().map(Lane::work).fold(0, u64::saturating_add)
    }

    /// Households that wait, in each lane counted for itself, and clients of this one in a lane, at least one.
    pub(super) fn waiting(&self, household: u64) -> (usize, usize) {
        let add = |(all, own): (usize, usize), lane: &Lane<T>| {
            let (households, clients) = lane.waiting(household);
            (all + households, own.max(clients))
        };
        let (households, clients) = self.lanes.iter().fold((0, 0), add);
        (households, clients.max(1))
    }
}

/// Lanes: one for each class, and what takes long, large changes, and those who were promised a place.
pub(super) const LANES: usize = tidegate_control::admission::Class::COUNT + 3;
