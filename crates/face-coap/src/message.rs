//! Datagrams and what they say; the bytes themselves are coap-lite's.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use coap_lite::{CoapOption, MessageClass, MessageType, Packet};

use crate::limits::{BLOCK_BYTES, BLOCK_EXPONENT};

/// Codes of answers, class and detail (RFC 7252, section 12.1.2).
pub(crate) mod code {
    pub(crate) const EMPTY: u8 = 0;
    pub(crate) const CREATED: u8 = at(2, 1);
    pub(crate) const DELETED: u8 = at(2, 2);
    pub(crate) const VALID: u8 = at(2, 3);
    pub(crate) const CHANGED: u8 = at(2, 4);
    pub(crate) const CONTENT: u8 = at(2, 5);
    pub(crate) const CONTINUE: u8 = at(2, 31);
    pub(crate) const BAD_REQUEST: u8 = at(4, 0);
    pub(crate) const UNAUTHORIZED: u8 = at(4, 1);
    pub(crate) const BAD_OPTION: u8 = at(4, 2);
    pub(crate) const FORBIDDEN: u8 = at(4, 3);
    pub(crate) const NOT_FOUND: u8 = at(4, 4);
    pub(crate) const METHOD_NOT_ALLOWED: u8 = at(4, 5);
    pub(crate) const NOT_ACCEPTABLE: u8 = at(4, 6);
    pub(crate) const INCOMPLETE: u8 = at(4, 8);
    pub(crate) const PRECONDITION_FAILED: u8 = at(4, 12);
    pub(crate) const TOO_LARGE: u8 = at(4, 13);
    pub(crate) const TOO_MANY_REQUESTS: u8 = at(4, 29);
    pub(crate) const UNAVAILABLE: u8 = at(5, 3);
    pub(crate) const NO_PROXY: u8 = at(5, 5);

    const fn at(class: u8, detail: u8) -> u8 {
        class << 5 | detail
    }
}

/// What a client calls a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    len: u8,
    bytes: [u8; 8],
}

impl Token {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().min(8);
        let mut token = Self { len: len as u8, bytes: [0; 8] };
        token.bytes[..len].copy_from_slice(&bytes[..len]);
        token
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// How a request is to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// The identifier of the message that the request came in.
    pub(crate) message: u16,
    pub(crate) token: Token,
    pub(crate) is_confirmable: bool,
    /// An acknowledgement went ahead: the answer is a message of its own.
    pub(crate) is_acked: bool,
    /// Classes of answers that the client does not want (RFC 7967).
    pub(crate) no_response: u8,
    /// The last block that it came in, which the answer names.
    pub(crate) block1: Option<Block>,
}

impl Request {
    /// Whether this, or this as the last of its blocks, publishes something.
    pub(crate) fn is_publication(&self) -> bool {
        matches!(self.method, Method::Put | Method::Delete) && self.block1.is_none_or(|block| !block.has_more)
    }
}

impl Exchange {
    /// Whether the client wants to hear an answer of this code.
    pub(crate) fn wants(&self, code: u8) -> bool {
        let class = code >> 5;
        class == 0 || self.no_response & (1 << (class - 1)) == 0
    }
}

/// A block option (RFC 7959, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) number: u32,
    pub(crate) has_more: bool,
    pub(crate) exponent: u8,
}

impl Block {
    fn read(value: &[u8]) -> Option<Self> {
        let value = read_uint(value, 3)?;
        let exponent = (value & 7) as u8;
        (exponent < 7).then_some(Self { number: value >> 4, has_more: value & 8 != 0, exponent })
    }

    fn value(self) -> u32 {
        self.number << 4 | u32::from(self.has_more) << 3 | u32::from(self.exponent)
    }

    pub(crate) fn bytes(self) -> usize {
        1 << (self.exponent + 4)
    }

    /// Where it begins in the whole.
    pub(crate) fn start(self) -> usize {
        self.number as usize * self.bytes()
    }
}

/// The four methods that there are, and what others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Delete,
    Other,
}

/// Why a request cannot be dealt with as it asks (RFC 7252, sections 5.4.1 and 5.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionProblem {
    /// One that matters and that we do not know, or cannot read.
    Unknown,
    /// We are no proxy.
    Proxy,
}

