//! Links that are attached: to a topic that is published to, or to a filter that is subscribed to.

use core::num::NonZeroU16;

use tidegate_core::{ConnId, Moment, Shard, SubscriptionRequest};
use tidegate_wire_mqtt::topic::check_name;
use tidegate_wire_mqtt::{QoS, RetainHandling, Subscription, SubscriptionOptions, TopicFilter};

use crate::condition::{
    AmqpError, Condition, Fault, HANDLE_IN_USE, INTERNAL, INVALID_FIELD, NOT_IMPLEMENTED, RESOURCE_LIMIT, STOLEN,
    condition_of,
};
use crate::limits::{LINKS_MAX, NAME_BYTES_MAX};
use crate::link::AmqpLink;
use crate::performative::{Attach, Role};
use crate::read::{Leaving, check_handle, forget_link, id_of, session_fault};
use crate::reply::{AttachReply, TargetReply, put_attach, put_detach};
use crate::session::{Link, ReceiverLink, SenderLink};
use crate::types::Value;

/// What some clients write before the name of a topic.
const TOPIC_SCHEME: &str = "topic://";
/// The property of a link that wants only the newest message of each topic while it is slow, as in MQTT...
const CONFLATE: &str = "pace-conflate";
/// ...and of one whose messages are all retained.
const RETAIN: &str = "retain";

/// An address without the scheme that some write before it, once: what is left is what is checked, and what is used.
pub(crate) fn plain(address: &str) -> &str {
    address.strip_prefix(TOPIC_SCHEME).unwrap_or(address)
}

