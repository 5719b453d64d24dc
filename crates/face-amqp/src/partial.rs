//! Deliveries of which the first frames are here and the last is not: how much of them is kept, and for how long.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::{Charge, ConnId, Kind, Shard};

use crate::condition::{AmqpError, Fault, RESOURCE_LIMIT};
use crate::limits::{PARTIAL_BYTES_PER_SECOND_MIN, PARTIAL_PATIENCE, PARTIALS_MAX};
use crate::link::AmqpLink;
use crate::read::{Outcome, fail};
use crate::session::{Link, SenderLink};
use crate::transfer::{Arrived, Of, note_frame};

/// The first frames of a delivery.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) delivery_id: u32,
    pub(crate) is_settled: bool,
    /// The peer may not publish to the topic of the link: nothing of it is kept.
    pub(crate) is_denied: bool,
    /// When it began, or when the peer was last not read.
    pub(crate) since: Timestamp,
    pub(crate) bytes: Vec<u8>,
    pub(crate) charge: Charge,
}

impl Partial {
    /// When its rest has to be there.
    fn due(&self) -> Timestamp {
        self.since + PARTIAL_PATIENCE + Duration::from_secs((self.bytes.len() / PARTIAL_BYTES_PER_SECOND_MIN) as u64)
    }
}

impl AmqpLink {
    /// Bytes of deliveries of which more is to come.
    fn partial_bytes(&self) -> usize {
        self.partials().map(|(_, partial)| partial.bytes.len()).sum()
    }

    /// When the first of them has to be there.
    pub(crate) fn partial_due(&self) -> Option<Timestamp> {
        self.partials().map(|(_, partial)| partial.due()).min()
    }

    /// Links whose messages have taken too long.
    fn overdue_partials(&self, now: Timestamp) -> Vec<(u16, u32)> {
        self.partials().filter(|(_, partial)| partial.due() <= now).map(|(place, _)| place).collect()
    }

    /// The peer is not read: that its messages do not come is not its doing.
    fn forgive_partials(&mut self, now: Timestamp) {
        for link in self.sessions.values_mut().flat_map(|session| session.links.values_mut()) {
            if let Link::Sender(SenderLink { partial: Some(partial), .. }) = link {
                partial.since = now;
            }
        }
    }

    fn partials(&self) -> impl Iterator<Item = ((u16, u32), &Partial)> {
        self.sessions.iter().flat_map(|(channel, session)| {
            session.links.iter().filter_map(move |(handle, link)| match link {
                Link::Sender(SenderLink { partial: Some(partial), .. }) => Some(((*channel, *handle), &**partial)),
                _ => None,
            })
        })
    }
}

/// A frame of a delivery of which more is to come, or nothing any more.
pub(crate) fn keep_part(
    shard: &mut Shard,
    conn: ConnId,
    (channel, handle): (u16, u32),
    of: &Of,
    arrived: &Arrived<'_>,
    now: Timestamp,
) -> Result<Outcome, Fault> {
    // Who may not publish there does not fill memory first. Where a message says itself where it goes, its end tells.
    let is_denied = of.begins && of.topic.as_deref().is_some_and(|topic| !shard.may_publish(conn, topic));
    let bytes_max = (shard.packet_limits().packet_bytes_max as usize).saturating_mul(PARTIALS_MAX);
    let Some((link, memory)) = shard.face_mut::<AmqpLink>(conn) else { return Ok(Outcome::On) };
    let length = arrived.payload.len();
    let has_room = link.partial_bytes() + length <= bytes_max && memory.has_room(Kind::Incoming, length);
    let Some(Link::Sender(sender)) = link.link_mut(channel, handle) else { return Ok(Outcome::On) };
    // The first frame of a delivery uses the credit.
    if of.begins {
        sender.note_delivery();
    }
    if arrived.transfer.aborted {
        sender.partial = None;
    } else {
        let partial = sender.partial.get_or_insert_with(|| {
            let (bytes, charge) = (Vec::new(), memory.charge());
            Box::new(Partial { delivery_id: of.id, is_settled: of.is_settled, is_denied, since: now, bytes, charge })
        });
        partial.is_settled |= of.is_settled;
        if !partial.is_denied {
            if !has_room {
                let words = "no room for the beginnings of so many messages";
                return Err(Fault::Link(handle, AmqpError::new(RESOURCE_LIMIT, words)));
            }
            partial.bytes.extend_from_slice(arrived.payload);
            partial.charge.change(length, 0);
        }
    }
    note_frame(link, channel);
    Ok(Outcome::On)
}

/// Ends links whose messages have begun, and do not go on. Whoever is not read cannot be blamed for that.
pub(crate) fn end_overdue_partials(shard: &mut Shard, conn: ConnId, now: Timestamp) {
    let may_read = shard.may_read(conn);
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    if !may_read {
        return link.forgive_partials(now);
    }
    for (channel, handle) in link.overdue_partials(now) {
        let error = AmqpError::new(RESOURCE_LIMIT, "the rest of a message took too long to arrive");
        fail(shard, conn, channel, Fault::Link(handle, error));
    }
}
