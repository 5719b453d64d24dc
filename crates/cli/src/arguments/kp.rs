//! Arguments of `tidegate kp`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_client::{DetectorRule, InitialRule, Parameter, Preset};

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
Exit codes: 0 done, 1 failure, 2 wrong usage, 3 no broker, 4 refused, 5 it is busy.";

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
    #[arg(long, value_name = "NAME", default_value_t = Preset::Active)]
    pub(crate) control: Preset,
    /// How congestion is recognised: mediate, rigorous, light, one of these with -paper, or slides-paper
    #[arg(long, value_name = "RULE")]
    pub(crate) detector: Option<DetectorRule>,
    /// Where the first back-off comes from: auto, history, memory, advice or minimum
    #[arg(long, value_name = "RULE")]
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
    Ok((name.parse().map_err(|error| format!("{error}"))?, value.to_owned()))
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a time such as 500ms, 10s or 2m".to_owned())
}
