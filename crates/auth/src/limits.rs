//! Every maximum of this crate. A file that asks for more is an error with its line, never a slow or hungry broker.

/// Bytes of a password file or of an ACL file: 100 000 users with room to spare; a log given by mistake is refused early.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Bytes of one line of either file. mosquitto reads 1024 at a time; a filter may be longer here.
pub const LINE_BYTES_MAX: usize = 4096;

/// Errors reported of one file: enough to repair it, few enough to print.
pub const ERRORS_MAX: usize = 100;

/// Users of one password file.
pub const USERS_MAX: usize = 100_000;

/// Bytes of a user name, a role name or a client pattern.
pub const NAME_BYTES_MAX: usize = 256;

/// Roles of one user.
pub const ROLES_MAX: usize = 32;

/// Claims of tokens that rules may speak of.
pub const CLAIMS_MAX: usize = 32;

/// Bytes of the value of one: a level of a topic is compared with it.
pub const CLAIM_BYTES_MAX: usize = 256;

/// Rules of one access list.
pub const RULES_MAX: usize = 100_000;

/// Rules about graphs: those of one user are looked at for each graph of the space.
pub const GRAPH_RULES_MAX: usize = 1_000;

/// Users whose rights to graphs are remembered: as many as may be connected to the space at once, about.
pub const GRAPH_RIGHTS_KNOWN_MAX: usize = 4_096;

/// Clients of which it is remembered what an authority elsewhere said of them.
pub const AUTHORITY_KNOWN_MAX: usize = 10_000;

/// Bytes of a password, looked at before anything is hashed.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Different kinds of hashes (scheme and parameters) in one password file. Each verification pays for all of them, so
/// that its time says nothing about the user; see [`Users::verify`](crate::Users::verify).
pub const HASH_KINDS_MAX: usize = 4;

/// Rounds of PBKDF2 in a mosquitto file: about a second of one core. mosquitto writes 101 or 1000.
pub const PBKDF2_ROUNDS_MAX: u32 = 1_000_000;

/// KiB of memory of one argon2id hash. Ours take 19 MiB; each hashing thread of the broker needs this much.
pub const ARGON2_MEMORY_KIB_MAX: u32 = 256 * 1024;

/// Passes of one argon2id hash.
pub const ARGON2_PASSES_MAX: u32 = 16;

/// Lanes of one argon2id hash.
pub const ARGON2_LANES_MAX: u32 = 16;

/// Bytes of a salt. Ours have 16, those of mosquitto 12 or 64.
pub const SALT_BYTES_MAX: usize = 64;

/// Bytes of a token, whatever is configured: an MQTT password has no more.
pub const TOKEN_BYTES_MAX: usize = 65_535;

/// Bytes of a set of keys. A set has a handful of keys with some hundred bytes each, some with certificates.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;

/// Keys of one set.
pub const TOKEN_KEYS_MAX: usize = 64;

/// Seconds that a token of our own lasts at most: a year, and a day to spare. It can be taken back before.
pub const TOKEN_LIFE_MAX_S: u64 = 366 * 86_400;

/// Users whose tokens were taken back; some 100 bytes each. Who has more devices has somebody to make their tokens.
pub const REVOKED_MAX: usize = 10_000;
