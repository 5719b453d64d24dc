//! How a shard speaks to one connection: its sessions, deliveries on their way in both directions, and the credit of those
//! who publish.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_core::Memory;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_wire_mqtt::{Delivery, PacketId, QoS, ReasonCode};

use crate::condition::{AmqpError, condition_of, error_of};
use crate::homeless::Homeless;
use crate::limits::{CREDIT_MAX, INBOUND_MAX};
use crate::outbound::{Copies, Fate, Parked};
use crate::pace::Pace;
use crate::performative::Role;
use crate::reply::{DeliveryState, put_close, put_disposition, put_open};
use crate::session::{Ahead, Link, Session};

/// One connection.
#[derive(Debug)]
pub struct AmqpLink {
    /// Bytes of a frame that the peer takes.
    pub(crate) frame_bytes_max: usize,
    pub(crate) channel_max: u16,
    /// Seconds that the peer may be silent.
    idle_seconds: u16,
    /// Its session outlives the connection.
    pub(crate) is_lasting: bool,
    pub(crate) sessions: BTreeMap<u16, Session>,
    /// Links of receivers, by what their subscription is called in the core.
    pub(crate) by_id: BTreeMap<NonZeroU32, Vec<(u16, u32)>>,
    /// What is for subscriptions from before that have no link yet.
    pub(crate) homeless: Homeless,
    /// Copies of messages that were sent by more than one link.
    pub(crate) copies: BTreeMap<PacketId, Copies>,
    /// Messages of which the core is to be told what became.
    pub(crate) confirmed: Vec<(PacketId, Fate)>,
    /// Messages that receivers have given back and are to have again...
    pub(crate) returned: BTreeSet<PacketId>,
    /// ...and how often each of those under way was.
    pub(crate) returns: BTreeMap<PacketId, u8>,
    /// Messages of the peer that wait for their answers, by the core's number.
    deliveries: BTreeMap<u16, IncomingDelivery>,
    next_number: u16,
    pub(crate) parked: Parked,
    pub(crate) ahead: Ahead,
    /// The attach of a link has been said, and something may have waited for that.
    has_said: bool,
    /// What became of the subscription that was just asked for, and what is said if it is granted.
    pub(crate) granted: Option<Result<QoS, ReasonCode>>,
    pub(crate) attach_reply: Vec<u8>,
    pub(crate) pace: Pace,
    /// What is to be said at the next opportunity...
    pub(crate) outgoing: Vec<u8>,
    /// ...and what comes after all answers that wait, once it is their turn.
    pub(crate) closing: Vec<u8>,
    pub(crate) is_closing_due: bool,
    /// Why this side ends it.
    pub(crate) error: Option<AmqpError>,
    pub(crate) counts: LinkCounts,
}

/// What was counted since the door has last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkCounts {
    pub(crate) frames: u64,
    pub(crate) faults: u64,
    pub(crate) links_refused: u64,
    pub(crate) rejected: u64,
    pub(crate) modified: u64,
    pub(crate) declined: u64,
    pub(crate) returned: u64,
    pub(crate) given_up: u64,
}

/// Where a message of the peer came from.
#[derive(Clone, Copy, Debug)]
struct IncomingDelivery {
    channel: u16,
    /// None: its link is gone. The number stays taken until the core has answered.
    handle: Option<u32>,
    id: u32,
}

impl AmqpLink {
    pub(crate) fn new(max_frame_size: u32, channel_max: u16, idle_seconds: u16) -> Self {
        Self {
            frame_bytes_max: (max_frame_size as usize).min(crate::limits::FRAME_BYTES_MAX),
            channel_max: channel_max.min(crate::limits::CHANNEL_MAX),
            idle_seconds,
            is_lasting: false,
            sessions: BTreeMap::new(),
            by_id: BTreeMap::new(),
            homeless: Homeless::default(),
            copies: BTreeMap::new(),
            confirmed: Vec::new(),
            returned: BTreeSet::new(),
            returns: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            next_number: 0,
            parked: Parked::default(),
            ahead: Ahead::default(),
            has_said: false,
            granted: None,
            attach_reply: Vec::new(),
            pace: Pace::default(),
            outgoing: Vec::new(),
            closing: Vec::new(),
            is_closing_due: false,
            error: None,
            counts: LinkCounts::default(),
        }
    }

    pub(crate) fn links(&self) -> usize {
        self.sessions.values().map(|session| session.links.len()).sum()
    }

    /// Links by which the peer publishes, and those by which it receives.
    pub(crate) fn links_by_role(&self) -> (u64, u64) {
        let links = || self.sessions.values().flat_map(|session| session.links.values());
        let senders = links().filter(|link| matches!(link, Link::Sender(_))).count();
        let receivers = links().filter(|link| matches!(link, Link::Receiver(_))).count();
        (senders as u64, receivers as u64)
    }

