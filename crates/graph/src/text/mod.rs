//! A look at the text before the parser sees it. The parser, the optimizer and the evaluator recurse over brackets and
//! over chains of operators, and the parser compares every variable with all others, so they are counted first, by a
//! scanner that does not recurse.
//!
//! The scanner knows just enough of SPARQL's words to skip strings, IRIs, names and comments. Where it is unsure it
//! counts too much rather than too little.

use std::collections::BTreeSet;

use crate::error::{Error, Limit};
use crate::limits::QueryLimits;

/// Words that nest the algebra once each.
const NESTING: [&str; 13] = [
    "UNION", "OPTIONAL", "MINUS", "FILTER", "BIND", "GRAPH", "SERVICE", "EXISTS", "VALUES", "IN", "AS", "SELECT",
    "HAVING",
];

/// Refuses a text whose evaluation could exhaust the stack, or whose parsing could take for ever.
pub(crate) fn check(text: &str, limits: &QueryLimits) -> Result<(), Error> {
    if text.len() > limits.text_bytes_max {
        return Err(Limit::TextBytes.into());
    }
    let (mut tokens, mut variables) = (Tokens::new(text), BTreeSet::new());
    while let Some(token) = tokens.next() {
        if tokens.0.depth > limits.depth_max {
            return Err(Limit::Depth.into());
        }
        if tokens.0.chain > limits.chain_max {
            return Err(Limit::Chain.into());
        }
        if let Some(name) = variable(token) {
            variables.insert(name);
        } else if token == ";" && tokens.0.depth == 0 {
            // The next operation of an update.
            variables.clear();
        }
        if variables.len() > limits.variables_max {
            return Err(Limit::Variables.into());
        }
    }
    Ok(())
}

/// The name of a variable, if this piece is one.
pub(crate) fn variable(token: &str) -> Option<&str> {
    token.strip_prefix(['?', '$']).filter(|name| !name.is_empty())
}

/// The pieces of a text: strings, IRIs, names and variables whole, comments, everything else by the character.
pub(crate) struct Tokens<'a>(Scanner<'a>);

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self(Scanner { rest: text, depth: 0, chain: 0, after_string: false })
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let before = self.0.rest;
        self.0.token(before.chars().next()?);
        before.get(..before.len() - self.0.rest.len())
    }
}

struct Scanner<'a> {
    rest: &'a str,
    depth: usize,
    chain: usize,
    after_string: bool,
}

impl Scanner<'_> {
    fn token(&mut self, first: char) {
        let after_string = std::mem::take(&mut self.after_string);
        match first {
            '"' | '\'' => {
                self.string(first);
                self.after_string = true;
            }
            '#' => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            '<' => match iri_length(self.rest) {
                Some(length) => self.skip(length),
                None => self.skip(1),
            },
            '?' | '$' => {
                // A lone question mark is the path operator.
                let length = word_length(&self.rest[1..], |c| c.is_alphanumeric() || c == '_');
                self.chain += usize::from(length == 0);
                self.skip(1 + length);
            }
            '0'..='9' => self.skip(word_length(self.rest, |c| c.is_ascii_digit() || c == '.')),
            '@' => self.skip(1 + word_length(&self.rest[1..], |c| c.is_alphanumeric() || c == '-')),
            _ if first.is_alphabetic() || matches!(first, ':' | '_') => self.word(),
            '{' | '(' | '[' => {
                self.depth += 1;
                // Groups next to each other are joined, which nests; lists and arguments are not.
                self.chain += usize::from(first == '{');
                self.skip(1);
            }
            '}' | ')' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                self.skip(1);
            }
            ';' if self.depth == 0 => {
                // The next operation of an update is evaluated by itself.
                self.chain = 0;
                self.skip(1);
            }
            // After a string it introduces a datatype; elsewhere it turns a path around, twice.
            '^' if after_string && self.rest.starts_with("^^") => self.skip(2),
            '+' | '-' | '*' | '/' | '|' | '&' | '^' | '!' => {
                self.chain += 1;
                self.skip(1);
            }
            _ => self.skip(first.len_utf8()),
        }
    }

    fn word(&mut self) {
        let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '-' | '%' | '\\' | '~');
        let length = word_length(self.rest, inside);
        let word = &self.rest[..length];
        if NESTING.iter().any(|nesting| word.eq_ignore_ascii_case(nesting)) {
            self.chain += 1;
        }
        self.skip(length);
    }

    fn string(&mut self, quote: char) {
        let long: String = [quote; 3].iter().collect();
        let is_long = self.rest.starts_with(&long);
        self.skip(if is_long { 3 } else { 1 });
        loop {
            let Some(next) = self.rest.find([quote, '\\', '\n']) else { return self.skip(self.rest.len()) };
            self.skip(next);
            if self.rest.starts_with('\\') {
                let escaped = self.rest.chars().nth(1).map_or(0, char::len_utf8);
                self.skip(1 + escaped);
            } else if is_long && self.rest.starts_with(&long) {
                return self.skip(3);
            } else if is_long {
                self.skip(1);
            } else {
                // The end, or a line break, which no short string has: the parser will say so.
                return self.skip(1);
            }
        }
    }

    fn skip(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
    }
}

