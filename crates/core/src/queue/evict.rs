//! Who leaves a full queue. What waits, and in which order it goes out, is the queue's.

use tidegate_wire_mqtt::QoS;

use super::flows::QueueFlow;
use super::{Item, Queue, WaitingCopy, is_passing};
use crate::session::Queued;

impl Queue {
    /// Whoever has to go for a newcomer: the oldest of the longest flow, whatever its quality of service. Only within one
    /// flow, what was acknowledged to its publisher does not go for what was not.
    pub(super) fn evict_for(&mut self, newcomer: &Queued) -> Option<Item> {
        let own = QueueFlow::of(newcomer);
        let longest = match &self.flows {
            Some(flows) => flows.longest(),
            // Before the line comes what has been chosen to go out.
            None if self.line.is_empty() || self.pages.as_ref().is_some_and(|pages| pages.first().is_some()) => None,
            None => self.line_flow,
        };
        let is_own = longest.is_none_or(|longest| longest == own);
        if is_own && self.is_worth_more(own, newcomer) { None } else { self.evict_oldest() }
    }

    /// Whether the oldest of a flow was acknowledged, and a newcomer of the same flow was not. Whose a message is may not be
    /// known: on disk, or in a place that several flows share; in doubt for what was acknowledged.
    pub(super) fn is_worth_more(&self, flow: QueueFlow, newcomer: &Queued) -> bool {
        if !is_passing(newcomer) || QueueFlow::of(newcomer) != flow {
            return false;
        }
        let is_acknowledged = |first: &WaitingCopy| match first {
            WaitingCopy::Message(queued) => !is_passing(queued),
            WaitingCopy::Latest(_, is_passing) => !is_passing,
            WaitingCopy::Paged(_) => true,
        };
        // Of a single flow, what has been chosen to go out comes first.
        let chosen = self.pages.as_ref().filter(|_| self.flows.is_none()).and_then(|pages| pages.first_flow());
        match chosen {
            Some((chosen, qos)) => qos > QoS::AtMostOnce && chosen.is_none_or(|chosen| chosen == flow),
            None => self.first_in(flow).is_none_or(is_acknowledged) && self.passing < self.len(),
        }
    }

    /// The oldest of the longest flow; of a single flow that may be one that has been chosen to go out.
    pub(super) fn evict_oldest(&mut self) -> Option<Item> {
        if self.flows.is_none()
            && let Some(first) = self.pages.as_mut().and_then(|pages| pages.take_first())
        {
            return Some(first);
        }
        self.evict_longest().or_else(|| self.pages.as_mut()?.take_any())
    }

    /// Whoever has to go for want of memory.
    pub(crate) fn evict(&mut self) -> Option<Item> {
        self.evict_oldest().or_else(|| self.take())
    }

    /// The oldest message of the flow with the most bytes.
    pub(super) fn evict_longest(&mut self) -> Option<Item> {
        let victim = match &mut self.flows {
            Some(flows) => flows.scheduler.evict_longest()?.item,
            None if self.line_flow.is_some() => self.line.pop_front()?,
            None => return None,
        };
        self.leave(victim)
    }

    pub(super) fn evict_from(&mut self, flow: QueueFlow) -> Option<Item> {
        let victim = match &mut self.flows {
            Some(flows) => flows.evict(flow)?,
            None if self.line_flow == Some(flow) && !self.line.is_empty() => {
                // What has been chosen to go out may be another's; on disk nobody knows.
                if let Some(first) = self.pages.as_mut().and_then(|pages| pages.take_first_of(flow)) {
                    return Some(first);
                }
                self.line.pop_front()?
            }
            None => return None,
        };
        self.leave(victim)
    }
}
