//! One connection: requests that are not answered yet, in order, or a stream of events.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use tidegate_core::Memory;
use tidegate_core::access::HTTP_IDS;
use tidegate_core::event::Why;
use tidegate_core::face::{ClientAnswer, Face, Frames, OutgoingPublication, PacketLength};
use tidegate_wire_mqtt::{Delivery, ReasonCode};

use crate::answer::{Answer, Manner, Pace, put, put_fault, put_problem, put_stream, refusal, status_of};
use crate::body::Chunked;
use crate::event::{self, HEARTBEAT, put_missed};
use crate::first::Proof;
use crate::head::Fault;
use crate::limits::{BEHIND_BYTES_MAX, BUSY, EXCHANGES_MAX, RETRY_AFTER_END};
use crate::stream::{Stream, StreamState};

/// How one connection is spoken to.
#[derive(Debug)]
pub struct HttpLink {
    pub(crate) peer: SocketAddr,
    pub(crate) proof: Proof,
    exchanges: VecDeque<Exchange>,
    next_number: u16,
    /// The one that is being published without a number.
    current: Option<u16>,
    pub(crate) chunked: Option<Box<Chunked>>,
    /// The client was told to go on with the body that is coming.
    pub(crate) is_continued: bool,
    pub(crate) waits: Waits,
    pub(crate) stream: Option<Box<Stream>>,
    /// How the stream's head is to be written.
    pub(crate) manner: Manner,
    /// The stream is said to go on, and nobody knows of it.
    pub(crate) is_unknown: bool,
    /// What is to be said at the next opportunity.
    pub(crate) outgoing: Vec<u8>,
    /// Requests that were read, of those refused for what they said.
    pub(crate) requests: u64,
    pub(crate) malformed: u64,
}

/// What a connection waits to be done with it when all is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    Nothing,
    /// Its next request is somebody else's, or wants a stream: it is to begin anew.
    Switch,
    /// It is to be closed.
    Close,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Exchange {
    number: u16,
    manner: Manner,
    /// The answer if all is well.
    success: u16,
    /// What is to be said, once that is known.
    response: Option<Vec<u8>>,
}

impl HttpLink {
    pub(crate) fn new(peer: SocketAddr, proof: Proof, manner: Manner) -> Self {
        Self {
            peer,
            proof,
            exchanges: VecDeque::new(),
            next_number: 0,
            current: None,
            chunked: None,
            is_continued: false,
            waits: Waits::Nothing,
            stream: None,
            manner,
            is_unknown: false,
            outgoing: Vec::new(),
            requests: 0,
            malformed: 0,
        }
    }

    /// What it waits for, if everything that was asked is answered.
    pub(crate) fn settled(&self) -> Option<Waits> {
        (self.exchanges.is_empty() && self.outgoing.is_empty()).then_some(self.waits)
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.exchanges.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        let behind: usize = self.exchanges.iter().filter_map(|open| Some(open.response.as_ref()?.len())).sum();
        self.exchanges.len() >= EXCHANGES_MAX || behind > BEHIND_BYTES_MAX
    }

    /// A request goes to the core, which will answer by this number.
    pub(crate) fn open(&mut self, manner: Manner, success: u16) -> u16 {
        // No more of them are open than there are numbers.
        loop {
            self.next_number = self.next_number.checked_add(1).unwrap_or(1);
            if self.exchanges.iter().all(|open| open.number != self.next_number) {
                break;
            }
        }
        if !manner.is_keep_alive {
            self.waits = Waits::Close;
        }
        self.exchanges.push_back(Exchange { number: self.next_number, manner, success, response: None });
        self.next_number
    }

    /// The request that was just opened will be handed in again.
    pub(crate) fn reopen_later(&mut self, waits: Waits) {
        self.exchanges.pop_back();
        (self.current, self.waits) = (None, waits);
    }

    /// The one that is published without a number.
    pub(crate) fn set_current(&mut self, number: u16) {
        self.current = Some(number);
    }

    /// The core had nothing to say about it.
    pub(crate) fn take_current(&mut self) -> Option<u16> {
        self.current.take()
    }

    /// Answers a request at once.
    pub(crate) fn respond(&mut self, manner: Manner, write: impl FnOnce(&Manner, &mut Vec<u8>)) {
        let number = self.open(manner, 200);
        self.fill(number, |manner, _, out| write(manner, out));
    }

    /// Answers what is no request, after which nothing is one.
    pub(crate) fn fail(&mut self, fault: Fault, manner: Manner) {
        self.malformed += 1;
        self.respond(Manner { is_keep_alive: false, ..manner }, |manner, out| put_fault(fault, manner, out));
    }

    pub(crate) fn succeed(&mut self, number: u16, interval: Option<Duration>) {
        self.fill(number, |manner, success, out| {
            let headers = interval.map(|time| ("pace-interval-ms", time.as_millis().max(1).to_string()));
            put(&Answer { headers: headers.into_iter().collect(), ..Answer::empty(success) }, manner, out);
        });
    }

    fn refuse(&mut self, number: u16, status: u16, why: &str, pace: Pace) {
        self.fill(number, |manner, _, out| put_problem(status, why, pace, manner, out));
    }

