//! One address: what was asked from there and is not answered yet, what was sent there and is not acknowledged yet, and who
//! observes there.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::access::COAP_IDS;
use tidegate_core::datagrams::Chance;
use tidegate_core::event::Why;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_core::{Charge, Memory};
use tidegate_wire_mqtt::{Delivery, ReasonCode};

use crate::block::Assembly;
use crate::confirm::Confirmables;
use crate::content;
use crate::frame;
use crate::limits::{ACK_SOON, BUSY, EXCHANGE_LIFETIME, EXCHANGES_MAX, IDLE_MAX, PING_AFTER, REMEMBERED_MAX};
use crate::message::{Answer, Exchange, MessageKind, code, write, write_empty};
use crate::observe::Observations;
use crate::rto::RtoRule;
use crate::scarce::{Fresh, Scarce};

/// How one address is spoken to.
#[derive(Debug)]
pub(crate) struct CoapLink {
    pub(crate) chance: Chance,
    pub(crate) heard_at: Timestamp,
    /// Bytes that are kept here.
    pub(crate) charge: Charge,
    pub(crate) observations: Observations,
    pub(crate) confirmables: Scarce<Confirmables>,
    pub(crate) pending: Scarce<Pending>,
    pub(crate) rule: RtoRule,
    next_message: u16,
    next_number: u16,
}

/// What there is while requests are dealt with, and as long as they may come again.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What is to be said at the next opportunity, as frames.
    pub(crate) outgoing: Vec<u8>,
    /// Requests that wait for the core, or whose answers wait in the outbox.
    exchanges: Vec<OpenExchange>,
    /// The one that is being published without a number.
    current: Option<u16>,
    /// Requests that are recognised when they come again, oldest first.
    remembered: VecDeque<Remembered>,
    /// What became of the subscription that was just asked for.
    pub(crate) grant: Option<Result<(), ReasonCode>>,
    pub(crate) assembly: Option<Box<Assembly>>,
    /// Messages that were recognised as sent before.
    repeated: u64,
}

impl Fresh for Pending {
    const FRESH: Self = Self {
        outgoing: Vec::new(),
        exchanges: Vec::new(),
        current: None,
        remembered: VecDeque::new(),
        grant: None,
        assembly: None,
        repeated: 0,
    };

    fn fresh() -> &'static Self {
        static FRESH: Pending = Pending::FRESH;
        &FRESH
    }

    fn is_fresh(&self) -> bool {
        let is_silent = self.outgoing.is_empty() && self.exchanges.is_empty() && self.remembered.is_empty();
        is_silent && self.current.is_none() && self.assembly.is_none() && self.repeated == 0
    }
}

/// What a link has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkCounts {
    pub(crate) repeated: u64,
    pub(crate) retransmitted: u64,
    pub(crate) given_up: u64,
    pub(crate) conflated: u64,
    pub(crate) dropped: u64,
}

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct OpenExchange {
    number: u16,
    exchange: Exchange,
    /// The answer if all is well.
    success: u8,
    /// When it is acknowledged without an answer.
    ack_at: Timestamp,
}

impl OpenExchange {
    fn ends_at(&self) -> Timestamp {
        self.ack_at + EXCHANGE_LIFETIME
    }

    /// When something is to be done about it.
    fn due(&self) -> Timestamp {
        let is_waiting = self.exchange.is_confirmable && !self.exchange.is_acked;
        if is_waiting { self.ack_at } else { self.ends_at() }
    }
}

#[derive(Debug)]
struct Remembered {
    message: u16,
    at: Timestamp,
    /// What was said; nothing yet, if it is empty.
    said: Box<[u8]>,
}

impl Remembered {
    fn ends_at(&self) -> Timestamp {
        self.at + EXCHANGE_LIFETIME
    }

    fn is_alive(&self, now: Timestamp) -> bool {
        now < self.ends_at()
    }
}

/// What a request is that was seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It was not.
    New,
    /// It was, and what there was to say has been said again.
    Repeated,
}

impl CoapLink {
    pub(crate) fn new(charge: Charge, mut chance: Chance, rule: RtoRule, now: Timestamp) -> Self {
        Self {
            // Not to be guessed by whoever would like to answer for somebody else (RFC 7252, section 11.4).
            next_message: chance.draw() as u16,
            chance,
            rule,
            next_number: 0,
            pending: Scarce::new(),
            confirmables: Scarce::new(),
            observations: Observations::new(),
            charge,
            heard_at: now,
        }
    }

