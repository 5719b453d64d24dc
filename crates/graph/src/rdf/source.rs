//! The bytes of a document for a parser that asks for them, until its token is cancelled.

use std::io::{self, Read};

use crate::limits::CancelToken;

/// Gives whatever is asked for: a parser that waits for the end of a long token asks for more each time, and would read
/// the token's beginning as often as it is given a small piece.
pub(super) struct ParserInput<'a> {
    rest: &'a [u8],
    cancel: &'a CancelToken,
}

impl<'a> ParserInput<'a> {
    pub(super) fn new(rest: &'a [u8], cancel: &'a CancelToken) -> Self {
        Self { rest, cancel }
    }
}

impl Read for ParserInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.rest.read(buffer)
    }
}
