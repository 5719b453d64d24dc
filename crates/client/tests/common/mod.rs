//! A broker's space in this process, on a port of its own, which can be stopped and started again.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Node, Triple};
use tidegate_graph::SpaceLimits;
use tidegate_space::{Binds, Bound, Doors, Everybody, Service};

/// A guard only: whoever waits so long waits for nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Broker {
    binds: Binds,
    running: Option<(Doors, Service)>,
}

impl Broker {
    pub(crate) fn start() -> Self {
        let free = Some("127.0.0.1:0".parse().unwrap());
        let mut broker = Self { binds: Binds { http: free, ssap: free, ..Binds::default() }, running: None };
        broker.go_on();
        broker
    }

    /// Ends it; whatever was in it is gone.
    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    /// Starts it again, at the same place.
    pub(crate) fn go_on(&mut self) {
        let service = Service::start(SpaceLimits::default()).unwrap();
        let doors = Doors::start(Bound::open(self.binds).unwrap(), &service.handle(), Arc::new(Everybody)).unwrap();
        self.binds = doors.addresses();
        self.running = Some((doors, service));
    }

    pub(crate) fn urls(&self) -> [String; 2] {
        [format!("ssap://{}", self.binds.ssap.unwrap()), format!("http://{}", self.binds.http.unwrap())]
    }
}

pub(crate) fn triple(subject: &str, object: &str) -> Triple<'static> {
    Triple {
        subject: Node::Uri(subject.to_owned().into()),
        predicate: Node::Uri("urn:state".into()),
        object: Node::Literal(object.to_owned().into()),
    }
}

pub(crate) fn pattern(subject: &str) -> Triple<'static> {
    Triple { object: Node::Any, ..triple(subject, "") }
}

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("nothing came")
}
