//! Arguments of the commands that ask a running broker.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, Subcommand, ValueEnum};

use crate::target::password_of_environment;
use tidegate_program::{AdminClient, AdminError, Trust};
use tidegate_server::config::keys::{KEYS, Options};
use tidegate_server::config::units::parse_duration;
use tidegate_server::config::{self, Sources};

/// Where the broker's admin API is, and who asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminArgs {
    /// The admin address of the broker, as it says at its start; else that of tidegate.toml, or `http://127.0.0.1:18830`
    #[arg(long, value_name = "URL", env = "TIDEGATE_ADMIN", aliases = ["at", "url"], global = true)]
    pub(crate) admin: Option<String>,
    /// User with the role viewer, operator or admin; needed if the broker has users
    #[arg(short = 'u', long, value_name = "NAME", global = true)]
    pub(crate) username: Option<String>,
    /// Its password, or the file that TIDEGATE_PASSWORD_FILE names has it; asked for if neither is given
    #[arg(
        short = 'P',
        long,
        value_name = "PASSWORD",
        env = "TIDEGATE_PASSWORD",
        hide_env_values = true,
        global = true
    )]
    pub(crate) password: Option<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// Whom to trust at an address with TLS.
#[derive(Args, Clone, Debug)]
pub(crate) struct TrustArgs {
    /// Certificates to trust at an address with https://, PEM; else those of the operating system
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CAFILE", global = true)]
    pub(crate) cafile: Option<std::path::PathBuf>,
    /// Accept any certificate there. For tests only
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
}

impl TrustArgs {
    /// A file of the environment may be meant for other commands: it says nothing about an address without TLS.
    pub(crate) fn trust(&self, url: &str) -> Trust {
        let is_typed =
            std::env::var_os("TIDEGATE_CAFILE").as_deref() != self.cafile.as_ref().map(|path| path.as_os_str());
        let ca = self.cafile.clone().filter(|_| is_typed || url.starts_with("https://"));
        Trust { ca, everybody: self.insecure, ..Trust::default() }
    }
}

impl AdminArgs {
    /// The broker to ask.
    pub(crate) fn client(&self) -> Result<AdminClient, AdminError> {
        let admin = self.admin.clone().unwrap_or_else(|| address_of("listeners.admin"));
        warn_of_lone_password(self.username.as_deref(), self.password.as_deref());
        let password = password(self.password.as_deref())?;
        let client = AdminClient::of("--admin", &admin, 18830, self.username.as_deref(), password.as_deref())?;
        client.with_trust(self.trust.trust(&admin))
    }
}

/// A password that was given, or the one in the file that the environment names.
pub(crate) fn password(given: Option<&str>) -> Result<Option<String>, AdminError> {
    match given {
        Some(password) => Ok(Some(password.to_owned())),
        None => password_of_environment().map_err(|error| AdminError::usage(format!("{error:#}"))),
    }
}

/// Says that a password without a user is not used. One of the environment may be meant for other commands: no word of it.
pub(crate) fn warn_of_lone_password(user: Option<&str>, given: Option<&str>) {
    let is_typed = given.is_some() && given != std::env::var("TIDEGATE_PASSWORD").ok().as_deref();
    if user.is_none() && is_typed {
        eprintln!("warning: -P is not used without a user: name one with -u");
    }
}

/// Where a listener of the broker of this machine is, by the configuration that it would read here. One that cannot be
/// read is the broker's affair; a listener that is off is where it is by default.
pub(crate) fn address_of(key: &str) -> String {
    listener_of(key).map_or_else(String::new, |address| format!("http://{address}"))
}

/// The same as an address, from this machine.
pub(crate) fn listener_of(key: &str) -> Option<SocketAddr> {
    let at = |options: &Options| {
        let key = KEYS.iter().find(|it| it.path == key)?;
        (key.show)(options).trim_matches('"').parse::<SocketAddr>().ok()
    };
    let (loaded, _) = config::read(&Sources::of_process(None, Vec::new()));
    let mut found = at(&loaded.options).or_else(|| at(&Options::default()));
    if let Some(address) = found.as_mut().filter(|address| address.ip().is_unspecified()) {
        let ip: IpAddr = if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        address.set_ip(ip);
    }
    found
}

