//! Packets of a connected client, as verbs of its shard.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use core::fmt::Write;
use core::time::Duration;

use tidegate_core::event::Why;
use tidegate_core::ledger::Loss;
use tidegate_core::{
    Confirmation, ConnId, Ending, Flow, Incoming, Misstep, Moment, NotLasting, ReadStep, Shard, SubscriptionRequest,
    WillFate,
};
use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Disconnect, Packet, PeerError, Publish, ReasonCode, Subscribe, Version, decode,
};

use crate::aliases::{AliasesIn, NoRoom};
use crate::link::FaceLink;

/// The version that a connection speaks, as long as it lasts. (One that is gone speaks none.)
pub(crate) fn version_of(shard: &mut Shard, conn: ConnId) -> Version {
    shard.face_mut::<FaceLink>(conn).map_or(Version::V5, |(link, _)| link.peer.version)
}

/// The packet that begins these bytes, and what became of it.
#[inline]
pub(crate) fn packet(shard: &mut Shard, conn: ConnId, version: Version, bytes: &[u8], moment: &Moment) -> ReadStep {
    match decode(bytes, version, shard.packet_limits()) {
        Ok(Decoded::Packet { packet, consumed: size }) => {
            let is_publication = matches!(packet, Packet::Publish(_));
            ReadStep::Packet { size, is_publication, handled: handle(shard, conn, &packet, size, moment) }
        }
        Ok(Decoded::Incomplete { at_least }) => ReadStep::Incomplete { at_least },
        Err(error) => ReadStep::Broken(broken(shard, error)),
    }
}

/// What a client did wrong; of a packet that is too large also what would have been accepted.
#[cold]
fn broken(shard: &Shard, error: PeerError) -> Ending {
    let mut detail = format!("{error}");
    if error.reason == ReasonCode::PacketTooLarge {
        // Writing into a string cannot fail.
        let _ = write!(detail, "; at most {} bytes are accepted", shard.packet_limits().packet_bytes_max);
    }
    Ending::new(Why::Protocol { reason: error.reason, detail }, WillFate::Publish)
}

fn handle(shard: &mut Shard, conn: ConnId, packet: &Packet<'_>, size: usize, moment: &Moment) -> Result<Flow, Ending> {
    let wrong = |detail| Err(Ending::protocol(ReasonCode::ProtocolError, detail));
    match packet {
        Packet::Publish(packet) => return publish(shard, conn, packet, size, moment),
        Packet::Ack(ack) => confirm(shard, conn, ack, moment)?,
        Packet::PingReq => shard.say_alive(conn),
        Packet::Subscribe(packet) => subscribe(shard, conn, packet, moment),
        Packet::Unsubscribe(packet) => shard.unsubscribe(conn, packet.packet_id, packet.filters.iter()),
        Packet::Disconnect(packet) => return Err(disconnect(shard, conn, packet)),
        Packet::Connect(_) => return wrong("second CONNECT [MQTT-3.1.0-2]"),
        Packet::Auth(_) => return wrong("AUTH without an authentication method [MQTT-4.12.0-1]"),
        Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
            return wrong("a packet that only servers send");
        }
    }
    Ok(Flow::On)
}

fn publish(
    shard: &mut Shard,
    conn: ConnId,
    packet: &Publish<'_>,
    size: usize,
    moment: &Moment,
) -> Result<Flow, Ending> {
    let topic = resolve_alias(shard, conn, packet).map_err(|(loss, ending)| {
        shard.note_lost_input(conn, loss);
        ending
    })?;
    let Publish { delivery, retain, properties, payload, .. } = *packet;
    let incoming = Incoming { topic: &topic, payload, properties, delivery, retain };
    shard.publish(conn, &incoming, moment.came(size), moment.now())
}

