//! Arguments that `pub` and `sub` share: where to, as whom, in which version. The letters are mosquitto's.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};

pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 cannot connect or no such file, 2 protocol error or wrong usage,
7 connection lost, 8 TLS, 19 keep-alive, 25 packet too large for the broker, 27 timeout (-W);
a refusal exits with its code from the wire: a connection 1 to 5 (3.1.1) or the reason code
(MQTT 5, for instance 135), a subscription 128 (3.1.1) or the reason code, a message the reason
code (MQTT 5) or 7 (3.1.1); 1 for one that was refused five times with a time to come back,
or was not sent, or not acknowledged, when a signal came";

/// Arguments about the connection.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
#[allow(clippy::struct_excessive_bools, reason = "flags as typed; `Target` and `Hello` are made of them")]
pub(crate) struct ConnectArgs {
    /// Broker's name or address; without -h and -p the broker of tidegate.toml, if there is one here, else localhost
    #[arg(short = 'h', long)]
    pub(crate) host: Option<String>,

    /// Broker's port; 1883, or 8883 with TLS
    #[arg(short, long)]
    pub(crate) port: Option<u16>,

    /// Everything in one.
    #[arg(short = 'L', long, value_name = "URL", conflicts_with_all = ["host", "port"],
          help = "Everything in one: mqtt[s]://[user[:password]@]host[:port]/topic")]
    pub(crate) url: Option<String>,

    /// Client identifier; else the broker chooses one
    #[arg(short = 'i', long)]
    pub(crate) id: Option<String>,

    /// Client identifier: this, and the number of the process
    #[arg(short = 'I', long, value_name = "PREFIX", conflicts_with = "id")]
    pub(crate) id_prefix: Option<String>,

    /// Address of our own end
    #[arg(short = 'A', long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,

    /// More options, one per line of this file; those of the command line win
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) options: Option<PathBuf>,

    /// User name
    #[arg(short, long)]
    pub(crate) username: Option<String>,

    /// Password; it may also stand in the file that TIDEGATE_PASSWORD_FILE names
    #[arg(short = 'P', long, allow_hyphen_values = true, env = "TIDEGATE_PASSWORD", hide_env_values = true)]
    pub(crate) pw: Option<String>,

    /// Protocol: 31, 311 or 5
    #[arg(short = 'V', long, value_name = "VERSION", default_value = "311")]
    pub(crate) protocol_version: String,

    /// Keep-alive in seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) keepalive: u16,

    /// Keep the session when the connection ends (needs -i)
    #[arg(short = 'c', long)]
    pub(crate) disable_clean_session: bool,

    /// Seconds that the session outlives the connection (MQTT 5); -1 is for ever
    #[arg(short = 'x', long, value_name = "SECONDS", allow_hyphen_values = true, value_parser = expiry)]
    pub(crate) session_expiry_interval: Option<u32>,

    /// Property (MQTT 5): -D publish user-property NAME VALUE, -D connect receive-maximum 10, …
    #[arg(short = 'D', long, value_names = ["PACKET", "PROPERTY", "VALUE"], num_args = 3..=4)]
    pub(crate) property: Vec<String>,

    /// Say what is sent and received
    #[arg(short, long)]
    pub(crate) debug: bool,

    /// Print no errors
    #[arg(long)]
    pub(crate) quiet: bool,

    /// Certificates to trust, PEM; switches TLS on
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) cafile: Option<PathBuf>,

    /// Folder with certificates to trust, PEM; switches TLS on
    #[arg(long, value_name = "DIR", help_heading = "TLS")]
    pub(crate) capath: Option<PathBuf>,

    /// Oldest version to accept: tlsv1.2 or tlsv1.3
    #[arg(long, value_name = "VERSION", help_heading = "TLS")]
    pub(crate) tls_version: Option<String>,

    /// Protocol to ask for in the TLS handshake
    #[arg(long, value_name = "PROTOCOL", help_heading = "TLS")]
    pub(crate) tls_alpn: Option<String>,

    /// Nothing waits for a full segment anyway; for scripts that say so
    #[arg(long, hide = true)]
    pub(crate) nodelay: bool,

    /// Our own certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    pub(crate) cert: Option<PathBuf>,

    /// The key of our own certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    pub(crate) key: Option<PathBuf>,

    /// Trust the certificates of the operating system; switches TLS on, as -p 8883 does
    #[arg(long, help_heading = "TLS")]
    pub(crate) tls_use_os_certs: bool,

    /// Accept any certificate, where TLS is used; does not switch it on. For tests only
    #[arg(long, help_heading = "TLS")]
    pub(crate) insecure: bool,

    /// Topic of the will
    #[arg(long, value_name = "TOPIC", help_heading = "Will")]
    pub(crate) will_topic: Option<String>,

    /// Payload of the will
    #[arg(long, value_name = "TEXT", requires = "will_topic", allow_hyphen_values = true, help_heading = "Will")]
    pub(crate) will_payload: Option<String>,

    /// QoS of the will
    #[arg(long, value_name = "QOS", requires = "will_topic", default_value_t = 0, help_heading = "Will",
          value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) will_qos: u8,

    /// Retain the will
    #[arg(long, requires = "will_topic", help_heading = "Will")]
    pub(crate) will_retain: bool,

    // `-h` is the host, as in mosquitto's tools.
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,
}

/// Seconds as mosquitto's tools take them: -1 and ∞ are for ever, as in MQTT 5.
fn expiry(text: &str) -> Result<u32, String> {
    match text {
        "-1" | "∞" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| "expected seconds from 0 to 4294967295, or -1 for ever".to_owned()),
    }
}
