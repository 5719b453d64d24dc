//! The seam to durable storage. A change is given to it after it was made and before it is confirmed; what it does not
//! keep is not confirmed.

use tidegate_graph::{Delta, RuleId};

/// Something to be kept.
#[derive(Debug)]
pub enum Kept<'a> {
    /// Changes, in this order: `Delta::encode` has their bytes, `Space::apply_delta` does them again.
    Deltas(&'a [Delta]),
    /// A rule, by its text; `Space::restore_rule` brings it back.
    Rule(RuleId, &'a str),
    /// A rule is gone.
    NoRule(RuleId),
}

/// Keeps what outlives the process. Called by the writer, which waits.
pub trait Keep: Send {
    /// Keeps one thing; the error says why it could not.
    fn keep(&mut self, what: Kept<'_>) -> Result<(), String>;
}