/// The topic itself, or the one that the client's alias stands for. An alias that there is no memory for ends the
/// connection: it cannot be refused alone, because the client may use it from now on.
#[inline]
fn resolve_alias<'p>(shard: &mut Shard, conn: ConnId, packet: &Publish<'p>) -> Result<Cow<'p, str>, (Loss, Ending)> {
    let Some(alias) = packet.properties.topic_alias() else { return Ok(Cow::Borrowed(packet.topic)) };
    let unknown = || {
        let ending = Ending::protocol(ReasonCode::ProtocolError, "unknown topic alias [MQTT-3.3.2-7]");
        (Loss::Rejected, ending)
    };
    let (link, memory) = shard.face_mut::<FaceLink>(conn).ok_or_else(unknown)?;
    if packet.topic.is_empty() {
        let known = link.aliases_in.as_deref().and_then(|known| known.topic_of(alias));
        return Ok(Cow::Owned(known.ok_or_else(unknown)?.into()));
    }
    let known = link.aliases_in.get_or_insert_with(|| Box::new(AliasesIn::new(memory)));
    known
        .set(alias, packet.topic, memory)
        .map_err(|NoRoom| (Loss::MemoryIn, Ending::new(Why::Ended(ReasonCode::QuotaExceeded), WillFate::Publish)))?;
    Ok(Cow::Borrowed(packet.topic))
}

/// PUBACK answers QoS 1, PUBREC answers QoS 2, and PUBCOMP what was released; PUBREL is about the client's own message.
/// [MQTT-4.13.1-1]
fn confirm(shard: &mut Shard, conn: ConnId, ack: &Ack<'_>, moment: &Moment) -> Result<(), Ending> {
    let confirmation = match ack.kind {
        AckKind::PubAck => Confirmation::Received,
        // A refusal ends the exchange. [MQTT-4.3.3-4]
        AckKind::PubRec if ack.reason.is_failure() => Confirmation::Declined,
        AckKind::PubRec => Confirmation::Stored,
        AckKind::PubComp => Confirmation::Completed,
        AckKind::PubRel => {
            shard.release(conn, ack.packet_id);
            return Ok(());
        }
    };
    shard.confirm(conn, ack.packet_id, confirmation, moment.now()).map_err(|misstep| {
        let detail = match misstep {
            Misstep::ReceivedInPlaceOfStored => "PUBACK for a message of QoS 2 (section 4.3.3)",
            Misstep::StoredInPlaceOfReceived => "PUBREC or PUBCOMP for a message of QoS 1 (section 4.3.2)",
            Misstep::CompletedInPlaceOfStored => "PUBCOMP in place of PUBREC (section 4.3.3)",
        };
        Ending::protocol(ReasonCode::ProtocolError, detail)
    })
}

fn subscribe(shard: &mut Shard, conn: ConnId, packet: &Subscribe<'_>, moment: &Moment) {
    let request = SubscriptionRequest {
        number: packet.packet_id,
        id: packet.properties.subscription_id(),
        wants_latest: packet.properties.user_properties().any(|(name, text)| name == CONFLATE && text == "latest"),
    };
    let is_bridge = shard.face_mut::<FaceLink>(conn).is_some_and(|(link, _)| link.is_bridge);
    let subscriptions = packet.subscriptions.iter().map(|mut subscription| {
        if is_bridge {
            // What came from the other broker does not go back to it, and what is retained here is retained there.
            subscription.options.no_local = subscription.filter.group().is_none();
            subscription.options.retain_as_published = true;
        }
        subscription
    });
    shard.subscribe(conn, request, subscriptions, moment.now());
}

/// The client says goodbye: its will is forgotten, unless it asks for it.
fn disconnect(shard: &mut Shard, conn: ConnId, packet: &Disconnect<'_>) -> Ending {
    if let Some(seconds) = packet.properties.session_expiry() {
        let wanted = match seconds {
            u32::MAX => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        };
        if let Err(NotLasting) = shard.set_session_expiry(conn, wanted) {
            let detail = "session expiry raised from zero in DISCONNECT [MQTT-3.14.2-2]";
            return Ending::protocol(ReasonCode::ProtocolError, detail);
        }
    }
    let will = match packet.reason {
        ReasonCode::Success => WillFate::Discard,
        _ => WillFate::Publish,
    };
    Ending::new(Why::Goodbye, will)
}

/// The user property by which a client asks, with the text `latest`, for no more than the newest message of each topic
/// while it is away or slow. It asks for less, and for itself only: no right is needed.
const CONFLATE: &str = "pace-conflate";
