//! Deficit round robin: in every round, each flow may spend its weight in quanta.
//!
//! ```text
//! turn of a flow:   credit ← min(credit + quantum · weight, quantum · weight)
//!                   serve while credit > 0:  credit ← credit − cost        (the last item may leave a debt)
//! ```
//!
//! Shreedhar & Varghese (1995) in the surplus form: a flow whose credit is positive may send an item of any size and
//! sits out rounds until it has paid. Over any interval in which flows i and j stay busy their turns differ by at most
//! one, so with costs up to L their service per weight differs by at most `quantum + (L−1)/wᵢ + (L−1)/wⱼ`.
//!
//! As in FQ-CoDel (RFC 8290, 4.1.1) a flow that has just become busy is *fresh* and goes before the *standing* ones:
//! the rare publisher waits for a few turns, not for a round of everyone. The heavier of two fresh ones goes first: when
//! an overload begins, everybody is fresh. It is fresh once a round. A flow that comes back in a round in which it had
//! its turn joins the end of the next one, or it would starve the others. Two more things differ from the RFC. A turn
//! that has begun is finished first; preempting it would cost the bound above a second quantum. And nobody leaves a debt
//! behind by emptying its queue, or sending single large items would pay.

use alloc::vec::Vec;

use super::links::{Links, ListEnds};

/// Who is next, by weight.
#[derive(Clone, Debug)]
pub(super) struct Drr {
    flows: Vec<DrrFlow>,
    links: Links,
    /// The flow whose turn it is; it is in no list.
    turn: Option<u32>,
    /// Fresh flows by their weight, in doublings.
    fresh: [ListEnds; LEVELS],
    /// Standing flows: those still to come in this round, and those of the next. `now` tells which is which.
    rings: [ListEnds; 2],
    now: Ring,
    /// Starts at 1; a flow never seen was credited in round 0.
    round: u64,
    /// Rounds until the first flow of the next ring has credit: those between are skipped, nobody could send in them.
    skip: u64,
    quantum: i64,
}

#[derive(Clone, Copy, Debug)]
struct DrrFlow {
    /// What may still be spent up to and in round `credited`; negative is a debt.
    credit: i64,
    /// The last round whose quantum is contained in `credit`.
    credited: u64,
    weight: u32,
    place: RingPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingPlace {
    Idle,
    Turn,
    Fresh(u8),
    Standing(Ring),
}

/// One of the two rings; they change roles at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    Even,
    Odd,
}

impl Ring {
    const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }
}

impl Drr {
    pub(super) fn new(quantum: u32) -> Self {
        Self {
            flows: Vec::new(),
            links: Links::default(),
            turn: None,
            fresh: [ListEnds::EMPTY; LEVELS],
            rings: [ListEnds::EMPTY; 2],
            now: Ring::Even,
            round: 1,
            skip: u64::MAX,
            quantum: i64::from(quantum),
        }
    }

    pub(super) fn grow(&mut self, len: usize) {
        if self.flows.len() < len {
            self.flows.resize(len, DrrFlow::UNKNOWN);
            self.links.grow(len);
        }
    }

    /// Counts from the flow's next credit on.
    pub(super) fn set_weight(&mut self, flow: u32, weight: u32) {
        self.flows[flow as usize].weight = weight;
    }

