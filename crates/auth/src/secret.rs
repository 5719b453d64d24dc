//! Password hashes, three schemes in one shape: a cost, a salt, a digest.
//!
//! ```text
//! $argon2id$v=19$m=19456,t=2,p=1$salt$digest    ours (PHC string; base64 without padding)
//! $7$rounds$salt$digest                         mosquitto ≥ 2.0: PBKDF2-HMAC-SHA512, 64 bytes (padded base64)
//! $6$salt$digest                                mosquitto < 2.0: SHA-512(password ‖ salt)
//! ```
//!
//! Digests are compared in constant time. What a line asks for is bounded before anything is computed.

use std::cell::RefCell;
use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64ct::{Base64, Base64Unpadded, Encoding};
use sha2::{Digest, Sha512};
use subtle::ConstantTimeEq;

use crate::fault::FileFault;
use crate::limits::{ARGON2_LANES_MAX, ARGON2_MEMORY_KIB_MAX, ARGON2_PASSES_MAX, PBKDF2_ROUNDS_MAX, SALT_BYTES_MAX};

/// What one verification costs: scheme and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashCost {
    Argon2id { memory_kib: u32, passes: u32, lanes: u32, digest_bytes: usize },
    Pbkdf2 { rounds: u32 },
    Sha512,
}

impl HashCost {
    /// OWASP's first choice for argon2id (Password Storage Cheat Sheet): m = 19 MiB, t = 2, p = 1.
    pub(crate) const OURS: Self =
        Self::Argon2id { memory_kib: 19 * 1024, passes: 2, lanes: 1, digest_bytes: ARGON2_DIGEST_BYTES };

    fn digest_bytes(self) -> usize {
        match self {
            Self::Argon2id { digest_bytes, .. } => digest_bytes,
            Self::Pbkdf2 { .. } | Self::Sha512 => SHA512_BYTES,
        }
    }

    /// Pay without anything to compare with: for users that do not exist.
    pub(crate) fn pay(self, password: &[u8]) {
        let digest = self.digest(password, &[0; SALT_BYTES]);
        // The work must not look useless to the compiler.
        std::hint::black_box(digest.ok());
    }

    fn digest(self, password: &[u8], salt: &[u8]) -> Result<Vec<u8>, FileFault> {
        let mut out = vec![0; self.digest_bytes()];
        match self {
            Self::Argon2id { memory_kib, passes, lanes, digest_bytes } => {
                let params =
                    Params::new(memory_kib, passes, lanes, Some(digest_bytes)).map_err(|_| FileFault::HashCost)?;
                argon2id(params, password, salt, &mut out)?;
            }
            Self::Pbkdf2 { rounds } => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, rounds, &mut out),
            Self::Sha512 => {
                let digest = Sha512::new().chain_update(password).chain_update(salt).finalize();
                out.copy_from_slice(digest.as_slice());
            }
        }
        Ok(out)
    }
}

thread_local! {
    /// The memory of this thread's hashes. Given back and asked for again with each hash, such a large piece makes the
    /// allocator grow one heap after the other; so a thread keeps its own, and there are as many as there are threads.
    static WORKSPACE: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

fn argon2id(params: Params, password: &[u8], salt: &[u8], out: &mut [u8]) -> Result<(), FileFault> {
    let blocks = params.block_count();
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    WORKSPACE.with_borrow_mut(|workspace| {
        if workspace.len() < blocks {
            workspace.resize(blocks, Block::new());
        }
        let memory = workspace.get_mut(..blocks).ok_or(FileFault::HashCost)?;
        argon2.hash_password_into_with_memory(password, salt, out, memory).map_err(|_| FileFault::HashCost)
    })
}

/// A stored password hash.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    cost: HashCost,
    salt: Box<[u8]>,
    digest: Box<[u8]>,
}

impl Secret {
    /// Hash a new password, at our cost.
    pub(crate) fn new(password: &[u8], salt: &[u8]) -> Result<Self, FileFault> {
        let digest = HashCost::OURS.digest(password, salt)?;
        Ok(Self { cost: HashCost::OURS, salt: salt.into(), digest: digest.into() })
    }

    pub(crate) fn cost(&self) -> HashCost {
        self.cost
    }

    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        let Ok(digest) = self.cost.digest(password, &self.salt) else { return false };
        digest.ct_eq(&self.digest).into()
    }

    /// Read any of the three layouts. Strict: a digest that is not exactly as long as it should be is malformed.
    pub(crate) fn parse(text: &str) -> Result<Self, FileFault> {
        let mut fields = text.split('$');
        let secret = match (fields.next(), fields.next()) {
            (Some(""), Some("argon2id")) => parse_argon2id(&mut fields),
            (Some(""), Some("7")) => parse_pbkdf2(&mut fields),
            (Some(""), Some("6")) => parse_mosquitto(HashCost::Sha512, &mut fields),
            _ => Err(FileFault::HashUnknown),
        }?;
        if fields.next().is_some() { Err(FileFault::HashMalformed) } else { Ok(secret) }
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cost {
            HashCost::Argon2id { memory_kib, passes, lanes, .. } => {
                let (salt, digest) =
                    (Base64Unpadded::encode_string(&self.salt), Base64Unpadded::encode_string(&self.digest));
                write!(f, "$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${salt}${digest}")
            }
            HashCost::Pbkdf2 { rounds } => {
                write!(f, "$7${rounds}${}${}", Base64::encode_string(&self.salt), Base64::encode_string(&self.digest))
            }
            HashCost::Sha512 => {
                write!(f, "$6${}${}", Base64::encode_string(&self.salt), Base64::encode_string(&self.digest))
            }
        }
    }
}

