//! Keys that verify tokens: a JSON Web Key Set (RFC 7517), or a secret that both sides have.
//!
//! Each key has exactly one algorithm, decided here by what the key is and not by what a token says. Secrets never come from
//! a set: a set is public.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use ring::hmac;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;

use super::{KeyFault, TokenFault};
use crate::limits::{KEY_SET_BYTES_MAX, TOKEN_KEYS_MAX};

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenAlgorithm {
    Rs256,
    Es256,
    EdDsa,
    Hs256,
}

impl TokenAlgorithm {
    /// By its name in a token.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            "HS256" => Some(Self::Hs256),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Hs256 => "HS256",
        }
    }
}

/// The keys that are in force.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<TokenKey>);

/// One key, for one algorithm.
#[derive(Clone)]
pub(super) struct TokenKey {
    kid: Option<String>,
    material: KeyMaterial,
}

#[derive(Clone)]
enum KeyMaterial {
    /// Modulus and exponent, big-endian.
    Rsa(Vec<u8>, Vec<u8>),
    /// An uncompressed point of P-256.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(hmac::Key),
}

impl KeySet {
    /// Reads a JSON Web Key Set. Keys that are for something else, or of a kind that is not known here, are passed over, as
    /// RFC 7517 has it; a set without a single one of use is an error.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        if text.len() > KEY_SET_BYTES_MAX {
            return Err(KeyFault::TooLong);
        }
        let set: Value = serde_json::from_str(text).map_err(|error| KeyFault::NotJson(error.to_string()))?;
        let list = set.get("keys").and_then(Value::as_array).ok_or(KeyFault::NoList)?;
        let keys: Vec<TokenKey> = list.iter().filter_map(TokenKey::of_set).collect();
        match keys.len() {
            0 => Err(KeyFault::NoneUsable),
            count if count > TOKEN_KEYS_MAX => Err(KeyFault::TooMany),
            _ => Ok(Self(keys)),
        }
    }

    /// The same with a secret for HS256.
    pub fn with_secret(mut self, secret: &[u8]) -> Result<Self, KeyFault> {
        // As long as the hash (RFC 7518, 3.2): whoever has one token could guess a shorter one.
        if secret.len() < 32 {
            return Err(KeyFault::SecretTooShort);
        }
        let material = KeyMaterial::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret));
        self.0.push(TokenKey { kid: None, material });
        Ok(self)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one key that is meant. A key without a name is meant by every token of its algorithm that names none of the others.
    pub(super) fn find(&self, algorithm: TokenAlgorithm, kid: Option<&str>) -> Result<&TokenKey, TokenFault> {
        let fit = || self.0.iter().filter(|key| key.algorithm() == algorithm);
        if fit().next().is_none() {
            // A set may be replaced by one with keys of another kind; a secret comes from the configuration alone.
            let may_come = kid.is_some() && algorithm != TokenAlgorithm::Hs256;
            return Err(if may_come { TokenFault::UnknownKey } else { TokenFault::Algorithm });
        }
        let named = kid.and_then(|kid| fit().find(|key| key.kid.as_deref() == Some(kid)));
        let mut possible = fit().filter(|key| kid.is_none() || key.kid.is_none());
        match (named, possible.next(), possible.next()) {
            (Some(key), ..) | (None, Some(key), None) => Ok(key),
            _ => Err(TokenFault::UnknownKey),
        }
    }
}

impl TokenKey {
    fn of_set(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| Base64UrlUnpadded::decode_vec(text(name)?).ok();
        if text("use").is_some_and(|use_for| use_for != "sig") {
            return None;
        }
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let (modulus, exponent) = (bytes("n")?, bytes("e")?);
                // As ring has it: a shorter one would verify nothing.
                (256..=1024).contains(&modulus.len()).then_some(KeyMaterial::Rsa(modulus, exponent))?
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                (x.len() == 32 && y.len() == 32).then(|| KeyMaterial::P256([&[4], &x[..], &y].concat()))?
            }
            ("OKP", Some("Ed25519")) => {
                let point = bytes("x")?;
                (point.len() == 32).then_some(KeyMaterial::Ed25519(point))?
            }
            _ => return None,
        };
        let key = Self { kid: text("kid").map(str::to_owned), material };
        // A key that says that it is for another algorithm is for none.
        text("alg").is_none_or(|alg| alg == key.algorithm().name()).then_some(key)
    }

    fn algorithm(&self) -> TokenAlgorithm {
        match self.material {
            KeyMaterial::Rsa(..) => TokenAlgorithm::Rs256,
            KeyMaterial::P256(_) => TokenAlgorithm::Es256,
            KeyMaterial::Ed25519(_) => TokenAlgorithm::EdDsa,
            KeyMaterial::Secret(_) => TokenAlgorithm::Hs256,
        }
    }

    /// Whether this key made that signature.
    pub(super) fn verifies(&self, signed: &[u8], made: &[u8]) -> bool {
        match &self.material {
            KeyMaterial::Rsa(n, e) => {
                RsaPublicKeyComponents { n, e }.verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, made).is_ok()
            }
            KeyMaterial::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, made).is_ok()
            }
            KeyMaterial::Ed25519(point) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, made).is_ok()
            }
            // In constant time, as ring does it.
            KeyMaterial::Secret(key) => hmac::verify(key, signed, made).is_ok(),
        }
    }
}

/// Not the key: it may be a secret.
impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.algorithm().name(), self.kid)
    }
}
