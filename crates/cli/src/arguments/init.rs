//! Arguments of `tidegate init`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  tidegate init                               here, with a user \"admin\"; prints its password once
  tidegate init --tls --name broker.example   with a certificate that vouches for itself
  tidegate init --folder /etc/tidegate --user alice --password-file /run/secrets/alice";

/// Arguments of `tidegate init`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Where tidegate.toml is made, and the folder tidegate-data beside it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,

    /// Name of the first user
    #[arg(long, value_name = "NAME", default_value = "admin")]
    pub(crate) user: String,

    /// Read the password from the first line of standard input; else one is made up
    #[arg(long, conflicts_with = "password_file")]
    pub(crate) password_stdin: bool,

    /// Read the new user's password from the first line of this file; users are kept in tidegate-data/users
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Make a certificate and listen with TLS; what is not encrypted then stays on this machine
    #[arg(long)]
    pub(crate) tls: bool,

    /// Another name or address that the certificate is for; may be repeated
    #[arg(long, value_name = "HOST", requires = "tls")]
    pub(crate) name: Vec<String>,
}
