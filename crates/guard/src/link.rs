//! How a client of a guard is spoken to: with the other broker's packets, and a goodbye of the guard's own.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use foldhash::quality::FixedState;
use hashbrown::HashMap;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_core::{ConnId, Hello, Memory, Shard};
use tidegate_face_mqtt::{goodbye, unwelcome};
use tidegate_wire_mqtt::{Peer, Version};

use crate::GuardHello;
use crate::frame::packet_length;

/// One client.
#[derive(Debug)]
pub(crate) struct GuardLink {
    peer: Peer,
    /// Bytes that are still to come of a packet whose beginning was passed on.
    pub(crate) rest: usize,
    /// Topics that the client gave numbers to.
    pub(crate) aliases: HashMap<u16, String, FixedState>,
    /// The other broker may give numbers to topics: then nothing may change its place, nor be dropped.
    pub(crate) is_in_order: bool,
    /// It has said goodbye to the other broker.
    pub(crate) is_leaving: bool,
    /// The other broker has said goodbye to it: nothing is said after that.
    pub(crate) is_dismissed: bool,
    /// Signs of life of the other broker that the client has not asked for.
    pub(crate) pings_owed: u32,
    /// Where messages of a topic wait, while any message does: by the number of the topic, that of the flow.
    pub(crate) flows: HashMap<u64, u64, FixedState>,
    /// The same of the last message before any waited.
    pub(crate) last: (u64, u64),
}

/// Topics of one client that have numbers: the most that a guard remembers of what the other broker may allow.
pub(crate) const ALIASES_MAX: usize = 1024;
/// Bytes of all topics that they stand for.
pub(crate) const ALIAS_BYTES_MAX: usize = 64 * 1024;
/// Topics whose flow is remembered while messages wait; those beyond share one.
pub(crate) const FLOWS_MAX: usize = 4096;

/// The version that a client speaks.
pub(crate) fn version_of(shard: &mut Shard, conn: ConnId) -> Version {
    shard.face_mut::<GuardLink>(conn).map_or(Version::V311, |(link, _)| link.peer.version)
}

/// A client in the words of the core. Its session is the other broker's: here it ends with the connection, and so do will and
/// keep-alive, which are judged there.
pub(crate) fn hello<'a>(hello: &GuardHello<'a>) -> Hello<'a> {
    let connect = hello.connect;
    let mut peer = Peer::new(connect.version);
    if let Some(most) = connect.properties.maximum_packet_size() {
        peer.packet_bytes_max = most.get();
    }
    let link = GuardLink {
        peer,
        rest: 0,
        aliases: HashMap::with_hasher(FixedState::default()),
        is_in_order: connect.properties.topic_alias_maximum().unwrap_or(0) > 0,
        is_leaving: false,
        is_dismissed: false,
        pings_owed: 0,
        flows: HashMap::with_hasher(FixedState::default()),
        last: (0, 0),
    };
    Hello {
        client_id: hello.client_id,
        identity: hello.identity.clone(),
        face: Box::new(link),
        objection: None,
        is_clean: true,
        expiry: Duration::ZERO,
        keep_alive: 0,
        window: u16::MAX,
        inbound_max: u16::MAX,
        will: None,
        bytes: hello.bytes,
    }
}

impl Face for GuardLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        match answer {
            ClientAnswer::Goodbye(_) if self.is_dismissed => {}
            ClientAnswer::Goodbye(why) => goodbye(self.peer, why, out),
            ClientAnswer::Unwelcome { reason, later } => unwelcome(self.peer, *reason, *later, out),
            // The other broker answers.
            _ => {}
        }
    }

    /// What was handed in is the packet itself.
    fn publication(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        _: &mut Frames,
        _: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        out.extend_from_slice(outgoing.payload());
        Some(outgoing.payload().len())
    }

    fn hears_refusals(&self) -> bool {
        false
    }

    fn protocol(&self) -> &'static str {
        self.peer.version.number()
    }

    fn packet_length(&self) -> PacketLength {
        packet_length
    }
}
