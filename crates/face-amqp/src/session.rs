//! Sessions and their links: numbers, windows, credit (sections 2.5 and 2.6).
//!
//! Numbers of transfers and deliveries go round (RFC 1982): they are compared by their distance.

use core::num::NonZeroU32;
use core::ops::RangeInclusive;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_core::Charge;
use tidegate_wire_mqtt::{PacketId, QoS};

use crate::limits::{AHEAD_BYTES_MAX, INCOMING_WINDOW, UNSETTLED_MAX};
use crate::partial::Partial;
use crate::performative::Role;
use crate::reply::{FlowReply, LinkFlow, TRANSFER_HEAD_BYTES, TransferReply, put_flow, put_transfer};

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) state: SessionState,
    /// The number of the next transfer of this side...
    pub(crate) next_outgoing_id: u32,
    /// ...and how many of them the peer takes.
    pub(crate) remote_window: u32,
    /// The number of the next transfer of the peer, and how many it may still send.
    pub(crate) next_incoming_id: u32,
    pub(crate) incoming_left: u32,
    /// The number of the next delivery of this side.
    pub(crate) next_delivery_id: u32,
    pub(crate) links: BTreeMap<u32, Link>,
    /// Deliveries of this side that wait for an answer: which link, and the core's number if it has one.
    unsettled: BTreeMap<u32, Unsettled>,
    charge: Charge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Open,
    /// This side has ended it: nothing counts but the answer to that.
    EndSent,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    pub(crate) handle: u32,
    pub(crate) number: Option<PacketId>,
}

/// One link, by what the peer does at it.
#[derive(Debug)]
pub(crate) enum Link {
    Sender(SenderLink),
    Receiver(ReceiverLink),
    /// This side has detached it: nothing counts but the answer to that.
    DetachSent,
}

/// A link by which the peer publishes.
#[derive(Debug)]
pub(crate) struct SenderLink {
    pub(crate) name: Box<str>,
    /// None: each message says where it goes.
    pub(crate) topic: Option<Box<str>>,
    /// All its messages are retained.
    pub(crate) retain: bool,
    pub(crate) delivery_count: u32,
    /// What it may still send, as it was told last.
    pub(crate) credit: u32,
    /// The count that it may reach by all that it was ever told: what is taken back may cross what is on its way.
    pub(crate) granted_until: u32,
    /// Messages of it that are not answered.
    pub(crate) outstanding: u32,
    /// A delivery of which more is to come.
    pub(crate) partial: Option<Box<Partial>>,
}

/// A link by which the peer is sent what it subscribed to.
#[derive(Debug)]
pub(crate) struct ReceiverLink {
    pub(crate) name: Box<str>,
    pub(crate) filter: Box<str>,
    /// What the subscription is called in the core.
    pub(crate) id: NonZeroU32,
    pub(crate) qos: QoS,
    /// It wants to answer each message, those of QoS 0 too.
    pub(crate) is_unsettled: bool,
    /// Zero: as large as they are.
    pub(crate) message_bytes_max: u64,
    pub(crate) delivery_count: u32,
    pub(crate) credit: u32,
    pub(crate) drain: bool,
    /// Answers that are owed until its attach is said: nothing is sent by it before.
    pub(crate) said_after: usize,
    pub(crate) queue: VecDeque<ParkedMessage>,
}

/// A message that waits for credit, or for room in the session.
#[derive(Clone, Debug)]
pub(crate) struct ParkedMessage {
    pub(crate) message: Arc<SharedMessage>,
    /// What of it was sent, and as which delivery.
    pub(crate) sent: usize,
    pub(crate) number: Option<PacketId>,
}

/// A message that waits, once for all links that it waits for.
#[derive(Debug)]
pub(crate) struct SharedMessage {
    pub(crate) bytes: Vec<u8>,
    _charge: Charge,
}

impl SharedMessage {
    pub(crate) fn new(bytes: Vec<u8>, mut charge: Charge) -> Self {
        charge.change(bytes.len(), 0);
        Self { bytes, _charge: charge }
    }
}

/// What was written of copies beyond the first of a message, and of such as had waited, since the outbox last had room.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    bytes: usize,
    /// It was too much: nothing more is sent until there is room.
    pub(crate) is_behind: bool,
}

impl Ahead {
    /// So much was written; if it is too much, what comes next has to wait. Never before something was written: whoever waits
    /// for room has something in the outbox that will be taken.
    pub(crate) fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.is_behind |= self.bytes > AHEAD_BYTES_MAX && bytes > 0;
    }
}

impl Link {
    pub(crate) fn name(&self) -> Option<(&str, Role)> {
        match self {
            Self::Sender(link) => Some((&link.name, Role::Sender)),
            Self::Receiver(link) => Some((&link.name, Role::Receiver)),
            Self::DetachSent => None,
        }
    }
}

/// Whether a delivery is settled as it is sent: nobody answers it.
pub(crate) fn is_settled(number: Option<PacketId>, is_unsettled: bool, qos: QoS) -> bool {
    (number.is_none() && !is_unsettled) || qos == QoS::AtMostOnce
}

