//! What goes to receivers: a copy for each link, as far as credit and windows go; what does not waits here, a little of it.

use core::num::NonZeroU32;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_core::Charge;
use tidegate_core::face::{Frames, OutgoingPublication};
use tidegate_wire_mqtt::{PacketId, QoS};

use crate::limits::{PARKED_BYTES_MAX, PARKED_MAX, RETURNS_MAX};
use crate::link::AmqpLink;
use crate::message::{put_head, put_tail};
use crate::reply::{TransferReply, put_transfer};
use crate::session::{Link, ParkedMessage, ReceiverLink};

/// How much waits for credit.
#[derive(Debug)]
pub(crate) struct Parked {
    messages: usize,
    bytes: usize,
    charge: Charge,
}

impl Parked {
    pub(crate) fn new(charge: Charge) -> Self {
        Self { messages: 0, bytes: 0, charge }
    }

    /// Whether one more may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.messages < PARKED_MAX && self.bytes < PARKED_BYTES_MAX
    }

    fn add(&mut self, message: &ParkedMessage) {
        self.messages += 1;
        self.bytes += message.bytes.len();
        self.charge.change(message.bytes.len(), 0);
    }

    fn remove(&mut self, message: &ParkedMessage) {
        self.messages -= 1;
        self.bytes -= message.bytes.len();
        self.charge.change(0, message.bytes.len());
    }
}

impl AmqpLink {
    /// One copy for each link that wants it; how many bytes were written. None: no link takes it.
    pub(crate) fn deliver(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        frames: &mut Frames,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let start = out.len();
        out.append(&mut self.outgoing);
        let mut places = self.places(outgoing.ids());
        let number = outgoing.delivery().packet_id();
        let make = || {
            let mut tail = Vec::new();
            put_tail(outgoing, &mut tail);
            Some(SharedTail(tail.into()))
        };
        let tail = frames.get(TAIL_SHAPE, make).map(|tail| &*tail.0);
        let mut whole: Option<Arc<[u8]>> = None;
        let mut make_whole = || {
            let mut bytes = Vec::new();
            put_message(outgoing, tail, &mut bytes);
            Arc::<[u8]>::from(bytes)
        };
        if self.is_limited(&places) {
            let bytes = whole.get_or_insert_with(&mut make_whole).len();
            places.retain(|place| self.takes(*place, bytes));
        }
        if places.is_empty() {
            // Bytes that were waiting are there; they are counted with what comes next.
            self.outgoing = out.split_off(start);
            return None;
        }
        if let Some(number) = number.filter(|_| places.len() > 1) {
            self.copies.insert(number, places.len() as u32);
        }
        for place in places {
            if let Ok(link) = place
                && self.write_now(link, outgoing, tail, out)
            {
                continue;
            }
            let bytes = Arc::clone(whole.get_or_insert_with(&mut make_whole));
            self.park(place, ParkedMessage { bytes, sent: 0, number });
            out.append(&mut self.outgoing);
        }
        Some(out.len() - start)
    }

    /// Sends what waits for this link.
    pub(crate) fn send_parked(&mut self, channel: u16, handle: u32) {
        let mut out = core::mem::take(&mut self.outgoing);
        let Self { sessions, parked, copies, confirmed, frame_bytes_max, .. } = self;
        if let Some(session) = sessions.get_mut(&channel) {
            session.send_parked(channel, handle, *frame_bytes_max, &mut out, |message, is_settled| {
                parked.remove(message);
                if is_settled && let Some(number) = message.number {
                    note_answered(copies, confirmed, number);
                }
            });
        }
        self.outgoing = out;
    }

    /// The same of all links of a session.
    pub(crate) fn send_all_parked(&mut self, channel: u16) {
        let handles: Vec<u32> =
            self.sessions.get(&channel).map(|session| session.links.keys().copied().collect()).unwrap_or_default();
        for handle in handles {
            self.send_parked(channel, handle);
        }
    }

    /// A receiver has answered a delivery.
    pub(crate) fn answered(&mut self, number: PacketId) {
        note_answered(&mut self.copies, &mut self.confirmed, number);
    }

    /// A receiver gives a delivery back: it is to have it again, if that does not happen too often. False: it does not, or several links
    /// have it, and the others would have it twice.
    pub(crate) fn give_back(&mut self, number: PacketId) -> bool {
        let returns = self.returns.get(&number).copied().unwrap_or(0);
        if returns >= RETURNS_MAX || self.copies.contains_key(&number) {
            return false;
        }
        self.returns.insert(number, returns + 1);
        self.returned.push(number);
        self.counts.returned += 1;
        true
    }

