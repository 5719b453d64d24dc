//! A shared subscription on one filter: its members here and on other shards, and whose turn it is.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Wish;

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

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) session: u32,
    pub(super) wish: Wish,
    pub(super) presence: Presence,
}

/// A shared subscription on one filter.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Box<str>,
    pub(super) local: Vec<Member>,
    /// Members on other shards, by shard.
    pub(super) remote: Vec<(usize, Members)>,
    /// Round robin over all members.
    pub(super) turn: u32,
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
    pub(super) fn members(&self) -> Members {
        let online = self.local.iter().filter(|member| member.presence == Presence::Online).count() as u32;
        Members { online, offline: self.local.len() as u32 - online }
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
                return self.pick_member(presence, turn).map(|(session, wish)| Pick::Local(session, wish));
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

    pub(super) fn pick_member(&self, presence: Presence, turn: u32) -> Option<(u32, Wish)> {
        let candidates = || self.local.iter().filter(|member| member.presence == presence);
        let count = candidates().count();
        let member = candidates().nth(turn as usize % count.max(1))?;
        Some((member.session, member.wish))
    }
}