fn word_length(text: &str, inside: impl Fn(char) -> bool) -> usize {
    text.find(|c| !inside(c)).unwrap_or(text.len())
}

/// The length of an IRI in angle brackets; `None` if the bracket is a comparison.
fn iri_length(text: &str) -> Option<usize> {
    let end = text.find(|c: char| c == '>' || c <= ' ' || matches!(c, '"' | '{' | '}' | '|' | '^' | '`'))?;
    text[end..].starts_with('>').then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Result<(), Error> {
        check(text, &QueryLimits { depth_max: 3, chain_max: 4, text_bytes_max: 200, ..QueryLimits::default() })
    }

    #[test]
    fn brackets_and_chains_are_counted_exactly() {
        assert_eq!(verdict("(((1)))"), Ok(()));
        assert_eq!(verdict("((((1))))"), Err(Limit::Depth.into()));
        assert_eq!(verdict("1-1-1-1-1"), Ok(()));
        assert_eq!(verdict("?a-?b-?c-?d-?e-?f"), Err(Limit::Chain.into()));
        assert_eq!(verdict("{} union {} UNION"), Ok(()));
        assert_eq!(verdict("{} union {} UNION {}"), Err(Limit::Chain.into()));
        assert_eq!(verdict("!!!!!a"), Err(Limit::Chain.into()));
        assert_eq!(verdict(&" ".repeat(201)), Err(Limit::TextBytes.into()));
    }

    #[test]
    fn what_is_no_operator_is_not_counted() {
        assert_eq!(verdict("'((((' \"{{{{\" <http://e/a/b/c/d/e/f> # (((( \n ex:a-b-c-d-e-f-g @de-de-de-de"), Ok(()));
        assert_eq!(verdict("'''it's (((('''"), Ok(()));
        assert_eq!(verdict(r#""a\"((((" 'x\\' "#), Ok(()));
        assert_eq!(verdict("'1'^^a:b '1'^^a:b '1'^^a:b '1'^^a:b '1'^^a:b"), Ok(()));
        assert_eq!(verdict("^^^^^a:b"), Err(Limit::Chain.into()));
        assert_eq!(verdict("a;{b};{c};{d};{e};{f}"), Ok(()));
        assert_eq!(verdict("?a < 1 && ?b > 2"), Ok(()));
    }

    #[test]
    fn different_variables_are_counted_in_each_operation() {
        let verdict = |text: &str| check(text, &QueryLimits { variables_max: 2, ..QueryLimits::default() });
        assert_eq!(verdict("?a $b ?a $a <urn:?c> '?c' # ?c"), Ok(()));
        assert_eq!(verdict("?a ?b ?c"), Err(Limit::Variables.into()));
        assert_eq!(verdict("{ ?a ?b } ; { ?c ?d }"), Ok(()));
        assert_eq!(verdict("{ ?a ?b ; ?c ?d }"), Err(Limit::Variables.into()));
    }

    #[test]
    fn whatever_is_cut_off_ends() {
        for text in ["'", "\"\\", "'''", "<", "@", "?", "\\", "'''\\", "é", "#", "<é"] {
            assert_eq!(verdict(text), Ok(()), "{text}");
        }
    }
}
