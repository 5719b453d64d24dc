use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use core::time::Duration;

use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{Properties, Property, QoS};

use super::*;
use crate::access::Open;
use crate::classes::ClassId;
use crate::limits::SHARDS_MAX;
use crate::message::{Precedence, Publication};
use crate::settings::Settings;
use crate::state::ShardState;
use crate::subscriptions::Members;

fn shard(index: usize, shards: usize) -> ShardState {
    ShardState::new(index, shards, Arc::new(Settings::default()), Arc::new(Open), 7)
}

/// One of each kind, written and read.
fn round_trip(envelope: &Envelope<'_>, wall: Wall) -> String {
    let mut bytes = Vec::new();
    envelope.write(wall, &mut bytes);
    // Something behind it, to see where it ends.
    let mut rest = &*[&*bytes, &[0xff]].concat();
    let read = Envelope::read(wall, &mut rest);
    assert_eq!(rest, [0xff], "{envelope:?}");
    for len in 0..bytes.len() {
        assert!(Envelope::read(wall, &mut &bytes[..len]).is_none(), "a part is no envelope: {envelope:?}");
    }
    alloc::format!("{:?}", read.unwrap())
}

proptest! {
    #[test]
    fn every_envelope_is_read_as_it_was_written(
        topic in "[a-z/]{1,20}", payload in prop::collection::vec(any::<u8>(), 0..40), retain: bool, qos in 0..3_u8,
        count: u64, routing: u64, origin: u64, expires in prop::option::of(1..u64::MAX / 4), zero in 0..4_000_000_000_u64,
        shards in prop::collection::vec((any::<u32>(), any::<u16>()), 0..5), online: u32,
    ) {
        let list = [Property::UserProperty("a", "b")];
        let publication = Publication {
            topic: &topic,
            payload: &payload,
            properties: if retain { Properties::new(&list) } else { Properties::EMPTY },
            qos: QoS::from_bits(qos).unwrap(),
            retain,
            expires: expires.map(Timestamp::from_nanos),
            origin,
            standing: Precedence::of(ClassId::HIGH),
        };
        let (count, routing) = (if retain { count } else { 0 }, if qos == 2 { routing } else { 0 });
        let mut tried = Vec::new();
        for (node, shard) in &shards {
            tried = Tried::of(&tried).with(Address { node: *node, shard: *shard });
        }
        let tried = Tried::of(&tried);
        let members = Members { online, offline: 7 };
        let wall = Wall::new(Duration::from_secs(zero));
        let envelopes = [
            Envelope::Publish { publication, count, routing },
            Envelope::Shared { tried, filter: "a/+", group: "g", publication, routing },
            Envelope::Ask { turn: count },
            Envelope::Kept { turn: routing },
            Envelope::Saturated { origin, topic: count, millis: online },
            Envelope::TurnedAway { origin },
            Envelope::Interest { filter: &topic, interested: retain },
            Envelope::Group { filter: "a/#", group: &topic, members },
        ];
        for envelope in envelopes {
            let read = round_trip(&envelope, wall);
            // Properties are read from bytes, and look different for it.
            if !retain || !read.contains("properties") {
                prop_assert_eq!(read, alloc::format!("{:?}", envelope));
            }
        }
        for (node, shard) in shards {
            let address = Address { node, shard };
            prop_assert!(tried.contains(address));
        }
        prop_assert!(!Tried::default().contains(Address::default()));
    }

    #[test]
    fn no_bytes_make_a_shard_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let from = Address { node: 0, shard: 1 };
        let batch = Batch { version: VERSION, from, lane: BatchLane::Messages, bytes };
        let _ = shard(0, 2).handle_batch(&batch, Timestamp::ZERO);
    }
}

#[test]
fn a_batch_of_another_version_is_refused_whole() {
    let (mut one, mut two) = (shard(0, 2), shard(1, 2));
    one.links.tell_all(&Envelope::Interest { filter: "t", interested: true });
    let batch = one.poll_batch(1).unwrap();
    assert_eq!((batch.version, batch.from()), (VERSION, Address { node: 0, shard: 0 }));
    let newer = Batch { version: VERSION + 1, bytes: batch.bytes.clone(), ..batch };
    assert_eq!(two.handle_batch(&newer, Timestamp::ZERO), Err(Unread::Version(VERSION + 1)));
    assert!(two.find_route("t").shards.is_empty());
    assert_eq!(two.handle_batch(&batch, Timestamp::ZERO), Ok(()));
    assert!(two.find_route("t").shards.contains(0));
}

#[test]
fn a_batch_of_a_stranger_is_refused() {
    let mut two = shard(1, 2);
    let strangers = [Address { node: 9, shard: 0 }, Address { node: 0, shard: 2 }, Address { node: 0, shard: 1 }];
    for from in strangers {
        let batch = Batch { version: VERSION, from, lane: BatchLane::Interest, bytes: vec![] };
        assert_eq!(two.handle_batch(&batch, Timestamp::ZERO), Err(Unread::Stranger(from)));
    }
}

#[test]
fn what_makes_no_sense_ends_a_batch_and_what_was_before_it_counts() {
    let (mut one, mut two) = (shard(0, 2), shard(1, 2));
    one.links.tell_all(&Envelope::Interest { filter: "t", interested: true });
    let mut batch = one.poll_batch(1).unwrap();
    batch.bytes.push(99);
    assert_eq!(two.handle_batch(&batch, Timestamp::ZERO), Err(Unread::Malformed));
    assert!(two.find_route("t").shards.contains(0));
}

#[test]
fn what_an_inbox_gives_back_comes_first_the_next_time_and_holds_up_answers() {
    let mut one = shard(0, 100);
    one.links.tell_all(&Envelope::Interest { filter: "a", interested: true });
    let batch = one.poll_batch(99).unwrap();
    one.handle_batch_refused(99, batch);
    assert!(!one.may_write());
    one.links.tell_all(&Envelope::Interest { filter: "b", interested: true });
    let mut other = shard(99, 100);
    other.handle_batch(&one.poll_batch(99).unwrap(), Timestamp::ZERO).unwrap();
    assert!(one.may_write());
    for filter in ["a", "b"] {
        assert_eq!(other.find_route(filter).shards.iter().collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn more_shards_than_there_can_be_are_as_many_as_there_can_be() {
    let links = ShardLinks::new(0, usize::MAX);
    assert_eq!((links.shards(), links.others().count()), (SHARDS_MAX, SHARDS_MAX - 1));
}
