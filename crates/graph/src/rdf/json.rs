//! JSON-LD before its parser sees it, read by the tokenizer that the parser uses: the two cannot disagree.
//!
//! The parser keeps what it has not understood yet once for each level around it, and copies all names that hold
//! whenever a context adds to them: its cost is the product of depth, size and contexts, which are bounded one by one.

use json_event_parser::{JsonEvent, LowLevelJsonParser};

use super::RdfLimits;
use crate::error::{GraphError, Limit, TextPlace};

/// Levels of objects and lists. The cost of the worst documents grows with the level, and with 5000 they took half a
/// minute, more than a gigabyte, or the process.
pub(super) const DEPTH_MAX: usize = 32;
/// Bytes of a document; the parser cannot be interrupted while it turns its buffers into quads. The dearest documents, a
/// list of numbers, take half a second for each megabyte (benchmark `bounds`): with this much, a second.
pub(super) const BYTES_MAX: usize = 2 << 20;
/// Pieces of the document, each as often as there are levels around it: what the parser's buffers cost. Twice this took
/// between 1.0 s (32 levels: 0.7 s) and 1.4 s (10 levels).
const WORK_MAX: usize = 4 << 20;
/// Keys in all contexts. A name may be defined by another, and the parser recurses over such chains.
pub(super) const NAMES_MAX: usize = 1000;
/// Names that contexts define, times contexts that are applied: the parser copies the ones for the others.
const COPIES_MAX: usize = 1 << 20;
/// Bytes of all names, if each were the longest text of a context and itself.
const EXPANSION_MAX: usize = 64 << 20;

pub(super) fn check(document: &[u8], limits: &RdfLimits) -> Result<(), GraphError> {
    if document.len() > BYTES_MAX {
        return Err(Limit::DocumentBytes.into());
    }
    let (mut parser, mut shape, mut offset) = (LowLevelJsonParser::new(), DocumentShape::default(), 0);
    loop {
        let read = parser.parse_next(&document[offset..], true);
        offset += read.consumed_bytes;
        match read.event {
            Some(Ok(JsonEvent::Eof)) => return Ok(()),
            Some(Ok(event)) => {
                shape
                    .on(&event)
                    .map_err(|limit| GraphError::LimitAt(limit, TextPlace::of(document, offset.saturating_sub(1))))?;
            }
            Some(Err(error)) => return Err(GraphError::NotRdf(error.to_string())),
            None => {}
        }
        if shape.texts % 1024 == 0 && limits.cancel.is_cancelled() {
            return Err(GraphError::Cancelled);
        }
    }
}

/// What is counted of a document.
#[derive(Default)]
struct DocumentShape {
    depth: usize,
    work: usize,
    /// Which of the levels, the innermost as the lowest bit, are lists.
    lists: u64,
    /// Keys and strings, and those of them that are outside of contexts.
    texts: usize,
    data_texts: usize,
    /// The last key said that a context follows.
    context_follows: bool,
    /// The level around the outermost context that is open.
    context_at: Option<usize>,
    /// A context within a context: it is applied whenever its name is used.
    is_scoped: bool,
    contexts: usize,
    names: usize,
    longest: usize,
}

impl DocumentShape {
    fn on(&mut self, event: &JsonEvent<'_>) -> Result<(), Limit> {
        let follows = std::mem::take(&mut self.context_follows);
        self.work += self.depth;
        match event {
            JsonEvent::StartObject | JsonEvent::StartArray => {
                let is_context = follows || (self.context_at.is_some() && self.lists & 1 == 1);
                self.contexts += usize::from(is_context);
                if follows {
                    self.context_at.get_or_insert(self.depth);
                }
                self.depth += 1;
                self.lists = self.lists << 1 | u64::from(*event == JsonEvent::StartArray);
                if self.depth > DEPTH_MAX {
                    return Err(Limit::Depth);
                }
            }
            JsonEvent::EndObject | JsonEvent::EndArray => {
                self.depth = self.depth.saturating_sub(1);
                self.lists >>= 1;
                self.context_at = self.context_at.filter(|around| *around < self.depth);
            }
            JsonEvent::ObjectKey(key) => {
                self.context_follows = key == "@context";
                self.is_scoped |= self.context_follows && self.context_at.is_some();
                self.names += usize::from(self.context_at.is_some());
                self.text(key);
            }
            JsonEvent::String(text) => self.text(text),
            JsonEvent::Number(_) | JsonEvent::Boolean(_) | JsonEvent::Null | JsonEvent::Eof => {}
        }
        self.verdict()
    }

    fn text(&mut self, text: &str) {
        self.texts += 1;
        if self.context_at.is_some() {
            self.longest = self.longest.max(text.len());
        } else {
            self.data_texts += 1;
        }
    }

    fn verdict(&self) -> Result<(), Limit> {
        let applied = self.contexts + if self.is_scoped { self.data_texts } else { 0 };
        if self.work > WORK_MAX {
            return Err(Limit::DocumentBytes);
        }
        if self.names > NAMES_MAX || self.names.saturating_mul(applied) > COPIES_MAX {
            return Err(Limit::Contexts);
        }
        if self.texts.saturating_mul(self.longest) > EXPANSION_MAX { Err(Limit::Expansion) } else { Ok(()) }
    }
}
