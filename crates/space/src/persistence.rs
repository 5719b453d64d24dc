//! The seam to durable storage. A change is handed over after it was made and before anybody sees it; it is confirmed,
//! and seen, when all that was handed over is kept.

use tidegate_graph::{QuadDelta, RuleId};

/// Something to be kept.
#[derive(Clone, Copy, Debug)]
pub enum DurableChange<'a> {
    /// A change: `QuadDelta::encode` has its bytes, `GraphSpace::replay` does it again.
    Delta(&'a QuadDelta),
    /// The bytes of such a change, made beforehand.
    DeltaBytes(&'a [u8]),
    /// A rule, by its name on the wire and its text; `GraphSpace::restore_rule` brings it back.
    Rule(RuleId, &'a str, &'a str),
    /// A rule is gone.
    NoRule(RuleId),
}

/// Keeps what outlives the process. Called by the writer of the space, so nothing here may wait, but for [`Persistence::close`].
pub trait Persistence: Send {
    /// Called once, before anything else: `wake` is to be called whenever something was kept.
    fn listen(&mut self, wake: Box<dyn Fn() + Send + Sync>);

    /// Takes all that one request did. It is kept as a whole, after everything before it.
    fn submit(&mut self, what: &[DurableChange<'_>]);

    /// Whether everything that was submitted is kept.
    fn is_kept(&mut self) -> bool;

    /// Why nothing can be kept at the moment.
    fn trouble(&mut self) -> Option<String>;

    /// Whether there is room only for what makes it smaller.
    fn is_full(&mut self) -> bool {
        false
    }

    /// Keeps what was submitted, as far as that is possible, and lets go. Whether everything is kept.
    fn close(&mut self) -> bool;
}
