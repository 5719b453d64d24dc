//! A client that watches one value by CoAP: by observing it, or by asking for it when its pacer says so. Its requests are confirmable
//! and repeated as RFC 7252 has it (section 4.8), which is what clients do that nobody here wrote; an observation of which nothing
//! was heard for as long as a state is fresh (60 s by default) is asked for anew (RFC 7641, section 3.3.1).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use coap_lite::{CoapOption, MessageClass, MessageType, Packet};
use tidegate_control::Timestamp;
use tidegate_control::pacer::{Outcome, Pacer};

use crate::chance::Stream;

/// The least time until a request is repeated; up to half of it more.
const ACK_TIMEOUT: f64 = 2.0;
const RETRANSMITS_MAX: u32 = 4;
/// How long a state is fresh of which nothing else is said (RFC 7252, section 5.10.5), and how much later it is asked for, at most.
const MAX_AGE: f64 = 60.0;
const MAX_AGE_SPREAD: f64 = 15.0;
/// Messages of the broker that are recognised when they come again.
const RECENT_MAX: usize = 32;

pub(super) struct Watcher {
    pub(super) address: SocketAddr,
    /// None: it observes.
    pacer: Option<Pacer>,
    chance: Stream,
    /// The version that it has, and those that there were since, with their times.
    pub(super) known: u32,
    pub(super) unseen: VecDeque<(u32, Timestamp)>,
    request: Option<Request>,
    next_message: u16,
    recent: VecDeque<u16>,
    /// When it is to be asked again, and when that is planned for.
    pub(super) due: Timestamp,
    pub(super) planned: Option<Timestamp>,
}

struct Request {
    message: u16,
    bytes: Vec<u8>,
    sent_at: Timestamp,
    repetitions: u32,
    wait: f64,
}

/// What a client has learned from a datagram.
#[derive(Default)]
pub(super) struct Learned {
    /// The version that the datagram told of.
    pub(super) version: Option<u32>,
    /// The answer to it, if there is one.
    pub(super) answer: Option<Vec<u8>>,
    /// It had come before.
    pub(super) is_needless: bool,
}

impl Watcher {
    pub(super) fn new(address: SocketAddr, pacer: Option<Pacer>, chance: Stream) -> Self {
        let (unseen, recent) = (VecDeque::new(), VecDeque::new());
        let (due, planned) = (Timestamp::ZERO, None);
        Self { address, pacer, chance, known: 0, unseen, request: None, next_message: 1, recent, due, planned }
    }

    /// What it does first.
    pub(super) fn begin(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if let Some(pacer) = &mut self.pacer {
            let delay = pacer.first_delay(&mut self.chance).unwrap_or_default();
            self.due = now + delay;
            return None;
        }
        Some(self.ask(now))
    }

    /// Its time has come: what it sends.
    pub(super) fn on_due(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if now < self.due {
            return None;
        }
        let Some(request) = &mut self.request else { return Some(self.ask(now)) };
        if request.repetitions < RETRANSMITS_MAX {
            request.repetitions += 1;
            request.wait *= 2.0;
            self.due = now + Duration::from_secs_f64(request.wait);
            return Some(request.bytes.clone());
        }
        self.request = None;
        match &mut self.pacer {
            Some(pacer) => {
                let delay = pacer.on_outcome(now, &Outcome::TimedOut, &mut self.chance);
                self.due = now + delay.unwrap_or_default();
            }
            None => self.plan_refresh(now),
        }
        None
    }

    fn ask(&mut self, now: Timestamp) -> Vec<u8> {
        let message = self.next_message;
        self.next_message = self.next_message.wrapping_add(1);
        let mut packet = Packet::new();
        packet.header.set_type(MessageType::Confirmable);
        packet.header.code = MessageClass::from(GET);
        packet.header.message_id = message;
        packet.set_token(vec![7]);
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent();
        } else {
            packet.add_option(CoapOption::Observe, Vec::new());
        }
        for level in ["ps".to_owned(), topic(self.address)] {
            packet.add_option(CoapOption::UriPath, level.into_bytes());
        }
        let bytes = packet.to_bytes().unwrap_or_default();
        let wait = ACK_TIMEOUT * (1.0 + 0.5 * self.chance.unit());
        self.due = now + Duration::from_secs_f64(wait);
        self.request = Some(Request { message, bytes: bytes.clone(), sent_at: now, repetitions: 0, wait });
        bytes
    }

    fn plan_refresh(&mut self, now: Timestamp) {
        self.due = now + Duration::from_secs_f64(MAX_AGE + MAX_AGE_SPREAD * self.chance.unit());
    }

    /// A datagram of the broker's has arrived.
    pub(super) fn on_datagram(&mut self, bytes: &[u8], now: Timestamp) -> Learned {
        let Ok(packet) = Packet::from_bytes(bytes) else { return Learned::default() };
        let (kind, message) = (packet.header.get_type(), packet.header.message_id);
        let mut learned = Learned::default();
        if kind == MessageType::Confirmable {
            // A sign of life that is wanted is a message without a code, and answered by a reset (section 4.3).
            let is_ping = u8::from(packet.header.code) == 0;
            let answer = if is_ping { MessageType::Reset } else { MessageType::Acknowledgement };
            learned.answer = Some(empty(answer, message));
        }
        if kind != MessageType::Acknowledgement {
            learned.is_needless = self.recent.contains(&message);
            if !learned.is_needless {
                self.recent.truncate(RECENT_MAX - 1);
                self.recent.push_front(message);
            }
        }
        if packet.header.get_code() == "2.05" {
            learned.version = Some(version_of(&packet.payload));
        }
        let is_answer = kind == MessageType::Acknowledgement;
        if let Some(request) = self.request.take_if(|request| is_answer && request.message == message) {
            let losses = learned.version.unwrap_or(self.known).saturating_sub(self.known);
            if let Some(pacer) = &mut self.pacer {
                let outcome = Outcome::answered(now.since(request.sent_at), losses);
                let delay = pacer.on_outcome(now, &outcome, &mut self.chance);
                self.due = now + delay.unwrap_or_default();
            }
        }
        if self.pacer.is_none() && self.request.is_none() {
            self.plan_refresh(now);
        }
        learned
    }
}

const GET: u8 = 1;
const PUT: u8 = 3;

/// What a client watches has the name of its address.
fn topic(address: SocketAddr) -> String {
    address.to_string()
}

fn version_of(payload: &[u8]) -> u32 {
    std::str::from_utf8(payload).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn empty(kind: MessageType, message: u16) -> Vec<u8> {
    let mut packet = Packet::new();
    packet.header.set_type(kind);
    packet.header.code = MessageClass::Empty;
    packet.header.message_id = message;
    packet.to_bytes().unwrap_or_default()
}

/// A new version of the value that the client at this address watches; as a message that is not repeated.
pub(super) fn publication(address: SocketAddr, version: u32) -> Vec<u8> {
    let mut packet = Packet::new();
    packet.header.set_type(MessageType::NonConfirmable);
    packet.header.code = MessageClass::from(PUT);
    packet.header.message_id = version as u16;
    packet.set_token(vec![1]);
    for level in ["ps".to_owned(), topic(address)] {
        packet.add_option(CoapOption::UriPath, level.into_bytes());
    }
    packet.payload = format!("{version:>16}").into_bytes();
    packet.to_bytes().unwrap_or_default()
}
