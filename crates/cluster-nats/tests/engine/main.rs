//! Nodes on the real engine, on loopback. Without `nats-server` in the path (or in `TIDEGATE_NATS_SERVER`) these are skipped aloud.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

mod server;
mod space;
mod wire;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use server::Server;
use tidegate_cluster::limits::LEASE;
use tidegate_cluster::{Ending, HandOver, Reason};
use tidegate_cluster_nats::{
    AccessFile, Carrier, ClusterError, EngineOptions, EngineUser, Membership, News, look, stand_by,
};
use tidegate_store::disk::{Disk, FsDisk, MirroredDisk};
use tidegate_store::{Log, LogOptions, RawRecord, RecordBatch};
use wire::Wire;

/// Never the same twice, as a process' own number has to be.
fn incarnation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed)
}

fn member(server: &Server, node: &str, store: &Path) -> Membership {
    let engine = EngineOptions {
        servers: server.address(),
        user: None,
        ca: None,
        cluster: "plant".parse().unwrap(),
        lineage: "main".parse().unwrap(),
        replicas: 1,
        beside: None,
    };
    let (address, space) = (format!("{node}.example:1883"), store.with_file_name("space"));
    let (node, incarnation) = (node.parse().unwrap(), incarnation());
    let access = vec![AccessFile { name: "users", path: store.with_file_name("users") }];
    Membership { engine, node, incarnation, address, store: store.to_path_buf(), space, access }
}

fn carry(membership: &Membership) -> Carrier {
    stand_by(membership, &|_| {}, &|| false, |_| {}).unwrap().unwrap()
}

fn refusal(membership: &Membership) -> String {
    match stand_by(membership, &|_| {}, &|| false, |_| {}) {
        Err(ClusterError::Refused(words)) => words,
        other => panic!("{other:?}"),
    }
}

/// The log on a node's disk and its mirror, with what was in it.
fn open(store: &Path, carrier: &Carrier) -> (Log<MirroredDisk<FsDisk>>, Vec<String>) {
    read(MirroredDisk::new(FsDisk::open(store).unwrap(), carrier.mirror()))
}

fn read<D: Disk>(disk: D) -> (Log<D>, Vec<String>) {
    let mut kept = Vec::new();
    let (log, report) = Log::open(disk, LogOptions::default(), |record, _| {
        kept.push(String::from_utf8(record.payload.to_vec()).unwrap());
        Ok(())
    })
    .unwrap();
    assert!(report.is_sound(), "{report}");
    (log, kept)
}

fn write<D: Disk>(log: &mut Log<D>, payload: &str) -> Result<(), tidegate_store::StoreError> {
    let mut batch = RecordBatch::new();
    batch.push(RawRecord { tag: 1, version: 1, is_skippable: false, payload: payload.as_bytes() })?;
    log.append(&[batch], &mut Vec::new())?;
    log.sync()
}

#[test]
fn a_dead_nodes_log_is_carried_on_and_the_dead_node_acknowledges_nothing_more() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let first = carry(&member(&server, "a", &a));
    let (mut log, kept) = open(&a, &first);
    assert!(kept.is_empty());
    let records: Vec<String> = (0..100).map(|number| format!("record {number}")).collect();
    for record in &records {
        write(&mut log, record).unwrap();
    }
    // Its thread is gone, and with it its lease; the log is still there, as that of a process that is stopped.
    first.abandon();
    let news = Mutex::new(Vec::new());
    let say = |said| match said {
        News::Follows { .. } => {}
        said => news.lock().unwrap().push(said),
    };
    let second = stand_by(&member(&server, "b", &b), &say, &|| false, |_| {}).unwrap().unwrap();
    let stands_by = News::StandsBy { owner: "a".parse().unwrap(), address: Some("a.example:1883".into()), epoch: 1 };
    assert_eq!(*news.lock().unwrap(), [stands_by, News::TakesOver { epoch: 2 }]);
    for file in std::fs::read_dir(&b).unwrap().flatten() {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "messages are in it: {file:?}");
    }
    let (mut other, kept) = open(&b, &second);
    assert_eq!(kept, records);
    write(&mut other, "from b").unwrap();
    drop(log.abandon());

    // The first comes back: it stands by, and has the other's when that one leaves.
    drop(other.close().unwrap());
    second.leave();
    let third = carry(&member(&server, "a", &a));
    assert_eq!(third.epoch(), 3);
    let (_, kept) = open(&a, &third);
    assert_eq!(kept.last().map(String::as_str), Some("from b"));
    assert!(folder.path().join("a/store.before").exists(), "what was overtaken is set aside");
    third.leave();
}

