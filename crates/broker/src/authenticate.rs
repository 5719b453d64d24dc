//! The question "who are you", asked once per connection. The answer may take long (a password hash): it is asked on a
//! bounded pool of threads, never on a shard.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::access::{Claims, Identity};

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

/// Somebody that is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginGrant {
    /// None for an anonymous client.
    pub user: Option<Arc<str>>,
    /// Roles that came with what was shown; none where they are the broker's affair.
    pub roles: Option<Arc<[Arc<str>]>>,
    /// What else it says of somebody that rules of access speak of.
    pub claims: Option<Claims>,
    /// How long what was shown is valid; none: until somebody says otherwise.
    pub valid_for: Option<Duration>,
}

impl LoginGrant {
    /// Somebody of whom nothing else is known.
    pub fn of_user(user: Option<Arc<str>>) -> Self {
        Self { user, ..Self::default() }
    }

    /// Whether the same credentials and the same rules would give the same answer tomorrow.
    pub fn is_lasting(&self) -> bool {
        self.roles.is_none() && self.valid_for.is_none()
    }
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// Wrong user name or password: 0x86 (4 before MQTT 5).
    BadUserNameOrPassword,
    /// Known, but not allowed: 0x87 (5 before MQTT 5).
    NotAuthorized,
    /// A token that is not valid: as wrong as a password, and nothing that could be guessed, so nobody waits because of it.
    BadToken,
    /// Nobody can say for now: 0x88 (3 before MQTT 5). Never a yes.
    Unavailable,
}

/// Knows the users.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Whether asking takes long (a password hash) and must be done off the data path. Not for anonymous clients, say.
    fn is_slow(&self, credentials: &Credentials) -> bool;

    /// The user that this is; `None` for an anonymous client that is let in.
    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal>;

    /// The same, with what else is known of whoever is let in. This is what clients are asked.
    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        self.authenticate(credentials).map(LoginGrant::of_user)
    }

    /// What is known of these without asking anybody: an answer that is remembered. Fast.
    fn recall(&self, credentials: &Credentials) -> Option<Result<LoginGrant, LoginRefusal>> {
        let _ = credentials;
        None
    }

    /// Whether somebody elsewhere is asked, who may take as long as it likes: not on the threads that hash passwords.
    fn asks_elsewhere(&self, credentials: &Credentials) -> bool {
        let _ = credentials;
        false
    }

    /// Whether somebody could find them by trying: then who has tried too often waits. Not so with what is signed.
    fn is_guessable(&self, credentials: &Credentials) -> bool {
        let _ = credentials;
        true
    }

    /// Whether a client that was let in as this user may still be there: the user exists, and the identifier is one of
    /// its own. Fast; asked after a reload, and where a password was right a moment ago.
    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        let _ = (user, client_id);
        true
    }

    /// The same of somebody of whom more is known: its listener, and whether it came with roles of its own.
    fn admits_identity(&self, identity: &Identity, client_id: &str) -> bool {
        self.admits(identity.user.as_deref(), client_id)
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
