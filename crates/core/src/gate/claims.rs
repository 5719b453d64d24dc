//! What the driver asks before it reads, and what a publisher hears that is read more slowly than it sends.
//!
//! *Reading.* Whoever has something unread stands by the claim of its next message ([`Shard::reading`](crate::Shard::reading)). Who never
//! published subscribes, acknowledges or pings: that is entitled, within bounds (`silent`), because what others sent waits
//! for it.
//!
//! *Hints.* Who has not been read dry for a second is told once a second which interval would do: 0.8 s by the number of
//! messages that were taken in the second before, or the mean of the seconds since the message before. In the first
//! second that is not known, and nothing is said. That is a quarter faster than it is served, so that it keeps its
//! place, and finds out when there is more. MQTT 5 hears it as `pace-interval-ms` on a *successful* PUBACK or PUBREC;
//! at QoS 0, and before MQTT 5, on `$SYS/broker/pace/<client>`. Rounded down, never up: who obeys is not to get less than
//! who does not. Intervals below a millisecond cannot be said, and are not.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::claim::{CALM_WINDOW, Colour};
use tidegate_control::hints::Hints;
use tidegate_control::order::Standing;
use tidegate_wire_mqtt::Delivery;

use super::publisher::Publisher;
use super::publishers::key_of;
use crate::access::Identity;
use crate::classes::{ClassId, PriorityMode};
use crate::connection::Connection;
use crate::session::Session;
use crate::shard::ConnId;
use crate::state::ShardState;

/// How a connection with something to read stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Who it shares with: its user, or its network; each for itself where nobody is watched.
    pub parent: u64,
    /// How it stands among others.
    pub standing: Standing,
}

impl ShardState {
    pub(crate) fn reading(&self, conn: ConnId, dry_at: Timestamp, now: Timestamp) -> Reading {
        let alone = 1 << 62 | u64::from(conn.index);
        let stranger = Standing { entitled_at: Timestamp::MAX, weight: 1, grant: 0 };
        let connection = self.connection(conn);
        let session = connection.and_then(|connection| self.sessions.get(connection.session()));
        let (Some(connection), Some(session), Some(plan)) = (connection, session, self.gate.plan()) else {
            return Reading { parent: alone, standing: stranger };
        };
        // Of whom neither user nor address is known, nobody knows whom it belongs to.
        let parent = if session.parent() == 0 { alone } else { session.parent() };
        let mut standing = Standing { weight: self.read_weight(session), ..stranger };
        let Some(publisher) = session.publisher().and_then(|slot| self.gate.publishers.get(slot)) else {
            return Reading {
                parent,
                standing: Standing { entitled_at: connection.silent().entitled_at(now), ..standing },
            };
        };
        let (claim, plan) = (&publisher.claim, plan.claim());
        if let Some(rate) = claim.rate() {
            let missing = 1.0 - claim.tokens_at(&plan, now, dry_at);
            standing.entitled_at = match missing {
                missing if missing <= 0.0 => Timestamp::ZERO,
                missing => now + Duration::from_secs_f32((missing / (rate * plan.headroom)).clamp(1e-4, 1e6)),
            };
            standing.grant = if claim.is_granted() { rate.clamp(1.0, 1e6) as u32 } else { 0 };
        }
        Reading { parent, standing }
    }

    pub(crate) fn entitled(&self, conn: ConnId, dry_at: Timestamp, now: Timestamp) -> u32 {
        let Some(connection) = self.connection(conn) else { return 0 };
        let (Some(session), Some(plan)) = (self.sessions.get(connection.session()), self.gate.plan()) else { return 0 };
        match session.publisher().and_then(|slot| self.gate.publishers.get(slot)) {
            Some(publisher) => publisher.claim.tokens_at(&plan.claim(), now, dry_at) as u32,
            None => connection.silent().tokens(now),
        }
    }

    /// By a class of the operator's. Ranks by rate are none: who is rare comes first anyway.
    fn read_weight(&self, session: &Session) -> u32 {
        let priority = &self.settings.priority;
        if priority.mode == PriorityMode::Off {
            return 1;
        }
        match session.class() {
            Some(class) if ![ClassId::HIGH, ClassId::LOW, ClassId::SYS].contains(&class) => {
                priority.classes.weight(class)
            }
            _ => priority.classes.weight(ClassId::NORMAL),
        }
    }

