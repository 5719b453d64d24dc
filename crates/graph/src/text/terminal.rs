//! The terminals of SPARQL 1.1, exactly as the parser (spargebra 0.4.8, a PEG without a tokenizer) reads them: where one
//! that begins at a byte ends, or that none does. Names of functions are the grammar's.

/// What a piece of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminalKind {
    /// A run of letters: a keyword, several of them without a space, `a`, `true`.
    Word,
    /// `prefix:local`.
    Name,
    /// `_:label`.
    Blank,
    /// `?name`, `$name`.
    Variable,
    /// `<…>`.
    Iri,
    /// In any of four kinds of quotes.
    String,
    /// Without its sign.
    Number,
    /// `@en-gb`.
    Language,
    /// A single sign.
    Sign,
}

/// The piece that begins at a byte which is no white space, with `<` taken for an IRI; `None` if the parser cannot go on
/// from here.
pub(crate) fn piece(text: &str, at: usize) -> Option<(TerminalKind, usize)> {
    let bytes = text.as_bytes();
    match bytes[at] {
        b'"' | b'\'' => Some((TerminalKind::String, string(bytes, at)?)),
        b'?' | b'$' => match variable(text, at) {
            Some(end) => Some((TerminalKind::Variable, end)),
            None if bytes[at] == b'?' => Some((TerminalKind::Sign, at + 1)),
            None => None,
        },
        b'0'..=b'9' => Some((TerminalKind::Number, number(bytes, at))),
        b'.' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => Some((TerminalKind::Number, number(bytes, at))),
        b'<' => Some((TerminalKind::Iri, iri(bytes, at)?)),
        b'@' => Some((TerminalKind::Language, language(bytes, at)?)),
        b'_' => Some((TerminalKind::Blank, blank(text, at)?)),
        b':' => Some((TerminalKind::Name, local(text, at + 1))),
        b'(' | b')' | b'[' | b']' | b'{' | b'}' | b',' | b';' | b'.' | b'+' | b'-' | b'*' | b'/' | b'|' | b'&'
        | b'!' | b'=' | b'>' | b'^' | b'~' => Some((TerminalKind::Sign, at + 1)),
        b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => word(text, at),
        _ => None,
    }
}

/// The first byte that is neither white space nor in a comment. Comments end with either kind of line end.
pub(crate) fn space(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match bytes.get(at) {
            Some(b' ' | b'\t' | b'\n' | b'\r') => at += 1,
            Some(b'#') => at = memchr::memchr2(b'\n', b'\r', &bytes[at..]).map_or(bytes.len(), |end| at + end),
            _ => return at,
        }
    }
}

/// `IRIREF`. The parser takes everything to the next `>` and then judges it; what has one of these signs in it is no IRI,
/// of what remains some is none either, and the parser ends there.
pub(crate) fn iri(bytes: &[u8], at: usize) -> Option<usize> {
    let inside = bytes.get(at + 1..)?;
    let is_end = |byte: &u8| *byte <= b' ' || matches!(byte, b'<' | b'>' | b'"' | b'{' | b'}' | b'|' | b'^' | b'`');
    let end = inside.iter().position(is_end)?;
    (inside[end] == b'>').then_some(at + 1 + end + 1)
}

