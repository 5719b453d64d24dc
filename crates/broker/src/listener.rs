//! Listeners: bound once, before any thread starts, so that an error can be told to whoever asked. What is asked of whoever
//! comes in there can change with a reload; where it is and what is spoken there cannot.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use mio::net::TcpListener;
use rustls::{ServerConfig, ServerConnection};
use socket2::{Domain, Socket, TcpKeepalive, Type};
use tidegate_core::classes::AddressRange;
use tidegate_dtls::DtlsPlan;

use crate::config::{Listener, ListenerKind};
use crate::inbox::lock;
#[cfg(target_os = "linux")]
use crate::limits::UNSENT_MAX;
use crate::limits::{BACKLOG, DATAGRAM_BUFFER_BYTES, TCP_KEEPALIVE_IDLE, TLS_BUFFER_BYTES};
use crate::listener_counts::{ListenerCounts, ListenerRefusal};
use crate::permit::{Permit, Permits};
use crate::{dtls, tls};

/// What every thread knows of a listener.
#[derive(Debug)]
pub(crate) struct OpenListener {
    pub(crate) kind: ListenerKind,
    pub(crate) address: SocketAddr,
    name: &'static str,
    /// The TLS configuration of new connections, for the kinds that have one; replaced by a reload.
    tls: Option<Mutex<Arc<ServerConfig>>>,
    /// The same of DTLS.
    dtls: Option<Mutex<Arc<DtlsPlan>>>,
    /// Replaced by a reload.
    terms: Mutex<ListenerTerms>,
    /// Sockets that came in here, whatever they are doing.
    connections: Permits,
    pub(crate) counts: ListenerCounts,
    /// Nobody comes in here but what runs in this process.
    pub(crate) is_inside: bool,
}

/// What is asked of whoever comes in at one listener.
#[derive(Clone, Debug)]
struct ListenerTerms {
    connections_max: Option<usize>,
    proxies: Arc<[AddressRange]>,
}

impl ListenerTerms {
    fn of(listener: &Listener) -> Mutex<Self> {
        Mutex::new(Self { connections_max: listener.connections_max, proxies: Arc::clone(&listener.proxies) })
    }
}

/// Who somebody is to a listener, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerStanding {
    /// A client.
    Client,
    /// A proxy, which says first whom it speaks for.
    Proxy,
    /// Nobody who may connect here: only proxies may.
    Stranger,
}

/// A listener that nobody asked for, and that could not be opened.
#[derive(Debug)]
pub struct LeftOut {
    pub name: &'static str,
    pub kind: ListenerKind,
    pub address: SocketAddr,
    pub error: io::Error,
}

/// A listener as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerReport {
    pub name: &'static str,
    pub kind: ListenerKind,
    /// With the real port.
    pub address: SocketAddr,
    /// Sockets that are open, in whatever state.
    pub connections: usize,
    /// Sockets that were accepted.
    pub accepted: u64,
    /// How many were turned away, for each reason that there is.
    pub refused: Vec<(&'static str, u64)>,
}

/// A listener, and what it is bound to.
type OpenAndBound = (Arc<OpenListener>, BoundListener);

impl OpenListener {
    /// All of them, but those that cannot be opened and that nobody asked for.
    pub(crate) fn open_all(listeners: &[Listener]) -> io::Result<(Vec<OpenAndBound>, Vec<LeftOut>)> {
        let (mut open, mut left_out) = (Vec::new(), Vec::new());
        for listener in listeners {
            match Self::open(listener) {
                Err(error) if listener.is_optional => {
                    let Listener { name, kind, bind: address, .. } = *listener;
                    left_out.push(LeftOut { name, kind, address, error });
                }
                opened => open.push(opened?),
            }
        }
        Ok((open, left_out))
    }

    /// Binds the listener that is configured.
    pub(crate) fn open(listener: &Listener) -> io::Result<(Arc<Self>, BoundListener)> {
        let secrets = Secrets::load(listener)?;
        let (socket, address) = if listener.kind.is_datagrams() {
            let socket = bind_datagrams(listener.bind).map_err(|error| name_it(listener, &error))?;
            let address = socket.local_addr()?;
            (BoundListener::Datagrams(socket), address)
        } else {
            let socket = bind(listener.bind).map_err(|error| name_it(listener, &error))?;
            let address = socket.local_addr()?;
            (BoundListener::Streams(socket), address)
        };
        let open = Self {
            kind: listener.kind,
            address,
            name: listener.name,
            tls: secrets.tls.map(Mutex::new),
            dtls: secrets.dtls.map(Mutex::new),
            terms: ListenerTerms::of(listener),
            connections: Permits::default(),
            counts: ListenerCounts::default(),
            is_inside: false,
        };
        Ok((Arc::new(open), socket))
    }

