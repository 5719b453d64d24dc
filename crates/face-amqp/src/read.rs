//! Frames of a connected client, as verbs of its shard.

use core::num::{NonZeroU16, NonZeroU32};

use tidegate_control::Timestamp;
use tidegate_core::event::Why;
use tidegate_core::ledger::Loss;
use tidegate_core::{Charge, Confirmation, ConnId, Ending, Flow, Moment, ReadStep, Shard, WillFate};
use tidegate_wire_mqtt::{ReasonCode, TopicFilter};

use crate::condition::{AmqpError, DECODE, FRAMING, Fault, ILLEGAL_STATE, NOT_ALLOWED, UNATTACHED};
use crate::frame::{self, Frame, Framed};
use crate::limits::{FRAME_BYTES_MAX, HANDLE_MAX};
use crate::link::AmqpLink;
use crate::outbound::Fate;
use crate::performative::{Begin, Detach, Disposition, Performative, Role};
use crate::reply::{DeliveryState, put_begin, put_detach, put_disposition, put_end};
use crate::session::{Link, Session, SessionState, Unsettled};
use crate::types::{Malformed, Reader};
use crate::write::AMQP_FRAME;
use crate::{attach, flow, transfer};

/// The frame that begins these bytes, and what became of it.
pub(crate) fn step(shard: &mut Shard, conn: ConnId, bytes: &[u8], moment: &Moment) -> ReadStep {
    let frame = match frame::read(bytes, FRAME_BYTES_MAX) {
        Framed::Frame(frame) => frame,
        Framed::Incomplete(at_least) => return ReadStep::Incomplete { at_least },
        Framed::Broken(why) => {
            let fault = Fault::Connection(AmqpError::new(FRAMING, why));
            return ReadStep::Broken(
                fail(shard, conn, 0, fault).unwrap_or_else(|| Ending::new(Why::Lost, WillFate::Publish)),
            );
        }
    };
    if let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) {
        link.counts.frames += 1;
    }
    let mut is_publication = false;
    let handled = match handle(shard, conn, &frame, moment, &mut is_publication) {
        Ok(Outcome::On) => Ok(Flow::On),
        Ok(Outcome::Wait) => Ok(Flow::Wait),
        Ok(Outcome::Ends(ending)) => Err(ending),
        Err(fault) => match fail(shard, conn, frame.channel, fault) {
            None => Ok(Flow::On),
            Some(ending) => Err(ending),
        },
    };
    if handled.is_ok() {
        confirm(shard, conn, moment.now());
    }
    ReadStep::Packet { size: frame.size, is_publication, handled }
}

/// What became of a frame that broke no rule.
pub(crate) enum Outcome {
    On,
    /// It is to be handed in again.
    Wait,
    /// The connection ends.
    Ends(Ending),
}

/// Tells the core of messages that receivers have, will never have, or have given back.
pub(crate) fn confirm(shard: &mut Shard, conn: ConnId, now: Timestamp) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    let (confirmed, returned) = (core::mem::take(&mut link.confirmed), core::mem::take(&mut link.returned));
    for (number, _) in &confirmed {
        link.returns.remove(number);
    }
    for (number, fate) in confirmed {
        match fate {
            // It is of QoS 1, or unknown: there is no way to confuse them.
            Fate::Taken => {
                let _ = shard.confirm(conn, number, Confirmation::Received, now);
            }
            Fate::GivenUp => shard.lose_inflight(conn, number, Loss::SessionEnded, now),
        }
    }
    if !returned.is_empty() {
        shard.offer_again(conn, &returned, now);
    }
}

