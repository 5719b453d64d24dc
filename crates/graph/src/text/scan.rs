//! One reading of a text: the brackets that are open, and everything that is counted.
//!
//! Brackets are always paired in the grammar, so one that does not fit ends the reading: the parser cannot pass it. The
//! only sign whose meaning hangs on the grammar is `<`. It compares only where the innermost bracket is round (an
//! expression is always in one) and something that can be compared stands before it; there a list could stand as well,
//! with an IRI. Where the two readings would count differently, both are made.

use std::collections::BTreeSet;

use super::terminal::{self, TerminalKind, iri, piece};
use crate::error::Limit;
use crate::limits::QueryLimits;

/// Words that nest the algebra once each.
const NESTING: [&str; 14] = [
    "UNION", "OPTIONAL", "MINUS", "LATERAL", "FILTER", "BIND", "GRAPH", "SERVICE", "EXISTS", "VALUES", "IN", "AS",
    "SELECT", "HAVING",
];
/// Groups within groups. The optimizer looks at the innermost once for each around it, and more: 62 nested `OPTIONAL`s
/// took it seconds.
const GROUPS_MAX: u8 = 32;
/// Bytes of a word, or of a prefix: the parser looks for the colon of a prefix wherever a word begins.
const WORD_BYTES_MAX: usize = 1024;
/// Triples within triples, which the parser takes in and then refuses, and where it looks for IRIs to the end of the
/// text at each. `?a<<urn:b>` is a comparison and counts, too.
const QUOTED_MAX: usize = 16;
/// Triples, rows of lists, conditions: what the algebra may nest once for each, although the text does not. The drop of
/// an algebra that deep needs a megabyte of stack. To parse so many takes 15 ms at most (benchmark `bounds`).
const PATTERNS_MAX: usize = 4096;
/// Times that the parser reads a piece: it reads the arguments of some functions, and what is negated, twice, and so
/// with each level twice as often. The dearest texts take 40 ms, and 80 ms if they are wrong at their end, because the
/// parser then reads them once more to find words for it (benchmark `bounds`).
const READS_MAX: u64 = 1 << 17;
/// Bytes of all names, if each had the longest prefix or base.
const EXPANSION_MAX: usize = 32 << 20;

/// A bracket that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    /// `{` of a group, a template, an annotation.
    Brace,
    /// `{` of `VALUES`.
    Rows,
    /// `(` of a row of `VALUES`.
    Row,
    /// `(` of an expression, a list, a path, arguments.
    Round,
    Square,
}

#[derive(Clone, Copy, Debug)]
struct BracketLevel {
    bracket: Bracket,
    /// How often the parser reads what is inside, as a power of two.
    doublings: u8,
    /// Braces, with this one.
    groups: u8,
}

/// The piece before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrecedingPiece {
    /// Nothing that can be compared.
    Other,
    Operand,
    Word(usize, usize),
    Name(usize, usize),
}

/// How far `VALUES` has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    No,
    Begun,
    InVariables,
    /// The next brace has its rows.
    Ready,
}

/// What a step found.
pub(super) enum ScanStep<'a> {
    On,
    /// The text ends, or the parser cannot go on.
    End,
    /// There is another reading.
    Fork(Box<TextScan<'a>>),
}

#[derive(Clone)]
pub(super) struct TextScan<'a> {
    text: &'a str,
    pub(super) at: usize,
    levels: Vec<BracketLevel>,
    before: PrecedingPiece,
    values: Values,
    is_data: bool,
    is_describe: bool,
    is_negated: bool,
    chain: usize,
    quoted: usize,
    patterns: usize,
    reads: u64,
    names: usize,
    longest: usize,
    word_bytes: usize,
    variables: BTreeSet<&'a str>,
}

impl<'a> TextScan<'a> {
    pub(super) fn new(text: &'a str, base_bytes: usize) -> Self {
        Self {
            text,
            at: 0,
            levels: Vec::new(),
            before: PrecedingPiece::Other,
            values: Values::No,
            is_data: false,
            is_describe: false,
            is_negated: false,
            chain: 0,
            quoted: 0,
            patterns: 0,
            reads: 0,
            names: 0,
            longest: base_bytes,
            word_bytes: 0,
            variables: BTreeSet::new(),
        }
    }

