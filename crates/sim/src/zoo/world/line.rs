//! Connections with something unread, in the order in which the loop reads them.

use std::collections::VecDeque;

use tidegate_core::{ConnId, ReadOrder, Shard};

/// Bytes that are read of one connection at a time.
const VISIT_BYTES: usize = 16 * 1024;

/// Who waits.
#[derive(Debug, Default)]
pub(super) struct Line([VecDeque<ConnId>; ReadOrder::ALL.len()]);

impl Line {
    /// A connection has something to read, and was not in the line.
    pub(super) fn push(&mut self, conn: ConnId, shard: &Shard) {
        self.0[shard.read_order(conn) as usize].push_back(conn);
    }

    /// Who is read next, and how many bytes of it.
    pub(super) fn pop(&mut self) -> Option<(ConnId, usize)> {
        self.0.iter_mut().find_map(VecDeque::pop_front).map(|conn| (conn, VISIT_BYTES))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }
}
