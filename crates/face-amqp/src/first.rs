//! The first bytes of a connection, before anybody knows who it is: the headers of protocols, SASL (part 5), and `open`.
//!
//! Who comes without SASL is nobody in particular, or who its certificate says.

use core::time::Duration;

use tidegate_wire_mqtt::ReasonCode;

use crate::condition::{AmqpError, DECODE, FRAMING, ILLEGAL_STATE, INVALID_FIELD, condition_of};
use crate::frame::{self, AMQP_HEADER, Frame, Framed, SASL_HEADER};
use crate::limits::{FRAME_BYTES_MIN, GREETING_FRAME_BYTES_MAX, IDLE_MIN};
use crate::performative::{Open, Performative};
use crate::reply::{put_close, put_open};
use crate::types::{Malformed, Reader, Value};
use crate::write::{AMQP_FRAME, SASL_FRAME, composite, sasl_frame, symbols, ubyte};

/// How far a connection has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    pub(crate) step: GreetingStep,
    pub(crate) shown: Shown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GreetingStep {
    /// Nothing was said.
    #[default]
    Begin,
    /// It is to say who it is.
    Mechanism,
    /// Somebody finds out whether that is true.
    Login,
    /// That is known, and AMQP begins.
    Header,
    /// It is to say what it is called.
    Open,
}

/// Which mechanisms are offered, beside a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Nobody in particular may come in.
    pub anonymous: bool,
    /// It has shown a certificate.
    pub external: bool,
}

/// What somebody shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub user_name: Option<String>,
    pub password: Option<Vec<u8>>,
}

/// What the bytes of a client come to.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// Nothing wrong so far; more is needed.
    Incomplete,
    /// Something is to be answered at once.
    Answer {
        /// Bytes that are done with.
        consumed: usize,
        answer: Vec<u8>,
    },
    /// It has said who it is: the answer is [`Greeting::admit`] or [`Greeting::refusal`].
    Login { consumed: usize, shown: Shown },
    /// It has said what it is called, and whatever else there is to know.
    Hello { consumed: usize, hello: Box<AmqpHello> },
    /// It ends here.
    Refuse {
        answer: Vec<u8>,
        /// For the log.
        why: String,
    },
}

/// What a client says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AmqpHello {
    pub shown: Shown,
    /// Empty, if it does not care.
    pub container_id: String,
    pub(crate) max_frame_size: u32,
    pub(crate) channel_max: u16,
    /// How often it wants a sign of life, if it does.
    pub(crate) idle: Option<Duration>,
    /// How long its session is to outlive the connection.
    pub(crate) session_expiry: Duration,
    /// Bytes of its `open`.
    pub(crate) bytes: usize,
}

impl Greeting {
    /// Looks at bytes that were not used before.
    pub fn advance(&mut self, input: &[u8], offers: Offers) -> First {
        match self.step {
            GreetingStep::Begin => self.begin(input, offers),
            GreetingStep::Mechanism => self.hear_mechanism(input, offers),
            GreetingStep::Login => First::Incomplete,
            GreetingStep::Header => match input.first_chunk::<8>() {
                None => First::Incomplete,
                Some(AMQP_HEADER) => {
                    self.step = GreetingStep::Open;
                    First::Answer { consumed: 8, answer: AMQP_HEADER.to_vec() }
                }
                Some(_) => refuse(AMQP_HEADER.to_vec(), "AMQP does not go on after SASL"),
            },
            GreetingStep::Open => self.hear_open(input),
        }
    }

    /// That of somebody who has said `open`.
    pub fn opened() -> Self {
        Self { step: GreetingStep::Open, shown: Shown::default() }
    }

    /// Who it is is known.
    pub fn admit(&mut self) -> Vec<u8> {
        self.step = GreetingStep::Header;
        outcome(OutcomeCode::Ok)
    }

    /// Whether SASL waits for its outcome.
    pub fn is_login(&self) -> bool {
        self.step == GreetingStep::Login
    }

