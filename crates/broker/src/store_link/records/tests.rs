//! Records read back as they were written, damaged ones are refused, and a snapshot with a tail says what all records
//! said.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use tidegate_store::disk::sim::{Crash, SimDisk};
use tidegate_store::{FileId, Log, LogOptions, LogState};

use super::*;

const TIME: std::ops::Range<u64> = 0..1 << 50;
const TEXTS: [&str; 4] = ["", "a", "plant/7/temperature", "gerät/ü"];

fn text() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&TEXTS[..])
}

fn qos() -> impl Strategy<Value = QoS> {
    (0..3u8).prop_map(|bits| QoS::from_bits(bits).unwrap())
}

fn packet_id(ids: std::ops::RangeInclusive<u16>) -> impl Strategy<Value = PacketId> {
    ids.prop_map(|id| PacketId::new(id).unwrap())
}

fn wish() -> impl Strategy<Value = SubscriberOptions> {
    (qos(), any::<bool>(), any::<bool>(), any::<bool>(), option::of(any::<NonZeroU32>())).prop_map(
        |(qos, no_local, retain_as_published, is_latest, id)| SubscriberOptions {
            qos,
            no_local,
            retain_as_published,
            is_latest,
            id,
        },
    )
}

fn message() -> impl Strategy<Value = Record<'static>> {
    let payload = proptest::sample::select(vec![&b""[..], b"21.5", &[7; 300]]);
    (1..9u64, qos(), any::<bool>(), option::of(TIME), 0..4u64, option::of(TIME), text(), payload).prop_map(
        |(id, qos, retain, expires_ms, origin, standing, topic, payload)| {
            let properties: &[u8] = if retain { &[1, 2, 3] } else { &[] };
            let message = MessageRecord { id, qos, retain, expires_ms, origin, standing, topic, properties, payload };
            Record::Message(message)
        },
    )
}

/// Few sessions, places and messages, so that records meet.
fn record() -> impl Strategy<Value = Record<'static>> {
    let (session, place, message_id) = (1..4u64, 1..7u64, 1..9u64);
    let queued =
        (session.clone(), place.clone(), message_id.clone(), qos(), any::<bool>(), vec(any::<NonZeroU32>(), 0..3))
            .prop_map(|(session, place, message, qos, retain, ids)| Record::Queued {
                session,
                place,
                message,
                qos,
                retain,
                ids,
            });
    let s = || 1..4u64;
    prop_oneof![
        8 => message(),
        12 => queued,
        4 => (s(), text(), option::of(text()), option::of(any::<u32>()), option::of(TIME)).prop_map(
            |(session, client_id, principal, expiry_s, ends_ms)| Record::Session {
                session, client_id, principal, expiry_s, ends_ms
            }
        ),
        1 => s().prop_map(|session| Record::SessionEnded { session }),
        2 => (s(), text(), wish()).prop_map(|(session, filter, wish)| Record::Subscribed { session, filter, wish }),
        1 => (s(), text()).prop_map(|(session, filter)| Record::Unsubscribed { session, filter }),
        5 => (s(), place.clone()).prop_map(|(session, place)| Record::Dequeued { session, place }),
        5 => (s(), place.clone(), packet_id(1..=u16::MAX))
            .prop_map(|(session, place, packet_id)| Record::Sent { session, place, packet_id }),
        4 => (s(), place).prop_map(|(session, place)| Record::Released { session, place }),
        2 => (s(), packet_id(1..=4)).prop_map(|(session, packet_id)| Record::InboundNoted { session, packet_id }),
        1 => (s(), packet_id(1..=4)).prop_map(|(session, packet_id)| Record::InboundReleased { session, packet_id }),
        2 => message_id.clone().prop_map(|message| Record::Routing { message }),
        2 => (message_id.clone(), 0..4u64).prop_map(|(message, session)| Record::Reached { message, session }),
        2 => (message_id.clone(), text()).prop_map(|(message, group)| Record::ReachedGroup { message, group }),
        1 => message_id.clone().prop_map(|message| Record::Routed { message }),
        3 => (text(), message_id.clone()).prop_map(|(topic, message)| Record::Retained { topic, message }),
        1 => text().prop_map(|topic| Record::RetainedCleared { topic }),
        2 => (s(), message_id, any::<u32>(), option::of(TIME)).prop_map(|(session, message, delay_s, due_ms)| {
            Record::Will { session, message, delay_s, due_ms }
        }),
        1 => s().prop_map(|session| Record::WillCleared { session }),
        1 => (text(), TIME).prop_map(|(key, seen_ms)| Record::Rhythm { key, seen_ms, state: b"rhythm" }),
        1 => text().prop_map(|key| Record::RhythmForgotten { key }),
        1 => (text(), option::of(TIME), text())
            .prop_map(|(subject, until_ms, reason)| Record::Ban { subject, until_ms, reason }),
        1 => text().prop_map(|subject| Record::BanLifted { subject }),
        1 => (text(), any::<u64>(), any::<u32>())
            .prop_map(|(subject, interval_ns, burst)| Record::Limit { subject, interval_ns, burst }),
        1 => text().prop_map(|subject| Record::LimitLifted { subject }),
        1 => TIME.prop_map(|now_ms| Record::Clock { now_ms }),
    ]
}

