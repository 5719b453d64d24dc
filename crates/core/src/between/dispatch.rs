//! What comes from other shards: each envelope to who knows what to do about it.

use tidegate_control::Timestamp;

use super::{Batch, Envelope, Unread, VERSION};
use crate::ledger::Loss;
use crate::message::Shareable;
use crate::retained::{RetainOutcome, Stamp};
use crate::route::load_of;
use crate::state::ShardState;
use crate::subscriptions::GroupRef;

impl ShardState {
    pub(crate) fn handle_batch(&mut self, batch: &Batch, now: Timestamp) -> Result<(), Unread> {
        if batch.version != VERSION {
            return Err(Unread::Version(batch.version));
        }
        let from = self.links.position_of(batch.from).ok_or(Unread::Stranger(batch.from))?;
        let (mut bytes, wall) = (&*batch.bytes, self.links.wall());
        while !bytes.is_empty() {
            let envelope = Envelope::read(wall, &mut bytes).ok_or(Unread::Malformed)?;
            self.handle_envelope(from, &envelope, now);
            self.journal.end_whole();
        }
        Ok(())
    }

    fn handle_envelope(&mut self, from: usize, envelope: &Envelope<'_>, now: Timestamp) {
        match *envelope {
            Envelope::Publish { publication, count, routing } => {
                let message = Shareable::new(publication);
                message.routing.set(routing);
                if publication.retain {
                    self.retain_count = self.retain_count.max(count);
                    let kept = self.retain(&message, Stamp { count, from: self.links.address_of(from) }, now);
                    self.stats.retained_memory_budget += u64::from(kept == RetainOutcome::Full);
                }
                self.saturation.begin_message();
                self.route_here(&message, now);
                self.tell_saturated(from, &publication, now);
            }
            Envelope::Saturated { origin, topic, millis } => self.hear_saturated(from, (origin, topic), millis, now),
            Envelope::TurnedAway { origin } => self.saturation.hear_turned_away(origin, now),
            Envelope::Ask { turn } => self.handle_ask(from, turn, now),
            Envelope::Kept { turn } => self.handle_kept(from, turn, now),
            Envelope::Shared { filter, group, publication, tried, routing } => {
                let message = Shareable::new(publication);
                message.routing.set(routing);
                let (policy, sessions, connections) = (&*self.policy, &self.sessions, &self.connections);
                let load = |session| load_of(policy, sessions, connections, session, publication.topic);
                if let Some((session, wish)) = self.subscriptions.pick_local(filter, group, load) {
                    let group = GroupRef { name: group, filter };
                    self.deliver_shared(session, wish, Some(&group), &message, now);
                } else if !self.pass_on(from, (filter, group), &message, tried) {
                    let class = publication.standing.class;
                    self.stats.begin_delivery(class);
                    self.departed.deliveries += 1;
                    self.departed.lose_delivery(Loss::NoMember, class, &mut self.stats);
                }
            }
            Envelope::Interest { filter, interested } => self.subscriptions.set_interest(filter, from, interested),
            Envelope::Group { filter, group, members } => {
                self.subscriptions.set_remote_members(filter, group, from, members);
            }
        }
    }
}
