//! Arguments of `tidegate rdf` and `tidegate map`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ServeArgs, TrustArgs};

/// Where the smart space is, and who asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct SpaceArgs {
    /// The address of the smart space, as the broker says at its start; else that of tidegate.toml, or `http://127.0.0.1:7878`
    #[arg(long = "space", value_name = "URL", env = "TIDEGATE_SPACE", aliases = ["url", "at"], global = true)]
    pub(crate) url: Option<String>,
    /// User; needed if the broker has users
    #[arg(short = 'u', long, value_name = "NAME", global = true)]
    pub(crate) username: Option<String>,
    /// Its password, or the file that TIDEGATE_PASSWORD_FILE names has it; asked for if neither is given
    #[arg(
        short = 'P',
        long,
        value_name = "PASSWORD",
        env = "TIDEGATE_PASSWORD",
        hide_env_values = true,
        global = true
    )]
    pub(crate) password: Option<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// Arguments of `tidegate rdf`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RdfArgs {
    #[command(subcommand)]
    pub(crate) command: RdfCommand,
    #[command(flatten)]
    pub(crate) space: SpaceArgs,
}

/// What to do with the smart space.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RdfCommand {
    /// Ask: SELECT, ASK, CONSTRUCT or DESCRIBE
    Query {
        #[command(flatten)]
        text: TextArgs,
        /// How the answer is written: csv, tsv, json, xml; for triples ttl, nt, nq, trig, rdf, jsonld
        #[arg(long, value_name = "FORMAT", default_value = "csv")]
        format: String,
    },
    /// Change: INSERT, DELETE, CLEAR and the like
    Update {
        #[command(flatten)]
        text: TextArgs,
    },
    /// Put files into the space; what is there stays, unless --replace
    Load {
        /// Files, by whose endings their formats are known; "-" is standard input
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Into this graph; else into the graphs that the file names, or the default graph
        #[arg(long, value_name = "IRI")]
        graph: Option<String>,
        /// The format: ttl, nt, nq, trig, rdf, jsonld
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        /// In place of what the graph has, or of everything
        #[arg(long)]
        replace: bool,
    },
    /// Print all that is in the space, or one graph of it
    Dump {
        /// Only this graph; "default" is the default graph
        #[arg(long, value_name = "IRI")]
        graph: Option<String>,
        /// The format: nq, trig, jsonld; of one graph ttl, nt, rdf, too
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
    },
}

/// SPARQL from somewhere.
#[derive(Args, Clone, Debug)]
pub(crate) struct TextArgs {
    /// SPARQL; without it, and without --file, it is read from standard input
    pub(crate) sparql: Option<String>,
    /// A file with it
    #[arg(short, long, value_name = "FILE", conflicts_with = "sparql")]
    pub(crate) file: Option<PathBuf>,
}

/// Commands about maps between MQTT and the smart space.
#[derive(Subcommand)]
pub(crate) enum MapCommand {
    /// Print the triples that a message would become, without a broker
    Test(Box<MapTestArgs>),
}

/// Arguments of `tidegate map test`.
#[derive(Args)]
pub(crate) struct MapTestArgs {
    /// The topic of the message
    #[arg(short, long)]
    pub(crate) topic: String,
    /// What it says
    #[arg(short, long, default_value = "")]
    pub(crate) payload: String,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}