    /// The last words to somebody who is not let in, for this reason.
    pub fn refusal(&self, reason: ReasonCode, words: &str, retry_after: Option<Duration>) -> Vec<u8> {
        match self.step {
            GreetingStep::Begin | GreetingStep::Header => Vec::new(),
            GreetingStep::Mechanism | GreetingStep::Login => outcome(match reason {
                ReasonCode::ServerBusy | ReasonCode::ServerUnavailable | ReasonCode::ConnectionRateExceeded => {
                    OutcomeCode::Temporary
                }
                _ => OutcomeCode::Auth,
            }),
            GreetingStep::Open => {
                let condition = condition_of(reason);
                let error = match retry_after {
                    Some(after) => AmqpError::later(condition, words, after, None),
                    None => AmqpError::new(condition, words),
                };
                closed(&error)
            }
        }
    }

    fn begin(&mut self, input: &[u8], offers: Offers) -> First {
        let Some(header) = input.first_chunk::<8>() else {
            let is_amqp = AMQP_HEADER.starts_with(&input[..input.len().min(4)]) && input.len() < 8;
            return if is_amqp { First::Incomplete } else { unknown(input) };
        };
        match header {
            AMQP_HEADER => {
                self.step = GreetingStep::Open;
                First::Answer { consumed: 8, answer: AMQP_HEADER.to_vec() }
            }
            SASL_HEADER => {
                self.step = GreetingStep::Mechanism;
                let mut answer = SASL_HEADER.to_vec();
                let mut mechanisms = vec!["PLAIN"];
                if offers.anonymous {
                    mechanisms.push("ANONYMOUS");
                }
                if offers.external {
                    mechanisms.insert(0, "EXTERNAL");
                }
                sasl_frame(&mut answer, |out| {
                    composite(0x40, out, |fields| {
                        fields.put(|out| symbols(&mechanisms, out));
                    });
                });
                First::Answer { consumed: 8, answer }
            }
            _ => unknown(input),
        }
    }

    fn hear_mechanism(&mut self, input: &[u8], offers: Offers) -> First {
        let frame = match frame::read(input, GREETING_FRAME_BYTES_MAX) {
            Framed::Frame(frame) if frame.kind == SASL_FRAME => frame,
            Framed::Frame(_) => return refuse(outcome(OutcomeCode::System), "a frame of AMQP in place of SASL's"),
            Framed::Incomplete(_) => return First::Incomplete,
            Framed::Broken(why) => return refuse(outcome(OutcomeCode::System), why),
        };
        let consumed = frame.size;
        match read_init(&frame, offers) {
            Ok(Some(shown)) => {
                self.step = GreetingStep::Login;
                self.shown = shown.clone();
                First::Login { consumed, shown }
            }
            Ok(None) => refuse(outcome(OutcomeCode::Auth), "a mechanism that was not offered, or a response of none"),
            Err(Malformed(why)) => refuse(outcome(OutcomeCode::System), why),
        }
    }

    fn hear_open(&mut self, input: &[u8]) -> First {
        let broken = |condition, why: &str| refuse(closed(&AmqpError::new(condition, why)), why);
        let frame = match frame::read(input, GREETING_FRAME_BYTES_MAX) {
            Framed::Frame(frame) if frame.kind == AMQP_FRAME => frame,
            Framed::Frame(_) => return broken(FRAMING, "a frame of SASL in place of AMQP's"),
            Framed::Incomplete(_) => return First::Incomplete,
            Framed::Broken(why) => return broken(FRAMING, why),
        };
        if frame.body.is_empty() {
            return First::Answer { consumed: frame.size, answer: Vec::new() };
        }
        let open = match read_open(&frame) {
            Ok(Some(open)) => open,
            Ok(None) => return broken(ILLEGAL_STATE, "open comes first"),
            Err(Malformed(why)) => return broken(DECODE, why),
        };
        if open.max_frame_size < FRAME_BYTES_MIN {
            return broken(INVALID_FIELD, "max-frame-size is less than 512");
        }
        let idle = (open.idle_time_out > 0).then(|| Duration::from_millis(open.idle_time_out.into()));
        if idle.is_some_and(|idle| idle < IDLE_MIN) {
            return broken(INVALID_FIELD, "idle-time-out is shorter than 200 ms");
        }
        let session_expiry = match session_expiry(&open) {
            Ok(expiry) => expiry,
            Err(Malformed(why)) => return broken(DECODE, why),
        };
        let hello = AmqpHello {
            shown: self.shown.clone(),
            container_id: open.container_id.to_owned(),
            max_frame_size: open.max_frame_size,
            channel_max: open.channel_max,
            idle,
            session_expiry,
            bytes: frame.size,
        };
        First::Hello { consumed: frame.size, hello: Box::new(hello) }
    }
}