impl Session {
    /// A session as its peer begins it.
    pub(crate) fn new(next_incoming_id: u32, remote_window: u32, charge: Charge) -> Self {
        Self {
            state: SessionState::Open,
            next_outgoing_id: 0,
            remote_window,
            next_incoming_id,
            incoming_left: INCOMING_WINDOW,
            next_delivery_id: 0,
            links: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            charge,
        }
    }

    /// Section 2.5.6: what the peer takes, by what it has seen.
    pub(crate) fn set_remote_window(&mut self, next_incoming_id: Option<u32>, window: u32) {
        // Who has seen nothing counts from the first.
        self.remote_window = left_of(window, next_incoming_id.unwrap_or(0), self.next_outgoing_id);
    }

    /// A transfer of the peer; true if it is to hear of more room.
    pub(crate) fn note_transfer(&mut self) -> bool {
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        self.incoming_left = self.incoming_left.saturating_sub(1);
        self.incoming_left <= INCOMING_WINDOW / 2
    }

    pub(crate) fn flow(&mut self, link: Option<LinkFlow>) -> FlowReply {
        self.incoming_left = INCOMING_WINDOW;
        FlowReply {
            next_incoming_id: self.next_incoming_id,
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: self.next_outgoing_id,
            link,
        }
    }

    pub(crate) fn put_flow(&mut self, channel: u16, link: Option<LinkFlow>, out: &mut Vec<u8>) {
        let flow = self.flow(link);
        put_flow(channel, &flow, out);
    }

    /// The number of a delivery that begins now, of this link.
    pub(crate) fn begin_delivery(&mut self, handle: u32, number: Option<PacketId>, is_settled: bool) -> u32 {
        let id = self.next_delivery_id;
        self.next_delivery_id = id.wrapping_add(1);
        if !is_settled {
            self.unsettled.insert(id, Unsettled { handle, number });
            self.charge.change(UNSETTLED_BYTES, 0);
        }
        id
    }

    /// Whether one more delivery may wait for its answer.
    pub(crate) fn has_place(&self) -> bool {
        self.unsettled.len() < UNSETTLED_MAX
    }

    /// A frame of this side was written.
    pub(crate) fn note_sent(&mut self) {
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
        self.remote_window = self.remote_window.saturating_sub(1);
    }

    /// Sends what waits for a link, as far as credit and window go. What is done with goes to `done`: its bytes, and
    /// whether it was the last that anybody waits for.
    pub(crate) fn send_parked(
        &mut self,
        channel: u16,
        handle: u32,
        (frame_bytes_max, ahead): (usize, &mut Ahead),
        out: &mut Vec<u8>,
        mut done: impl FnMut(&ParkedMessage, bool),
    ) {
        let piece_max = frame_bytes_max.saturating_sub(TRANSFER_HEAD_BYTES).max(1);
        while !ahead.is_behind {
            let (window, has_place) = (self.remote_window, self.has_place());
            let Some(Link::Receiver(link)) = self.links.get_mut(&handle) else { return };
            let (has_credit, is_announced) = (link.credit > 0, link.said_after == 0);
            let (is_unsettled, qos) = (link.is_unsettled, link.qos);
            let is_settled_at = |number: Option<PacketId>| is_settled(number, is_unsettled, qos);
            let may_begin =
                |parked: &ParkedMessage| has_credit && is_announced && (has_place || is_settled_at(parked.number));
            let may_go = |parked: &&mut ParkedMessage| window > 0 && (parked.sent > 0 || may_begin(parked));
            let Some(parked) = link.queue.front_mut().filter(may_go) else { return };
            let (message, number, begun) = (Arc::clone(&parked.message), parked.number, parked.sent);
            let bytes = &message.bytes;
            let end = (begun + piece_max).min(bytes.len());
            parked.sent = end;
            let is_settled = is_settled_at(number);
            let has_more = end < bytes.len();
            if begun == 0 {
                link.credit -= 1;
                link.delivery_count = link.delivery_count.wrapping_add(1);
            }
            let finished = if has_more { None } else { link.queue.pop_front() };
            let begins = (begun == 0).then(|| (self.begin_delivery(handle, number, is_settled), is_settled));
            put_transfer(channel, &TransferReply { handle, begins, has_more, payload: &bytes[begun..end] }, out);
            self.note_sent();
            ahead.note(end - begun);
            if let Some(finished) = finished {
                done(&finished, is_settled);
            }
        }
    }

    /// Takes deliveries of this side that the peer names, and that are under way: no others are looked at.
    pub(crate) fn take_named(&mut self, first: u32, last: u32) -> Vec<(u32, Unsettled)> {
        let named = |ids: RangeInclusive<u32>| self.unsettled.range(ids).map(|(id, unsettled)| (*id, *unsettled));
        let taken: Vec<_> = if first <= last {
            named(first..=last).collect()
        } else {
            named(first..=u32::MAX).chain(named(0..=last)).collect()
        };
        self.settle(&taken);
        taken
    }