    /// What is to be said about a request.
    fn fill(&mut self, number: u16, write: impl FnOnce(&Manner, u16, &mut Vec<u8>)) {
        if let Some(open) = self.exchanges.iter_mut().find(|open| open.number == number) {
            let mut response = Vec::new();
            write(&open.manner, open.success, &mut response);
            open.response = Some(response);
        }
    }

    /// Answers in the order of their requests (RFC 9112, section 9.3.2).
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.outgoing);
        while let Some(response) = self.exchanges.front_mut().and_then(|open| open.response.take()) {
            self.exchanges.pop_front();
            out.extend_from_slice(&response);
        }
    }

    fn number_of(&mut self, delivery: Delivery) -> Option<u16> {
        delivery.packet_id().map_or_else(|| self.current.take(), |number| Some(number.get()))
    }

    /// A stream begins, or is refused.
    fn begin(&mut self, refused: Option<ReasonCode>, out: &mut Vec<u8>) {
        let Some(stream) = &mut self.stream else { return };
        if let Some(reason) = refused {
            let status = if reason == ReasonCode::QuotaExceeded { 503 } else { status_of(reason) };
            let pace = Pace { retry_after: (status == 503).then_some(BUSY), interval: None };
            let manner = Manner { is_keep_alive: false, ..self.manner.clone() };
            self.waits = Waits::Close;
            put_problem(status, reason.name(), pace, &manner, out);
            return;
        }
        stream.state = StreamState::Open;
        put_stream(&self.manner, out);
        stream.put_id(out);
        if self.is_unknown {
            put_missed(None, out);
        }
    }

    /// The connection ends: what is asked is answered, as well as it can be.
    fn dismiss(&mut self, why: &Why) {
        if let Some(stream) = &self.stream {
            if stream.state == StreamState::Open {
                self.outgoing.extend_from_slice(format!("retry: {}\n\n", RETRY_AFTER_END.as_millis()).as_bytes());
            }
            return;
        }
        let (status, pace) = match why {
            Why::TooFast { interval, retry_after } => {
                (429, Pace { retry_after: Some(*retry_after), interval: *interval })
            }
            Why::Protocol { reason: ReasonCode::KeepAliveTimeout, .. } if self.exchanges.is_empty() => {
                return put_problem(
                    408,
                    "the request did not come in time",
                    Pace::default(),
                    &Manner::last(),
                    &mut self.outgoing,
                );
            }
            _ => (503, Pace { retry_after: Some(RETRY_AFTER_END), interval: None }),
        };
        for open in &mut self.exchanges {
            let manner = Manner { is_keep_alive: false, ..open.manner.clone() };
            let mut response = Vec::new();
            put_problem(status, "the broker has ended this connection", pace, &manner, &mut response);
            open.response.get_or_insert(response);
        }
    }
}

impl Face for HttpLink {
    fn answer(&mut self, answer: &ClientAnswer<'_>, out: &mut Vec<u8>) {
        match *answer {
            ClientAnswer::Taken { delivery, interval, .. } => {
                if let Some(number) = self.number_of(delivery) {
                    self.succeed(number, interval);
                }
            }
            ClientAnswer::Refused { delivery, refusal } => {
                if let Some(number) = self.number_of(delivery) {
                    let is_pace = refusal.interval.is_some() || refusal.why == "publishing too fast";
                    let pace = Pace { retry_after: Some(refusal.retry_after), interval: refusal.interval };
                    self.refuse(number, if is_pace { 429 } else { 503 }, refusal.why, pace);
                }
            }
            ClientAnswer::Rejected { delivery, reason } => {
                if let Some(number) = self.number_of(delivery) {
                    let status = status_of(reason);
                    let pace = Pace { retry_after: (status == 503).then_some(BUSY), interval: None };
                    self.refuse(number, status, reason.name(), pace);
                }
            }
            ClientAnswer::Subscribed { grants, .. } => {
                self.begin(grants.iter().find_map(|grant| grant.err()), out);
            }
            ClientAnswer::Unwelcome { reason, later } => {
                let (words, retry_after) = later.map_or((reason.name(), None), |(words, time)| (words, Some(time)));
                let origin = self.manner.origin.as_deref();
                out.extend_from_slice(&refusal(reason, words, retry_after, origin));
                return;
            }
            ClientAnswer::Goodbye(why) => self.dismiss(why),
            ClientAnswer::Welcome { .. }
            | ClientAnswer::Release { .. }
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
        _: &mut Frames,
        memory: &Memory,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let before = out.len();
        if let Some(stream) = &mut self.stream {
            stream.take(outgoing, memory, out);
        }
        Some(out.len() - before)
    }

    fn hears_refusals(&self) -> bool {
        true
    }

    fn hears_every_refusal(&self) -> bool {
        true
    }

    fn given_ids(&self) -> Option<&'static str> {
        Some(HTTP_IDS)
    }

    fn protocol(&self) -> &'static str {
        "HTTP"
    }

    /// Of a stream. Between requests nothing but answers is written, and those keep their order.
    fn packet_length(&self) -> PacketLength {
        event::length
    }
}

impl HttpLink {
    /// Says that the stream is there.
    pub(crate) fn beat(&mut self) {
        if self.stream.as_ref().is_some_and(|stream| stream.state == StreamState::Open) {
            self.outgoing.extend_from_slice(HEARTBEAT);
        }
    }
}
