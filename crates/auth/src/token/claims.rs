//! What the claims of a token must be, and what becomes of them.

use std::sync::Arc;

use serde_json::{Map, Value};

use tidegate_core::access::Claims;

use super::{RevokedTokens, TokenFault, TokenGrant};
use crate::limits::{CLAIM_BYTES_MAX, ROLES_MAX};
use crate::text::is_principal;

/// What is asked of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// Who must have made it (`iss`); none: anybody with a key.
    pub issuer: Option<String>,
    /// Whom it must be for (`aud`), one of these; none: for whomever.
    pub audience: Vec<String>,
    /// The claim that names the user.
    pub user_claim: String,
    /// The claim that lists roles, with a dot for each object it is inside of; none: tokens give no roles.
    pub roles_claim: Option<String>,
    /// Claims that rules of access speak of, with a dot for each object they are inside of.
    pub claims: Vec<String>,
    /// Seconds by which clocks may differ.
    pub leeway_s: u64,
    /// Bytes of a token.
    pub bytes_max: usize,
    /// Those that were taken back.
    pub revoked: RevokedTokens,
}

impl Default for TokenRules {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: Vec::new(),
            user_claim: "sub".to_owned(),
            roles_claim: None,
            claims: Vec::new(),
            leeway_s: 30,
            bytes_max: 8192,
            revoked: RevokedTokens::default(),
        }
    }
}

impl TokenRules {
    /// Whose the token is, if its claims are in order.
    pub(super) fn judge(
        &self,
        claims: &Map<String, Value>,
        user_name: Option<&str>,
        now_s: u64,
    ) -> Result<TokenGrant, TokenFault> {
        let ends = time(claims, "exp")?.ok_or(TokenFault::Claim)?.saturating_add(self.leeway_s);
        if ends <= now_s {
            return Err(TokenFault::Expired);
        }
        for name in ["nbf", "iat"] {
            if time(claims, name)?.is_some_and(|from| from > now_s.saturating_add(self.leeway_s)) {
                return Err(TokenFault::NotYet);
            }
        }
        if self.issuer.is_some() && self.issuer.as_deref() != claims.get("iss").and_then(Value::as_str) {
            return Err(TokenFault::Issuer);
        }
        if !self.is_for_us(claims.get("aud")) {
            return Err(TokenFault::Audience);
        }
        let user = claims.get(&self.user_claim).and_then(Value::as_str).ok_or(TokenFault::User)?;
        let is_same = user_name.is_none_or(|name| name.is_empty() || name == user);
        if !is_same || !is_principal(user) {
            return Err(TokenFault::User);
        }
        if self.revoked.covers(user, time(claims, "iat")?) {
            return Err(TokenFault::Revoked);
        }
        let (roles, claims) = (self.roles(claims)?, self.wanted(claims));
        Ok(TokenGrant { user: user.into(), roles, claims, seconds_left: ends - now_s })
    }

    /// A text, or a list of them (RFC 7519, 4.1.3).
    fn is_for_us(&self, audience: Option<&Value>) -> bool {
        let is_ours = |value: &Value| value.as_str().is_some_and(|text| self.audience.iter().any(|ours| ours == text));
        self.audience.is_empty()
            || audience
                .is_some_and(|said| is_ours(said) || said.as_array().is_some_and(|list| list.iter().any(is_ours)))
    }

    /// What rules speak of. What is there and is no short text or whole number is there as the empty one, which no rule takes for
    /// anything: it must not pass for missing where a rule denies.
    fn wanted(&self, claims: &Map<String, Value>) -> Option<Claims> {
        let value = |value: &Value| match value {
            Value::String(text) if text.len() <= CLAIM_BYTES_MAX && !text.chars().any(char::is_control) => {
                text.as_str().into()
            }
            Value::Number(number) if number.is_u64() || number.is_i64() => number.to_string().into(),
            _ => Arc::from(""),
        };
        let found = self.claims.iter().filter_map(|path| Some((path.as_str().into(), value(at(claims, path)?))));
        (!self.claims.is_empty()).then(|| found.collect())
    }

    /// A list of texts, or one text with spaces as OAuth's `scope` has it.
    fn roles(&self, claims: &Map<String, Value>) -> Result<Arc<[Arc<str>]>, TokenFault> {
        let Some(path) = &self.roles_claim else { return Ok(Arc::default()) };
        let roles: Vec<&str> = match at(claims, path) {
            None => Vec::new(),
            Some(Value::String(text)) => text.split_whitespace().collect(),
            Some(Value::Array(list)) => {
                list.iter().map(Value::as_str).collect::<Option<_>>().ok_or(TokenFault::Claim)?
            }
            Some(_) => return Err(TokenFault::Claim),
        };
        let is_fit = |role: &&str| is_principal(role) && !role.contains(',');
        if roles.len() > ROLES_MAX || !roles.iter().all(is_fit) {
            return Err(TokenFault::Claim);
        }
        Ok(roles.into_iter().map(Arc::from).collect())
    }
}

/// The claim of this name, with a dot for each object it is inside of.
fn at<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = names.next().and_then(|name| claims.get(name));
    names.fold(first, |value, name| value.and_then(|value| value.get(name)))
}

/// A time in seconds since 1970; fractions are allowed, and cut off.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, TokenFault> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => {
            let fraction = || value.as_f64().filter(|time| (0.0..1e15).contains(time)).map(|time| time as u64);
            value.as_u64().or_else(fraction).map(Some).ok_or(TokenFault::Claim)
        }
    }
}
