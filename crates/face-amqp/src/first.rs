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
    step: GreetingStep,
    shown: Shown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GreetingStep {
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
enum OutcomeCode {
    Ok = 0,
    Auth = 1,
    System = 2,
    Temporary = 4,
}

fn outcome(code: OutcomeCode) -> Vec<u8> {
    let mut out = Vec::new();
    sasl_frame(&mut out, |out| {
        composite(0x44, out, |fields| {
            fields.put(|out| ubyte(code as u8, out));
        });
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{binary, frame, map, symbol, text, uint};

    const ALL: Offers = Offers { anonymous: true, external: true };

    fn init(mechanism: &str, response: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        sasl_frame(&mut out, |out| {
            composite(0x41, out, |fields| {
                fields.put(|out| symbol(mechanism, out)).some(response, binary);
            });
        });
        out
    }

    fn login(offers: Offers, mechanism: &str, response: Option<&[u8]>) -> First {
        let mut greeting = Greeting::default();
        let First::Answer { consumed: 8, answer } = greeting.advance(SASL_HEADER, offers) else { panic!() };
        assert!(answer.starts_with(SASL_HEADER));
        greeting.advance(&init(mechanism, response), offers)
    }

    #[test]
    fn a_name_and_a_password_are_read_or_nobody_is_let_in() {
        let First::Login { shown, .. } = login(ALL, "PLAIN", Some(b"\0ann\0a\xffb")) else { panic!() };
        assert_eq!((shown.user_name.as_deref(), shown.password.as_deref()), (Some("ann"), Some(&b"a\xffb"[..])));
        assert!(matches!(login(ALL, "PLAIN", Some(b"ann\0ann\0x")), First::Login { .. }));
        for bad in [&b"\0\0x"[..], b"bob\0ann\0x", b"\0ann", b"", b"\0\xff\0x", b"\0ann\0x\0"] {
            let First::Refuse { answer, .. } = login(ALL, "PLAIN", Some(bad)) else { panic!("{bad:?}") };
            assert_eq!(answer, outcome(OutcomeCode::Auth));
        }
        assert!(matches!(login(ALL, "ANONYMOUS", None), First::Login { shown, .. } if shown == Shown::default()));
        assert!(matches!(login(Offers::default(), "ANONYMOUS", None), First::Refuse { .. }));
        assert!(matches!(login(Offers::default(), "EXTERNAL", Some(b"")), First::Refuse { .. }));
        assert!(matches!(login(ALL, "SCRAM-SHA-1", None), First::Refuse { .. }));
    }

    #[test]
    fn after_sasl_and_without_it_open_says_what_a_client_is_called() {
        let mut open = Vec::new();
        frame(0, &mut open, |out| {
            composite(0x10, out, |fields| {
                fields.text("desk").null().uint(4096).null().uint(1000).null().null().null().null().put(|out| {
                    map(1, out, |out| {
                        symbol("session-expiry-interval", out);
                        uint(60, out);
                    });
                });
            });
        });
        let mut greeting = Greeting::default();
        let whole = [&AMQP_HEADER[..], &open].concat();
        let First::Answer { consumed, answer } = greeting.advance(&whole, ALL) else { panic!() };
        assert_eq!(answer, AMQP_HEADER);
        let First::Hello { hello, .. } = greeting.advance(&whole[consumed..], ALL) else { panic!() };
        assert_eq!((hello.container_id.as_str(), hello.max_frame_size, hello.channel_max), ("desk", 4096, u16::MAX));
        assert_eq!((hello.idle, hello.session_expiry), (Some(Duration::from_secs(1)), Duration::from_secs(60)));
        let mut greeting = Greeting { step: GreetingStep::Login, shown: Shown::default() };
        assert_eq!(greeting.admit(), outcome(OutcomeCode::Ok));
        assert!(matches!(greeting.advance(AMQP_HEADER, ALL), First::Answer { consumed: 8, .. }));
        let mut begin = Vec::new();
        frame(0, &mut begin, |out| {
            composite(0x11, out, |fields| {
                fields.null().uint(0).uint(1).uint(1);
            });
        });
        let First::Refuse { answer, .. } = greeting.advance(&begin, ALL) else { panic!() };
        assert!(String::from_utf8_lossy(&answer).contains("amqp:illegal-state"));
    }

    #[test]
    fn strangers_are_told_what_is_spoken_here() {
        for (bytes, is_answered) in [
            (&b"AMQP\x00\x00\x09\x01"[..], true),
            (b"AMQP\x02\x01\x00\x00", true),
            (b"GET / HTTP/1.1\r\n", false),
            (b"\x16\x03\x01", false),
            (b"\x10\x0c\0\x04MQTT", false),
        ] {
            let First::Refuse { answer, .. } = Greeting::default().advance(bytes, ALL) else { panic!("{bytes:?}") };
            assert_eq!(answer == SASL_HEADER, is_answered, "{bytes:?}");
        }
        assert_eq!(Greeting::default().advance(b"AMQ", ALL), First::Incomplete);
        let mut too_long = text_of_open();
        too_long[0] = 0x7f;
        let mut greeting = Greeting { step: GreetingStep::Open, shown: Shown::default() };
        let First::Refuse { answer, .. } = greeting.advance(&too_long, ALL) else { panic!() };
        assert!(String::from_utf8_lossy(&answer).contains("amqp:connection:framing-error"));
    }

    #[test]
    fn a_client_that_asks_for_the_impossible_is_told_so() {
        for (frame_size, idle) in [(511, 0), (512, 100)] {
            let mut open = Vec::new();
            frame(0, &mut open, |out| {
                composite(0x10, out, |fields| {
                    fields.text("x").null().uint(frame_size).null().uint(idle);
                });
            });
            let First::Refuse { answer, .. } = Greeting::opened().advance(&open, ALL) else { panic!() };
            assert!(String::from_utf8_lossy(&answer).contains("amqp:invalid-field"));
        }
    }

    fn text_of_open() -> Vec<u8> {
        let mut out = Vec::new();
        frame(0, &mut out, |out| {
            composite(0x10, out, |fields| {
                fields.put(|out| text("x", out));
            });
        });
        out
    }
}