    /// What nobody will ask about any more is forgotten.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        if !self.pending.remembered.is_empty() {
            self.pending.remembered.retain(|known| known.is_alive(now));
        }
        self.observations.forget_old(&mut self.charge, now);
        if !self.confirmables.is_fresh() {
            self.confirmables.forget_old(now);
        }
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn rest(&mut self) {
        self.pending.rest();
        self.confirmables.rest();
        self.observations.rest();
    }

    /// What was counted since this was last asked.
    pub(crate) fn take_counts(&mut self) -> LinkCounts {
        let (conflated, dropped) = self.observations.take_counts();
        let (retransmitted, given_up) = (self.confirmables.repetitions, self.confirmables.given_up);
        let repeated = self.pending.repeated;
        if repeated > 0 {
            self.pending.repeated = 0;
        }
        if (retransmitted, given_up) != (0, 0) {
            (self.confirmables.repetitions, self.confirmables.given_up) = (0, 0);
        }
        LinkCounts { repeated, retransmitted, given_up, conflated, dropped }
    }

    pub(crate) fn message_number(&mut self) -> u16 {
        self.next_message = self.next_message.wrapping_add(1);
        self.next_message
    }

    /// Whether this request came before; then it is answered as it was.
    pub(crate) fn recall(&mut self, message: u16, now: Timestamp) -> Sight {
        let Pending { remembered, outgoing, repeated, .. } = &mut *self.pending;
        remembered.retain(|known| known.is_alive(now));
        let Some(known) = remembered.iter().find(|known| known.message == message) else { return Sight::New };
        *repeated += 1;
        if !known.said.is_empty() {
            frame::put_datagram(&known.said, outgoing);
        }
        Sight::Repeated
    }

    /// Remembers a request that must not be done twice.
    pub(crate) fn remember(&mut self, message: u16, now: Timestamp) {
        let remembered = &mut self.pending.remembered;
        if remembered.len() >= REMEMBERED_MAX {
            remembered.pop_front();
        }
        remembered.push_back(Remembered { message, at: now, said: Box::default() });
    }

    fn note_said(&mut self, message: u16, said: &[u8]) {
        if self.pending.remembered.is_empty() {
            return;
        }
        if let Some(known) = self.pending.remembered.iter_mut().find(|known| known.message == message) {
            known.said = said.into();
        }
    }

    /// A request goes to the core, which will answer by this number; none if too many do already.
    pub(crate) fn open(&mut self, exchange: Exchange, success: u8, now: Timestamp) -> Option<u16> {
        if self.pending.exchanges.len() >= EXCHANGES_MAX {
            return None;
        }
        loop {
            self.next_number = self.next_number.checked_add(1).unwrap_or(1);
            if self.pending.exchanges.iter().all(|open| open.number != self.next_number) {
                break;
            }
        }
        let (number, ack_at) = (self.next_number, now + ACK_SOON);
        self.pending.exchanges.push(OpenExchange { number, exchange, success, ack_at });
        if !exchange.is_confirmable {
            self.pending.current = Some(number);
        }
        Some(number)
    }

    /// The request that was handed to the core without a number, if the core had nothing to say about it.
    pub(crate) fn take_current(&mut self) -> Option<u16> {
        self.pending.current?;
        self.pending.current.take()
    }

    /// An answer that the core has given, on its way out.
    pub(crate) fn finish(&mut self, number: u16, answer: &Answer<'_>, now: Timestamp) -> Option<Vec<u8>> {
        let at = self.pending.exchanges.iter().position(|open| open.number == number)?;
        let OpenExchange { exchange, .. } = self.pending.exchanges.swap_remove(at);
        self.say(&exchange, &Answer { block1: exchange.block1, ..*answer }, now)
    }

    /// The code of success of an exchange.
    fn success(&self, number: u16) -> u8 {
        self.pending.exchanges.iter().find(|open| open.number == number).map_or(code::CHANGED, |open| open.success)
    }

    /// Answers a request, now.
    pub(crate) fn respond(&mut self, exchange: &Exchange, answer: &Answer<'_>, now: Timestamp) {
        if let Some(bytes) = self.say(exchange, answer, now) {
            frame::put_datagram(&bytes, &mut self.pending.outgoing);
        }
    }

    /// The datagram for an answer: with the acknowledgement, if that is still to be given.
    fn say(&mut self, exchange: &Exchange, answer: &Answer<'_>, now: Timestamp) -> Option<Vec<u8>> {
        let is_wanted = exchange.wants(answer.code);
        let bytes = match (exchange.is_confirmable, exchange.is_acked) {
            (true, false) if is_wanted => write(MessageKind::Acknowledgement, exchange.message, exchange.token, answer),
            (true, false) => write_empty(MessageKind::Acknowledgement, exchange.message),
            _ if !is_wanted => return None,
            (true, true) => {
                let number = self.message_number();
                let bytes = write(MessageKind::Confirmable, number, exchange.token, answer);
                self.confirmables.push(number, None, &bytes, (&mut self.chance, self.rule), now);
                return Some(bytes);
            }
            (false, _) => write(MessageKind::NonConfirmable, self.message_number(), exchange.token, answer),
        };
        self.note_said(exchange.message, &bytes);
        Some(bytes)
    }

    /// Requests that take long are acknowledged, and those that take too long forgotten.
    pub(crate) fn acknowledge_late(&mut self, now: Timestamp) {
        if self.pending.exchanges.is_empty() {
            return;
        }
        // Nobody waits for an answer any more, whatever became of it.
        self.pending.exchanges.retain(|open| now < open.ends_at());
        let mut acked = Vec::new();
        for open in &mut self.pending.exchanges {
            if open.exchange.is_confirmable && !open.exchange.is_acked && open.ack_at <= now {
                open.exchange.is_acked = true;
                acked.push(open.exchange.message);
            }
        }
        for message in acked {
            let bytes = write_empty(MessageKind::Acknowledgement, message);
            self.note_said(message, &bytes);
            frame::put_datagram(&bytes, &mut self.pending.outgoing);
        }
    }

    /// Whether the address has been silent for so long that it can be forgotten.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        self.observations.is_empty() && self.pending.exchanges.is_empty() && now.since(self.heard_at) >= IDLE_MAX
    }

    /// When something is to be done without being told.
    pub(crate) fn deadline(&self) -> Timestamp {
        let silence = if self.observations.is_empty() { IDLE_MAX } else { PING_AFTER };
        [
            Some(self.heard_at + silence).filter(|_| self.confirmables.is_empty() && self.pending.exchanges.is_empty()),
            self.confirmables.due(),
            self.pending.exchanges.iter().map(OpenExchange::due).min(),
            self.observations.due(&self.confirmables),
            self.pending.assembly.as_ref().map(|assembly| assembly.ends_at()),
            // From then on there is nothing to be remembered.
            self.pending.remembered.back().map(Remembered::ends_at),
            self.observations.rests_at(),
            self.confirmables.rests_at(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Timestamp::MAX)
    }

    /// Sends what may be sent now of what waits for observers.
    pub(crate) fn notify(&mut self, now: Timestamp) {
        while let Some(ready) = self.observations.next(&self.confirmables, &mut self.charge, now) {
            let number = self.message_number();
            let kind = if ready.is_confirmable { MessageKind::Confirmable } else { MessageKind::NonConfirmable };
            let bytes = ready.write(kind, number);
            if ready.is_confirmable {
                self.confirmables.push(number, Some(ready.token), &bytes, (&mut self.chance, self.rule), now);
            }
            self.observations.note_sent(number, ready.token, now);
            frame::put_datagram(&bytes, &mut self.pending.outgoing);
        }
    }

    /// Says to every observer that there will be nothing more.
    fn dismiss(&mut self, why: &Why) {
        let max_age = match why {
            Why::TooFast { retry_after, .. } => whole_seconds(*retry_after),
            _ => whole_seconds(BUSY),
        };
        for token in self.observations.take_tokens() {
            let answer = Answer { max_age: Some(max_age), ..Answer::new(code::UNAVAILABLE) };
            let bytes = write(MessageKind::NonConfirmable, self.message_number(), token, &answer);
            frame::put_datagram(&bytes, &mut self.pending.outgoing);
        }
        let slower = if matches!(why, Why::TooFast { .. }) { code::TOO_MANY_REQUESTS } else { code::UNAVAILABLE };
        if self.pending.exchanges.is_empty() {
            return;
        }
        for open in core::mem::take(&mut self.pending.exchanges) {
            frame::put_datagram(&self.last_word(&open.exchange, slower, max_age), &mut self.pending.outgoing);
        }
    }

    fn say_outgoing(&mut self, out: &mut Vec<u8>) {
        if !self.pending.outgoing.is_empty() {
            out.append(&mut self.pending.outgoing);
        }
    }

    fn last_word(&self, exchange: &Exchange, code: u8, max_age: u32) -> Vec<u8> {
        let answer = Answer { max_age: Some(max_age), ..Answer::new(code) };
        if exchange.is_confirmable && !exchange.is_acked {
            write(MessageKind::Acknowledgement, exchange.message, exchange.token, &answer)
        } else {
            write(MessageKind::NonConfirmable, self.next_message.wrapping_add(1), exchange.token, &answer)
        }
    }
}

