//! A client for what is not measured: holding subscriptions, reading counters. Blocking, one packet after the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_wire_mqtt::{Decoded, Packet, QoS, ReasonCode, decode};

use super::packets::{self, PEER, SessionLifetime};

/// The longest that a broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Filters of one SUBSCRIBE: fewer than any broker refuses.
const FILTERS_PER_PACKET: usize = 50;
/// Bytes of one answer that are waited for.
const INPUT_MAX: usize = 1024 * 1024;

/// What a packet means here.
#[derive(Debug, PartialEq, Eq)]
enum PlainPacket {
    Welcome,
    Granted,
    Message(Vec<u8>),
    Other,
}

/// A connected client.
#[derive(Debug)]
pub(super) struct PlainClient {
    socket: TcpStream,
    input: Vec<u8>,
}

impl PlainClient {
    /// Connects and waits for the welcome.
    pub(super) fn connect(address: SocketAddr, id: &str) -> Result<Self> {
        Self::connect_as(address, id, SessionLifetime::Clean)
    }

    /// The same with a session that lasts, or not.
    pub(super) fn connect_as(address: SocketAddr, id: &str, stay: SessionLifetime) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&address, ANSWER_MAX).context("cannot connect")?;
        socket.set_nodelay(true)?;
        let mut client = Self { socket, input: Vec::new() };
        let mut out = Vec::new();
        packets::connect_as(id, None, None, stay, &mut out)?;
        client.socket.write_all(&out)?;
        match client.hear(ANSWER_MAX)? {
            Some(PlainPacket::Welcome) => Ok(client),
            other => bail!("no welcome, but {other:?}"),
        }
    }

    /// Subscribes to all of these, a batch at a time, and waits until they are granted.
    pub(super) fn subscribe(&mut self, filters: &[String], qos: QoS) -> Result<()> {
        for batch in filters.chunks(FILTERS_PER_PACKET) {
            let mut out = Vec::new();
            let names: Vec<&str> = batch.iter().map(String::as_str).collect();
            packets::subscribe(PEER, &names, qos, &mut out)?;
            self.socket.write_all(&out)?;
            loop {
                match self.hear(ANSWER_MAX)? {
                    Some(PlainPacket::Granted) => break,
                    Some(_) => {}
                    None => bail!("no answer to a subscription"),
                }
            }
        }
        Ok(())
    }

    /// Listens for so long; the payload that came last.
    pub(super) fn last_payload(&mut self, time: Duration) -> Result<Option<Vec<u8>>> {
        let end = Instant::now() + time;
        let mut last = None;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.hear(left)? {
                Some(PlainPacket::Message(payload)) => last = Some(payload),
                Some(_) => {}
                None => return Ok(last),
            }
        }
    }

    /// The next packet, if one comes in time.
    fn hear(&mut self, time: Duration) -> Result<Option<PlainPacket>> {
        let end = Instant::now() + time;
        loop {
            if let Some((heard, used)) = understand(&self.input)? {
                self.input.drain(..used);
                return Ok(Some(heard));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) => bail!("closed by the broker"),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            if self.input.len() > INPUT_MAX {
                bail!("an endless packet");
            }
        }
    }
}

/// The first packet of these bytes, if it is complete, and how long it is.
fn understand(bytes: &[u8]) -> Result<Option<(PlainPacket, usize)>> {
    let Decoded::Packet { packet, consumed } = decode(bytes, PEER.version, &packets::limits())? else {
        return Ok(None);
    };
    let heard = match packet {
        Packet::ConnAck(answer) if !answer.reason.is_failure() => PlainPacket::Welcome,
        Packet::ConnAck(answer) => bail!("refused: {:?}", answer.reason),
        Packet::SubAck(answer) if !answer.reasons.iter().any(ReasonCode::is_failure) => PlainPacket::Granted,
        Packet::SubAck(_) => bail!("a subscription was refused"),
        Packet::Publish(publish) => PlainPacket::Message(publish.payload.to_vec()),
        _ => PlainPacket::Other,
    };
    Ok(Some((heard, consumed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_understood_when_they_are_whole() {
        assert_eq!(understand(&[0x20, 2, 0]).unwrap(), None);
        assert_eq!(understand(&[0x20, 2, 0, 0, 0x90]).unwrap(), Some((PlainPacket::Welcome, 4)));
        assert!(understand(&[0x20, 2, 0, 3]).is_err());
        assert_eq!(understand(&[0x90, 3, 0, 1, 0]).unwrap(), Some((PlainPacket::Granted, 5)));
        assert!(understand(&[0x90, 3, 0, 1, 0x80]).is_err());
        let message = [0x31, 5, 0, 1, b'a', b'4', b'2'];
        assert_eq!(understand(&message).unwrap(), Some((PlainPacket::Message(b"42".to_vec()), 7)));
    }
}
