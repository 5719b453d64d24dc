//! A shared subscription on one filter: its members here and on other shards, and who gets the next message: of those
//! that are connected the one with the least before it, by turns among equals. So one that is stuck gets nothing while
//! another is idle. Of other shards only the number of members is known; they choose among their own, and are asked when
//! nobody is idle here; at QoS 0, where nobody knows who is, by turns.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tidegate_wire_mqtt::QoS;

use super::SubscriberOptions;
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
pub(super) struct SharedGroup {
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
    Local(u32, SubscriberOptions),
    /// To this shard, which picks among its own.
    Remote(usize),
}

impl SharedGroup {
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
    pub(super) fn join(&mut self, session: u32, wish: SubscriberOptions) -> Option<SubscriberOptions> {
        let before = self.offline.remove(session);
        self.online.insert(session, wish).or(before)
    }

    pub(super) fn leave(&mut self, session: u32) -> Option<SubscriberOptions> {
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

    /// For a message of this quality of service. `load`: what lies before a session here; see [`Load`].
    pub(super) fn pick(&mut self, qos: QoS, load: impl Fn(u32) -> Load) -> Option<Pick> {
        let local = self.members();
        self.turn = self.turn.wrapping_add(1);
        for presence in [Presence::Online, Presence::Offline] {
            let count = |members: &Members| match presence {
                Presence::Online => members.online,
                Presence::Offline => members.offline,
            };
            let away: u32 = self.remote.iter().map(|(_, members)| count(members)).sum();
            let total = count(&local) + away;
            if total == 0 {
                continue;
            }
            let turn = self.turn % total;
            let here = self.least(presence, turn, &load);
            // Whoever is idle here takes it, whoever's turn it is: nothing is known of those elsewhere, who may be stuck. At
            // QoS 0 nobody says when it is done, so who has nothing before it may be busy all the same.
            if let Some((session, wish, Load::IDLE)) = here
                && presence == Presence::Online
                && qos.min(wish.qos) > QoS::AtMostOnce
            {
                return Some(Pick::Local(session, wish));
            }
            // Whoever is behind here leaves it to those elsewhere.
            if let Some((session, wish, load)) = here
                && (turn < count(&local) || away == 0)
                && (load < Load::WAITING || away == 0)
            {
                return Some(Pick::Local(session, wish));
            }
            let mut turn = if turn < count(&local) { self.turn % away.max(1) } else { turn - count(&local) };
            for (shard, members) in &self.remote {
                if turn < count(members) {
                    return Some(Pick::Remote(*shard));
                }
                turn -= count(members);
            }
        }
        None
    }

    /// Who it is among those here.
    pub(super) fn pick_local(&mut self, load: impl Fn(u32) -> Load) -> Option<(u32, SubscriberOptions)> {
        self.turn = self.turn.wrapping_add(1);
        let online = self.least(Presence::Online, self.turn, &load);
        let found = online.or_else(|| self.least(Presence::Offline, self.turn, &load));
        found.map(|(session, wish, _)| (session, wish))
    }

    /// The one with the least before it that may have the message, looking from whose turn it is; not at all of very many.
    fn least(
        &self,
        presence: Presence,
        turn: u32,
        load: impl Fn(u32) -> Load,
    ) -> Option<(u32, SubscriberOptions, Load)> {
        let candidates = match presence {
            Presence::Online => self.online.as_slice(),
            Presence::Offline => self.offline.as_slice(),
        };
        let start = turn as usize % candidates.len().max(1);
        let from_there = candidates[start..].iter().chain(&candidates[..start]);
        let mut least = None;
        for &(session, wish) in from_there.take(CANDIDATES_MAX) {
            let load = load(session);
            if load == Load::FORBIDDEN {
                continue;
            }
            if load == Load::IDLE {
                return Some((session, wish, load));
            }
            if least.is_none_or(|(_, _, lowest)| load < lowest) {
                least = Some((session, wish, load));
            }
        }
        least
    }
}

/// What lies before a member of a group: messages that wait, then those under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load(u64);

impl Load {
    /// Nothing.
    pub(crate) const IDLE: Self = Self(0);
    /// It may not have the message.
    pub(crate) const FORBIDDEN: Self = Self(u64::MAX);
    /// Something waits that could not be sent at once.
    const WAITING: Self = Self(1 << 32);

    /// So many messages wait, are under way, or lie in an outbox as so many bytes.
    pub(crate) fn new(waiting: usize, under_way: usize, outbox: usize) -> Self {
        let under_way = (under_way + outbox / BYTES_OF_ONE).min(u32::MAX as usize) as u64;
        Self((waiting as u64) << 32 | under_way)
    }
}

/// Members that are looked at for one message.
const CANDIDATES_MAX: usize = 64;
/// Bytes of an outbox that count as one message under way: less is on its way within this turn.
const BYTES_OF_ONE: usize = 512;
