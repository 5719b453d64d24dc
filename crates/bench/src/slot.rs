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
pub(super) enum Stage {
    Away,
    Opening(Instant),
    Greeting(Instant),
    Inside,
}

/// A client and its socket.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) socket: Option<TcpStream>,
    pub(super) stage: Stage,
    pub(super) input: Vec<u8>,
}

/// How an attempt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    Welcome,
    Failed(Failure),
}

/// How an attempt ended that did not succeed; the names are those of `Trouble`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Later,
    Refused,
    Reset,
    Closed,
    Silent,
    Local,
}

impl Slot {
    /// Something happened to the socket.
    pub(super) fn step(&mut self, id: &str, user: Option<(&str, &str)>) -> Step {
        let outcome = match self.stage {
            Stage::Away => Ok(Step::Wait),
            Stage::Opening(since) => self.greet(id, user, since),
            Stage::Greeting(_) | Stage::Inside => self.hear(),
        };
        outcome.unwrap_or(Step::Failed(Failure::Reset))
    }

    fn greet(&mut self, id: &str, user: Option<(&str, &str)>, since: Instant) -> io::Result<Step> {
        let Some(socket) = &mut self.socket else { return Ok(Step::Wait) };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        match socket.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Step::Wait),
            outcome => outcome?,
        };
        socket.set_nodelay(true)?;
        let mut out = Vec::new();
        packets::connect_as(id, user, None, packets::Stay::Clean, &mut out).map_err(io::Error::other)?;
        socket.write_all(&out)?;
        self.stage = Stage::Greeting(since);
        Ok(Step::Wait)
    }

    fn hear(&mut self) -> io::Result<Step> {
        let Some(socket) = &mut self.socket else { return Ok(Step::Wait) };
        let mut buffer = [0; ANSWER_BYTES];
        match socket.read(&mut buffer) {
            Ok(0) => Ok(Step::Failed(Failure::Closed)),
            Ok(count) if self.stage == Stage::Inside || self.input.len() + count > ANSWER_BYTES => {
                // Nobody has anything to say to these clients but the answer to their CONNECT.
                Ok(Step::Failed(Failure::Refused))
            }
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(answer(&self.input))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(Step::Wait),
            Err(error) => Err(error),
        }
    }
}

/// What the answer to a CONNECT means.
fn answer(bytes: &[u8]) -> Step {
    match decode(bytes, PEER.version, &packets::limits()) {
        Ok(Decoded::Packet { packet: Packet::ConnAck(answer), .. }) => match answer.reason {
            ReasonCode::Success => Step::Welcome,
            ReasonCode::ServerUnavailable | ReasonCode::ServerBusy => Step::Failed(Failure::Later),
            _ => Step::Failed(Failure::Refused),
        },
        Ok(Decoded::Packet { .. }) | Err(_) => Step::Failed(Failure::Refused),
        Ok(_) => Step::Wait,
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
        assert_eq!(answer(&[0x20, 2, 0, 0]), Step::Welcome);
        assert_eq!(answer(&[0x20, 2, 0, 3]), Step::Failed(Failure::Later));
        assert_eq!(answer(&[0x20, 2, 0, 5]), Step::Failed(Failure::Refused));
        assert_eq!(answer(&[0x20, 2]), Step::Wait);
        assert_eq!(answer(b"HTTP/1.1"), Step::Failed(Failure::Refused));
    }
}
