//! Connections with something unread: round robin, as if there were no order of service.

use std::collections::VecDeque;

use tidegate_core::ConnId;

/// Bytes that are read of one connection at a time.
const VISIT_BYTES: usize = 16 * 1024;

/// Who waits.
#[derive(Debug, Default)]
pub(super) struct Line(VecDeque<ConnId>);

impl Line {
    /// A connection has something to read, and was not in the line.
    pub(super) fn push(&mut self, conn: ConnId) {
        self.0.push_back(conn);
    }

    /// Who is read next, and how many bytes of it.
    pub(super) fn pop(&mut self) -> Option<(ConnId, usize)> {
        self.0.pop_front().map(|conn| (conn, VISIT_BYTES))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
