//! Whom to tell what. What a subscriber has no room for waits in the graph, where changes merge; and so does what its client
//! is to fetch by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_graph::{CatchUp, ResultDelta, SubscriberEvent, SubscriberId};

use super::{DelegationCounts, Writer, WriterEvent};
use crate::change::WrittenChange;
use crate::machine::delegation::ClientDelegation;
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

    /// Where a subscriber is told; nowhere if nobody listens, or its client checks: then it waits in the graph.
    pub(crate) fn connection(&self, id: SubscriberId) -> Option<&C> {
        if self.delegator.is_silent(id.0) {
            return None;
        }
        self.registry.connection(id)
    }

    /// When [`Writer::look`] is to be called.
    pub(crate) fn poll_look(&self) -> Option<Timestamp> {
        self.delegator.poll_look()
    }

    /// It is looked whose changes are pushed, by how long everything has to wait.
    pub(crate) fn look(&mut self, now: Timestamp, wait: Duration) -> DelegationCounts {
        self.ready.extend(self.delegator.look(now, wait).into_iter().map(SubscriberId));
        self.delegator.counts()
    }

    /// The subscriptions that may be delegated, by client.
    pub(crate) fn delegations(&self) -> BTreeMap<u64, ClientDelegation> {
        self.delegator.by_client()
    }

    /// What a subscriber is told next. To be called only when there is room for it.
    pub(crate) fn poll_notification(&mut self, id: SubscriberId) -> Option<SpaceNotification> {
        let subscription = self.registry.get_mut(id)?;
        if self.delegator.poll_notice(id.0) {
            let every = self.delegator.tell_every(id.0);
            return Some(SpaceNotification::Delegated { sequence: subscription.told(), every });
        }
        if self.delegator.is_delegated(id.0) {
            return None;
        }
        let told = match self.space.poll(id) {
            Ok(None) => return None,
            Ok(Some(SubscriberEvent::Changed(next))) => {
                self.delegator.note(id.0, next.delta.len());
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

    /// What waits for a subscriber whose client fetches it, and the number that it has. None if that is not known as one
    /// piece, or the client has something else than what it was told last.
    pub(super) fn fetch(&mut self, now: Timestamp, id: SubscriberId, since: u64) -> Option<(u64, ResultDelta)> {
        let changes = self.space.changes_waiting(id)?;
        self.delegator.note_check(now, id.0, changes);
        let subscription = self.registry.get_mut(id).filter(|it| it.last() == since)?;
        match self.space.poll_all(id) {
            Ok(None) => Some((subscription.told(), ResultDelta::default())),
            Ok(Some(SubscriberEvent::Changed(next))) => {
                Some((subscription.number(next.sequence), Arc::unwrap_or_clone(next.delta)))
            }
            // The others are told by a check of the whole.
            Ok(Some(SubscriberEvent::Gap { .. } | SubscriberEvent::Ended(_))) | Err(_) => None,
        }
    }

    /// The time over which those who listen should come back when the space begins anew, so that this takes half of a
    /// processor; none if they are few, because everybody has jitter of its own.
    pub(crate) fn return_spread(&self) -> Option<Duration> {
        Some(self.registry.return_work() * 2).filter(|spread| *spread >= SPREAD_MIN)
    }

    /// These have room again.
    pub(crate) fn handle_room(&mut self, ids: Vec<SubscriberId>) {
        self.ready.extend(ids);
    }

    /// The connection of a subscriber is found to be gone; its client may come back.
    pub(crate) fn handle_gone(&mut self, now: Timestamp, id: SubscriberId) {
        self.delegator.release(now, id.0);
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
            self.delegator.release(now, id.0);
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
        self.delegator.end(id.0);
        if self.registry.remove(id) {
            self.events.push_back(WriterEvent::Left(id));
        }
        // It may have ended by itself.
        let _ = self.space.unsubscribe(id);
    }
}

/// What clients spread over anyway when they come back.
const SPREAD_MIN: Duration = Duration::from_millis(200);
