//! The question "who are you", asked once per connection. The answer may take long (a password hash): it is asked on a
//! bounded pool of threads, never on a shard.

use std::fmt;
use std::sync::Arc;

/// What a client shows.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Client identifier of the CONNECT.
    pub client_id: String,
    /// User name of the CONNECT.
    pub user_name: Option<String>,
    /// Password of the CONNECT.
    pub password: Option<Vec<u8>>,
    /// Name in the client's certificate, already verified by TLS.
    pub certificate_name: Option<String>,
    /// The listener where the client shows them: users may differ from one to another.
    pub listener: &'static str,
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// Wrong user name or password: 0x86 (4 before MQTT 5).
    BadUserNameOrPassword,
    /// Known, but not allowed: 0x87 (5 before MQTT 5).
    NotAuthorized,
}

/// Knows the users.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Whether asking takes long (a password hash) and must be done off the data path. Not for anonymous clients, say.
    fn is_slow(&self, credentials: &Credentials) -> bool;

    /// The user that this is; `None` for an anonymous client that is let in.
    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal>;

    /// Whether a client that was let in as this user may still be there: the user exists, and the identifier is one of
    /// its own. Fast; asked after a reload, and where a password was right a moment ago.
    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        let _ = (user, client_id);
        true
    }

    /// The same at one listener, where they differ.
    fn admits_at(&self, listener: &str, user: Option<&str>, client_id: &str) -> bool {
        let _ = listener;
        self.admits(user, client_id)
    }
}

/// Lets everybody in, as nobody in particular.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

impl Authenticator for Anonymous {
    fn is_slow(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        Ok(credentials.certificate_name.as_deref().map(Arc::from))
    }
}
