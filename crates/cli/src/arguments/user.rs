//! Arguments of `tidegate user`.

use clap::{Args, Subcommand};

use super::FileArgs;

/// Arguments of `tidegate user`.
#[derive(Args)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    pub(crate) command: UserCommand,

    /// The file with the users (a password comes by --password-stdin); else that of the configuration
    #[arg(long = "users-file", visible_alias = "password-file", value_name = "FILE", global = true)]
    // A string, as the flag of the same name of serve: the parser hands one to the other.
    pub(crate) password_file: Option<String>,

    /// Folder for what the broker keeps; the users are in its file "users"
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data: Option<String>,

    #[command(flatten)]
    pub(crate) file: FileArgs,
}

/// What to do with users.
#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user or give one a new password, asking for it twice
    Add {
        /// The user's name
        name: String,
        /// Roles instead of those that the user has: viewer, operator or admin to ask and steer the broker, monitor to
        /// read $SYS topics; any other is a name for access rules
        #[arg(long, value_delimiter = ',', value_name = "A,B")]
        roles: Option<Vec<String>>,
        /// Read the password from the first line of standard input
        #[arg(long)]
        password_stdin: bool,
    },
    /// Remove a user
    Remove {
        /// The user's name
        name: String,
    },
    /// List users and their roles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