    /// No listener at all: where the broker's own bridges come in.
    pub(crate) fn inside(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            kind: ListenerKind::Mqtt,
            address,
            name: "bridge",
            tls: None,
            dtls: None,
            terms: Mutex::new(ListenerTerms { connections_max: None, proxies: Arc::new([]) }),
            connections: Permits::default(),
            counts: ListenerCounts::default(),
            is_inside: true,
        })
    }

    /// A TLS session for a new connection; `None` at a plain listener.
    pub(crate) fn tls_session(&self) -> Result<Option<ServerConnection>, rustls::Error> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let mut session = ServerConnection::new(Arc::clone(&lock(tls)))?;
        session.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        Ok(Some(session))
    }

    /// What DTLS shows and asks now; `None` where it is not spoken.
    pub(crate) fn dtls_plan(&self) -> Option<Arc<DtlsPlan>> {
        self.dtls.as_ref().map(|plan| Arc::clone(&lock(plan)))
    }

    /// New connections get these terms from now on, and this certificate if there is one.
    pub(crate) fn replace(&self, listener: &Listener, secrets: Secrets) {
        let fresh = ListenerTerms::of(listener);
        *lock(&self.terms) = lock(&fresh).clone();
        if let Some((tls, config)) = self.tls.as_ref().zip(secrets.tls) {
            *lock(tls) = config;
        }
        if let Some((dtls, plan)) = self.dtls.as_ref().zip(secrets.dtls) {
            *lock(dtls) = plan;
        }
    }

    /// The name in logs and rules of access.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// A place for one more connection here; none if all are taken.
    pub(crate) fn take_place(&self) -> Option<Permit> {
        let max = lock(&self.terms).connections_max.unwrap_or(usize::MAX);
        self.connections.take(max)
    }

    /// Who this is here.
    pub(crate) fn standing(&self, peer: IpAddr) -> PeerStanding {
        let terms = lock(&self.terms);
        match terms.proxies.iter().any(|range| range.contains(peer)) {
            true => PeerStanding::Proxy,
            false if terms.proxies.is_empty() => PeerStanding::Client,
            false => PeerStanding::Stranger,
        }
    }

    /// Handshakes here cost enough CPU to spread them over the threads.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.kind.is_encrypted()
    }

    /// An HTTP request comes before the first packet.
    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self.kind, ListenerKind::Ws | ListenerKind::Wss)
    }

    /// HTTP is all that is spoken.
    pub(crate) fn is_http(&self) -> bool {
        matches!(self.kind, ListenerKind::HttpTopics | ListenerKind::HttpsTopics)
    }

    /// AMQP is all that is spoken.
    pub(crate) fn is_amqp(&self) -> bool {
        matches!(self.kind, ListenerKind::Amqp | ListenerKind::Amqps)
    }

    /// How it is.
    pub(crate) fn report(&self) -> ListenerReport {
        ListenerReport {
            name: self.name,
            kind: self.kind,
            address: self.address,
            connections: self.connections.taken(),
            accepted: self.counts.accepted(),
            refused: ListenerRefusal::ALL.iter().map(|why| (why.name(), self.counts.refused(*why))).collect(),
        }
    }
}

/// What a listener needs of its files.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    tls: Option<Arc<ServerConfig>>,
    dtls: Option<Arc<DtlsPlan>>,
}

impl Secrets {
    pub(crate) fn load(listener: &Listener) -> io::Result<Self> {
        let name_it = |error: io::Error| name_it(listener, &error);
        if listener.kind == ListenerKind::Coaps {
            let plan = dtls::load(listener.tls.as_ref(), &listener.dtls).map_err(name_it)?;
            return Ok(Self { dtls: Some(plan), tls: None });
        }
        match &listener.tls {
            _ if !listener.kind.is_encrypted() => Ok(Self::default()),
            Some(files) => Ok(Self { tls: Some(tls::load(files).map_err(name_it)?), dtls: None }),
            None => Err(name_it(io::Error::new(io::ErrorKind::InvalidInput, "no certificate and key are given"))),
        }
    }
}

fn name_it(listener: &Listener, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("listener {} at {}: {error}", listener.name, listener.bind))
}

/// What a listener listens with.
#[derive(Debug)]
pub(crate) enum BoundListener {
    Streams(TcpListener),
    Datagrams(UdpSocket),
}

/// A socket for datagrams, which never waits.
fn bind_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    // Without it a burst is lost sooner, which datagrams may be.
    let _ = socket.set_recv_buffer_size(DATAGRAM_BUFFER_BYTES);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A listening socket. On Linux accepted sockets inherit its options, which saves two system calls each.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if cfg!(unix) {
        // Elsewhere this would let others take the port.
        socket.set_reuse_address(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    // Without it a connection works as well, and only what is urgent comes later.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(UNSENT_MAX as u32);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE_IDLE))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(kind: ListenerKind, bind: &str) -> Listener {
        Listener::new(kind, bind.parse().unwrap())
    }

    #[test]
    fn errors_name_listener_and_address() {
        let (open, _socket) = OpenListener::open(&listener(ListenerKind::Mqtt, "127.0.0.1:0")).unwrap();
        let taken = open.address.to_string();
        let error = OpenListener::open(&listener(ListenerKind::Ws, &taken)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("listener ws at {taken}: ")), "{error}");
        let error = OpenListener::open(&listener(ListenerKind::Mqtts, "127.0.0.1:0")).unwrap_err().to_string();
        assert!(error.contains("mqtts") && error.contains("certificate"), "{error}");
    }

    #[test]
    fn places_and_proxies_are_those_of_the_last_reload() {
        let before = listener(ListenerKind::Mqtt, "127.0.0.1:0");
        let (open, _socket) = OpenListener::open(&before).unwrap();
        let near: IpAddr = "10.0.0.7".parse().unwrap();
        assert_eq!(open.standing(near), PeerStanding::Client);
        let first = open.take_place().unwrap();
        let proxies = ["10.0.0.0/8".parse().unwrap()].into();
        open.replace(&Listener { connections_max: Some(1), proxies, ..before.clone() }, Secrets::default());
        assert!(open.take_place().is_none(), "the one that is there counts");
        assert_eq!(open.standing(near), PeerStanding::Proxy);
        assert_eq!(open.standing("192.0.2.1".parse().unwrap()), PeerStanding::Stranger);
        drop(first);
        assert!(open.take_place().is_some());
    }
}
