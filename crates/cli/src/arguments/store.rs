//! Arguments of the commands about what is kept.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use tidegate_server::config::{ConfigEntry, Sources};

use super::operate::AdminArgs;

/// Arguments of `tidegate backup`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackupArgs {
    /// Where the copy is to be; must not be there yet, or be empty
    #[arg(value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Copy the store of a broker that does not run, out of this data folder
    #[arg(long, value_name = "DATA")]
    pub(crate) from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `tidegate restore`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RestoreArgs {
    /// The copy that `tidegate backup` made
    #[arg(value_name = "DIR")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which data folder is meant.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder of the broker; else that of the configuration
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
}

impl PlaceArgs {
    pub(crate) fn sources(&self) -> Sources {
        let data = self.data.iter().map(|data| ConfigEntry::flag("--data", "server.data", data)).collect();
        Sources::of_process(self.config.clone(), data)
    }
}

/// Commands about what is kept.
#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything in the store of a broker that does not run, or in a copy, and say what is damaged; changes nothing
    Check(Box<StoreCheckArgs>),
}

/// Arguments of `tidegate store check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreCheckArgs {
    /// A copy that `tidegate backup` made, or a data folder; else the data folder of the configuration
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
