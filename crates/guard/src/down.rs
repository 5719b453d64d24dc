//! From the other broker to a client, packet by packet.
//!
//! A message of QoS 0 may wait, and may be dropped: it goes to the client's queue as one of its publisher's flow, if that is known by
//! its topic. While anything waits, a topic stays with the flow that it was in, so that no message overtakes an earlier one
//! of its topic. All else keeps its order: what needs an answer is bounded by the other broker's window, and where
//! that broker may give numbers to topics (a client that takes topic aliases) each message may be needed by the next.

use tidegate_control::Timestamp;
use tidegate_core::{ConnId, Shard, Through};
use tidegate_wire_mqtt::{QoS, Version};

use crate::frame::{DISCONNECT, Front, Head, PINGRESP, PUBLISH, PublishHead, Seen, front};
use crate::link::{FLOWS_MAX, GuardLink, version_of};
use crate::origins::Origins;

/// What bytes of the other broker came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Bytes that were used; the driver keeps the rest.
    pub consumed: usize,
    /// Bytes (from the start of what is kept) that must be there before it is worth calling again.
    pub at_least: usize,
    pub next: NextDown,
    /// A last word was among them.
    pub is_last: bool,
}

/// Whether more is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextDown {
    More,
    /// Not before the client has taken some of what is there.
    Full,
    /// What came is no packet.
    Garbage,
}

/// Hands on as many whole packets as there are and as the client has room for.
pub(crate) fn pass(shard: &mut Shard, conn: ConnId, bytes: &[u8], origins: &Origins, now: Timestamp) -> Handed {
    let version = version_of(shard, conn);
    let mut handed = Handed { consumed: 0, at_least: 1, next: NextDown::More, is_last: false };
    while let Some(rest) = bytes.get(handed.consumed..).filter(|rest| !rest.is_empty()) {
        let head = match front(rest) {
            Front::Packet(head) if head.total <= rest.len() => head,
            Front::Packet(head) => {
                handed.at_least = head.total;
                return handed;
            }
            Front::Incomplete => {
                handed.at_least = rest.len() + 1;
                return handed;
            }
            Front::Malformed => return Handed { next: NextDown::Garbage, ..handed },
        };
        if shard.is_outbox_full(conn) {
            return Handed { next: NextDown::Full, ..handed };
        }
        handed.is_last |= head.kind == DISCONNECT;
        packet(shard, conn, version, head, &rest[..head.total], origins, now);
        handed.consumed += head.total;
    }
    handed
}

fn packet(
    shard: &mut Shard,
    conn: ConnId,
    version: Version,
    head: Head,
    packet: &[u8],
    origins: &Origins,
    now: Timestamp,
) {
    match head.kind {
        PUBLISH => match head.publish(packet, version) {
            Seen::Known(publish) => message(shard, conn, packet, &publish, origins, now),
            Seen::Incomplete(_) => shard.put_through(conn, packet, Through::Message, now),
        },
        PINGRESP => {
            let owed = shard.face_mut::<GuardLink>(conn).map(|(link, _)| &mut link.pings_owed);
            match owed.filter(|owed| **owed > 0) {
                Some(owed) => *owed -= 1,
                None => shard.put_through(conn, packet, Through::Answer, now),
            }
        }
        DISCONNECT => {
            shard.put_through(conn, packet, Through::Last, now);
            if let Some((link, _)) = shard.face_mut::<GuardLink>(conn) {
                link.is_dismissed = true;
            }
        }
        _ => shard.put_through(conn, packet, Through::Answer, now),
    }
}

fn message(
    shard: &mut Shard,
    conn: ConnId,
    packet: &[u8],
    publish: &PublishHead<'_>,
    origins: &Origins,
    now: Timestamp,
) {
    let is_behind = shard.is_behind(conn);
    let Some((link, _)) = shard.face_mut::<GuardLink>(conn) else { return };
    let may_wait = publish.qos == Some(QoS::AtMostOnce) && publish.alias.is_none() && !link.is_in_order;
    if !may_wait {
        return shard.put_through(conn, packet, Through::Message, now);
    }
    let topic = origins.number(publish.topic);
    let mut provenance = origins.find(topic);
    if is_behind {
        provenance.origin = stay(link, topic, provenance.origin);
    } else {
        if !link.flows.is_empty() {
            link.flows.clear();
        }
        // It may be the first that waits: the next of its topic is to wait behind it.
        link.last = (topic, provenance.origin);
    }
    shard.hand_down(conn, packet, core::str::from_utf8(publish.topic).unwrap_or_default(), provenance, now);
}

/// The flow of a topic while messages wait: the one that it was in before.
fn stay(link: &mut GuardLink, topic: u64, origin: u64) -> u64 {
    if link.flows.is_empty() {
        link.flows.insert(link.last.0, link.last.1);
    }
    if let Some(flow) = link.flows.get(&topic) {
        return *flow;
    }
    if link.flows.len() >= FLOWS_MAX {
        return OVERFLOW;
    }
    link.flows.insert(topic, origin);
    origin
}

/// The flow of topics beyond those that are remembered.
const OVERFLOW: u64 = 1;
