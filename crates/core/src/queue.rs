//! What waits for one session, and who is next.
//!
//! Messages of one flow leave in the order in which they came: a flow is a publisher, or a publisher's messages of one
//! class if the class is told by the topic. Between flows decides [`Scheduler`], by the weight of their classes. A queue
//! with a single flow, which is nearly every one, is a plain line; the scheduler is made when a second one comes.
//!
//! What a class may have waiting is in `caps`. Knows neither connections nor counters. Whoever drives it is told of every message that goes, and why.

mod caps;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_control::Timestamp;
use tidegate_control::schedule::{FlowId, Pushed, Scheduler, SchedulerConfig, SchedulerRule};
use tidegate_wire_mqtt::QoS;

use crate::classes::{CLASSES_MAX, OnFull, Priority, PriorityMode};
use crate::limits::FLOWS_MAX;
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
    /// How many of them are of QoS 0.
    passing: usize,
    /// Bytes by class.
    class_bytes: [usize; CLASSES_MAX],
    /// The timer that looks for what waited too long, if one is set.
    pub(crate) overdue_at: Option<Timestamp>,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) messages_max: usize,
    pub(crate) bytes_max: usize,
    /// Bytes of the class of the message that is offered.
    pub(crate) class_bytes: usize,
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
    /// Its class had as many bytes waiting as it may.
    ClassBytes,
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
    /// Those of a publisher, with the class that their topics tell, if they do; and whether they are of QoS 0. Order is
    /// promised for each quality of service by itself.
    Publisher(u64, Option<u8>, bool),
}

impl Flow {
    /// Not by any other class: those may change between two messages to one topic.
    fn of(queued: &Queued) -> Self {
        let standing = queued.message.standing();
        let class = standing.is_by_topic.then(|| standing.class.bits());
        Self::Publisher(queued.message.origin(), class, is_passing(queued))
    }

    fn is_passing(self) -> bool {
        matches!(self, Self::Publisher(.., true))
    }

