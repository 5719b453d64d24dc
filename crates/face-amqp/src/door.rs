//! All that a shard speaks AMQP with, as far as time passes: signs of life, credit by the second, and what was counted.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_control::Timestamp;
use tidegate_control::pressure::Level;
use tidegate_core::access::Identity;
use tidegate_core::{ConnId, Hello, Portion, Progress, Shard};

use crate::first::AmqpHello;
use crate::limits::{DRAIN_EVERY, IDLE_SECONDS, INBOUND_MAX, TIMERS_PER_TURN_MAX};
use crate::link::{AmqpLink, beat_of};
use crate::reply::HEARTBEAT;
use crate::{flow, partial, read};

/// What was counted at this door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmqpStats {
    /// Frames that were read.
    pub frames: u64,
    /// Such as broke a rule, and ended a link, a session or a connection.
    pub faults: u64,
    /// Links that were not let in.
    pub links_refused: u64,
    /// Messages that can never be taken.
    pub rejected: u64,
    /// Messages that may come again later.
    pub modified: u64,
    /// Messages that a receiver did not want.
    pub declined: u64,
    /// Messages that a receiver has given back, and was sent again.
    pub returned: u64,
    /// Messages that were lost because the link that they waited for went away.
    pub given_up: u64,
    /// Connections that there are now.
    pub connections: u64,
    /// Links by which is published now.
    pub senders: u64,
    /// Links by which is received now.
    pub receivers: u64,
}

/// Somebody that was let in.
#[derive(Debug)]
pub struct Arrival<'a> {
    pub client_id: &'a str,
    pub identity: Identity,
    pub hello: &'a AmqpHello,
}

#[derive(Debug, Default)]
struct Watched {
    /// How often it wants a sign of life, and when the next is due.
    beat: Option<(Duration, Timestamp)>,
    /// What its timer is set to.
    due: Option<Timestamp>,
    senders: u64,
    receivers: u64,
}

/// The door of one shard.
#[derive(Debug, Default)]
pub struct AmqpDoor {
    watched: BTreeMap<ConnId, Watched>,
    timers: BTreeSet<(Timestamp, ConnId)>,
    stats: AmqpStats,
}

impl AmqpDoor {
    /// What was counted.
    pub fn stats(&self) -> AmqpStats {
        AmqpStats { connections: self.watched.len() as u64, ..self.stats }
    }

    /// When to be called without being told.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Somebody comes in. None: the table of connections is full.
    pub fn enter(&mut self, shard: &mut Shard, arrival: Arrival<'_>, now: Timestamp) -> Option<ConnId> {
        let Arrival { client_id, identity, hello } = arrival;
        let idle_seconds = shard.settings().keep_alive_max.unwrap_or(IDLE_SECONDS).clamp(1, IDLE_SECONDS);
        let mut link = AmqpLink::new(hello.max_frame_size, hello.channel_max, idle_seconds);
        link.is_lasting = !hello.session_expiry.is_zero();
        let core_hello = Hello {
            client_id,
            identity,
            face: Box::new(link),
            objection: None,
            is_clean: hello.session_expiry.is_zero(),
            expiry: hello.session_expiry,
            keep_alive: idle_seconds,
            window: u16::MAX,
            // More than there are deliveries: the face says no before the core has to.
            inbound_max: INBOUND_MAX * 2,
            will: None,
            bytes: hello.bytes,
        };
        let conn = shard.connect(core_hello, now)?;
        if !shard.is_closing(conn) {
            let beat = hello.idle.map(|idle| (beat_of(idle), now + beat_of(idle)));
            self.watched.insert(conn, Watched { beat, ..Watched::default() });
            self.watch(shard, conn, now);
        }
        Some(conn)
    }

    /// Bytes of a connection that were read as this portion.
    pub fn handle_portion(
        &mut self,
        shard: &mut Shard,
        conn: ConnId,
        bytes: &[u8],
        portion: &Portion,
        now: Timestamp,
    ) -> Progress {
        let progress = shard.handle_portion_by(conn, bytes, portion, now, |shard, rest, moment| {
            if rest.is_empty() {
                return tidegate_core::ReadStep::Incomplete { at_least: 8 };
            }
            let step = read::step(shard, conn, rest, moment);
            say(shard, conn);
            step
        });
        self.turn_one(shard, conn, portion.dry_at, now);
        progress
    }

