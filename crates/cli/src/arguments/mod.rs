//! What the user typed, as clap sees it. Each command has a second type beside its code that says what the program needs.

mod cluster;
mod connect;
mod help;
mod init;
mod kp;
mod operate;
mod options_file;
mod publish;
mod rdf;
mod serve;
mod store;
mod subscribe;
mod user;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use cluster::{
    ClusterArgs, ClusterCommand, ClusterDemoArgs, ClusterInitArgs, ClusterJoinArgs, ClusterLeaveArgs, ClusterStatusArgs,
};
pub(crate) use connect::ConnectArgs;
pub(crate) use help::grouped;
pub(crate) use init::InitArgs;
pub(crate) use kp::{FollowArgs, KpArgs, KpCommand, TripleArgs};
pub(crate) use operate::{
    BanArgs, BanCommand, BannedArgs, LimitsArgs, LimitsCommand, RateChange, TraceCommand, TraceRecordArgs, TrustArgs,
    address_of, listener_of, password, warn_of_lone_password,
};
pub(crate) use operate::{
    ClientsArgs, DemoCommand, FloodArgs, KickArgs, LogArgs, PlainArgs, Sort, TokenArgs, TokenCommand, TopArgs, WhyArgs,
};
pub(crate) use options_file::expand;
pub(crate) use publish::PubArgs;
pub(crate) use rdf::{MapCommand, MapTestArgs, RdfArgs, RdfCommand, SpaceArgs, TextArgs};
pub(crate) use serve::{GuardArgs, ServeArgs, in_shell, program};
pub(crate) use store::{BackupArgs, PlaceArgs, RestoreArgs, StoreCheckArgs, StoreCommand};
pub(crate) use subscribe::SubArgs;
pub(crate) use user::{UserArgs, UserCommand};

const EXAMPLES: &str = "\
Examples:
  tidegate                                    serve on this machine: mqtt 1883, WebSocket 8083
  tidegate sub -t 'test/#' -v                 print what is published below test/
  tidegate pub -t test/a -m hello             publish a message
  tidegate kp query 'SELECT * {?s ?p ?o}'     ask the smart space; also kp subscribe, insert, …
  tidegate init                               accept other machines: makes what is needed
  tidegate user add alice                     add a user, asking for a password
  tidegate check -c tidegate.toml             find every mistake of a configuration
  tidegate config show --origin               print each setting and where it comes from
  tidegate bench                              measure this broker, beside mosquitto and rumqttd
  tidegate top                                watch its clients: rates, queues, drops
  tidegate why meter-17                       why is this client slowed, and what was lost
  tidegate rdf query 'SELECT * {?s ?p ?o}'    ask the smart space
  tidegate map test --topic a/b --payload 5   what a message becomes in the smart space
  tidegate demo flood                         good publishers and a flooder, control off and on
  tidegate guard --upstream 127.0.0.1:1884    a gate in front of the broker that is there already

