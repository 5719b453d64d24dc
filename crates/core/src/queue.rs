//! What waits for one session, and who is next.
//!
//! Messages of one flow leave in the order in which they came: a flow is a publisher, or a publisher's messages of one
//! class if the class is told by the topic. Between flows decides [`Scheduler`](tidegate_control::schedule::Scheduler):
//! what is within its publisher's claim first, then fairly by whom publishers belong to, by the weight of their classes. A queue with a single flow, which is nearly every one, is a plain line; the scheduler
//! is made when a second one comes.
//!
//! Of a long queue only the beginning is in memory; see [`page`].
//!
//! What a class may have waiting is in [`caps`]. Knows neither connections nor counters. Whoever drives it is told of
//! every message that goes, and why.

mod caps;
mod evict;
mod flows;
mod full;
mod item;
mod newest;
mod page;
mod spool;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_control::schedule::Entitlement;

use crate::classes::{CLASSES_MAX, OnFull, Priority, PriorityMode};
use crate::gate::share::Full;
use crate::message::Colour;
use crate::session::Queued;
pub(crate) use flows::Share;
use flows::{Flows, ITEMS_MAX, QueueFlow, QueuePlace, claim_of};
pub(crate) use item::{Bounds, Gone, Item, NextMessage};
use item::{WaitingCopy, Weighed, is_latest, is_passing};
use newest::Newest;
pub use page::ID_SETS_MAX;
use page::QueuePages;
pub(crate) use page::{Paged, Paging};

