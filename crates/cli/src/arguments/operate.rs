//! Arguments of the commands that ask a running broker.

use clap::{Args, Subcommand, ValueEnum};

use tidegate_program::{AdminClient, AdminError};
use tidegate_server::config::units::parse_duration;

/// Where the broker's admin door is, and who asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminArgs {
    /// The admin address of the broker, as it says at its start
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:18830", global = true)]
    pub(crate) admin: String,
    /// User with the role viewer, operator or admin; needed if the broker has users
    #[arg(short = 'u', long, value_name = "NAME", global = true)]
    pub(crate) username: Option<String>,
    /// Its password; asked for if it is not given
    #[arg(short = 'P', long, value_name = "PASSWORD", global = true, requires = "username")]
    pub(crate) password: Option<String>,
}

impl AdminArgs {
    /// The broker to ask.
    pub(crate) fn client(&self) -> Result<AdminClient, AdminError> {
        AdminClient::of("--admin", &self.admin, 18830, self.username.as_deref(), self.password.as_deref())
    }
}

/// Arguments of commands about one client.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// The client identifier
    pub(crate) client: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of commands that need nothing else.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlainArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Commands about traces.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum TraceCommand {
    /// Write down when messages come: times, sizes and numbers, no names, no topics, no payloads
    Record(TraceRecordArgs),
}

/// Arguments of `tidegate trace record`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceRecordArgs {
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = interval)]
    pub(crate) time: std::time::Duration,
    /// Where to write
    #[arg(long, value_name = "FILE", default_value = "trace.csv")]
    pub(crate) out: std::path::PathBuf,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `tidegate clients`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientsArgs {
    /// Connections that have ended, the latest first, with the reason
    #[arg(long, conflicts_with_all = ["sort", "state"])]
    pub(crate) closed: bool,
    /// Column to sort by, the largest first
    #[arg(long, value_enum, default_value_t = Sort::Id)]
    pub(crate) sort: Sort,
    /// Only clients in this state
    #[arg(long, value_parser = ["ok", "away", "slowed", "backed-off", "paused"])]
    pub(crate) state: Option<String>,
    /// So many rows at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `tidegate top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// Column to sort by, the largest first
    #[arg(long, value_enum, default_value_t = Sort::Rate)]
    pub(crate) sort: Sort,
    /// So many rows at most; else as many as the terminal has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: Option<u16>,
    /// Print the table once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: std::time::Duration,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Sort {
    Id,
    Rate,
    Delay,
    State,
    Queue,
    QueueBytes,
    Drops,
    Received,
    Delivered,
    Bytes,
    Subscriptions,
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Rate => "rate",
            Self::Delay => "delay",
            Self::State => "state",
            Self::Queue => "queue",
            Self::QueueBytes => "queue_bytes",
            Self::Drops => "drops",
            Self::Received => "received",
            Self::Delivered => "delivered",
            Self::Bytes => "bytes",
            Self::Subscriptions => "subscriptions",
        }
    }
}

/// Arguments of `tidegate limits`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LimitsCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// What to do with limits.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum LimitsCommand {
    /// Limit a client's rate, or entitle it to one, whatever was learned; it holds until it is unset
    Set {
        /// The client identifier (a user's name with --user)
        name: String,
        /// So many messages in a time and no more: rate=500/s, rate=30/m or rate=10/h; or as many come first where
        /// something is scarce: entitled=500/s
        #[arg(value_name = "rate=N/TIME|entitled=N/TIME", value_parser = rate)]
        rate: RateChange,
        /// The name is a user's: a rate is for all its clients together, an entitlement for each of them
        #[arg(long)]
        user: bool,
    },
    /// Remove a limit: what was learned counts again
    Unset {
        /// The client identifier (a user's name with --user)
        name: String,
        /// The name is a user's
        #[arg(long)]
        user: bool,
    },
    /// List limits
    List,
}

/// What is set, and to which rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateChange {
    pub(crate) setting: &'static str,
    pub(crate) rate: String,
}

fn rate(text: &str) -> Result<RateChange, String> {
    let (setting, rate) = match text.split_once('=') {
        None | Some(("rate", _)) => ("rate", text.strip_prefix("rate=").unwrap_or(text)),
        Some(("entitled", rate)) => ("entitled", rate),
        Some(_) => return Err("expected rate=500/s or entitled=500/s".to_owned()),
    };
    if !rate.contains('/') {
        return Err(format!("expected {setting}=500/s, {setting}=30/m or {setting}=10/h"));
    }
    Ok(RateChange { setting, rate: rate.to_owned() })
}

/// Arguments of `tidegate ban`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BanArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BanCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// What to do with bans.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum BanCommand {
    /// Keep somebody out for a time; who is connected has to go
    Add {
        #[command(flatten)]
        whom: BannedArgs,
        /// How long
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = ban_time)]
        time: std::time::Duration,
        /// Why, for whoever looks at the list
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Let somebody in again
    Remove {
        #[command(flatten)]
        whom: BannedArgs,
    },
    /// List bans
    List,
}

/// Whom a ban is for.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub(crate) struct BannedArgs {
    /// The client identifier
    pub(crate) client: Option<String>,
    /// A user; with a client: that client of this user only
    #[arg(long, value_name = "NAME", conflicts_with = "network")]
    pub(crate) user: Option<String>,
    /// An address, or a network such as 10.1.2.0/24; with a client: that client from there only
    #[arg(long, value_name = "NET")]
    pub(crate) network: Option<String>,
}

fn ban_time(text: &str) -> Result<std::time::Duration, String> {
    let bounds = std::time::Duration::from_secs(1)..=std::time::Duration::from_secs(30 * 86_400);
    let duration = parse_duration(text).filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| "a duration with its unit, from 1s to 30d".to_owned())
}

/// Demonstrations.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum DemoCommand {
    /// 20 well-behaved publishers and one flooder, with control off and with the defaults: a table of what the others notice
    Flood(FloodArgs),
}

/// Arguments of `tidegate demo flood`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FloodArgs {
    /// How many times its usual rate the flooder publishes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) times: u32,
    /// How long the flood lasts in each of the two runs
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = interval)]
    pub(crate) flood: std::time::Duration,
    /// With control on, hold and refuse whoever breaks its rhythm (backoff.enforce = "always") instead of the defaults
    #[arg(long)]
    pub(crate) always: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn interval(text: &str) -> Result<std::time::Duration, String> {
    let bounds = std::time::Duration::from_millis(100)..=std::time::Duration::from_secs(3600);
    let duration = parse_duration(text).filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| "a duration with its unit, from 100ms to 1h".to_owned())
}
