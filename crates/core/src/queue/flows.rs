//! Several flows in one queue, and the rule between them.

use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::schedule::{FlowId, Pushed, Scheduler, SchedulerConfig, SchedulerRule};

use super::{Waiting, is_passing};
use crate::classes::{Priority, PriorityMode};
use crate::limits::FLOWS_MAX;
use crate::session::Queued;

/// Messages that keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Flow {
    /// All there are.
    All,
    /// Those of a publisher, with the class that their topics tell, if they do; and whether they are of QoS 0. Order is
    /// promised for each quality of service by itself.
    Publisher(u64, Option<u8>, bool),
}

impl Flow {
    /// Not by any other class: those may change between two messages to one topic.
    pub(super) fn of(queued: &Queued) -> Self {
        let standing = queued.message.standing();
        let class = standing.is_by_topic.then(|| standing.class.bits());
        Self::Publisher(queued.message.origin(), class, is_passing(queued))
    }

    pub(super) fn is_passing(self) -> bool {
        matches!(self, Self::Publisher(.., true))
    }

    pub(super) fn origin(self) -> u64 {
        if let Self::Publisher(origin, ..) = self { origin } else { 0 }
    }
}

/// Where a message belongs.
pub(super) struct Place {
    pub(super) flow: Flow,
    pub(super) size: usize,
    pub(super) weight: u32,
    /// None if it is not known: then the flow stays where it is.
    pub(super) rate: Option<u32>,
}

impl Place {
    pub(super) fn of(queued: &Queued, priority: &Priority) -> Self {
        let message = &queued.message;
        let standing = message.standing();
        let weight = priority.classes.weight(standing.class);
        Self { flow: Flow::of(queued), size: message.size(), weight, rate: Some(standing.rate) }
    }
}

#[derive(Debug)]
pub(super) struct Flows {
    pub(super) scheduler: Scheduler<Waiting>,
    /// A flow keeps its place when it has nothing waiting, or its debts would be forgotten with it.
    pub(super) places: HashMap<Flow, FlowId, FixedState>,
    free: Vec<FlowId>,
}

/// Messages that a scheduler holds, and with it a queue.
pub(super) const ITEMS_MAX: usize = 8_000_000;
/// Those for whom there is no place of their own.
pub(super) const SHARED: FlowId = FlowId(FLOWS_MAX);

impl Flows {
    pub(super) fn new(mode: PriorityMode) -> Option<Self> {
        let rule = if mode == PriorityMode::Paper { SchedulerRule::Strict } else { SchedulerRule::Drr };
        // How much may wait is for the queue to say; this is only what the scheduler is able to hold.
        let bounds = SchedulerConfig {
            rule,
            items_max: ITEMS_MAX as u32,
            backlog_max: u64::MAX / 4,
            flows_max: FLOWS_MAX + 1,
            ..SchedulerConfig::default()
        };
        let places = HashMap::with_hasher(FixedState::default());
        Some(Self { scheduler: bounds.build().ok()?, places, free: Vec::new() })
    }

    /// Queues an item, or gives it back.
    pub(super) fn push(&mut self, Place { flow, size, weight, rate }: Place, waiting: Waiting) -> Option<Waiting> {
        let place = self.place(flow);
        // Each rule looks at one of the two; neither fails for a flow that has a place.
        let _ = self.scheduler.set_weight(place, weight);
        if let Some(rate) = rate {
            let _ = self.scheduler.set_order(place, rate.into());
        }
        match self.scheduler.push(place, waiting, u32::try_from(size).unwrap_or(u32::MAX)) {
            Pushed::Queued => None,
            Pushed::Full(waiting) | Pushed::Refused(waiting, _) => Some(waiting),
        }
    }

    pub(super) fn longest_passing(&self) -> Option<Flow> {
        let passing = self.places.iter().filter(|(flow, _)| flow.is_passing());
        let (flow, place) = passing.max_by_key(|(_, place)| self.scheduler.flow_len(**place))?;
        (self.scheduler.flow_len(*place) > 0).then_some(*flow)
    }

    pub(super) fn evict(&mut self, flow: Flow) -> Option<Waiting> {
        let place = self.places.get(&flow)?;
        Some(self.scheduler.evict(*place)?.item)
    }

    /// Takes out what `goes`; the rest stays in order. Looks only where such a thing may be: `is_suspect`.
    pub(super) fn drain(
        &mut self,
        is_suspect: impl Fn(&Flow) -> bool,
        goes: impl Fn(&Waiting) -> bool,
        into: &mut Vec<Waiting>,
    ) {
        let suspects = self.places.iter().filter(|(flow, _)| is_suspect(flow)).map(|(_, place)| *place);
        let suspects: Vec<FlowId> = suspects.chain([SHARED]).collect();
        for place in suspects {
            for _ in 0..self.scheduler.flow_len(place) {
                let Some(taken) = self.scheduler.evict(place) else { break };
                if goes(&taken.item) {
                    into.push(taken.item);
                } else {
                    // There is room: it has just left.
                    let _ = self.scheduler.push(place, taken.item, taken.cost);
                }
            }
        }
    }

    fn place(&mut self, flow: Flow) -> FlowId {
        if let Some(place) = self.places.get(&flow) {
            return *place;
        }
        // Whose they are is not known, or something of this flow may wait there.
        if flow == Flow::All || self.scheduler.flow_len(SHARED) > 0 {
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
        place
    }

    /// Forgets the flows that have nothing waiting; one of their places is the answer.
    fn sweep(&mut self) -> Option<FlowId> {
        let Self { scheduler, places, free } = self;
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
