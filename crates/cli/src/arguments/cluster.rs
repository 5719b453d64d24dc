//! Arguments of `tidegate cluster`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::FileArgs;

const EXAMPLES: &str = "\
Examples:
  tidegate cluster demo                       three nodes here; one is killed, nothing is lost
  tidegate cluster init plant --nodes a=10.0.0.1,b=10.0.0.2,c=10.0.0.3
                                              the configuration of node a, and plant.invite
  tidegate cluster join plant.invite --node b on the machine of b, with the file from a
  tidegate cluster status                     who serves, who stands by, what to do
  tidegate cluster why                        why it is as it is: the last hand-overs, in words";

/// Arguments of `tidegate cluster`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// Commands about several nodes.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Write the configuration of the first node, and an invitation for the others
    Init(ClusterInitArgs),
    /// Write the configuration of another node, from an invitation
    Join(ClusterJoinArgs),
    /// List the nodes: role, epoch, address, and what to do when something is wrong
    Status(ClusterStatusArgs),
    /// Say who has the log, since when and why, what lags, and what to type
    Why(ClusterStatusArgs),
    /// Take a node out of the list that has ended for good
    Leave(ClusterLeaveArgs),
    /// Start three nodes on this machine, kill the one that serves, count what is lost
    Demo(ClusterDemoArgs),
    /// Become the engine, which ends with its parent
    #[command(hide = true)]
    EngineChild {
        /// The process that it ends with
        parent: u32,
        /// The program
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Arguments of `tidegate cluster init`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterInitArgs {
    /// The cluster's name: 1 to 32 of a-z, 0-9 and -
    pub(crate) name: String,
    /// All nodes, three or more, as NAME=HOST with commas between; HOST:PORT for another port of the engines than 6222
    #[arg(long, value_name = "NODES", default_value = "a=127.0.0.1,b=127.0.0.1,c=127.0.0.1")]
    pub(crate) nodes: String,
    /// Which of them this one is; the first, if it is not said
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Where tidegate.toml, the password and the invitation are made
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
}

/// Arguments of `tidegate cluster join`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterJoinArgs {
    /// The invitation that `tidegate cluster init` has made
    #[arg(value_name = "INVITATION")]
    pub(crate) invitation: PathBuf,
    /// Which of its nodes this one is
    #[arg(long, value_name = "NODE")]
    pub(crate) node: String,
    /// Where tidegate.toml and the password are made
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
}

/// Arguments of `tidegate cluster status` and `tidegate cluster why`.
#[derive(Args)]
pub(crate) struct ClusterStatusArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tidegate cluster leave`.
#[derive(Args)]
pub(crate) struct ClusterLeaveArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Which node; that of the configuration, if it is not said
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// Arguments of `tidegate cluster demo`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterDemoArgs {
    /// How often the node that serves is killed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,
    /// Messages that are acknowledged between two kills
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) messages: u32,
    /// The engine's program
    #[arg(long, value_name = "PROGRAM", default_value = "nats-server")]
    pub(crate) engine: String,
}
