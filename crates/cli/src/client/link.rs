//! The bytes below the client: a TCP connection, bare or inside TLS. Blocking, with a timeout for reads.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};
use tidegate_program::tls_session;

use super::{BrokerAddress, ClientError};

/// How long one address may take to answer; the next one is tried then.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the broker.
pub(crate) enum BrokerLink {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl BrokerLink {
    /// Connects, trying every address of the host in turn (`localhost` may be ::1 and 127.0.0.1).
    pub(crate) fn open(target: &BrokerAddress) -> Result<Self, ClientError> {
        let tcp = connect_tcp(target)
            .map_err(|error| ClientError::Unreachable { address: format!("{}:{}", target.host, target.port), error })?;
        // Small packets that wait for nothing: the answer should not wait for a full segment.
        tcp.set_nodelay(true).map_err(ClientError::Lost)?;
        match &target.tls {
            None => Ok(Self::Plain(tcp)),
            Some(trust) => {
                let session = tls_session(&target.host, trust).map_err(ClientError::Tls)?;
                let mut stream = StreamOwned::new(session, tcp);
                tcp_timeout(&stream.sock, Some(CONNECT_TIMEOUT)).map_err(ClientError::Lost)?;
                // Finished here, so that a certificate that is not trusted is not mistaken for a lost connection.
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock).map_err(|error| handshake_failed(target, error))?;
                }
                Ok(Self::Secure(Box::new(stream)))
            }
        }
    }

    /// Reads give up after this time, with `WouldBlock` or `TimedOut`.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        // Zero would mean "for ever" to the system.
        tcp_timeout(self.tcp(), Some(timeout.max(Duration::from_millis(1))))
    }

    /// Says goodbye on the lower layers.
    pub(crate) fn close(&mut self) {
        if let Self::Secure(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = self.tcp().shutdown(std::net::Shutdown::Write);
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Secure(stream) => &stream.sock,
        }
    }
}

/// A broker without TLS takes our greeting for a broken packet: it answers with something else or closes at once.
fn handshake_failed(target: &BrokerAddress, error: io::Error) -> ClientError {
    let is_strange =
        error.get_ref().is_some_and(|inner| matches!(inner.downcast_ref(), Some(rustls::Error::InvalidMessage(_))));
    let is_closed = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
    if is_strange || is_closed {
        ClientError::NotTls { address: format!("{}:{}", target.host, target.port) }
    } else {
        ClientError::Tls(error.into())
    }
}

fn tcp_timeout(tcp: &TcpStream, timeout: Option<Duration>) -> io::Result<()> {
    tcp.set_read_timeout(timeout)
}

fn connect_tcp(target: &BrokerAddress) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
        match connect_to(address, target.from) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(from) = from else { return TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
    Ok(socket.into())
}

impl Read for BrokerLink {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Secure(stream) => stream.read(buffer),
        }
    }
}

impl Write for BrokerLink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Secure(stream) => stream.flush(),
        }
    }
}
