//! One copy of a publication, as one client wants it written.

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    Delivery, Encode, Encoded, OutgoingAlias, PacketId, Patch, PayloadPlace, Peer, Publish, PublishFrame, QoS,
};

use crate::aliases::Alias;
use crate::connection::Connection;
use crate::gate::Memory;
use crate::message::Publication;
use crate::outbox::Spares;
use crate::session::SubscriptionIds;

/// The encodings of one publication that several receivers share: by version, and with or without packet identifier.
pub(crate) struct Frames {
    /// Encoding once pays from the second receiver on.
    is_shared: bool,
    frames: [Option<PublishFrame>; 4],
}

impl Frames {
    pub(crate) fn for_receivers(count: usize) -> Self {
        Self { is_shared: count > 1, frames: [const { None }; 4] }
    }

    fn get(&mut self, publication: &Publication<'_>, peer: Peer, delivery: Delivery) -> Option<&PublishFrame> {
        if !self.is_shared {
            return None;
        }
        let has_id = delivery.packet_id().is_some();
        let frame = &mut self.frames[usize::from(peer.version.is_v5()) * 2 + usize::from(has_id)];
        if frame.is_none() {
            *frame = PublishFrame::new(&as_packet(publication, delivery, false), peer.version, PayloadPlace::Inside);
        }
        frame.as_ref()
    }
}

/// What belongs to one delivery beside the publication.
pub(crate) struct Copy<'a> {
    pub(crate) delivery: Delivery,
    pub(crate) retain: bool,
    pub(crate) ids: &'a SubscriptionIds,
}

pub(crate) fn delivery_of(qos: QoS, packet_id: PacketId, dup: bool) -> Delivery {
    match qos {
        QoS::AtMostOnce => Delivery::AtMostOnce,
        QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
        QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
    }
}

fn as_packet<'a>(publication: &Publication<'a>, delivery: Delivery, retain: bool) -> Publish<'a> {
    let Publication { topic, properties, payload, .. } = *publication;
    Publish { delivery, retain, topic, properties, payload }
}

/// Bytes written; none if the client does not accept a packet of this size.
pub(crate) fn write_copy(
    connection: &mut Connection,
    spares: &mut Spares,
    publication: &Publication<'_>,
    copy: &Copy<'_>,
    frames: &mut Frames,
    memory: &Memory,
    now: Timestamp,
) -> Option<usize> {
    let peer = connection.peer;
    let alias = connection.aliases_out.as_mut().map_or(Alias::None, |aliases| aliases.alias(publication.topic, memory));
    let is_plain = copy.ids.as_slice().is_empty() && publication.properties.is_empty() && matches!(alias, Alias::None);
    let out = connection.outbox.writer(spares);
    let encoded = if let Some(frame) = frames.get(publication, peer, copy.delivery) {
        frame.write(&patch_of(publication, copy, &alias, now), peer, out)
    } else if is_plain {
        as_packet(publication, copy.delivery, copy.retain).encode(peer, out)
    } else {
        let packet = as_packet(publication, copy.delivery, false);
        let frame = PublishFrame::new(&packet, peer.version, PayloadPlace::Inside)?;
        frame.write(&patch_of(publication, copy, &alias, now), peer, out)
    };
    match encoded {
        Encoded::Written { len } | Encoded::Trimmed { len } => Some(len),
        Encoded::TooLarge | Encoded::NotInVersion => {
            if let (Alias::Define(_), Some(aliases)) = (alias, connection.aliases_out.as_mut()) {
                aliases.forget(publication.topic);
            }
            None
        }
    }
}

fn patch_of<'p>(publication: &Publication<'_>, copy: &'p Copy<'_>, alias: &Alias, now: Timestamp) -> Patch<'p> {
    Patch {
        delivery: copy.delivery,
        retain: copy.retain,
        message_expiry: publication.seconds_left(now),
        subscription_ids: copy.ids.as_slice(),
        alias: match *alias {
            Alias::None => OutgoingAlias::None,
            Alias::Define(alias) => OutgoingAlias::Define(alias),
            Alias::Use(alias) => OutgoingAlias::Use(alias),
        },
    }
}
