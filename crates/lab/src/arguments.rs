//! Arguments of `tidegate lab`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tidegate_control::time::parse_time;

use crate::real::RealArgs;

const EXAMPLES: &str = "\
Examples:
  tidegate lab list                                    the experiments that come with the program
  tidegate lab run e1-overload --out lab               one of them: figures, tables, report.html
  tidegate lab run mine.toml --seed 7 --replications 20  one of your own
  tidegate lab run e1-overload --set host.capacity=1000/s  with another host
  tidegate lab sweep e1-overload --vary clients.beta=1.5,2,4
  tidegate lab compare before after                    two results, with confidence intervals
  tidegate lab tune --set host.capacity=500/s --set clients.count=20000
  tidegate lab what-if trace.csv --devices x3          what three times the devices would do; also tidegate what-if
  tidegate lab overload --clients 1000 --interval 10s --limit 120
  tidegate lab real                                    on sockets: a broker, 300 KPs, loss, delay, a slow host
  tidegate lab all --out book                          everything: may take an hour
  tidegate lab all --precision 5% --out book           everything, each case as often as it needs
  tidegate lab all --quick --out book                  everything at a glance

Exit codes: 0 done, 1 failed, 2 wrong usage or scenario, 99 an expectation was missed";

/// Experiments in virtual time: what would happen with a million clients
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate-lab", bin_name = "tidegate lab", version, after_help = EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// Commands of the laboratory.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum LabCommand {
    /// List the experiments that come with the program
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run one experiment
    Run {
        /// A name of `lab list`, or a file
        scenario: String,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Run an experiment along axes of your own
    Sweep {
        /// A name of `lab list`, or a file
        scenario: String,
        /// A key and its values; up to two make a heat map
        #[arg(long, value_name = "KEY=A,B,…", required = true)]
        vary: Vec<String>,
        /// The metric that is drawn
        #[arg(long)]
        metric: Option<String>,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Compare two results: folders with summary.json, or such files
    Compare {
        /// Before
        first: PathBuf,
        /// After
        second: PathBuf,
    },
    /// What more devices, limits and settings would have done with the messages of `tidegate trace record`
    #[command(override_usage = "tidegate what-if [OPTIONS] [TRACE]")]
    WhatIf(WhatIfArgs),
    /// Search the pacer's parameters for a deployment, and print them
    Tune {
        #[command(flatten)]
        how: HowArgs,
    },
    /// Pr{N_t}: how likely m clients overload a broker, and how far apart they should ask
    Overload(OverloadArgs),
    /// A real broker, hundreds of real KPs and publishers, a network that loses and delays: what the model says, on sockets
    Real(Box<RealArgs>),
    /// Run every experiment and write the whole book
    All(AllArgs),
    /// Draw the figures of a manual anew from its tables, without running anything
    Draw {
        /// The manual that `lab all --manual` has written
        #[arg(long, value_name = "DIR")]
        manual: PathBuf,
        /// Only experiments whose name contains this
        #[arg(long, value_name = "SUBSTRING")]
        only: Option<String>,
    },
}

/// Arguments of `tidegate what-if`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WhatIfArgs {
    /// What `tidegate trace record` has written
    #[arg(default_value = "trace.csv")]
    pub(crate) trace: PathBuf,
    /// So many times the devices: x3, or of one group: sensors=x3
    #[arg(long, value_name = "[GROUP=]xN")]
    pub(crate) devices: Vec<String>,
    /// So many messages of each publisher: all=20/s, or of one group: sensors=5/s
    #[arg(long, value_name = "GROUP=N/TIME")]
    pub(crate) limit: Vec<String>,
    /// Another setting, as in tidegate.toml: backoff.enforce, backoff.mode, priority.mode, limits.queue_messages_max, limits.rate
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// How many messages the reader takes, who subscribes to everything: 500/s; else whatever comes
    #[arg(long, value_name = "N/s", value_parser = per_second)]
    pub(crate) reader: Option<f64>,
    /// Where to write report.html, timeline.csv and settings.toml
    #[arg(long, value_name = "DIR", default_value = "what-if")]
    pub(crate) out: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn per_second(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("/s").parse().ok().filter(|rate| (0.001..=1e7).contains(rate));
    number.ok_or_else(|| "expected messages a second, such as 500/s".to_owned())
}

/// Arguments of `tidegate lab overload`.
#[derive(Args, Clone, Debug)]
pub(crate) struct OverloadArgs {
    /// m: how many clients there are
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) clients: u64,
    /// τ: the mean time between two requests of a client, 1ms to 30d
    #[arg(long, value_name = "TIME", value_parser = overload_time)]
    pub(crate) interval: Duration,
    /// N: requests that the broker can process within the window
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) limit: u64,
    /// t: the window, 1ms to 30d
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = overload_time)]
    pub(crate) window: Duration,
    /// The share of windows that may exceed the limit, for the interval to advise: 0.000001 to 0.5
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = risk)]
    pub(crate) risk: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn overload_time(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
    parse_time(text)
        .filter(|time| range.contains(time))
        .ok_or_else(|| "expected a time from 1ms to 30d, such as 250ms, 10s or 2m".to_owned())
}

