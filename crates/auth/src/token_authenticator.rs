//! Who a client is, where a password may be a token: [`TokenAuthenticator`] judges tokens and leaves everything else to the
//! [`PasswordAuthenticator`] beside it.
//!
//! Where keys come from, and what time it is, is asked of a [`TokenSource`]. Without keys nobody is let in by a token: whoever
//! comes is told to come back, never "yes".

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use tidegate_core::access::Identity;

use crate::authenticator::PasswordAuthenticator;
use crate::token::{KeySet, TokenFault, TokenRules, looks_like_token, verify};

/// Has the keys of now, and counts.
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// The keys; none while there are none. Must not wait.
    fn keys(&self) -> Option<Arc<KeySet>>;

    /// Seconds since 1970.
    fn now_s(&self) -> u64;

    /// A token was refused. One with an unknown key may mean that there are new ones: true if they are being looked for, so
    /// that it is worth coming back.
    fn refused(&self, fault: TokenFault) -> bool;
}

/// Knows the users by tokens, passwords or certificates.
#[derive(Debug)]
pub struct TokenAuthenticator {
    passwords: PasswordAuthenticator,
    rules: TokenRules,
    source: Arc<dyn TokenSource>,
}

impl TokenAuthenticator {
    /// One that judges tokens by these rules, and others as `passwords` does.
    pub fn new(passwords: PasswordAuthenticator, rules: TokenRules, source: Arc<dyn TokenSource>) -> Self {
        Self { passwords, rules, source }
    }

    /// The token, if the client shows one and nothing better.
    fn token(credentials: &Credentials) -> Option<&[u8]> {
        let shown = credentials.password.as_deref().filter(|password| looks_like_token(password))?;
        credentials.certificate_name.is_none().then_some(shown)
    }

    fn judge(&self, token: &[u8], credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        let user_name = credentials.user_name.as_deref();
        let judged = match self.source.keys() {
            Some(keys) => verify(token, user_name, &keys, &self.rules, self.source.now_s()),
            None => Err(TokenFault::NoKeys),
        };
        let grant = judged.map_err(|fault| {
            let is_looked_for = self.source.refused(fault);
            if is_looked_for { LoginRefusal::Unavailable } else { LoginRefusal::BadToken }
        })?;
        self.passwords.check_client_id(&credentials.client_id, Some(&grant.user))?;
        let valid_for = Some(Duration::from_secs(grant.seconds_left));
        Ok(LoginGrant { user: Some(grant.user), roles: Some(grant.roles), claims: grant.claims, valid_for })
    }
}

impl Authenticator for TokenAuthenticator {
    /// A signature costs a tenth of a millisecond and more: not on the data path.
    fn is_slow(&self, credentials: &Credentials) -> bool {
        Self::token(credentials).is_some() || self.passwords.is_slow(credentials)
    }

