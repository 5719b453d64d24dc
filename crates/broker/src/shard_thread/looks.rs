//! Looks at what the kernel knows of slow receivers. Who is to be looked at, and what follows, is the core's to say.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_control::Timestamp;
use tidegate_core::ConnId;

use super::ShardThread;
use crate::limits::{LOOK_AGAIN, LOOKS_PER_TURN_MAX};
use crate::tcp_diag::TcpDiag;

/// One entry for each connection at most.
#[derive(Debug, Default)]
pub(super) struct Looks {
    due: BinaryHeap<Reverse<(Timestamp, ConnId)>>,
    diag: TcpDiag,
}

impl Looks {
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }
}

impl ShardThread {
    /// After a connection was written: now, later or not at all.
    #[inline]
    pub(super) fn look_when_due(&mut self, id: ConnId) {
        match self.shard.next_look(id, self.now) {
            None => {}
            Some(at) if at <= self.now => self.look(id),
            Some(at) => self.look_later(id, at),
        }
    }

    /// Those that are due.
    pub(super) fn look_all(&mut self) {
        for _ in 0..LOOKS_PER_TURN_MAX {
            if self.looks.next().is_none_or(|at| at > self.now) {
                return;
            }
            let Some(Reverse((_, id))) = self.looks.due.pop() else { return };
            if let Some(connection) = self.connections.get(id) {
                connection.has_look = false;
                self.look(id);
            }
        }
    }

    fn look(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return };
        let tcp = connection.link.tcp_state(&mut self.looks.diag);
        self.shard.handle_look(id, tcp.as_ref(), self.now);
        if let Some(at) = self.shard.next_look(id, self.now) {
            self.look_later(id, at.max(self.now + LOOK_AGAIN));
        }
    }

    fn look_later(&mut self, id: ConnId, at: Timestamp) {
        let Some(connection) = self.connections.get(id) else { return };
        if !std::mem::replace(&mut connection.has_look, true) {
            self.looks.due.push(Reverse((at, id)));
        }
    }
}
