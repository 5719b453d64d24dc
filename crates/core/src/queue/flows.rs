//! Several flows in one queue, and the rule between them.

use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::schedule::{Entitlement, FlowId, Pushed, Scheduler, SchedulerConfig, SchedulerRule};
use tidegate_wire_mqtt::QoS;

use super::{Queue, WaitingCopy, is_passing};
use crate::classes::{Priority, PriorityMode};
use crate::limits::FLOWS_MAX;
use crate::message::{Colour, Precedence, Publication};
use crate::session::Queued;

/// Messages that keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum QueueFlow {
    /// All there are.
    All,
    /// Those of a publisher, with the class that their topics tell, if they do.
    Publisher(u64, Option<u8>),
}

impl QueueFlow {
    pub(super) fn of(queued: &Queued) -> Self {
        Self::new(queued.message.origin(), queued.message.standing())
    }

    pub(super) fn of_publication(publication: &Publication<'_>) -> Self {
        Self::new(publication.origin, &publication.standing)
    }

    /// Not by any other class: those may change between two messages to one topic.
    fn new(origin: u64, standing: &Precedence) -> Self {
        let class = standing.is_by_topic.then(|| standing.class.bits());
        Self::Publisher(origin, class)
    }

    pub(super) fn origin(self) -> u64 {
        if let Self::Publisher(origin, ..) = self { origin } else { 0 }
    }
}

/// Where a message belongs.
#[derive(Clone, Copy)]
pub(super) struct QueuePlace {
    pub(super) flow: QueueFlow,
    pub(super) size: usize,
    pub(super) weight: u32,
    /// None if it is not known: then the flow stays where it is.
    pub(super) rate: Option<u32>,
    /// Whom its publisher belongs to; 0 if that is not known.
    pub(super) parent: u64,
    pub(super) claim: Entitlement,
}

impl QueuePlace {
    pub(super) fn of(queued: &Queued, priority: &Priority) -> Self {
        let message = &queued.message;
        let standing = message.standing();
        let weight = priority.classes.weight(standing.class);
        let Precedence { rate, parent, .. } = *standing;
        Self {
            flow: QueueFlow::of(queued),
            size: message.size(),
            weight,
            rate: Some(rate),
            parent,
            claim: claim_of(queued.colour),
        }
    }

    fn parent_key(&self) -> u64 {
        parent_key(self.flow, self.parent)
    }
}

/// Flows of a parent share what one gets. Of whom nothing is known is its own.
fn parent_key(flow: QueueFlow, parent: u64) -> u64 {
    if parent == 0 { flow.origin() | 1 << 63 } else { parent }
}

pub(super) fn claim_of(colour: Colour) -> Entitlement {
    match colour {
        Colour::Entitled => Entitlement::Entitled,
        Colour::Excess => Entitlement::Excess,
    }
}

/// What a publisher has of a queue: messages of its own in so many flows of its parent, and of its parent among so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) own: usize,
    pub(crate) flows: usize,
    pub(crate) of_parent: usize,
    pub(crate) parents: usize,
}

impl Queue {
    /// Whose messages wait, the most first, so many publishers at most. Those of nobody in particular are not named.
    pub(crate) fn waiting_by_origin(&self, most: usize) -> Vec<(u64, u64)> {
        let mut by: HashMap<u64, u64, FixedState> = HashMap::with_hasher(FixedState::default());
        if let Some(flow) = self.line_flow.filter(|_| !self.line.is_empty()) {
            by.insert(flow.origin(), self.line.len() as u64);
        }
        for (flow, place) in self.flows.iter().flat_map(|flows| &flows.places) {
            let waiting = self.flows.as_ref().map_or(0, |flows| flows.scheduler.flow_len(*place));
            *by.entry(flow.origin()).or_default() += u64::from(waiting);
        }
        let mut by: Vec<(u64, u64)> = by.into_iter().filter(|(origin, count)| *origin != 0 && *count > 0).collect();
        by.sort_unstable_by_key(|(origin, count)| (core::cmp::Reverse(*count), *origin));
        by.truncate(most);
        by
    }

    /// What the publisher of a message has of this queue.
    pub(crate) fn share_of(&self, publication: &Publication<'_>) -> Share {
        let flow = QueueFlow::of_publication(publication);
        if let Some(flows) = &self.flows {
            return flows.share_of(flow, publication.standing.parent);
        }
        let own = if self.line_flow == Some(flow) { self.len() } else { 0 };
        Share { own, flows: 1, of_parent: own, parents: 1 }
    }

    /// Whether a full queue would lose nothing but an older message of the same publisher for this one, of no less worth.
    pub(crate) fn is_own_loss(&self, publication: &Publication<'_>, qos: QoS, colour: Colour) -> bool {
        let flow = QueueFlow::of_publication(publication);
        let is_longest = match &self.flows {
            Some(flows) => flows.is_longest(flow, claim_of(colour)),
            None => self.line_flow == Some(flow) && self.pages.is_none(),
        };
        let is_worth_more = |first: &WaitingCopy| match first {
            WaitingCopy::Message(queued) => is_passing(queued),
            WaitingCopy::Latest(_, is_passing) => *is_passing,
            WaitingCopy::Paged(_) => false,
        };
        is_longest && (qos == QoS::AtMostOnce || !self.first_in(flow).is_none_or(is_worth_more))
    }
}

#[derive(Debug)]
pub(super) struct Flows {
    pub(super) scheduler: Scheduler<WaitingCopy>,
    /// A flow keeps its place when it has nothing waiting, or its debts would be forgotten with it.
    pub(super) places: HashMap<QueueFlow, FlowId, FixedState>,
    /// The same, the other way round.
    by_place: Vec<Option<QueueFlow>>,
    free: Vec<FlowId>,
}