/// A request, read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) exchange: Exchange,
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) queries: Vec<String>,
    pub(crate) observe: Option<u32>,
    pub(crate) block1: Option<Block>,
    pub(crate) block2: Option<Block>,
    pub(crate) echo: Option<Vec<u8>>,
    pub(crate) content_format: Option<u16>,
    pub(crate) accept: Option<u16>,
    pub(crate) etags: Vec<Vec<u8>>,
    pub(crate) if_match: Vec<Vec<u8>>,
    pub(crate) if_none_match: bool,
    pub(crate) payload: Vec<u8>,
    pub(crate) problem: Option<OptionProblem>,
}

/// What a datagram is.
#[derive(Debug)]
pub(crate) enum Datagram {
    /// A request.
    Request(Box<Request>),
    /// A message of ours was taken.
    Ack(u16),
    /// A message of ours means nothing to its receiver.
    Reset(u16),
    /// Something to be answered by a reset: a ping, or what cannot be understood.
    ToReset { message: u16, is_ping: bool },
    /// Nothing to be answered at all.
    Nothing,
}

pub(crate) fn read(bytes: &[u8]) -> Datagram {
    let Some(&[first, code, high, low]) = bytes.first_chunk::<4>() else { return Datagram::Nothing };
    if first >> 6 != 1 {
        // Another version: silently ignored (section 3).
        return Datagram::Nothing;
    }
    let (kind, message) = (first >> 4 & 3, u16::from_be_bytes([high, low]));
    let is_confirmable = kind == 0;
    let rejected = if is_confirmable { Datagram::ToReset { message, is_ping: false } } else { Datagram::Nothing };
    match (kind, code) {
        // An empty message has nothing behind its header (section 4.1).
        (_, 0) if bytes.len() > 4 => rejected,
        (0, 0) => Datagram::ToReset { message, is_ping: true },
        (3, 0) => Datagram::Reset(message),
        // An answer may come with an acknowledgement; nothing was asked, so only the latter counts.
        (2, _) => Datagram::Ack(message),
        (0 | 1, 1..=31) => match Packet::from_bytes(bytes) {
            Ok(packet) if !ends_with_a_marker(&packet, bytes) => {
                Datagram::Request(Box::new(request(packet, is_confirmable)))
            }
            _ => rejected,
        },
        _ => rejected,
    }
}

/// A marker with no payload behind it is a format error (section 3); coap-lite reads over it.
fn ends_with_a_marker(packet: &Packet, bytes: &[u8]) -> bool {
    let may_be = packet.payload.is_empty() && bytes.last() == Some(&0xff);
    may_be && packet.to_bytes_unlimited().is_ok_and(|without| without.len() < bytes.len())
}

fn request(packet: Packet, is_confirmable: bool) -> Request {
    let mut problem = None;
    for (number, values) in packet.options() {
        match *number {
            35 | 39 => problem = Some(OptionProblem::Proxy),
            1 | 3 | 7 | 11 | 15 => {}
            // These may come once.
            5 | 17 | 23 | 27 if values.len() == 1 => {}
            number if number % 2 == 1 => problem = problem.or(Some(OptionProblem::Unknown)),
            _ => {}
        }
    }
    let mut texts = |option| {
        let mut found = Vec::new();
        for value in packet.get_option(option).into_iter().flatten() {
            match String::from_utf8(value.clone()) {
                Ok(text) => found.push(text),
                Err(_) => problem = problem.or(Some(OptionProblem::Unknown)),
            }
        }
        found
    };
    let (path, queries) = (texts(CoapOption::UriPath), texts(CoapOption::UriQuery));
    let uint = |number: u16, bytes_max| read_uint(packet.get_first_option(CoapOption::from(number))?, bytes_max);
    let block = |number: u16| packet.get_first_option(CoapOption::from(number)).map(|value| Block::read(value));
    let (block1, block2) = (block(27), block(23));
    if block1 == Some(None) || block2 == Some(None) {
        problem = problem.or(Some(OptionProblem::Unknown));
    }
    let all = |option| packet.get_option(option).into_iter().flatten().cloned().collect::<Vec<_>>();
    let method = match u8::from(packet.header.code) {
        1 => Method::Get,
        2 => Method::Post,
        3 => Method::Put,
        4 => Method::Delete,
        _ => Method::Other,
    };
    Request {
        exchange: Exchange {
            message: packet.header.message_id,
            token: Token::new(packet.get_token()),
            is_confirmable,
            is_acked: false,
            no_response: uint(258, 1).unwrap_or(0) as u8,
            block1: block1.flatten(),
        },
        method,
        observe: uint(6, 3),
        block1: block1.flatten(),
        block2: block2.flatten(),
        echo: packet.get_first_option(CoapOption::from(252)).cloned(),
        content_format: uint(12, 2).map(|format| format as u16),
        accept: uint(17, 2).map(|format| format as u16),
        etags: all(CoapOption::ETag),
        if_match: all(CoapOption::IfMatch),
        if_none_match: packet.get_option(CoapOption::IfNoneMatch).is_some(),
        path,
        queries,
        payload: packet.payload,
        problem,
    }
}

