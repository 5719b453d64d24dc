//! What a restart finds after the plug was pulled: always a prefix, never less than what was synced. More histories with
//! `PROPTEST_CASES=100000 cargo test -p tidegate-store --test crash`.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod shelf;

use proptest::collection::vec;
use proptest::prelude::*;
use shelf::{Move, Shelf, append, contents, model, open, small};
use tidegate_store::disk::sim::{Crash, DiskFault, SimDisk};
use tidegate_store::disk::{Disk, FsDisk};
use tidegate_store::{FileId, LogOptions, StoreError};

fn put(number: u32) -> Move {
    Move::Put(number, vec![number as u8; 5 + number as usize % 7])
}

/// F111: cut the file at every byte: what is complete before the cut is there, and the rest is set aside and named.
#[test]
fn f111_a_log_cut_at_every_byte_gives_a_prefix_of_its_batches() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    let batches: Vec<Vec<Move>> = (0..8).map(|n| vec![put(n), put(100 + n), Move::Take(n / 2)]).collect();
    let mut ends = vec![log.end().unwrap().offset];
    for batch in &batches {
        append(&mut log, batch).unwrap();
        ends.push(log.end().unwrap().offset);
    }
    drop(log);
    let name = FileId::segment(1).name();
    let bytes = disk.contents(&name).unwrap();
    for cut in ends[0] as usize..=bytes.len() {
        let torn = SimDisk::new(2);
        torn.put(&name, bytes[..cut].to_vec());
        let (mut log, shelf, report) = open(torn.boot(), LogOptions::default()).unwrap();
        let whole = ends.iter().filter(|end| **end as usize <= cut).count() - 1;
        assert_eq!(contents(&mut log, &shelf), model(&batches[..whole]), "cut at {cut}");
        let torn_bytes = cut as u64 - ends[whole];
        assert_eq!(report.torn_bytes, torn_bytes);
        assert_eq!(report.is_sound(), torn_bytes == 0, "{report}");
        if torn_bytes > 0 {
            assert!(report.lines[0].contains(&name), "{report}");
            let aside = torn.contents(&report.set_aside[0]).unwrap();
            assert_eq!(aside, bytes[ends[whole] as usize..cut]);
        }
        // The next start finds nothing to repair.
        let (_, again, report) = open(log.abandon(), LogOptions::default()).unwrap();
        assert!(report.is_sound() && again == shelf, "{report}");
    }
}

/// F111: the last bytes are zero instead of missing.
#[test]
fn f111_a_tail_of_zeroes_is_cut_off() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    append(&mut log, &[put(1)]).unwrap();
    log.sync().unwrap();
    append(&mut log, &[put(2)]).unwrap();
    drop(log);
    let name = FileId::segment(1).name();
    let bytes = disk.contents(&name).unwrap();
    for zeroes in 1..=27 {
        let torn = SimDisk::new(2);
        let mut bytes = bytes.clone();
        let from = bytes.len() - zeroes;
        bytes[from..].fill(0);
        bytes.extend(vec![0; 4096]);
        torn.put(&name, bytes);
        let (_, shelf, report) = open(torn.boot(), LogOptions::default()).unwrap();
        assert_eq!(shelf.0.len(), 1);
        assert!(report.torn_bytes >= 4096 && report.damaged_bytes == 0, "{report}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<Move>),
    Sync,
    Rotate,
    Compact,
    Close,
    Crash(Crash),
    /// A sync fails, and the process dies before it can do anything about it. The system shows what it has lost.
    FailedSync,
    Fail(u64, DiskFault),
}

fn a_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0..12u32, vec(any::<u8>(), 0..90)).prop_map(|(number, content)| Move::Put(number, content)),
        2 => (0..12u32).prop_map(Move::Take),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(a_move(), 1..4).prop_map(Step::Batch),
        5 => Just(Step::Sync),
        1 => Just(Step::Rotate),
        2 => Just(Step::Compact),
        1 => Just(Step::Close),
        1 => prop_oneof![Just(Crash::Process), Just(Crash::LoseUnsynced), (0..200usize).prop_map(Crash::KeepBytes)]
            .prop_map(Step::Crash),
        2 => Just(Step::Crash(Crash::Tear)),
        1 => Just(Step::FailedSync),
        2 => (0..12u64, prop_oneof![Just(DiskFault::Full), Just(DiskFault::Device), Just(DiskFault::ReadOnly)])
            .prop_map(|(n, fault)| Step::Fail(n, fault)),
    ]
}

