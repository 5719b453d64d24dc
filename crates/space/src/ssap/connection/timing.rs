//! When a connection is read, and what is due on it although nothing happens: keep-alives, and the end of whoever says nothing or
//! only half a message.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::{Ended, SsapConnection};
use crate::limits::{
    SSAP_IDLE_TIMEOUT, SSAP_KEEP_ALIVE, SSAP_MESSAGE_TIMEOUT, SSAP_ROOM_INTERVAL, SSAP_ROOM_PACE, SSAP_ROOM_WAIT,
    SSAP_WINDOW,
};

impl SsapConnection {
    /// Whether there is room for more requests. Half a message that was there while there was none gets its time anew:
    /// its client could do nothing about it.
    pub(super) fn goes_on_reading(&mut self) -> bool {
        let reads = !self.is_over && self.parked.is_none() && self.under_way.len() < SSAP_WINDOW;
        if reads && !self.is_reading {
            (self.since, self.looked) = (Instant::now(), Instant::now());
        }
        self.is_reading = reads;
        reads
    }

    /// When something is due although nothing happens.
    fn due(&self) -> Instant {
        if !self.subscriptions.is_empty() {
            self.wrote + SSAP_KEEP_ALIVE
        } else if self.is_waiting_for_rest() {
            self.since + SSAP_MESSAGE_TIMEOUT
        } else {
            self.wrote.max(self.since) + SSAP_IDLE_TIMEOUT
        }
    }

    /// The same, or when to look at what it has of the room.
    pub(super) fn alarm(&self) -> Instant {
        let due = self.due();
        if self.buffer.has_room() { due.min(self.looked + self.room_interval()) } else { due }
    }

    /// Whoever waits for more room cannot go on, and is given longer: others are looked at first.
    fn room_interval(&self) -> Duration {
        if self.buffer.wanted() > 0 { SSAP_ROOM_WAIT } else { SSAP_ROOM_INTERVAL }
    }

    /// Half a message takes room that somebody waits for, and hardly anything came of it since the last look; or it
    /// waits for room itself, and nobody gave any.
    fn is_in_the_way(&mut self) -> bool {
        if !self.buffer.has_room() || self.looked.elapsed() < self.room_interval() {
            return false;
        }
        self.looked = Instant::now();
        let is_slow = self.buffer.pace() < SSAP_ROOM_PACE;
        is_slow && self.is_waiting_for_rest() && self.door.room.is_wanted()
    }

    fn is_waiting_for_rest(&self) -> bool {
        self.is_reading && !self.buffer.is_blank()
    }

    pub(super) fn ring(&mut self) -> Option<Ended> {
        if self.is_in_the_way() {
            info!(event = "ssap_cut", peer = %self.peer, "cut: half a message took room that others needed");
            return Some("half a message in the way");
        }
        if Instant::now() < self.due() {
            return None;
        }
        if self.is_waiting_for_rest() && self.since.elapsed() >= SSAP_MESSAGE_TIMEOUT {
            return Some("half a message");
        }
        if self.subscriptions.is_empty() {
            return self.under_way.is_empty().then_some("idle");
        }
        // Between messages, where clients pass over it.
        self.out.push(' ');
        None
    }
}
