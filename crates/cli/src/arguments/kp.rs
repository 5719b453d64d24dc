//! Arguments of `tidegate kp`.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_client::{DetectorRule, InitialRule, Parameter, Preset};

use tidegate_server::config::did_you_mean;
use tidegate_server::config::units::parse_duration;

const EXAMPLES: &str = "\
Examples:
  tidegate kp insert urn:lamp1 urn:state on
  tidegate kp query 'SELECT * { ?s ?p ?o }' --json
  tidegate kp update 'DELETE WHERE { <urn:lamp1> ?p ?o }'
  tidegate kp remove urn:lamp1 '*' '*'
  tidegate kp subscribe 'SELECT ?o { <urn:lamp1> <urn:state> ?o }' --control active
  tidegate kp watch 'SELECT ?o { <urn:lamp1> <urn:state> ?o }'
  tidegate kp watch 'SELECT ?o { <urn:lamp1> <urn:state> ?o }' --control active-p19 --set alpha=1.5

A line begins with + for a row that is new, - for one that is gone, ! for losses, # for the pacer.
With --json each line is an object. Subject and predicate of a triple are IRIs, which have a colon
(urn:lamp1, or <http://x/lamp>); its object is a plain literal, unless it stands in <>. Numbers:
  tidegate kp update 'INSERT DATA { <urn:room1> <urn:temp> 21.5 }'
A user is named in the address (http://USER@HOST); TIDEGATE_PASSWORD has the password then, or the
file that TIDEGATE_PASSWORD_FILE names.
Exit codes: 0 done, 1 failure, 2 wrong usage, 3 no broker, 4 refused, 5 not now (busy, a limit, …).";

/// A client of the smart space, line by line: for scripts in any language.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KpArgs {
    /// Where the space is: `http://[USER:PASSWORD@]HOST[:PORT]` or `ssap://HOST[:PORT]`; `https://` and `ssaps://` with TLS; else
    /// that of tidegate.toml, or `http://127.0.0.1:7878`
    #[arg(long = "space", value_name = "URL", env = "TIDEGATE_SPACE", aliases = ["at", "url"], global = true)]
    at: Option<String>,
    /// Certificates to trust, PEM, instead of those of this machine: for `https://` and `ssaps://`
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) cafile: Option<PathBuf>,
    /// What this client calls itself, for its own share among those of one address; a name of chance if nothing is said
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) node: Option<String>,
    /// The class as which it would like to be served; a better one than its own needs a right
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) class: Option<String>,
    /// Print each line as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: KpCommand,
}

impl KpArgs {
    /// The address of the space.
    pub(crate) fn at(&self) -> String {
        self.at.clone().unwrap_or_else(|| super::address_of("listeners.http"))
    }
}

/// What a client does.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KpCommand {
    /// Add a triple, or those of standard input
    Insert(TripleArgs),
    /// Remove what matches; * matches anything
    Remove(TripleArgs),
    /// Do a SPARQL update
    Update {
        /// The update
        sparql: String,
    },
    /// Ask a SPARQL query
    Query {
        /// The query: SELECT or ASK
        sparql: String,
    },
    /// Follow the result of a query, change by change
    #[command(after_help = how_to_choose())]
    Subscribe(FollowArgs),
    /// The same, and show every second what the pacer does
    #[command(after_help = how_to_choose())]
    Watch(FollowArgs),
}

/// A triple or pattern.
#[derive(Args, Clone, Debug)]
pub(crate) struct TripleArgs {
    /// SUBJECT PREDICATE OBJECT; without them a line of standard input is one, up to 1000 at once
    #[arg(num_args = 0..=3, value_name = "TERM")]
    pub(crate) terms: Vec<String>,
}

/// What to follow, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct FollowArgs {
    /// The query
    #[arg(value_name = "SPARQL")]
    pub(crate) sparql: String,
    /// Level of control, or an algorithm of the papers by name; see below
    #[arg(long, value_name = "NAME", default_value_t = Preset::Active, value_parser = control)]
    pub(crate) control: Preset,
    /// How congestion is recognised: mediate, rigorous, light, one of these with -paper, or slides-paper
    #[arg(long, value_name = "RULE", value_parser = detector)]
    pub(crate) detector: Option<DetectorRule>,
    /// Where the first back-off comes from: auto, history, memory, advice or minimum
    #[arg(long, value_name = "RULE", value_parser = initial)]
    pub(crate) initial: Option<InitialRule>,
    /// Mean interval of the basic levels, first one of the others: 10s if nothing is said
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) interval: Option<Duration>,
    /// Set a parameter of the control, such as alpha=1.5 or delta=500ms; see below
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) set: Vec<(Parameter, String)>,
    /// No subscription, only checks
    #[arg(long)]
    pub(crate) poll: bool,
    /// End after so many changes
    #[arg(short = 'C', long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// The names of `--control` and `--set`, with what they are for.
fn how_to_choose() -> String {
    let mut text = "Controls:\n".to_owned();
    for preset in Preset::ALL {
        let _ = writeln!(text, "  {:<21}{}", preset.name(), preset.about());
    }
    text.push_str(
        "\nLeave it at active unless you know better: it is the only one that hears what the broker says about its load. \
         Take none if every notification arrives and a loss does no harm, fixed if each second is the same to you, and \
         the papers' own to repeat or compare them. With --poll there are checks and no subscription.\n\nParameters of \
         --set:\n",
    );
    for parameter in Parameter::ALL {
        let _ = writeln!(text, "  {:<17}{}", parameter.name(), parameter.about());
    }
    text
}

fn parameter(text: &str) -> Result<(Parameter, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((named(name, Parameter::NAMES)?, value.to_owned()))
}

fn control(text: &str) -> Result<Preset, String> {
    named(text, Preset::NAMES)
}

fn detector(text: &str) -> Result<DetectorRule, String> {
    named(text, DetectorRule::NAMES)
}

fn initial(text: &str) -> Result<InitialRule, String> {
    named(text, InitialRule::NAMES)
}

/// One of these names, or what is wrong with it and which was probably meant.
fn named<T: FromStr<Err: Display>>(text: &str, names: &[&'static str]) -> Result<T, String> {
    text.parse().map_err(|error| match did_you_mean(text, names.iter().copied()) {
        Some(hint) => format!("{error}; {hint}"),
        None => format!("{error}"),
    })
}

/// As `--set` reads times: a number without a unit is seconds.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = || Duration::try_from_secs_f64(text.trim().parse().ok()?).ok().filter(|time| !time.is_zero());
    parse_duration(text).or_else(seconds).ok_or_else(|| "a time such as 500ms, 10s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_mistyped_is_answered_with_the_one_that_was_meant() {
        let hint = |told: Result<(), String>| told.unwrap_err().rsplit("; ").next().unwrap_or_default().to_owned();
        assert_eq!(hint(control("acitve").map(drop)), "did you mean \"active\"?");
        assert_eq!(hint(parameter("aplha=2").map(drop)), "did you mean \"alpha\"?");
        assert_eq!(hint(detector("ligth").map(drop)), "did you mean \"light\"?");
        assert!(!control("wild").unwrap_err().contains("did you mean"), "nothing is near");
    }

    #[test]
    fn a_time_without_a_unit_is_in_seconds_as_in_set() {
        let times = ["5", "0.5", "500ms", "10s"].map(|text| time(text).unwrap().as_millis());
        assert_eq!(times, [5000, 500, 500, 10_000]);
        assert!(["", "x", "-1", "0", "nan", "1e99"].iter().all(|text| time(text).is_err()));
    }
}
