//! Frames of a connected client, as verbs of its shard.

use core::num::{NonZeroU16, NonZeroU32};

use tidegate_core::event::Why;
use tidegate_core::{Confirmation, ConnId, Ending, Flow, Moment, ReadStep, Shard, WillFate};
use tidegate_wire_mqtt::{ReasonCode, TopicFilter};

use crate::condition::{AmqpError, DECODE, FRAMING, Fault, ILLEGAL_STATE, NOT_ALLOWED, UNATTACHED};
use crate::frame::{self, Frame, Framed};
use crate::limits::{FRAME_BYTES_MAX, HANDLE_MAX};
use crate::link::AmqpLink;
use crate::performative::{Begin, Detach, Disposition, Flow as FlowFrame, Performative, Role};
use crate::reply::{DeliveryState, put_begin, put_detach, put_disposition, put_end};
use crate::session::{Link, Session, SessionState};
use crate::types::{Malformed, Reader};
use crate::write::AMQP_FRAME;
use crate::{attach, transfer};

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
        confirm(shard, conn, moment);
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

/// Tells the core of messages that receivers have.
pub(crate) fn confirm(shard: &mut Shard, conn: ConnId, moment: &Moment) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    let (confirmed, returned) = (core::mem::take(&mut link.confirmed), core::mem::take(&mut link.returned));
    for number in &confirmed {
        link.returns.remove(number);
    }
    for number in confirmed {
        // It is of QoS 1, or unknown: there is no way to confuse them.
        let _ = shard.confirm(conn, number, Confirmation::Received, moment.now());
    }
    for number in returned {
        shard.return_message(conn, number, moment.now());
    }
}