/// Whole seconds, rounded up, and one at least: who comes a moment too early is refused again.
pub(crate) fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// Why something is not done, as a code.
pub(crate) fn code_of(reason: ReasonCode) -> u8 {
    match reason {
        ReasonCode::NotAuthorized => code::FORBIDDEN,
        ReasonCode::QuotaExceeded | ReasonCode::ServerBusy | ReasonCode::ServerUnavailable => code::UNAVAILABLE,
        ReasonCode::PacketTooLarge => code::TOO_LARGE,
        _ => code::BAD_REQUEST,
    }
}

impl Face for CoapLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        let number_of = |delivery: Delivery, current: &mut Option<u16>| match delivery.packet_id() {
            Some(number) => Some(number.get()),
            None => current.take(),
        };
        match *answer {
            ClientAnswer::Taken { delivery, .. } => {
                if let Some(number) = number_of(delivery, &mut self.pending.current) {
                    frame::put_answer(number, self.success(number), None, "", out);
                }
            }
            ClientAnswer::Refused { delivery, refusal } => {
                if let Some(number) = number_of(delivery, &mut self.pending.current) {
                    let is_pace = refusal.interval.is_some() || refusal.why == "publishing too fast";
                    let code = if is_pace { code::TOO_MANY_REQUESTS } else { code::UNAVAILABLE };
                    frame::put_answer(number, code, Some(whole_seconds(refusal.retry_after)), refusal.why, out);
                }
            }
            ClientAnswer::Rejected { delivery, reason } => {
                if let Some(number) = number_of(delivery, &mut self.pending.current) {
                    let code = code_of(reason);
                    let max_age = (code == code::UNAVAILABLE).then_some(whole_seconds(BUSY));
                    frame::put_answer(number, code, max_age, reason.name(), out);
                }
            }
            ClientAnswer::Subscribed { grants, .. } => {
                self.pending.grant = grants.first().map(|grant| grant.map(|_| ()));
            }
            ClientAnswer::Goodbye(why) => self.dismiss(why),
            ClientAnswer::Welcome { .. }
            | ClientAnswer::Unwelcome { .. }
            | ClientAnswer::Release { .. }
            | ClientAnswer::Complete { .. }
            | ClientAnswer::Unsubscribed { .. }
            | ClientAnswer::Alive
            | ClientAnswer::Due => {}
        }
        self.say_outgoing(out);
    }

    fn publication(
        &mut self,
        outgoing: &OutgoingPublication<'_>,
        _: &mut Frames,
        memory: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let before = out.len();
        let format = outgoing.properties().content_type().and_then(content::format_of);
        let (topic, payload, age) = (outgoing.topic(), outgoing.payload(), outgoing.seconds_left());
        self.observations.offer(outgoing.ids(), (topic, payload, format, age), memory, &mut self.charge);
        self.notify(outgoing.now());
        self.say_outgoing(out);
        Some(out.len() - before)
    }

    fn hears_refusals(&self) -> bool {
        true
    }

    fn hears_every_refusal(&self) -> bool {
        true
    }

    fn given_ids(&self) -> Option<&'static str> {
        Some(COAP_IDS)
    }

    fn protocol(&self) -> &'static str {
        "CoAP"
    }

    fn packet_length(&self) -> PacketLength {
        frame::length
    }
}
