//! What can go wrong, as values.

use std::time::Duration;
use std::{fmt, io};

use tidegate_control::ConfigError;
use tidegate_control::hints::Hints;

use crate::session::BrokerRefusal;

/// Why something was not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address makes no sense.
    Address {
        /// The address as it was given.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No connection.
    Unreachable {
        /// The address that was tried.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// Nobody can be trusted: there is no certificate to compare with.
    Trust(String),
    /// The connection broke before there was an answer; a change may have been made or not.
    Lost(io::Error),
    /// There was no answer in time; a change may have been made or not.
    TimedOut,
    /// Not now: the broker is too busy, or has another reason, and says when to come back.
    Busy {
        /// When, if it says.
        retry_after: Option<Duration>,
        /// Its reason, if it is another: an operator's limit, too many wrong passwords, a disk that fails.
        why: Option<Box<str>>,
        /// Everything that it said about pace.
        hints: Box<Hints>,
    },
    /// Not allowed.
    Denied(String),
    /// The request makes no sense to the broker.
    Rejected(String),
    /// The broker does not know this kind of request.
    Unsupported(String),
    /// The broker does not know whether a change was made: it may have been, and is not made again by itself.
    Unconfirmed(String),
    /// Something went wrong in the broker.
    Failed(String),
    /// What the broker says makes no sense.
    Nonsense(String),
    /// A configuration is not allowed.
    Config(ConfigError),
    /// More of something than a maximum allows.
    TooMany(&'static str),
    /// The connection to the space was given up by its owner.
    Closed,
}

impl Error {
    /// Whether the same may succeed later. What is [unconfirmed](Self::Unconfirmed) may have succeeded already.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost(_) | Self::TimedOut | Self::Busy { .. } | Self::Failed(_))
    }
}

impl From<BrokerRefusal> for Error {
    fn from(refusal: BrokerRefusal) -> Self {
        match refusal {
            BrokerRefusal::Busy(hints, why) => Self::Busy { retry_after: hints.retry_after, why, hints },
            BrokerRefusal::Denied(words) => Self::Denied(words),
            BrokerRefusal::Rejected(words) => Self::Rejected(words),
            BrokerRefusal::Unsupported(words) => Self::Unsupported(words),
            BrokerRefusal::Unconfirmed(words) => Self::Unconfirmed(words),
            BrokerRefusal::Failed(words) => Self::Failed(words),
            BrokerRefusal::Nonsense(words) => Self::Nonsense(words),
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// From here on milliseconds are of no use to a reader.
const COUNTED_IN_SECONDS: Duration = Duration::from_secs(10);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, why } => write!(f, "{address:?} is no address: {why}"),
            Self::Unreachable { address, error } => write!(f, "cannot connect to {address}: {error}"),
            Self::Trust(words) => f.write_str(words),
            Self::Lost(error) => write!(f, "connection lost: {error}; the request may have been done or not"),
            Self::TimedOut => f.write_str("no answer in time; the request may have been done or not"),
            Self::Busy { retry_after, why, .. } => {
                f.write_str(why.as_deref().unwrap_or("the broker is busy"))?;
                match retry_after {
                    // Rounded up: who comes too early is sent away again.
                    Some(after) if *after >= COUNTED_IN_SECONDS => {
                        write!(f, "; come back in {} s", after.as_millis().div_ceil(1000))
                    }
                    Some(after) => write!(f, "; come back in {} ms", after.as_millis()),
                    None => Ok(()),
                }
            }
            Self::Denied(words) => write!(f, "not allowed: {words}"),
            Self::Rejected(words) => write!(f, "rejected: {words}"),
            Self::Unsupported(words) => write!(f, "the broker does not know this: {words}"),
            Self::Unconfirmed(words) => write!(f, "not confirmed: {words}; the change may have been made or not"),
            Self::Failed(words) => write!(f, "the broker failed: {words}"),
            Self::Nonsense(words) => write!(f, "the broker makes no sense: {words}"),
            Self::Config(error) => error.fmt(f),
            Self::TooMany(what) => write!(f, "too many {what}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { error, .. } | Self::Lost(error) => Some(error),
            Self::Config(error) => Some(error),
            _ => None,
        }
    }
}
