//! Who goes on sending what nobody has room for is read slower: what is read only to be thrown away, or refused, takes the
//! time of everybody else.
//!
//! After [`TURNED_AWAY_MAX`] messages in a row of which no receiver let one in, the connection that they came by is not
//! read for [`TURNED_AWAY_PAUSE`]. One message that somebody takes begins the count anew, and a queue that would run dry
//! meanwhile ([`Full::lasts`](super::Full)) counts for nothing: nobody gets less for it, and nobody is locked out.
//!
//! A shard whose receivers turn away what another one sends says so ([`Envelope::TurnedAway`]), and the other one does not
//! read that client for a moment when it goes on. Time is an argument; driven by `input` and `route`.

use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;

use super::full::LASTS_FOR;
use super::{Envelope, Reach};
use crate::connection::Pause;
use crate::message::Publication;
use crate::shard::ConnId;
use crate::state::ShardState;

/// So many in this time are next to nothing for a shard, and who sends a thousand of them before one that somebody wants
/// is held up by some hundredths of a second.
const TURNED_AWAY_MAX: u32 = 64;
const TURNED_AWAY_PAUSE: Duration = Duration::from_millis(1);
/// Clients whom other shards turn away that are remembered until they send on, a few milliseconds; others are just read.
const HEARD_MAX: usize = 64;

/// What a shard knows of this.
#[derive(Debug, Default)]
pub(crate) struct TurnedAway {
    /// Messages in a row, of those that are being read now.
    run: u32,
    /// The same of those that another shard sends, and whose they are.
    sent: (u64, u32),
    /// Clients of whom other shards have said so, and when.
    heard: Vec<(u64, Timestamp)>,
}

impl TurnedAway {
    /// Another connection is read, or somebody takes a message.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.run = 0;
    }

    /// A message was for nobody.
    pub(super) fn count(&mut self) {
        self.run += 1;
    }

    #[inline]
    pub(crate) fn is_too_many(&self) -> bool {
        self.run >= TURNED_AWAY_MAX
    }

    /// A message has gone to one other shard alone, which may have said that nobody there has room.
    pub(super) fn note_sent_on(&mut self, origin: u64, now: Timestamp) {
        let place = self.heard.iter().position(|(of, _)| *of == origin);
        if place.is_some_and(|place| now.since(self.heard.swap_remove(place).1) < LASTS_FOR) {
            self.run = TURNED_AWAY_MAX;
        }
    }

    /// A message from another shard has been given to those here. True if that shard is to be told.
    fn is_worth_telling(&mut self, origin: u64, reach: Reach) -> bool {
        let (last, count) = self.sent;
        let count = match reach.is_for_nobody() {
            true if last == origin => count + 1,
            is_first => u32::from(is_first),
        };
        let is_worth_telling = count >= TURNED_AWAY_MAX;
        self.sent = (origin, if is_worth_telling { 0 } else { count });
        is_worth_telling
    }

    /// Another shard turns this client away.
    pub(crate) fn hear(&mut self, origin: u64, now: Timestamp) {
        self.heard.retain(|(_, at)| now.since(*at) < LASTS_FOR);
        if self.heard.len() < HEARD_MAX {
            self.heard.push((origin, now));
        }
    }
}

impl ShardState {
    /// So many messages in a row were for nobody.
    #[cold]
    pub(crate) fn pause_turned_away(&mut self, conn: ConnId, now: Timestamp) {
        self.saturation.turned_away.begin();
        self.pause_as(conn, Pause { since: now, until: now + TURNED_AWAY_PAUSE, is_brief: true }, now);
    }

    /// A message came from another shard, and was given to those here.
    #[inline]
    pub(super) fn tell_turned_away(&mut self, from: usize, publication: &Publication<'_>) {
        let saturation = &mut self.saturation;
        if saturation.turned_away.is_worth_telling(publication.origin, saturation.reach) {
            self.links.send(from, &Envelope::TurnedAway { origin: publication.origin });
        }
    }
}
