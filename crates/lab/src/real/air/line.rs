//! What becomes of the messages on one connection between a KP and the broker: cut out of the stream, known by their kind, and
//! lost or not. Pure: bytes and chance are arguments.
//!
//! Loss over TCP is not a lost segment, which TCP repairs: it is a request, an answer or a notification that never arrives,
//! while the connection stands. So what is lost is a whole message of the protocol: an SSAP message, a frame of a WebSocket, or
//! all that one side of an HTTP connection says until the other side speaks. After such a loss HTTP has no way to go on: what
//! follows in this direction is lost, too, until the client gives the connection up.

use tidegate_sim::chance::Stream;
use tidegate_wire_ssap::{Scanned, Scanner};

use super::frame::{self, Frame};

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// SSAP over TCP.
    Ssap,
    /// SPARQL over HTTP, subscriptions over WebSocket.
    Http,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the KP to the broker.
    Up,
    /// From the broker to the KP.
    Down,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A question, or a subscription.
    Request,
    /// The end of a subscription: nobody waits for its answer.
    Farewell,
    /// What was asked for.
    Answer,
    /// What the broker says by itself.
    Notification,
    /// The rest of a message that came in several pieces, and signs of life.
    Rest,
}

/// A message, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) is_lost: bool,
}

/// A stream of chance for each kind, so that the losses of notifications do not depend on how often somebody asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Radio {
    requests: Stream,
    answers: Stream,
    notifications: Stream,
}

impl Radio {
    /// The radio of one KP in one run.
    pub(crate) fn new(seed: u64, kp: u64) -> Self {
        let of = |concern| Stream::of(seed, concern).member(kp);
        Self { requests: of("real requests"), answers: of("real answers"), notifications: of("real notifications") }
    }

    /// Whether the next message of this kind is lost.
    fn loses(&mut self, kind: Kind, loss: f64) -> bool {
        let chance = match kind {
            Kind::Request | Kind::Farewell => &mut self.requests,
            Kind::Answer => &mut self.answers,
            Kind::Notification => &mut self.notifications,
            Kind::Rest => return false,
        };
        loss > 0.0 && chance.happens(loss)
    }
}

/// More of one message than this is not waited for: the connection ends.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A message was longer than [`MESSAGE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Line {
    door: Door,
    up: Side,
    down: Side,
    /// Who spoke last on a connection of plain HTTP.
    speaker: Option<Way>,
}

#[derive(Debug, Default)]
struct Side {
    buffer: Vec<u8>,
    scanner: Scanner,
    /// Behind the handshake of a WebSocket there are frames.
    has_frames: bool,
    /// What is said is lost until the connection ends.
    is_deaf: bool,
}

impl Line {
    pub(crate) fn new(door: Door) -> Self {
        Self { door, up: Side::default(), down: Side::default(), speaker: None }
    }

    /// Bytes have come from one side: what of them goes on, in order. What is not whole waits for the rest.
    pub(crate) fn on_bytes(
        &mut self,
        way: Way,
        bytes: &[u8],
        loss: f64,
        radio: &mut Radio,
    ) -> Result<Vec<Piece>, TooLong> {
        let side = match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        };
        side.buffer.extend_from_slice(bytes);
        let mut pieces = match self.door {
            Door::Ssap => side.messages(way)?,
            Door::Http => side.talk(way, &mut self.speaker)?,
        };
        for piece in &mut pieces {
            piece.is_lost = side.is_deaf || radio.loses(piece.kind, loss);
            if self.door == Door::Http && !side.has_frames {
                side.is_deaf = piece.is_lost;
            }
        }
        Ok(pieces)
    }
}

impl Side {
    /// The SSAP messages that are whole.
    fn messages(&mut self, way: Way) -> Result<Vec<Piece>, TooLong> {
        let mut pieces = Vec::new();
        loop {
            match self.scanner.scan(&self.buffer, MESSAGE_BYTES_MAX) {
                Scanned::Incomplete => return Ok(pieces),
                Scanned::TooLarge => return Err(TooLong),
                Scanned::Message(range) => {
                    let bytes: Vec<u8> = self.buffer.drain(..range.end).collect();
                    pieces.push(Piece { kind: kind_of_message(way, &bytes), bytes, is_lost: false });
                }
            }
        }
    }

    /// Plain HTTP in whatever pieces it comes, or the frames behind a handshake.
    fn talk(&mut self, way: Way, speaker: &mut Option<Way>) -> Result<Vec<Piece>, TooLong> {
        if self.has_frames {
            return self.frames(way);
        }
        if self.buffer.is_empty() {
            return Ok(Vec::new());
        }
        let is_first = speaker.replace(way) != Some(way);
        let kind = match (is_first, way) {
            (false, _) => Kind::Rest,
            (true, Way::Up) => Kind::Request,
            (true, Way::Down) => Kind::Answer,
        };
        let Some(end) = handshake_end(way, &self.buffer).filter(|_| is_first) else {
            return Ok(vec![Piece { bytes: std::mem::take(&mut self.buffer), kind, is_lost: false }]);
        };
        // A handshake is neither a question nor an answer of a KP, and without it there is no subscription to lose anything of.
        self.has_frames = true;
        let mut pieces = vec![Piece { bytes: self.buffer.drain(..end).collect(), kind: Kind::Rest, is_lost: false }];
        pieces.append(&mut self.frames(way)?);
        Ok(pieces)
    }

    fn frames(&mut self, way: Way) -> Result<Vec<Piece>, TooLong> {
        let mut pieces = Vec::new();
        loop {
            match frame::read(&self.buffer) {
                Frame::Incomplete if self.buffer.len() > MESSAGE_BYTES_MAX => return Err(TooLong),
                Frame::Incomplete => return Ok(pieces),
                Frame::Whole { len, text } => {
                    let kind = text.map_or(Kind::Rest, |text| kind_of_frame(way, &text));
                    let bytes = self.buffer.drain(..len).collect();
                    pieces.push(Piece { bytes, kind, is_lost: false });
                }
            }
        }
    }
}

fn kind_of_message(way: Way, message: &[u8]) -> Kind {
    match way {
        Way::Up if has(message, b">UNSUBSCRIBE<") || has(message, b">LEAVE<") => Kind::Farewell,
        Way::Up => Kind::Request,
        Way::Down if has(message, b">INDICATION<") => Kind::Notification,
        Way::Down => Kind::Answer,
    }
}

/// The words are SEPA's: what was asked for is a notification that says whether it goes on, or that has the number 0.
fn kind_of_frame(way: Way, text: &[u8]) -> Kind {
    match way {
        Way::Up if has(text, b"{\"unsubscribe\"") => Kind::Farewell,
        Way::Up => Kind::Request,
        Way::Down if !has(text, b"\"notification\"") => Kind::Answer,
        Way::Down if has(text, b"\"resumed\"") || has(text, b"\"sequence\":0") => Kind::Answer,
        Way::Down => Kind::Notification,
    }
}

/// Where the head of a handshake ends, if this is one.
fn handshake_end(way: Way, bytes: &[u8]) -> Option<usize> {
    let end = position(bytes, b"\r\n\r\n")? + 4;
    let head = bytes[..end].to_ascii_lowercase();
    let is_it = match way {
        Way::Up => has(&head, b"\r\nupgrade: websocket"),
        Way::Down => head.starts_with(b"http/1.1 101"),
    };
    is_it.then_some(end)
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    position(bytes, what).is_some()
}

fn position(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