    /// A message was taken of somebody who has not been read dry for a second: the interval that would do, for its
    /// acknowledgement, if there is one to carry it.
    #[cold]
    pub(crate) fn pace_hint(
        &mut self,
        conn: ConnId,
        index: u32,
        delivery: Delivery,
        now: Timestamp,
    ) -> Option<Duration> {
        let connection = self.connection_mut(conn)?;
        if !connection.take_hint(HINT_EVERY, now) {
            return None;
        }
        let hears_hints = connection.hears_refusals();
        self.note_slowed(index, now, now);
        let slot = self.sessions.get(index)?.publisher()?;
        let interval = self.gate.publishers.get(slot).and_then(served_interval)?;
        if hears_hints && delivery != Delivery::AtMostOnce {
            return Some(interval);
        }
        let hints = Hints { interval: Some(interval), ..Hints::default() };
        self.publish_notice(index, "read more slowly than it sends", &hints, now);
        None
    }

    /// A message passes of somebody who has not been read dry for a second: whoever asks why hears it.
    #[cold]
    pub(crate) fn note_unread(&mut self, conn: ConnId, index: u32, now: Timestamp) {
        let Some(connection) = self.connection_mut(conn) else { return };
        if connection.take_hint(HINT_EVERY, now) {
            self.note_slowed(index, now, now);
        }
    }

    /// Its messages were not taken, or reached nobody, because all receivers were full: what it sends now is not what it
    /// would like to send, and nothing is learned from it.
    pub(crate) fn note_crowded_out(&mut self, index: u32) {
        let slot = self.sessions.get(index).and_then(Session::publisher);
        if let Some(publisher) = slot.and_then(|slot| self.gate.publishers.get_mut(slot)) {
            publisher.claim.on_refused();
        }
    }
}

impl ShardState {
    /// How a client's will stands: by its claim, as any message of its. Those of strangers are in excess.
    pub(crate) fn colour_of_will(&mut self, identity: &Identity, client_id: &str, now: Timestamp) -> Colour {
        if self.gate.plan().is_none() {
            return Colour::Entitled;
        }
        let plan = self.gate.claim_plan();
        let slot = self.gate.publishers.find(&key_of(identity, client_id));
        let all = slot.and_then(|slot| self.gate.publishers.get_all(slot));
        let Some((publisher, _, parents)) = all else { return Colour::Excess };
        publisher.end_second(&plan, now, now, parents);
        publisher.claim.on_message(&plan, now, now)
    }

    /// A message was refused because all its receivers are full, and will be until then: whoever asks is told so.
    #[cold]
    pub(crate) fn note_full_receivers(&mut self, index: u32, until: Timestamp) {
        if let Some(trouble) = self.trouble_of(index) {
            trouble.note_receivers_full(until);
        }
    }
}

/// The interval that goes with what a publisher was served, as it can be said.
fn served_interval(publisher: &Publisher) -> Option<Duration> {
    // Of whom nothing is known yet, in its first second, nothing is said: a guess would be an allowance that is none.
    let served = Some(publisher.claim.served()).filter(|served| *served > 0.0)?;
    // Counts are kept to a part in two thousand: an even number stays one.
    let millis = (800.0 / served + 0.01) as u64;
    (millis > 0).then(|| Duration::from_millis(millis))
}

impl Connection {
    /// Since when it has not been read dry, if that is long.
    pub(crate) fn unread_at(&self, now: Timestamp) -> Option<Timestamp> {
        let is_unread = self.seen_at().since(self.dry_at()) > CALM_WINDOW && now.since(self.seen_at()) < UNREAD_SHOWN;
        is_unread.then_some(self.dry_at())
    }
}

/// A word a second is enough.
const HINT_EVERY: Duration = Duration::from_secs(1);
/// Who was not read for this long is either silent or behind everybody; nobody knows which.
const UNREAD_SHOWN: Duration = Duration::from_secs(10);
