//! How a shard speaks to one connection: its sessions, deliveries on their way in both directions, and the credit of those
//! who publish.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_core::{Charge, Memory};
use tidegate_wire_mqtt::{Delivery, PacketId, QoS, ReasonCode};

use crate::condition::{AmqpError, condition_of, error_of};
use crate::limits::{CREDIT_MAX, INBOUND_MAX};
use crate::outbound::Parked;
use crate::pace::Pace;
use crate::performative::Role;
use crate::reply::{DeliveryState, put_close, put_disposition, put_open};
use crate::session::{Link, ParkedMessage, Session};

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
    /// Messages of subscriptions from before that have no link yet.
    pub(crate) homeless: BTreeMap<NonZeroU32, VecDeque<ParkedMessage>>,
    /// Copies of a message that was sent by more than one link, and are not answered.
    pub(crate) copies: BTreeMap<PacketId, u32>,
    /// Messages that the core is to be told are there.
    pub(crate) confirmed: Vec<PacketId>,
    /// Messages that receivers have given back and are to have again...
    pub(crate) returned: Vec<PacketId>,
    /// ...and how often each of those under way was.
    pub(crate) returns: BTreeMap<PacketId, u8>,
    /// Messages of the peer that wait for their answers, by the core's number.
    deliveries: BTreeMap<u16, IncomingDelivery>,
    next_number: u16,
    pub(crate) parked: Parked,
    /// What became of the subscription that was just asked for.
    pub(crate) granted: Option<Result<QoS, ReasonCode>>,
    pub(crate) pace: Pace,
    /// What is to be said at the next opportunity...
    pub(crate) outgoing: Vec<u8>,
    /// ...and what comes after all answers that wait.
    pub(crate) closing: Vec<u8>,
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
}

/// Where a message of the peer came from.
#[derive(Clone, Copy, Debug)]
struct IncomingDelivery {
    channel: u16,
    handle: u32,
    id: u32,
}

impl AmqpLink {
    pub(crate) fn new(max_frame_size: u32, channel_max: u16, idle_seconds: u16, charge: Charge) -> Self {
        Self {
            frame_bytes_max: (max_frame_size as usize).min(crate::limits::FRAME_BYTES_MAX),
            channel_max: channel_max.min(crate::limits::CHANNEL_MAX),
            idle_seconds,
            is_lasting: false,
            sessions: BTreeMap::new(),
            by_id: BTreeMap::new(),
            homeless: BTreeMap::new(),
            copies: BTreeMap::new(),
            confirmed: Vec::new(),
            returned: Vec::new(),
            returns: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            next_number: 0,
            parked: Parked::new(charge),
            granted: None,
            pace: Pace::default(),
            outgoing: Vec::new(),
            closing: Vec::new(),
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
        self.deliveries.insert(number.get(), IncomingDelivery { channel, handle, id });
        if let Some(Link::Sender(link)) = self.link_mut(channel, handle) {
            link.outstanding += 1;
        }
        Some(number)
    }

    /// It was not taken from the connection, and will come again.
    pub(crate) fn reopen_later(&mut self, number: PacketId) {
        if let Some(taken_back) = self.deliveries.remove(&number.get())
            && let Some(Link::Sender(link)) = self.link_mut(taken_back.channel, taken_back.handle)
        {
            link.outstanding -= 1;
        }
    }

    pub(crate) fn link_mut(&mut self, channel: u16, handle: u32) -> Option<&mut Link> {
        self.sessions.get_mut(&channel)?.links.get_mut(&handle)
    }

    /// What became of a message of the peer.
    fn settle(&mut self, delivery: Delivery, state: &DeliveryState, out: &mut Vec<u8>) {
        let Some(number) = delivery.packet_id() else { return };
        let Some(IncomingDelivery { channel, handle, id }) = self.deliveries.remove(&number.get()) else { return };
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
        out.append(&mut self.closing);
    }
}

impl Face for AmqpLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        match *answer {
            ClientAnswer::Taken { delivery, interval, .. } => {
                if let Some(interval) = interval {
                    self.pace.hear(None, Some(interval));
                }
                self.settle(delivery, &DeliveryState::Accepted, out);
            }
            ClientAnswer::Refused { delivery, refusal } => {
                self.pace.hear(Some(refusal.retry_after), refusal.interval);
                let hints =
                    Hints { retry_after: Some(refusal.retry_after), interval: refusal.interval, ..Hints::default() };
                self.settle(delivery, &DeliveryState::Modified(hints), out);
            }
            ClientAnswer::Rejected { delivery, reason } => {
                let error = AmqpError::new(condition_of(reason), reason.name());
                self.settle(delivery, &DeliveryState::Rejected(error), out);
            }
            ClientAnswer::Subscribed { grants, .. } => {
                self.granted = grants.first().copied();
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
        _: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.deliver(outgoing, frames, out)
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

    fn has_room(&self) -> bool {
        self.parked.has_room()
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