/// The owner of a log as the writer is one: keeps what is not synced, and writes it again after a failure.
struct Owner<D> {
    log: tidegate_store::Log<D>,
    synced: Vec<Vec<Move>>,
    unsynced: Vec<Vec<Move>>,
}

impl<D: Disk> Owner<D> {
    fn write(&mut self, moves: Vec<Move>) {
        self.heal();
        if self.log.is_segment_full() {
            self.sync();
            let _ = self.log.rotate();
            self.heal();
        }
        let result = append(&mut self.log, &moves);
        self.unsynced.push(moves);
        if result.is_err() {
            self.heal();
        }
    }

    fn sync(&mut self) {
        while self.log.sync().is_err() {
            self.heal();
        }
        self.synced.append(&mut self.unsynced);
    }

    fn heal(&mut self) {
        while self.log.is_failed() {
            if self.log.repair().is_ok() {
                let _ = self.unsynced.iter().try_for_each(|moves| append(&mut self.log, moves));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000.max(ProptestConfig::default().cases)))]

    /// F110, F114, F115: whatever fails and whenever the plug is pulled, a restart finds what was synced, and of the rest
    /// a prefix.
    #[test]
    fn f110_any_crash_leaves_what_was_synced_and_a_prefix_of_the_rest(seed: u64, steps in vec(step(), 1..60)) {
        let disk = SimDisk::new(seed);
        let (log, ..) = open(disk.boot(), small()).unwrap();
        let mut owner = Owner { log, synced: Vec::new(), unsynced: Vec::new() };
        for step in steps {
            match step {
                Step::Batch(moves) => owner.write(moves),
                Step::Sync => owner.sync(),
                Step::Rotate => {
                    owner.sync();
                    let _ = owner.log.rotate();
                    owner.heal();
                }
                Step::Compact => {
                    owner.sync();
                    let _ = owner.log.compact::<Shelf>();
                    owner.heal();
                }
                Step::Fail(n, fault) => disk.fail_call(n, fault),
                Step::Close | Step::Crash(_) | Step::FailedSync => {
                    let how = match step {
                        Step::Crash(how) => how,
                        Step::FailedSync => {
                            disk.fail_call(0, DiskFault::Device);
                            let _ = owner.log.sync();
                            Crash::Process
                        }
                        _ => {
                            owner.sync();
                            Crash::LoseUnsynced
                        }
                    };
                    disk.crash(how);
                    let (mut log, shelf, report) = open(disk.boot(), small()).unwrap();
                    prop_assert_eq!(report.damaged_bytes, 0, "{}", report);
                    let found = contents(&mut log, &shelf);
                    let Owner { mut synced, unsynced, .. } = owner;
                    // Which prefix it was does not matter, but it must be one.
                    let mut prefix = None;
                    for many in (0..=unsynced.len()).rev() {
                        let all = [&synced[..], &unsynced[..many]].concat();
                        if model(&all) == found {
                            prefix = Some(many);
                            break;
                        }
                    }
                    prop_assert!(prefix.is_some(), "{:?} is no prefix; {}", found, report);
                    synced.extend(unsynced.into_iter().take(prefix.unwrap_or(0)));
                    owner = Owner { log, synced, unsynced: Vec::new() };
                }
            }
        }
        owner.sync();
        disk.crash(Crash::Tear);
        let (mut log, shelf, _) = open(disk.boot(), small()).unwrap();
        prop_assert_eq!(contents(&mut log, &shelf), model(&owner.synced));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The directory and its twin in memory cannot be told apart by the log.
    #[test]
    fn the_same_steps_on_disk_and_twin_give_the_same_state(steps in vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let twin = SimDisk::new(7);
        let (mut real, ..) = open(FsDisk::open(dir.path()).unwrap(), small()).unwrap();
        let (mut sim, ..) = open(twin, small()).unwrap();
        for step in steps {
            match step {
                Step::Batch(moves) => {
                    if real.is_segment_full() {
                        real.rotate().unwrap();
                        sim.rotate().unwrap();
                    }
                    append(&mut real, &moves).unwrap();
                    append(&mut sim, &moves).unwrap();
                }
                Step::Sync | Step::Fail(..) => {
                    real.sync().unwrap();
                    sim.sync().unwrap();
                }
                Step::Rotate => {
                    real.rotate().unwrap();
                    sim.rotate().unwrap();
                }
                Step::Compact => {
                    let (one, other) = (real.compact::<Shelf>().unwrap(), sim.compact::<Shelf>().unwrap());
                    prop_assert_eq!(one.moved, other.moved);
                }
                Step::Close | Step::Crash(_) | Step::FailedSync => {
                    let (one, other) = if matches!(step, Step::Close) {
                        (real.close().unwrap(), sim.close().unwrap())
                    } else {
                        (real.abandon(), sim.abandon())
                    };
                    drop(one);
                    let (shelf, twins);
                    (real, shelf, _) = open(FsDisk::open(dir.path()).unwrap(), small()).unwrap();
                    (sim, twins, _) = open(other, small()).unwrap();
                    prop_assert_eq!(&shelf, &twins, "the same boxes at the same places");
                    prop_assert_eq!(contents(&mut real, &shelf), contents(&mut sim, &twins));
                }
            }
            prop_assert!(real.files().eq(sim.files()));
        }
    }
}

/// SQLite's way: let each call fail in turn.
#[test]
fn f114_f115_every_single_call_may_fail_and_nothing_synced_is_lost() {
    for fault in [DiskFault::Full, DiskFault::Device] {
        for call in 0..200 {
            let disk = SimDisk::new(call);
            disk.fail_call(call, fault);
            let Ok((log, ..)) = open(disk.boot(), small()) else { continue };
            let mut owner = Owner { log, synced: Vec::new(), unsynced: Vec::new() };
            for n in 0..30 {
                owner.write(vec![put(n), Move::Take(n / 3)]);
                if n % 3 == 0 {
                    owner.sync();
                }
                if n % 10 == 9 {
                    owner.sync();
                    let _ = owner.log.compact::<Shelf>();
                    owner.heal();
                }
            }
            owner.sync();
            disk.crash(Crash::Tear);
            let (mut log, shelf, report) = open(disk.boot(), small()).unwrap();
            assert_eq!(contents(&mut log, &shelf), model(&owner.synced), "call {call}, {fault:?}: {report}");
        }
    }
}

#[test]
fn f114_a_full_disk_is_refused_and_used_again_when_there_is_room() {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    disk.set_capacity(Some(1000));
    append(&mut log, &[put(1)]).unwrap();
    log.sync().unwrap();
    let error = append(&mut log, &[Move::Put(2, vec![0; 1000])]).unwrap_err();
    assert_eq!(error.trouble(), tidegate_store::DiskTrouble::DiskFull, "{error}");
    assert!(log.is_failed() && matches!(append(&mut log, &[put(3)]), Err(StoreError::Failed)));
    disk.set_capacity(Some(1));
    assert!(log.repair().is_err(), "still full");
    disk.set_capacity(None);
    log.repair().unwrap();
    append(&mut log, &[put(4)]).unwrap();
    log.sync().unwrap();
    let (_, shelf, report) = open(log.abandon(), LogOptions::default()).unwrap();
    assert_eq!(shelf.0.keys().copied().collect::<Vec<_>>(), [1, 4]);
    assert_eq!(report.damaged_bytes, 0, "{report}");
}

/// A crash that a full disk has caused finds a torn end and no space to set it aside.
#[test]
fn f114_a_full_disk_and_a_torn_end_do_not_keep_a_store_from_opening() {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    append(&mut log, &[put(1)]).unwrap();
    log.sync().unwrap();
    append(&mut log, &[put(2)]).unwrap();
    disk.crash(Crash::KeepBytes(9));
    disk.set_capacity(Some(1));
    let (mut log, shelf, report) = open(disk.boot(), LogOptions::default()).unwrap();
    assert!(log.is_failed() && shelf.0.len() == 1 && report.lines.len() == 2, "{report}");
    disk.set_capacity(None);
    log.repair().unwrap();
    append(&mut log, &[put(3)]).unwrap();
    log.sync().unwrap();
    let (_, shelf, report) = open(log.abandon(), LogOptions::default()).unwrap();
    assert_eq!(shelf.0.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert!(report.is_sound(), "{report}");
}

#[test]
fn f116_a_slow_disk_shows_in_the_metrics() {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    for seconds in [0, 30, 0] {
        disk.set_sync_time(std::time::Duration::from_secs(seconds));
        append(&mut log, &[put(1)]).unwrap();
        log.sync().unwrap();
    }
    let syncs = &log.metrics().syncs;
    assert_eq!((syncs.count, syncs.max.as_secs(), syncs.last.as_secs()), (3, 30, 0));
}
