//! The connections that stay: the WebSockets and the connections over SSAP, by whose they are, so that an operator can end those
//! of a KP. What a KP asks for once is answered or refused by itself; a subscription would go on for ever.
//!
//! Bounded by the places of the doors: each connection has an entry while it is served.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::access_policy::KpIdentity;
use crate::handle::SpaceHandle;
use crate::shared_state::{Shared, lock};

/// What a client is told whose connection an operator has ended.
pub(crate) const SENT_AWAY: &str = "an operator has ended this connection";

/// Everybody who is there.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    here: Mutex<HashMap<u64, Arc<Attendee>>>,
    made: AtomicU64,
}

#[derive(Debug)]
struct Attendee {
    user: Option<Arc<str>>,
    address: IpAddr,
    /// Not known before its first message.
    name: Mutex<Option<Box<str>>>,
    /// Kept until it is heard, if it is said before anybody listens.
    sent_away: Notify,
}

/// A connection's entry, while it is there.
pub(crate) struct Seat {
    shared: Arc<Shared>,
    number: u64,
    attendee: Arc<Attendee>,
}

impl Seat {
    pub(crate) fn take(shared: &Arc<Shared>, user: Option<Arc<str>>, address: IpAddr, name: Option<&str>) -> Self {
        let name = Mutex::new(name.map(Box::from));
        let attendee = Arc::new(Attendee { user, address, name, sent_away: Notify::new() });
        let number = shared.attendance.made.fetch_add(1, Ordering::Relaxed);
        lock(&shared.attendance.here).insert(number, Arc::clone(&attendee));
        Self { shared: Arc::clone(shared), number, attendee }
    }

    /// It has said who it is.
    pub(crate) fn name(&self, name: &str) {
        *lock(&self.attendee.name) = Some(name.into());
    }

    /// Waits until it has to go.
    pub(crate) async fn is_sent_away(&self) {
        self.attendee.sent_away.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.shared.attendance.here).remove(&self.number);
    }
}

impl SpaceHandle {
    /// Ends the connections over WebSocket and SSAP, and with them the subscriptions, of those who are meant; how many.
    pub fn end_connections(&self, is_meant: impl Fn(&KpIdentity<'_>) -> bool) -> usize {
        let is_meant = |it: &Attendee| {
            let name = lock(&it.name);
            is_meant(&KpIdentity { user: it.user.as_deref(), address: it.address, name: name.as_deref() })
        };
        let mut here = lock(&self.shared.attendance.here);
        let before = here.len();
        // Who has to go is not there any more, though it takes a moment: nobody is counted twice.
        here.retain(|_, it| {
            let goes = is_meant(it);
            if goes {
                it.sent_away.notify_one();
            }
            !goes
        });
        before - here.len()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_graph::SpaceLimits;

    use super::*;
    use crate::Service;

    #[tokio::test]
    async fn those_who_are_meant_have_to_go_and_who_has_gone_is_not_counted() {
        let service = Service::start(SpaceLimits::default()).unwrap();
        let handle = service.handle();
        let seat = |name| Seat::take(&handle.shared, None, [127, 0, 0, 1].into(), name);
        let (kitchen, hall) = (seat(Some("kitchen")), seat(None));
        hall.name("hall");
        let end = |name| handle.end_connections(|kp| kp.name == Some(name));
        assert_eq!((end("kitchen"), end("nobody")), (1, 0));
        kitchen.is_sent_away().await;
        drop(kitchen);
        assert_eq!((end("kitchen"), end("hall")), (0, 1));
        drop(hall);
        assert_eq!(handle.end_connections(|_| true), 0);
    }
}
