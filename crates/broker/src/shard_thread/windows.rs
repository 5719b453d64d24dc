//! Looks at what clients have not read yet, of those that are sent more than publishers' claims: what may follow is
//! `window`'s decision, what is held back the core's.
//!
//! Nobody is looked at who was never sent anything in excess, and others only after some KiB. Where nobody tells of
//! windows, on other systems or where the kernel's socket for it may not be opened, sockets alone say who is slow.
//!
//! Where several readers seem slow at the same time while the loop cannot read everybody, it is the loop that is scarce, and not they: then nothing
//! is held back. The loop reads the entitled first, and whatever waits in a queue costs it more than what goes out at once. Twenty fast readers of
//! twenty blasts got 0.67 of what they get without control, in some runs a half.

use std::io;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_core::{ConnId, Shard};

use super::ShardThread;
use crate::limits::WINDOW_LOOKS_PER_TURN_MAX;
use crate::link::SocketLink;
use crate::window::gauge::{FIRST_LOOK, WindowGauge, WindowLook};
use crate::window::sock_diag::{Question, SockDiag};

/// Turns have left somebody unread for so long, with several held: the loop is scarce. One turn does that for anybody who sends much at once.
const SCARCE_AFTER: Duration = Duration::from_millis(10);
/// Fewer readers may well be slow, and be flooded by whom the loop cannot read.
const SEVERAL: usize = 4;
/// So long after the last such turn it is taken to be scarce still.
const SCARCE_FOR: Duration = Duration::from_secs(1);

/// Who is looked at.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Since when each turn has left somebody unread.
    left_since: Option<Timestamp>,
    /// Until when the loop is taken to be scarce.
    scarce_until: Option<Timestamp>,
    /// None before it is needed.
    diag: Option<io::Result<SockDiag>>,
    /// Those that may be sent nothing in excess; each once.
    held: Vec<ConnId>,
    /// When the first of them is looked at again.
    pub(super) due: Option<Timestamp>,
}

/// What the rim knows of the window of one client.
#[derive(Debug)]
pub(super) enum ClientWindow {
    /// It was not looked at yet; so many bytes were written.
    Unknown(u32),
    Known(Box<KnownWindow>),
}

#[derive(Debug)]
pub(super) struct KnownWindow {
    gauge: WindowGauge,
    question: Question,
    /// It is listed among those that are held, whether it still is or not.
    is_listed: bool,
}

impl ClientWindow {
    /// So many bytes were written; whether it may be time to look.
    #[inline]
    fn on_written(&mut self, bytes: usize) -> bool {
        match self {
            Self::Unknown(written) => {
                *written = written.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
                *written >= FIRST_LOOK
            }
            // One that is listed has its own time.
            Self::Known(window) => window.gauge.on_written(bytes) || !window.is_listed,
        }
    }
}

impl Windows {
    /// A turn has left somebody unread, or nobody.
    fn note_turn(&mut self, has_left: bool, now: Timestamp) {
        let is_loop = self.held.len() >= SEVERAL || self.is_loop_scarce(now);
        if !has_left || !is_loop {
            self.left_since = None;
        } else if now.since(*self.left_since.get_or_insert(now)) >= SCARCE_AFTER {
            self.scarce_until = Some(now + SCARCE_FOR);
        }
    }

    fn is_loop_scarce(&self, now: Timestamp) -> bool {
        self.scarce_until.is_some_and(|until| until > now)
    }

    /// What the kernel says of this connection, if it says anything.
    fn ask(&mut self, question: &Question) -> Option<WindowLook> {
        self.diag.get_or_insert_with(SockDiag::open).as_ref().ok()?.ask(question)
    }

    /// Somebody is to be looked at then.
    fn look_again(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Looks at a client. None: nobody tells.
    fn look(&mut self, link: &SocketLink, window: &mut ClientWindow, now: Timestamp) -> Option<u32> {
        match window {
            ClientWindow::Known(known) => {
                let look = self.ask(&known.question)?;
                known.gauge.on_look(look, now);
                Some(known.gauge.allowance())
            }
            ClientWindow::Unknown(_) => {
                let question = link.window_question()?;
                let gauge = WindowGauge::new(self.ask(&question)?, now);
                *window = ClientWindow::Known(Box::new(KnownWindow { gauge, question, is_listed: false }));
                Some(gauge.allowance())
            }
        }
    }
}

impl ShardThread {
    /// So many bytes were written to this client.
    #[inline]
    pub(super) fn note_written(&mut self, id: ConnId, bytes: usize) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.window.on_written(bytes) {
            self.look_after_write(id);
        }
    }

