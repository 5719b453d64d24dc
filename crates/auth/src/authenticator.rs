//! Who a client is: [`PasswordAuthenticator`] answers the broker's question from the [`Users`].
//!
//! A certificate's name, already verified by TLS, wins over user name and password. All wrong credentials look the same
//! from outside. Client identifiers can be bound to their users, because whoever takes over an identifier takes over a
//! session and its queued messages.

use std::fmt;
use std::sync::Arc;

use tidegate_broker::authenticate::{Authenticator, Credentials, LoginRefusal};

use crate::limits::{NAME_BYTES_MAX, PASSWORD_BYTES_MAX};
use crate::text::is_principal;
use crate::users::{PasswordVerdict, Users};

/// What becomes of clients that show nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnonymousClients {
    /// They are let in, as nobody.
    Admit,
    /// They are refused as not authorized.
    #[default]
    Refuse,
}

/// Which names of certificates are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateUsers {
    /// Only those that are also in the password file.
    #[default]
    MustExist,
    /// Any name that the certificate authority vouches for.
    Any,
}

/// Which identifiers clients may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientIds {
    /// Any.
    #[default]
    Free,
    /// A user `name` only `name` itself and what begins with `name-`, `name_`, `name/` or `name:`, unless that is the
    /// identifier of a user with a longer name; anonymous clients only what belongs to no user. An empty identifier is
    /// always allowed: the broker then assigns one.
    BoundToUser,
}

/// How strict to be. The default lets in nobody without a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthSettings {
    /// Clients without user name, password and certificate.
    pub anonymous: AnonymousClients,
    /// Clients with a certificate.
    pub certificate_users: CertificateUsers,
    /// Client identifiers.
    pub client_ids: ClientIds,
}

/// Knows the users by their passwords or certificates.
pub struct PasswordAuthenticator {
    users: Arc<Users>,
    settings: AuthSettings,
}

impl PasswordAuthenticator {
    /// An authenticator for these users, whom others may know as well.
    pub fn new(users: impl Into<Arc<Users>>, settings: AuthSettings) -> Self {
        Self { users: users.into(), settings }
    }

    /// The users it knows.
    pub fn users(&self) -> &Users {
        &self.users
    }

    fn by_certificate(&self, name: &str) -> Result<Arc<str>, LoginRefusal> {
        // A name with a NUL or a line break may mean one thing to the authority and another to us.
        if !is_principal(name) {
            return Err(LoginRefusal::NotAuthorized);
        }
        match (self.users.name(name), self.settings.certificate_users) {
            (Some(known), _) => Ok(Arc::clone(known)),
            (None, CertificateUsers::Any) => Ok(name.into()),
            (None, CertificateUsers::MustExist) => Err(LoginRefusal::NotAuthorized),
        }
    }

    fn by_password(&self, name: &str, password: &[u8]) -> Result<Arc<str>, LoginRefusal> {
        match self.users.verify(name, password) {
            PasswordVerdict::Right => self.users.name(name).map(Arc::clone).ok_or(LoginRefusal::BadUserNameOrPassword),
            PasswordVerdict::Wrong | PasswordVerdict::UnknownUser | PasswordVerdict::TooLong => {
                Err(LoginRefusal::BadUserNameOrPassword)
            }
        }
    }

    pub(crate) fn check_client_id(&self, client_id: &str, user: Option<&str>) -> Result<(), LoginRefusal> {
        if self.settings.client_ids == ClientIds::Free || client_id.is_empty() {
            return Ok(());
        }
        let owner = self.owner(client_id);
        let is_own = match (user, owner) {
            (None, owner) => owner.is_none(),
            // A certificate's user need not be in the file; then the identifier has no owner there, or a shorter one.
            (Some(user), owner) => is_id_of(user, client_id) && owner.is_none_or(|owner| owner.len() <= user.len()),
        };
        if is_own { Ok(()) } else { Err(LoginRefusal::NotAuthorized) }
    }

    /// The user whose identifier this is: with users `a` and `a-b`, the identifier `a-b-1` belongs to `a-b`, else `a`
    /// could take over the sessions of `a-b`. Looks up at most one name per byte of the longest possible name.
    fn owner<'a>(&self, client_id: &'a str) -> Option<&'a str> {
        let ends = client_id.match_indices(SEPARATORS).map(|(at, _)| at);
        let names = ends.take_while(|&at| at <= NAME_BYTES_MAX).map(|at| &client_id[..at]);
        let longest = names.filter(|name| self.users.contains(name)).last();
        if self.users.contains(client_id) { Some(client_id) } else { longest }
    }
}

impl Authenticator for PasswordAuthenticator {
    fn is_slow(&self, credentials: &Credentials) -> bool {
        let Credentials { user_name, password, certificate_name, .. } = credentials;
        let has_hash_to_compute = password.as_ref().is_some_and(|password| password.len() <= PASSWORD_BYTES_MAX);
        certificate_name.is_none() && user_name.is_some() && has_hash_to_compute
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        let Credentials { client_id, user_name, password, certificate_name, .. } = credentials;
        let user = match (certificate_name, user_name, password) {
            (Some(name), ..) => Some(self.by_certificate(name)?),
            (None, Some(name), Some(password)) => Some(self.by_password(name, password)?),
            // Half of the credentials is none, whoever it would be: no need to hash anything.
            (None, Some(_), None) | (None, None, Some(_)) => return Err(LoginRefusal::BadUserNameOrPassword),
            (None, None, None) if self.settings.anonymous == AnonymousClients::Admit => None,
            (None, None, None) => return Err(LoginRefusal::NotAuthorized),
        };
        self.check_client_id(client_id, user.as_deref())?;
        Ok(user)
    }

    /// Where any name of a certificate is taken, nobody can be missing from the file. A changed password ends nothing: it
    /// was the right one when it was shown.
    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        let is_known = match user {
            Some(name) => self.users.contains(name) || self.settings.certificate_users == CertificateUsers::Any,
            None => self.settings.anonymous == AnonymousClients::Admit,
        };
        is_known && self.check_client_id(client_id, user).is_ok()
    }
}

/// Not the users: there may be many, and their names are nobody's business in a log.
impl fmt::Debug for PasswordAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordAuthenticator")
            .field("users", &self.users.len())
            .field("settings", &self.settings)
            .finish()
    }
}

fn is_id_of(user: &str, client_id: &str) -> bool {
    client_id.strip_prefix(user).is_some_and(|rest| rest.is_empty() || rest.starts_with(SEPARATORS))
}

const SEPARATORS: [char; 4] = ['-', '_', '/', ':'];
