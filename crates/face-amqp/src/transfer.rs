//! Transfers of a client: frames of a delivery, and the message that they are, as a publication.

use std::borrow::Cow;

use tidegate_core::ledger::Loss;
use tidegate_core::{ConnId, Flow, Incoming, Moment, Shard};
use tidegate_wire_mqtt::topic::check_name;
use tidegate_wire_mqtt::{Delivery, Properties, ReasonCode};

use crate::attach::plain;
use crate::condition::{
    AmqpError, Condition, Fault, INVALID_FIELD, MESSAGE_SIZE, NOT_ALLOWED, NOT_IMPLEMENTED, PRECONDITION,
    RESOURCE_LIMIT, TRANSFER_LIMIT, UNATTACHED, WINDOW_VIOLATION, condition_of,
};
use crate::limits::TAG_BYTES_MAX;
use crate::link::AmqpLink;
use crate::message::Message;
use crate::partial::keep_part;
use crate::performative::Transfer;
use crate::read::{Outcome, check_handle, session_fault};
use crate::reply::DeliveryState;
use crate::session::{Link, SenderLink};

/// A transfer as it came.
pub(crate) struct Arrived<'a> {
    pub(crate) transfer: &'a Transfer<'a>,
    pub(crate) payload: &'a [u8],
    /// Bytes of the frame.
    pub(crate) size: usize,
}

/// Which delivery it is of.
pub(crate) struct Of {
    pub(crate) id: u32,
    pub(crate) is_settled: bool,
    /// Nothing of it has come before.
    pub(crate) begins: bool,
    pub(crate) topic: Option<Box<str>>,
    retain: bool,
}

pub(crate) fn transfer(
    shard: &mut Shard,
    conn: ConnId,
    channel: u16,
    arrived: &Arrived<'_>,
    moment: &Moment,
    is_publication: &mut bool,
) -> Result<Outcome, Fault> {
    let handle = arrived.transfer.handle;
    check_handle(handle)?;
    let message_bytes_max = shard.packet_limits().packet_bytes_max as usize;
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(Outcome::On) };
    let Some(session) = link.sessions.get_mut(&channel) else { return Ok(Outcome::On) };
    if session.incoming_left == 0 {
        return Err(session_fault(WINDOW_VIOLATION, "more transfers than the window of the session"));
    }
    let sender = match session.links.get_mut(&handle) {
        None => return Err(session_fault(UNATTACHED, "a transfer by a link that is not attached")),
        Some(Link::Receiver(_)) => return Err(session_fault(NOT_ALLOWED, "a transfer by a link of a receiver")),
        Some(Link::DetachSent) => {
            note_frame(link, channel);
            return Ok(Outcome::On);
        }
        Some(Link::Sender(sender)) => sender,
    };
    let of = check(sender, arrived, message_bytes_max).map_err(|(condition, words)| {
        let error = AmqpError::new(condition, words);
        if condition == INVALID_FIELD { Fault::Session(error) } else { Fault::Link(handle, error) }
    })?;
    if arrived.transfer.aborted || arrived.transfer.more {
        return keep_part(shard, conn, (channel, handle), &of, arrived, moment.now());
    }
    if sender.partial.as_ref().is_some_and(|partial| partial.is_denied) {
        sender.partial = None;
        note_frame(link, channel);
        *is_publication = true;
        shard.note_lost_input(conn, Loss::Denied);
        let reason = ReasonCode::NotAuthorized;
        let error = AmqpError::new(condition_of(reason), reason.name());
        settle(shard, conn, channel, &of, &DeliveryState::Rejected(error));
        return Ok(Outcome::On);
    }
    let bytes: Cow<'_, [u8]> = match &sender.partial {
        None => Cow::Borrowed(arrived.payload),
        Some(partial) => Cow::Owned([&partial.bytes, arrived.payload].concat()),
    };
    *is_publication = true;
    let taken = publish(shard, conn, (channel, handle), &of, &bytes, arrived.size, moment)?;
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(taken) };
    if matches!(taken, Outcome::Wait) {
        link.pace.note_waiting();
        return Ok(taken);
    }
    link.pace.note_taken();
    if let Some(Link::Sender(sender)) = link.link_mut(channel, handle)
        && sender.partial.take().is_none()
    {
        sender.note_delivery();
    }
    note_frame(link, channel);
    Ok(taken)
}

/// A frame was taken: the session hears of more room in time.
pub(crate) fn note_frame(link: &mut AmqpLink, channel: u16) {
    let mut out = core::mem::take(&mut link.outgoing);
    if let Some(session) = link.sessions.get_mut(&channel)
        && session.note_transfer()
    {
        session.put_flow(channel, None, &mut out);
    }
    link.outgoing = out;
}

