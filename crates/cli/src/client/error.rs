//! What can go wrong for a client, in words and as an exit code. The numbers are mosquitto's (`enum mosq_err_t`), so that
//! scripts keep working.

use std::{fmt, io};

use tidegate_wire_mqtt::{ReasonCode, Version};

/// Why a client gives up.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// No connection.
    Unreachable {
        /// The broker's host and port.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// TLS could not be agreed on, or the certificate is not trusted.
    Tls(anyhow::Error),
    /// Whoever listens there does not speak TLS.
    NotTls {
        /// The broker's host and port.
        address: String,
    },
    /// Whoever listens there speaks TLS, and we did not.
    SpeaksTls,
    /// The broker answered CONNECT with a refusal.
    Refused {
        /// The reason code of the CONNACK.
        reason: ReasonCode,
        /// In which version.
        version: Version,
        /// The reason string of the CONNACK, if it has one.
        detail: Option<String>,
        /// Whether it was told a user name or a password.
        had_credentials: bool,
    },
    /// The broker ended the connection with a DISCONNECT.
    Ended {
        /// The reason code of the DISCONNECT.
        reason: ReasonCode,
        /// The reason string of the DISCONNECT, if it has one.
        detail: Option<String>,
    },
    /// The connection broke.
    Lost(io::Error),
    /// The broker did not answer a ping.
    Silent,
    /// The broker broke the protocol.
    Protocol(String),
    /// The connection broke after a message that nobody has acknowledged, in a version that cannot say why.
    LostAfterPublish(io::Error),
    /// A packet is larger than the broker accepts, or than MQTT can say.
    TooLarge {
        /// What it would have been.
        bytes: Option<usize>,
        /// What the broker said it accepts.
        most: Option<u32>,
    },
}

impl ClientError {
    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } => 1,
            Self::Protocol(_) => 2,
            Self::Lost(_) | Self::LostAfterPublish(_) => 7,
            Self::Tls(_) | Self::NotTls { .. } | Self::SpeaksTls => 8,
            Self::Silent => 19,
            Self::TooLarge { .. } => 25,
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

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_detail = |f: &mut fmt::Formatter<'_>, detail: &Option<String>| match detail {
            // A stranger's text: escaped before it meets a terminal.
            Some(detail) => write!(f, " ({})", tidegate_program::harmless(detail)),
            None => Ok(()),
        };
        match self {
            Self::Unreachable { address, error } => {
                write!(f, "cannot connect to {address}: {error}")?;
                match error.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        f.write_str("; is the broker running? Start it with `tidegate`, or name another with -h and -p")
                    }
                    _ => Ok(()),
                }
            }
            Self::Tls(error) => {
                let text = format!("{error:#}");
                // The words of the TLS library; without them there is only less advice.
                if let Some(hint) = tidegate_program::certificate_hint(&text) {
                    return write!(f, "TLS: {text}; {hint}");
                }
                let next = if text.contains("UnknownIssuer") {
                    "; if you trust this broker, name its certificate, or that of who signed it, with --cafile FILE"
                } else if text.contains("NotValidForName") || text.contains("not valid for name") {
                    "; the certificate is for other names: give one of them with -h"
                } else {
                    ""
                };
                write!(f, "TLS: {text}{next}")
            }
            Self::NotTls { address } => {
                write!(f, "TLS: the port {address} does not speak TLS; leave TLS out, or give its TLS port with -p")
            }
            Self::SpeaksTls => {
                write!(
                    f,
                    "this port speaks TLS: add --cafile FILE or --tls-use-os-certs, or give its port without TLS with -p"
                )
            }
            Self::Refused { reason, detail, had_credentials, .. } => {
                write!(f, "connection refused: {} (0x{:02x})", reason.name(), reason.code())?;
                with_detail(f, detail)?;
                match (reason, had_credentials) {
                    (ReasonCode::BadUserNameOrPassword, false) => f.write_str("; give a user with -u and -P"),
                    (ReasonCode::NotAuthorized, false) => f.write_str(
                        "; give a user with -u and -P, unless the broker has banned this client (`tidegate why` knows)",
                    ),
                    (ReasonCode::BadUserNameOrPassword, true) => {
                        f.write_str("; the broker does not know this user with this password")
                    }
                    (ReasonCode::NotAuthorized, true) => f.write_str(
                        "; this user may not connect so: its client identifier (-i), will or session is not its own, \
                         or the broker has banned it (`tidegate why` knows)",
                    ),
                    _ => Ok(()),
                }
            }
            Self::Ended { reason, detail } => {
                write!(f, "the broker ended the connection: {} (0x{:02x})", reason.name(), reason.code())?;
                with_detail(f, detail)
            }
            Self::Lost(error) => write!(f, "connection lost: {error}"),
            Self::LostAfterPublish(error) => write!(
                f,
                "connection lost: {error}; if the broker closed it, this client may not publish there or the message \
                 is too large: before version 5 there is no other answer. -V 5 would say why"
            ),
            Self::Silent => f.write_str("connection lost: the broker does not answer"),
            Self::Protocol(what) => write!(f, "the broker broke the protocol: {what}"),
            Self::TooLarge { bytes: Some(bytes), most: Some(most) } => write!(
                f,
                "the packet has {bytes} bytes and the broker accepts at most {most} (its limits.packet_bytes_max); \
                 nothing was sent"
            ),
            Self::TooLarge { .. } => f.write_str("the packet is larger than MQTT can say; nothing was sent"),
        }
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_mosquitto() {
        let refused = |version| ClientError::Refused {
            reason: ReasonCode::NotAuthorized,
            version,
            detail: None,
            had_credentials: false,
        };
        assert_eq!(refused(Version::V311).exit_code(), 5);
        assert_eq!(refused(Version::V5).exit_code(), 135);
        assert_eq!(ClientError::Lost(io::ErrorKind::ConnectionReset.into()).exit_code(), 7);
    }

    #[test]
    fn advice_fits_what_was_done() {
        let refused = |reason, had_credentials| {
            ClientError::Refused { reason, version: Version::V311, detail: None, had_credentials }.to_string()
        };
        let wrong = refused(ReasonCode::BadUserNameOrPassword, true);
        assert!(wrong.ends_with("the broker does not know this user with this password"), "{wrong}");
        assert!(
            refused(ReasonCode::NotAuthorized, false)
                .contains("give a user with -u and -P, unless the broker has banned")
        );
        assert!(!refused(ReasonCode::NotAuthorized, true).contains("-P"));
        let large = ClientError::TooLarge { bytes: Some(2000), most: Some(1024) };
        assert_eq!(large.exit_code(), 25);
        assert!(large.to_string().contains("has 2000 bytes and the broker accepts at most 1024"), "{large}");
    }

    #[test]
    fn texts_of_the_broker_cannot_reach_the_terminal() {
        let detail = Some("\u{1b}[2J".to_owned());
        let text = ClientError::Ended { reason: ReasonCode::QuotaExceeded, detail }.to_string();
        assert_eq!(text, "the broker ended the connection: Quota exceeded (0x97) (\\u{1b}[2J)");
    }
}
