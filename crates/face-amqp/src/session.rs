//! Sessions and their links: numbers, windows, credit (sections 2.5 and 2.6).
//!
//! Numbers of transfers and deliveries go round (RFC 1982): they are compared by their distance.

use core::num::NonZeroU32;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_core::Charge;
use tidegate_wire_mqtt::{PacketId, QoS};

use crate::limits::INCOMING_WINDOW;
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
    pub(crate) unsettled: BTreeMap<u32, Unsettled>,
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

/// The first frames of a delivery.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) delivery_id: u32,
    pub(crate) is_settled: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) charge: Charge,
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
    pub(crate) queue: VecDeque<ParkedMessage>,
}

/// A message that waits for credit, or for room in the session.
#[derive(Clone, Debug)]
pub(crate) struct ParkedMessage {
    pub(crate) bytes: Arc<[u8]>,
    /// What of it was sent, and as which delivery.
    pub(crate) sent: usize,
    pub(crate) number: Option<PacketId>,
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

impl Session {
    /// A session as its peer begins it.
    pub(crate) fn new(next_incoming_id: u32, remote_window: u32) -> Self {
        Self {
            state: SessionState::Open,
            next_outgoing_id: 0,
            remote_window,
            next_incoming_id,
            incoming_left: INCOMING_WINDOW,
            next_delivery_id: 0,
            links: BTreeMap::new(),
            unsettled: BTreeMap::new(),
        }
    }

    /// Section 2.5.6: what the peer takes, by what it has seen.
    pub(crate) fn set_remote_window(&mut self, next_incoming_id: Option<u32>, window: u32) {
        // Who has seen nothing counts from the first.
        let seen = next_incoming_id.unwrap_or(0);
        let left = seen.wrapping_add(window).wrapping_sub(self.next_outgoing_id);
        // Behind what was sent already: nothing is left.
        self.remote_window = if left > u32::MAX / 2 { 0 } else { left };
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
        }
        id
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
        frame_bytes_max: usize,
        out: &mut Vec<u8>,
        mut done: impl FnMut(&ParkedMessage, bool),
    ) {
        let piece_max = frame_bytes_max.saturating_sub(TRANSFER_HEAD_BYTES).max(1);
        loop {
            let window = self.remote_window;
            let Some(Link::Receiver(link)) = self.links.get_mut(&handle) else { return };
            let (has_credit, is_unsettled) = (link.credit > 0, link.is_unsettled);
            let Some(parked) = link.queue.front_mut().filter(|parked| window > 0 && (has_credit || parked.sent > 0))
            else {
                return;
            };
            let (bytes, number, begun) = (Arc::clone(&parked.bytes), parked.number, parked.sent);
            let end = (begun + piece_max).min(bytes.len());
            parked.sent = end;
            let is_settled = number.is_none() && !is_unsettled || link.qos == QoS::AtMostOnce;
            let has_more = end < bytes.len();
            if begun == 0 {
                link.credit -= 1;
                link.delivery_count = link.delivery_count.wrapping_add(1);
            }
            let finished = if has_more { None } else { link.queue.pop_front() };
            let begins = (begun == 0).then(|| (self.begin_delivery(handle, number, is_settled), is_settled));
            put_transfer(channel, &TransferReply { handle, begins, has_more, payload: &bytes[begun..end] }, out);
            self.note_sent();
            if let Some(finished) = finished {
                done(&finished, is_settled);
            }
        }
    }

    /// Deliveries of this side that the peer names, and that are under way.
    pub(crate) fn named(&self, first: u32, last: u32) -> Vec<u32> {
        let span = last.wrapping_sub(first);
        self.unsettled.keys().copied().filter(|id| id.wrapping_sub(first) <= span).collect()
    }
}

impl SenderLink {
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

    fn sender(delivery_count: u32) -> SenderLink {
        SenderLink {
            name: "s".into(),
            topic: None,
            retain: false,
            delivery_count,
            credit: 0,
            granted_until: delivery_count,
            outstanding: 0,
            partial: None,
        }
    }

    #[test]
    fn credit_is_given_when_half_of_it_is_used_and_taken_back_at_once() {
        let mut link = sender(u32::MAX - 3);
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

    #[test]
    fn windows_and_names_go_round() {
        let mut session = Session::new(7, 10);
        session.next_outgoing_id = 3;
        session.set_remote_window(Some(u32::MAX), 10);
        assert_eq!(session.remote_window, 6);
        session.set_remote_window(Some(0), 1);
        assert_eq!(session.remote_window, 0);
        session.next_delivery_id = u32::MAX;
        for _ in 0..3 {
            session.begin_delivery(0, None, false);
        }
        assert_eq!(session.named(u32::MAX, 0).len(), 2);
        assert_eq!(session.named(1, 1), [1]);
        assert_eq!(session.named(2, u32::MAX - 1), Vec::<u32>::new());
    }
}
