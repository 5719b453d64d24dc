//! Looks at what clients have not read yet, of those that are sent more than publishers' claims: what may follow is
//! `window`'s decision, what is held back the core's.
//!
//! Nobody is looked at who was never sent anything in excess, and others only after some KiB. Where nobody tells of
//! windows, on other systems or where the kernel's socket for it may not be opened, sockets alone say who is slow.

use std::io;

use tidegate_control::Timestamp;
use tidegate_core::{ConnId, Shard};

use super::ShardThread;
use crate::limits::WINDOW_LOOKS_PER_TURN_MAX;
use crate::link::SocketLink;
use crate::window::gauge::{FIRST_LOOK, WindowGauge, WindowLook};
use crate::window::sock_diag::{Question, SockDiag};

/// Who is looked at.
#[derive(Debug, Default)]
pub(super) struct Windows {
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
        let Some(allowance) = self.windows.look(&connection.link, &mut connection.window, self.now) else {
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

    /// Looks again at those that may be sent nothing in excess, when it is time.
    pub(super) fn look_at_held(&mut self) {
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