    /// A receiver's link is gone, and what was for it is given up.
    pub(crate) fn forget_receiver(&mut self, channel: u16, handle: u32, link: &ReceiverLink) {
        if let Some(links) = self.by_id.get_mut(&link.id) {
            links.retain(|place| *place != (channel, handle));
            if links.is_empty() {
                self.by_id.remove(&link.id);
            }
        }
        for message in &link.queue {
            self.parked.remove(message);
            // One that was begun is among those that are under way.
            if let Some(number) = message.number.filter(|_| message.sent == 0 || link.qos == QoS::AtMostOnce) {
                self.answered(number);
            }
        }
        let Some(session) = self.sessions.get_mut(&channel) else { return };
        let mine: Vec<(u32, Option<PacketId>)> = session
            .unsettled
            .iter()
            .filter(|(_, unsettled)| unsettled.handle == handle)
            .map(|(id, unsettled)| (*id, unsettled.number))
            .collect();
        for (id, number) in mine {
            if let Some(session) = self.sessions.get_mut(&channel) {
                session.unsettled.remove(&id);
            }
            if let Some(number) = number {
                self.answered(number);
            }
        }
    }

    /// The link of a subscription is there: what waited for one goes there.
    pub(crate) fn take_home(&mut self, id: NonZeroU32) -> VecDeque<ParkedMessage> {
        self.homeless.remove(&id).unwrap_or_default()
    }

    /// One copy to one link: written, if nothing is in its way. False: it has to wait.
    fn write_now(
        &mut self,
        (channel, handle): (u16, u32),
        outgoing: &OutgoingPublication<'_>,
        tail: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> bool {
        let frame_bytes_max = self.frame_bytes_max;
        let Some(session) = self.sessions.get_mut(&channel).filter(|session| session.remote_window > 0) else {
            return false;
        };
        let Some(Link::Receiver(link)) = session.links.get_mut(&handle) else { return false };
        if link.credit == 0 || !link.queue.is_empty() {
            return false;
        }
        let number = outgoing.delivery().packet_id();
        let is_settled = (number.is_none() && !link.is_unsettled) || link.qos == QoS::AtMostOnce;
        let start = out.len();
        let id = session.next_delivery_id;
        let transfer = TransferReply { handle, begins: Some((id, is_settled)), has_more: false, payload: &[] };
        put_transfer(channel, &transfer, out);
        put_message(outgoing, tail, out);
        let size = out.len() - start;
        if size > frame_bytes_max {
            out.truncate(start);
            return false;
        }
        out[start..start + 4].copy_from_slice(&(size as u32).to_be_bytes());
        link.credit -= 1;
        link.delivery_count = link.delivery_count.wrapping_add(1);
        session.begin_delivery(handle, number, is_settled);
        session.note_sent();
        if is_settled && let Some(number) = number {
            self.answered(number);
        }
        true
    }

    /// A copy that waits for the link, or for one that has this name.
    fn park(&mut self, place: Result<(u16, u32), NonZeroU32>, message: ParkedMessage) {
        self.parked.add(&message);
        match place {
            Ok((channel, handle)) => {
                if let Some(Link::Receiver(link)) = self.link_mut(channel, handle) {
                    link.queue.push_back(message);
                    // It may be only too long for one frame.
                    self.send_parked(channel, handle);
                }
            }
            Err(id) => self.homeless.entry(id).or_default().push_back(message),
        }
    }

    /// Where a copy goes: to links, or to where one will be.
    fn places(&self, ids: &[NonZeroU32]) -> Vec<Result<(u16, u32), NonZeroU32>> {
        let mut places = Vec::new();
        for id in ids {
            match self.by_id.get(id) {
                Some(links) => places.extend(links.iter().copied().map(Ok)),
                None if self.is_lasting => places.push(Err(*id)),
                None => {}
            }
        }
        places
    }

    fn takes(&self, place: Result<(u16, u32), NonZeroU32>, bytes: usize) -> bool {
        let Ok((channel, handle)) = place else { return true };
        let link = self.sessions.get(&channel).and_then(|session| session.links.get(&handle));
        match link {
            Some(Link::Receiver(link)) => link.message_bytes_max == 0 || bytes as u64 <= link.message_bytes_max,
            _ => false,
        }
    }

    /// Whether a receiver has limited how long its messages are.
    fn is_limited(&self, places: &[Result<(u16, u32), NonZeroU32>]) -> bool {
        places.iter().any(|place| !self.takes(*place, usize::MAX))
    }
}

fn note_answered(copies: &mut BTreeMap<PacketId, u32>, confirmed: &mut Vec<PacketId>, number: PacketId) {
    match copies.get_mut(&number) {
        Some(left) if *left > 1 => *left -= 1,
        Some(_) => {
            copies.remove(&number);
            confirmed.push(number);
        }
        None => confirmed.push(number),
    }
}

fn put_message(outgoing: &OutgoingPublication<'_>, tail: Option<&[u8]>, out: &mut Vec<u8>) {
    put_head(outgoing, out);
    match tail {
        Some(tail) => out.extend_from_slice(tail),
        None => put_tail(outgoing, out),
    }
}

/// What all receivers of a publication have in common.
struct SharedTail(Box<[u8]>);

/// The shape of it among those of all faces: MQTT's are before.
const TAIL_SHAPE: usize = 4;