    fn look_after_write(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return };
        let allowance = self.shard.excess_allowance(id);
        // As long as nothing in excess has gone to it, or where there is no order, nothing is to be known.
        let is_known = allowance.is_some_and(|bytes| bytes != Shard::NO_EXCESS_YET);
        let is_wanted = is_known
            && match &connection.window {
                ClientWindow::Unknown(_) => true,
                ClientWindow::Known(known) => allowance == Some(0) || known.gauge.is_due(),
            };
        if is_wanted {
            self.look(id);
        } else if let ClientWindow::Unknown(written) = &mut connection.window {
            *written = 0;
        }
    }

    /// Looks at one client, and tells the core what may be sent to it.
    fn look(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get(id) else { return };
        let is_scarce = self.windows.is_loop_scarce(self.now);
        let look = || self.windows.look(&connection.link, &mut connection.window, self.now);
        let Some(allowance) = (!is_scarce).then(look).flatten() else {
            connection.window = ClientWindow::Unknown(0);
            return self.shard.set_excess_allowance(id, Shard::NO_EXCESS_YET, self.now);
        };
        if let ClientWindow::Known(known) = &mut connection.window {
            if allowance == 0 && !std::mem::replace(&mut known.is_listed, true) {
                self.windows.held.push(id);
            }
            if known.is_listed {
                self.windows.look_again(known.gauge.look_at());
            }
        }
        self.shard.set_excess_allowance(id, allowance, self.now);
    }

    /// Looks again at those that may be sent nothing in excess, when it is time. `has_left`: whether this turn has left somebody unread.
    pub(super) fn look_at_held(&mut self, has_left: bool) {
        self.windows.note_turn(has_left, self.now);
        if self.windows.due.is_none_or(|due| due > self.now) {
            return;
        }
        self.windows.due = None;
        let mut looks = 0;
        for id in std::mem::take(&mut self.windows.held) {
            let Some(connection) = self.connections.get(id) else { continue };
            let ClientWindow::Known(known) = &mut connection.window else { continue };
            let look_at = known.gauge.look_at();
            if look_at > self.now || looks == WINDOW_LOOKS_PER_TURN_MAX {
                self.windows.look_again(look_at);
                self.windows.held.push(id);
                continue;
            }
            looks += 1;
            known.is_listed = false;
            self.look(id);
        }
    }

    /// Everybody waits in one line from now on: nobody is held.
    pub(super) fn release_held(&mut self) {
        for id in std::mem::take(&mut self.windows.held) {
            if let Some(connection) = self.connections.get(id) {
                connection.window = ClientWindow::Unknown(0);
            }
        }
        self.windows.due = None;
        for id in self.connections.ids() {
            self.shard.set_excess_allowance(id, Shard::NO_EXCESS_YET, self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn holding(readers: u32) -> Windows {
        let held = (0..readers).map(|index| ConnId { index, generation: 1 }).collect();
        Windows { held, ..Windows::default() }
    }

    #[test]
    fn the_loop_is_scarce_when_turn_after_turn_leaves_somebody_unread_and_for_a_second_after() {
        let mut windows = holding(20);
        windows.note_turn(true, at(1000));
        windows.note_turn(false, at(1009));
        windows.note_turn(true, at(1012));
        assert!(!windows.is_loop_scarce(at(1012)), "one that sends much at once");
        windows.note_turn(true, at(1022));
        assert!(windows.is_loop_scarce(at(1022)));
        // Nobody is held any more, and there is too much to read still.
        windows.held.clear();
        windows.note_turn(true, at(1500));
        windows.note_turn(true, at(1510));
        windows.note_turn(false, at(1520));
        assert!(windows.is_loop_scarce(at(2509)) && !windows.is_loop_scarce(at(2510)));
    }

    #[test]
    fn one_reader_that_is_slow_is_held_however_long_the_loop_has_too_much_to_read() {
        let mut windows = holding(1);
        for turn in 0..1000 {
            windows.note_turn(true, at(1000 + turn));
        }
        assert!(!windows.is_loop_scarce(at(2000)));
    }
}
