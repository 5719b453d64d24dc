//! What a connected client says, as verbs of its shard.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use tidegate_control::Timestamp;
use tidegate_core::event::Why;
use tidegate_core::ledger::Loss;
use tidegate_core::{ConnId, Ending, Flow, Incoming, Moment, Shard, SubscriptionRequest, WillFate};
use tidegate_wire_mqtt::topic::check_name;
use tidegate_wire_mqtt::{Delivery, Properties, QoS, Subscription, SubscriptionOptions, TopicFilter};

use crate::greet::Will;
use crate::inbound::Sight;
use crate::link::{SnLink, code_of};
use crate::outbound::Answered;
use crate::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef, WillTopic};
use crate::topics::short_name;

/// What became of a message: whether it was a publication, and how its connection goes on.
pub(crate) type Handled = (bool, Result<Flow, Ending>);

const DONE: Handled = (false, Ok(Flow::On));

/// What is said at once: answers that promise nothing that would have to be kept.
pub(crate) type Said = Vec<Vec<u8>>;

/// Deals with a message of a client.
pub(crate) fn handle(
    shard: &mut Shard,
    conn: ConnId,
    packet: &Packet<'_>,
    size: usize,
    moment: &Moment,
    said: &mut Said,
) -> Handled {
    let now = moment.now();
    match *packet {
        Packet::Publish(publish) => return handle_publish(shard, conn, &publish, size, moment, said),
        Packet::Register { message, name, .. } => register(shard, conn, (message, name), said),
        Packet::Subscribe { qos, message, topic, .. } => subscribe(shard, conn, (qos, message, topic), now, said),
        Packet::Unsubscribe { message, topic } => unsubscribe(shard, conn, (message, topic), said),
        Packet::PubRel(number) => shard.release(conn, number),
        Packet::WillTopicUpd(topic) => said.push(Packet::WillTopicResp(change_topic(shard, conn, topic)).bytes()),
        Packet::WillMsgUpd(message) => said.push(Packet::WillMsgResp(change_message(shard, conn, message)).bytes()),
        Packet::Disconnect { .. } => return (false, Err(Ending::new(Why::Goodbye, WillFate::Discard))),
        _ => {}
    }
    DONE
}

/// Whether this answers a message of ours.
pub(crate) fn is_answer(packet: &Packet<'_>) -> bool {
    matches!(packet, Packet::RegAck { .. } | Packet::PubAck { .. } | Packet::PubRec(_) | Packet::PubComp(_))
}

/// What of a message of so many bytes can be dealt with while its client is not read: whatever ends something that is under
/// way. Anything else is refused, and a message that it publishes is counted. False if it was an answer to nothing.
pub(crate) fn handle_paused(
    shard: &mut Shard,
    conn: ConnId,
    (packet, size): (&Packet<'_>, usize),
    now: Timestamp,
    said: &mut Said,
) -> bool {
    match *packet {
        _ if is_answer(packet) => return handle_answer(shard, conn, packet, now, said),
        Packet::PubRel(number) => shard.release(conn, number),
        Packet::Publish(_) => shard.refuse_unread(conn, size, now),
        _ => {}
    }
    let is_sender = shard.face_mut::<SnLink>(conn).is_some_and(|(link, _)| link.is_sender());
    said.extend(refuse_for_now(packet).filter(|_| !is_sender));
    true
}

/// Who could not be read now hears so, where there is a word for it.
fn refuse_for_now(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let code = ReturnCode::Congestion;
    let answer = match *packet {
        Packet::Publish(Publish { topic, message, .. }) => Packet::PubAck { topic: topic.word(), message, code },
        Packet::Register { topic_id, message, .. } => Packet::RegAck { topic_id, message, code },
        Packet::Subscribe { message, .. } => {
            Packet::SubAck { qos: QoS::AtMostOnce, topic_id: 0, message: message.get(), code }
        }
        Packet::WillTopicUpd(_) => Packet::WillTopicResp(code),
        Packet::WillMsgUpd(_) => Packet::WillMsgResp(code),
        _ => return None,
    };
    Some(answer.bytes())
}

/// What a client's answer to a message of ours means. False if it was none.
pub(crate) fn handle_answer(
    shard: &mut Shard,
    conn: ConnId,
    packet: &Packet<'_>,
    now: Timestamp,
    said: &mut Said,
) -> bool {
    let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return false };
    let (number, answered) = match *packet {
        Packet::RegAck { topic_id, message, code } => {
            let is_known = link.outbound.on_regack(topic_id, message, now).is_some();
            if is_known {
                link.topics.note_answer(topic_id, code == ReturnCode::Accepted, now);
            }
            return is_known;
        }
        Packet::PubAck { message, code, .. } => (NonZeroU16::new(message), link.outbound.on_puback(message, code, now)),
        Packet::PubRec(number) => (Some(number), link.outbound.on_pubrec(number, now)),
        Packet::PubComp(number) => (Some(number), link.outbound.on_pubcomp(number)),
        _ => return false,
    };
    match (answered, number) {
        (Answered::Confirmed(confirmation), Some(number)) => {
            // The face has seen that it fits the message.
            let _ = shard.confirm(conn, number, confirmation, now);
        }
        (Answered::UnknownTopic(id), _) => link.tell_again(id, now, &mut |bytes| said.push(bytes.into())),
        (Answered::Later, _) => {}
        // One of another connection of this session: it may forget the number.
        (Answered::Stray, Some(number)) if matches!(packet, Packet::PubRec(_)) => {
            link.outbound.release(number, false, now, &mut |bytes| said.push(bytes.into()));
            return false;
        }
        _ => return false,
    }
    true
}