#[test]
fn a_node_that_was_cut_off_is_fenced_and_its_next_write_says_so() {
    let Some(server) = Server::start(&[]) else { return };
    let (folder, wire) = (tempfile::tempdir().unwrap(), Wire::to(server.port()));
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let mut cut_off = member(&server, "a", &a);
    cut_off.engine.servers = wire.address();
    let (ended, endings) = std::sync::mpsc::channel();
    let first = stand_by(&cut_off, &|_| {}, &|| false, move |ending| ended.send(ending).unwrap()).unwrap().unwrap();
    let (mut log, _) = open(&a, &first);
    write(&mut log, "one").unwrap();
    let lag = first.lag();
    assert!(lag.holds() && first.handover().reason == Reason::First);
    wire.cut();
    let second = carry(&member(&server, "b", &b));
    let (mut other, kept) = open(&b, &second);
    assert_eq!(kept, ["one"]);
    assert!(!lag.holds(), "another has it: nothing is said any more, not even what needs no disk");
    let handover = second.handover();
    assert!(matches!(handover.reason, Reason::Silent(time) if time >= LEASE), "{handover:?}");
    assert_eq!(handover.from.as_ref().map(|(from, _)| from.as_str()), Some("a"));
    wire.mend();
    assert!(write(&mut log, "two").is_err(), "another has it");
    write(&mut other, "two, of b").unwrap();
    assert_eq!(endings.recv().unwrap(), Ending::Fenced { by: 2 });
    assert_eq!(first.ending(), Some(Ending::Fenced { by: 2 }));
    second.leave();
}

#[test]
fn a_takeover_hears_that_it_is_to_stop_and_the_next_node_need_not_wait_for_it() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let first = carry(&member(&server, "a", &a));
    let (mut log, _) = open(&a, &first);
    write(&mut log, "one").unwrap();
    drop(log.close().unwrap());
    first.leave();
    let is_taking_over = AtomicBool::new(false);
    let say = |news| is_taking_over.store(matches!(news, News::TakesOver { .. }), Ordering::Relaxed);
    let told = stand_by(&member(&server, "b", &b), &say, &|| is_taking_over.load(Ordering::Relaxed), |_| {});
    assert!(told.unwrap().is_none());
    // It had opened its epoch; it has left it.
    let third = carry(&member(&server, "a", &a));
    assert_eq!(third.epoch(), 3);
    let last: Vec<(u64, Reason)> = history(&server).iter().map(|of| (of.epoch, of.reason)).collect();
    assert_eq!(last, [(3, Reason::Left), (1, Reason::First)], "what served nobody is not told");
    assert_eq!(open(&a, &third).1, ["one"]);
    third.leave();
}

/// What is noted of the lineage; the note of the last epoch is written behind its takeover.
fn history(server: &Server) -> Vec<HandOver> {
    let engine = member(server, "x", Path::new("none")).engine;
    let begun = std::time::Instant::now();
    loop {
        let view = look(&engine).unwrap();
        let owner = view.owner.map(|(_, epoch)| epoch);
        if view.handovers.first().map(|last| last.epoch) == owner {
            return view.handovers;
        }
        assert!(begun.elapsed() < server::PATIENCE, "{:?}", view.handovers);
        std::thread::yield_now();
    }
}

#[test]
fn a_cut_that_is_shorter_than_a_lease_costs_nothing_but_time() {
    let Some(server) = Server::start(&[]) else { return };
    let (folder, wire) = (tempfile::tempdir().unwrap(), Wire::to(server.port()));
    let a = folder.path().join("a/store");
    let mut far = member(&server, "a", &a);
    far.engine.servers = wire.address();
    let first = carry(&far);
    let (mut log, _) = open(&a, &first);
    let lag = first.lag();
    for round in 0..3 {
        wire.cut();
        std::thread::scope(|scope| {
            let written = scope.spawn(|| write(&mut log, &format!("cut {round}")));
            // It waits for the engine.
            while lag.waiting() == 0 {
                std::thread::yield_now();
            }
            wire.mend();
            written.join().unwrap().unwrap();
        });
    }
    assert_eq!((first.epoch(), first.ending()), (1, None));
    drop(log.close().unwrap());
    first.leave();
    let second = carry(&member(&server, "b", &folder.path().join("b/store")));
    assert_eq!(open(&folder.path().join("b/store"), &second).1, ["cut 0", "cut 1", "cut 2"]);
    second.leave();
}

#[test]
fn an_engine_that_is_full_refuses_in_its_own_words_and_what_was_kept_stays() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("small.conf");
    std::fs::write(&config, "jetstream { max_file_store: 1MB }\n").unwrap();
    let Some(server) = Server::start(&["-c", config.to_str().unwrap()]) else { return };
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let first = carry(&member(&server, "a", &a));
    let (mut log, _) = open(&a, &first);
    let (record, mut kept) = ("x".repeat(100_000), 0);
    let error = loop {
        match write(&mut log, &record) {
            Ok(()) => kept += 1,
            Err(error) => break error.to_string(),
        }
        assert!(kept < 100, "it never fills");
    };
    assert!(kept > 0 && error.contains("the cluster's engine does not take it"), "{error}");
    drop(log.abandon());
    first.leave();
    // Who comes next cannot open another epoch, for want of room, and says that it waits; the same node has it all.
    let (_, own) = read(FsDisk::open(&a).unwrap());
    assert!(own.len() >= kept, "{} of {kept}", own.len());
    assert!(!b.exists());
}