/// Only the cost: hashes do not belong into logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("cost", &self.cost).finish_non_exhaustive()
    }
}

type Fields<'a> = std::str::Split<'a, char>;

fn parse_argon2id(fields: &mut Fields<'_>) -> Result<Secret, FileFault> {
    if fields.next() != Some("v=19") {
        return Err(FileFault::HashMalformed);
    }
    let mut numbers = fields.next().ok_or(FileFault::HashMalformed)?.split(',');
    let mut number = |name: &str| {
        let digits = numbers.next().and_then(|field| field.strip_prefix(name)).ok_or(FileFault::HashMalformed)?;
        parse_number(digits)
    };
    let (memory_kib, passes, lanes) = (number("m=")?, number("t=")?, number("p=")?);
    if numbers.next().is_some() {
        return Err(FileFault::HashMalformed);
    }
    let within = |value: u32, max: u32| (1..=max).contains(&value);
    // RFC 9106, 3.1: at least 8 KiB per lane.
    let cheap = memory_kib < 8 * lanes.min(ARGON2_LANES_MAX);
    if cheap
        || !within(memory_kib, ARGON2_MEMORY_KIB_MAX)
        || !within(passes, ARGON2_PASSES_MAX)
        || !within(lanes, ARGON2_LANES_MAX)
    {
        return Err(FileFault::HashCost);
    }
    let salt = decode::<Base64Unpadded>(fields.next())?;
    let digest = decode::<Base64Unpadded>(fields.next())?;
    // RFC 9106 wants salts of at least 8 bytes. Any digest length would do for the algorithm, and then a digest cut off
    // in the file would pass as a short one: only the two lengths that tools write are taken.
    if salt.len() < 8 || !matches!(digest.len(), ARGON2_DIGEST_BYTES | SHA512_BYTES) {
        return Err(FileFault::HashMalformed);
    }
    let cost = HashCost::Argon2id { memory_kib, passes, lanes, digest_bytes: digest.len() };
    Ok(Secret { cost, salt, digest })
}

fn parse_pbkdf2(fields: &mut Fields<'_>) -> Result<Secret, FileFault> {
    let rounds = parse_number(fields.next().ok_or(FileFault::HashMalformed)?)?;
    if !(1..=PBKDF2_ROUNDS_MAX).contains(&rounds) {
        return Err(FileFault::HashCost);
    }
    parse_mosquitto(HashCost::Pbkdf2 { rounds }, fields)
}

fn parse_mosquitto(cost: HashCost, fields: &mut Fields<'_>) -> Result<Secret, FileFault> {
    let salt = decode::<Base64>(fields.next())?;
    let digest = decode::<Base64>(fields.next())?;
    if salt.is_empty() || digest.len() != SHA512_BYTES {
        return Err(FileFault::HashMalformed);
    }
    Ok(Secret { cost, salt, digest })
}

/// Digits only: `u32::from_str` would also take a plus sign.
fn parse_number(digits: &str) -> Result<u32, FileFault> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FileFault::HashMalformed);
    }
    digits.parse().map_err(|_| FileFault::HashCost)
}

fn decode<E: Encoding>(field: Option<&str>) -> Result<Box<[u8]>, FileFault> {
    let bytes = E::decode_vec(field.ok_or(FileFault::HashMalformed)?).map_err(|_| FileFault::HashMalformed)?;
    if bytes.len() > SALT_BYTES_MAX.max(SHA512_BYTES) {
        return Err(FileFault::HashMalformed);
    }
    Ok(bytes.into())
}

/// Bytes of our salts.
pub(crate) const SALT_BYTES: usize = 16;
const ARGON2_DIGEST_BYTES: usize = 32;
const SHA512_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_one_thread_share_their_memory_and_are_what_they_were() {
        let cost =
            |memory_kib| HashCost::Argon2id { memory_kib, passes: 1, lanes: 1, digest_bytes: ARGON2_DIGEST_BYTES };
        let place = || WORKSPACE.with_borrow(|workspace| (workspace.as_ptr(), workspace.len()));
        let first = cost(64).digest(b"right", &[7; SALT_BYTES]).unwrap();
        let before = place();
        assert_eq!(before.1, 64);
        // A smaller one in between, and another password: what they leave behind must not count.
        cost(16).digest(b"wrong", &[8; SALT_BYTES]).unwrap();
        assert_eq!(cost(64).digest(b"right", &[7; SALT_BYTES]).unwrap(), first);
        assert_eq!(place(), before, "no other memory was asked for");
        let params = Params::new(64, 1, 1, Some(ARGON2_DIGEST_BYTES)).unwrap();
        let mut fresh = [0; ARGON2_DIGEST_BYTES];
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon2.hash_password_into(b"right", &[7; SALT_BYTES], &mut fresh).unwrap();
        assert_eq!(first, fresh);
    }
}