fn read_uint(value: &[u8], bytes_max: usize) -> Option<u32> {
    (value.len() <= bytes_max).then(|| value.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// What is said, with its options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer<'a> {
    pub(crate) code: u8,
    pub(crate) observe: Option<u32>,
    pub(crate) etag: Option<u32>,
    /// The topic, where the request does not name it.
    pub(crate) location: Option<&'a str>,
    pub(crate) content_format: Option<u16>,
    pub(crate) max_age: Option<u32>,
    pub(crate) block1: Option<Block>,
    pub(crate) block2: Option<Block>,
    pub(crate) size1: Option<u32>,
    pub(crate) size2: Option<u32>,
    pub(crate) echo: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(crate) fn new(code: u8) -> Self {
        Self { code, ..Self::default() }
    }

    /// With a sentence for people.
    pub(crate) fn because(code: u8, why: &'a str) -> Self {
        Self { code, payload: why.as_bytes(), ..Self::default() }
    }

    /// The block that was asked for, or the first one of a body that is too large for a datagram. None: there is no such block.
    pub(crate) fn cut(self, wanted: Option<Block>) -> Option<Self> {
        let whole = self.payload;
        let wanted = wanted.unwrap_or(Block { number: 0, has_more: false, exponent: BLOCK_EXPONENT });
        if wanted.number == 0 && whole.len() <= wanted.bytes().min(BLOCK_BYTES) {
            return Some(self);
        }
        let start = wanted.start();
        let payload = whole.get(start..whole.len().min(start.saturating_add(wanted.bytes())))?;
        if payload.is_empty() {
            return None;
        }
        let block = Block { has_more: start + payload.len() < whole.len(), ..wanted };
        let size2 = u32::try_from(whole.len()).ok().filter(|_| wanted.number == 0);
        Some(Self { payload, block2: Some(block), size2, ..self })
    }
}

/// How a message is sent.
pub(crate) type MessageKind = MessageType;

/// The bytes of a message; empty if they would be more than a datagram has room for, which no caller lets happen.
pub(crate) fn write(kind: MessageKind, message: u16, token: Token, answer: &Answer<'_>) -> Vec<u8> {
    let mut packet = Packet::new();
    packet.header.set_version(1);
    packet.header.set_type(kind);
    packet.header.code = MessageClass::from(answer.code);
    packet.header.message_id = message;
    packet.set_token(token.as_bytes().to_vec());
    let numbers = [
        (6, answer.observe),
        (12, answer.content_format.map(u32::from)),
        (14, answer.max_age),
        (23, answer.block2.map(Block::value)),
        (27, answer.block1.map(Block::value)),
        (28, answer.size2),
        (60, answer.size1),
    ];
    for (number, value) in numbers {
        if let Some(value) = value {
            packet.add_option(CoapOption::from(number), write_uint(value));
        }
    }
    if let Some(etag) = answer.etag {
        packet.add_option(CoapOption::ETag, etag.to_be_bytes().to_vec());
    }
    for level in answer.location.into_iter().flat_map(|topic| topic.split('/')) {
        packet.add_option(CoapOption::LocationPath, level.as_bytes().to_vec());
    }
    if let Some(echo) = answer.echo {
        packet.add_option(CoapOption::from(252), echo.to_vec());
    }
    packet.payload = answer.payload.to_vec();
    packet.to_bytes_unlimited().unwrap_or_default()
}

/// A message without anything in it: an acknowledgement, a reset, a ping.
pub(crate) fn write_empty(kind: MessageKind, message: u16) -> Vec<u8> {
    write(kind, message, Token::default(), &Answer::new(code::EMPTY))
}

fn write_uint(value: u32) -> Vec<u8> {
    value.to_be_bytes().iter().copied().skip_while(|byte| *byte == 0).collect()
}
