//! JSON Web Tokens as passwords (RFC 7519): whether one is valid now, whose it is, and which roles it gives. Pure: keys and the
//! time are arguments.
//!
//! What makes tokens dangerous is refused by construction. A key has one algorithm, and a token that names another is not
//! looked at (RFC 8725, 3.1): `none` is no algorithm, and a public key is never a secret. Exactly one key is tried. What is
//! signed is read once, by one reader, which takes no name twice. A token without an end is none.

mod claims;
mod fault;
mod json;
mod keys;
mod make;
mod revoked;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use claims::TokenRules;
pub use fault::{KeyFault, TokenFault};
pub use keys::KeySet;
pub use make::MakeFault;
pub use revoked::{RevokedFull, RevokedTokens};

use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::Value;
use tidegate_core::access::Claims;

use crate::limits::TOKEN_BYTES_MAX;
use keys::TokenAlgorithm;

/// What a valid token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    /// Whose it is.
    pub user: Arc<str>,
    /// None is an empty list: that somebody came with a token is known by there being one.
    pub roles: Arc<[Arc<str>]>,
    /// What rules of access want to know besides; none if they want nothing.
    pub claims: Option<Claims>,
    /// Seconds for which it is still valid, leeway included.
    pub seconds_left: u64,
}

/// Whether this may be a token: three parts, the first of which is the beginning of a JSON object. Says nothing about its
/// being valid.
pub(crate) fn looks_like_token(password: &[u8]) -> bool {
    password.starts_with(b"eyJ") && password.split(|byte| *byte == b'.').count() == 3
}

/// Judges a token of somebody who calls itself so, at this time in seconds since 1970.
pub(crate) fn verify(
    token: &[u8],
    user_name: Option<&str>,
    keys: &KeySet,
    rules: &TokenRules,
    now_s: u64,
) -> Result<TokenGrant, TokenFault> {
    if token.len() > rules.bytes_max.min(TOKEN_BYTES_MAX) {
        return Err(TokenFault::TooLong);
    }
    let text = std::str::from_utf8(token).map_err(|_| TokenFault::NotAToken)?;
    let (signed, signature) = text.rsplit_once('.').ok_or(TokenFault::NotAToken)?;
    let (header, payload) = signed.split_once('.').ok_or(TokenFault::NotAToken)?;
    let header = object(header)?;
    // Whoever writes something that must be understood (RFC 7515, 4.1.11) means somebody else.
    if header.get("crit").is_some() {
        return Err(TokenFault::Header);
    }
    let algorithm = header.get("alg").and_then(Value::as_str).and_then(TokenAlgorithm::named);
    let algorithm = algorithm.ok_or(TokenFault::Algorithm)?;
    let kid = match header.get("kid") {
        None => None,
        Some(kid) => Some(kid.as_str().ok_or(TokenFault::Header)?),
    };
    let key = keys.find(algorithm, kid)?;
    let signature = decoded(signature)?;
    // Before anything that was signed is looked at.
    if !key.verifies(signed.as_bytes(), &signature) {
        return Err(TokenFault::Signature);
    }
    rules.judge(&object(payload)?, user_name, now_s)
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenFault> {
    Base64UrlUnpadded::decode_vec(part).map_err(|_| TokenFault::NotAToken)
}

fn object(part: &str) -> Result<serde_json::Map<String, Value>, TokenFault> {
    json::object(&decoded(part)?)
}