/// The name of the topic of a message, if there is one.
fn name_of(link: &mut SnLink, topic: TopicRef) -> Option<Arc<str>> {
    match topic {
        TopicRef::Id(id) => {
            let name = link.topics.name(id).cloned();
            if name.is_some() {
                link.note_used_id();
            }
            name
        }
        TopicRef::Predefined(id) => {
            let name = link.predefined.name(id).cloned();
            if name.is_some() {
                link.topics.note_predefined(id);
            }
            name
        }
        TopicRef::Short(name) => short_name(name).map(Arc::from),
    }
}

/// PUBLISH.
fn handle_publish(
    shard: &mut Shard,
    conn: ConnId,
    publish: &Publish<'_>,
    size: usize,
    moment: &Moment,
    said: &mut Said,
) -> Handled {
    let now = moment.now();
    let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return DONE };
    let (topic, message) = (publish.topic.word(), publish.message);
    let is_sender = link.is_sender();
    let mut refuse = |shard: &mut Shard, code, loss| {
        if !is_sender {
            said.push(Packet::PubAck { topic, message, code }.bytes());
        }
        shard.note_lost_input(conn, loss);
        (true, Ok(Flow::On))
    };
    let Some(name) = name_of(link, publish.topic) else {
        return refuse(shard, ReturnCode::InvalidTopicId, Loss::Rejected);
    };
    let qos = match publish.quality {
        Quality::Unconnected => QoS::AtMostOnce,
        Quality::Connected(qos) => qos,
    };
    if check_name(&name, shard.packet_limits()).is_err() || qos > shard.settings().qos_max {
        return refuse(shard, ReturnCode::NotSupported, Loss::Rejected);
    }
    let (dup, packet_id) = (publish.dup, NonZeroU16::new(message));
    let delivery = match (qos, packet_id) {
        (QoS::AtLeastOnce, Some(packet_id)) => Delivery::AtLeastOnce { packet_id, dup },
        (QoS::ExactlyOnce, Some(packet_id)) => Delivery::ExactlyOnce { packet_id, dup },
        _ => Delivery::AtMostOnce,
    };
    let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return DONE };
    if delivery == Delivery::AtMostOnce {
        link.inbound.current = Some(topic);
    } else {
        match link.inbound.recall(publish, qos, now) {
            Sight::New => {}
            // Its answer is on its way.
            Sight::Waiting => return repeated(shard, conn),
            Sight::Done => {
                said.push(Packet::PubAck { topic, message, code: ReturnCode::Accepted }.bytes());
                return repeated(shard, conn);
            }
            // So many wait already: whoever sends more is too fast for them.
            Sight::Full => return refuse(shard, ReturnCode::Congestion, Loss::Refused),
        }
    }
    let retain = publish.retain && shard.settings().retain_available;
    let incoming = Incoming { topic: &name, payload: publish.payload, properties: Properties::EMPTY, delivery, retain };
    let flow = shard.publish(conn, &incoming, moment.came(size), now);
    if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
        link.inbound.current = None;
    }
    match flow {
        Err(ending) => (true, Err(ending)),
        Ok(Flow::On) => (true, Ok(Flow::On)),
        // A stream would not be read for a while; a datagram is here, and its sender can be told.
        Ok(Flow::Wait) => {
            if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
                link.inbound.finish(message, qos, ReturnCode::Congestion);
            }
            refuse(shard, ReturnCode::Congestion, Loss::Refused)
        }
    }
}

/// A message that came before; it is counted, and nothing is done.
fn repeated(shard: &mut Shard, conn: ConnId) -> Handled {
    shard.note_lost_input(conn, Loss::Repeated);
    (true, Ok(Flow::On))
}

