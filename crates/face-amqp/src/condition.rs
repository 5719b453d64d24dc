//! What goes wrong, in AMQP's words: an error has a condition, and ends a link, a session or the connection.

use core::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_core::event::Why;
use tidegate_wire_mqtt::ReasonCode;

use crate::types::Malformed;
use crate::write::{composite, map, symbol, text, uint};

/// The condition of an error, as it is written (sections 2.8.15 to 2.8.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition(pub(crate) &'static str);

pub(crate) const INTERNAL: Condition = Condition("amqp:internal-error");
pub(crate) const UNAUTHORIZED: Condition = Condition("amqp:unauthorized-access");
pub(crate) const DECODE: Condition = Condition("amqp:decode-error");
pub(crate) const RESOURCE_LIMIT: Condition = Condition("amqp:resource-limit-exceeded");
pub(crate) const NOT_ALLOWED: Condition = Condition("amqp:not-allowed");
pub(crate) const INVALID_FIELD: Condition = Condition("amqp:invalid-field");
pub(crate) const NOT_IMPLEMENTED: Condition = Condition("amqp:not-implemented");
pub(crate) const PRECONDITION: Condition = Condition("amqp:precondition-failed");
pub(crate) const ILLEGAL_STATE: Condition = Condition("amqp:illegal-state");
pub(crate) const FORCED: Condition = Condition("amqp:connection:forced");
pub(crate) const FRAMING: Condition = Condition("amqp:connection:framing-error");
pub(crate) const WINDOW_VIOLATION: Condition = Condition("amqp:session:window-violation");
pub(crate) const HANDLE_IN_USE: Condition = Condition("amqp:session:handle-in-use");
pub(crate) const UNATTACHED: Condition = Condition("amqp:session:unattached-handle");
pub(crate) const TRANSFER_LIMIT: Condition = Condition("amqp:link:transfer-limit-exceeded");
pub(crate) const MESSAGE_SIZE: Condition = Condition("amqp:link:message-size-exceeded");
pub(crate) const STOLEN: Condition = Condition("amqp:link:stolen");

/// An error with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmqpError {
    pub(crate) condition: Condition,
    pub(crate) words: Box<str>,
    /// When it may be tried again, and which interval would do.
    retry_after: Option<Duration>,
    interval: Option<Duration>,
}

impl AmqpError {
    pub(crate) fn new(condition: Condition, words: &str) -> Self {
        Self { condition, words: words.into(), retry_after: None, interval: None }
    }

    pub(crate) fn later(condition: Condition, words: &str, after: Duration, interval: Option<Duration>) -> Self {
        Self { retry_after: Some(after), interval, ..Self::new(condition, words) }
    }

    /// Appends it as the composite type.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut pace = Vec::new();
        let hints = Hints { retry_after: self.retry_after, interval: self.interval, ..Hints::default() };
        hints.write(|name, value| pace.push((name, value)));
        composite(0x1d, out, |fields| {
            fields.put(|out| symbol(self.condition.0, out)).text(&self.words);
            if !pace.is_empty() {
                fields.put(|out| {
                    map(pace.len(), out, |out| {
                        for (name, value) in &pace {
                            symbol(name, out);
                            // They are numbers; whoever reads a map wants them as such.
                            match value.parse() {
                                Ok(number) => uint(number, out),
                                Err(_) => text(value, out),
                            }
                        }
                    });
                });
            }
        });
    }
}

impl From<Malformed> for AmqpError {
    fn from(Malformed(words): Malformed) -> Self {
        Self::new(DECODE, words)
    }
}

/// What it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Connection(AmqpError),
    Session(AmqpError),
    /// The link of this handle.
    Link(u32, AmqpError),
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Connection(malformed.into())
    }
}

/// Why the core says no, as a condition.
pub(crate) fn condition_of(reason: ReasonCode) -> Condition {
    match reason {
        ReasonCode::NotAuthorized
        | ReasonCode::Banned
        | ReasonCode::BadUserNameOrPassword
        | ReasonCode::BadAuthenticationMethod => UNAUTHORIZED,
        ReasonCode::QuotaExceeded
        | ReasonCode::ServerBusy
        | ReasonCode::ServerUnavailable
        | ReasonCode::ConnectionRateExceeded
        | ReasonCode::ReceiveMaximumExceeded => RESOURCE_LIMIT,
        ReasonCode::ClientIdentifierNotValid
        | ReasonCode::TopicNameInvalid
        | ReasonCode::TopicFilterInvalid
        | ReasonCode::PayloadFormatInvalid => INVALID_FIELD,
        ReasonCode::RetainNotSupported | ReasonCode::QosNotSupported => NOT_IMPLEMENTED,
        ReasonCode::PacketTooLarge => MESSAGE_SIZE,
        _ => NOT_ALLOWED,
    }
}

/// Why the core ends a connection; none where nothing is wrong.
pub(crate) fn error_of(why: &Why) -> Option<AmqpError> {
    let forced = |words: &str| Some(AmqpError::new(FORCED, words));
    match why {
        Why::Goodbye | Why::Lost | Why::UpstreamClosed => None,
        Why::UpstreamLost => forced("the broker behind is lost"),
        Why::KeepAlive => Some(AmqpError::new(RESOURCE_LIMIT, "silent for longer than idle-time-out")),
        Why::TooFast { interval, retry_after } => {
            Some(AmqpError::later(FORCED, "publishing too fast for too long", *retry_after, *interval))
        }
        Why::NotReading { .. } => Some(AmqpError::new(RESOURCE_LIMIT, "does not take what it is sent")),
        Why::TakenOver => forced("another connection has this container-id now"),
        Why::Protocol { reason, detail } => Some(AmqpError::new(condition_of(*reason), detail)),
        Why::Ended(reason @ ReasonCode::NotAuthorized) => Some(AmqpError::new(UNAUTHORIZED, reason.name())),
        Why::Ended(reason) => forced(reason.name()),
    }
}
