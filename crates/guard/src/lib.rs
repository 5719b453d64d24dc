#![no_std]
#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "a field whose name says it has no other text")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod down;
mod first;
mod frame;
mod life;
mod link;
mod origins;
#[cfg(test)]
mod tests;
mod up;

pub use down::{Handed, NextDown};
pub use first::{
    AUTH_BYTES_MAX, AuthAnswer, DISCONNECT, FirstAnswer, PINGREQ, auth_answer, first_answer, is_goodbye,
    is_wrong_password,
};
pub use life::{LifeWatch, UNREAD_ENOUGH, keep_alive_of};
pub use origins::Origins;
use tidegate_control::Timestamp;
use tidegate_core::access::Identity;
use tidegate_core::{ConnId, Flow, Portion, Progress, ReadStep, Shard};
use tidegate_wire_mqtt::{Connect, Version};

/// A client that the other broker has let in.
#[derive(Debug)]
pub struct GuardHello<'a> {
    /// Its CONNECT.
    pub connect: &'a Connect<'a>,
    /// Bytes of that.
    pub bytes: usize,
    /// What it is called here: by itself, or by a name that was made up.
    pub client_id: &'a str,
    pub identity: Identity,
}

/// A shard whose clients have their sessions elsewhere.
pub trait GuardShard {
    /// A client was let in. `None`: a table is full.
    fn handle_admitted(&mut self, hello: &GuardHello<'_>, now: Timestamp) -> Option<ConnId>;

    /// Bytes of a client, and how many of them, from the first on, are to be sent to the other broker as they are. (Of a
    /// client that has to go, all count as used, and only those before that pass.)
    fn pass_portion(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        portion: &Portion,
        origins: &Origins,
        now: Timestamp,
    ) -> (Progress, usize);

    /// Bytes of the other broker for a client.
    fn pass_down(&mut self, conn: ConnId, bytes: &[u8], origins: &Origins, now: Timestamp) -> Handed;

    /// Whether the driver may ask the other broker for a sign of life in the client's place, which it then does: the answer is
    /// not the client's. Not in the middle of a packet.
    fn may_ping(&mut self, conn: ConnId) -> bool;

    /// Whether there is a word to say goodbye with to this client.
    fn hears_goodbye(&mut self, conn: ConnId) -> bool;

    /// Whether this client has said goodbye to the other broker.
    fn has_said_goodbye(&mut self, conn: ConnId) -> bool;
}

impl GuardShard for Shard {
    fn handle_admitted(&mut self, hello: &GuardHello<'_>, now: Timestamp) -> Option<ConnId> {
        let hello = link::hello(hello);
        self.connect_admitted(hello, now)
    }

    fn pass_portion(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        portion: &Portion,
        origins: &Origins,
        now: Timestamp,
    ) -> (Progress, usize) {
        let (version, mut passed) = (link::version_of(self, conn), 0);
        let progress = self.handle_portion_by(conn, bytes, portion, now, |shard, rest, moment| {
            let step = up::step(shard, conn, version, rest, moment, origins);
            if let ReadStep::Packet { size, handled: Ok(Flow::On), .. } = &step {
                passed += size;
            }
            step
        });
        (progress, passed)
    }

    fn pass_down(&mut self, conn: ConnId, bytes: &[u8], origins: &Origins, now: Timestamp) -> Handed {
        down::pass(self, conn, bytes, origins, now)
    }

    fn may_ping(&mut self, conn: ConnId) -> bool {
        let link = self.face_mut::<link::GuardLink>(conn).map(|(link, _)| link);
        let Some(link) = link.filter(|link| link.rest == 0) else { return false };
        link.pings_owed = link.pings_owed.saturating_add(1);
        true
    }

    fn hears_goodbye(&mut self, conn: ConnId) -> bool {
        link::version_of(self, conn) == Version::V5
    }

    fn has_said_goodbye(&mut self, conn: ConnId) -> bool {
        self.face_mut::<link::GuardLink>(conn).is_some_and(|(link, _)| link.is_leaving)
    }
}
