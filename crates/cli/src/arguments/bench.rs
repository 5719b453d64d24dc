//! Arguments of `tidegate bench`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  tidegate bench                              everything, beside mosquitto if it is installed; about a minute
  tidegate bench --only pairs --peer none     a part of it, this broker alone
  tidegate bench --peer-cmd 'rumqttd -q -c /tmp/rumqttd-{port}.toml'
  tidegate bench --url mqtt://127.0.0.1:1883 --pid 4711     a broker that already runs on this machine

Messages carry a sequence number: what is lost, comes twice or out of order is said below the table.
Exit codes: 0 measured, 1 a case failed, 2 wrong usage";

/// Arguments of `tidegate bench`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Seconds that each case is measured, after a warm-up
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) secs: f64,

    /// Only cases whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    pub(crate) only: Option<String>,

    /// mosquitto's binary, or "none"; else the one on PATH or in /usr/sbin
    #[arg(long, value_name = "PATH|none")]
    pub(crate) peer: Option<PathBuf>,

    /// Another broker beside ours: a shell command in which {port} and {dir} are filled in
    #[arg(long, value_name = "COMMAND", conflicts_with = "peer")]
    pub(crate) peer_cmd: Option<String>,

    /// Measure a broker that already runs on this machine, instead of starting one
    #[arg(long, value_name = "mqtt://HOST:PORT")]
    pub(crate) url: Option<String>,

    /// The process of that broker, for its CPU time and memory
    #[arg(long, value_name = "N", requires = "url")]
    pub(crate) pid: Option<u32>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Copy bytes between pairs of connections: the process behind the case "relay"
    #[arg(long, hide = true)]
    pub(crate) as_relay: bool,
}

/// Long enough for a few ticks of the CPU clock, short enough that a typing error does not take the night.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=600.0).contains(&seconds) { Ok(seconds) } else { Err("expected 0.1 to 600 seconds".to_owned()) }
}