/// Arguments of `tidegate kick`.
#[derive(Args, Clone, Debug)]
pub(crate) struct KickArgs {
    /// The client identifier
    pub(crate) client: String,
    /// End its session, too, also of one that is not connected: its subscriptions go, and what waits for it
    #[arg(long)]
    pub(crate) session: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `tidegate why`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WhyArgs {
    /// The client identifier; or the word bridge or sink, and its name
    #[arg(value_names = ["CLIENT", "NAME"], num_args = 1..=2, required = true)]
    pub(crate) whom: Vec<String>,
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

/// Arguments of `tidegate log`.
#[derive(Args, Clone, Debug)]
#[group(id = "followed", required = true, multiple = true, args = ["client", "literal", "topic"])]
pub(crate) struct LogArgs {
    /// The client identifier: what it sends and is sent, subscribes to, loses, and how it comes and goes
    pub(crate) client: Option<String>,
    /// The same
    #[arg(id = "literal", long = "client", value_name = "NAME", conflicts_with = "client")]
    pub(crate) literal: Option<String>,
    /// Messages of these topics alone, of every client or of the one that is named
    #[arg(short = 't', long, value_name = "FILTER")]
    pub(crate) topic: Option<String>,
    /// How long; else until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = interval)]
    pub(crate) time: Option<std::time::Duration>,
    /// End after so many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) lines: Option<u64>,
    /// Print each line as JSON
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
    /// How long, a day at most
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = within_a_day)]
    pub(crate) time: std::time::Duration,
    /// Where to write
    #[arg(long, value_name = "FILE", default_value = "trace.csv")]
    pub(crate) out: std::path::PathBuf,
    /// Clients to tell apart from the others, by a pattern of their identifiers: sensors=sensor-*. The name and the pattern are
    /// written into the file; up to four times
    #[arg(long, value_name = "NAME=PATTERN", value_parser = tidegate_core::trace::TraceGroup::parse)]
    pub(crate) group: Vec<tidegate_core::trace::TraceGroup>,
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
    #[arg(long, value_parser = ["ok", "away", "slow", "losing", "away-losing", "slowed", "backed-off", "paused"])]
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
    /// Column to sort by, the largest first; trouble is who loses, is paused or refused, then by rate
    #[arg(long, value_enum, default_value_t = Sort::Trouble)]
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
    /// Print status and clients once as JSON, and end
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Sort {
    Id,
    Trouble,
    Rate,
    Delay,
    State,
    Queue,
    QueueBytes,
    Drops,
    Refused,
    Received,
    Delivered,
    Bytes,
    Subscriptions,
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Trouble => "trouble",
            Self::Rate => "rate",
            Self::Delay => "delay",
            Self::State => "state",
            Self::Queue => "queue",
            Self::QueueBytes => "queue_bytes",
            Self::Drops => "drops",
            Self::Refused => "refused",
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
        /// So many messages over MQTT in a time and no more, and as many requests to the smart space: rate=500/s, rate=30/m or
        /// rate=10/h; or as many come first where something is scarce: entitled=500/s
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
    /// The client identifier, as a whole; an address or a network is taken for one, unless --client says otherwise
    pub(crate) client: Option<String>,
    /// The client identifier taken literally, also one that looks like an address
    #[arg(long = "client", value_name = "NAME", conflicts_with = "client")]
    pub(crate) literal: Option<String>,
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

/// Arguments of `tidegate token`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: Option<TokenCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// What to do with tokens.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum TokenCommand {
    /// Make a token of a user, and print it: needs jwt.secret_file
    Make {
        /// The user that its client will be
        user: String,
        /// What it may do: names of roles, as rules of access have them; needs jwt.roles_claim
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        roles: Vec<String>,
        /// How long it lasts
        #[arg(long = "for", value_name = "TIME", default_value = "30d", value_parser = token_time)]
        time: std::time::Duration,
    },
    /// Take back every token of a user that was made until now, and end its connections of MQTT and of topics over HTTP
    Revoke {
        /// The user
        user: String,
    },
    /// Say what is asked of tokens, which were refused, and whose were taken back
    List,
}

fn token_time(text: &str) -> Result<std::time::Duration, String> {
    let bounds = std::time::Duration::from_secs(1)..=std::time::Duration::from_secs(366 * 86_400);
    let duration = parse_duration(text).filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| "a duration with its unit, from 1s to 366d".to_owned())
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

fn within_a_day(text: &str) -> Result<std::time::Duration, String> {
    let bounds = std::time::Duration::from_millis(100)..=std::time::Duration::from_secs(86_400);
    let duration = parse_duration(text).filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| "a duration with its unit, from 100ms to 24h".to_owned())
}

fn interval(text: &str) -> Result<std::time::Duration, String> {
    let bounds = std::time::Duration::from_millis(100)..=std::time::Duration::from_secs(3600);
    let duration = parse_duration(text).filter(|duration| bounds.contains(duration));
    duration.ok_or_else(|| "a duration with its unit, from 100ms to 1h".to_owned())
}