    /// The flow to serve: the one whose turn it is, else the next one with credit.
    ///
    /// A flow in debt is passed by once a round, and at most `cost / quantum` rounds for each item it has sent. Rounds
    /// in which nobody has credit are skipped, so one call goes around at most three times: the rest of this round, one
    /// in vain if those have left for whom the rounds were skipped, and the one that finds somebody.
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.turn.is_some() {
            return self.turn;
        }
        loop {
            let flow = self.next_listed()?;
            if self.credit(flow) > 0 {
                self.flows[flow as usize].place = RingPlace::Turn;
                self.turn = Some(flow);
                return self.turn;
            }
            self.stand(flow);
        }
    }

    /// The flow whose turn it is has sent something of this cost.
    pub(super) fn on_served(&mut self, flow: u32, cost: u32) {
        self.flows[flow as usize].credit -= i64::from(cost);
    }

    /// A served flow has more to send.
    pub(super) fn on_waiting(&mut self, flow: u32) {
        if self.flows[flow as usize].credit <= 0 {
            self.turn = None;
            self.stand(flow);
        }
    }

    /// A flow without anything to send got something.
    pub(super) fn on_busy(&mut self, flow: u32) {
        let had_its_turn = self.flows[flow as usize].credited == self.round;
        if had_its_turn || self.credit(flow) <= 0 {
            // What it had left is lost: a share is all that a round gives.
            self.stand(flow);
        } else {
            let level = level(self.flows[flow as usize].weight);
            self.flows[flow as usize].place = RingPlace::Fresh(level);
            self.links.push_back(&mut self.fresh[usize::from(level)], flow);
        }
    }

    /// A flow has nothing left to send: it was served, or lost the rest.
    pub(super) fn on_emptied(&mut self, flow: u32) {
        match core::mem::replace(&mut self.flows[flow as usize].place, RingPlace::Idle) {
            RingPlace::Idle => {}
            RingPlace::Turn => self.turn = None,
            RingPlace::Fresh(level) => self.links.remove(&mut self.fresh[usize::from(level)], flow),
            RingPlace::Standing(ring) => self.links.remove(&mut self.rings[ring as usize], flow),
        }
    }

    /// Forgets the weight and the debt of a flow with an empty queue.
    pub(super) fn forget(&mut self, flow: u32) {
        if let Some(flow) = self.flows.get_mut(flow as usize) {
            *flow = DrrFlow::UNKNOWN;
        }
    }

    fn next_listed(&mut self) -> Option<u32> {
        if let Some(list) = self.fresh.iter_mut().rfind(|list| !list.is_empty()) {
            return self.links.pop_front(list);
        }
        let next = self.now.other();
        if self.rings[self.now as usize].is_empty() && !self.rings[next as usize].is_empty() {
            self.now = next;
            self.round += core::mem::replace(&mut self.skip, u64::MAX);
        }
        self.links.pop_front(&mut self.rings[self.now as usize])
    }

    /// Appends a flow that cannot send any more in this round to the next one.
    fn stand(&mut self, flow: u32) {
        let next = self.now.other();
        let standing = &mut self.flows[flow as usize];
        standing.place = RingPlace::Standing(next);
        self.skip = self.skip.min(standing.rounds_in_debt(self.quantum));
        self.links.push_back(&mut self.rings[next as usize], flow);
    }

    /// The credit of a flow in this round.
    fn credit(&mut self, flow: u32) -> i64 {
        let flow = &mut self.flows[flow as usize];
        let elapsed = self.round - core::mem::replace(&mut flow.credited, self.round);
        let share = self.quantum * i64::from(flow.weight);
        let earned = share.saturating_mul(i64::try_from(elapsed).unwrap_or(i64::MAX));
        flow.credit = flow.credit.saturating_add(earned).min(share);
        flow.credit
    }
}

/// Doublings of [`super::WEIGHT_MAX`], and 1.
const LEVELS: usize = super::WEIGHT_MAX.ilog2() as usize + 1;

fn level(weight: u32) -> u8 {
    weight.clamp(1, super::WEIGHT_MAX).ilog2() as u8
}

impl DrrFlow {
    const UNKNOWN: Self = Self { credit: 0, credited: 0, weight: 1, place: RingPlace::Idle };

    /// How many rounds from now its credit is positive again.
    fn rounds_in_debt(&self, quantum: i64) -> u64 {
        let share = quantum * i64::from(self.weight);
        // Debts are mostly less than a share; this spares them the division.
        if -self.credit < share { 1 } else { (-self.credit / share) as u64 + 1 }
    }
}
