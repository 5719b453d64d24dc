//! Arguments of `tidegate pub`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::ConnectArgs;
use super::connect::EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  tidegate pub -t test/a -m hello
  tidegate pub -t test/a -m hello -q 1 -r -u alice -P secret
  sensors | tidegate pub -t sensors/all -l
  tidegate pub -L mqtts://alice:secret@broker.example/test/a -m hello
  tidegate pub -t test/a -m 21 -V 5 -D publish user-property unit celsius";

/// Arguments of `tidegate pub`.
#[derive(Args, Clone, Debug)]
#[command(after_help = after_help(), args_override_self = true)]
#[command(group = ArgGroup::new("what").required(true))]
#[allow(clippy::struct_excessive_bools, reason = "flags as typed; `Publishing` is made of them")]
pub(crate) struct PubArgs {
    /// Topic to publish to
    #[arg(short, long, required_unless_present = "url")]
    pub(crate) topic: Option<String>,

    /// Payload
    #[arg(short, long, group = "what", allow_hyphen_values = true)]
    pub(crate) message: Option<String>,

    /// Payload is this file
    #[arg(short, long, group = "what", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Each line of standard input is a message
    #[arg(short = 'l', long, group = "what")]
    pub(crate) stdin_line: bool,

    /// Payload is all of standard input
    #[arg(short = 's', long, group = "what")]
    pub(crate) stdin_file: bool,

    /// Payload is empty; with -r it deletes the retained message
    #[arg(short, long, group = "what")]
    pub(crate) null_message: bool,

    /// Quality of service
    #[arg(short, long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub(crate) qos: u8,

    /// Retain the message
    #[arg(short, long)]
    pub(crate) retain: bool,

    /// Publish so many times
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "stdin_line")]
    pub(crate) repeat: u32,

    /// Most messages under way without an answer (QoS 1 and 2)
    #[arg(short = 'M', long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_inflight: Option<u16>,

    /// Seconds between two times
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub(crate) repeat_delay: f64,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}
