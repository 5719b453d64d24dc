//! What the user typed, as clap sees it. Each command has a second type beside its code that says what the program needs.

mod bench;
mod connect;
mod lab;
mod publish;
mod serve;
mod subscribe;
mod user;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use bench::BenchArgs;
pub(crate) use connect::ConnectArgs;
pub(crate) use lab::{HowArgs, LabArgs, LabCommand};
pub(crate) use publish::PubArgs;
pub(crate) use serve::{ServeArgs, ServeCommand};
pub(crate) use subscribe::SubArgs;
pub(crate) use user::{UserArgs, UserCommand};

const EXAMPLES: &str = "\
Examples:
  tidegate                                    serve on this machine: mqtt 1883, WebSocket 8083
  tidegate sub -t 'test/#' -v                 print what is published below test/
  tidegate pub -t test/a -m hello             publish a message
  tidegate user add alice                     add a user, asking for a password
  tidegate serve --mqtt 0.0.0.0:1883          accept other machines (needs users)
  tidegate check -c tidegate.toml             find every mistake of a configuration
  tidegate config show --origin               print each setting and where it comes from
  tidegate bench                              measure this broker, and mosquitto if it is installed

Files:        --config FILE, else $TIDEGATE_CONFIG, else ./tidegate.toml, else /etc/tidegate/tidegate.toml
              with /etc/tidegate/conf.d/*.toml
Environment:  TIDEGATE_SECTION__KEY=value, for instance TIDEGATE_LISTENERS__MQTT=127.0.0.1:1884
Signals:      TERM and INT drain (a second one stops at once), HUP reloads, USR1 logs counters,
              USR2 switches debug logs on and off
Exit codes:   0 success, 1 failure, 2 wrong usage or configuration; pub and sub: see their --help";

/// An MQTT broker that stays calm under load. Without a command: serve.
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
    /// Publish messages, with the letters of mosquitto_pub
    #[command(disable_help_flag = true)]
    Pub(Box<PubArgs>),
    /// Print messages, with the letters of mosquitto_sub
    #[command(disable_help_flag = true)]
    Sub(Box<SubArgs>),
    /// Add, remove and list users
    User(UserArgs),
    /// Check a configuration: all mistakes at once; exit code 2 if there are any, as serve would have
    Check(CheckArgs),
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Measure what messages cost, beside mosquitto if it is installed
    Bench(BenchArgs),
    /// Experiments in virtual time: what would happen with a million clients
    Lab(LabArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
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
    Show(ShowArgs),
}

/// Arguments of `tidegate config show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Say where each value comes from
    #[arg(long)]
    pub(crate) origin: bool,
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
    let is_server = command.is_none_or(|command| command.starts_with('-') || command == "serve");
    if error.kind() != ErrorKind::UnknownArgument || !is_server {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
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
        assert_eq!(hint(&["--nonsense"]), None);
        assert_eq!(hint(&["pub", "-v"]), None);
    }

    #[test]
    fn no_command_is_serve() {
        let cli = Cli::try_parse_from(["tidegate", "--mqtt", "127.0.0.1:0"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.serve.entries()[0].path, "listeners.mqtt");
    }
}
