//! Who a client is, where somebody elsewhere knows: [`AuthorityAuthenticator`] asks an [`Authority`] about names that are in no file,
//! and leaves everything else to whoever stands beside it.

use std::fmt;
use std::sync::Arc;

use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use tidegate_core::access::Identity;

use crate::authenticator::PasswordAuthenticator;
use crate::authority::AuthorityVerdict;
use crate::limits::PASSWORD_BYTES_MAX;
use crate::text::is_principal;
use crate::token::looks_like_token;

/// Knows users, somewhere else. May wait.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Who this is. Never a yes for want of an answer.
    fn judge(&self, credentials: &Credentials) -> AuthorityVerdict;

    /// What it has said of late, if that still holds. Must not wait.
    fn recall(&self, credentials: &Credentials) -> Option<AuthorityVerdict>;
}

/// Asks the authority about whoever nobody else knows.
#[derive(Debug)]
pub struct AuthorityAuthenticator {
    /// The users of the file, and whose an identifier is.
    passwords: PasswordAuthenticator,
    /// Who judges everybody else: the same, or one that knows tokens.
    beside: Arc<dyn Authenticator>,
    /// Whether what looks like a token is one.
    has_tokens: bool,
    authority: Arc<dyn Authority>,
}

impl AuthorityAuthenticator {
    /// One that asks this authority.
    pub fn new(
        passwords: PasswordAuthenticator,
        beside: Arc<dyn Authenticator>,
        has_tokens: bool,
        authority: Arc<dyn Authority>,
    ) -> Self {
        Self { passwords, beside, has_tokens, authority }
    }

    /// Who that is here.
    fn login_by(&self, verdict: AuthorityVerdict, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        let grant = verdict?;
        // Who is in the file has a password there: nobody else makes somebody that user.
        if !is_principal(&grant.user) || self.passwords.users().contains(&grant.user) {
            return Err(LoginRefusal::NotAuthorized);
        }
        self.passwords.check_client_id(&credentials.client_id, Some(&grant.user))?;
        Ok(LoginGrant { user: Some(grant.user), roles: Some(grant.roles), claims: None, valid_for: grant.valid_for })
    }

    /// Whether this is the authority's affair: a name and a password of somebody who is in no file.
    fn is_elsewhere(&self, credentials: &Credentials) -> bool {
        let Credentials { user_name, password, certificate_name, .. } = credentials;
        let (Some(name), Some(password), None) = (user_name, password, certificate_name) else { return false };
        let is_token = self.has_tokens && looks_like_token(password);
        // A password that only looks long is the authority's, too: a token of somebody else's, for example.
        let bytes_max = if looks_like_token(password) { usize::MAX } else { PASSWORD_BYTES_MAX };
        !is_token && is_principal(name) && password.len() <= bytes_max && !self.passwords.users().contains(name)
    }
}

impl Authenticator for AuthorityAuthenticator {
    fn is_slow(&self, credentials: &Credentials) -> bool {
        self.is_elsewhere(credentials) || self.beside.is_slow(credentials)
    }

