//! Arguments of `tidegate sub`.

use clap::Args;

use super::ConnectArgs;
use super::connect::EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  tidegate sub -t 'test/#' -v
  tidegate sub -t 'test/#' -C 1 -W 10                 one message, or exit code 27 after 10 s
  tidegate sub -t '#' -F '%I %t %q %r %p'             time, topic, QoS, retained, payload
  tidegate sub -t 'test/#' -q 1 -c -i keeper          keep the session for the next time

Formats of -F:
  %t topic  %p payload  %x %X payload in hex  %l length  %q QoS  %r retained  %d duplicate
  %m packet identifier  %I time (ISO 8601)  %U time (unix)  %j %J JSON (payload as text, as JSON)
  %C content type  %D correlation data  %E expiry  %F payload format  %P user properties
  %R response topic  %S subscription identifiers  %% a percent sign  \\n \\t \\r \\0 \\e \\\\";

/// Arguments of `tidegate sub`.
#[derive(Args, Clone, Debug)]
#[command(after_help = after_help(), args_override_self = true)]
#[allow(clippy::struct_excessive_bools, reason = "flags as typed; `Subscribing` is made of them")]
pub(crate) struct SubArgs {
    /// Topic filter; may be repeated
    #[arg(short, long, required_unless_present_any = ["url", "unsubscribe"])]
    pub(crate) topic: Vec<String>,

    /// Quality of service
    #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) qos: u8,

    /// Print the topic before the payload
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Exit after so many messages
    #[arg(short = 'C', long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,

    /// Exit with code 27 after so many seconds
    #[arg(short = 'W', long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,

    /// Exit once the broker has confirmed the subscription
    #[arg(short = 'E', long)]
    pub(crate) exit_after_subscribe: bool,

    /// No line break after a payload
    #[arg(short = 'N', long)]
    pub(crate) no_eol: bool,

    /// How to print a message
    #[arg(short = 'F', long, value_name = "FORMAT", allow_hyphen_values = true, conflicts_with = "verbose")]
    pub(crate) format: Option<String>,

    /// Leave out stale messages: those that were retained when we subscribed
    #[arg(short = 'R', long, conflicts_with = "retained_only")]
    pub(crate) no_retained: bool,

    /// Print only messages that were retained when we subscribed, and exit at the first other one
    #[arg(long)]
    pub(crate) retained_only: bool,

    /// Delete every retained message that is received (-T leaves some out)
    #[arg(long)]
    pub(crate) remove_retained: bool,

    /// Print so many percent of the messages, chosen by chance
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) random_filter: Option<f64>,

    /// Print JSON (%j, %J) over several lines
    #[arg(long)]
    pub(crate) pretty: bool,

    /// Print how many messages came in each second instead of the messages
    #[arg(long, conflicts_with_all = ["format", "verbose", "watch"])]
    pub(crate) message_rate: bool,

    /// Keep one line for each topic up to date instead of printing messages one after the other
    #[arg(short = 'w', long)]
    pub(crate) watch: bool,

    /// Ask for the retain flag as it was published (MQTT 5)
    #[arg(long)]
    pub(crate) retain_as_published: bool,

    /// Leave out messages of these topics; may be repeated
    #[arg(short = 'T', long, value_name = "FILTER")]
    pub(crate) filter_out: Vec<String>,

    /// Unsubscribe from this filter first; may be repeated
    #[arg(short = 'U', long, value_name = "FILTER")]
    pub(crate) unsubscribe: Vec<String>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if percent > 0.0 && percent <= 100.0 { Ok(percent) } else { Err("expected more than 0 and at most 100".to_owned()) }
}
