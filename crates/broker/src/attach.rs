//! The broker's own bridges and sinks come in here: one end of a pair of sockets is an accepted connection whose identity is known, the other
//! one is the bridge's. No port is open for it, and nobody else can come this way.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tidegate_core::access::{BRIDGE_IDS, SINK_IDS};

use crate::handle::Handle;
use crate::limits::BRIDGES_MAX;
use crate::link::SocketLink;
use crate::listener::OpenListener;
use crate::permit::SocketPlaces;
use crate::thread_message::{AcceptedSocket, ThreadMessage};

/// Whoever is inside has no address.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Handle {
    /// A connection to this broker, for a bridge or a sink of its own. The client identifier of its CONNECT is [`Handle::bridge_id`] or
    /// [`Handle::sink_id`]: its session lasts, its spool is what `Settings::spools` says, and no rule of access concerns it.
    pub fn attach_own(&self) -> io::Result<UnixStream> {
        let full = || io::Error::new(io::ErrorKind::WouldBlock, "the broker takes no more connections");
        let shared = self.shared();
        // A client that fills the broker must not keep its bridges out, and the other way round.
        let connection_permit = shared.bridges.take(BRIDGES_MAX).ok_or_else(full)?;
        let permit = shared.bridge_handshakes.take(BRIDGES_MAX).ok_or_else(full)?;
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        // A stream of bytes is one, whatever its family: what a link does with it, any socket can do.
        let stream = mio::net::TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(theirs)));
        let listener = OpenListener::inside(NOWHERE);
        let places = SocketPlaces::new(connection_permit, listener.take_place().ok_or_else(full)?);
        let arrival = AcceptedSocket { link: SocketLink::new(stream, None, places), peer: NOWHERE, listener, permit };
        let inbox = shared.inboxes.first().ok_or_else(full)?;
        inbox.send(ThreadMessage::Arrival(Box::new(arrival))).map_err(|_| full())?;
        Ok(ours)
    }

    /// The client identifier of the bridge of this name.
    pub fn bridge_id(name: &str) -> String {
        format!("{BRIDGE_IDS}{name}")
    }

    /// The client identifier of the sink of this name.
    pub fn sink_id(name: &str) -> String {
        format!("{SINK_IDS}{name}")
    }

    /// Publishes a value below `$SYS`, retained; false if there is no room for it now.
    pub fn say_system(&self, topic: String, value: String) -> bool {
        let news = ThreadMessage::System(Box::new((topic, value)));
        self.shared().inboxes.first().is_some_and(|inbox| inbox.send(news).is_ok())
    }
}
