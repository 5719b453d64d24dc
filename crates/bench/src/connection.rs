//! A nonblocking socket with what waits to be written and what was read of an unfinished packet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectState {
    /// TCP is not there yet.
    Opening,
    /// CONNECT was sent.
    Greeting,
    /// SUBSCRIBE was sent.
    Subscribing,
    /// Takes part.
    Ready,
    /// Ended by the broker.
    Closed,
}

/// What a read brought.
#[derive(Debug)]
pub(super) enum BytesRead {
    /// So many bytes; with a full buffer there may be more.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
}

/// A socket and its buffers.
#[derive(Debug)]
pub(super) struct GeneratorConnection {
    socket: TcpStream,
    pub(super) state: ConnectState,
    pub(super) outbox: Vec<u8>,
    written: usize,
    /// The beginning of a packet whose end has not come yet.
    pub(super) partial: Vec<u8>,
}

impl GeneratorConnection {
    /// Begins to connect.
    pub(super) fn open(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        Self::of(TcpStream::connect(address)?, registry, token)
    }

    /// The same from another loopback address, where the system has more than one.
    pub(super) fn open_from(
        source: Ipv4Addr,
        address: SocketAddr,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        if !cfg!(target_os = "linux") || !address.is_ipv4() {
            return Self::open(address, registry, token);
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            outcome => outcome?,
        }
        Self::of(TcpStream::from_std(socket.into()), registry, token)
    }

    fn of(mut socket: TcpStream, registry: &Registry, token: Token) -> io::Result<Self> {
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { socket, state: ConnectState::Opening, outbox: Vec::new(), written: 0, partial: Vec::new() })
    }

    /// Whether TCP is there now.
    pub(super) fn is_open(&self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => {
                self.socket.set_nodelay(true)?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Bytes that wait for the socket.
    pub(super) fn backlog(&self) -> usize {
        self.outbox.len() - self.written
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.written < self.outbox.len() {
            match self.socket.write(&self.outbox[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // What was written is dropped, so that a socket that is never empty does not grow its buffer.
                    self.outbox.drain(..self.written);
                    self.written = 0;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads once.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<BytesRead> {
        loop {
            return match self.socket.read(buffer) {
                Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "closed by the broker")),
                Ok(count) => Ok(BytesRead::Bytes(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(BytesRead::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }
}
