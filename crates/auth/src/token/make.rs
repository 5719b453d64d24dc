//! A token of our own, signed with the secret that verifies it (HS256): for a device that has no identity provider.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use ring::hmac;
use serde_json::{Map, Value, json};

use super::TokenRules;
use crate::limits::{ROLES_MAX, TOKEN_LIFE_MAX_S};
use crate::text::is_principal;

/// Why no token can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeFault {
    /// Nobody can be called so.
    User,
    /// No role can be called so, or there are too many.
    Roles,
    /// `jwt.roles_claim` is unset: tokens give no roles here.
    NoRolesClaim,
    /// It would end at once, or too late.
    Life,
    /// It would be longer than tokens may be.
    TooLong,
}

impl fmt::Display for MakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("no user can be called so"),
            Self::Roles => f.write_str("these are no names of roles"),
            Self::NoRolesClaim => f.write_str("tokens give no roles here: jwt.roles_claim is unset"),
            Self::Life => write!(f, "a token lasts from a second to {} days", TOKEN_LIFE_MAX_S / 86_400),
            Self::TooLong => f.write_str("the token would be longer than jwt.token_bytes_max"),
        }
    }
}

impl TokenRules {
    /// A token that these rules let in, until its life is over or it is taken back.
    pub fn make(
        &self,
        secret: &[u8],
        user: &str,
        roles: &[String],
        now_s: u64,
        life_s: u64,
    ) -> Result<String, MakeFault> {
        if !is_principal(user) {
            return Err(MakeFault::User);
        }
        if life_s == 0 || life_s > TOKEN_LIFE_MAX_S {
            return Err(MakeFault::Life);
        }
        // Not one of those that were taken back a moment ago.
        let made = self.revoked.until(user).map_or(now_s, |until| now_s.max(until.saturating_add(1)));
        let mut claims = Map::new();
        self.put_roles(&mut claims, roles)?;
        if let Some(issuer) = &self.issuer {
            claims.insert("iss".to_owned(), json!(issuer));
        }
        if let Some(audience) = self.audience.first() {
            claims.insert("aud".to_owned(), json!(audience));
        }
        claims.insert(self.user_claim.clone(), json!(user));
        claims.insert("iat".to_owned(), json!(made));
        claims.insert("exp".to_owned(), json!(now_s.saturating_add(life_s)));
        let part = |value: &Value| Base64UrlUnpadded::encode_string(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT" })), part(&Value::Object(claims)));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let token =
            format!("{signed}.{}", Base64UrlUnpadded::encode_string(hmac::sign(&key, signed.as_bytes()).as_ref()));
        if token.len() > self.bytes_max { Err(MakeFault::TooLong) } else { Ok(token) }
    }

    /// Where `roles` will look for them: a dot for each object that they are inside of.
    fn put_roles(&self, claims: &mut Map<String, Value>, roles: &[String]) -> Result<(), MakeFault> {
        if roles.is_empty() {
            return Ok(());
        }
        if roles.len() > ROLES_MAX || !roles.iter().all(|role| is_principal(role) && !role.contains(',')) {
            return Err(MakeFault::Roles);
        }
        let path = self.roles_claim.as_ref().ok_or(MakeFault::NoRolesClaim)?;
        let mut names = path.split('.');
        let first = names.next().unwrap_or_default().to_owned();
        let value = names.rev().fold(json!(roles), |value, name| json!({ name: value }));
        claims.insert(first, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KeySet, TokenFault, verify};
    use super::*;

    const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

    fn rules() -> TokenRules {
        let (issuer, audience) = (Some("us".to_owned()), vec!["broker".to_owned(), "other".to_owned()]);
        TokenRules {
            issuer,
            audience,
            roles_claim: Some("realm.roles".to_owned()),
            leeway_s: 0,
            ..TokenRules::default()
        }
    }

    #[test]
    fn a_token_of_ours_is_let_in_until_its_end_and_by_no_other_secret() {
        let rules = rules();
        let token = rules.make(SECRET, "lamp", &["a".to_owned(), "b".to_owned()], 1000, 60).unwrap();
        let judged = |secret: &[u8], now| {
            let keys = KeySet::default().with_secret(secret).unwrap();
            verify(token.as_bytes(), Some("lamp"), &keys, &rules, now)
        };
        let grant = judged(SECRET, 1000).unwrap();
        assert_eq!((&*grant.user, grant.seconds_left, grant.roles.len()), ("lamp", 60, 2));
        assert_eq!(judged(SECRET, 1060), Err(TokenFault::Expired));
        assert_eq!(judged(&[7; 32], 1000), Err(TokenFault::Signature));
    }

    #[test]
    fn what_was_taken_back_is_refused_and_what_is_made_afterwards_is_not() {
        let mut rules = rules();
        let keys = KeySet::default().with_secret(SECRET).unwrap();
        let before = rules.make(SECRET, "lamp", &[], 1000, 600).unwrap();
        rules.revoked.revoke("lamp", 1000).unwrap();
        let after = rules.make(SECRET, "lamp", &[], 1000, 600).unwrap();
        let judged = |token: &str| verify(token.as_bytes(), None, &keys, &rules, 1001).map(|grant| grant.user);
        assert_eq!(judged(&before), Err(TokenFault::Revoked));
        assert_eq!(judged(&after), Ok("lamp".into()));
        let other = rules.make(SECRET, "other", &[], 900, 600).unwrap();
        assert_eq!(judged(&other), Ok("other".into()), "nobody else's affair");
    }

    #[test]
    fn what_cannot_be_is_said() {
        let (rules, plain) = (rules(), TokenRules { bytes_max: 64, ..TokenRules::default() });
        let role = ["a".to_owned()];
        assert_eq!(rules.make(SECRET, "", &[], 0, 1), Err(MakeFault::User));
        assert_eq!(rules.make(SECRET, "a", &["a,b".to_owned()], 0, 1), Err(MakeFault::Roles));
        assert_eq!(rules.make(SECRET, "a", &[], 0, 0), Err(MakeFault::Life));
        assert_eq!(plain.make(SECRET, "a", &role, 0, 1), Err(MakeFault::NoRolesClaim));
        assert_eq!(plain.make(SECRET, "a", &[], 0, 1), Err(MakeFault::TooLong));
    }
}
