//! What waits for one session, and who is next.
//!
//! Messages of one flow leave in the order in which they came: a flow is a publisher, or a publisher's messages of one
//! class if the class is told by the topic. Between flows decides [`Scheduler`], by the weight of their classes. A queue
//! with a single flow, which is nearly every one, is a plain line; the scheduler is made when a second one comes.
//!
//! Knows neither connections nor counters. Whoever drives it is told of every message that goes, and why.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::schedule::{FlowId, Pushed, Scheduler, SchedulerConfig, SchedulerRule};
use tidegate_wire_mqtt::QoS;

use crate::classes::{OnFull, Priority, PriorityMode};
use crate::limits::FLOWS_MAX;
use crate::message::Message;
use crate::session::Queued;

/// Everything that waits for a session beyond what is under way.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The only flow. Beside others it is empty.
    line: VecDeque<Waiting>,
    /// Which flow that is; none once there are others. Means nothing while the line is empty.
    line_flow: Option<Flow>,
    /// The others, if there are any. None while `line` is a flow.
    flows: Option<Box<Flows>>,
    /// The newest message of each topic of which only that one is wanted.
    latest: HashMap<Box<str>, Queued, FixedState>,
    len: usize,
    bytes: usize,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) messages_max: usize,
    pub(crate) bytes_max: usize,
}

/// Why a message does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It came when there was no room.
    Newest,
    /// It made room for another one.
    Oldest,
    /// A newer one of its topic came, and only the newest is wanted.
    Conflated,
}

#[derive(Debug)]
enum Waiting {
    Message(Queued),
    /// The newest one of this topic, whichever that is when it leaves.
    Latest(Box<str>),
}

/// Messages that keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flow {
    /// All there are.
    All,
    /// Those of a publisher, with the class that their topics tell, if they do.
    Publisher(u64, Option<u8>),
}

impl Flow {
    /// Not by any other class: those may change between two messages to one topic.
    fn of(message: &Message) -> Self {
        let standing = message.standing();
        Self::Publisher(message.origin(), standing.is_by_topic.then(|| standing.class.bits()))
    }
}

/// Where a message belongs.
struct Place {
    flow: Flow,
    size: usize,
    weight: u32,
    rate: u32,
}

impl Place {
    fn of(message: &Message, priority: &Priority) -> Self {
        let standing = message.standing();
        let weight = priority.classes.weight(standing.class);
        Self { flow: Flow::of(message), size: message.size(), weight, rate: standing.rate }
    }
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message of this size would be too much.
    pub(crate) fn is_full(&self, size: usize, bounds: Bounds) -> bool {
        self.len >= bounds.messages_max.min(ITEMS_MAX) || self.bytes + size > bounds.bytes_max
    }

    /// Takes a message in; whatever has to go for it, possibly itself, is handed to `lose`.
    pub(crate) fn offer(
        &mut self,
        queued: Queued,
        priority: &Priority,
        bounds: Bounds,
        mut lose: impl FnMut(Queued, Gone),
    ) {
        let on_full = priority.on_full(queued.message.standing().class);
        let size = queued.message.size();
        if size > bounds.bytes_max {
            return lose(queued, Gone::Newest);
        }
        let queued = match on_full {
            OnFull::Latest => match self.replace(queued) {
                Ok(before) => {
                    lose(before, Gone::Conflated);
                    // It may be larger than the one before.
                    while self.bytes > bounds.bytes_max
                        && let Some(victim) = self.evict_longest()
                    {
                        lose(victim, Gone::Oldest);
                    }
                    return;
                }
                Err(queued) => queued,
            },
            _ => queued,
        };
        while self.is_full(size, bounds) {
            let victim = match on_full {
                OnFull::DropNewest => None,
                OnFull::DropOldest => self.evict_from(Flow::of(&queued.message)).or_else(|| self.evict_longest()),
                OnFull::DropLongest | OnFull::Latest => self.evict_longest(),
            };
            match victim {
                Some(victim) => lose(victim, Gone::Oldest),
                None => return lose(queued, Gone::Newest),
            }
        }
        self.push(queued, priority, on_full);
    }

    /// Quality of service of the next message.
    pub(crate) fn next_qos(&mut self) -> Option<QoS> {
        let next = match self.line.front() {
            Some(next) => next,
            None => self.flows.as_mut()?.scheduler.peek()?,
        };
        match next {
            Waiting::Message(queued) => Some(queued.qos),
            Waiting::Latest(topic) => self.latest.get(topic).map(|queued| queued.qos),
        }
    }