    fn is_guessable(&self, credentials: &Credentials) -> bool {
        self.is_elsewhere(credentials) || self.beside.is_guessable(credentials)
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.login(credentials).map(|grant| grant.user)
    }

    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        if !self.is_elsewhere(credentials) {
            return self.beside.login(credentials);
        }
        self.login_by(self.authority.judge(credentials), credentials)
    }

    fn recall(&self, credentials: &Credentials) -> Option<Result<LoginGrant, LoginRefusal>> {
        let known = self.is_elsewhere(credentials).then(|| self.authority.recall(credentials)).flatten();
        known.map(|verdict| self.login_by(verdict, credentials))
    }

    fn asks_elsewhere(&self, credentials: &Credentials) -> bool {
        self.is_elsewhere(credentials)
    }

    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        self.beside.admits(user, client_id)
    }

    /// Who came with roles from elsewhere need not be in a file.
    fn admits_identity(&self, identity: &Identity, client_id: &str) -> bool {
        match (&identity.roles, &identity.user) {
            (Some(_), Some(user)) => self.passwords.check_client_id(client_id, Some(user)).is_ok(),
            _ => self.beside.admits_identity(identity, client_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authenticator::AuthSettings;
    use crate::authority::AuthorityGrant;
    use crate::users::Users;

    /// Lets in whoever says "sesame", as whoever it says it is or as somebody else.
    #[derive(Debug)]
    struct Sesame(Option<&'static str>);

    impl Authority for Sesame {
        fn judge(&self, credentials: &Credentials) -> AuthorityVerdict {
            let is_right = credentials.password.as_deref() == Some(b"sesame");
            let name = self.0.or(credentials.user_name.as_deref()).unwrap_or_default();
            let grant = AuthorityGrant { user: name.into(), roles: ["sensor".into()].into(), valid_for: None };
            is_right.then_some(grant).ok_or(LoginRefusal::BadUserNameOrPassword)
        }

        fn recall(&self, credentials: &Credentials) -> Option<AuthorityVerdict> {
            (credentials.client_id == "known").then(|| self.judge(credentials))
        }
    }

    fn door(as_whom: Option<&'static str>) -> AuthorityAuthenticator {
        let mut users = Users::default();
        users.add("ann", b"secret", &[7; 16]).unwrap();
        let users = Arc::new(users);
        let passwords = || PasswordAuthenticator::new(Arc::clone(&users), AuthSettings::default());
        AuthorityAuthenticator::new(passwords(), Arc::new(passwords()), false, Arc::new(Sesame(as_whom)))
    }

    fn shown(user: &str, password: &str) -> Credentials {
        Credentials {
            user_name: Some(user.into()),
            password: Some(password.into()),
            client_id: "c".into(),
            ..Credentials::default()
        }
    }

    #[test]
    fn who_is_in_no_file_is_asked_for_elsewhere_and_who_is_in_it_is_not() {
        let door = door(None);
        let grant = door.login(&shown("bob", "sesame")).unwrap();
        assert_eq!(grant.user.as_deref(), Some("bob"));
        assert!(!grant.is_lasting(), "the broker remembers no yes of somebody else's");
        assert_eq!(door.login(&shown("bob", "wrong")), Err(LoginRefusal::BadUserNameOrPassword));
        assert_eq!(door.login(&shown("ann", "sesame")), Err(LoginRefusal::BadUserNameOrPassword));
        assert!(door.login(&shown("ann", "secret")).is_ok());
        assert!(door.is_slow(&shown("bob", "x")) && door.is_guessable(&shown("bob", "x")));
        assert_eq!(door.login(&Credentials::default()), Err(LoginRefusal::NotAuthorized), "nobody");
    }

    #[test]
    fn nobody_elsewhere_makes_somebody_a_user_of_the_file() {
        assert_eq!(door(Some("ann")).login(&shown("bob", "sesame")), Err(LoginRefusal::NotAuthorized));
        assert_eq!(door(Some("a\nb")).login(&shown("bob", "sesame")), Err(LoginRefusal::NotAuthorized));
        assert!(door(Some("carl")).login(&shown("bob", "sesame")).is_ok());
    }

    #[test]
    fn what_is_remembered_is_judged_as_an_answer_is() {
        let known = |user, password| Credentials { client_id: "known".into(), ..shown(user, password) };
        let door = |as_whom| door(as_whom);
        assert!(door(None).recall(&shown("bob", "sesame")).is_none());
        assert!(door(None).recall(&known("bob", "sesame")).is_some_and(|verdict| verdict.is_ok()));
        assert_eq!(door(Some("ann")).recall(&known("bob", "sesame")), Some(Err(LoginRefusal::NotAuthorized)));
        assert_eq!(door(None).recall(&known("ann", "secret")), None, "of the file");
        assert!(door(None).asks_elsewhere(&shown("bob", "x")) && !door(None).asks_elsewhere(&shown("ann", "x")));
    }

    #[test]
    fn who_was_let_in_stays_at_a_reload() {
        let bob = Identity { user: Some("bob".into()), roles: Some(Arc::default()), ..Identity::default() };
        assert!(door(None).admits_identity(&bob, "c"));
        assert!(!door(None).admits_identity(&Identity { roles: None, ..bob }, "c"));
    }
}
