//! One copy of a publication, as one client wants it written.

use alloc::vec::Vec;

use tidegate_core::Memory;
use tidegate_core::face::{Frames, OutgoingPublication};
use tidegate_wire_mqtt::{Encode, Encoded, OutgoingAlias, Patch, PayloadPlace, Peer, Publish, PublishFrame};

use crate::link::FaceLink;

/// Bytes written; none if the client does not accept a packet of this size.
///
/// Most copies are one of many without anything of their own: that way is short, and the others are not part of it.
#[inline]
pub(crate) fn publication(
    link: &mut FaceLink,
    outgoing: &OutgoingPublication<'_>,
    frames: &mut Frames,
    memory: &Memory,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let peer = link.peer;
    if link.aliases_out.is_none()
        && outgoing.ids().is_empty()
        && let Some(frame) = frames.find::<PublishFrame>(shape_of(outgoing, peer))
    {
        let (delivery, retain) = (outgoing.delivery(), outgoing.retain());
        return written(frame.write_flat(delivery, retain, outgoing.seconds_left(), peer, out));
    }
    write_other(link, outgoing, frames, memory, out)
}

/// The first copy of many, one of its own, or one with an alias.
#[inline(never)]
fn write_other(
    link: &mut FaceLink,
    outgoing: &OutgoingPublication<'_>,
    frames: &mut Frames,
    memory: &Memory,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let peer = link.peer;
    let new_frame = || PublishFrame::new(&as_packet(outgoing, false), peer.version, PayloadPlace::Inside);
    let aliases = link.aliases_out.as_mut();
    let alias = aliases.map_or(OutgoingAlias::None, |aliases| aliases.alias(outgoing.topic(), memory));
    let has_extras = !outgoing.ids().is_empty() || !outgoing.properties().is_empty() || alias != OutgoingAlias::None;
    let encoded = if let Some(frame) = frames.get(shape_of(outgoing, peer), new_frame) {
        frame.write(&patch_of(outgoing, alias), peer, out)
    } else if has_extras {
        new_frame()?.write(&patch_of(outgoing, alias), peer, out)
    } else {
        as_packet(outgoing, outgoing.retain()).encode(peer, out)
    };
    let written = written(encoded);
    if let (None, OutgoingAlias::Define(_), Some(aliases)) = (written, alias, link.aliases_out.as_mut()) {
        aliases.forget(outgoing.topic());
    }
    written
}

#[inline]
fn written(encoded: Encoded) -> Option<usize> {
    match encoded {
        Encoded::Written { len } | Encoded::Trimmed { len } => Some(len),
        Encoded::TooLarge | Encoded::NotInVersion => None,
    }
}

/// Receivers share an encoding by version, and with or without packet identifier.
#[inline]
fn shape_of(outgoing: &OutgoingPublication<'_>, peer: Peer) -> usize {
    usize::from(peer.version.is_v5()) * 2 + usize::from(outgoing.delivery().packet_id().is_some())
}

fn as_packet<'a>(outgoing: &OutgoingPublication<'a>, retain: bool) -> Publish<'a> {
    let (topic, properties, payload) = (outgoing.topic(), *outgoing.properties(), outgoing.payload());
    Publish { delivery: outgoing.delivery(), retain, topic, properties, payload }
}

#[inline]
fn patch_of<'p>(outgoing: &OutgoingPublication<'p>, alias: OutgoingAlias) -> Patch<'p> {
    Patch {
        delivery: outgoing.delivery(),
        retain: outgoing.retain(),
        message_expiry: outgoing.seconds_left(),
        subscription_ids: outgoing.ids(),
        alias,
    }
}
