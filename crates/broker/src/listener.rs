//! Listeners: bound once, before any thread starts, so that an error can be told to whoever asked.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mio::net::TcpListener;
use rustls::{ServerConfig, ServerConnection};
use socket2::{Domain, Socket, TcpKeepalive, Type};

use crate::config::{Listener, ListenerKind};
use crate::inbox::lock;
#[cfg(target_os = "linux")]
use crate::limits::UNSENT_MAX;
use crate::limits::{BACKLOG, TCP_KEEPALIVE_IDLE, TLS_BUFFER_BYTES};
use crate::tls;

/// What every thread knows of a listener.
#[derive(Debug)]
pub(crate) struct OpenListener {
    pub(crate) kind: ListenerKind,
    pub(crate) address: SocketAddr,
    /// The TLS configuration of new connections, for the kinds that have one; replaced by a reload.
    tls: Option<Mutex<Arc<ServerConfig>>>,
}

impl OpenListener {
    /// Binds the listener that is configured.
    pub(crate) fn open(listener: &Listener) -> io::Result<(Arc<Self>, TcpListener)> {
        let tls = load_tls(listener)?;
        let socket = bind(listener.bind).map_err(|error| name_it(listener, &error))?;
        let address = socket.local_addr()?;
        let open = Self { kind: listener.kind, address, tls: tls.map(Mutex::new) };
        Ok((Arc::new(open), socket))
    }

    /// A TLS session for a new connection; `None` at a plain listener.
    pub(crate) fn tls_session(&self) -> Result<Option<ServerConnection>, rustls::Error> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let mut session = ServerConnection::new(Arc::clone(&lock(tls)))?;
        session.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        Ok(Some(session))
    }

    /// New connections get this from now on.
    pub(crate) fn replace_tls(&self, config: Arc<ServerConfig>) {
        if let Some(tls) = &self.tls {
            *lock(tls) = config;
        }
    }

    /// The name in logs and rules of access.
    pub(crate) fn name(&self) -> &'static str {
        name(self.kind)
    }

    /// Handshakes here cost enough CPU to spread them over the threads.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.kind, ListenerKind::Mqtts | ListenerKind::Wss)
    }

    /// An HTTP request comes before the first packet.
    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self.kind, ListenerKind::Ws | ListenerKind::Wss)
    }
}

/// The TLS configuration that a listener needs, from its files.
pub(crate) fn load_tls(listener: &Listener) -> io::Result<Option<Arc<ServerConfig>>> {
    match (listener.kind, &listener.tls) {
        (ListenerKind::Mqtt | ListenerKind::Ws, _) => Ok(None),
        (ListenerKind::Mqtts | ListenerKind::Wss, Some(files)) => {
            Ok(Some(tls::load(files).map_err(|error| name_it(listener, &error))?))
        }
        (ListenerKind::Mqtts | ListenerKind::Wss, None) => {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "no certificate and key are given");
            Err(name_it(listener, &error))
        }
    }
}

fn name(kind: ListenerKind) -> &'static str {
    match kind {
        ListenerKind::Mqtt => "mqtt",
        ListenerKind::Mqtts => "mqtts",
        ListenerKind::Ws => "ws",
        ListenerKind::Wss => "wss",
    }
}

fn name_it(listener: &Listener, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("listener {} at {}: {error}", name(listener.kind), listener.bind))
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
        Listener { kind, bind: bind.parse().unwrap(), tls: None }
    }

    #[test]
    fn errors_name_listener_and_address() {
        let (_open, socket) = OpenListener::open(&listener(ListenerKind::Mqtt, "127.0.0.1:0")).unwrap();
        let taken = socket.local_addr().unwrap().to_string();
        let error = OpenListener::open(&listener(ListenerKind::Ws, &taken)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("listener ws at {taken}: ")), "{error}");
        let error = OpenListener::open(&listener(ListenerKind::Mqtts, "127.0.0.1:0")).unwrap_err().to_string();
        assert!(error.contains("mqtts") && error.contains("certificate"), "{error}");
    }
}
