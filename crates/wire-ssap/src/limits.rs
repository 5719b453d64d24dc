//! Every maximum of the codec.

/// Bytes of one message that are accepted if nothing else is configured.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a header element: identifiers and names.
pub const HEADER_BYTES_MAX: usize = 1024;

/// Parameters of a message. The protocol knows 13 names.
pub const PARAMETERS_MAX: usize = 32;

/// Triples in one list.
pub const TRIPLES_MAX: usize = 100_000;

/// Elements inside each other.
pub const DEPTH_MAX: usize = 64;

/// Variables of a SPARQL result.
pub const VARIABLES_MAX: usize = 1024;

/// Rows of a SPARQL result that a client reads.
pub const ROWS_MAX: usize = 1_000_000;

/// Bytes that a fault says about what is wrong, before it is cut: a sentence and a name or two. What is wrong may be a name as
/// long as its message, and its sender knows it.
pub const DETAIL_BYTES_MAX: usize = 512;
