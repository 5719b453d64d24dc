//! What a subscriber is told.

use std::sync::Arc;

use tidegate_graph::GraphError;

use crate::change::WrittenChange;

/// What a subscriber is told after its baseline.
#[derive(Clone, Debug)]
pub enum SpaceNotification {
    /// The result changed.
    Changed {
        /// 1, 2, 3, … without gaps; what was merged under pressure is one change.
        sequence: u64,
        /// The version of the data that it leads to.
        version: u64,
        /// The rows that entered and left the result.
        delta: Arc<WrittenChange>,
    },
    /// It is over: the standing query failed, what was missed is not known any more, or another connection has it now.
    Ended(Option<GraphError>),
}
