//! What can go wrong for a client, in words and as an exit code. The numbers are mosquitto's (`enum mosq_err_t`), so that
//! scripts keep working.

use std::{fmt, io};

use tidegate_wire_mqtt::{PeerError, ReasonCode, Version};

/// Why a client gives up.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// No connection.
    Unreachable {
        /// Where to.
        address: String,
        /// Why not.
        error: io::Error,
    },
    /// TLS could not be agreed on, or the certificate is not trusted.
    Tls(anyhow::Error),
    /// The broker answered CONNECT with a refusal.
    Refused {
        /// Why.
        reason: ReasonCode,
        /// In which version.
        version: Version,
        /// What the broker adds.
        detail: Option<String>,
    },
    /// The broker ended the connection with a DISCONNECT.
    Ended {
        /// Why.
        reason: ReasonCode,
        /// What the broker adds.
        detail: Option<String>,
    },
    /// The connection broke.
    Lost(io::Error),
    /// The broker did not answer a ping.
    Silent,
    /// The broker broke the protocol.
    Protocol(String),
    /// A packet is larger than the broker accepts, or than MQTT can say.
    TooLarge,
}

impl ClientError {
    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } => 1,
            Self::Protocol(_) => 2,
            Self::Lost(_) => 7,
            Self::Tls(_) => 8,
            Self::Silent => 19,
            Self::TooLarge => 25,
            Self::Refused { reason, version, .. } if version.is_v5() => reason.code(),
            Self::Refused { reason, .. } => reason.connack_return_code(),
            Self::Ended { reason, .. } => reason.code().max(1),
        }
    }

    /// Whether trying again later makes sense: the connection broke, nobody said no.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost(_) | Self::Silent => true,
            Self::Ended { reason, .. } => {
                matches!(reason, ReasonCode::ServerShuttingDown | ReasonCode::ServerBusy | ReasonCode::KeepAliveTimeout)
            }
            _ => false,
        }
    }
}

impl From<io::Error> for ClientError {
    /// What the TLS layer reports while reading or writing is its own error, in the clothes of the system's.
    fn from(error: io::Error) -> Self {
        let is_tls = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
        if is_tls { Self::Tls(error.into()) } else { Self::Lost(error) }
    }
}

impl From<PeerError> for ClientError {
    fn from(error: PeerError) -> Self {
        Self::Protocol(format!("{} [{}]", error.detail, error.section))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_detail = |f: &mut fmt::Formatter<'_>, detail: &Option<String>| match detail {
            // A stranger's text: escaped before it meets a terminal.
            Some(detail) => write!(f, " ({})", detail.escape_debug()),
            None => Ok(()),
        };
        match self {
            Self::Unreachable { address, error } => write!(f, "cannot connect to {address}: {error}"),
            Self::Tls(error) => write!(f, "TLS: {error:#}"),
            Self::Refused { reason, detail, .. } => {
                write!(f, "connection refused: {} (0x{:02x})", reason.name(), reason.code())?;
                with_detail(f, detail)?;
                match reason {
                    ReasonCode::NotAuthorized | ReasonCode::BadUserNameOrPassword => {
                        f.write_str("; give a user with -u and -P")
                    }
                    _ => Ok(()),
                }
            }
            Self::Ended { reason, detail } => {
                write!(f, "the broker ended the connection: {} (0x{:02x})", reason.name(), reason.code())?;
                with_detail(f, detail)
            }
            Self::Lost(error) => write!(f, "connection lost: {error}"),
            Self::Silent => f.write_str("connection lost: the broker does not answer"),
            Self::Protocol(what) => write!(f, "the broker broke the protocol: {what}"),
            Self::TooLarge => f.write_str("the packet is larger than the broker accepts"),
        }
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_mosquitto() {
        let refused = |version| ClientError::Refused { reason: ReasonCode::NotAuthorized, version, detail: None };
        assert_eq!(refused(Version::V311).exit_code(), 5);
        assert_eq!(refused(Version::V5).exit_code(), 135);
        assert_eq!(ClientError::Lost(io::ErrorKind::ConnectionReset.into()).exit_code(), 7);
    }

    #[test]
    fn texts_of_the_broker_cannot_reach_the_terminal() {
        let detail = Some("\u{1b}[2J".to_owned());
        let text = ClientError::Ended { reason: ReasonCode::QuotaExceeded, detail }.to_string();
        assert_eq!(text, "the broker ended the connection: Quota exceeded (0x97) (\\u{1b}[2J)");
    }
}