/// Ends what a fault ends. Some: that is the connection.
pub(crate) fn fail(shard: &mut Shard, conn: ConnId, channel: u16, fault: Fault) -> Option<Ending> {
    let (link, _) = shard.face_mut::<AmqpLink>(conn)?;
    link.counts.faults += 1;
    match fault {
        Fault::Connection(error) => {
            let reason = if [FRAMING, DECODE].contains(&error.condition) {
                ReasonCode::MalformedPacket
            } else {
                ReasonCode::ProtocolError
            };
            let ending = Ending::protocol(reason, &format!("{}: {}", error.condition.0, error.words));
            link.error = Some(error);
            Some(ending)
        }
        Fault::Session(error) => {
            end_links(shard, conn, channel);
            let (link, _) = shard.face_mut::<AmqpLink>(conn)?;
            if let Some(session) = link.sessions.get_mut(&channel) {
                session.state = SessionState::EndSent;
            }
            put_end(channel, Some(&error), &mut link.closing);
            None
        }
        Fault::Link(handle, error) => {
            forget_link(shard, conn, channel, handle, Leaving::Closed);
            let (link, _) = shard.face_mut::<AmqpLink>(conn)?;
            if let Some(session) = link.sessions.get_mut(&channel) {
                session.links.insert(handle, Link::DetachSent);
            }
            put_detach(channel, handle, true, Some(&error), &mut link.closing);
            None
        }
    }
}

fn handle(
    shard: &mut Shard,
    conn: ConnId,
    frame: &Frame<'_>,
    moment: &Moment,
    is_publication: &mut bool,
) -> Result<Outcome, Fault> {
    if frame.kind != AMQP_FRAME {
        return Err(connection(FRAMING, "a frame that is none of AMQP's"));
    }
    if frame.body.is_empty() {
        return Ok(Outcome::On);
    }
    let mut reader = Reader::new(frame.body);
    let described = reader.value()?.described().ok_or(Malformed("this is no performative"))?;
    let performative = Performative::read(&described)?;
    let channel = frame.channel;
    let Some((link, memory)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(Outcome::On) };
    match performative {
        Performative::Open(_) => return Err(connection(ILLEGAL_STATE, "a second open")),
        Performative::Close => return Ok(Outcome::Ends(Ending::new(Why::Goodbye, WillFate::Discard))),
        Performative::Begin(begin) => return self::begin(link, channel, &begin, memory.charge()).map(|()| Outcome::On),
        _ => {}
    }
    if channel > link.channel_max {
        return Err(connection(FRAMING, "a channel beyond channel-max"));
    }
    let Some(session) = link.sessions.get(&channel) else {
        return Err(connection(ILLEGAL_STATE, "a frame on a channel where no session has begun"));
    };
    let is_ended = session.state == SessionState::EndSent;
    match performative {
        Performative::End => {
            end_links(shard, conn, channel);
            if let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) {
                link.sessions.remove(&channel);
                if !is_ended {
                    put_end(channel, None, &mut link.closing);
                }
            }
        }
        // Section 2.5.5: what the peer sent before it has heard of the end.
        _ if is_ended => {}
        Performative::Attach(attach) => attach::attach(shard, conn, channel, &attach, moment)?,
        Performative::Flow(flow) => flow::flow(shard, conn, channel, &flow, moment)?,
        Performative::Transfer(frame_of) => {
            let arrived = transfer::Arrived { transfer: &frame_of, payload: reader.rest(), size: frame.size };
            return transfer::transfer(shard, conn, channel, &arrived, moment, is_publication);
        }
        Performative::Disposition(disposition) => {
            if self::disposition(link, channel, &disposition) {
                flow::send_waiting(shard, conn, channel, moment.now());
            }
        }
        Performative::Detach(detach) => self::detach(shard, conn, channel, detach)?,
        Performative::Open(_) | Performative::Close | Performative::Begin(_) => {}
    }
    Ok(Outcome::On)
}

pub(crate) fn connection(condition: crate::condition::Condition, words: &str) -> Fault {
    Fault::Connection(AmqpError::new(condition, words))
}

pub(crate) fn session_fault(condition: crate::condition::Condition, words: &str) -> Fault {
    Fault::Session(AmqpError::new(condition, words))
}

/// Section 2.7.3: a handle that cannot be.
pub(crate) fn check_handle(handle: u32) -> Result<(), Fault> {
    if handle > HANDLE_MAX { Err(connection(FRAMING, "a handle beyond handle-max")) } else { Ok(()) }
}

fn begin(link: &mut AmqpLink, channel: u16, begin: &Begin, charge: Charge) -> Result<(), Fault> {
    if channel > link.channel_max {
        return Err(connection(FRAMING, "a channel beyond channel-max"));
    }
    if begin.remote_channel.is_some() {
        return Err(connection(NOT_ALLOWED, "an answer to a begin that nobody has sent"));
    }
    if link.sessions.contains_key(&channel) {
        return Err(connection(ILLEGAL_STATE, "a session has begun on this channel"));
    }
    link.sessions.insert(channel, Session::new(begin.next_outgoing_id, begin.incoming_window, charge));
    put_begin(channel, 0, &mut link.outgoing);
    Ok(())
}

