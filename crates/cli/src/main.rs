//! `tidegate`: the command line of the broker, and the small tools beside it.
//!
//! Arguments pass through two types: what the user typed (`arguments`) and what the program needs (`target`, and the types
//! beside each command). The process behind `tidegate serve` is `tidegate_server`; nothing here decides how a broker behaves.
#![deny(clippy::print_stdout, reason = "println! panics when its reader leaves; say! does not")]

mod arguments;
mod client;
mod cluster;
mod demo;
mod format;
mod import;
mod init;
mod inspect;
mod keep;
mod kp;
mod operate;
mod publish;
mod rdf;
mod reference;
mod show;
mod subscribe;
mod target;
mod trace;
mod user;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};

use arguments::{Cli, Command, ConfigCommand, DemoCommand, MapCommand, ServeArgs, StoreCommand, TraceCommand};
use client::ClientError;
use demo::LiveDemo;
use tidegate_program::{AdminError, MISUSE, Usage, program_beside};
use tidegate_server::bind::CannotListen;
use tidegate_server::config::Problems;
use tidegate_server::serve;

/// Gives back what a burst took: glibc's allocator keeps most of it for ever (docs/operations.md has the figures).
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = arguments::expand(std::env::args_os().collect()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        std::process::exit(MISUSE.into())
    });
    let matched = arguments::grouped().try_get_matches_from(arguments);
    let cli = matched.and_then(|matches| Cli::from_arg_matches(&matches)).unwrap_or_else(|error| {
        let hint = arguments::hint_for(&error, std::env::args().nth(1).as_deref());
        let _ = error.print();
        if let Some(hint) = hint {
            eprintln!("\nhint: {hint}");
        }
        // Help and version are on this way, too.
        std::process::exit(error.exit_code())
    });
    let is_quiet = match &cli.command {
        Some(Command::Pub(args)) => args.connect.quiet,
        Some(Command::Sub(args)) => args.connect.quiet,
        _ => false,
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        // Whoever stops reading (`| head`) has seen enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if !is_quiet {
                print_error(&error);
            }
            ExitCode::from(code_of(&error))
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    // Connections end in errors of the client, which name it.
    error.downcast_ref::<ClientError>().is_none() && io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(cli: Cli) -> Result<u8> {
    match cli.command {
        None => run_broker(&cli.serve),
        Some(Command::Serve(args)) => run_broker(&args),
        Some(Command::Guard(args)) => run_guard(&args.into_serve()),
        Some(Command::Pub(args)) => publish::run(&args),
        Some(Command::Sub(args)) => subscribe::run(&args),
        Some(Command::Kp(args)) => kp::run(&args),
        Some(Command::Init(args)) => init::run(&args).map(|()| 0),
        Some(Command::Cluster(args)) => cluster::run(&args),
        Some(Command::User(args)) => user::run(&args).map(|()| 0),
        Some(Command::Token(args)) => operate::token(&args),
        Some(Command::Check(args)) => inspect::check(&args).map(|is_sound| if is_sound { 0 } else { MISUSE }),
        Some(Command::Import { file }) => import::run(&file),
        Some(Command::Config { command: ConfigCommand::Show(args) }) => inspect::show(&args).map(|()| 0),
        Some(Command::Config { command: ConfigCommand::Reference }) => reference::print().map(|()| 0),
        Some(Command::Bench { arguments }) => run_other("tidegate-bench", &arguments),
        Some(Command::Top(args)) => operate::top(&args),
        Some(Command::Status(args)) => operate::status(&args),
        Some(Command::Why(args)) => operate::why(&args),
        Some(Command::Bridges(args)) => operate::bridges(&args),
        Some(Command::Sinks(args)) => operate::sinks(&args),
        Some(Command::Clients(args)) => operate::clients(&args),
        Some(Command::Kps(args)) => operate::kps(&args),
        Some(Command::Drops(args)) => operate::drops(&args),
        Some(Command::Log(args)) => operate::log(&args),
        Some(Command::Alarms(args)) => operate::alarms(&args),
        Some(Command::Limits(args)) => operate::limits(&args),
        Some(Command::Ban(args)) => operate::ban(&args),
        Some(Command::Kick(args)) => operate::kick(&args),
        Some(Command::Health(args)) => operate::health(&args),
        Some(Command::Reload(args)) => operate::reload(&args),
        Some(Command::Drain(args)) => operate::drain(&args),
        Some(Command::Backup(args)) => keep::backup(&args),
        Some(Command::Restore(args)) => keep::restore(&args),
        Some(Command::Store { command: StoreCommand::Check(args) }) => keep::check(&args),
        Some(Command::Demo { command: DemoCommand::Flood(args) }) => demo::flood(&args),
        Some(Command::Rdf(args)) => rdf::run(&args),
        Some(Command::Map { command: MapCommand::Test(args) }) => rdf::test_map(&args),
        Some(Command::Lab { arguments }) => run_other("tidegate-lab", &arguments),
        Some(Command::WhatIf { arguments }) => {
            let arguments: Vec<OsString> = std::iter::once("what-if".into()).chain(arguments).collect();
            run_other("tidegate-lab", &arguments)
        }
        Some(Command::Trace { command: TraceCommand::Record(args) }) => trace::record(&args),
        Some(Command::Completions { shell }) => {
            // Made first and written afterwards: the generator panics when nobody reads the rest.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            operate::out(&String::from_utf8_lossy(&script));
            Ok(0)
        }
        Some(Command::Man { dir }) => write_manual(&dir).map(|()| 0),
    }
}

fn run_broker(args: &ServeArgs) -> Result<u8> {
    serve::run(args.sources(), args.command(), Arc::new(LiveDemo::default())).map(|()| 0)
}

fn run_guard(args: &ServeArgs) -> Result<u8> {
    if !serve::has_upstream(&args.sources()) {
        let words =
            "no broker to stand in front of: name it with --upstream HOST:PORT, or as guard.upstream in the file";
        return Err(anyhow::anyhow!(words).context(Usage));
    }
    run_broker(args)
}

/// Becomes another program of Tidegate, which lies beside this one.
fn run_other(name: &str, arguments: &[OsString]) -> Result<u8> {
    let program = program_beside(name)?;
    let error = std::process::Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{} cannot be run", program.display()))
}

fn write_manual(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir).with_context(|| format!("{} cannot be written", dir.display()))
}

fn print_error(error: &anyhow::Error) {
    // Lists of problems have the word on each line.
    if error.is::<Problems>() || error.is::<CannotListen>() {
        eprintln!("{error}");
    } else {
        eprintln!("error: {}", in_one_line(error));
    }
}

/// An error with its causes; a cause that the words before it end with is not said again.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.ends_with(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{colon}{cause}");
        }
    }
    text
}

fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<kp::KpError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<AdminError>() {
        return error.exit_code();
    }
    if error.is::<Problems>() || error.is::<Usage>() { MISUSE } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_said_already_is_not_said_twice() {
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let twice = Err::<(), _>(gone()).context(format!("cannot create /proc/x: {}", gone())).context("no broker");
        assert_eq!(in_one_line(&twice.unwrap_err()), format!("no broker: cannot create /proc/x: {}", gone()));
        let once = Err::<(), _>(gone()).context("cannot create /proc/x").unwrap_err();
        assert_eq!(in_one_line(&once), format!("cannot create /proc/x: {}", gone()));
    }
}
