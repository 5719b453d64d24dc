//! Arguments of `tidegate bench`.

use std::path::PathBuf;

use clap::Parser;

const EXAMPLES: &str = "\
Groups:
  traffic          fan-in, fan-out, pairs at QoS 0, 1 and 2: CPU and deliveries per second
  latency          a paced 5 000 messages a second
  relay            our broker beside a process that only copies bytes
  shards           one shard, then two
  subscriptions    the same traffic beside 1, 1 000 and 100 000 subscriptions that do not match
  idle             5 000 and 10 000 silent connections: memory of each
  churn            connect and disconnect over and over
  storm            10 000 clients come back at once, without users and with
  overload-probes  a flood towards a slow subscriber, and what others notice
  overload-flooder   one publisher at 100 times its rhythm: the latency of the others
  overload-classes   half to ten times of what a subscriber can take: latency and losses by class
  overload-priority  a rare publisher among busy ones, with priorities and without
  overload-cost      10 000 publishers: CPU time and memory with the gate and without
  overload-fleet     publishers that keep a rhythm: how many of their messages are slowed
  durable          QoS 1 kept before it is acknowledged, beside what the disk allows; restart
  overload         everything with overload in its name, and the storm; 11 minutes
  space            the smart space: inserts, notifications, subscriptions, equal queries
  admin            what looking costs: a scrape with 10 000 clients, traffic beside 100 dashboards
  peers            everything, as without a group
  bridge           a bridge drains its backlog: its rate, and what the other broker's own clients
                   feel, beside mosquitto's own bridge; 5 minutes, and not among the others
  sink             a webhook takes what waited for it: messages a second; not among the others
  coap             what a PUT over CoAP costs, beside libcoap's coap-server and aiocoap's, and the memory
                   of 10 000 observers; half a minute, and not among the others
  amqp             what a message over AMQP 1.0 costs in and out, beside RabbitMQ's plugin; a minute, and not
                   among the others
  sn               what a message over MQTT-SN costs, beside the same over MQTT; 20 seconds, not among the others
  cluster          three nodes with engines beside one alone: the share of its rate, PUBACK p50/p99; and how
                   long a session is away when the owner is killed or stopped; 4 minutes, and not among the others
  doors            what MQTT pays for the other doors: all of them listening, beside MQTT alone, in turns; a
                   minute and a half, and not among the others
  guard            a flood towards a slow receiver of mosquitto's, alone and through a guard; what a pair
                   of clients feels and what a message costs, beside HAProxy; a minute, not among the others
  harm             whether overload control does harm: scenarios with it and without, in turns; 24
                   to 27 minutes, and not among the others. --quick: 5 minutes

Examples:
  tidegate bench                              everything, beside the peers found; 17 minutes
  tidegate bench idle churn                   two groups
  tidegate bench --only pairs --peer none     a part of it, this broker alone
  tidegate bench harm --only idle,pause       scenarios with these words in their names
  tidegate bench --json figures.json          the table, and the same for programs
  tidegate bench --url mqtt://127.0.0.1:1883 --pid 4711     a broker that already runs here

Goals stand below each case. Messages carry a sequence number: what is lost, comes twice or
out of order is said below.
Exit codes: 0 measured, 1 a case failed or control does harm, 2 wrong usage";

/// Measure what messages and connections cost, beside mosquitto and rumqttd if they are installed
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate-bench", bin_name = "tidegate bench", version, after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Groups of cases, see below; all if none is named
    #[arg(value_name = "GROUP")]
    pub(crate) groups: Vec<String>,

    /// Seconds that each case is measured, after a warm-up; 3, also of trouble for "harm"
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub(crate) secs: Option<f64>,

    /// Only cases whose name contains this; several with commas, or by saying it again
    #[arg(long, value_name = "SUBSTRING", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// For "harm": fewer scenarios, a second of trouble, without peers; what looks bad is run again as ever
    #[arg(long)]
    pub(crate) quick: bool,

    /// The share of clients and subscriptions that cases have: 0.01 makes a storm of 100
    #[arg(long, value_name = "0.001..1", default_value_t = 1.0, value_parser = share)]
    pub(crate) scale: f64,

    /// mosquitto's binary, or "none" for no peers at all; else the one on PATH or in /usr/sbin
    #[arg(long, value_name = "PATH|none")]
    pub(crate) peer: Option<PathBuf>,

    /// rumqttd's binary, or "none"; else the one on PATH or in ~/.cargo/bin ("cargo install rumqttd")
    #[arg(long, value_name = "PATH|none")]
    pub(crate) rumqttd: Option<PathBuf>,

    /// Another broker beside ours, instead of these: a shell command in which {port} and {dir} are filled in
    #[arg(long, value_name = "COMMAND", conflicts_with = "peer")]
    pub(crate) peer_cmd: Option<String>,

    /// Measure a broker that already runs on this machine, instead of starting one
    #[arg(long, value_name = "mqtt://HOST:PORT")]
    pub(crate) url: Option<String>,

    /// The process of that broker, for its CPU time and memory
    #[arg(long, value_name = "N", requires = "url")]
    pub(crate) pid: Option<u32>,

    /// Write one JSON object to this file; without a file, print it instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,

    /// Copy bytes between pairs of connections: the process behind the case "relay"
    #[arg(long, hide = true)]
    pub(crate) as_relay: bool,
}

/// Long enough for a few ticks of the CPU clock, short enough that a typing error does not take the night.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=600.0).contains(&seconds) { Ok(seconds) } else { Err("expected 0.1 to 600 seconds".to_owned()) }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=1.0).contains(&share) { Ok(share) } else { Err("expected 0.001 to 1".to_owned()) }
}
