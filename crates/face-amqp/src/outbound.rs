//! What goes to receivers: a copy for each link, as far as credit and windows go; what does not waits here, a little of it.

use core::num::NonZeroU32;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::Memory;
use tidegate_core::face::{Frames, OutgoingPublication};
use tidegate_wire_mqtt::{Delivery, PacketId};

use crate::limits::{PARKED_BYTES_MAX, PARKED_MAX, RETURNS_MAX};
use crate::link::AmqpLink;
use crate::message::{put_head, put_tail};
use crate::reply::{TransferReply, put_transfer};
use crate::session::{Link, ParkedMessage, SharedMessage, is_settled};

/// How much waits for credit.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    messages: usize,
    bytes: usize,
}

impl Parked {
    /// Whether one more may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.messages < PARKED_MAX && self.bytes < PARKED_BYTES_MAX
    }

    pub(crate) fn add(&mut self, parked: &ParkedMessage) {
        self.messages += 1;
        self.bytes += parked.message.bytes.len();
    }

    pub(crate) fn remove(&mut self, parked: &ParkedMessage) {
        self.messages -= 1;
        self.bytes -= parked.message.bytes.len();
    }
}

/// Copies of one message at several links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    /// Those that are not answered.
    left: u32,
    /// A receiver has one of them.
    is_taken: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A receiver has it.
    Taken,
    /// The last link that it was for is gone for good.
    GivenUp,
}

/// Where a copy goes: to a link, or to where the link of this subscription will be.
type CopyPlace = Result<(u16, u32), NonZeroU32>;

impl AmqpLink {
    /// One copy for each link that wants it; how many bytes were written. None: no link takes it.
    pub(crate) fn deliver(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        frames: &mut Frames,
        memory: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let start = out.len();
        out.append(&mut self.outgoing);
        let number = outgoing.delivery().packet_id();
        let is_again = matches!(outgoing.delivery(), Delivery::AtLeastOnce { dup: true, .. });
        let returning = number.and_then(|number| self.homeless.returning.remove(&number)).filter(|_| is_again);
        if let Some(number) = number.filter(|_| !is_again) {
            // The core may have dropped the one that had it before.
            self.copies.remove(&number);
            self.returns.remove(&number);
        }
        let mut places = self.places(returning.as_deref().unwrap_or(outgoing.ids()));
        let make = || {
            let mut tail = Vec::new();
            put_tail(outgoing, &mut tail);
            Some(SharedTail(tail.into()))
        };
        let tail = frames.get(TAIL_SHAPE, make).map(|tail| &*tail.0);
        let mut whole: Option<Arc<SharedMessage>> = None;
        let mut make_whole = || {
            let mut bytes = Vec::new();
            put_message(outgoing, tail, &mut bytes);
            Arc::new(SharedMessage::new(bytes, memory.charge()))
        };
        if self.is_limited(&places) {
            let bytes = whole.get_or_insert_with(&mut make_whole).bytes.len();
            places.retain(|place| self.takes(*place, bytes));
        }
        if let (true, Some(number), Some(_)) = (places.is_empty(), number, &returning) {
            // Others may have it: it is theirs to answer.
            self.answered(number, Fate::GivenUp);
            return Some(out.len() - start);
        }
        if places.is_empty() {
            // Bytes that were waiting are there; they are counted with what comes next.
            self.outgoing = out.split_off(start);
            return None;
        }
        if let Some(number) = number.filter(|_| places.len() > 1 && returning.is_none()) {
            self.copies.insert(number, Copies { left: places.len() as u32, is_taken: false });
        }
        for (before, place) in places.into_iter().enumerate() {
            let begun = out.len();
            if let Ok(link) = place
                && !self.ahead.is_behind
                && self.write_now(link, outgoing, tail, out)
            {
                // The core has looked whether there is room for the first.
                if before > 0 {
                    self.ahead.note(out.len() - begun);
                }
                continue;
            }
            if let (Err(id), Some(number)) = (place, number) {
                self.leave_homeless(id, number);
                continue;
            }
            let message = Arc::clone(whole.get_or_insert_with(&mut make_whole));
            self.park(place, ParkedMessage { message, sent: 0, number });
            out.append(&mut self.outgoing);
        }
        Some(out.len() - start)
    }

