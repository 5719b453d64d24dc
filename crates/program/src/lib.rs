//! What the programs `tidegate`, `tidegate-lab` and `tidegate-bench` share: what wrong usage is, Ctrl-C, text of strangers
//! on a terminal, where the other programs are, TLS of a client, and questions to a running broker.
//!
//! It knows no command and no protocol but the operator's HTTP.

mod admin_client;
mod admin_error;
mod beside;
mod stop;
mod streamed;
mod tls;

use std::fmt;

pub use admin_client::{AdminAnswer, AdminClient, AdminRequest, escaped};
pub use admin_error::AdminError;
pub use beside::{Missing, program_beside};
pub use stop::Stop;
pub use streamed::StreamedAnswer;
pub use tls::{Trust, certificate_hint, session as tls_session};

/// Exit code of wrong usage or configuration, as clap has it for arguments.
pub const MISUSE: u8 = 2;

/// The arguments do not make sense together: exit code 2, as for those that clap refuses.
#[derive(Clone, Copy, Debug)]
pub struct Usage;

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrong usage")
    }
}

/// Writes to standard output. Whoever stops reading (`| head`) is no error: `print!` and `println!` would panic.
pub fn out(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A line for standard output, as [`out`] writes it.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::out(&::std::format!("{}\n", ::std::format_args!($($words)*))) };
}

/// A text that may be a stranger's: what could move a cursor or hide is escaped, quotes stay as they are.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\'' | '"' | '\\' => out.push(letter),
            _ => out.extend(letter.escape_debug()),
        }
    }
    out
}
