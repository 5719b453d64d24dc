//! An image as the state that compactions read a log into, and write down.

use tidegate_store::{Location, LogState, Placement, RawRecord, SnapshotSink, StoreError};

use super::super::Record;
use super::{DeliveryStage, Outline, QueueEntry, SessionImage, StoreImage, WillImage};

impl LogState for StoreImage {
    fn apply(&mut self, record: RawRecord<'_>, at: Location) -> Result<(), StoreError> {
        match Record::decode(record)? {
            Some(record) => self.take(record, at),
            None => self.skipped += 1,
        }
        Ok(())
    }

    fn live(&self, each: &mut dyn FnMut(Location)) {
        self.messages.values().filter(|stored| stored.users > 0).for_each(|stored| each(stored.at));
    }

    fn dump(&self, sink: &mut dyn SnapshotSink) -> Result<(), StoreError> {
        let mut put = |record: &Record<'_>| record.with_raw(|raw| sink.push(raw));
        put(&Record::Numbers { id_max: self.id_max })?;
        put(&Record::Clock { now_ms: self.clock_ms })?;
        for (subject, until_ms, reason) in self.bans() {
            put(&Record::Ban { subject, until_ms, reason })?;
        }
        for (subject, interval_ns, burst) in self.limits() {
            put(&Record::Limit { subject, interval_ns, burst })?;
        }
        for (key, seen_ms, state) in self.rhythms() {
            put(&Record::Rhythm { key, seen_ms, state })?;
        }
        // In the order of the files: what is copied is read from front to back.
        let mut messages: Vec<(Location, u64)> =
            self.messages.iter().filter(|(_, stored)| stored.users > 0).map(|(&id, stored)| (stored.at, id)).collect();
        messages.sort_unstable();
        for (at, id) in messages {
            if sink.keep(at)? == Placement::InPlace {
                let record = match self.outline(id) {
                    Some(Outline { origin, bytes, class }) => {
                        Record::MessageStands { id, at, origin, bytes, class: class.into() }
                    }
                    None => Record::MessageAt { id, at },
                };
                record.with_raw(|raw| sink.push(raw))?;
            }
        }
        let mut put = |record: &Record<'_>| record.with_raw(|raw| sink.push(raw));
        for (topic, &message) in &self.retained {
            put(&Record::Retained { topic, message })?;
        }
        for (&message, reached) in &self.routing {
            put(&Record::Routing { message })?;
            for &session in &reached.sessions {
                put(&Record::Reached { message, session })?;
            }
            for group in &reached.groups {
                put(&Record::ReachedGroup { message, group })?;
            }
        }
        for (&session, image) in &self.sessions {
            image.dump(session, &mut put)?;
        }
        Ok(())
    }
}

impl SessionImage {
    fn dump(&self, session: u64, put: &mut dyn FnMut(&Record<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let (client_id, principal) = (&*self.client_id, self.principal.as_deref());
        put(&Record::Session { session, client_id, principal, expiry_s: self.expiry_s, ends_ms: self.ends_ms })?;
        for (filter, &wish) in &self.subscriptions {
            put(&Record::Subscribed { session, filter, wish })?;
        }
        for &packet_id in &self.inbound {
            put(&Record::InboundNoted { session, packet_id })?;
        }
        if let Some(WillImage { message, delay_s, due_ms }) = self.will {
            put(&Record::Will { session, message, delay_s, due_ms })?;
        }
        for (&place, entry) in &self.queue {
            let &QueueEntry { message, qos, retain, stage, .. } = entry;
            if let DeliveryStage::Released(packet_id) = stage {
                put(&Record::ReleasedAt { session, place, packet_id })?;
                continue;
            }
            let ids = entry.ids.as_deref().unwrap_or_default().to_vec();
            put(&Record::Queued { session, place, message, qos, retain, ids })?;
            if let DeliveryStage::Sent(packet_id) = stage {
                put(&Record::Sent { session, place, packet_id })?;
            }
        }
        Ok(())
    }
}