/// A message comes in the same batch as the first who needs it.
fn with_messages(records: Vec<Record<'static>>, so_far: &StoreImage) -> Vec<Record<'static>> {
    let known = so_far.live_messages();
    let mut batch = Vec::new();
    for record in &records {
        let (Record::Queued { message: id, .. }
        | Record::Retained { message: id, .. }
        | Record::Routing { message: id }
        | Record::Will { message: id, .. }) = *record
        else {
            continue;
        };
        if !known.iter().any(|(known, _)| *known == id) {
            let (topic, properties, payload) = ("added", &[][..], &b"payload"[..]);
            let (expires_ms, origin, standing) = (None, 0, Some(300));
            let retain = false;
            let message = MessageRecord {
                id,
                qos: QoS::AtLeastOnce,
                retain,
                expires_ms,
                origin,
                standing,
                topic,
                properties,
                payload,
            };
            batch.push(Record::Message(message));
        }
    }
    batch.extend(records);
    batch
}

/// The naive way: what a batch means is what its records mean, one after the other.
fn apply_all(batches: &[Vec<Record<'static>>]) -> StoreImage {
    let mut image = StoreImage::default();
    let nowhere = Location { file: FileId::segment(1), offset: 0, len: 0 };
    for record in batches.iter().flatten() {
        record.with_raw(|raw| image.apply(raw, nowhere)).unwrap();
    }
    image
}

fn open(disk: &SimDisk) -> (Log<SimDisk>, StoreImage) {
    let mut image = StoreImage::default();
    let options = LogOptions { segment_bytes: 1000, ..LogOptions::default() };
    let (log, report) = Log::open(disk.boot(), options, |record, at| image.apply(record, at)).unwrap();
    assert!(report.is_sound(), "{report}");
    (log, image)
}

proptest! {
    #[test]
    fn records_read_back(record in record()) {
        record.with_raw(|raw| {
            assert_eq!(Record::decode(raw).unwrap().as_ref(), Some(&record));
        });
    }

    /// Whatever is accepted has one spelling only; nothing panics.
    #[test]
    fn mutated_records_are_refused_or_mean_what_they_say(
        record in record(), position: prop::sample::Index, byte: u8, cut: prop::sample::Index, tag: Option<u8>
    ) {
        let mut payload = record.with_raw(|raw| raw.payload.to_vec());
        if !payload.is_empty() {
            let at = position.index(payload.len());
            payload[at] = byte;
            payload.truncate(cut.index(payload.len() * 2));
        }
        let tag = tag.unwrap_or(record.tag());
        let raw = RawRecord { tag, version: VERSION, is_skippable: false, payload: &payload };
        if let Ok(Some(record)) = Record::decode(raw) {
            record.with_raw(|again| assert_eq!(again.payload, raw.payload, "{record:?}"));
        }
    }

    /// Compactions and crashes anywhere: snapshot and tail say what all records said, and each message that somebody
    /// needs is read back.
    #[test]
    fn a_snapshot_and_its_tail_are_all_records(
        batches in vec((vec(record(), 1..6), 0..8u8), 1..40)
    ) {
        let disk = SimDisk::new(1);
        let (mut log, _) = open(&disk);
        let mut written = Vec::new();
        for (records, what) in batches {
            let records = with_messages(records, &apply_all(&written));
            let mut batch = RecordBatch::new();
            for record in &records {
                record.push_to(&mut batch).unwrap();
            }
            log.append(&[batch], &mut Vec::new()).unwrap();
            log.sync().unwrap();
            if log.is_segment_full() {
                log.rotate().unwrap();
            }
            written.push(records);
            match what {
                0 => drop(log.compact::<StoreImage>().unwrap()),
                1 => {
                    disk.crash(Crash::LoseUnsynced);
                    log = open(&disk).0;
                }
                _ => {}
            }
        }
        let expected = apply_all(&written).essence();
        drop(log);
        let (mut log, found) = open(&disk);
        assert_eq!(found.essence(), expected);
        for (id, at) in found.live_messages() {
            let mut payload = Vec::new();
            log.read(at, &mut payload).unwrap();
            let raw = RawRecord { tag: MESSAGE, version: VERSION, is_skippable: false, payload: &payload };
            let read = Record::decode(raw).unwrap();
            assert!(matches!(&read, Some(Record::Message(message)) if message.id == id), "{read:?}");
        }
    }
}

#[test]
fn unknown_records_are_passed_over_only_if_they_may_be() {
    let unknown = |is_skippable, tag, version| RawRecord { tag, version, is_skippable, payload: b"whatever" };
    assert_eq!(Record::decode(unknown(true, 99, 1)).unwrap(), None);
    assert_eq!(Record::decode(unknown(true, MESSAGE, 2)).unwrap(), None);
    assert!(Record::decode(unknown(false, 99, 1)).unwrap_err().to_string().contains("tag 99"));
    assert!(Record::decode(unknown(false, MESSAGE, 2)).unwrap_err().to_string().contains("version"));
}

/// Compacted, and opened again.
#[test]
fn a_class_outlives_a_compaction() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    let mut batch = RecordBatch::new();
    // Of 300 the lowest seven bits are 44.
    let cases = (0..=8).map(|class| (Some(class), class as u8 + 1)).chain([(Some(300), 45), (None, 0)]);
    // A topic that tells the class is still known to, and the highest class there could be stays one.
    let cases = cases.chain([(Some(0x83), 0x84), (Some(0x7f), 0x7f), (Some(0xff), 0xff)]);
    for (id, (standing, _)) in (1..).zip(cases.clone()) {
        let (retain, expires_ms, origin, topic, properties) = (false, None, 7, TEXTS[2], &[][..]);
        let message = MessageRecord {
            id,
            qos: QoS::AtLeastOnce,
            retain,
            expires_ms,
            origin,
            standing,
            topic,
            properties,
            payload: b"21.5",
        };
        Record::Message(message).push_to(&mut batch).unwrap();
        Record::Routing { message: id }.push_to(&mut batch).unwrap();
    }
    log.append(&[batch], &mut Vec::new()).unwrap();
    log.sync().unwrap();
    log.rotate().unwrap();
    log.compact::<StoreImage>().unwrap();
    drop(log);
    let (_, image) = open(&disk);
    for (id, (standing, class)) in (1..).zip(cases) {
        let bytes = (TEXTS[2].len() + 4) as u32;
        assert_eq!(image.outline(id), Some(Outline { origin: 7, bytes, class }), "{standing:?}");
    }
}

#[test]
fn a_message_lives_as_long_as_somebody_needs_it() {
    let message = MessageRecord {
        id: 5,
        qos: QoS::AtLeastOnce,
        retain: true,
        expires_ms: None,
        origin: 0,
        standing: None,
        topic: "t",
        properties: &[],
        payload: b"x",
    };
    let session = |session| Record::Session { session, client_id: "c", principal: None, expiry_s: None, ends_ms: None };
    let queued = |session| Record::Queued {
        session,
        place: 1,
        message: 5,
        qos: QoS::AtLeastOnce,
        retain: false,
        ids: Vec::new(),
    };
    let mut batches = vec![vec![session(1), session(2), Record::Message(message), queued(1), queued(2)]];
    batches.push(vec![Record::Retained { topic: "t", message: 5 }]);
    assert!(apply_all(&batches).message(5).is_some());
    batches.push(vec![Record::Dequeued { session: 1, place: 1 }, Record::SessionEnded { session: 2 }]);
    assert!(apply_all(&batches).message(5).is_some(), "retained");
    batches.push(vec![Record::RetainedCleared { topic: "t" }]);
    let image = apply_all(&batches);
    assert_eq!((image.message(5), image.id_max(), image.orphans()), (None, 5, 0));
}
