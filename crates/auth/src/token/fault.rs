//! Why a token is not valid, and what is wrong with a set of keys.

use std::fmt;

/// Why a token is not valid. The client is told none of it but "no"; the operator has a counter for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// More bytes than are looked at.
    TooLong,
    /// Not three parts of base64url, or no JSON object in one of them.
    NotAToken,
    /// Its header has what must not, or cannot, be understood.
    Header,
    /// Its algorithm is none that is accepted here.
    Algorithm,
    /// No key is known by its `kid`, or several could be meant. The keys may be about to be replaced.
    UnknownKey,
    /// It was not signed with that key.
    Signature,
    /// A name stands twice in an object of it.
    Twice,
    /// A claim has a type or a size that it must not have, or `exp` is missing.
    Claim,
    /// Its time is over.
    Expired,
    /// Its time has not come (`nbf`), or it was made in the future (`iat`).
    NotYet,
    /// From another issuer.
    Issuer,
    /// For another audience.
    Audience,
    /// It names nobody, or somebody else than the client does.
    User,
    /// There are no keys at the moment: nobody can say.
    NoKeys,
    /// It was taken back.
    Revoked,
}

impl TokenFault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::TooLong,
        Self::NotAToken,
        Self::Header,
        Self::Algorithm,
        Self::UnknownKey,
        Self::Signature,
        Self::Twice,
        Self::Claim,
        Self::Expired,
        Self::NotYet,
        Self::Issuer,
        Self::Audience,
        Self::User,
        Self::NoKeys,
        Self::Revoked,
    ];

    /// In metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::NotAToken => "not_a_token",
            Self::Header => "header",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Twice => "claim_twice",
            Self::Claim => "claim",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::User => "user",
            Self::NoKeys => "no_keys",
            Self::Revoked => "revoked",
        }
    }
}

/// What is wrong with a set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// More bytes than are read.
    TooLong,
    /// Not JSON, for this reason.
    NotJson(String),
    /// No list of keys in it.
    NoList,
    /// More keys than are kept.
    TooMany,
    /// Not one key that can be used: none is RSA of 2048 bits or more, P-256 or Ed25519.
    NoneUsable,
    /// A secret of fewer bytes than its hash has.
    SecretTooShort,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("is too long for a set of keys"),
            Self::NotJson(why) => write!(f, "is not JSON: {why}"),
            Self::NoList => f.write_str("has no list \"keys\": a JSON Web Key Set is expected"),
            Self::TooMany => f.write_str("has too many keys"),
            Self::NoneUsable => {
                f.write_str("has no key for signatures by RS256 (2048 bits and more), ES256 (P-256) or EdDSA (Ed25519)")
            }
            Self::SecretTooShort => f.write_str("is too short for a secret: HS256 needs 32 bytes at least"),
        }
    }
}
