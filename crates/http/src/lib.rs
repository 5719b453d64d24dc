//! What all HTTP doors of the process share, and nothing that only one of them needs: the thread that serves and one
//! connection (`serve`), which names and pages are ours (`site`), HTTP Basic and the passwords that were right a moment ago
//! (`password`), TLS before either (`tls`), pages and the files that they share (`page`), and answers that are none (`problem`). It knows neither users nor routes nor limits: those are arguments.

mod page;
mod password;
mod problem;
mod serve;
mod site;
mod tls;

pub use page::{
    HTML, PAGE_POLICY, PageFile, PageFiles, SCRIPT, SHARED_FILES, forbidden_in, packed, packed_len, wants_page,
};
pub use password::{CredentialHash, PasswordCache, basic, bearer, who_are_you};
pub use problem::{Problem, text};
pub use serve::{PeerAddress, Serving, Timeouts, peer, serve_connection};
pub use site::{host, is_page_of, is_this_machine};
pub use tls::{PLAIN_REFUSAL, SecureStream, TlsDoor, TlsSource, last_words};
