//! One socket and what lies between it and MQTT: nothing, TLS, WebSocket, or both.
//!
//! The loop above sees two verbs: *receive* MQTT bytes into a buffer of its own, and *send* slices. Plain TCP is the
//! fast way: one system call each, and no copy. Knows neither packets nor clients, and never waits.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::{ConnectionCommon, ServerConnection};

use crate::limits::{DRAIN_READS_MAX, TLS_READS_MAX, UNSENT_MAX, UNSENT_MIN, UNSENT_OF_THE_SLOW};
use crate::permit::SocketPlaces;
use crate::tls;
use crate::websocket::WebSocket;
use crate::websocket::frame::CloseCode;
use crate::window::sock_diag::{self, Question};

/// A socket with its layers.
#[derive(Debug)]
pub(crate) struct SocketLink {
    stream: TcpStream,
    transport: Transport,
    /// Bytes that the kernel takes beyond what it could send at once.
    unsent_max: usize,
    /// A poll knows it.
    is_registered: bool,
    /// Something was computed for the TLS handshake, and not charged yet.
    has_shaken: bool,
    /// Where it is counted as a connection.
    _places: SocketPlaces,
}

#[derive(Debug)]
enum Transport {
    Plain,
    Tls(Box<ServerConnection>),
    Ws(Box<WebSocket>),
    Wss(Box<(ServerConnection, WebSocket)>),
}

/// What a receive came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// MQTT bytes at the start of the buffer.
    pub(crate) bytes: usize,
    /// What is to be expected of the source.
    pub(crate) source: SourceState,
}

/// What is to be expected of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceState {
    /// Nothing until the socket is readable again.
    Drained,
    /// A short read: as good as drained, unless the socket's end was there already, which is no new edge.
    Short,
    /// There may be more now.
    More,
    /// Nothing any more.
    Ended,
}

/// What a send came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentBytes {
    /// MQTT bytes that were taken.
    pub(crate) taken: usize,
    /// Something waits for the socket to be writable.
    pub(crate) blocked: bool,
}

impl SocketLink {
    pub(crate) fn new(stream: TcpStream, tls: Option<ServerConnection>, places: SocketPlaces) -> Self {
        let transport = tls.map_or(Transport::Plain, |session| Transport::Tls(Box::new(session)));
        Self { stream, transport, unsent_max: UNSENT_MAX, is_registered: false, has_shaken: false, _places: places }
    }

    /// From here on it is a WebSocket. Bytes that came after the request are its first: they are replaced by payload.
    pub(crate) fn become_websocket(&mut self, first: &mut Vec<u8>) -> Result<(), CloseCode> {
        let mut web_socket = WebSocket::default();
        let result = web_socket.receive(first);
        first.truncate(result.unwrap_or(0));
        self.transport = match core::mem::replace(&mut self.transport, Transport::Plain) {
            Transport::Plain | Transport::Ws(_) => Transport::Ws(Box::new(web_socket)),
            Transport::Tls(session) => Transport::Wss(Box::new((*session, web_socket))),
            Transport::Wss(both) => Transport::Wss(Box::new((both.0, web_socket))),
        };
        result.map(|_| ())
    }

