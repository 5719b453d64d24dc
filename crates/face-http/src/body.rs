//! Bodies that come in chunks (RFC 9112, section 7.1). What was read of one is not read again when more of it comes, or a
//! peer could make a megabyte be read for every byte that it sends.

use tidegate_core::Charge;

use crate::head::{Fault, fault};
use crate::limits::{CHUNK_LINE_BYTES_MAX, CHUNKING_BYTES_MAX, TRAILER_BYTES_MAX};

/// A body that is being put together.
#[derive(Debug)]
pub(crate) struct Chunked {
    /// Bytes after the head that are done with.
    at: usize,
    body: Vec<u8>,
    /// The last chunk was there; trailers follow, from here on.
    trailers_at: Option<usize>,
    charge: Charge,
}

/// How far a body has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChunkStep {
    /// So many bytes after the head have to be there before it goes on.
    Need(usize),
    /// It is whole, and was so many bytes.
    Whole(usize),
}

impl Chunked {
    pub(crate) fn new(charge: Charge) -> Self {
        Self { at: 0, body: Vec::new(), trailers_at: None, charge }
    }

    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// More may have come: these are all bytes after the head.
    pub(crate) fn advance(&mut self, bytes: &[u8], body_max: usize) -> Result<ChunkStep, Fault> {
        loop {
            if let Some(from) = self.trailers_at {
                return self.skip_trailers(bytes, from);
            }
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((line, after)) = line_in(rest, CHUNK_LINE_BYTES_MAX)? else {
                return Ok(ChunkStep::Need(bytes.len() + 1));
            };
            let size = chunk_size(line)?;
            if size == 0 {
                self.at += after;
                self.trailers_at = Some(self.at);
                continue;
            }
            if size > body_max - self.body.len().min(body_max) {
                return Err(fault(413, "the body is larger than what is taken here"));
            }
            let end = after + size;
            let Some(tail) = rest.get(end..end + 2) else { return Ok(ChunkStep::Need(self.at + end + 2)) };
            if tail != b"\r\n" {
                return Err(fault(400, "a chunk does not end where it says"));
            }
            self.body.extend_from_slice(&rest[after..end]);
            self.charge.change(size, 0);
            self.at += end + 2;
            if self.at - self.body.len() > CHUNKING_BYTES_MAX {
                return Err(fault(413, "there is more between the chunks than in them"));
            }
        }
    }

    /// Nobody here wants what they say.
    fn skip_trailers(&mut self, bytes: &[u8], from: usize) -> Result<ChunkStep, Fault> {
        loop {
            let left = (from + TRAILER_BYTES_MAX).saturating_sub(self.at);
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((line, after)) = line_in(rest, left)? else { return Ok(ChunkStep::Need(bytes.len() + 1)) };
            self.at += after;
            if line.is_empty() {
                return Ok(ChunkStep::Whole(self.at));
            }
        }
    }
}

/// A line, and where the next one begins; none if its end is still to come.
fn line_in(bytes: &[u8], bytes_max: usize) -> Result<Option<(&[u8], usize)>, Fault> {
    let seen = &bytes[..bytes.len().min(bytes_max)];
    match seen.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((&seen[..end], end + 2))),
        None if bytes.len() >= bytes_max => Err(fault(400, "a line between chunks has no end")),
        None => Ok(None),
    }
}

/// Hexadecimal, and extensions that nobody here knows.
fn chunk_size(line: &[u8]) -> Result<usize, Fault> {
    // Another reader might see the end of the line where we see an extension.
    if line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(fault(400, "a line between chunks has no end"));
    }
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = if is_number { core::str::from_utf8(digits).ok() } else { None };
    text.and_then(|text| usize::from_str_radix(text, 16).ok()).ok_or(fault(400, "the size of a chunk is no number"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tidegate_core::Shard;
    use tidegate_core::access::Open;
    use tidegate_core::settings::Settings;

    use super::*;

    fn chunked() -> Chunked {
        let shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
        Chunked::new(shard.memory().charge())
    }

    #[test]
    fn chunks_are_put_together_however_they_come() {
        let text = b"3\r\nabc\r\n0A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET";
        let whole = text.len() - 3;
        for step in [1, 2, 7, text.len()] {
            let (mut body, mut end) = (chunked(), 0);
            let size = loop {
                end = (end + step).min(text.len());
                match body.advance(&text[..end], 100).unwrap() {
                    ChunkStep::Need(needed) => assert!(needed > end || end < text.len()),
                    ChunkStep::Whole(size) => break size,
                }
            };
            assert_eq!((size, body.into_body().as_slice()), (whole, &b"abc0123456789"[..]));
        }
    }

    #[test]
    fn chunks_that_lie_or_have_no_end_are_refused() {
        let status = |text: &[u8]| chunked().advance(text, 100).unwrap_err().status;
        assert_eq!(status(b"3\r\nabcd\r\n"), 400);
        assert_eq!(status(b"-3\r\nabc\r\n"), 400);
        assert_eq!(status(b"\r\nabc"), 400);
        assert_eq!(status(b"ffffffffffffffffffff\r\n"), 400);
        assert_eq!(status(b"65\r\n"), 413);
        assert_eq!(status(b"ffffffffffffffff\r\n"), 413);
        assert_eq!(status(&[b'1'; CHUNK_LINE_BYTES_MAX]), 400);
        let endless = [&b"0\r\n"[..], &b"a: b\r\n".repeat(TRAILER_BYTES_MAX)].concat();
        assert_eq!(status(&endless), 400);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_come_to_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let cut = cut.min(bytes.len());
            let (mut apart, mut at_once) = (chunked(), chunked());
            let first = apart.advance(&bytes[..cut], 64);
            let second = at_once.advance(&bytes, 64);
            match first {
                Err(fault) => prop_assert_eq!(second, Err(fault)),
                Ok(ChunkStep::Whole(size)) => prop_assert_eq!(second, Ok(ChunkStep::Whole(size))),
                Ok(ChunkStep::Need(_)) => {
                    prop_assert_eq!(apart.advance(&bytes, 64), second);
                    prop_assert_eq!(apart.into_body(), at_once.into_body());
                }
            }
        }
    }
}