    fn origin(self) -> u64 {
        if let Self::Publisher(origin, ..) = self { origin } else { 0 }
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
    fn of(queued: &Queued, priority: &Priority) -> Self {
        let message = &queued.message;
        let standing = message.standing();
        let weight = priority.classes.weight(standing.class);
        Self { flow: Flow::of(queued), size: message.size(), weight, rate: standing.rate }
    }
}

/// Whether of its topic only the newest waits: its class says so, or who gets it.
fn is_latest(queued: &Queued, on_full: OnFull) -> bool {
    queued.is_latest || on_full == OnFull::Latest
}

/// Nobody was promised that it arrives.
fn is_passing(queued: &Queued) -> bool {
    queued.qos == QoS::AtMostOnce
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
        let class = queued.message.class();
        let on_full = priority.on_full(class);
        let size = queued.message.size();
        if size > bounds.bytes_max {
            return lose(queued, Gone::Newest);
        }
        let queued = match self.replace(queued, on_full) {
            Ok(before) => {
                lose(before, Gone::Conflated);
                // It may be larger than the one before.
                while self.bytes > bounds.bytes_max
                    && let Some(victim) = self.evict_for(false)
                {
                    lose(victim, Gone::Oldest);
                }
                return self.shrink_class(class, bounds, |victim| lose(victim, Gone::ClassBytes));
            }
            Err(queued) => queued,
        };
        if !self.make_room_in_class(&queued, on_full, bounds, |victim| lose(victim, Gone::ClassBytes)) {
            return lose(queued, Gone::ClassBytes);
        }
        while self.is_full(size, bounds) {
            let victim = match on_full {
                OnFull::DropNewest | OnFull::Refuse => None,
                OnFull::DropOldest => {
                    self.evict_from(Flow::of(&queued)).or_else(|| self.evict_for(is_passing(&queued)))
                }
                OnFull::DropLongest | OnFull::Latest => self.evict_for(is_passing(&queued)),
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
        let own = Flow::of(&queued);
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
        let place = Place::of(&queued, priority);
        let waiting = self.wait(queued, on_full);
        self.schedule(place, waiting, priority.mode);
    }

    /// A second flow has come: from now on the scheduler decides.
    fn spread(&mut self, priority: &Priority) {
        self.line_flow = None;
        for waiting in core::mem::take(&mut self.line) {
            let queued = match &waiting {
                Waiting::Message(queued) => Some(queued),
                Waiting::Latest(topic) => self.latest.get(topic),
            };
            if let Some(place) = queued.map(|queued| Place::of(queued, priority)) {
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
        if !is_latest(&queued, on_full) {
            return Waiting::Message(queued);
        }
        let topic: Box<str> = queued.message.view().topic.into();
        self.latest.insert(topic.clone(), queued);
        Waiting::Latest(topic)
    }

    /// Puts a message of which only the newest waits into the place of an older one of its topic, which is the answer; else
    /// gives it back.
    fn replace(&mut self, queued: Queued, on_full: OnFull) -> Result<Queued, Queued> {
        if !is_latest(&queued, on_full) {
            return Err(queued);
        }
        let Some(place) = self.latest.get_mut(queued.message.view().topic) else { return Err(queued) };
        let new = Weighed::of(&queued);
        let before = core::mem::replace(place, queued);
        self.weigh_in(new);
        self.weigh_out(Weighed::of(&before));
        Ok(before)
    }

    /// Whoever has to go for a newcomer of QoS 0, or of another. What was acknowledged to its publisher does not go as long
    /// as there is something that was not, and never for that.
    fn evict_for(&mut self, newcomer_is_passing: bool) -> Option<Queued> {
        if self.passing == self.len {
            return self.evict_longest();
        }
        let passing = if self.passing > 0 { self.evict_passing() } else { None };
        if passing.is_some() || newcomer_is_passing { passing } else { self.evict_longest() }
    }

    /// The oldest message of the longest flow of QoS 0, of those with a place of their own.
    fn evict_passing(&mut self) -> Option<Queued> {
        let flow = self.flows.as_ref()?.longest_passing()?;
        self.evict_from(flow)
    }

    /// Everything of QoS 0, handed to `lose`: nobody is there to take it any more.
    pub(crate) fn drop_passing(&mut self, priority: &Priority, mut lose: impl FnMut(Queued)) {
        if self.passing == 0 {
            return;
        }
        let mut kept = Vec::with_capacity(self.len - self.passing);
        while let Some(queued) = self.pop() {
            if is_passing(&queued) {
                lose(queued);
            } else {
                kept.push(queued);
            }
        }
        for queued in kept {
            let on_full = priority.on_full(queued.message.standing().class);
            self.push(queued, priority, on_full);
        }
    }

    /// Whoever has to go for want of memory.
    pub(crate) fn evict(&mut self) -> Option<Queued> {
        self.evict_for(false).or_else(|| self.pop())
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
        self.weigh_in(Weighed::of(queued));
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
        self.weigh_out(Weighed::of(&queued));
        Some(queued)
    }

    fn weigh_in(&mut self, Weighed { size, class, passing }: Weighed) {
        self.bytes += size;
        self.class_bytes[class] += size;
        self.passing += passing;
    }

    fn weigh_out(&mut self, Weighed { size, class, passing }: Weighed) {
        self.bytes -= size;
        self.class_bytes[class] -= size;
        self.passing -= passing;
    }
}

/// What a message counts for.
struct Weighed {
    size: usize,
    class: usize,
    passing: usize,
}

impl Weighed {
    fn of(queued: &Queued) -> Self {
        let message = &queued.message;
        Self { size: message.size(), class: message.class().index(), passing: usize::from(is_passing(queued)) }
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

    fn longest_passing(&self) -> Option<Flow> {
        let passing = self.places.iter().filter(|(flow, _)| flow.is_passing());
        let (flow, place) = passing.max_by_key(|(_, place)| self.scheduler.flow_len(**place))?;
        (self.scheduler.flow_len(*place) > 0).then_some(*flow)
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