    /// Be told of both directions, edge-triggered, under this token. What is ready already is told, too, so nothing is
    /// lost on the way from one token or thread to another.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        if self.is_registered {
            return registry.reregister(&mut self.stream, token, interests);
        }
        registry.register(&mut self.stream, token, interests)?;
        self.is_registered = true;
        Ok(())
    }

    /// On the way to another thread.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.is_registered = false;
        registry.deregister(&mut self.stream)
    }

    /// TLS has not been agreed on yet: the next bytes may cost a signature.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(&self.transport, Transport::Tls(session) if session.is_handshaking())
    }

    /// Whether something was computed for the TLS handshake since the last call.
    pub(crate) fn take_shaken(&mut self) -> bool {
        core::mem::take(&mut self.has_shaken)
    }

    /// Bytes may be here that the socket does not tell of any more.
    pub(crate) fn may_hold_input(&self) -> bool {
        matches!(self.transport, Transport::Tls(_) | Transport::Wss(_))
    }

    /// What lies in the socket below all layers, which stays there. None: nothing yet. At the end there are no bytes.
    pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.peek(buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes so many bytes out of the socket, below all layers; they were seen there before.
    pub(crate) fn skip(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(buffer)
    }

    /// MQTT bytes into the start of `buffer`, which is not empty.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match &mut self.transport {
            Transport::Plain => receive_from(&mut self.stream, buffer),
            Transport::Tls(session) => receive_tls(&mut *session, &mut self.stream, buffer, &mut self.has_shaken),
            Transport::Ws(web_socket) => {
                let received = receive_from(&mut self.stream, buffer)?;
                unwrap_frames(web_socket, received, buffer)
            }
            Transport::Wss(both) => {
                let (session, web_socket) = &mut **both;
                let received = receive_tls(&mut *session, &mut self.stream, buffer, &mut self.has_shaken)?;
                unwrap_frames(web_socket, received, buffer)
            }
        }
    }

    /// Sends as much as the socket takes, and whatever the layers have to say besides.
    #[inline]
    pub(crate) fn send(&mut self, slices: [&[u8]; 2]) -> io::Result<SentBytes> {
        match &mut self.transport {
            Transport::Plain => send_to(&mut self.stream, slices),
            Transport::Tls(session) => {
                let sent = send_to(&mut Encrypted { session, stream: &mut self.stream }, slices)?;
                let blocked = flush(session, &mut self.stream)?;
                Ok(SentBytes { blocked: sent.blocked || blocked, ..sent })
            }
            Transport::Ws(web_socket) => web_socket.send(&mut self.stream, slices),
            Transport::Wss(both) => {
                let (session, web_socket) = &mut **both;
                let sent = web_socket.send(&mut Encrypted { session, stream: &mut self.stream }, slices)?;
                let blocked = flush(session, &mut self.stream)?;
                Ok(SentBytes { blocked: sent.blocked || blocked, ..sent })
            }
        }
    }

    /// What the kernel takes cannot be overtaken any more: of a receiver that has refused something, about so many bytes,
    /// which is what it takes in a moment.
    pub(crate) fn keep_unsent(&mut self, bytes: usize) {
        let bytes = if bytes >= UNSENT_OF_THE_SLOW { UNSENT_MAX } else { bytes.max(UNSENT_MIN) };
        // By halves and doubles, or every write would set it anew.
        if bytes * 2 <= self.unsent_max || bytes >= self.unsent_max * 2 {
            self.unsent_max = bytes;
            #[cfg(target_os = "linux")]
            let _ = socket2::SockRef::from(&self.stream).set_tcp_notsent_lowat(bytes as u32);
        }
    }

    /// What to ask the kernel about this connection.
    pub(crate) fn window_question(&self) -> Option<Question> {
        sock_diag::question(self.stream.local_addr().ok()?, self.stream.peer_addr().ok()?)
    }

    /// A layer has something to say of its own: a handshake message, a pong. Sent with the next `send`.
    #[inline]
    pub(crate) fn wants_write(&self) -> bool {
        match &self.transport {
            Transport::Plain => false,
            Transport::Tls(session) => session.wants_write(),
            Transport::Ws(web_socket) => web_socket.wants_write(),
            Transport::Wss(both) => both.0.wants_write() || both.1.wants_write(),
        }
    }

    /// After the last byte: goodbye in every layer's own words, and no more writing. Errors do not matter any more.
    pub(crate) fn finish(&mut self) {
        self.say_goodbye();
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// What the layers have to say at the end, as far as the socket takes it.
    pub(crate) fn say_goodbye(&mut self) {
        if let Transport::Ws(web_socket) = &mut self.transport {
            web_socket.close(CloseCode::Normal);
        } else if let Transport::Wss(both) = &mut self.transport {
            both.1.close(CloseCode::Normal);
        }
        let _ = self.send([&[], &[]]);
        if let Some(session) = self.tls() {
            session.send_close_notify();
        }
        let _ = self.flush_tls();
    }

    /// Throws away what comes, below all layers; bounded. True: the peer has closed, too.
    pub(crate) fn drain(&mut self, scratch: &mut [u8]) -> bool {
        for _ in 0..DRAIN_READS_MAX {
            match self.stream.read(scratch) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        // It sends faster than anybody who listens for a goodbye.
        true
    }

    /// The name in the client's certificate, if it showed one. `Err`: it did, and there is no name in it.
    pub(crate) fn certificate_name(&mut self) -> Result<Option<String>, ()> {
        let certificate = self.tls().and_then(|session| session.peer_certificates()?.first());
        certificate.map(|certificate| tls::certificate_name(certificate).ok_or(())).transpose()
    }

    fn tls(&mut self) -> Option<&mut ServerConnection> {
        match &mut self.transport {
            Transport::Plain | Transport::Ws(_) => None,
            Transport::Tls(session) => Some(session),
            Transport::Wss(both) => Some(&mut both.0),
        }
    }

    fn flush_tls(&mut self) -> io::Result<bool> {
        match &mut self.transport {
            Transport::Plain | Transport::Ws(_) => Ok(false),
            Transport::Tls(session) => flush(session, &mut self.stream),
            Transport::Wss(both) => flush(&mut both.0, &mut self.stream),
        }
    }
}

/// One read.
#[inline]
pub(crate) fn receive_from(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        return match source.read(buffer) {
            Ok(0) => Ok(Received { bytes: 0, source: SourceState::Ended }),
            Ok(bytes) if bytes < buffer.len() => Ok(Received { bytes, source: SourceState::Short }),
            Ok(bytes) => Ok(Received { bytes, source: SourceState::More }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(Received { bytes: 0, source: SourceState::Drained })
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

/// Fills the buffer as far as the socket allows, in a bounded number of steps.
pub(crate) fn receive_tls<Side>(
    session: &mut ConnectionCommon<Side>,
    stream: &mut TcpStream,
    buffer: &mut [u8],
    has_shaken: &mut bool,
) -> io::Result<Received> {
    let mut bytes = 0;
    for _ in 0..TLS_READS_MAX {
        match session.reader().read(&mut buffer[bytes..]) {
            Ok(0) => return Ok(Received { bytes, source: SourceState::Ended }),
            Ok(count) => bytes += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The peer is gone without close_notify: MQTT has its own end, so nothing is cut off unnoticed.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Received { bytes, source: SourceState::Ended });
            }
            Err(error) => return Err(error),
        }
        if bytes == buffer.len() {
            break;
        }
        match session.read_tls(stream) {
            // At the end the reader says, next time round, what kind of end it is.
            Ok(_) => *has_shaken |= session.is_handshaking(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Received { bytes, source: SourceState::Drained });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if let Err(error) = session.process_new_packets() {
            // Tell the peer by an alert, as far as that works.
            let _ = flush(session, stream);
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}")));
        }
    }
    Ok(Received { bytes, source: SourceState::More })
}

fn unwrap_frames(web_socket: &mut WebSocket, received: Received, buffer: &mut [u8]) -> io::Result<Received> {
    let bytes = web_socket
        .receive(&mut buffer[..received.bytes])
        .map_err(|code| io::Error::new(io::ErrorKind::InvalidData, format!("WebSocket: {code:?}")))?;
    let source = if web_socket.peer_closed() { SourceState::Ended } else { received.source };
    Ok(Received { bytes, source })
}

/// Writes until all is taken or the socket is full.
#[inline]
pub(crate) fn send_to(out: &mut impl Write, slices: [&[u8]; 2]) -> io::Result<SentBytes> {
    let total = slices[0].len() + slices[1].len();
    let mut taken = 0;
    while taken < total {
        let first = taken.min(slices[0].len());
        let rest = [&slices[0][first..], &slices[1][taken - first..]];
        // A single slice is the usual case, and the plain call is the cheaper one.
        let written = match rest {
            [only, []] | [[], only] => out.write(only),
            [first, second] => out.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => taken += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(SentBytes { taken, blocked: true }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(SentBytes { taken, blocked: false })
}

/// Writes what TLS has ready. True: the socket is full.
pub(crate) fn flush<Side>(session: &mut ConnectionCommon<Side>, stream: &mut TcpStream) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// A TLS session over its socket, as something to write to.
pub(crate) struct Encrypted<'a, Side> {
    pub(crate) session: &'a mut ConnectionCommon<Side>,
    pub(crate) stream: &'a mut TcpStream,
}

impl<Side> Write for Encrypted<'_, Side> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Takes plain text only when the cipher text from before is gone, so that little waits inside.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if flush(self.session, self.stream)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.session.writer().write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        flush(self.session, self.stream).map(|_| ())
    }
}