/// Everything that waits for a session beyond what is under way.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The only flow. Beside others it is empty.
    line: VecDeque<WaitingCopy>,
    /// Which flow that is; none once there are others. Means nothing while the line is empty.
    line_flow: Option<QueueFlow>,
    /// Whom its publisher belongs to.
    line_parent: u64,
    /// The others, if there are any. None while `line` is a flow.
    flows: Option<Box<Flows>>,
    /// The newest message of each topic of which only that one is wanted.
    latest: Newest,
    /// How many there are in line and flows, and their bytes.
    len: usize,
    bytes: usize,
    /// Of these bytes, those in memory.
    here: usize,
    /// How many of them are on disk.
    paged: usize,
    /// How many of them are of QoS 0.
    passing: usize,
    /// Bytes by class, of what is in memory in line and flows.
    class_bytes: [usize; CLASSES_MAX],
    /// Messages by class, of all that is in line and flows.
    class_len: [u32; CLASSES_MAX],
    /// The timer that looks for what waited too long, if one is set.
    overdue_at: Option<Timestamp>,
    /// Since when it is full.
    full: Option<Full>,
    /// What comes before and behind line and flows, if some of it is on disk.
    pages: Option<Box<QueuePages>>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len + self.pages.as_ref().map_or(0, |pages| pages.len())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.pages.as_ref().map_or(0, |pages| pages.bytes())
    }

    /// Whether a message of this size would be too much.
    pub(crate) fn is_full(&self, size: usize, bounds: Bounds) -> bool {
        self.len() >= bounds.messages_max.min(ITEMS_MAX) || self.bytes() + size > bounds.bytes_max
    }

    /// Takes a message in; whatever has to go for it, possibly itself, is handed to `lose`.
    pub(crate) fn offer(
        &mut self,
        queued: Queued,
        priority: &Priority,
        bounds: Bounds,
        paging: Paging,
        mut lose: impl FnMut(Item, Gone),
    ) {
        let class = queued.message.class();
        let on_full = priority.on_full(class);
        let size = queued.message.size();
        if size > bounds.bytes_max {
            return lose(Item::Message(queued), Gone::Newest);
        }
        let lose_of_class = |victim| lose(Item::Message(victim), Gone::ClassBytes);
        if !self.make_room_to_replace(&queued, on_full, bounds, lose_of_class) {
            return lose(Item::Message(queued), Gone::ClassBytes);
        }
        let queued = match self.replace(queued, on_full) {
            Ok(before) => {
                lose(Item::Message(before), Gone::Conflated);
                // It may be larger than the one before.
                let mut look = None;
                while self.bytes() > bounds.bytes_max
                    && let Some(victim) =
                        if bounds.is_spool { self.evict_lowest(priority, &mut look) } else { self.evict_oldest() }
                {
                    lose(victim, Gone::Oldest);
                }
                return;
            }
            Err(queued) => queued,
        };
        let lose_of_class = |victim| lose(Item::Message(victim), Gone::ClassBytes);
        if !self.make_room_in_class(&queued, on_full, bounds, lose_of_class) {
            return lose(Item::Message(queued), Gone::ClassBytes);
        }
        let mut look = None;
        while self.is_full(size, bounds) {
            let victim = match on_full {
                _ if bounds.is_spool && priority.mode != PriorityMode::Off => {
                    self.evict_from_spool(&queued, priority, &mut look)
                }
                OnFull::DropNewest | OnFull::Refuse => None,
                OnFull::DropOldest if self.is_worth_more(QueueFlow::of(&queued), &queued) => None,
                OnFull::DropOldest => self.evict_from(QueueFlow::of(&queued)).or_else(|| self.evict_for(&queued)),
                OnFull::DropLongest | OnFull::Latest => self.evict_for(&queued),
            };
            match victim {
                Some(victim) => lose(victim, Gone::Oldest),
                None => return lose(Item::Message(queued), Gone::Newest),
            }
        }
        let keeps_order = queued.place != 0 && !is_latest(&queued, on_full);
        let held = if keeps_order { self.hold_back(queued, priority, paging) } else { Some(queued) };
        if let Some(queued) = held {
            self.push(queued, priority, on_full);
        }
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> NextMessage {
        if let Some(next) = self.pages.as_ref().and_then(|pages| pages.first()) {
            return next;
        }
        let next = match self.line.front() {
            Some(next) => Some(next),
            None => self.flows.as_mut().and_then(|flows| flows.scheduler.peek()),
        };
        match next {
            Some(WaitingCopy::Message(queued)) => NextMessage::Message(queued.qos),
            Some(WaitingCopy::Latest(topic, is_passing)) => self
                .latest
                .get(topic, *is_passing)
                .map_or(NextMessage::Nothing, |queued| NextMessage::Message(queued.qos)),
            Some(WaitingCopy::Paged(_)) => NextMessage::OnDisk,
            None => self.pages.as_ref().and_then(|pages| pages.last()).unwrap_or(NextMessage::Nothing),
        }
    }

    /// Whether all that waits is more than publishers' claims, as far as the order knows of them.
    pub(crate) fn is_all_in_excess(&mut self) -> bool {
        if self.pages.as_ref().is_some_and(|pages| pages.first().is_some()) {
            return false;
        }
        let flows = self.flows.as_mut().filter(|_| self.line.is_empty());
        if let Some(is_any) = flows.as_ref().and_then(|flows| flows.scheduler.has_entitled()) {
            return !is_any;
        }
        let next = flows.map_or_else(|| self.line.front(), |flows| flows.scheduler.peek());
        let is_excess = |queued: &Queued| queued.colour == Colour::Excess;
        matches!(next, Some(WaitingCopy::Message(queued)) if is_excess(queued))
    }

    /// Whether everything that waits is in memory, so that [`Queue::pop`] takes a message for sure.
    pub(crate) fn is_all_here(&self) -> bool {
        self.paged == 0 && self.pages.is_none()
    }

    /// Takes the next message, unless it has to be read first.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        if !self.is_all_here() && self.next() == NextMessage::OnDisk {
            return None;
        }
        match self.take()? {
            Item::Message(queued) => Some(queued),
            Item::Paged(_) => None,
        }
    }

    /// Takes what comes next, wherever it is.
    pub(crate) fn take(&mut self) -> Option<Item> {
        let first = self.pages.as_mut().and_then(|pages| pages.take_first());
        first.or_else(|| self.take_inner()).or_else(|| self.pages.as_mut()?.take_last())
    }

    fn take_inner(&mut self) -> Option<Item> {
        let next = match self.line.pop_front() {
            Some(next) => next,
            None => self.flows.as_mut()?.take()?,
        };
        self.leave(next)
    }

    fn push(&mut self, queued: Queued, priority: &Priority, on_full: OnFull) {
        let place = QueuePlace::of(&queued, priority);
        self.count_in(&queued);
        let waiting = self.wait(queued, on_full);
        self.put(place, waiting, priority);
    }

    fn put(&mut self, place: QueuePlace, waiting: WaitingCopy, priority: &Priority) {
        let flow = if priority.mode == PriorityMode::Off { QueueFlow::All } else { place.flow };
        if self.flows.is_none() && (self.line.is_empty() || self.line_flow == Some(flow)) {
            (self.line_flow, self.line_parent) = (Some(flow), place.parent);
            self.line.push_back(waiting);
            return;
        }
        if self.line_flow.is_some() {
            self.spread(priority);
        }
        self.schedule(place, waiting, priority.mode);
    }

    /// A second flow has come: from now on the scheduler decides.
    fn spread(&mut self, priority: &Priority) {
        let flow = self.line_flow.take().unwrap_or(QueueFlow::All);
        // Whose a message on disk is, the line knows or nobody. If nobody does, all of them share one place, and those
        // that come after them, too: nobody overtakes itself.
        let is_unknown =
            flow == QueueFlow::All && self.line.iter().any(|waiting| matches!(waiting, WaitingCopy::Paged(_)));
        for waiting in core::mem::take(&mut self.line) {
            let place = match &waiting {
                WaitingCopy::Message(queued) => Some(QueuePlace::of(queued, priority)),
                WaitingCopy::Latest(topic, is_passing) => {
                    self.latest.get(topic, *is_passing).map(|queued| QueuePlace::of(queued, priority))
                }
                WaitingCopy::Paged(paged) => Some(paged.belongs(flow, self.line_parent, priority)),
            };
            if let Some(mut place) = place {
                place.flow = if is_unknown { QueueFlow::All } else { place.flow };
                self.schedule(place, waiting, priority.mode);
            }
        }
    }

    fn schedule(&mut self, place: QueuePlace, waiting: WaitingCopy, mode: PriorityMode) {
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

    fn wait(&mut self, queued: Queued, on_full: OnFull) -> WaitingCopy {
        if !is_latest(&queued, on_full) {
            return WaitingCopy::Message(queued);
        }
        let (topic, is_passing): (Box<str>, _) = (queued.message.view().topic.into(), is_passing(&queued));
        self.latest.of_mut(is_passing).insert(topic.clone(), queued);
        WaitingCopy::Latest(topic, is_passing)
    }

    /// Puts a message of which only the newest waits into the place of an older one of its topic, which is the answer; else
    /// gives it back.
    fn replace(&mut self, queued: Queued, on_full: OnFull) -> Result<Queued, Queued> {
        if !is_latest(&queued, on_full) {
            return Err(queued);
        }
        let newest = self.latest.of_mut(is_passing(&queued));
        let Some(place) = newest.get_mut(queued.message.view().topic) else { return Err(queued) };
        let new = Weighed::of(&queued);
        let before = core::mem::replace(place, queued);
        self.weigh_in(new);
        self.weigh_out(Weighed::of(&before));
        Ok(before)
    }

    /// Shows everything that is in memory, flow by flow.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&Queued)) {
        let flows = self.flows.iter().flat_map(|flows| flows.scheduler.items());
        self.line.iter().chain(flows).filter_map(|waiting| self.seen(waiting)).for_each(&mut show);
        if let Some(pages) = &self.pages {
            pages.for_each(show);
        }
    }

    /// Everything of QoS 0, handed to `lose`: nobody is there to take it any more.
    pub(crate) fn drop_passing(&mut self, mut lose: impl FnMut(Queued)) {
        let mut gone = Vec::new();
        if self.passing > 0 {
            let Self { line, flows, .. } = self;
            let goes = |waiting: &WaitingCopy| match waiting {
                WaitingCopy::Message(queued) => is_passing(queued),
                WaitingCopy::Latest(_, is_passing) => *is_passing,
                WaitingCopy::Paged(_) => false,
            };
            let (passing, kept) = core::mem::take(line).into_iter().partition::<VecDeque<_>, _>(goes);
            *line = kept;
            gone.extend(passing);
            if let Some(flows) = flows {
                let claim = |waiting: &WaitingCopy| match waiting {
                    WaitingCopy::Message(queued) => claim_of(queued.colour),
                    WaitingCopy::Paged(paged) => paged.claim(),
                    WaitingCopy::Latest(..) => Entitlement::Entitled,
                };
                gone.extend(flows.drain(goes, claim));
            }
        }
        for waiting in gone {
            if let Some(Item::Message(queued)) = self.leave(waiting) {
                lose(queued);
            }
        }
        if let Some(pages) = &mut self.pages {
            pages.drop_passing(lose);
        }
    }

    fn count_in(&mut self, queued: &Queued) {
        self.len += 1;
        self.weigh_in(Weighed::of(queued));
    }

    fn leave(&mut self, waiting: WaitingCopy) -> Option<Item> {
        if self.flows.as_ref().is_some_and(|flows| flows.scheduler.is_empty()) {
            self.flows = None;
        }
        let queued = match waiting {
            WaitingCopy::Message(queued) => queued,
            WaitingCopy::Latest(topic, is_passing) => self.latest.of_mut(is_passing).remove(&topic)?,
            WaitingCopy::Paged(paged) => {
                self.len -= 1;
                self.bytes -= paged.size as usize;
                self.paged -= 1;
                self.class_len[paged.class.index()] -= 1;
                return Some(Item::Paged(paged));
            }
        };
        self.len -= 1;
        self.weigh_out(Weighed::of(&queued));
        Some(Item::Message(queued))
    }

    fn weigh_in(&mut self, Weighed { size, class, passing }: Weighed) {
        self.bytes += size;
        self.here += size;
        self.class_bytes[class] += size;
        self.class_len[class] += 1;
        self.passing += passing;
    }

    fn weigh_out(&mut self, Weighed { size, class, passing }: Weighed) {
        self.bytes -= size;
        self.here -= size;
        self.class_bytes[class] -= size;
        self.class_len[class] -= 1;
        self.passing -= passing;
    }
}