/// Messages that a scheduler holds, and with it a queue.
pub(super) const ITEMS_MAX: usize = 8_000_000;
/// Those for whom there is no place of their own.
pub(super) const SHARED: FlowId = FlowId(FLOWS_MAX);

impl Flows {
    pub(super) fn new(mode: PriorityMode) -> Option<Self> {
        let rule = if mode == PriorityMode::Paper { SchedulerRule::Strict } else { SchedulerRule::Claims };
        // How much may wait is for the queue to say; this is only what the scheduler is able to hold.
        let bounds = SchedulerConfig {
            rule,
            items_max: ITEMS_MAX as u32,
            backlog_max: u64::MAX / 4,
            flows_max: FLOWS_MAX + 1,
            ..SchedulerConfig::default()
        };
        let places = HashMap::with_hasher(FixedState::default());
        Some(Self { scheduler: bounds.build().ok()?, places, by_place: Vec::new(), free: Vec::new() })
    }

    /// Queues an item, or gives it back.
    pub(super) fn push(&mut self, to: QueuePlace, waiting: WaitingCopy) -> Option<WaitingCopy> {
        let place = self.place(to.flow);
        let QueuePlace { size, weight, rate, claim, .. } = to;
        // Each rule looks at some of them; none fails for a flow that has a place.
        let _ = self.scheduler.set_weight(place, weight);
        let _ = self.scheduler.set_parent(place, to.parent_key());
        if let Some(rate) = rate {
            let _ = self.scheduler.set_order(place, rate.into());
        }
        match self.scheduler.push_as(place, waiting, u32::try_from(size).unwrap_or(u32::MAX), claim) {
            Pushed::Queued => None,
            Pushed::Full(waiting) | Pushed::Refused(waiting, _) => Some(waiting),
        }
    }

    /// Takes what comes next.
    pub(super) fn take(&mut self) -> Option<WaitingCopy> {
        let taken = self.scheduler.pop()?;
        // What one needs to find the next part was fetched a turn ago: these three wait for memory together, and not one
        // after the other.
        let mut behind = self.scheduler.items_of(taken.flow);
        if let Some(next) = behind.next() {
            next.fetch_bytes();
        }
        if let Some(second) = behind.next() {
            second.fetch_head();
        }
        core::hint::black_box(behind.next().is_some());
        Some(taken.item)
    }

    /// Where [`Scheduler::evict_longest`] would take from; none if that is those who share a place.
    pub(super) fn longest(&self) -> Option<QueueFlow> {
        let longest = self.scheduler.longest()?;
        self.by_place.get(longest.0 as usize).copied().flatten()
    }

    /// Whether this flow is as good as the longest for a message with this claim.
    fn is_longest(&self, flow: QueueFlow, claim: Entitlement) -> bool {
        self.places.get(&flow).is_some_and(|place| self.scheduler.is_longest(*place, claim))
    }

    /// What a flow of this parent has.
    pub(super) fn share_of(&self, flow: QueueFlow, parent: u64) -> Share {
        let own = self.places.get(&flow).map_or(0, |place| self.scheduler.flow_len(*place)) as usize;
        let (of_parent, flows) = self.scheduler.parent_share(parent_key(flow, parent));
        Share { own, flows: flows.max(1), of_parent, parents: self.scheduler.busy_parents().max(1) }
    }

    pub(super) fn evict(&mut self, flow: QueueFlow) -> Option<WaitingCopy> {
        let place = self.places.get(&flow)?;
        Some(self.scheduler.evict(*place)?.item)
    }

    /// Takes out what `goes`; the rest stays in order, and keeps its claim.
    pub(super) fn drain(
        &mut self,
        goes: impl Fn(&WaitingCopy) -> bool,
        claim: impl Fn(&WaitingCopy) -> Entitlement,
    ) -> Vec<WaitingCopy> {
        let mut gone = Vec::new();
        let places: Vec<FlowId> = self.places.values().copied().chain([SHARED]).collect();
        for place in places {
            for _ in 0..self.scheduler.flow_len(place) {
                let Some(taken) = self.scheduler.evict(place) else { break };
                if goes(&taken.item) {
                    gone.push(taken.item);
                } else {
                    let claim = claim(&taken.item);
                    // There is room: it has just left.
                    let _ = self.scheduler.push_as(place, taken.item, taken.cost, claim);
                }
            }
        }
        gone
    }

    fn place(&mut self, flow: QueueFlow) -> FlowId {
        if let Some(place) = self.places.get(&flow) {
            return *place;
        }
        // Whose they are is not known, or something of this flow may wait there.
        if flow == QueueFlow::All || self.scheduler.flow_len(SHARED) > 0 {
            return SHARED;
        }
        let next = FlowId(self.places.len() as u32 + self.free.len() as u32);
        let place = match self.free.pop() {
            Some(place) => place,
            None if next.0 < FLOWS_MAX => next,
            None => match self.sweep() {
                Some(place) => place,
                None => return SHARED,
            },
        };
        self.places.insert(flow, place);
        let index = place.0 as usize;
        if self.by_place.len() <= index {
            self.by_place.resize(index + 1, None);
        }
        self.by_place[index] = Some(flow);
        place
    }

    /// Forgets the flows that have nothing waiting; one of their places is the answer.
    fn sweep(&mut self) -> Option<FlowId> {
        let Self { scheduler, places, free, .. } = self;
        places.retain(|_, place| {
            let is_busy = scheduler.flow_len(*place) > 0;
            if !is_busy {
                drop(scheduler.remove_flow(*place));
                free.push(*place);
            }
            is_busy
        });
        free.pop()
    }
}