fn risk(text: &str) -> Result<f64, String> {
    let risk = text.parse().ok().filter(|risk| (1e-6..=0.5).contains(risk));
    risk.ok_or_else(|| "expected a share from 0.000001 to 0.5".to_owned())
}

/// Arguments of `tidegate lab all`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AllArgs {
    #[command(flatten)]
    pub(crate) how: HowArgs,
    /// Only experiments whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    pub(crate) only: Option<String>,
    /// No experiment whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    pub(crate) skip: Vec<String>,
    /// A quick look: at most 3 replications, a third of the measured time, no case of more than 50 000 clients
    #[arg(long)]
    pub(crate) quick: bool,
    /// End after about this time, with fewer replications than planned where it does not suffice
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) minutes: Option<u32>,
    /// Go on with the book in --out: what is complete there, of this version and with these settings, is not run again
    #[arg(long)]
    pub(crate) resume: bool,
    /// Also write the chapter of the manual there: evaluation.md and a page for each experiment, once all is done
    #[arg(long, value_name = "DIR")]
    pub(crate) manual: Option<PathBuf>,
    /// Write the pages of these experiments into a manual that is there, and leave its other pages as they are
    #[arg(long, value_name = "DIR", conflicts_with = "manual")]
    pub(crate) pages: Option<PathBuf>,
}

/// When fewer replications are enough; none: never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WantedPrecision(pub(crate) Option<f64>);

fn wanted_precision(text: &str) -> Result<WantedPrecision, String> {
    if text == "off" {
        return Ok(WantedPrecision(None));
    }
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let share = number.trim().parse().ok().map(|number: f64| number * unit).filter(|it| (1e-4..=0.5).contains(it));
    share
        .map(|share| WantedPrecision(Some(share)))
        .ok_or_else(|| "expected a share from 0.01% to 50%, or off".to_owned())
}

/// How to run.
#[derive(Args, Clone, Debug)]
pub(crate) struct HowArgs {
    /// The first seed; replications take the following ones
    #[arg(long)]
    pub(crate) seed: Option<u32>,
    /// Replications of every case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) replications: Option<u32>,
    /// A case is not run again once the interval of the primary metric is within this share of its mean and every expectation
    /// about it is decided: 5%; off: all replications are run
    #[arg(long, value_name = "SHARE", value_parser = wanted_precision)]
    pub(crate) precision: Option<WantedPrecision>,
    /// Where to write
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub(crate) out: PathBuf,
    /// Change a setting in every case
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Runs at the same time; else one for each core
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precision_is_a_share_or_off() {
        for (text, share) in [("5%", Some(0.05)), ("0.02", Some(0.02)), ("50 %", Some(0.5)), ("off", None)] {
            assert_eq!(wanted_precision(text), Ok(WantedPrecision(share)), "{text}");
        }
        for text in ["0", "60%", "-1%", "nan", "inf", "", "%", "narrow"] {
            assert!(wanted_precision(text).is_err(), "{text}");
        }
    }
}
