//! One copy of a publication, as one client wants it written.

use alloc::vec::Vec;

use tidegate_core::Memory;
use tidegate_core::face::{Frames, OutgoingPublication};
use tidegate_wire_mqtt::{Encode, Encoded, OutgoingAlias, Patch, PayloadPlace, Peer, Publish, PublishFrame};

use crate::aliases::Alias;
use crate::link::Link;

/// Bytes written; none if the client does not accept a packet of this size.
pub(crate) fn publication(
    link: &mut Link,
    outgoing: &OutgoingPublication<'_>,
    frames: &mut Frames,
    memory: &Memory,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let peer = link.peer;
    let alias = link.aliases_out.as_mut().map_or(Alias::None, |aliases| aliases.alias(outgoing.topic, memory));
    let is_plain = outgoing.ids.is_empty() && outgoing.properties.is_empty() && matches!(alias, Alias::None);
    let encoded = if let Some(frame) = frame_of(frames, outgoing, peer) {
        frame.write(&patch_of(outgoing, &alias), peer, out)
    } else if is_plain {
        as_packet(outgoing, outgoing.retain).encode(peer, out)
    } else {
        let frame = PublishFrame::new(&as_packet(outgoing, false), peer.version, PayloadPlace::Inside)?;
        frame.write(&patch_of(outgoing, &alias), peer, out)
    };
    match encoded {
        Encoded::Written { len } | Encoded::Trimmed { len } => Some(len),
        Encoded::TooLarge | Encoded::NotInVersion => {
            if let (Alias::Define(_), Some(aliases)) = (alias, link.aliases_out.as_mut()) {
                aliases.forget(outgoing.topic);
            }
            None
        }
    }
}

/// The encoding that several receivers share: by version, and with or without packet identifier.
#[inline]
fn frame_of<'f>(frames: &'f mut Frames, outgoing: &OutgoingPublication<'_>, peer: Peer) -> Option<&'f PublishFrame> {
    let has_id = outgoing.delivery.packet_id().is_some();
    let shape = usize::from(peer.version.is_v5()) * 2 + usize::from(has_id);
    frames.get(shape, || PublishFrame::new(&as_packet(outgoing, false), peer.version, PayloadPlace::Inside))
}

fn as_packet<'a>(outgoing: &OutgoingPublication<'a>, retain: bool) -> Publish<'a> {
    let OutgoingPublication { topic, properties, payload, delivery, .. } = *outgoing;
    Publish { delivery, retain, topic, properties, payload }
}

fn patch_of<'p>(outgoing: &OutgoingPublication<'p>, alias: &Alias) -> Patch<'p> {
    Patch {
        delivery: outgoing.delivery,
        retain: outgoing.retain,
        message_expiry: outgoing.seconds_left,
        subscription_ids: outgoing.ids,
        alias: match *alias {
            Alias::None => OutgoingAlias::None,
            Alias::Define(alias) => OutgoingAlias::Define(alias),
            Alias::Use(alias) => OutgoingAlias::Use(alias),
        },
    }
}
