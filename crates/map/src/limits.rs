//! Every maximum of a mapping.

/// Rules of each kind.
pub const RULES_MAX: usize = 256;
/// Triples of one rule.
pub const TRIPLES_MAX: usize = 64;
/// Bytes of a payload that is looked into.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Bytes of a term that is built from a message.
pub const TERM_BYTES_MAX: usize = 64 << 10;
/// Steps of a path into a document.
pub const STEPS_MAX: usize = 32;
/// Longest chain that a rule may allow: messages that maps have published because of messages that maps have published.
pub const CHAIN_MAX: u8 = 8;
/// Changes of such chains whose length is remembered.
pub const CHANGES_MAX: usize = 4096;
/// Most messages that `keep` may ask for.
pub const KEEP_MAX: usize = 100_000;
/// Triples of all `append` rules that are remembered; beyond, the rules and captures that sort first give, each its oldest
/// message first.
pub const KEPT_TRIPLES_MAX: usize = 200_000;
/// Triples that should be gone and are not, because the space refused the change; beyond, the oldest stay where they are.
pub const OWED_MAX: usize = 20_000;
/// How many of them one more change removes, so that it does not fail for their number.
pub const OWED_PER_EDIT: usize = 256;
/// Bytes of a topic that is built.
pub const TOPIC_BYTES_MAX: usize = 1024;
