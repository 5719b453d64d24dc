//! Links of receivers that go, and what was for them: it waits for the next link of a subscription that is kept, or is given up.

use core::num::NonZeroU32;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_wire_mqtt::{PacketId, QoS};

use crate::limits::HOMELESS_MAX;
use crate::link::AmqpLink;
use crate::outbound::{Fate, Parked};
use crate::read::Leaving;
use crate::session::{ParkedMessage, ReceiverLink};

/// What is for subscriptions of a lasting session that have no link now. None of it is in the way of anybody who has one.
#[derive(Debug, Default)]
pub(crate) struct Homeless {
    /// Messages that are in flight in the core, which has them when there is a link again; by subscription, the oldest first.
    numbers: BTreeMap<NonZeroU32, VecDeque<PacketId>>,
    /// How many these are.
    count: usize,
    /// Of QoS 0, which the core forgets: as many as there may wait for credit.
    pub(crate) passing: BTreeMap<NonZeroU32, VecDeque<ParkedMessage>>,
    pub(crate) parked: Parked,
    /// Messages that the core was asked for, and the subscriptions that they are for: others have them.
    pub(crate) returning: BTreeMap<PacketId, Vec<NonZeroU32>>,
}

impl AmqpLink {
    /// A receiver's link is gone. What was for it waits for the next of its subscription if that is kept without a link, and
    /// is given up otherwise.
    pub(crate) fn forget_receiver(&mut self, place: (u16, u32), link: &ReceiverLink, leaving: Leaving) {
        if let Some(links) = self.by_id.get_mut(&link.id) {
            links.retain(|other| *other != place);
            if links.is_empty() {
                self.by_id.remove(&link.id);
            }
        }
        let is_kept = self.is_lasting && leaving == Leaving::Detached && !self.by_id.contains_key(&link.id);
        let unsettled =
            self.sessions.get_mut(&place.0).map(|session| session.take_of_link(place.1)).unwrap_or_default();
        let mut numbers: Vec<PacketId> = unsettled.iter().filter_map(|(_, unsettled)| unsettled.number).collect();
        for parked in &link.queue {
            self.parked.remove(parked);
            match parked.number {
                None => self.counts.given_up += 1,
                // One that was begun is among those that are under way, unless nobody answers it.
                Some(number) if parked.sent == 0 || link.qos == QoS::AtMostOnce => numbers.push(number),
                Some(_) => {}
            }
        }
        for number in numbers {
            if is_kept {
                self.leave_homeless(link.id, number);
            } else {
                self.counts.given_up += 1;
                self.answered(number, Fate::GivenUp);
            }
        }
    }

    /// A message that waits in the core for a link of this subscription.
    pub(crate) fn leave_homeless(&mut self, id: NonZeroU32, number: PacketId) {
        self.homeless.numbers.entry(id).or_default().push_back(number);
        self.homeless.count += 1;
        if self.homeless.count <= HOMELESS_MAX {
            return;
        }
        let longest = self.homeless.numbers.values_mut().max_by_key(|numbers| numbers.len());
        if let Some(oldest) = longest.and_then(VecDeque::pop_front) {
            self.homeless.count -= 1;
            self.counts.given_up += 1;
            self.answered(oldest, Fate::GivenUp);
        }
    }

    /// The link of a subscription is there: what waited here for one goes there.
    pub(crate) fn take_home(&mut self, id: NonZeroU32) -> VecDeque<ParkedMessage> {
        let queue = self.homeless.passing.remove(&id).unwrap_or_default();
        for parked in &queue {
            self.homeless.parked.remove(parked);
            self.parked.add(parked);
        }
        queue
    }

    /// The same of what waits in the core, which is to be asked for these.
    pub(crate) fn call_home(&mut self, id: NonZeroU32) -> BTreeSet<PacketId> {
        let numbers = self.homeless.numbers.remove(&id).unwrap_or_default();
        self.homeless.count -= numbers.len();
        for number in &numbers {
            self.homeless.returning.entry(*number).or_default().push(id);
        }
        numbers.into_iter().collect()
    }
}
