//! A document that is longer than a request takes, in pieces: where a line is a statement.
//!
//! ```text
//! lines without blank nodes ──> pieces, as many as are needed
//! lines with blank nodes    ──> one piece: a name of theirs means the same only within a document
//! ```
//! Knows only where a line ends and what a blank node looks like; whether the lines make sense is for the broker to say.

/// Bytes of a piece: some tens of thousands of statements, which the broker makes in a moment, and well below what a request takes.
const PIECE_BYTES: usize = 4 << 20;
/// Bytes of a body that the broker takes.
pub(super) const BODY_BYTES_MAX: usize = tidegate_space::limits::BODY_BYTES_MAX;

/// Why a document cannot be sent in pieces.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsplit {
    /// A statement does not end with its line.
    Format,
    /// A line is longer than a request.
    Line,
    /// The statements with blank nodes are together longer than a request.
    Blank,
}

/// The document as bodies of requests: one, if it is short.
pub(super) fn pieces(kind: &str, document: Vec<u8>) -> Result<Vec<Vec<u8>>, Unsplit> {
    if document.len() <= BODY_BYTES_MAX {
        return Ok(vec![document]);
    }
    if !matches!(kind, "application/n-triples" | "application/n-quads") {
        return Err(Unsplit::Format);
    }
    let (mut pieces, mut piece, mut blank) = (Vec::new(), Vec::new(), Vec::new());
    for line in document.split_inclusive(|byte| *byte == b'\n' || *byte == b'\r') {
        if line.len() > BODY_BYTES_MAX {
            return Err(Unsplit::Line);
        }
        if has_blank_node(line) {
            blank.extend_from_slice(line);
            continue;
        }
        if !piece.is_empty() && piece.len() + line.len() > PIECE_BYTES {
            pieces.push(std::mem::take(&mut piece));
        }
        piece.extend_from_slice(line);
    }
    if blank.len() > BODY_BYTES_MAX {
        return Err(Unsplit::Blank);
    }
    pieces.extend([piece, blank].into_iter().filter(|piece| !piece.trim_ascii().is_empty()));
    Ok(pieces)
}

/// Whether a statement names a blank node: `_:` outside of IRIs, texts and comments.
fn has_blank_node(line: &[u8]) -> bool {
    let (mut inside, mut is_escaped, mut before) = (None, false, 0);
    for byte in line {
        match (inside, byte) {
            (Some(_), _) if is_escaped => is_escaped = false,
            (Some(b'"'), b'\\') => is_escaped = true,
            (Some(end), byte) if end == *byte => inside = None,
            (None, b'"') => inside = Some(b'"'),
            (None, b'<') => inside = Some(b'>'),
            (None, b'#') => return false,
            (None, b':') if before == b'_' => return true,
            (Some(_) | None, _) => {}
        }
        before = *byte;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_node_is_one_only_where_a_term_stands() {
        for line in
            ["_:a <urn:p> 1 .", "<urn:a> <urn:p> _:b .", "<urn:a> <urn:p> \"x\" _:g .", "<a> <b> \"\\\\\" _:g ."]
        {
            assert!(has_blank_node(line.as_bytes()), "{line}");
        }
        for line in ["<urn:_:a> <urn:p> \"_:b \\\" _:c\" .", "# _:a", "<a> <b> <c> . # _:a", "", "\""] {
            assert!(!has_blank_node(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn nothing_is_lost_and_blank_nodes_stay_together() {
        let mut document = Vec::new();
        let mut number = 0;
        while document.len() <= BODY_BYTES_MAX {
            let line = match number % 1000 {
                0 => format!("<urn:a> <urn:p> _:b{} .\n", number % 7000),
                _ => format!("<urn:{number}> <urn:p> \"{}\" .\r\n", "x".repeat(90)),
            };
            document.extend_from_slice(line.as_bytes());
            number += 1;
        }
        let pieces = pieces("application/n-triples", document.clone()).unwrap();
        assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.len() <= BODY_BYTES_MAX));
        let is_blank = |piece: &&Vec<u8>| piece.windows(2).any(|two| two == b"_:");
        assert_eq!(pieces.iter().filter(is_blank).count(), 1);
        let sorted = |bytes: &[u8]| {
            let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            lines.retain(|line| !line.trim_ascii().is_empty());
            lines.sort_unstable();
            lines
        };
        assert!(sorted(&pieces.concat()) == sorted(&document));
    }

    #[test]
    fn what_is_short_stays_as_it_is_and_what_cannot_be_parted_is_named() {
        assert_eq!(pieces("text/turtle", b"x".to_vec()), Ok(vec![b"x".to_vec()]));
        let long = |line: &str| line.repeat(BODY_BYTES_MAX / line.len() + 1).into_bytes();
        assert_eq!(pieces("text/turtle", long("<a> <b> <c> .\n")), Err(Unsplit::Format));
        assert_eq!(pieces("application/n-quads", long("x")), Err(Unsplit::Line));
        assert_eq!(pieces("application/n-quads", long("_:a <b> <c> .\n")), Err(Unsplit::Blank));
    }
}