/// REGISTER: the client names a topic that it wants to publish to.
fn register(shard: &mut Shard, conn: ConnId, (message, name): (u16, &str), said: &mut Said) {
    let is_name = check_name(name, shard.packet_limits()).is_ok();
    let Some((link, memory)) = shard.face_mut::<SnLink>(conn) else { return };
    let (topic_id, code) = match is_name.then(|| link.topics.register(name, &mut link.chance, memory)) {
        None => (0, ReturnCode::NotSupported),
        Some(Ok(id)) => (id, ReturnCode::Accepted),
        Some(Err(_)) => (0, ReturnCode::Congestion),
    };
    said.push(Packet::RegAck { topic_id, message, code }.bytes());
}

/// The filter that a client means, or why it is none.
fn filter_of(link: &mut SnLink, topic: FilterRef<'_>) -> Result<String, ReturnCode> {
    match topic {
        FilterRef::Name(name) => Ok(name.into()),
        FilterRef::Short(name) => short_name(name).ok_or(ReturnCode::NotSupported),
        FilterRef::Predefined(id) => {
            let name = link.predefined.name(id).map(|name| String::from(&**name));
            if name.is_some() {
                link.topics.note_predefined(id);
            }
            name.ok_or(ReturnCode::InvalidTopicId)
        }
    }
}

fn subscribe(
    shard: &mut Shard,
    conn: ConnId,
    (qos, message, topic): (QoS, NonZeroU16, FilterRef<'_>),
    now: Timestamp,
    said: &mut Said,
) {
    let limits = shard.packet_limits().clone();
    let Some((link, memory)) = shard.face_mut::<SnLink>(conn) else { return };
    let filter = filter_of(link, topic);
    let parsed = filter
        .as_deref()
        .map_err(|code| *code)
        .and_then(|filter| TopicFilter::parse(filter, &limits).map_err(|_| ReturnCode::NotSupported));
    // One topic by name has an identifier from now on (section 5.4.16); others need none, or get theirs with a message.
    let granted = parsed.and_then(|parsed| {
        let topic_id = match topic {
            FilterRef::Predefined(id) => id,
            FilterRef::Name(name) if !parsed.has_wildcard() && parsed.group().is_none() => {
                link.topics.register(name, &mut link.chance, memory).map_err(|_| ReturnCode::Congestion)?
            }
            FilterRef::Name(_) | FilterRef::Short(_) => 0,
        };
        let has_room = link.inbound.begin_subscription(message, topic_id);
        if has_room { Ok(parsed) } else { Err(ReturnCode::Congestion) }
    });
    match granted {
        Ok(filter) => {
            let request = SubscriptionRequest { number: message, id: None, wants_latest: false };
            let subscription = Subscription { filter, options: SubscriptionOptions::with_qos(qos) };
            shard.subscribe(conn, request, core::iter::once(subscription), now);
        }
        Err(code) => {
            let packet = Packet::SubAck { qos: QoS::AtMostOnce, topic_id: 0, message: message.get(), code };
            said.push(packet.bytes());
        }
    }
}

fn unsubscribe(shard: &mut Shard, conn: ConnId, (message, topic): (NonZeroU16, FilterRef<'_>), said: &mut Said) {
    let limits = shard.packet_limits().clone();
    let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return };
    match filter_of(link, topic).as_deref().ok().and_then(|filter| TopicFilter::parse(filter, &limits).ok()) {
        Some(filter) => shard.unsubscribe(conn, message, core::iter::once(filter)),
        // What nobody can subscribe to is not subscribed to: done, and there is no word for anything else.
        None => said.push(Packet::UnsubAck(message.get()).bytes()),
    }
}

/// WILLTOPICUPD: another topic, or no will any more.
fn change_topic(shard: &mut Shard, conn: ConnId, topic: Option<WillTopic<'_>>) -> ReturnCode {
    let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return ReturnCode::NotSupported };
    let will = topic.map(|topic| match &link.will {
        Some(will) => will.with_topic(topic),
        None => Will::to(topic),
    });
    change_will(shard, conn, will)
}

/// WILLMSGUPD.
fn change_message(shard: &mut Shard, conn: ConnId, message: &[u8]) -> ReturnCode {
    let Some((link, _)) = shard.face_mut::<SnLink>(conn) else { return ReturnCode::NotSupported };
    // What it says has no meaning without a topic.
    let Some(will) = link.will.as_ref().map(|will| will.with_message(message)) else { return ReturnCode::NotSupported };
    change_will(shard, conn, Some(will))
}

pub(crate) fn change_will(shard: &mut Shard, conn: ConnId, will: Option<Will>) -> ReturnCode {
    if will.as_ref().is_some_and(|will| check_name(will.topic(), shard.packet_limits()).is_err()) {
        return ReturnCode::NotSupported;
    }
    if let Err(reason) = shard.set_will(conn, will.as_ref().map(Will::as_core)) {
        return code_of(reason);
    }
    if let Some((link, _)) = shard.face_mut::<SnLink>(conn) {
        link.set_will(will);
    }
    ReturnCode::Accepted
}
