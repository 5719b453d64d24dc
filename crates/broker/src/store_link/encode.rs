//! Changes of the core as records of the store.

use tidegate_core::persist::{StoreChange, StoredMessage, Turn};
use tidegate_store::{FRAME_BYTES, Location, Position, RecordBatch, StoreError};

use super::disk_address::spot_of;
use super::owner::owner_text;
use super::records::{IDS_MAX, MessageRecord, Record};
use super::wall_clock::WallClock;

/// Records of one batch after which the next one begins, where it may: below what the store takes, with room for one
/// message to a few ten thousand sessions.
const BATCH_RECORDS: usize = 16 * 1024;
/// The same in bytes.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// A batch, and the messages in it.
#[derive(Debug, Default)]
pub struct Written {
    /// What is to be written.
    pub batch: RecordBatch,
    pub(super) messages: Messages,
}

/// Messages of a batch, which may leave memory when it is known where they are.
#[derive(Debug, Default)]
pub struct Messages(Vec<Placed>);

#[derive(Debug)]
struct Placed {
    message: StoredMessage,
    number: u64,
    /// From the beginning of the batch, and the length of its record.
    at: u64,
    len: u32,
}

impl Messages {
    /// The batch stands here.
    pub fn tell(&self, batch: Position) {
        for Placed { message, number, at, len } in &self.0 {
            let location = Location { file: batch.file, offset: batch.offset + at, len: *len };
            if let Some(spot) = spot_of(location) {
                message.set_spot(*number, spot);
            }
        }
    }
}

impl Written {
    /// Takes out the batch, for who has to hand it over, and the messages.
    pub fn split(self) -> (RecordBatch, Messages) {
        (self.batch, self.messages)
    }

    fn push(&mut self, change: &StoreChange, wall: &WallClock) -> Result<(), StoreError> {
        let at = self.batch.bytes();
        push(change, wall, &mut self.batch)?;
        if let StoreChange::Message(message) = change {
            let len = (self.batch.bytes() - at - FRAME_BYTES) as u32;
            self.messages.0.push(Placed { message: message.clone(), number: message.number(), at: at as u64, len });
        }
        Ok(())
    }
}

/// What a turn has to have written, as batches; in order.
pub fn batches(turn: &Turn, wall: &WallClock) -> Vec<Written> {
    let mut batches = Vec::new();
    let mut written = Written::default();
    for change in &turn.changes {
        if matches!(change, StoreChange::Whole) {
            if written.batch.len() >= BATCH_RECORDS || written.batch.bytes() >= BATCH_BYTES {
                batches.push(std::mem::take(&mut written));
            }
            continue;
        }
        if written.push(change, wall).is_err() {
            // Full, by one thing alone: then it is not kept as a whole, which costs at most a repetition.
            batches.push(std::mem::take(&mut written));
            if let Err(error) = written.push(change, wall) {
                tracing::error!(event = "store_error", %error, "cannot write something down");
            }
        }
    }
    if !written.batch.is_empty() {
        batches.push(written);
    }
    batches
}

fn push(change: &StoreChange, wall: &WallClock, batch: &mut RecordBatch) -> Result<(), StoreError> {
    let record = match *change {
        StoreChange::Whole => return Ok(()),
        StoreChange::Message(ref message) => {
            let id = message.number();
            return message.read(|message| {
                Record::Message(MessageRecord {
                    id,
                    qos: message.qos,
                    retain: message.retain,
                    expires_ms: message.expires.map(|at| wall.ms(at)),
                    origin: message.origin,
                    standing: message.standing,
                    topic: message.topic,
                    properties: message.properties,
                    payload: message.payload,
                })
                .push_to(batch)
            });
        }
        StoreChange::Session { session, ref client_id, owner: ref whose, expiry, ends } => {
            let expiry_s = u32::try_from(expiry.as_secs()).ok().filter(|seconds| *seconds < u32::MAX);
            let (owner, ends_ms) = (owner_text(whose), ends.map(|at| wall.ms(at)));
            let record = Record::Session { session, client_id, principal: owner.as_deref(), expiry_s, ends_ms };
            return record.push_to(batch);
        }
        StoreChange::SessionEnded { session } => Record::SessionEnded { session },
        StoreChange::Subscribed { session, ref filter, wish } => Record::Subscribed { session, filter, wish },
        StoreChange::Unsubscribed { session, ref filter } => Record::Unsubscribed { session, filter },
        StoreChange::Queued { session, place, message, qos, retain, ref ids } => {
            let ids = ids.iter().take(IDS_MAX).copied().collect();
            Record::Queued { session, place, message, qos, retain, ids }
        }
        StoreChange::Dequeued { session, place } => Record::Dequeued { session, place },
        StoreChange::Sent { session, place, packet_id } => Record::Sent { session, place, packet_id },
        StoreChange::Released { session, place } => Record::Released { session, place },
        StoreChange::InboundNoted { session, packet_id } => Record::InboundNoted { session, packet_id },
        StoreChange::InboundReleased { session, packet_id } => Record::InboundReleased { session, packet_id },
        StoreChange::Retained { ref topic, message } => Record::Retained { topic, message },
        StoreChange::RetainedCleared { ref topic } => Record::RetainedCleared { topic },
        StoreChange::Will { session, message, delay, due } => {
            let delay_s = u32::try_from(delay.as_secs()).unwrap_or(u32::MAX);
            Record::Will { session, message, delay_s, due_ms: due.map(|at| wall.ms(at)) }
        }
        StoreChange::WillCleared { session } => Record::WillCleared { session },
        StoreChange::Routing { message } => Record::Routing { message },
        StoreChange::Reached { message, session } => Record::Reached { message, session },
        StoreChange::ReachedGroup { message, ref group } => Record::ReachedGroup { message, group },
        StoreChange::Routed { message } => Record::Routed { message },
    };
    record.push_to(batch)
}