    /// A message of the peer goes to the core, which will answer by this number. None: too many wait.
    pub(crate) fn open_delivery(&mut self, channel: u16, handle: u32, id: u32) -> Option<PacketId> {
        if self.deliveries.len() >= usize::from(INBOUND_MAX) {
            return None;
        }
        // No more of them are open than there are numbers.
        let number = loop {
            self.next_number = self.next_number.checked_add(1).unwrap_or(1);
            if !self.deliveries.contains_key(&self.next_number) {
                break PacketId::new(self.next_number)?;
            }
        };
        self.deliveries.insert(number.get(), IncomingDelivery { channel, handle: Some(handle), id });
        if let Some(Link::Sender(link)) = self.link_mut(channel, handle) {
            link.outstanding += 1;
        }
        Some(number)
    }

    /// It was not taken from the connection, and will come again.
    pub(crate) fn reopen_later(&mut self, number: PacketId) {
        if let Some(IncomingDelivery { channel, handle: Some(handle), .. }) = self.deliveries.remove(&number.get())
            && let Some(Link::Sender(link)) = self.link_mut(channel, handle)
        {
            link.outstanding -= 1;
        }
    }

    /// A link is gone: who has its handle next is not told of its messages.
    pub(crate) fn orphan_deliveries(&mut self, channel: u16, handle: u32) {
        let is_of_link =
            |delivery: &&mut IncomingDelivery| (delivery.channel, delivery.handle) == (channel, Some(handle));
        for delivery in self.deliveries.values_mut().filter(is_of_link) {
            delivery.handle = None;
        }
    }

    /// Links of receivers that want what there is now, and to be told that there is no more.
    pub(crate) fn draining(&self) -> Vec<(u16, u32)> {
        let links = self.by_id.values().flatten().copied();
        let drains = |place: &(u16, u32)| {
            let link = self.sessions.get(&place.0).and_then(|session| session.links.get(&place.1));
            matches!(link, Some(Link::Receiver(receiver)) if receiver.drain)
        };
        links.filter(drains).collect()
    }

    pub(crate) fn link_mut(&mut self, channel: u16, handle: u32) -> Option<&mut Link> {
        self.sessions.get_mut(&channel)?.links.get_mut(&handle)
    }

    /// What became of a message of the peer.
    fn settle(&mut self, delivery: Delivery, state: &DeliveryState, out: &mut Vec<u8>) {
        let Some(number) = delivery.packet_id() else { return };
        let settled = self.deliveries.remove(&number.get());
        let Some(IncomingDelivery { channel, handle: Some(handle), id }) = settled else { return };
        // Of a link that is gone nobody waits for anything.
        let Some(Link::Sender(link)) = self.link_mut(channel, handle) else { return };
        link.outstanding = link.outstanding.saturating_sub(1);
        self.put_settled(channel, id, state, out);
        self.grant_one(channel, handle, out);
    }

    pub(crate) fn put_settled(&mut self, channel: u16, id: u32, state: &DeliveryState, out: &mut Vec<u8>) {
        match state {
            DeliveryState::Accepted => {}
            DeliveryState::Rejected(_) => self.counts.rejected += 1,
            DeliveryState::Modified(_) => self.counts.modified += 1,
        }
        put_disposition(channel, Role::Receiver, id, Some(state), out);
    }

    /// What each sender link may have, by all that is known.
    fn credit(&self) -> u32 {
        let senders = self.links_by_role().0.max(1) as u32;
        (u32::from(INBOUND_MAX) / 2 / senders).clamp(1, CREDIT_MAX).min(self.pace.allowance(senders))
    }

    fn grant_one(&mut self, channel: u16, handle: u32, out: &mut Vec<u8>) {
        let credit = self.credit();
        let Some(session) = self.sessions.get_mut(&channel) else { return };
        if let Some(Link::Sender(link)) = session.links.get_mut(&handle)
            && let Some(flow) = link.grant(handle, credit)
        {
            session.put_flow(channel, Some(flow), out);
        }
    }

    /// Gives all sender links the credit that they may have now.
    pub(crate) fn grant_all(&mut self) {
        let mut out = core::mem::take(&mut self.outgoing);
        let credit = self.credit();
        for (&channel, session) in &mut self.sessions {
            let grants: Vec<_> = session
                .links
                .iter_mut()
                .filter_map(|(&handle, link)| match link {
                    Link::Sender(link) => link.grant(handle, credit),
                    _ => None,
                })
                .collect();
            for flow in grants {
                session.put_flow(channel, Some(flow), &mut out);
            }
        }
        self.outgoing = out;
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.outgoing);
        if core::mem::take(&mut self.is_closing_due) {
            out.append(&mut self.closing);
        }
    }
}

