//! What one class may have waiting in a queue: bytes, and time.
//!
//! Messages of a flow are in the order in which they came, so what has waited the longest is first in its flow: only the
//! first of each flow is looked at. A publisher whose class changes with its rate may have messages of several classes in
//! one flow; those behind the first are found when it has gone, or when they would be sent.
//!
//! A class that has such a bound is never on disk, and what has been chosen to go out next does not count any more.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::schedule::FlowId;

use super::flows::{QueueFlow, SHARED};
use super::{Bounds, Item, Queue, WaitingCopy, is_latest, is_passing};
use crate::classes::{ClassId, OnFull, Priority};
use crate::session::Queued;

impl Queued {
    /// When it has waited as long as its class may.
    pub(crate) fn overdue_at(&self, priority: &Priority) -> Option<Timestamp> {
        let delay: Duration = priority.delay_max(self.message.class())?;
        Some(self.since + delay)
    }
}

impl Queue {
    /// Whether so many more bytes of a class would be too much.
    pub(crate) fn is_class_full(&self, class: ClassId, size: usize, bounds: Bounds) -> bool {
        let held = self.pages.as_ref().map_or(0, |pages| pages.class_bytes(class));
        (self.class_bytes[class.index()] + held).saturating_add(size) > bounds.class_bytes
    }

    /// Makes room for a message among those of its class; false if it is the one that has to go.
    pub(super) fn make_room_in_class(
        &mut self,
        queued: &Queued,
        on_full: OnFull,
        bounds: Bounds,
        mut lose: impl FnMut(Queued),
    ) -> bool {
        let (class, size) = (queued.message.class(), queued.message.size());
        if size > bounds.class_bytes {
            return false;
        }
        while self.is_class_full(class, size, bounds) {
            let own = QueueFlow::of(queued);
            let victim = match on_full {
                OnFull::DropNewest | OnFull::Refuse => None,
                OnFull::DropOldest if self.leads(own, class) && !self.is_worth_more(own, queued) => self.evict_led(own),
                OnFull::DropOldest | OnFull::DropLongest | OnFull::Latest => self.evict_of_class(class, queued),
            };
            match victim {
                Some(victim) => lose(victim),
                None => return false,
            }
        }
        true
    }

    /// The same for one that would take the place of an older one of its topic: it may be larger, or of another class.
    pub(super) fn make_room_to_replace(
        &mut self,
        queued: &Queued,
        on_full: OnFull,
        bounds: Bounds,
        mut lose: impl FnMut(Queued),
    ) -> bool {
        let (class, passing) = (queued.message.class(), is_passing(queued));
        if !is_latest(queued, on_full) {
            return true;
        }
        if queued.message.size() > bounds.class_bytes {
            return false;
        }
        // What is evicted may be the very one.
        while let Some(before) = self.latest.get(queued.message.view().topic, passing) {
            let spared = if before.message.class() == class { before.message.size() } else { 0 };
            let more = queued.message.size().saturating_sub(spared);
            if more == 0 || !self.is_class_full(class, more, bounds) {
                return true;
            }
            match self.evict_of_class(class, queued) {
                Some(victim) => lose(victim),
                None => return false,
            }
        }
        true
    }

    /// The oldest message of the longest flow that has one of this class first, for a newcomer; as with a full queue.
    fn evict_of_class(&mut self, class: ClassId, newcomer: &Queued) -> Option<Queued> {
        let flow = match &self.flows {
            None => self.line_flow,
            Some(flows) => {
                let leads = |place: &FlowId| self.class_of(flows.scheduler.first(*place)) == Some(class);
                let places = flows.places.iter().filter(|(_, place)| leads(place));
                let by_length =
                    |(flow, place): &(&QueueFlow, &FlowId)| (flows.scheduler.flow_backlog(**place), flow.origin());
                places.max_by_key(by_length).map(|(flow, _)| *flow)
            }
        }?;
        if self.leads(flow, class) && !self.is_worth_more(flow, newcomer) { self.evict_led(flow) } else { None }
    }

    /// The first message of a flow that [`Self::leads`] has looked at.
    fn evict_led(&mut self, flow: QueueFlow) -> Option<Queued> {
        let waiting = match &mut self.flows {
            Some(flows) => flows.evict(flow)?,
            None => self.line.pop_front()?,
        };
        self.leave_here(waiting)
    }

    /// Takes out what is known to be in memory.
    fn leave_here(&mut self, waiting: WaitingCopy) -> Option<Queued> {
        match self.leave(waiting)? {
            Item::Message(queued) => Some(queued),
            Item::Paged(_) => None,
        }
    }

    /// Whether the oldest message of a flow is of this class.
    fn leads(&self, flow: QueueFlow, class: ClassId) -> bool {
        self.class_of(self.first_in(flow)) == Some(class)
    }

    /// The oldest message of a flow.
    pub(super) fn first_in(&self, flow: QueueFlow) -> Option<&WaitingCopy> {
        match &self.flows {
            None if self.line_flow == Some(flow) => self.line.front(),
            None => None,
            Some(flows) => flows.places.get(&flow).and_then(|place| flows.scheduler.first(*place)),
        }
    }

    fn class_of(&self, waiting: Option<&WaitingCopy>) -> Option<ClassId> {
        self.seen(waiting?).map(|queued| queued.message.class())
    }

    /// The message that would leave.
    pub(super) fn seen<'a>(&'a self, waiting: &'a WaitingCopy) -> Option<&'a Queued> {
        match waiting {
            WaitingCopy::Message(queued) => Some(queued),
            WaitingCopy::Latest(topic, is_passing) => self.latest.get(topic, *is_passing),
            WaitingCopy::Paged(_) => None,
        }
    }

    /// Hands over what has waited longer than its class may, `max` of them at most; the answer is when to look again.
    pub(crate) fn drop_overdue(
        &mut self,
        priority: &Priority,
        now: Timestamp,
        max: usize,
        mut lose: impl FnMut(Queued),
    ) -> Option<Timestamp> {
        let mut next: Option<Timestamp> = None;
        let mut left = max;
        for place in self.places() {
            while let Some(due) = self.first_of(place).and_then(|first| first.overdue_at(priority)) {
                if due > now || left == 0 {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    break;
                }
                let Some(lost) = self.evict_at(place) else { break };
                left -= 1;
                lose(lost);
            }
        }
        next
    }

    /// Where something may wait; none is the line.
    fn places(&self) -> alloc::vec::Vec<Option<FlowId>> {
        let flows = self.flows.iter().flat_map(|flows| flows.places.values().copied().chain([SHARED]));
        core::iter::once(None).chain(flows.map(Some)).collect()
    }

    fn first_of(&self, place: Option<FlowId>) -> Option<&Queued> {
        let waiting = match place {
            None => self.line.front(),
            Some(place) => self.flows.as_ref().and_then(|flows| flows.scheduler.first(place)),
        };
        self.seen(waiting?)
    }

    fn evict_at(&mut self, place: Option<FlowId>) -> Option<Queued> {
        let waiting = match place {
            None => self.line.pop_front()?,
            Some(place) => self.flows.as_mut()?.scheduler.evict(place)?.item,
        };
        self.leave_here(waiting)
    }
}