/// Words for somebody who has said `open`, and is turned away.
pub fn refusal(reason: ReasonCode, words: &str, retry_after: Option<Duration>) -> Vec<u8> {
    Greeting::opened().refusal(reason, words, retry_after)
}

/// `open`, because `close` cannot come without one, and why it is closed.
fn closed(error: &AmqpError) -> Vec<u8> {
    let mut out = Vec::new();
    put_open(None, &mut out);
    put_close(Some(error), &mut out);
    out
}

fn refuse(answer: Vec<u8>, why: &str) -> First {
    First::Refuse { answer, why: why.to_owned() }
}

/// Section 2.2: who asks for something else is told what there is.
fn unknown(input: &[u8]) -> First {
    const SIGNS: [(&[u8], &str); 5] = [
        (b"\x16\x03", "a TLS handshake on a port without TLS"),
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1 on a port of AMQP 1.0"),
        (b"AMQP", "another version of AMQP, or TLS inside of it"),
        (b"GET ", "an HTTP request on a port of AMQP"),
        (b"\x10", "MQTT on a port of AMQP"),
    ];
    let sign = SIGNS.iter().find(|(sign, _)| input.starts_with(sign));
    let answer = if input.starts_with(b"AMQP") { SASL_HEADER.to_vec() } else { Vec::new() };
    refuse(answer, sign.map_or("no header of AMQP", |(_, why)| why))
}

fn read_init(frame: &Frame<'_>, offers: Offers) -> Result<Option<Shown>, Malformed> {
    let described = Reader::new(frame.body).value()?.described().ok_or(Malformed("this is no sasl-init"))?;
    if described.code != Some(0x41) {
        return Err(Malformed("this is no sasl-init"));
    }
    let mut fields = described.fields()?;
    let mechanism = fields.field()?.symbol()?.ok_or(Malformed("a mechanism is missing"))?;
    let response = fields.field()?.binary()?;
    Ok(match mechanism {
        "PLAIN" => response.and_then(read_plain),
        "ANONYMOUS" if offers.anonymous => Some(Shown::default()),
        // Whom it would like to act as does not matter: it is who its certificate says.
        "EXTERNAL" if offers.external => Some(Shown::default()),
        _ => None,
    })
}

/// RFC 4616: whom to act as (as nobody else here), who it is, and the password.
fn read_plain(response: &[u8]) -> Option<Shown> {
    let mut parts = response.splitn(3, |byte| *byte == 0);
    let (authority, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_itself = authority.is_empty() || authority == name;
    let name = core::str::from_utf8(name).ok()?;
    // No name would be nobody, who may be let in elsewhere.
    let is_somebody = is_itself && !name.is_empty() && !password.contains(&0);
    is_somebody.then(|| Shown { user_name: Some(name.to_owned()), password: Some(password.to_vec()) })
}

fn read_open<'a>(frame: &Frame<'a>) -> Result<Option<Open<'a>>, Malformed> {
    let described = Reader::new(frame.body).value()?.described().ok_or(Malformed("this is no performative"))?;
    match Performative::read(&described)? {
        Performative::Open(open) => Ok(Some(open)),
        _ => Ok(None),
    }
}

/// A property of the connection, called as in MQTT 5: seconds that a session is to outlive its connection.
fn session_expiry(open: &Open<'_>) -> Result<Duration, Malformed> {
    let Some(properties) = open.properties else { return Ok(Duration::ZERO) };
    Ok(match properties.get("session-expiry-interval")? {
        Some(Value::Unsigned(seconds)) if seconds >= u32::MAX.into() => Duration::MAX,
        Some(Value::Unsigned(seconds)) => Duration::from_secs(seconds),
        Some(Value::Signed(seconds)) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        _ => Duration::ZERO,
    })
}

/// Section 5.3.3.6.
#[derive(Clone, Copy)]
pub(crate) enum OutcomeCode {
    Ok = 0,
    Auth = 1,
    System = 2,
    Temporary = 4,
}

pub(crate) fn outcome(code: OutcomeCode) -> Vec<u8> {
    let mut out = Vec::new();
    sasl_frame(&mut out, |out| {
        composite(0x44, out, |fields| {
            fields.put(|out| ubyte(code as u8, out));
        });
    });
    out
}