/// What became of messages, at a receiver. That it did not want one is the end of it all the same: a topic has no place to
/// take it back to. True: something may have waited for that.
fn disposition(link: &mut AmqpLink, channel: u16, disposition: &Disposition) -> bool {
    // What the peer says of its own messages is settled here already.
    if disposition.role == Role::Sender {
        return false;
    }
    let is_outcome = matches!(disposition.state, Some(0x24..=0x27));
    if !is_outcome && !disposition.settled {
        return false;
    }
    let Some(session) = link.sessions.get_mut(&channel) else { return false };
    let was_full = !session.has_place();
    for (id, Unsettled { number, .. }) in session.take_named(disposition.first, disposition.last) {
        let is_given_back = disposition.is_return && number.is_some_and(|number| link.give_back(number));
        if matches!(disposition.state, Some(0x25..=0x27)) && !is_given_back {
            link.counts.declined += 1;
        }
        if !disposition.settled {
            // It waits for this side to settle first.
            put_disposition(channel, Role::Sender, id, Some(&DeliveryState::Accepted), &mut link.outgoing);
        }
        if let Some(number) = number.filter(|_| !is_given_back) {
            link.answered(number, Fate::Taken);
        }
    }
    was_full
}

fn detach(shard: &mut Shard, conn: ConnId, channel: u16, detach: Detach) -> Result<(), Fault> {
    let Detach { handle, closed } = detach;
    check_handle(handle)?;
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    let is_ours = match link.link_mut(channel, handle) {
        None => return Err(session_fault(UNATTACHED, "the end of a link that is not attached")),
        Some(Link::DetachSent) => true,
        Some(_) => false,
    };
    forget_link(shard, conn, channel, handle, if closed { Leaving::Closed } else { Leaving::Detached });
    if let Some((link, _)) = shard.face_mut::<AmqpLink>(conn)
        && !is_ours
    {
        put_detach(channel, handle, closed, None, &mut link.closing);
    }
    Ok(())
}

/// How a link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// For good.
    Closed,
    /// It may come back: a subscription of a session that lasts stays.
    Detached,
}

fn end_links(shard: &mut Shard, conn: ConnId, channel: u16) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    let handles: Vec<u32> =
        link.sessions.get(&channel).map(|session| session.links.keys().copied().collect()).unwrap_or_default();
    for handle in handles {
        forget_link(shard, conn, channel, handle, Leaving::Detached);
    }
}

/// A link is gone, and so is its subscription unless another link, or the session, keeps it.
pub(crate) fn forget_link(shard: &mut Shard, conn: ConnId, channel: u16, handle: u32, leaving: Leaving) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    let Some(session) = link.sessions.get_mut(&channel) else { return };
    let gone = session.links.remove(&handle);
    if let Some(Link::Sender(_)) = gone {
        link.orphan_deliveries(channel, handle);
    }
    let Some(Link::Receiver(gone)) = gone else { return };
    link.forget_receiver((channel, handle), &gone, leaving);
    let is_kept = link.by_id.contains_key(&gone.id) || (link.is_lasting && leaving == Leaving::Detached);
    if is_kept {
        return;
    }
    let limits = shard.packet_limits().clone();
    if let Ok(filter) = TopicFilter::parse(&gone.filter, &limits) {
        shard.unsubscribe(conn, NonZeroU16::MIN, core::iter::once(filter));
    }
}

/// What a subscription is called in the core: the same for all links to its filter, and on the next connection.
pub(crate) fn id_of(filter: &str) -> NonZeroU32 {
    use core::hash::BuildHasher;
    let hash = foldhash::quality::FixedState::with_seed(IDS_SEED).hash_one(filter);
    // MQTT has 28 bits for it.
    NonZeroU32::new((hash % 0x0fff_ffff) as u32 + 1).unwrap_or(NonZeroU32::MIN)
}

const IDS_SEED: u64 = 0x616d_7170;