    /// Reads one piece, and says which limit it reaches.
    pub(super) fn step(&mut self, limits: &QueryLimits) -> Result<ScanStep<'a>, Limit> {
        self.at = terminal::space(self.text.as_bytes(), self.at);
        if self.at == self.text.len() {
            return Ok(ScanStep::End);
        }
        let step = if self.text.as_bytes()[self.at] == b'<' {
            self.less()
        } else {
            let Some((kind, end)) = piece(self.text, self.at) else { return Ok(ScanStep::End) };
            let goes_on = self.take(kind, end);
            self.at = end;
            if !goes_on {
                return Ok(ScanStep::End);
            }
            ScanStep::On
        };
        self.verdict(limits)?;
        Ok(step)
    }

    /// Bytes of all names, if each had the longest prefix or base.
    pub(super) fn expansion(&self) -> usize {
        self.names.saturating_mul(self.longest)
    }

    fn verdict(&self, limits: &QueryLimits) -> Result<(), Limit> {
        for (is_reached, limit) in [
            (self.levels.len() > limits.depth_max || self.groups() > GROUPS_MAX, Limit::Depth),
            (self.word_bytes > WORD_BYTES_MAX, Limit::WordBytes),
            (self.chain > limits.chain_max, Limit::Chain),
            (self.variables.len() > limits.variables_max, Limit::Variables),
            (self.quoted > QUOTED_MAX, Limit::Quoted),
            (self.patterns > PATTERNS_MAX, Limit::Patterns),
            (self.reads > READS_MAX, Limit::Reads),
            (self.expansion() > EXPANSION_MAX, Limit::Expansion),
        ] {
            if is_reached {
                return Err(limit);
            }
        }
        Ok(())
    }

    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn links(&self) -> usize {
        self.chain + self.patterns
    }

    fn innermost(&self) -> Option<Bracket> {
        self.levels.last().map(|level| level.bracket)
    }

    fn groups(&self) -> u8 {
        self.levels.last().map_or(0, |level| level.groups)
    }

    fn doublings(&self) -> u8 {
        self.levels.last().map_or(0, |level| level.doublings)
    }

    /// `<`: an IRI, a quoted triple, or a comparison.
    fn less(&mut self) -> ScanStep<'a> {
        let bytes = self.text.as_bytes();
        let is_quoted = bytes.get(self.at + 1) == Some(&b'<');
        let end = iri(bytes, self.at);
        let compares =
            self.innermost() == Some(Bracket::Round) && !self.is_data && self.before != PrecedingPiece::Other;
        self.read();
        if !compares {
            match end {
                _ if is_quoted => self.quote(),
                Some(end) => self.name(TerminalKind::Iri, end),
                None => return ScanStep::End,
            }
            return ScanStep::On;
        }
        let mut step = ScanStep::On;
        if is_quoted {
            let inner = iri(bytes, self.at + 1);
            if !inner.is_some_and(|inner| is_plain(&bytes[self.at + 2..inner - 1])) {
                let mut fork = self.clone();
                fork.quote();
                step = ScanStep::Fork(Box::new(fork));
            }
            self.quoted += 1;
        } else if let Some(end) = end {
            let inside = &bytes[self.at + 1..end - 1];
            if is_plain(inside) || is_no_operand(inside) {
                self.name(TerminalKind::Iri, end);
                return ScanStep::On;
            }
            let mut fork = self.clone();
            fork.name(TerminalKind::Iri, end);
            step = ScanStep::Fork(Box::new(fork));
        }
        self.at += 1 + usize::from(bytes.get(self.at + 1) == Some(&b'='));
        self.before = PrecedingPiece::Other;
        step
    }

    fn quote(&mut self) {
        self.quoted += 1;
        self.at += 2;
        self.before = PrecedingPiece::Other;
    }

    /// An IRI, or a name that becomes one.
    fn name(&mut self, kind: TerminalKind, end: usize) {
        self.names += 1;
        if self.levels.is_empty() {
            self.chain += usize::from(self.is_describe);
            if kind == TerminalKind::Iri {
                self.longest = self.longest.max(end - self.at);
            }
        }
        let name = if kind == TerminalKind::Name {
            PrecedingPiece::Name(self.at, end)
        } else {
            PrecedingPiece::Name(end, end)
        };
        self.operand(name);
        self.at = end;
    }

    /// Operands side by side are in a list, or columns.
    fn operand(&mut self, operand: PrecedingPiece) {
        if self.before != PrecedingPiece::Other && self.innermost() == Some(Bracket::Round) && !self.is_data {
            self.patterns += 2;
        }
        self.before = operand;
    }

    fn read(&mut self) {
        let is_flat = self.is_data || matches!(self.innermost(), Some(Bracket::Rows | Bracket::Row));
        if !is_flat {
            self.reads = self.reads.saturating_add(1 << self.doublings().min(32));
        }
    }

    /// False if the parser cannot go on.
    fn take(&mut self, kind: TerminalKind, end: usize) -> bool {
        self.read();
        let piece = &self.text[self.at..end];
        match kind {
            TerminalKind::Word => {
                // What follows without a space may belong to the name of a prefix.
                self.word_bytes = terminal::prefix(self.text, self.at) - self.at;
                self.word(piece, end);
            }
            TerminalKind::Name => {
                // `true-1-a:b` is a name, or two subtractions if the prefix is not known.
                let prefix = piece.split(':').next().unwrap_or_default();
                self.word_bytes = prefix.len();
                if prefix.contains('-') && (prefix.contains("true-") || prefix.contains("false-")) {
                    self.chain += prefix.matches('-').count();
                }
                self.name(kind, end);
            }
            TerminalKind::Variable => {
                self.variables.insert(&piece[1..]);
                self.operand(PrecedingPiece::Operand);
                self.values = match self.values {
                    Values::Begun => Values::Ready,
                    other => other,
                };
            }
            TerminalKind::Blank | TerminalKind::String | TerminalKind::Number => self.operand(PrecedingPiece::Operand),
            TerminalKind::Language => self.before = PrecedingPiece::Operand,
            TerminalKind::Iri => self.name(kind, end),
            TerminalKind::Sign => return self.sign(piece.as_bytes()[0]),
        }
        true
    }

    fn word(&mut self, word: &str, end: usize) {
        if self.levels.is_empty() && word.eq_ignore_ascii_case("DATA") {
            self.is_data |= matches!(self.before, PrecedingPiece::Word(start, end)
                if ["INSERT", "DELETE"].iter().any(|begin| self.text[start..end].eq_ignore_ascii_case(begin)));
        }
        self.is_describe |= self.levels.is_empty() && ends_with(word, "DESCRIBE");
        if word.eq_ignore_ascii_case("VALUES") {
            self.values = Values::Begun;
        }
        if !self.is_data && NESTING.iter().any(|nesting| word.eq_ignore_ascii_case(nesting)) {
            self.chain += 1;
        }
        self.operand(PrecedingPiece::Word(self.at, end));
    }

    /// False if the parser cannot go on.
    fn sign(&mut self, sign: u8) -> bool {
        let next = self.text.as_bytes().get(self.at + 1).copied();
        match sign {
            b'(' | b'[' | b'{' => self.open(sign),
            b')' | b']' | b'}' => return self.close(sign),
            b';' if self.levels.is_empty() => {
                // The next operation of an update is evaluated by itself.
                (self.chain, self.patterns, self.is_data, self.is_describe) = (0, 0, false, false);
                self.variables.clear();
            }
            b',' | b';' | b'.' => {
                let counts = matches!(self.innermost(), Some(Bracket::Brace | Bracket::Square)) && !self.is_data;
                self.patterns += usize::from(counts);
            }
            // These signs come in pairs in expressions, and count once.
            b'|' | b'&' if next == Some(sign) => {}
            b'=' | b'>' | b'~' | b'^' => {}
            b'!' if next == Some(b'=') => {}
            // Elsewhere it is the sign of a number.
            b'-' if !matches!(self.innermost(), None | Some(Bracket::Round)) => {}
            _ if self.is_data => {}
            _ => self.chain += 1,
        }
        if !matches!(sign, b')' | b']' | b'}') {
            self.before = PrecedingPiece::Other;
        }
        self.is_negated = sign == b'!' || (self.is_negated && matches!(sign, b'+' | b'-'));
        true
    }

    fn open(&mut self, sign: u8) {
        let (inside, values) = (self.innermost(), self.values);
        let bracket = match (sign, inside, values) {
            (b'{', _, Values::Ready) => Bracket::Rows,
            (b'{', ..) => Bracket::Brace,
            (b'(', Some(Bracket::Rows), _) => Bracket::Row,
            (b'(', ..) => Bracket::Round,
            _ => Bracket::Square,
        };
        self.values = match (sign, values) {
            (b'(', Values::Begun) => Values::InVariables,
            _ => Values::No,
        };
        if !self.is_data {
            self.chain += usize::from(bracket == Bracket::Brace);
            self.patterns += usize::from(bracket == Bracket::Round && inside != Some(Bracket::Round));
        }
        if matches!(self.before, PrecedingPiece::Word(start, end)
            if sign == b'(' && AGGREGATES.iter().any(|name| ends_with(&self.text[start..end], name)))
        {
            self.patterns += AGGREGATE_PATTERNS;
        }
        let more = if self.is_data { 0 } else { self.doubled(sign) };
        let doublings = self.doublings().saturating_add(more);
        let groups = self.groups().saturating_add(u8::from(bracket == Bracket::Brace));
        self.levels.push(BracketLevel { bracket, doublings, groups });
    }

    /// How often the parser reads what is in this bracket, as a power of two.
    fn doubled(&self, sign: u8) -> u8 {
        let negated = u8::from(self.is_negated);
        negated
            + match self.before {
                PrecedingPiece::Word(start, end) if sign == b'(' => {
                    let is = |name: &&str| ends_with(&self.text[start..end], name);
                    u8::from(TWICE.iter().chain(&AGGREGATES).any(is)) + u8::from(is(&"GROUP_CONCAT"))
                }
                // A condition: tried as a function, and twice as an aggregate.
                PrecedingPiece::Name(..) if sign == b'(' && self.innermost() != Some(Bracket::Round) => 2,
                // `SERVICE SILENTa:b {` has two readings.
                PrecedingPiece::Name(start, end) if sign == b'{' => {
                    u8::from(self.text[start..end].to_ascii_uppercase().contains("SILENT"))
                }
                _ => 0,
            }
    }

    fn close(&mut self, sign: u8) -> bool {
        let bracket = self.levels.pop().map(|level| level.bracket);
        let fits = match bracket {
            Some(Bracket::Brace | Bracket::Rows) => sign == b'}',
            Some(Bracket::Round | Bracket::Row) => sign == b')',
            Some(Bracket::Square) => sign == b']',
            None => false,
        };
        if self.values == Values::InVariables {
            self.values = Values::Ready;
        }
        self.before = PrecedingPiece::Operand;
        self.is_negated = false;
        fits
    }
}

/// Functions whose arguments the parser reads twice, if the last one is left out.
const TWICE: [&str; 3] = ["REGEX", "SUBSTR", "REPLACE"];
/// Their arguments are read twice if what follows `DISTINCT` is wrong, and the last of them twice that often.
const AGGREGATES: [&str; 7] = ["COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"];
/// The parser compares each aggregate with all others, so they weigh more than other things.
const AGGREGATE_PATTERNS: usize = 4;

/// Keywords need no space between them.
fn ends_with(word: &str, end: &str) -> bool {
    word.len().checked_sub(end.len()).and_then(|start| word.get(start..)).is_some_and(|w| w.eq_ignore_ascii_case(end))
}

/// True for an IRI that would be a single name, too: both readings count the same.
fn is_plain(iri: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let prefix = iri.iter().take_while(|byte| is_name(byte)).count();
    let Some((b':', local)) = iri[prefix..].split_first() else { return false };
    prefix > 0 && local.iter().all(|byte| is_name(byte) || matches!(byte, b':' | b'-'))
}

/// True for `scheme://…`: no expression goes on with two slashes.
fn is_no_operand(iri: &[u8]) -> bool {
    let prefix = iri.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    prefix > 0 && iri[prefix..].starts_with(b"://")
}