/// The four kinds of strings. A long one that does not end is an empty short one, and whatever comes then.
pub(crate) fn string(bytes: &[u8], at: usize) -> Option<usize> {
    let quote = bytes[at];
    if bytes[at..].starts_with(&[quote; 3])
        && let Some(end) = long_string(bytes, at + 3, quote)
    {
        return Some(end);
    }
    let mut at = at + 1;
    loop {
        match *bytes.get(at)? {
            b'\\' => at = escape(bytes, at)?,
            b'\n' | b'\r' => return None,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn long_string(bytes: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        at += memchr::memchr2(quote, b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'\\' {
            at = escape(bytes, at)?;
            continue;
        }
        let quotes = bytes[at..].iter().take(3).take_while(|byte| **byte == quote).count();
        at += quotes;
        if quotes == 3 {
            return Some(at);
        }
        // One sign belongs to the quotes before it.
        at = if *bytes.get(at)? == b'\\' { escape(bytes, at)? } else { at + 1 };
    }
}

/// `ECHAR` and `UCHAR`; the number of the latter must be one of a character.
fn escape(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = match bytes.get(at + 1)? {
        b't' | b'b' | b'n' | b'r' | b'f' | b'"' | b'\'' | b'\\' => return Some(at + 2),
        b'u' => 4,
        b'U' => 8,
        _ => return None,
    };
    let digits = bytes.get(at + 2..at + 2 + digits)?;
    let value = |number: u32, byte: &u8| Some(number.checked_mul(16)? + char::from(*byte).to_digit(16)?);
    char::from_u32(digits.iter().try_fold(0, value)?)?;
    Some(at + 2 + digits.len())
}

/// `VAR1`, `VAR2`.
fn variable(text: &str, at: usize) -> Option<usize> {
    let is_first = |c: char| c.is_ascii_digit() || is_name_start(c) || c == '_';
    let name = text.get(at + 1..)?;
    name.starts_with(is_first).then(|| at + 1 + run(name, |c| is_first(c) || is_name_more(c)))
}

/// `DOUBLE`, `DECIMAL`, `INTEGER`, in this order.
fn number(bytes: &[u8], at: usize) -> usize {
    let digits = |at: usize| at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let exponent = |at: usize| {
        let is_there = matches!(bytes.get(at), Some(b'e' | b'E'));
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let end = if is_there && at + 1 + sign <= bytes.len() { digits(at + 1 + sign) } else { at };
        (is_there && end > at + 1 + sign).then_some(end)
    };
    let whole = digits(at);
    if bytes.get(whole) == Some(&b'.') {
        let end = digits(whole + 1);
        if let Some(end) = exponent(end) {
            return end;
        }
        if end > whole + 1 {
            return end;
        }
    }
    exponent(whole).unwrap_or(whole).max(at + 1)
}

/// `LANGDIR`.
fn language(bytes: &[u8], at: usize) -> Option<usize> {
    let letters = |at: usize| at + bytes[at..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let mut end = letters(at + 1);
    if end == at + 1 {
        return None;
    }
    while bytes.get(end) == Some(&b'-') && bytes.get(end + 1).is_some_and(u8::is_ascii_alphanumeric) {
        end += 1 + bytes[end + 1..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    }
    let direction = if bytes[end..].starts_with(b"--") { letters(end + 2) } else { end };
    Some(if direction > end + 2 { direction } else { end })
}

/// `BLANK_NODE_LABEL`.
fn blank(text: &str, at: usize) -> Option<usize> {
    let label = text.get(at..)?.strip_prefix("_:")?;
    let first = label.chars().next().filter(|c| c.is_ascii_digit() || is_name_start(*c) || *c == '_')?;
    Some(dotted(text, at + 2 + first.len_utf8(), is_name))
}

/// A keyword, or a name with a prefix: the parser tries the latter first.
fn word(text: &str, at: usize) -> Option<(TerminalKind, usize)> {
    text.get(at..)?.chars().next().filter(|c| is_name_start(*c))?;
    let prefix = prefix(text, at);
    if text.as_bytes().get(prefix) == Some(&b':') {
        return Some((TerminalKind::Name, local(text, prefix + 1)));
    }
    // No keyword has any other sign.
    let length = text.as_bytes()[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    (length > 0).then_some((TerminalKind::Word, at + length))
}

/// `PN_PREFIX`, which begins here.
pub(crate) fn prefix(text: &str, at: usize) -> usize {
    let first = text[at..].chars().next().map_or(0, char::len_utf8);
    dotted(text, at + first, is_name)
}

/// `PN_LOCAL`, if there is one.
fn local(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let first = match bytes.get(at) {
        Some(b':' | b'0'..=b'9' | b'_') => at + 1,
        Some(b'%' | b'\\') => match local_escape(bytes, at) {
            Some(end) => end,
            None => return at,
        },
        _ => match text.get(at..).and_then(|rest| rest.chars().next()).filter(|c| is_name_start(*c)) {
            Some(c) => at + c.len_utf8(),
            None => return at,
        },
    };
    let end = local_run(text, first);
    let dots = end + bytes[end..].iter().take_while(|byte| **byte == b'.').count();
    let more = local_run(text, dots);
    if dots > end && more > dots { more } else { end }
}

fn local_run(text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    loop {
        match bytes.get(at) {
            Some(b'%' | b'\\') => match local_escape(bytes, at) {
                Some(end) => at = end,
                None => return at,
            },
            Some(b':') => at += 1,
            Some(_) => {
                let length = run(&text[at..], is_name);
                if length == 0 {
                    return at;
                }
                at += length;
            }
            None => return at,
        }
    }
}

/// `PLX`.
fn local_escape(bytes: &[u8], at: usize) -> Option<usize> {
    match (bytes[at], bytes.get(at + 1)?) {
        (b'%', first) if first.is_ascii_hexdigit() && bytes.get(at + 2)?.is_ascii_hexdigit() => Some(at + 3),
        (b'\\', byte) if b"_~.-!$&'()*+,;=/?#@%".contains(byte) => Some(at + 2),
        _ => None,
    }
}

/// `PN_CHARS* ("."+ PN_CHARS+)*`
fn dotted(text: &str, at: usize, inside: impl Fn(char) -> bool + Copy) -> usize {
    let bytes = text.as_bytes();
    let mut end = at + run(&text[at..], inside);
    loop {
        let dots = end + bytes[end..].iter().take_while(|byte| **byte == b'.').count();
        let length = run(&text[dots..], inside);
        if dots == end || length == 0 {
            return end;
        }
        end = dots + length;
    }
}

fn run(text: &str, inside: impl Fn(char) -> bool) -> usize {
    text.find(|c| !inside(c)).unwrap_or(text.len())
}

/// `PN_CHARS_BASE`.
fn is_name_start(c: char) -> bool {
    match c {
        'A'..='Z' | 'a'..='z' => true,
        '\0'..='\u{7F}' => false,
        _ => matches!(c,
            '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}'
            | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}'
            | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'),
    }
}

/// What a variable's name may have beside.
fn is_name_more(c: char) -> bool {
    matches!(c, '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

/// `PN_CHARS`.
fn is_name(c: char) -> bool {
    matches!(c, '-' | '0'..='9' | '_') || is_name_start(c) || is_name_more(c)
}
