//! Whom to tell what. What a subscriber has no room for waits in the graph, where changes merge.

use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_graph::{CatchUp, SubscriberEvent, SubscriberId};

use super::{Writer, WriterEvent};
use crate::change::WrittenChange;
use crate::machine::notification::SpaceNotification;
use crate::machine::task::Requester;

impl<R: Requester, C: Clone + Eq> Writer<R, C> {
    /// The next subscriber that may be told something. Nobody is while a group waits for the disk.
    pub(crate) fn poll_ready(&mut self) -> Option<SubscriberId> {
        let next = if self.group.is_none() { self.ready.pop_front() } else { None };
        if next.is_none() {
            self.told = None;
        }
        next
    }

    /// Where a subscriber is told; nowhere if nobody listens: then it waits in the graph.
    pub(crate) fn connection(&self, id: SubscriberId) -> Option<&C> {
        self.registry.connection(id)
    }

    /// What a subscriber is told next. To be called only when there is room for it.
    pub(crate) fn poll_notification(&mut self, id: SubscriberId) -> Option<SpaceNotification> {
        let subscription = self.registry.get_mut(id)?;
        let told = match self.space.poll(id) {
            Ok(None) => return None,
            Ok(Some(SubscriberEvent::Changed(next))) => {
                let delta = WrittenChange::shared(&mut self.told, next.delta);
                SpaceNotification::Changed {
                    sequence: subscription.number(next.sequence),
                    version: next.version,
                    delta,
                }
            }
            // It would see a number missing and ask; we know what it will ask.
            Ok(Some(SubscriberEvent::Gap { .. })) => match self.space.check(id, subscription.last()) {
                Ok(CatchUp::Missed { sequence, version, delta }) => {
                    let delta = Arc::new(WrittenChange::from(Arc::new(delta)));
                    SpaceNotification::Changed { sequence: subscription.number(sequence), version, delta }
                }
                Ok(CatchUp::Fresh(_)) => SpaceNotification::Ended(None),
                Err(error) => SpaceNotification::Ended(Some(error)),
            },
            Ok(Some(SubscriberEvent::Ended(error))) | Err(error) => SpaceNotification::Ended(Some(error)),
        };
        if let SpaceNotification::Ended(_) = told {
            self.leave(id);
        }
        Some(told)
    }

    /// These have room again.
    pub(crate) fn handle_room(&mut self, ids: Vec<SubscriberId>) {
        self.ready.extend(ids);
    }

    /// The connection of a subscriber is found to be gone; its client may come back.
    pub(crate) fn handle_gone(&mut self, now: Timestamp, id: SubscriberId) {
        self.registry.attach(now, id, None);
    }

    /// A client does not want it any more, unless another connection has it now.
    pub(crate) fn handle_unsubscribe(&mut self, id: SubscriberId, connection: &C) {
        if self.registry.is_of(id, connection) {
            self.leave(id);
        }
    }

    /// A connection is lost, unless another one has the subscription now. The client may come back.
    pub(crate) fn handle_departure(&mut self, now: Timestamp, id: SubscriberId, connection: &C) {
        if self.registry.is_of(id, connection) {
            self.registry.attach(now, id, None);
        }
    }

    /// Lets those go that did not come back.
    pub(crate) fn sweep(&mut self, now: Timestamp, is_gone: impl Fn(&C) -> bool) {
        self.registry.detach_gone(now, is_gone);
        while let Some(id) = self.registry.poll_over(now) {
            self.leave(id);
        }
        self.look_behind(now);
    }

    pub(super) fn leave(&mut self, id: SubscriberId) {
        if self.registry.remove(id) {
            self.events.push_back(WriterEvent::Left(id));
        }
        // It may have ended by itself.
        let _ = self.space.unsubscribe(id);
    }
}