impl Face for AmqpLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        match *answer {
            ClientAnswer::Taken { delivery, interval, .. } => {
                if let Some(interval) = interval {
                    self.pace.hear(None, Some(interval));
                }
                // Alone: it may have to wait for the disk, and what is said of sessions and links may not wait with it, or
                // their messages, which do not wait, would overtake it.
                return self.settle(delivery, &DeliveryState::Accepted, out);
            }
            ClientAnswer::Refused { delivery, refusal } => {
                self.pace.hear(Some(refusal.retry_after), refusal.interval);
                let hints =
                    Hints { retry_after: Some(refusal.retry_after), interval: refusal.interval, ..Hints::default() };
                return self.settle(delivery, &DeliveryState::Modified(hints), out);
            }
            ClientAnswer::Rejected { delivery, reason } => {
                let error = AmqpError::new(condition_of(reason), reason.name());
                return self.settle(delivery, &DeliveryState::Rejected(error), out);
            }
            ClientAnswer::Subscribed { grants, .. } => {
                self.granted = grants.first().copied();
                if let Some(Ok(_)) = self.granted {
                    out.append(&mut self.attach_reply);
                }
                return;
            }
            ClientAnswer::Welcome { .. } => put_open(Some(self.idle_seconds), out),
            ClientAnswer::Unwelcome { reason, later } => {
                let (words, after) = later.map_or((reason.name(), None), |(words, time)| (words, Some(time)));
                out.extend_from_slice(&crate::first::refusal(reason, words, after));
                return;
            }
            ClientAnswer::Goodbye(why) => {
                let error = self.error.take().or_else(|| error_of(why));
                self.is_closing_due = true;
                self.flush(out);
                put_close(error.as_ref(), out);
                return;
            }
            ClientAnswer::Release { .. }
            | ClientAnswer::Complete { .. }
            | ClientAnswer::Unsubscribed { .. }
            | ClientAnswer::Alive
            | ClientAnswer::Due => {}
        }
        self.flush(out);
    }

    fn publication(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        frames: &mut Frames,
        memory: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.deliver(outgoing, frames, memory, out)
    }

    fn hears_refusals(&self) -> bool {
        true
    }

    fn protocol(&self) -> &'static str {
        "AMQP 1.0"
    }

    /// Nothing here is found by the length of frames: everything keeps its order.
    fn packet_length(&self) -> PacketLength {
        |_| None
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn is_credited(&self) -> bool {
        true
    }

    /// The queue of a session from before waits until a receiver is attached.
    fn has_room(&self) -> bool {
        self.parked.has_room() && !self.ahead.is_behind && !(self.is_lasting && self.by_id.is_empty())
    }

    fn is_behind(&self) -> bool {
        self.ahead.is_behind || self.has_said
    }

    fn note_said(&mut self, answers: usize) {
        for link in self.sessions.values_mut().flat_map(|session| session.links.values_mut()) {
            if let Link::Receiver(link) = link
                && link.said_after > 0
            {
                link.said_after = link.said_after.saturating_sub(answers);
                self.has_said |= link.said_after == 0;
            }
        }
    }

    fn catch_up(&mut self) {
        self.has_said = false;
        self.ahead = Ahead::default();
        let channels: Vec<u16> = self.sessions.keys().copied().collect();
        for channel in channels {
            self.send_all_parked(channel);
        }
    }
}

impl AmqpLink {
    /// When something is to be done without being told, about credit.
    pub(crate) fn credit_due(&self) -> Option<Timestamp> {
        self.pace.due()
    }

    /// Time has passed, or messages were taken: credit is what it may be now.
    pub(crate) fn turn_credit(&mut self, entitled: u32, is_pressed: bool, now: Timestamp) {
        self.pace.turn(entitled, is_pressed, now);
        self.grant_all();
    }
}

/// How long a connection may be silent before it is told that somebody is there.
pub(crate) fn beat_of(idle: Duration) -> Duration {
    idle / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SenderLink;

    #[test]
    fn who_has_the_handle_of_a_link_that_is_gone_hears_nothing_of_its_messages() {
        let mut link = AmqpLink::new(1000, 1, 60);
        let charge = Memory::new(1 << 20).charge();
        let sender = |name: &str| Link::Sender(SenderLink::new(name, 0));
        link.sessions.insert(0, Session::new(0, 10, charge));
        link.sessions.get_mut(&0).unwrap().links.insert(3, sender("gone"));
        let packet_id = link.open_delivery(0, 3, 7).unwrap();
        link.orphan_deliveries(0, 3);
        link.sessions.get_mut(&0).unwrap().links.insert(3, sender("next"));
        // The number is the core's until the core has answered.
        assert_ne!(link.open_delivery(0, 3, 8), Some(packet_id));
        let mut out = Vec::new();
        let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
        link.answer(&ClientAnswer::Taken { delivery, is_reached: true, interval: None }, &mut out);
        assert!(out.is_empty());
        assert!(matches!(link.link_mut(0, 3), Some(Link::Sender(SenderLink { outstanding: 1, .. }))));
    }
}