/// Why a link is refused.
type Refused = (Condition, &'static str);

pub(crate) fn attach(
    shard: &mut Shard,
    conn: ConnId,
    channel: u16,
    attach: &Attach<'_>,
    moment: &Moment,
) -> Result<(), Fault> {
    check_handle(attach.handle)?;
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    if link.link_mut(channel, attach.handle).is_some() {
        return Err(session_fault(HANDLE_IN_USE, "a link is attached by this handle"));
    }
    if attach.name.len() > NAME_BYTES_MAX {
        return Err(session_fault(INVALID_FIELD, "the name of a link is longer than 1024 bytes"));
    }
    if attach.role == Role::Sender && attach.initial_delivery_count.is_none() {
        return Err(session_fault(INVALID_FIELD, "a sender has an initial-delivery-count"));
    }
    let is_full = link.links() >= LINKS_MAX;
    steal(shard, conn, attach);
    let attached = match attach.role {
        _ if is_full => Err((RESOURCE_LIMIT, "this connection has too many links")),
        Role::Sender => attach_sender(shard, conn, channel, attach),
        Role::Receiver => attach_receiver(shard, conn, channel, attach, moment),
    };
    if let Err((condition, words)) = attached {
        refuse(shard, conn, channel, attach, &AmqpError::new(condition, words));
    }
    Ok(())
}

/// Section 2.6.1: a link has one name between two containers, and whoever attaches it again has it.
fn steal(shard: &mut Shard, conn: ConnId, attach: &Attach<'_>) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    let wanted = Some((attach.name, attach.role));
    let before = link.sessions.iter().find_map(|(channel, session)| {
        let found = session.links.iter().find(|(_, link)| link.name() == wanted);
        found.map(|(handle, _)| (*channel, *handle))
    });
    let Some((channel, handle)) = before else { return };
    forget_link(shard, conn, channel, handle, Leaving::Detached);
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    if let Some(session) = link.sessions.get_mut(&channel) {
        session.links.insert(handle, Link::DetachSent);
    }
    let error = AmqpError::new(STOLEN, "the link was attached again");
    put_detach(channel, handle, true, Some(&error), &mut link.closing);
}

/// Section 2.6.3: a link that is not to be is attached without a terminus, and detached.
fn refuse(shard: &mut Shard, conn: ConnId, channel: u16, attach: &Attach<'_>, error: &AmqpError) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    link.counts.links_refused += 1;
    let reply = AttachReply {
        name: attach.name,
        handle: attach.handle,
        role: other(attach.role),
        snd_settle_mode: attach.snd_settle_mode,
        source: None,
        target: None,
        durable: 0,
        message_bytes_max: 0,
    };
    if let Some(session) = link.sessions.get_mut(&channel) {
        session.links.insert(attach.handle, Link::DetachSent);
    }
    put_attach(channel, &reply, &mut link.closing);
    put_detach(channel, attach.handle, true, Some(error), &mut link.closing);
}

fn other(role: Role) -> Role {
    match role {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    }
}

fn attach_sender(shard: &mut Shard, conn: ConnId, channel: u16, attach: &Attach<'_>) -> Result<(), Refused> {
    let address = match attach.target {
        Some(target) if target.is_coordinator => return Err((NOT_IMPLEMENTED, "there are no transactions here")),
        Some(target) if target.is_dynamic => return Err((NOT_IMPLEMENTED, "no topic is made up for a sender")),
        Some(target) => target.address,
        None => None,
    };
    let topic = address.map(plain);
    if topic.is_some_and(|topic| check_name(topic, shard.packet_limits()).is_err()) {
        return Err((INVALID_FIELD, "the address of a target is the name of a topic"));
    }
    let retain = match attach.properties.map(|items| items.get(RETAIN)).transpose() {
        Ok(retain) => retain.flatten() == Some(Value::Bool(true)),
        Err(_) => return Err((INVALID_FIELD, "the properties of the link cannot be read")),
    };
    let message_bytes_max = shard.packet_limits().packet_bytes_max.into();
    let count = attach.initial_delivery_count.unwrap_or(0);
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    let sender = SenderLink { topic: topic.map(Box::from), retain, ..SenderLink::new(attach.name, count) };
    let reply = AttachReply {
        name: attach.name,
        handle: attach.handle,
        role: Role::Receiver,
        snd_settle_mode: attach.snd_settle_mode,
        source: attach.source.and_then(|source| source.address),
        target: Some(TargetReply(address)),
        durable: 0,
        message_bytes_max,
    };
    put_attach(channel, &reply, &mut link.outgoing);
    if let Some(session) = link.sessions.get_mut(&channel) {
        session.links.insert(attach.handle, Link::Sender(sender));
    }
    Ok(())
}

fn attach_receiver(
    shard: &mut Shard,
    conn: ConnId,
    channel: u16,
    attach: &Attach<'_>,
    moment: &Moment,
) -> Result<(), Refused> {
    let source = attach.source.filter(|source| !source.is_coordinator);
    let source = source.ok_or((INVALID_FIELD, "a receiver has a source"))?;
    if source.is_dynamic {
        return Err((NOT_IMPLEMENTED, "no topic is made up for a receiver: it may choose one that nobody else has"));
    }
    let address = source.address.ok_or((INVALID_FIELD, "the address of a source is a filter of topics"))?;
    let text = plain(address);
    let limits = shard.packet_limits().clone();
    let filter = TopicFilter::parse(text, &limits)
        .map_err(|_| (INVALID_FIELD, "the address of a source is a filter of topics"))?;
    let conflate = attach.properties.map(|items| items.get(CONFLATE)).transpose();
    let conflate = conflate.map_err(|_| (INVALID_FIELD, "the properties of the link cannot be read"))?.flatten();
    let wants_latest = matches!(conflate, Some(Value::Text("latest") | Value::Symbol("latest")));
    let qos = if attach.snd_settle_mode == 1 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
    let id = id_of(text);
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    // All links to one filter are one subscription, as good as the best of them wants.
    let links = link.by_id.get(&id).cloned().unwrap_or_default();
    let is_other = |place: &(u16, u32)| {
        let link = link.sessions.get(&place.0).and_then(|session| session.links.get(&place.1));
        matches!(link, Some(Link::Receiver(link)) if &*link.filter != text)
    };
    if links.iter().any(is_other) {
        // One in 268 million pairs.
        return Err((INTERNAL, "another filter of this connection is in the way"));
    }
    let best = if links.is_empty() { qos } else { QoS::AtLeastOnce };
    link.granted = None;
    let options = SubscriptionOptions { retain_handling: RetainHandling::Send, ..SubscriptionOptions::with_qos(best) };
    let request = SubscriptionRequest { number: NonZeroU16::MIN, id: Some(id), wants_latest };
    // Before the core is asked: what is retained comes with the answer, and waits for credit.
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    let queue = link.take_home(id);
    let receiver = ReceiverLink {
        name: attach.name.into(),
        filter: text.into(),
        id,
        qos,
        is_unsettled: attach.snd_settle_mode == 0,
        message_bytes_max: attach.max_message_size,
        delivery_count: 0,
        credit: 0,
        drain: false,
        said_after: 0,
        queue,
    };
    let reply = AttachReply {
        name: attach.name,
        handle: attach.handle,
        role: Role::Sender,
        snd_settle_mode: attach.snd_settle_mode,
        source: Some(address),
        target: Some(TargetReply(attach.target.and_then(|target| target.address))),
        durable: source.durable,
        message_bytes_max: 0,
    };
    put_attach(channel, &reply, &mut link.attach_reply);
    if let Some(session) = link.sessions.get_mut(&channel) {
        session.links.insert(attach.handle, Link::Receiver(receiver));
        link.by_id.entry(id).or_default().push((channel, attach.handle));
    }
    // With the answer goes the attach: where the subscription is to outlive a crash, when it would.
    shard.subscribe(conn, request, core::iter::once(Subscription { filter, options }), moment.now());
    let owed = shard.owed(conn);
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    link.attach_reply.clear();
    let granted = link.granted.take();
    if let Some(Ok(_)) = granted {
        if let Some(Link::Receiver(receiver)) = link.link_mut(channel, attach.handle) {
            receiver.said_after = owed;
        }
        let numbers = link.call_home(id);
        if !numbers.is_empty() {
            shard.offer_again(conn, &numbers, moment.now());
        }
        shard.handle_room(conn, moment.now());
        return Ok(());
    }
    if let Some(Link::Receiver(refused)) =
        link.sessions.get_mut(&channel).and_then(|session| session.links.remove(&attach.handle))
    {
        link.forget_receiver((channel, attach.handle), &refused, Leaving::Detached);
    }
    Err(match granted {
        Some(Err(reason)) => (condition_of(reason), reason.name()),
        _ => (INTERNAL, "nobody has answered"),
    })
}
