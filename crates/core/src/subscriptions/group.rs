//! A shared subscription on one filter: its members here and on other shards, and whose turn it is.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Wish;
use super::subscribers::Subscribers;

/// Whether a member of a group is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Online,
    Offline,
}

/// Members of a group, by presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) online: u32,
    pub(crate) offline: u32,
}

/// A shared subscription on one filter.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Box<str>,
    /// Members here, by presence: a message is dealt without looking at all of them.
    online: Subscribers,
    offline: Subscribers,
    /// Members on other shards, by shard.
    pub(super) remote: Vec<(usize, Members)>,
    /// Round robin over all members.
    turn: u32,
}

/// Where a message of a shared subscription goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// To this session here.
    Local(u32, Wish),
    /// To this shard, which picks among its own.
    Remote(usize),
}

impl Group {
    pub(super) fn new(name: &str) -> Self {
        let (online, offline) = (Subscribers::default(), Subscribers::default());
        Self { name: name.into(), online, offline, remote: Vec::new(), turn: 0 }
    }

    pub(super) fn members(&self) -> Members {
        Members { online: self.online.len() as u32, offline: self.offline.len() as u32 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.online.is_empty() && self.offline.is_empty() && self.remote.is_empty()
    }

    /// A connected session joins, or has another wish from now on; the answer is the one it had.
    pub(super) fn join(&mut self, session: u32, wish: Wish) -> Option<Wish> {
        let before = self.offline.remove(session);
        self.online.insert(session, wish).or(before)
    }

    pub(super) fn leave(&mut self, session: u32) -> Option<Wish> {
        self.online.remove(session).or_else(|| self.offline.remove(session))
    }

    pub(super) fn set_presence(&mut self, session: u32, presence: Presence) {
        let (from, to) = match presence {
            Presence::Online => (&mut self.offline, &mut self.online),
            Presence::Offline => (&mut self.online, &mut self.offline),
        };
        if let Some(wish) = from.remove(session) {
            to.insert(session, wish);
        }
    }

    pub(super) fn pick(&mut self) -> Option<Pick> {
        let local = self.members();
        self.turn = self.turn.wrapping_add(1);
        for presence in [Presence::Online, Presence::Offline] {
            let count = |members: &Members| match presence {
                Presence::Online => members.online,
                Presence::Offline => members.offline,
            };
            let total: u32 = count(&local) + self.remote.iter().map(|(_, members)| count(members)).sum::<u32>();
            if total == 0 {
                continue;
            }
            let mut turn = self.turn % total;
            if turn < count(&local) {
                return self.member(presence, turn).map(|(session, wish)| Pick::Local(session, wish));
            }
            turn -= count(&local);
            for (shard, members) in &self.remote {
                if turn < count(members) {
                    return Some(Pick::Remote(*shard));
                }
                turn -= count(members);
            }
        }
        None
    }

    /// Whose turn it is among those here.
    pub(super) fn pick_local(&mut self) -> Option<(u32, Wish)> {
        self.turn = self.turn.wrapping_add(1);
        self.member(Presence::Online, self.turn).or_else(|| self.member(Presence::Offline, self.turn))
    }

    fn member(&self, presence: Presence, turn: u32) -> Option<(u32, Wish)> {
        let candidates = match presence {
            Presence::Online => self.online.as_slice(),
            Presence::Offline => self.offline.as_slice(),
        };
        candidates.get(turn as usize % candidates.len().max(1)).copied()
    }
}
