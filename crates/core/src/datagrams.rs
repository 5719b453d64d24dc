//! What a driver asks of a face that speaks by datagrams: there is one socket and no connections, so the face itself knows
//! which address is whose, what has to be sent again, and who has been silent for too long.
//!
//! *Handle what arrived, turn once, drain what is to be sent.* Implemented by the faces of CoAP and MQTT-SN; driven by the
//! broker, by tests in virtual time, and by fuzzers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::SocketAddr;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::access::Identity;
use crate::{ConnId, Shard};

/// Who comes in, and who does not; the rim knows.
pub trait Admission {
    /// Who this is, if it is let in.
    fn admit(&mut self, from: SocketAddr, client_id: &str) -> Result<Identity, NotAdmitted>;
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// Only users are, and a datagram names none.
    Unknown,
    /// This one is not.
    Banned,
    /// There is no room.
    Full,
}

/// Which shard a datagram is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramOwner {
    /// That of this client, whoever used the address before.
    Client(String),
    /// That which knows the address, and if none does, that of this client.
    Address(String),
}

/// The addresses that one shard speaks with.
pub trait DatagramEndpoint: Debug + Send {
    /// Which shard a datagram is for.
    fn owner(&self, from: SocketAddr, bytes: &[u8]) -> DatagramOwner;

    /// Whether an address is known.
    fn knows(&self, address: SocketAddr) -> bool;

    /// A datagram came, at any time since the socket was last known to be empty.
    fn handle_datagram(
        &mut self,
        shard: &mut Shard,
        datagram: (SocketAddr, &[u8]),
        admission: &mut dyn Admission,
        dry_at: Timestamp,
        now: Timestamp,
    );

    /// Another shard has the client that uses this address now.
    fn handle_moved(&mut self, shard: &mut Shard, address: SocketAddr, now: Timestamp);

    /// The next datagram that is not in an outbox.
    fn poll_reply(&mut self) -> Option<(SocketAddr, Vec<u8>)>;

    /// An address that is not known any more. To be asked until there is no more of them. Not one that has left and is back:
    /// what its driver has for it belongs to the new connection.
    fn poll_left(&mut self) -> Option<SocketAddr>;

    /// When `turn` should be called.
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// Sends again what was not answered, forgets who is silent. Bounded work.
    fn turn(&mut self, shard: &mut Shard, now: Timestamp);

    /// Sends what is in the outbox of a connection, as far as its client may have it now. False if it is none of this door.
    fn write(
        &mut self,
        shard: &mut Shard,
        conn: ConnId,
        now: Timestamp,
        send: &mut dyn FnMut(SocketAddr, &[u8]),
    ) -> bool;

    /// The core wants a connection closed, and what it had to say is written. False if it is none of this door.
    fn close(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) -> bool;
}

/// Chance for identifiers and repetitions, from a seed that the rim draws: a small generator (splitmix64). Nothing that has to
/// stay secret depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A time, and up to half of it more.
    pub fn stretch(&mut self, time: Duration) -> Duration {
        time + time.mul_f32((self.draw() >> 40) as f32 / (1_u32 << 24) as f32 / 2.0)
    }
}