Files:        --config FILE, else $TIDEGATE_CONFIG, else ./tidegate.toml, else
              /etc/tidegate/tidegate.toml with /etc/tidegate/conf.d/*.toml
Environment:  TIDEGATE_SECTION__KEY=value, for instance TIDEGATE_LISTENERS__MQTT=127.0.0.1:1884
Signals:      TERM and INT drain (a second one stops at once), HUP reloads, USR1 logs counters,
              USR2 switches debug logs on and off
Exit codes:   0 success, 1 failure, 2 wrong usage or configuration, 3 no broker to ask,
              4 refused, 5 it is busy; pub and sub: see their --help";

/// An IoT broker that keeps its footing under overload. Without a command: serve.
#[derive(Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// `tidegate` alone is `tidegate serve`.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the broker (also without a command)
    Serve(Box<ServeArgs>),
    /// Run a gate in front of another broker: its clients connect here instead
    Guard(Box<GuardArgs>),
    /// Publish messages, with the options of mosquitto_pub
    #[command(disable_help_flag = true)]
    Pub(Box<PubArgs>),
    /// Print messages, with the options of mosquitto_sub
    #[command(disable_help_flag = true)]
    Sub(Box<SubArgs>),
    /// Use the smart space: insert, remove, update, query, subscribe, watch
    Kp(Box<KpArgs>),
    /// Make a configuration and a first user, to accept clients from other machines
    Init(InitArgs),
    /// Run several nodes: configurations, how they are, a demonstration
    Cluster(ClusterArgs),
    /// Add, remove and list users
    User(UserArgs),
    /// Make tokens that clients give as passwords, and take them back
    Token(TokenArgs),
    /// Check a configuration: all mistakes at once, and exit code 2 if there are any
    Check(Box<CheckArgs>),
    /// Turn a mosquitto.conf into a configuration of this broker, on standard output
    Import {
        /// mosquitto's configuration file
        #[arg(value_name = "MOSQUITTO_CONF")]
        file: PathBuf,
    },
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Measure what messages and connections cost, beside mosquitto and rumqttd
    #[command(disable_help_flag = true)]
    Bench {
        /// What `tidegate-bench --help` says
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Watch the clients of a running broker: rates, who is slowed, who loses, queues
    Top(TopArgs),
    /// Say how a running broker is: where it listens, how hard it is pressed, what waits
    Status(PlainArgs),
    /// Say why a client is slowed, and what to do; also: why bridge NAME, why sink NAME
    Why(WhyArgs),
    /// List the bridges to other brokers: state, pace, what waits
    Bridges(PlainArgs),
    /// List the sinks: state, what waits, what was taken
    Sinks(PlainArgs),
    /// List clients, or connections that have ended
    Clients(ClientsArgs),
    /// List knowledge processors: class, role, and what became of their requests
    Kps(PlainArgs),
    /// Account for every message that was refused or lost
    Drops(PlainArgs),
    /// Follow one client, or the messages of a topic: what is done, line by line
    Log(LogArgs),
    /// List what is wrong: who floods, loses, is banned, what is full; and what has been
    Alarms(PlainArgs),
    /// List, set and remove limits of single clients and users
    Limits(LimitsArgs),
    /// List, add and remove bans
    Ban(BanArgs),
    /// End a client's connection, or its session
    Kick(KickArgs),
    /// Ask whether the broker is alive and takes clients
    Health(PlainArgs),
    /// Let a running broker read configuration, users and certificates again
    Reload(PlainArgs),
    /// Let a running broker tell everybody, and end
    Drain(PlainArgs),
    /// Copy what a broker keeps, while it runs
    Backup(BackupArgs),
    /// Put a copy back, where no broker runs and nothing is kept
    Restore(Box<RestoreArgs>),
    /// Look at what is kept
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Ask and change the smart space: SPARQL, and files in and out
    Rdf(RdfArgs),
    /// Try maps between MQTT and the smart space
    Map {
        #[command(subcommand)]
        command: MapCommand,
    },
    /// See the gate at work
    Demo {
        #[command(subcommand)]
        command: DemoCommand,
    },
    /// Experiments in virtual time: what would happen with a million clients
    #[command(disable_help_flag = true)]
    Lab {
        /// What `tidegate-lab --help` says
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Ask what more devices, limits or settings would have done with a recorded day
    #[command(disable_help_flag = true)]
    WhatIf {
        /// What `tidegate lab what-if --help` says
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Write down when messages come to a running broker, for `what-if`
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one for each command, into a folder
    Man {
        /// Where they go; made if it is not there
        dir: PathBuf,
    },
}

/// Arguments of `tidegate check`.
#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// Commands about the configuration.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with its value, in the form of a configuration file
    Show(Box<ShowArgs>),
    /// Print what every setting means, may be and is by default, as Markdown
    Reference,
}

/// Arguments of `tidegate config show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Say where each value comes from
    #[arg(long)]
    pub(crate) origin: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// Which configuration file, for commands that need nothing else from it.
#[derive(Args)]
pub(crate) struct FileArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
}

/// Advice for an argument that does not exist: letters of mosquitto and of other servers.
pub(crate) fn hint_for(error: &clap::Error, command: Option<&str>) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() == ErrorKind::ArgumentConflict && command.is_some_and(|first| first.starts_with('-')) {
        return Some("put it after the command: tidegate top --admin URL, tidegate check --set KEY=VALUE");
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    match command {
        Some("pub" | "sub") => return hint_for_tool(argument),
        Some(command) if !command.starts_with('-') && command != "serve" => return None,
        _ => {}
    }
    match argument.as_str() {
        "-p" | "--port" => {
            Some("the port of the broker is set with --mqtt: --mqtt 1884, or --mqtt 0.0.0.0:1884 for all")
        }
        "-h" | "--host" => Some("the address of the broker is set with --mqtt: --mqtt 0.0.0.0:1883 for all"),
        "-v" | "--verbose" | "--debug" => Some("more logs: --log-level debug"),
        "-d" => Some("the broker stays in the foreground; more logs: --log-level debug"),
        _ => None,
    }
}

/// What mosquitto's tools take and these do not, each with the way that there is.
fn hint_for_tool(argument: &str) -> Option<&'static str> {
    Some(match argument {
        "--psk" | "--psk-identity" => {
            "keys shared in advance are not supported; use certificates (--cafile, --cert, --key)"
        }
        "--ciphers" => "ciphers cannot be chosen: all that TLS 1.2 and 1.3 have here are sound; see --tls-version",
        "--tls-engine" | "--tls-engine-kpass-sha1" | "--keyform" => {
            "engines are not supported; give the private key as a PEM file with --key"
        }
        "--proxy" => "proxies are not supported; forward a port instead (ssh -L 1883:broker:1883 host)",
        "--unix" => "unix sockets are not supported; connect to a port with -h and -p",
        "-S" => "SRV records are not looked up; give the broker with -h and -p",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn letters_of_other_servers_are_answered() {
        let hint = |words: &[&str]| {
            let error = Cli::try_parse_from([&["tidegate"], words].concat()).err().unwrap();
            hint_for(&error, words.first().copied())
        };
        assert!(hint(&["-p", "1884"]).unwrap().contains("--mqtt 1884"));
        assert!(hint(&["serve", "--port", "1884"]).unwrap().contains("--mqtt 1884"));
        assert!(hint(&["-v"]).unwrap().contains("--log-level debug"));
        assert!(hint(&["-d"]).unwrap().contains("--log-level debug"));
        assert!(hint(&["--admin", "http://127.0.0.1:1", "top"]).unwrap().starts_with("put it after the command"));
        assert!(hint(&["--set", "a.b=1", "check"]).unwrap().starts_with("put it after the command"));
        assert_eq!(hint(&["--nonsense"]), None);
        assert_eq!(hint(&["pub", "-v"]), None);
        assert!(hint(&["sub", "-t", "a", "--psk", "00"]).unwrap().contains("use certificates"));
        assert!(hint(&["pub", "--unix", "/tmp/x"]).unwrap().contains("unix sockets are not supported"));
    }

    #[test]
    fn texts_broken_by_hand_fit_a_hundred_columns() {
        let command = Cli::command();
        let commands = std::iter::once(&command).chain(command.get_subcommands());
        let texts = commands.filter_map(|command| command.get_after_help()).map(ToString::to_string);
        for line in texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn no_command_is_serve() {
        let cli = Cli::try_parse_from(["tidegate", "--mqtt", "127.0.0.1:0"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.serve.entries()[0].path, "listeners.mqtt");
    }
}