/// Ends what a fault ends. Some: that is the connection.
fn fail(shard: &mut Shard, conn: ConnId, channel: u16, fault: Fault) -> Option<Ending> {
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
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(Outcome::On) };
    match performative {
        Performative::Open(_) => return Err(connection(ILLEGAL_STATE, "a second open")),
        Performative::Close => return Ok(Outcome::Ends(Ending::new(Why::Goodbye, WillFate::Discard))),
        Performative::Begin(begin) => return self::begin(link, channel, &begin).map(|()| Outcome::On),
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
        Performative::Flow(flow) => self::flow(shard, conn, channel, &flow, moment)?,
        Performative::Transfer(frame_of) => {
            let arrived = transfer::Arrived { transfer: &frame_of, payload: reader.rest(), size: frame.size };
            return transfer::transfer(shard, conn, channel, &arrived, moment, is_publication);
        }
        Performative::Disposition(disposition) => self::disposition(link, channel, &disposition),
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

fn begin(link: &mut AmqpLink, channel: u16, begin: &Begin) -> Result<(), Fault> {
    if channel > link.channel_max {
        return Err(connection(FRAMING, "a channel beyond channel-max"));
    }
    if begin.remote_channel.is_some() {
        return Err(connection(NOT_ALLOWED, "an answer to a begin that nobody has sent"));
    }
    if link.sessions.contains_key(&channel) {
        return Err(connection(ILLEGAL_STATE, "a session has begun on this channel"));
    }
    link.sessions.insert(channel, Session::new(begin.next_outgoing_id, begin.incoming_window));
    put_begin(channel, 0, &mut link.outgoing);
    Ok(())
}

fn flow(shard: &mut Shard, conn: ConnId, channel: u16, flow: &FlowFrame, moment: &Moment) -> Result<(), Fault> {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    let Some(session) = link.sessions.get_mut(&channel) else { return Ok(()) };
    session.set_remote_window(flow.next_incoming_id, flow.incoming_window);
    let Some(handle) = flow.handle else {
        link.send_all_parked(channel);
        shard.handle_room(conn, moment.now());
        if flow.echo
            && let Some((link, _)) = shard.face_mut::<AmqpLink>(conn)
        {
            put_flow_of(link, channel, None);
        }
        return Ok(());
    };
    check_handle(handle)?;
    match session.links.get_mut(&handle) {
        None => return Err(session_fault(UNATTACHED, "credit for a link that is not attached")),
        Some(Link::DetachSent) => return Ok(()),
        Some(Link::Sender(_)) => {}
        Some(Link::Receiver(receiver)) => {
            // Section 2.6.7: what is left of it, by what the receiver has seen; of who has seen nothing, all of it.
            if let Some(credit) = flow.link_credit {
                let seen = flow.delivery_count.unwrap_or(0);
                let left = seen.wrapping_add(credit).wrapping_sub(receiver.delivery_count);
                receiver.credit = if left > u32::MAX / 2 { 0 } else { left };
            }
            receiver.drain = flow.drain;
            link.send_all_parked(channel);
            shard.handle_room(conn, moment.now());
            let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
            if drain(link, channel, handle) {
                return Ok(());
            }
        }
    }
    if flow.echo
        && let Some((link, _)) = shard.face_mut::<AmqpLink>(conn)
    {
        put_flow_of(link, channel, Some(handle));
    }
    Ok(())
}

/// A receiver that wants what there is now, and no more: its credit is used up. True: it was told so.
fn drain(link: &mut AmqpLink, channel: u16, handle: u32) -> bool {
    let Some(Link::Receiver(receiver)) = link.link_mut(channel, handle) else { return false };
    if !receiver.drain || !receiver.queue.is_empty() {
        return false;
    }
    receiver.drain = false;
    receiver.delivery_count = receiver.delivery_count.wrapping_add(core::mem::take(&mut receiver.credit));
    put_flow_with(link, channel, Some(handle), true);
    true
}

fn put_flow_of(link: &mut AmqpLink, channel: u16, handle: Option<u32>) {
    put_flow_with(link, channel, handle, false);
}

fn put_flow_with(link: &mut AmqpLink, channel: u16, handle: Option<u32>, drain: bool) {
    let mut out = core::mem::take(&mut link.outgoing);
    if let Some(session) = link.sessions.get_mut(&channel) {
        let counts = handle.and_then(|handle| match session.links.get(&handle)? {
            Link::Sender(link) => Some((handle, link.delivery_count, link.credit)),
            Link::Receiver(link) => Some((handle, link.delivery_count, link.credit)),
            Link::DetachSent => None,
        });
        let flow = counts.map(|(handle, delivery_count, credit)| crate::reply::LinkFlow {
            handle,
            delivery_count,
            credit,
            drain,
        });
        session.put_flow(channel, flow, &mut out);
    }
    link.outgoing = out;
}

/// What became of messages, at a receiver. That it did not want one is the end of it all the same: a topic has no place to
/// take it back to.
fn disposition(link: &mut AmqpLink, channel: u16, disposition: &Disposition) {
    // What the peer says of its own messages is settled here already.
    if disposition.role == Role::Sender {
        return;
    }
    let is_outcome = matches!(disposition.state, Some(0x24..=0x27));
    if !is_outcome && !disposition.settled {
        return;
    }
    let Some(session) = link.sessions.get_mut(&channel) else { return };
    let named = session.named(disposition.first, disposition.last);
    let answered: Vec<_> = named.iter().filter_map(|id| Some((*id, session.unsettled.remove(id)?.number))).collect();
    for (id, number) in answered {
        let is_given_back = disposition.is_return && number.is_some_and(|number| link.give_back(number));
        if matches!(disposition.state, Some(0x25..=0x27)) && !is_given_back {
            link.counts.declined += 1;
        }
        if !disposition.settled {
            // It waits for this side to settle first.
            put_disposition(channel, Role::Sender, id, Some(&DeliveryState::Accepted), &mut link.outgoing);
        }
        if let Some(number) = number.filter(|_| !is_given_back) {
            link.answered(number);
        }
    }
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
    let Some(Link::Receiver(gone)) = session.links.remove(&handle) else { return };
    link.forget_receiver(channel, handle, &gone);
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