    /// The same of those of one link, the oldest first.
    pub(crate) fn take_of_link(&mut self, handle: u32) -> Vec<(u32, Unsettled)> {
        let mut taken: Vec<_> = self.unsettled.iter().map(|(id, unsettled)| (*id, *unsettled)).collect();
        taken.retain(|(_, unsettled)| unsettled.handle == handle);
        taken.sort_by_key(|(id, _)| id.wrapping_sub(self.next_delivery_id));
        self.settle(&taken);
        taken
    }

    fn settle(&mut self, taken: &[(u32, Unsettled)]) {
        for (id, _) in taken {
            self.unsettled.remove(id);
        }
        self.charge.change(0, taken.len() * UNSETTLED_BYTES);
    }
}

/// What one of them costs, with its part of the tree.
const UNSETTLED_BYTES: usize = 2 * (size_of::<Unsettled>() + size_of::<u32>());

/// What is left of a window, or of credit, of somebody who has seen so many of those that were sent. All of it, if it has seen
/// more than that: it has lost count, and only what is under way can be beyond what it takes.
pub(crate) fn left_of(window: u32, seen: u32, sent: u32) -> u32 {
    let under_way = sent.wrapping_sub(seen);
    if under_way > u32::MAX / 2 { window } else { window.saturating_sub(under_way) }
}

impl SenderLink {
    /// One that has sent so many, for topics that its messages say.
    pub(crate) fn new(name: &str, delivery_count: u32) -> Self {
        Self {
            name: name.into(),
            topic: None,
            retain: false,
            delivery_count,
            credit: 0,
            granted_until: delivery_count,
            outstanding: 0,
            partial: None,
        }
    }

    /// Brings its credit to this: when it has none or little, or too much. What is to be said, if anything.
    pub(crate) fn grant(&mut self, handle: u32, wanted: u32) -> Option<LinkFlow> {
        let wanted = wanted.saturating_sub(self.outstanding);
        let is_low = self.credit <= wanted / 2 && wanted > self.credit;
        if !is_low && self.credit <= wanted {
            return None;
        }
        self.credit = wanted;
        let until = self.delivery_count.wrapping_add(wanted);
        if until.wrapping_sub(self.granted_until) <= u32::MAX / 2 {
            self.granted_until = until;
        }
        Some(LinkFlow { handle, delivery_count: self.delivery_count, credit: wanted, drain: false })
    }

    /// A delivery begins. False: nobody has told it that it may.
    pub(crate) fn may_begin(&self) -> bool {
        self.delivery_count != self.granted_until
    }

    pub(crate) fn note_delivery(&mut self) {
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_given_when_half_of_it_is_used_and_taken_back_at_once() {
        let mut link = SenderLink::new("s", u32::MAX - 3);
        assert!(!link.may_begin());
        assert_eq!(link.grant(0, 8).map(|flow| flow.credit), Some(8));
        for _ in 0..3 {
            link.note_delivery();
        }
        assert!(link.grant(0, 8).is_none());
        link.note_delivery();
        assert_eq!(link.grant(0, 8).map(|flow| flow.credit), Some(8));
        assert_eq!(link.grant(0, 0).map(|flow| flow.credit), Some(0));
        // What is on its way is no fault.
        for _ in 0..8 {
            assert!(link.may_begin());
            link.note_delivery();
        }
        assert!(!link.may_begin());
        link.outstanding = 6;
        assert_eq!(link.grant(0, 8).map(|flow| flow.credit), Some(2));
    }

    fn session() -> Session {
        Session::new(7, 10, tidegate_core::Memory::new(1 << 20).charge())
    }

    fn ids(taken: &[(u32, Unsettled)]) -> Vec<u32> {
        taken.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn windows_and_names_go_round() {
        let mut session = session();
        session.next_outgoing_id = 3;
        session.set_remote_window(Some(u32::MAX), 10);
        assert_eq!(session.remote_window, 6);
        session.set_remote_window(Some(0), 1);
        assert_eq!(session.remote_window, 0);
        session.next_delivery_id = u32::MAX;
        for _ in 0..3 {
            session.begin_delivery(0, None, false);
        }
        assert_eq!(ids(&session.take_named(2, u32::MAX - 1)), Vec::<u32>::new());
        assert_eq!(ids(&session.take_named(u32::MAX, 0)), [u32::MAX, 0]);
        assert_eq!(ids(&session.take_named(1, 1)), [1]);
        session.next_delivery_id = u32::MAX;
        for handle in [0, 1, 0] {
            session.begin_delivery(handle, None, false);
        }
        assert_eq!(ids(&session.take_of_link(0)), [u32::MAX, 1]);
    }

    #[test]
    fn a_window_of_any_size_is_less_by_what_is_under_way() {
        for window in [10, u32::MAX / 2 + 1, u32::MAX] {
            assert_eq!(left_of(window, 0, 3), window - 3);
            assert_eq!(left_of(window, u32::MAX, 2), window - 3);
            assert_eq!(left_of(window, 7, 7), window);
        }
        assert_eq!(left_of(2, 0, 3), 0);
        assert_eq!(left_of(2, 4, 3), 2);
    }
}