    fn is_guessable(&self, credentials: &Credentials) -> bool {
        Self::token(credentials).is_none()
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.login(credentials).map(|grant| grant.user)
    }

    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        match Self::token(credentials) {
            Some(token) => self.judge(token, credentials),
            None => self.passwords.login(credentials),
        }
    }

    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        self.passwords.admits(user, client_id)
    }

    /// Who came with a token need not be in a file; its end is known, and comes by itself.
    fn admits_identity(&self, identity: &Identity, client_id: &str) -> bool {
        match (&identity.roles, &identity.user) {
            (Some(_), Some(user)) => self.passwords.check_client_id(client_id, Some(user)).is_ok(),
            _ => self.passwords.admits(identity.user.as_deref(), client_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::authenticator::{AnonymousClients, AuthSettings, ClientIds};
    use crate::users::Users;

    /// A secret, a clock that stands still, and what was refused.
    #[derive(Debug, Default)]
    struct Source {
        keys: Option<Arc<KeySet>>,
        refused: Mutex<Vec<TokenFault>>,
    }

    impl TokenSource for Source {
        fn keys(&self) -> Option<Arc<KeySet>> {
            self.keys.clone()
        }

        fn now_s(&self) -> u64 {
            1_800_000_000
        }

        fn refused(&self, fault: TokenFault) -> bool {
            self.refused.lock().unwrap().push(fault);
            matches!(fault, TokenFault::UnknownKey | TokenFault::NoKeys)
        }
    }

    const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

    /// A token of ann's for a minute.
    fn token() -> String {
        use base64ct::{Base64UrlUnpadded, Encoding};
        let part = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
        let signed =
            format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(r#"{"sub":"ann","exp":1800000030,"roles":["sensor"]}"#));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET);
        let made = ring::hmac::sign(&key, signed.as_bytes());
        format!("{signed}.{}", Base64UrlUnpadded::encode_string(made.as_ref()))
    }

    fn shown(user: Option<&str>, client_id: &str) -> Credentials {
        Credentials {
            client_id: client_id.into(),
            user_name: user.map(Into::into),
            password: Some(token().into_bytes()),
            ..Credentials::default()
        }
    }

    fn door(keys: Option<KeySet>, settings: AuthSettings) -> (TokenAuthenticator, Arc<Source>) {
        let source = Arc::new(Source { keys: keys.map(Arc::new), ..Source::default() });
        let rules = TokenRules { roles_claim: Some("roles".into()), ..TokenRules::default() };
        let passwords = PasswordAuthenticator::new(Users::default(), settings);
        (TokenAuthenticator::new(passwords, rules, Arc::clone(&source) as Arc<dyn TokenSource>), source)
    }

    #[test]
    fn a_token_is_a_login_that_ends_and_gives_roles() {
        let (door, _) = door(KeySet::default().with_secret(SECRET).ok(), AuthSettings::default());
        let grant = door.login(&shown(None, "c")).unwrap();
        assert_eq!((grant.user.as_deref(), grant.valid_for), (Some("ann"), Some(Duration::from_secs(60))));
        assert!(!grant.is_lasting() && grant.roles.is_some_and(|roles| &*roles[0] == "sensor"));
        assert_eq!(door.login(&shown(Some("bob"), "c")), Err(LoginRefusal::BadToken));
        assert!(door.is_slow(&shown(None, "c")) && !door.is_guessable(&shown(None, "c")));
    }

    #[test]
    fn without_keys_nobody_comes_in_and_everybody_may_come_back() {
        let (door, source) = door(None, AuthSettings { anonymous: AnonymousClients::Admit, ..AuthSettings::default() });
        assert_eq!(door.login(&shown(None, "c")), Err(LoginRefusal::Unavailable));
        assert_eq!(*source.refused.lock().unwrap(), [TokenFault::NoKeys]);
    }

    #[test]
    fn who_came_with_a_token_stays_at_a_reload_and_is_bound_to_its_identifiers() {
        let bound = AuthSettings { client_ids: ClientIds::BoundToUser, ..AuthSettings::default() };
        let (door, _) = door(KeySet::default().with_secret(SECRET).ok(), bound);
        let ann = Identity { user: Some("ann".into()), roles: Some(Arc::default()), ..Identity::default() };
        assert!(door.admits_identity(&ann, "ann-1") && !door.admits_identity(&ann, "bob"));
        assert!(!door.admits_identity(&Identity { roles: None, ..ann.clone() }, "ann-1"), "a user who is in no file");
        assert!(door.login(&shown(None, "ann-1")).is_ok());
        assert_eq!(door.login(&shown(None, "bob")), Err(LoginRefusal::NotAuthorized));
    }

    #[test]
    fn a_certificate_comes_before_a_token_and_a_password_is_none() {
        let (door, source) = door(KeySet::default().with_secret(SECRET).ok(), AuthSettings::default());
        let both = Credentials { certificate_name: Some("stranger".into()), ..shown(None, "c") };
        assert_eq!(door.login(&both), Err(LoginRefusal::NotAuthorized));
        let password = Credentials { password: Some(b"secret".to_vec()), ..shown(Some("ann"), "c") };
        assert_eq!(door.login(&password), Err(LoginRefusal::BadUserNameOrPassword));
        assert!(door.is_guessable(&password) && source.refused.lock().unwrap().is_empty());
    }
}