/// What has to be true of a transfer (section 2.7.5).
fn check(sender: &SenderLink, arrived: &Arrived<'_>, bytes_max: usize) -> Result<Of, (Condition, &'static str)> {
    let transfer = arrived.transfer;
    if transfer.resume {
        return Err((NOT_IMPLEMENTED, "deliveries are not resumed here"));
    }
    let before = sender.partial.as_ref().map_or(0, |partial| partial.bytes.len());
    if before + arrived.payload.len() > bytes_max {
        return Err((MESSAGE_SIZE, "the message is larger than max-message-size"));
    }
    let (id, was_settled) = match &sender.partial {
        Some(partial) if transfer.delivery_id.is_some_and(|id| id != partial.delivery_id) => {
            return Err((INVALID_FIELD, "a delivery begins before the one before it has ended"));
        }
        Some(partial) => (partial.delivery_id, partial.is_settled),
        None if !sender.may_begin() => return Err((TRANSFER_LIMIT, "more messages than the credit of the link")),
        None => {
            let is_tag = transfer.delivery_tag.is_some_and(|tag| tag.len() <= TAG_BYTES_MAX);
            if !is_tag {
                return Err((INVALID_FIELD, "a delivery has a tag of at most 32 bytes"));
            }
            let id = transfer.delivery_id.ok_or((INVALID_FIELD, "a delivery has a number"))?;
            (id, false)
        }
    };
    if transfer.message_format.unwrap_or(0) != 0 {
        return Err((NOT_IMPLEMENTED, "the only format of a message is that of AMQP 1.0"));
    }
    let is_settled = was_settled || transfer.settled.unwrap_or(false);
    Ok(Of { id, is_settled, begins: sender.partial.is_none(), topic: sender.topic.clone(), retain: sender.retain })
}

/// A whole message.
fn publish(
    shard: &mut Shard,
    conn: ConnId,
    (channel, handle): (u16, u32),
    of: &Of,
    bytes: &[u8],
    size: usize,
    moment: &Moment,
) -> Result<Outcome, Fault> {
    let checked = Message::read(bytes).and_then(|message| {
        check_message(shard, of, &message)?;
        Ok(message)
    });
    let message = match checked {
        Ok(message) => message,
        Err(error) => {
            shard.note_lost_input(conn, Loss::Rejected);
            settle(shard, conn, channel, of, &DeliveryState::Rejected(error));
            return Ok(Outcome::On);
        }
    };
    // That of the link was stripped when it was attached.
    let topic = of.topic.as_deref().or(message.to.map(plain)).unwrap_or_default();
    let list = message.properties(shard.wall_millis(moment.now()));
    let properties = if list.is_empty() { Properties::EMPTY } else { Properties::new(&list) };
    let mut number = None;
    // Somebody waits for an answer, and only of a message with a number the core says whether it was taken: also where the
    // broker promises its receivers no more than QoS 0.
    if !of.is_settled {
        let opened = shard.face_mut::<AmqpLink>(conn).and_then(|(link, _)| link.open_delivery(channel, handle, of.id));
        let Some(opened) = opened else {
            shard.note_lost_input(conn, Loss::Refused);
            let words = "too many messages of this connection wait for their answers";
            return Err(Fault::Link(handle, AmqpError::new(RESOURCE_LIMIT, words)));
        };
        number = Some(opened);
    }
    let delivery = match number {
        Some(packet_id) => Delivery::AtLeastOnce { packet_id, dup: false },
        None => Delivery::AtMostOnce,
    };
    let retain = of.retain || message.retain;
    let incoming = Incoming { topic, payload: &message.payload, properties, delivery, retain };
    Ok(match shard.publish(conn, &incoming, moment.came(size), moment.now()) {
        Ok(Flow::On) => Outcome::On,
        Ok(Flow::Wait) => {
            if let (Some(number), Some((link, _))) = (number, shard.face_mut::<AmqpLink>(conn)) {
                link.reopen_later(number);
            }
            Outcome::Wait
        }
        Err(ending) => Outcome::Ends(ending),
    })
}

fn check_message(shard: &Shard, of: &Of, message: &Message<'_>) -> Result<(), AmqpError> {
    let limits = shard.packet_limits();
    if of.topic.is_none() {
        let Some(to) = message.to else {
            return Err(AmqpError::new(PRECONDITION, "neither the target nor the message says where it goes"));
        };
        if check_name(plain(to), limits).is_err() {
            return Err(AmqpError::new(INVALID_FIELD, "to is the name of a topic"));
        }
    }
    if message.reply_to().is_some_and(|topic| check_name(topic, limits).is_err()) {
        return Err(AmqpError::new(INVALID_FIELD, "reply-to is the name of a topic"));
    }
    if (of.retain || message.retain) && !shard.settings().retain_available {
        return Err(AmqpError::new(NOT_IMPLEMENTED, "this broker keeps no state of topics"));
    }
    Ok(())
}

/// Answers a message at once, if somebody waits for that.
fn settle(shard: &mut Shard, conn: ConnId, channel: u16, of: &Of, state: &DeliveryState) {
    if of.is_settled {
        return;
    }
    if let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) {
        let mut out = core::mem::take(&mut link.outgoing);
        link.put_settled(channel, of.id, state, &mut out);
        link.outgoing = out;
    }
}
