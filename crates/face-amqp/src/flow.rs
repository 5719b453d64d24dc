//! Windows of sessions and credit of receivers, as the peer tells of them; and what was waiting for that.

use tidegate_control::Timestamp;
use tidegate_core::{ConnId, Moment, Shard};

use crate::condition::{Fault, UNATTACHED};
use crate::link::AmqpLink;
use crate::performative::Flow as FlowFrame;
use crate::read::{check_handle, session_fault};
use crate::session::{Link, left_of};

pub(crate) fn flow(
    shard: &mut Shard,
    conn: ConnId,
    channel: u16,
    flow: &FlowFrame,
    moment: &Moment,
) -> Result<(), Fault> {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    let Some(session) = link.sessions.get_mut(&channel) else { return Ok(()) };
    session.set_remote_window(flow.next_incoming_id, flow.incoming_window);
    let mut drains = false;
    if let Some(handle) = flow.handle {
        check_handle(handle)?;
        match session.links.get_mut(&handle) {
            None => return Err(session_fault(UNATTACHED, "credit for a link that is not attached")),
            Some(Link::DetachSent) => return Ok(()),
            Some(Link::Sender(_)) => {}
            Some(Link::Receiver(receiver)) => {
                // Section 2.6.7: what is left of it, by what the receiver has seen; of who has seen nothing, all of it.
                if let Some(credit) = flow.link_credit {
                    receiver.credit = left_of(credit, flow.delivery_count.unwrap_or(0), receiver.delivery_count);
                }
                receiver.drain = flow.drain;
                drains = flow.drain;
            }
        }
    }
    send_waiting(shard, conn, channel, moment.now());
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(()) };
    let is_told = drains && !flow.handle.is_some_and(|handle| is_draining(link, channel, handle));
    if flow.echo && !is_told {
        put_flow_of(link, channel, flow.handle);
    }
    Ok(())
}

/// Sends what waits for links of a session, here and in the core, and tells those that drain if that was all.
pub(crate) fn send_waiting(shard: &mut Shard, conn: ConnId, channel: u16, now: Timestamp) {
    if let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) {
        link.send_all_parked(channel);
    }
    shard.handle_room(conn, now);
    drain_all(shard, conn);
}

fn is_draining(link: &mut AmqpLink, channel: u16, handle: u32) -> bool {
    matches!(link.link_mut(channel, handle), Some(Link::Receiver(receiver)) if receiver.drain)
}

/// Receivers that want what there is now, and no more: their credit is used up, and they are told so. Not while something keeps
/// the core from sending what it has.
pub(crate) fn drain_all(shard: &mut Shard, conn: ConnId) {
    let is_full = shard.is_outbox_full(conn);
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    if is_full || link.ahead.is_behind {
        return;
    }
    for (channel, handle) in link.draining() {
        let Some(Link::Receiver(receiver)) = link.link_mut(channel, handle) else { continue };
        if receiver.queue.is_empty() && receiver.said_after == 0 {
            receiver.drain = false;
            receiver.delivery_count = receiver.delivery_count.wrapping_add(core::mem::take(&mut receiver.credit));
            put_flow_with(link, channel, Some(handle), true);
        }
    }
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
