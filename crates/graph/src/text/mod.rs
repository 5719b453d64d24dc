//! A look at the text before the parser sees it. The parser, the optimizer, the evaluator and the drop of what they make
//! recurse, and the parser reads some things again and again, so all of that is counted first, without recursion.
//!
//! `terminal` reads pieces exactly as the parser does, `scan` counts them. Where the parser cannot go on the count ends:
//! the parser will say why. Everything it accepts has been counted, in the only way or in each way it can be read.
//! The property tests in `against` and the fuzz target `sparql` hold that against the parser itself.

mod scan;
mod terminal;

use crate::error::{GraphError, Limit, TextPlace};
use crate::limits::{QueryLimits, memory_free};
use scan::{ScanStep, TextScan};
use terminal::piece;

/// Second readings of one text. Whoever writes spaces around comparisons has none.
const FORKS_MAX: usize = 16;

/// What was found in a text, by whichever reading found more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextSurvey {
    /// Some reading came to the end of the text. The parser accepts no other text.
    pub is_whole: bool,
    /// The most brackets that were open at once.
    pub depth: usize,
    /// What the algebra may nest beside.
    pub links: usize,
}

/// Refuses a text whose evaluation could exhaust the stack, or whose parsing could take for ever.
pub(crate) fn check(text: &str, base: Option<&str>, limits: &QueryLimits) -> Result<TextSurvey, GraphError> {
    if limits.cancel.is_cancelled() {
        return Err(GraphError::Cancelled);
    }
    if text.len() > limits.text_bytes_max {
        return Err(Limit::TextBytes.into());
    }
    let (mut survey, mut forks, mut expansion) = (TextSurvey::default(), 0, 0);
    let mut pending = vec![TextScan::new(text, base.map_or(0, str::len))];
    while let Some(mut scan) = pending.pop() {
        loop {
            let begin = scan.at;
            let refused = |limit| {
                let place = terminal::space(text.as_bytes(), begin);
                GraphError::LimitAt(limit, TextPlace::of(text.as_bytes(), place))
            };
            match scan.step(limits).map_err(refused)? {
                ScanStep::On => {}
                ScanStep::End => {
                    survey.is_whole |= scan.at == text.len();
                    expansion = scan.expansion().max(expansion);
                    break;
                }
                ScanStep::Fork(_) if forks == FORKS_MAX => return Err(refused(Limit::Ambiguous)),
                ScanStep::Fork(fork) => {
                    forks += 1;
                    pending.push(*fork);
                }
            }
            survey.depth = survey.depth.max(scan.depth());
            survey.links = survey.links.max(scan.links());
        }
    }
    let more = expansion.saturating_sub(memory_free(text.len()));
    if more > 0 && !limits.memory.take(more) {
        return Err(Limit::Expansion.into());
    }
    Ok(survey)
}

/// The name of a variable, if this piece is one.
pub(crate) fn variable(token: &str) -> Option<&str> {
    token.strip_prefix(['?', '$']).filter(|name| !name.is_empty())
}

/// The pieces of a text without white space and comments, with `<…>` taken for an IRI. What the parser cannot read comes
/// by the character.
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let start = terminal::space(self.text.as_bytes(), self.at);
        let first = self.text.get(start..)?.chars().next()?;
        self.at = piece(self.text, start).map_or(start + first.len_utf8(), |(_, end)| end);
        self.text.get(start..self.at)
    }
}

#[cfg(test)]
mod against;
#[cfg(test)]
mod tests;
