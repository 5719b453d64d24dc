//! One client that comes and goes: from opening a socket to the answer to its CONNECT.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};
use tidegate_wire_mqtt::{Decoded, Packet, ReasonCode, decode};

use super::packets::{self, PEER};

/// Loopback addresses that clients come from: one alone has 28 000 ports, each blocked for a minute after its use.
const SOURCES: usize = 200;
/// Bytes of an answer; a CONNACK has four.
const ANSWER_BYTES: usize = 256;

/// How far a client has come, and since when it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectStage {
    Away,
    Opening(Instant),
    Greeting(Instant),
    Inside,
}

/// A client and its socket.
#[derive(Debug)]
pub(super) struct ClientSlot {
    pub(super) socket: Option<TcpStream>,
    pub(super) stage: ConnectStage,
    pub(super) input: Vec<u8>,
}

/// How an attempt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectStep {
    Wait,
    Welcome,
    Failed(ConnectFailure),
}

/// How an attempt ended that did not succeed; the names are those of `ConnectFailures`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectFailure {
    Later,
    Refused,
    Reset,
    Closed,
    Silent,
    Local,
}

impl ClientSlot {
    /// Something happened to the socket.
    pub(super) fn step(&mut self, id: &str, user: Option<(&str, &str)>) -> ConnectStep {
        let outcome = match self.stage {
            ConnectStage::Away => Ok(ConnectStep::Wait),
            ConnectStage::Opening(since) => self.greet(id, user, since),
            ConnectStage::Greeting(_) | ConnectStage::Inside => self.hear(),
        };
        outcome.unwrap_or(ConnectStep::Failed(ConnectFailure::Reset))
    }

    fn greet(&mut self, id: &str, user: Option<(&str, &str)>, since: Instant) -> io::Result<ConnectStep> {
        let Some(socket) = &mut self.socket else { return Ok(ConnectStep::Wait) };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        match socket.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(ConnectStep::Wait),
            outcome => outcome?,
        };
        socket.set_nodelay(true)?;
        let mut out = Vec::new();
        packets::connect_as(id, user, None, packets::SessionLifetime::Clean, &mut out).map_err(io::Error::other)?;
        socket.write_all(&out)?;
        self.stage = ConnectStage::Greeting(since);
        Ok(ConnectStep::Wait)
    }

    fn hear(&mut self) -> io::Result<ConnectStep> {
        let Some(socket) = &mut self.socket else { return Ok(ConnectStep::Wait) };
        let mut buffer = [0; ANSWER_BYTES];
        match socket.read(&mut buffer) {
            Ok(0) => Ok(ConnectStep::Failed(ConnectFailure::Closed)),
            Ok(count) if self.stage == ConnectStage::Inside || self.input.len() + count > ANSWER_BYTES => {
                // Nobody has anything to say to these clients but the answer to their CONNECT.
                Ok(ConnectStep::Failed(ConnectFailure::Refused))
            }
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(answer(&self.input))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(ConnectStep::Wait)
            }
            Err(error) => Err(error),
        }
    }
}

/// What the answer to a CONNECT means.
fn answer(bytes: &[u8]) -> ConnectStep {
    match decode(bytes, PEER.version, &packets::limits()) {
        Ok(Decoded::Packet { packet: Packet::ConnAck(answer), .. }) => match answer.reason {
            ReasonCode::Success => ConnectStep::Welcome,
            ReasonCode::ServerUnavailable | ReasonCode::ServerBusy => ConnectStep::Failed(ConnectFailure::Later),
            _ => ConnectStep::Failed(ConnectFailure::Refused),
        },
        Ok(Decoded::Packet { .. }) | Err(_) => ConnectStep::Failed(ConnectFailure::Refused),
        Ok(_) => ConnectStep::Wait,
    }
}

/// Begins to connect, from a loopback address of its own where the system has more than one.
pub(super) fn connect(address: SocketAddr, place: usize) -> io::Result<TcpStream> {
    if !cfg!(target_os = "linux") || !address.is_ipv4() {
        return TcpStream::connect(address);
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    let source = Ipv4Addr::new(127, 0, 1, (place % SOURCES + 1) as u8);
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        outcome => outcome?,
    }
    Ok(TcpStream::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_refusal_is_told_from_others() {
        assert_eq!(answer(&[0x20, 2, 0, 0]), ConnectStep::Welcome);
        assert_eq!(answer(&[0x20, 2, 0, 3]), ConnectStep::Failed(ConnectFailure::Later));
        assert_eq!(answer(&[0x20, 2, 0, 5]), ConnectStep::Failed(ConnectFailure::Refused));
        assert_eq!(answer(&[0x20, 2]), ConnectStep::Wait);
        assert_eq!(answer(b"HTTP/1.1"), ConnectStep::Failed(ConnectFailure::Refused));
    }
}
