//! Where the changes of a connection's subscriptions go. Bounded: when it is full, the rest waits in the graph, where
//! changes merge, until the connection has taken something and says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_graph::SubscriberId;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::handle::SpaceHandle;
use crate::limits::OUTLET_EVENTS;
use crate::machine;
use crate::machine::notification::SpaceNotification;
use crate::shared_state::lock;

/// What a door asks of the service.
pub type SpaceRequest = machine::request::SpaceRequest<Arc<NotificationOutlet>>;

/// What a client is told when the space begins anew.
pub(crate) const RESTARTING: &str = "the space begins anew";

/// What a client is told when no error ended its subscription.
pub(crate) const ENDED: &str = "too much was missed, or another connection goes on with it";

/// The service's end.
#[derive(Debug)]
pub struct NotificationOutlet {
    sender: mpsc::Sender<(SubscriberId, SpaceNotification)>,
    /// Somebody waits for room.
    is_wanted: AtomicBool,
    waiting: Mutex<Vec<SubscriberId>>,
    /// Subscriptions that have ended while there was no room to say so.
    ended: Mutex<Vec<(SubscriberId, Option<Duration>)>>,
}

/// The connection's end.
#[derive(Debug)]
pub struct NotificationInlet {
    receiver: mpsc::Receiver<(SubscriberId, SpaceNotification)>,
    outlet: Arc<NotificationOutlet>,
    handle: SpaceHandle,
}

/// Both ends.
pub fn outlet(handle: &SpaceHandle) -> (Arc<NotificationOutlet>, NotificationInlet) {
    let (sender, receiver) = mpsc::channel(OUTLET_EVENTS);
    let outlet = Arc::new(NotificationOutlet {
        sender,
        is_wanted: AtomicBool::new(false),
        waiting: Mutex::default(),
        ended: Mutex::default(),
    });
    let inlet = NotificationInlet { receiver, outlet: Arc::clone(&outlet), handle: handle.clone() };
    (outlet, inlet)
}

/// A connection is equal to itself alone.
impl PartialEq for NotificationOutlet {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for NotificationOutlet {}

/// A place for one event.
pub(crate) enum OutletRoom<'a> {
    Here(mpsc::Permit<'a, (SubscriberId, SpaceNotification)>),
    /// The subscriber is called again when there is room.
    Later,
    Gone,
}

impl NotificationOutlet {
    /// The connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Another connection has this subscription now. One that is behind is not told: it has not even read what came
    /// before.
    pub(crate) fn displace(&self, id: SubscriberId) {
        let _ = self.sender.try_send((id, SpaceNotification::Ended(None)));
    }

    /// The space begins anew, and this subscription is over: said in any case, behind what is on its way.
    pub(crate) fn end(&self, id: SubscriberId, spread: Option<Duration>) {
        // Noted first: whoever empties the channel afterwards finds it.
        lock(&self.ended).push((id, spread));
        if self.sender.try_send((id, SpaceNotification::Restarting { spread })).is_ok() {
            lock(&self.ended).retain(|(other, _)| *other != id);
        }
    }

    pub(crate) fn room(&self, id: SubscriberId) -> OutletRoom<'_> {
        match self.sender.try_reserve() {
            Ok(permit) => return OutletRoom::Here(permit),
            Err(TrySendError::Closed(())) => return OutletRoom::Gone,
            Err(TrySendError::Full(())) => {}
        }
        lock(&self.waiting).push(id);
        self.is_wanted.store(true, Ordering::SeqCst);
        // The connection may have emptied it in between, and not have seen that somebody waits.
        match self.sender.try_reserve() {
            Ok(permit) => {
                lock(&self.waiting).retain(|other| *other != id);
                OutletRoom::Here(permit)
            }
            Err(TrySendError::Closed(())) => OutletRoom::Gone,
            Err(TrySendError::Full(())) => OutletRoom::Later,
        }
    }
}

impl NotificationInlet {
    /// The next event of any subscription of this connection.
    pub async fn next(&mut self) -> Option<(SubscriberId, SpaceNotification)> {
        if let Some(next) = self.try_next() {
            return Some(next);
        }
        let next = self.receiver.recv().await;
        self.say_room();
        next
    }

    /// One that is there already.
    pub fn try_next(&mut self) -> Option<(SubscriberId, SpaceNotification)> {
        let next = self.receiver.try_recv().ok();
        self.say_room();
        next.or_else(|| {
            let (id, spread) = lock(&self.outlet.ended).pop()?;
            Some((id, SpaceNotification::Restarting { spread }))
        })
    }

    fn say_room(&self) {
        if self.outlet.is_wanted.swap(false, Ordering::SeqCst) {
            self.handle.call(std::mem::take(&mut *lock(&self.outlet.waiting)));
        }
    }
}
