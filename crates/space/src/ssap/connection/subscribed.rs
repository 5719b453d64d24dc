//! What a connection is told of its subscriptions, until they end.

use tidegate_graph::SubscriberId;
use tidegate_wire_ssap::Status;

use super::SsapConnection;
use crate::access_policy::RIGHTS_CHANGED;
use crate::limits::{BATCH_BYTES, OUTLET_EVENTS};
use crate::machine::notification::SpaceNotification;
use crate::notifications::{ENDED, NotificationInlet, RESTARTING};
use crate::ssap::SubscriptionEnd;

impl SsapConnection {
    /// What is there already goes in the same piece, as long as a slow reader can take that in time.
    pub(super) fn tell_more(&mut self, inlet: &mut NotificationInlet) {
        for _ in 1..OUTLET_EVENTS {
            if self.out.len() >= BATCH_BYTES {
                return;
            }
            let Some((id, told)) = inlet.try_next() else { return };
            self.tell(id, told);
        }
    }

    /// With other rights whatever stands is over: it was asked with those that are gone.
    pub(super) fn renew_rights(&mut self) {
        if !self.rights.renew() {
            return;
        }
        self.handle = self.door.handle.restricted(self.rights.rights.as_ref());
        for (id, subscription) in std::mem::take(&mut self.subscriptions) {
            subscription.ended(Status::Reset, RIGHTS_CHANGED, None, &mut self.out);
            self.door.forget(&subscription.name, &self.farewell);
            self.handle.unsubscribe(SubscriberId(id), &self.outlet);
        }
    }

    pub(super) fn tell(&mut self, id: SubscriberId, told: SpaceNotification) {
        self.renew_rights();
        let Some(subscription) = self.subscriptions.get_mut(&id.0) else { return };
        match told {
            SpaceNotification::Changed { sequence, delta, .. } => {
                subscription.indication(sequence, &delta, &mut self.out);
            }
            SpaceNotification::Delegated { sequence, every } => {
                subscription.delegated(sequence, every, &mut self.out);
            }
            SpaceNotification::Ended(_) | SpaceNotification::Restarting { .. } => {
                let (words, spread) = match told {
                    SpaceNotification::Ended(Some(error)) => (error.to_string(), None),
                    SpaceNotification::Restarting { spread } => (RESTARTING.to_owned(), spread),
                    _ => (ENDED.to_owned(), None),
                };
                subscription.ended(Status::Reset, &words, spread, &mut self.out);
                self.door.forget(&subscription.name, &self.farewell);
                self.subscriptions.remove(&id.0);
            }
        }
    }

    /// The confirmation goes to the connection of the subscription, and nothing about it follows.
    pub(super) fn leave(&mut self, SubscriptionEnd { name, request }: &SubscriptionEnd) {
        let Some(id) = self.subscriptions.iter().find(|(_, it)| it.name == *name).map(|(id, _)| *id) else { return };
        if let Some(subscription) = self.subscriptions.remove(&id) {
            subscription.left(request, &mut self.out);
        }
        self.door.forget(name, &self.farewell);
        self.door.handle.unsubscribe(SubscriberId(id), &self.outlet);
    }
}