    /// The core has ended a connection.
    pub fn forget(&mut self, conn: ConnId) {
        if let Some(watched) = self.watched.remove(&conn) {
            if let Some(due) = watched.due {
                self.timers.remove(&(due, conn));
            }
            self.stats.senders -= watched.senders;
            self.stats.receivers -= watched.receivers;
        }
    }

    /// Signs of life, and credit by the second.
    pub fn turn(&mut self, shard: &mut Shard, now: Timestamp) {
        for _ in 0..TIMERS_PER_TURN_MAX {
            let Some(&(at, conn)) = self.timers.first().filter(|(at, _)| *at <= now) else { return };
            self.timers.remove(&(at, conn));
            let Some(watched) = self.watched.get_mut(&conn) else { continue };
            watched.due = None;
            let mut is_due = false;
            if let Some((every, next)) = &mut watched.beat
                && *next <= now
            {
                (*next, is_due) = (now + *every, true);
            }
            match shard.face_mut::<AmqpLink>(conn) {
                Some((link, _)) if is_due => link.outgoing.extend_from_slice(&HEARTBEAT),
                Some(_) => {}
                None => {
                    self.forget(conn);
                    continue;
                }
            }
            self.turn_one(shard, conn, now, now);
        }
    }

    /// One connection: its credit, what it has to say, its counters and its timer.
    fn turn_one(&mut self, shard: &mut Shard, conn: ConnId, dry_at: Timestamp, now: Timestamp) {
        partial::end_overdue_partials(shard, conn, now);
        read::confirm(shard, conn, now);
        flow::drain_all(shard, conn);
        let (entitled, is_pressed) = (shard.entitled(conn, dry_at, now), shard.level() > Level::Calm);
        let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
        link.turn_credit(entitled, is_pressed, now);
        let counts = core::mem::take(&mut link.counts);
        let (senders, receivers) = link.links_by_role();
        say(shard, conn);
        let stats = &mut self.stats;
        stats.frames += counts.frames;
        stats.faults += counts.faults;
        stats.links_refused += counts.links_refused;
        stats.rejected += counts.rejected;
        stats.modified += counts.modified;
        stats.declined += counts.declined;
        stats.returned += counts.returned;
        stats.given_up += counts.given_up;
        if let Some(watched) = self.watched.get_mut(&conn) {
            stats.senders = stats.senders + senders - core::mem::replace(&mut watched.senders, senders);
            stats.receivers = stats.receivers + receivers - core::mem::replace(&mut watched.receivers, receivers);
        }
        self.watch(shard, conn, now);
    }

    fn watch(&mut self, shard: &mut Shard, conn: ConnId, now: Timestamp) {
        let own = shard.face_mut::<AmqpLink>(conn).and_then(|(link, _)| {
            let drain = (!link.draining().is_empty()).then(|| now + DRAIN_EVERY);
            [link.credit_due(), link.partial_due(), drain].into_iter().flatten().min()
        });
        let Some(watched) = self.watched.get_mut(&conn) else { return };
        let due = [own, watched.beat.map(|(_, next)| next)].into_iter().flatten().min();
        if watched.due == due {
            return;
        }
        if let Some(before) = core::mem::replace(&mut watched.due, due) {
            self.timers.remove(&(before, conn));
        }
        self.timers.extend(due.map(|due| (due, conn)));
    }
}

/// What a connection has to say of itself: at once, in the order of its messages; and what ends something, behind the answers
/// that wait.
fn say(shard: &mut Shard, conn: ConnId) {
    let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) else { return };
    let ends = !link.closing.is_empty();
    if !link.outgoing.is_empty() {
        shard.say_due(conn);
    }
    if ends && let Some((link, _)) = shard.face_mut::<AmqpLink>(conn) {
        link.is_closing_due = true;
        shard.say_in_turn(conn);
    }
}