    /// Sends what waits for this link.
    pub(crate) fn send_parked(&mut self, channel: u16, handle: u32) {
        let mut out = core::mem::take(&mut self.outgoing);
        let Self { sessions, parked, copies, confirmed, frame_bytes_max, ahead, .. } = self;
        if let Some(session) = sessions.get_mut(&channel) {
            session.send_parked(channel, handle, (*frame_bytes_max, ahead), &mut out, |message, is_settled| {
                parked.remove(message);
                if is_settled && let Some(number) = message.number {
                    note_answered(copies, confirmed, number, Fate::Taken);
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

    /// A receiver has answered a delivery, or never will.
    pub(crate) fn answered(&mut self, number: PacketId, fate: Fate) {
        note_answered(&mut self.copies, &mut self.confirmed, number, fate);
    }

    /// A receiver gives a delivery back: it is to have it again, if that does not happen too often. False: it does not, or several links
    /// have it, and the others would have it twice.
    pub(crate) fn give_back(&mut self, number: PacketId) -> bool {
        let returns = self.returns.get(&number).copied().unwrap_or(0);
        if returns >= RETURNS_MAX || self.copies.contains_key(&number) {
            return false;
        }
        self.returns.insert(number, returns + 1);
        self.returned.insert(number);
        self.counts.returned += 1;
        true
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
        let has_place = session.has_place();
        let Some(Link::Receiver(link)) = session.links.get_mut(&handle) else { return false };
        if link.credit == 0 || !link.queue.is_empty() || link.said_after > 0 {
            return false;
        }
        let number = outgoing.delivery().packet_id();
        let is_settled = is_settled(number, link.is_unsettled, link.qos);
        if !is_settled && !has_place {
            return false;
        }
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
            self.answered(number, Fate::Taken);
        }
        true
    }

    /// A copy that waits for the link, or for one that has this name.
    fn park(&mut self, place: CopyPlace, message: ParkedMessage) {
        match place {
            Ok((channel, handle)) => {
                if let Some(Link::Receiver(link)) = self.link_mut(channel, handle) {
                    link.queue.push_back(message.clone());
                    self.parked.add(&message);
                    // It may be only too long for one frame.
                    self.send_parked(channel, handle);
                }
            }
            Err(id) if self.homeless.parked.has_room() => {
                self.homeless.parked.add(&message);
                self.homeless.passing.entry(id).or_default().push_back(message);
            }
            Err(_) => self.counts.given_up += 1,
        }
    }

    fn places(&self, ids: &[NonZeroU32]) -> Vec<CopyPlace> {
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

    fn takes(&self, place: CopyPlace, bytes: usize) -> bool {
        let Ok((channel, handle)) = place else { return true };
        let link = self.sessions.get(&channel).and_then(|session| session.links.get(&handle));
        match link {
            Some(Link::Receiver(link)) => link.message_bytes_max == 0 || bytes as u64 <= link.message_bytes_max,
            _ => false,
        }
    }

    /// Whether a receiver has limited how long its messages are.
    fn is_limited(&self, places: &[CopyPlace]) -> bool {
        places.iter().any(|place| !self.takes(*place, usize::MAX))
    }
}

fn note_answered(
    copies: &mut BTreeMap<PacketId, Copies>,
    confirmed: &mut Vec<(PacketId, Fate)>,
    number: PacketId,
    fate: Fate,
) {
    let Some(all) = copies.get_mut(&number) else {
        confirmed.push((number, fate));
        return;
    };
    all.left -= 1;
    all.is_taken |= fate == Fate::Taken;
    let Copies { left, is_taken } = *all;
    if left == 0 {
        copies.remove(&number);
        confirmed.push((number, if is_taken { Fate::Taken } else { Fate::GivenUp }));
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