#[test]
fn a_folder_of_another_cluster_of_the_same_name_is_not_mixed_with_it() {
    let (Some(one), Some(other)) = (Server::start(&[]), Server::start(&[])) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    carry(&member(&one, "a", &a)).leave();
    // The other engine knows nothing yet, and then another cluster that is called the same.
    let words = refusal(&member(&other, "a", &a));
    assert!(words.contains("of which the engine knows nothing: is it the right engine?"), "{words}");
    carry(&member(&other, "b", &b)).leave();
    let words = refusal(&member(&other, "a", &a));
    assert!(words.contains("is of another cluster that is called plant, too"), "{words}");
}

#[test]
fn two_processes_of_one_name_are_told() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let first = carry(&member(&server, "a", &folder.path().join("a/store")));
    let words = refusal(&member(&server, "a", &folder.path().join("b/store")));
    assert!(words.contains("another node of plant is called a and is alive (a.example:1883)"), "{words}");
    first.leave();
}

#[test]
fn a_node_that_comes_back_brings_what_the_stream_had_not_got() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let first = carry(&member(&server, "a", &a));
    let (mut log, _) = open(&a, &first);
    write(&mut log, "in both").unwrap();
    drop(log.abandon());
    first.leave();
    // Synced here, and never sent: the plug was pulled in between.
    let (mut log, _) = read(FsDisk::open(&a).unwrap());
    write(&mut log, "only here").unwrap();
    drop(log.abandon());
    let second = carry(&member(&server, "a", &a));
    second.leave();
    let third = carry(&member(&server, "b", &b));
    let (_, kept) = open(&b, &third);
    assert_eq!(kept, ["in both", "only here"]);
    third.leave();
}

#[test]
fn a_broker_that_was_alone_becomes_the_first_node() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/store"), folder.path().join("b/store"));
    let (mut log, _) = read(FsDisk::open(&a).unwrap());
    write(&mut log, "from before").unwrap();
    drop(log.close().unwrap());
    carry(&member(&server, "a", &a)).leave();
    // And one with messages of its own is not let in later.
    let (mut log, _) = read(FsDisk::open(&b).unwrap());
    write(&mut log, "somebody else's").unwrap();
    drop(log.close().unwrap());
    let words = refusal(&member(&server, "b", &b));
    assert!(words.contains("has messages that are not the cluster's"), "{words}");
    let c = folder.path().join("c/store");
    let third = carry(&member(&server, "c", &c));
    assert_eq!(open(&c, &third).1, ["from before"]);
    third.leave();
}

#[test]
fn what_no_waiting_mends_is_said_in_words() {
    let Some(server) = Server::start(&["--user", "me", "--pass", "secret"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a/store");
    let mut membership = member(&server, "a", &store);
    let words = refusal(&membership);
    assert!(words.contains("does not let us in: check cluster.user and cluster.password_file"), "{words}");
    membership.engine.user = Some(EngineUser { name: "me".into(), password: "secret".into() });
    membership.engine.replicas = 3;
    let words = refusal(&membership);
    assert!(words.contains("cannot keep 3 copies of TG_DISK_plant_main"), "{words}");
    membership.engine.servers = "nats://127.0.0.1:1".to_owned();
    let news = Mutex::new(Vec::new());
    let say = |said| news.lock().unwrap().push(said);
    let none = stand_by(&membership, &say, &|| !news.lock().unwrap().is_empty(), |_| {}).unwrap();
    assert!(none.is_none());
    let said = news.lock().unwrap();
    let [News::Unreachable(words)] = &said[..] else { panic!("{said:?}") };
    assert!(words.contains("no engine answers at nats://127.0.0.1:1"), "{words}");
}

#[test]
fn users_of_the_node_that_serves_are_the_next_ones() {
    let Some(server) = Server::start(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (a, b) = (at("a/store"), at("b/store"));
    std::fs::create_dir(at("b")).unwrap();
    std::fs::write(at("b/users"), "of b").unwrap();
    let first = carry(&member(&server, "a", &a));
    for text in ["ann", "ann\nbob"] {
        first.keep_access("users", Some(text.as_bytes())).unwrap();
    }
    first.leave();
    let second = carry(&member(&server, "b", &b));
    // Nothing of the log was written, but this was: the next one does not go on with its own.
    assert_eq!(std::fs::read_to_string(at("b/users")).unwrap(), "ann\nbob");
    assert_eq!(std::fs::read_to_string(at("b/users.before")).unwrap(), "of b");
    assert!(!at("b/store/access").exists());
    second.keep_access("users", None).unwrap();
    second.leave();
    // Of a file that the last owner did not have, everybody keeps the own one.
    std::fs::write(at("a/users"), "of a").unwrap();
    let third = carry(&member(&server, "a", &a));
    assert_eq!(std::fs::read_to_string(at("a/users")).unwrap(), "of a");
    third.keep_access("users", Some(b"of a")).unwrap();
    third.leave();
    // Who goes on with its own folder has the newest: they may have been changed while it was down.
    std::fs::write(at("a/users"), "changed while nobody served").unwrap();
    let again = carry(&member(&server, "a", &a));
    assert_eq!(std::fs::read_to_string(at("a/users")).unwrap(), "changed while nobody served");
    again.leave();
}
