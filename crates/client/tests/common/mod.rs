//! A broker's space in this process, on a port of its own, which can be stopped and started again.

#![allow(dead_code, reason = "each test file uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Triple, TripleNode};
use tidegate_graph::SpaceLimits;
use tidegate_space::{BoundSockets, Everybody, Service, SpaceAddresses, SpaceHandle, SpaceListeners};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A guard only: whoever waits so long waits for nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Broker {
    binds: SpaceAddresses,
    running: Option<(SpaceListeners, Service)>,
}

impl Broker {
    pub(crate) fn start() -> Self {
        let free = Some("127.0.0.1:0".parse().unwrap());
        let mut broker =
            Self { binds: SpaceAddresses { http: free, ssap: free, ..SpaceAddresses::default() }, running: None };
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
        let doors =
            SpaceListeners::start(BoundSockets::open(self.binds).unwrap(), &service.handle(), Arc::new(Everybody))
                .unwrap();
        self.binds = doors.addresses();
        self.running = Some((doors, service));
    }

    pub(crate) fn handle(&self) -> SpaceHandle {
        self.running.as_ref().unwrap().1.handle()
    }

    pub(crate) fn urls(&self) -> [String; 2] {
        [format!("ssap://{}", self.binds.ssap.unwrap()), format!("http://{}", self.binds.http.unwrap())]
    }
}

/// A line to a door, which can be cut: then what goes over it ends, and nobody gets through.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    pub(crate) is_open: watch::Sender<bool>,
}

impl Line {
    pub(crate) async fn to(door: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_open, state) = watch::channel(true);
        let door = door.to_owned();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut state, door) = (state.clone(), door.clone());
                tokio::spawn(async move {
                    if !*state.borrow() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(door).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.wait_for(|is_open| !is_open) => {}
                    }
                });
            }
        });
        Self { address, is_open }
    }
}

pub(crate) fn triple(subject: &str, object: &str) -> Triple<'static> {
    Triple {
        subject: TripleNode::Uri(subject.to_owned().into()),
        predicate: TripleNode::Uri("urn:state".into()),
        object: TripleNode::Literal(object.to_owned().into()),
    }
}

pub(crate) fn pattern(subject: &str) -> Triple<'static> {
    Triple { object: TripleNode::Any, ..triple(subject, "") }
}

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("nothing came")
}
