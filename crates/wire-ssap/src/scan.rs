//! Where a message ends.
//!
//! There is no length and no delimiter: a message is over with its closing tag. The tag may stand in a comment or in a
//! CDATA section without meaning, so the scanner knows those two. It remembers how far it came: any split of the stream
//! gives the same messages, and no byte is looked at twice.

use core::ops::Range;

use memchr::{memchr, memmem};

/// The tag that ends a message.
const END: &[u8] = b"</SSAP_message>";
const COMMENT: (&[u8], &[u8]) = (b"<!--", b"-->");
const CDATA: (&[u8], &[u8]) = (b"<![CDATA[", b"]]>");

/// Finds messages in a growing buffer.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    /// Bytes from the start of the buffer that need not be looked at again.
    seen: usize,
    inside: Inside,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Text,
    Comment,
    Cdata,
}

/// What a buffer begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// No whole message yet.
    Incomplete,
    /// A message. The next one begins at its end.
    Message(Range<usize>),
    /// More bytes without an end than a message may have.
    TooLarge,
}

impl Scanner {
    /// Looks at the bytes from the start of a message on; `bytes` is what it was last time, and possibly more. After
    /// [`Scanned::Message`] the scanner begins anew, and `bytes` must begin behind that message.
    pub fn scan(&mut self, bytes: &[u8], bytes_max: usize) -> Scanned {
        let end = self.find_end(bytes);
        if end.unwrap_or(bytes.len()) > bytes_max {
            return Scanned::TooLarge;
        }
        let Some(end) = end else { return Scanned::Incomplete };
        *self = Self::default();
        let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(end);
        Scanned::Message(start..end)
    }

    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        loop {
            let rest = bytes.get(self.seen..).unwrap_or_default();
            match self.inside {
                Inside::Text => {
                    let Some(position) = memchr(b'<', rest) else {
                        self.seen = bytes.len();
                        return None;
                    };
                    self.seen += position;
                    let tag = &rest[position..];
                    if tag.starts_with(END) {
                        return Some(self.seen + END.len());
                    }
                    self.inside = match tag {
                        _ if tag.starts_with(COMMENT.0) => Inside::Comment,
                        _ if tag.starts_with(CDATA.0) => Inside::Cdata,
                        // One of them may be about to come: wait for more.
                        _ if [END, COMMENT.0, CDATA.0].iter().any(|whole| whole.starts_with(tag)) => return None,
                        _ => Inside::Text,
                    };
                    self.seen += match self.inside {
                        Inside::Text => 1,
                        Inside::Comment => COMMENT.0.len(),
                        Inside::Cdata => CDATA.0.len(),
                    };
                }
                Inside::Comment => self.leave(rest, COMMENT.1)?,
                Inside::Cdata => self.leave(rest, CDATA.1)?,
            }
        }
    }

    /// Goes behind the end of a comment or section; none if it is not there yet.
    fn leave(&mut self, rest: &[u8], end: &[u8]) -> Option<()> {
        let Some(position) = memmem::find(rest, end) else {
            // The first bytes of the end may be here already.
            self.seen += rest.len().saturating_sub(end.len() - 1);
            return None;
        };
        self.seen += position + end.len();
        self.inside = Inside::Text;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = " \n<SSAP_message><a><![CDATA[</SSAP_message>]]></a></SSAP_message>\n<SSAP_message><!-- \
                       </SSAP_message> --></SSAP_message> ";

    fn messages(stream: &[u8], pieces: usize) -> Vec<String> {
        let (mut scanner, mut buffer, mut found) = (Scanner::default(), Vec::new(), Vec::new());
        for piece in stream.chunks(pieces) {
            buffer.extend_from_slice(piece);
            while let Scanned::Message(range) = scanner.scan(&buffer, 1000) {
                let end = range.end;
                found.push(String::from_utf8_lossy(&buffer[range]).into_owned());
                buffer.drain(..end);
            }
        }
        found
    }

    #[test]
    fn any_split_of_the_stream_gives_the_same_messages() {
        let whole = messages(TWO.as_bytes(), TWO.len());
        assert_eq!(whole.len(), 2);
        assert!(whole[0].starts_with("<SSAP_message><a>") && whole[0].ends_with("</SSAP_message>"));
        for pieces in 1..TWO.len() {
            assert_eq!(messages(TWO.as_bytes(), pieces), whole, "in pieces of {pieces}");
        }
    }

    #[test]
    fn a_message_without_end_is_cut_at_its_maximum() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.scan(&[b'x'; 100], 100), Scanned::Incomplete);
        assert_eq!(scanner.scan(&[b'x'; 101], 100), Scanned::TooLarge);
        let long = format!("<SSAP_message>{}</SSAP_message>", " ".repeat(100));
        assert_eq!(Scanner::default().scan(long.as_bytes(), 100), Scanned::TooLarge, "even if its end is in sight");
        assert_eq!(Scanner::default().scan(long.as_bytes(), long.len()), Scanned::Message(0..long.len()));
    }
}