    /// Takes the next message.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let next = match self.line.pop_front() {
            Some(next) => next,
            None => self.flows.as_mut()?.scheduler.pop()?.item,
        };
        self.leave(next)
    }

    fn push(&mut self, queued: Queued, priority: &Priority, on_full: OnFull) {
        let own = Flow::of(&queued.message);
        let flow = if priority.mode == PriorityMode::Off { Flow::All } else { own };
        self.count_in(&queued);
        if self.flows.is_none() && (self.line.is_empty() || self.line_flow == Some(flow)) {
            self.line_flow = Some(flow);
            let waiting = self.wait(queued, on_full);
            self.line.push_back(waiting);
            return;
        }
        if self.line_flow.is_some() {
            self.spread(priority);
        }
        let place = Place::of(&queued.message, priority);
        let waiting = self.wait(queued, on_full);
        self.schedule(place, waiting, priority.mode);
    }

    /// A second flow has come: from now on the scheduler decides.
    fn spread(&mut self, priority: &Priority) {
        self.line_flow = None;
        for waiting in core::mem::take(&mut self.line) {
            let message = match &waiting {
                Waiting::Message(queued) => Some(&queued.message),
                Waiting::Latest(topic) => self.latest.get(topic).map(|queued| &queued.message),
            };
            if let Some(place) = message.map(|message| Place::of(message, priority)) {
                self.schedule(place, waiting, priority.mode);
            }
        }
    }

    fn schedule(&mut self, place: Place, waiting: Waiting, mode: PriorityMode) {
        if self.flows.is_none() {
            self.flows = Flows::new(mode).map(Box::new);
        }
        let back = match &mut self.flows {
            Some(flows) => flows.push(place, waiting),
            None => Some(waiting),
        };
        // The scheduler has room for all that the queue has room for; if it had not, they would leave in order.
        self.line.extend(back);
    }

    fn wait(&mut self, queued: Queued, on_full: OnFull) -> Waiting {
        if on_full != OnFull::Latest {
            return Waiting::Message(queued);
        }
        let topic: Box<str> = queued.message.view().topic.into();
        self.latest.insert(topic.clone(), queued);
        Waiting::Latest(topic)
    }

    /// Puts a message into the place of an older one of its topic, which is the answer; else gives it back.
    fn replace(&mut self, queued: Queued) -> Result<Queued, Queued> {
        let Some(place) = self.latest.get_mut(queued.message.view().topic) else { return Err(queued) };
        self.bytes += queued.message.size();
        let before = core::mem::replace(place, queued);
        self.bytes -= before.message.size();
        Ok(before)
    }

    /// The oldest message of the flow with the most bytes.
    fn evict_longest(&mut self) -> Option<Queued> {
        let victim = match &mut self.flows {
            Some(flows) => flows.scheduler.evict_longest()?.item,
            None if self.line_flow.is_some() => self.line.pop_front()?,
            None => return None,
        };
        self.leave(victim)
    }

    fn evict_from(&mut self, flow: Flow) -> Option<Queued> {
        let victim = match &mut self.flows {
            Some(flows) => flows.evict(flow)?,
            None if self.line_flow == Some(flow) => self.line.pop_front()?,
            None => return None,
        };
        self.leave(victim)
    }

    fn count_in(&mut self, queued: &Queued) {
        self.len += 1;
        self.bytes += queued.message.size();
    }

    fn leave(&mut self, waiting: Waiting) -> Option<Queued> {
        if self.flows.as_ref().is_some_and(|flows| flows.scheduler.is_empty()) {
            self.flows = None;
        }
        let queued = match waiting {
            Waiting::Message(queued) => queued,
            Waiting::Latest(topic) => self.latest.remove(&topic)?,
        };
        self.len -= 1;
        self.bytes -= queued.message.size();
        Some(queued)
    }
}

/// Several flows, and the rule between them.
#[derive(Debug)]
struct Flows {
    scheduler: Scheduler<Waiting>,
    /// A flow keeps its place when it has nothing waiting, or its debts would be forgotten with it.
    places: HashMap<Flow, FlowId, FixedState>,
    free: Vec<FlowId>,
}

/// Messages that a scheduler holds, and with it a queue.
const ITEMS_MAX: usize = 8_000_000;
/// Those for whom there is no place of their own.
const SHARED: FlowId = FlowId(FLOWS_MAX);

impl Flows {
    fn new(mode: PriorityMode) -> Option<Self> {
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
    fn push(&mut self, Place { flow, size, weight, rate }: Place, waiting: Waiting) -> Option<Waiting> {
        let place = self.place(flow);
        // Each rule looks at one of the two; neither fails for a flow that has a place.
        let _ = self.scheduler.set_weight(place, weight);
        let _ = self.scheduler.set_order(place, rate.into());
        match self.scheduler.push(place, waiting, u32::try_from(size).unwrap_or(u32::MAX)) {
            Pushed::Queued => None,
            Pushed::Full(waiting) | Pushed::Refused(waiting, _) => Some(waiting),
        }
    }

    fn evict(&mut self, flow: Flow) -> Option<Waiting> {
        let place = self.places.get(&flow)?;
        Some(self.scheduler.evict(*place)?.item)
    }

    fn place(&mut self, flow: Flow) -> FlowId {
        if let Some(place) = self.places.get(&flow) {
            return *place;
        }
        // Something of this flow may wait there.
        if self.scheduler.flow_len(SHARED) > 0 {
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

#[cfg(test)]
mod tests;
