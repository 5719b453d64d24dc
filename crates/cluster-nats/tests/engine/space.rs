//! The smart space's log beside the store's, in the same stream: both are carried on, fenced and made smaller together.

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_cluster_nats::{Carrier, look};
use tidegate_store::disk::{FsDisk, MirroredDisk};
use tidegate_store::{Location, Log, LogOptions, LogState, RawRecord, RecordBatch, SnapshotSink, StoreError};

use super::server::Server;
use super::wire::Wire;
use super::{carry, member, open, read, write};

/// Nothing of an engine on loopback takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

fn space_of(store: &Path) -> std::path::PathBuf {
    store.with_file_name("space")
}

fn open_space(store: &Path, carrier: &Carrier) -> (Log<MirroredDisk<FsDisk>>, Vec<String>) {
    read(MirroredDisk::new(FsDisk::open(&space_of(store)).unwrap(), carrier.space_mirror()))
}

#[test]
fn both_logs_of_a_dead_node_are_carried_on_and_what_was_overtaken_is_set_aside() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let first = carry(&member(&server, "a", &a));
    let ((mut log, _), (mut space, kept)) = (open(&a, &first), open_space(&a, &first));
    assert!(kept.is_empty());
    for number in 0..50 {
        write(&mut log, &format!("message {number}")).unwrap();
        write(&mut space, &format!("change {number}")).unwrap();
    }
    first.abandon();
    let second = carry(&member(&server, "b", &b));
    let ((mut other, messages), (mut its_space, changes)) = (open(&b, &second), open_space(&b, &second));
    assert_eq!((messages.len(), changes.len()), (50, 50));
    assert_eq!(changes.last().map(String::as_str), Some("change 49"));
    write(&mut other, "message of b").unwrap();
    write(&mut its_space, "change of b").unwrap();
    drop((log.abandon(), space.abandon()));
    drop((other.close().unwrap(), its_space.close().unwrap()));
    second.leave();

    let third = carry(&member(&server, "a", &a));
    let ((_, messages), (_, changes)) = (open(&a, &third), open_space(&a, &third));
    assert_eq!(messages.last().map(String::as_str), Some("message of b"));
    assert_eq!(changes.last().map(String::as_str), Some("change of b"));
    assert!(["store.before", "space.before"].iter().all(|name| folder.path().join("a").join(name).exists()));
    third.leave();
}

#[test]
fn a_node_that_was_overtaken_writes_nothing_into_the_smart_space() {
    let Some(server) = Server::start(&[]) else { return };
    let (folder, wire) = (tempfile::tempdir().unwrap(), Wire::to(server.port()));
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let mut cut_off = member(&server, "a", &a);
    cut_off.engine.servers = wire.address();
    let first = carry(&cut_off);
    let (mut space, _) = open_space(&a, &first);
    write(&mut space, "one").unwrap();
    wire.cut();
    let second = carry(&member(&server, "b", &b));
    let (mut other, kept) = open_space(&b, &second);
    assert_eq!(kept, ["one"]);
    assert!(!first.space_mirror().holds(), "nobody is told anything");
    wire.mend();
    assert!(write(&mut space, "two").is_err(), "another has it");
    write(&mut other, "two, of b").unwrap();
    second.leave();
}

#[test]
fn a_node_brings_a_smart_space_from_before_there_was_a_cluster_and_one_that_joins_sets_its_own_aside() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    for (node, text) in [(&a, "of a"), (&b, "of b")] {
        let (mut space, _) = read(FsDisk::open(&space_of(node)).unwrap());
        write(&mut space, text).unwrap();
        drop(space.close().unwrap());
    }
    carry(&member(&server, "a", &a)).leave();
    let second = carry(&member(&server, "b", &b));
    assert_eq!(open_space(&b, &second).1, ["of a"]);
    assert_eq!(read(FsDisk::open(&folder.path().join("b/space.before")).unwrap()).1, ["of b"]);
    second.leave();
}

/// All that is worth keeping of a log: its last record.
#[derive(Default)]
struct Newest(Vec<u8>);

impl LogState for Newest {
    fn apply(&mut self, record: RawRecord<'_>, _: Location) -> Result<(), StoreError> {
        self.0 = record.payload.to_vec();
        Ok(())
    }

    fn live(&self, _: &mut dyn FnMut(Location)) {}

    fn dump(&self, sink: &mut dyn SnapshotSink) -> Result<(), StoreError> {
        sink.push(RawRecord { tag: 1, version: 1, is_skippable: false, payload: &self.0 })
    }
}

#[test]
fn a_snapshot_of_the_smart_space_makes_the_stream_smaller_and_long_changes_do_not_fill_the_queue() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let membership = member(&server, "a", &a);
    let first = carry(&membership);
    let disk = MirroredDisk::new(FsDisk::open(&space_of(&a)).unwrap(), first.space_mirror());
    let options = LogOptions { is_rewritten: true, ..LogOptions::default() };
    let (mut space, _) = Log::open(disk, options, |_, _| Ok(())).unwrap();
    // More than may wait for the engine (32 MiB), in one group.
    let long = "x".repeat(40 << 20);
    let mut batch = RecordBatch::new();
    batch.push(RawRecord { tag: 1, version: 1, is_skippable: false, payload: long.as_bytes() }).unwrap();
    space.append(&[batch], &mut Vec::new()).unwrap();
    space.sync().unwrap();
    write(&mut space, "newest").unwrap();
    let before = look(&membership.engine).unwrap();
    assert!(before.bytes > 40 << 20, "{before:?}");
    assert!(before.space_messages.is_some_and(|count| count > 80), "{before:?}");
    space.compact::<Newest>().unwrap();
    let begun = Instant::now();
    while look(&membership.engine).unwrap().bytes > 1 << 20 {
        assert!(begun.elapsed() < PATIENCE, "the stream stays as long as it was");
        std::thread::yield_now();
    }
    drop(space.close().unwrap());
    first.leave();
    let second = carry(&member(&server, "b", &b));
    assert_eq!(open_space(&b, &second).1, ["newest"]);
    second.leave();
}
