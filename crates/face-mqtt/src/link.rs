//! How one MQTT connection is spoken to: version, largest packet, aliases.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tidegate_core::Memory;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_wire_mqtt::{Peer, Version};

use crate::aliases::{AliasesIn, AliasesOut};
use crate::connect::ConnackProperties;
use crate::{reply, write};

/// One connection.
#[derive(Debug)]
pub(crate) struct FaceLink {
    pub(crate) peer: Peer,
    /// A broker that connects as a bridge, and can say so of no single subscription.
    pub(crate) is_bridge: bool,
    /// What the CONNACK says if the client is let in; none once it was said.
    pub(crate) greeting: Option<Box<ConnackProperties>>,
    /// Topics that the client gave numbers to, if it did.
    pub(crate) aliases_in: Option<Box<AliasesIn>>,
    /// Topics that we gave numbers to; none if the client wants no aliases.
    pub(crate) aliases_out: Option<Box<AliasesOut>>,
}

impl Face for FaceLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        reply::write(self, answer, out);
    }

    fn publication(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        frames: &mut Frames,
        memory: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        write::publication(self, outgoing, frames, memory, out)
    }

    fn hears_refusals(&self) -> bool {
        self.peer.version == Version::V5
    }

    fn protocol(&self) -> &'static str {
        self.peer.version.number()
    }

    fn packet_length(&self) -> PacketLength {
        packet_length
    }
}

/// Length of the packet that begins here, as it says itself (section 2.1.4).
fn packet_length(bytes: &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0_usize, 0);
    for (place, byte) in bytes.iter().enumerate().skip(1).take(4) {
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(place + 1 + length);
        }
    }
    None
}
