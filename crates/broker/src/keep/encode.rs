//! Changes of the core as records of the store.

use tidegate_core::persist::{Change, SavedWish, Turn};
use tidegate_store::records::{IDS_MAX, MessageRecord, Record, WishRecord};
use tidegate_store::{Batch, StoreError};

use super::wall::Wall;

/// Records of one batch after which the next one begins, where it may: below what the store takes, with room for one
/// message to a few ten thousand sessions.
const BATCH_RECORDS: usize = 16 * 1024;
/// The same in bytes.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What a turn has to have written, as batches; in order.
pub fn batches(turn: &Turn, wall: &Wall) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut batch = Batch::new();
    for change in &turn.changes {
        if matches!(change, Change::Whole) {
            if batch.len() >= BATCH_RECORDS || batch.bytes() >= BATCH_BYTES {
                batches.push(std::mem::take(&mut batch));
            }
            continue;
        }
        if push(change, wall, &mut batch).is_err() {
            // Full, by one thing alone: then it is not kept as a whole, which costs at most a repetition.
            batches.push(std::mem::take(&mut batch));
            if let Err(error) = push(change, wall, &mut batch) {
                tracing::error!(event = "store_error", %error, "cannot write something down");
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

fn push(change: &Change, wall: &Wall, batch: &mut Batch) -> Result<(), StoreError> {
    let record = match *change {
        Change::Whole => return Ok(()),
        Change::Message(ref message) => {
            let id = message.number();
            return message.read(|message| {
                Record::Message(MessageRecord {
                    id,
                    qos: message.qos.bits(),
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
        Change::Session { session, ref client_id, ref user, expiry, ends } => Record::Session {
            session,
            client_id,
            principal: user.as_deref(),
            expiry_s: u32::try_from(expiry.as_secs()).ok().filter(|seconds| *seconds < u32::MAX),
            ends_ms: ends.map(|at| wall.ms(at)),
        },
        Change::SessionEnded { session } => Record::SessionEnded { session },
        Change::Subscribed { session, ref filter, wish } => {
            let SavedWish { qos, no_local, retain_as_published, id } = wish;
            let (qos, id) = (qos.bits(), id.map(std::num::NonZeroU32::get));
            Record::Subscribed { session, filter, wish: WishRecord { qos, no_local, retain_as_published, id } }
        }
        Change::Unsubscribed { session, ref filter } => Record::Unsubscribed { session, filter },
        Change::Queued { session, place, message, qos, retain, ref ids } => {
            let ids = ids.iter().take(IDS_MAX).map(|id| id.get()).collect();
            Record::Queued { session, place, message, qos: qos.bits(), retain, ids }
        }
        Change::Dequeued { session, place } => Record::Dequeued { session, place },
        Change::Sent { session, place, packet_id } => Record::Sent { session, place, packet_id: packet_id.get() },
        Change::Released { session, place } => Record::Released { session, place },
        Change::InboundNoted { session, packet_id } => Record::InboundNoted { session, packet_id: packet_id.get() },
        Change::InboundReleased { session, packet_id } => {
            Record::InboundReleased { session, packet_id: packet_id.get() }
        }
        Change::Retained { ref topic, message } => Record::Retained { topic, message },
        Change::RetainedCleared { ref topic } => Record::RetainedCleared { topic },
        Change::Will { session, message, delay, due } => {
            let delay_s = u32::try_from(delay.as_secs()).unwrap_or(u32::MAX);
            Record::Will { session, message, delay_s, due_ms: due.map(|at| wall.ms(at)) }
        }
        Change::WillCleared { session } => Record::WillCleared { session },
        Change::Routing { message } => Record::Routing { message },
        Change::Reached { message, session } => Record::Reached { message, session },
        Change::Routed { message } => Record::Routed { message },
    };
    record.push_to(batch)
}
