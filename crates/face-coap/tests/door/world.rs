//! A shard with this door, in virtual time, and clients that say what they want.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coap_lite::{CoapOption, MessageClass, MessageType, Packet};
use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::access::{Identity, Open, Policy};
use tidegate_core::datagrams::{Admission, DatagramEndpoint, NotAdmitted};
use tidegate_core::settings::Settings;
use tidegate_face_coap::CoapEndpoint;

pub(crate) struct World {
    pub shard: Shard,
    pub endpoint: CoapEndpoint,
    pub now: Timestamp,
    pub verdict: Result<(), NotAdmitted>,
}

struct Verdict(Result<(), NotAdmitted>);

impl Admission for Verdict {
    fn admit(&mut self, from: SocketAddr, _: &str) -> Result<Identity, NotAdmitted> {
        self.0.map(|()| Identity { peer: from.to_string().into(), listener: "coap", ..Identity::default() })
    }
}

/// A client of this machine.
pub(crate) fn here(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), Arc::new(Open))
    }

    pub(crate) fn with(settings: Settings, policy: Arc<dyn Policy>) -> Self {
        let shard = Shard::new(0, 1, Arc::new(settings), policy, 7);
        let now = Timestamp::from_secs_f64(1000.0);
        Self { shard, endpoint: CoapEndpoint::new([1, 2, 3, 4]), now, verdict: Ok(()) }
    }

    /// What is said to everybody when these bytes come.
    pub(crate) fn receive(&mut self, from: SocketAddr, bytes: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        self.handle(from, bytes);
        self.turn()
    }

    /// A datagram, without a turn after it.
    pub(crate) fn handle(&mut self, from: SocketAddr, bytes: &[u8]) {
        let mut admission = Verdict(self.verdict);
        self.endpoint.handle_datagram(&mut self.shard, (from, bytes), &mut admission, self.now, self.now);
    }

    /// A turn of a driver.
    pub(crate) fn turn(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut said = Vec::new();
        self.shard.turn(self.now);
        self.endpoint.turn(&mut self.shard, self.now);
        while let Some(reply) = self.endpoint.poll_reply() {
            said.push(reply);
        }
        while let Some(conn) = self.shard.poll_write() {
            self.endpoint.write(&mut self.shard, conn, self.now, &mut |to, bytes| said.push((to, bytes.to_vec())));
        }
        while let Some(conn) = self.shard.poll_close() {
            self.endpoint.write(&mut self.shard, conn, self.now, &mut |to, bytes| said.push((to, bytes.to_vec())));
            self.endpoint.close(&mut self.shard, conn, self.now);
        }
        while self.endpoint.poll_left().is_some() {}
        while self.shard.poll_event().is_some() {}
        said
    }

    /// Time passes until somebody has something to say, or all of it.
    pub(crate) fn wait(&mut self, most: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        let until = self.now + most;
        for _ in 0..10_000 {
            let due = [self.endpoint.poll_timeout(), self.shard.poll_timeout()].into_iter().flatten().min();
            self.now = due.unwrap_or(until).min(until).max(self.now);
            let said = self.turn();
            if !said.is_empty() || self.now >= until {
                return said;
            }
        }
        panic!("time does not pass");
    }

    /// The one answer to a request, to its sender.
    pub(crate) fn ask(&mut self, from: SocketAddr, request: &Ask) -> Packet {
        let said = self.receive(from, &request.bytes());
        let mine: Vec<_> = said.iter().filter(|(to, _)| *to == from).collect();
        assert_eq!(mine.len(), 1, "{said:?}");
        Packet::from_bytes(&mine[0].1).unwrap()
    }
}

/// A request.
#[derive(Clone)]
pub(crate) struct Ask(pub Packet);

impl Ask {
    pub(crate) fn new(method: u8, path: &str, message: u16) -> Self {
        let mut packet = Packet::new();
        packet.header.set_type(MessageType::Confirmable);
        packet.header.code = MessageClass::from(method);
        packet.header.message_id = message;
        packet.set_token(vec![message as u8, 7]);
        for level in path.split('/').filter(|level| !level.is_empty()) {
            packet.add_option(CoapOption::UriPath, level.into());
        }
        Self(packet)
    }

    pub(crate) fn get(path: &str, message: u16) -> Self {
        Self::new(1, path, message)
    }

    pub(crate) fn put(path: &str, payload: &str, message: u16) -> Self {
        Self::new(3, path, message).payload(payload.as_bytes())
    }

    pub(crate) fn payload(mut self, payload: &[u8]) -> Self {
        self.0.payload = payload.to_vec();
        self
    }

    pub(crate) fn option(mut self, number: u16, value: &[u8]) -> Self {
        self.0.add_option(CoapOption::from(number), value.to_vec());
        self
    }

    pub(crate) fn observe(self) -> Self {
        self.option(6, &[])
    }

    pub(crate) fn unconfirmed(mut self) -> Self {
        self.0.header.set_type(MessageType::NonConfirmable);
        self
    }

    pub(crate) fn token(mut self, token: u8) -> Self {
        self.0.set_token(vec![token]);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.to_bytes_unlimited().unwrap()
    }
}

/// "2.05".
pub(crate) fn code(packet: &Packet) -> String {
    packet.header.get_code()
}

/// The value of a number option.
pub(crate) fn number(packet: &Packet, option: u16) -> Option<u32> {
    let value = packet.get_first_option(CoapOption::from(option))?;
    Some(value.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// An empty message.
pub(crate) fn empty(kind: MessageType, message: u16) -> Vec<u8> {
    let mut packet = Packet::new();
    packet.header.set_type(kind);
    packet.header.code = MessageClass::Empty;
    packet.header.message_id = message;
    packet.to_bytes().unwrap()
}

/// Those that went to an address.
pub(crate) fn to(said: &[(SocketAddr, Vec<u8>)], address: SocketAddr) -> Vec<Packet> {
    said.iter().filter(|(to, _)| *to == address).map(|(_, bytes)| Packet::from_bytes(bytes).unwrap()).collect()
}
