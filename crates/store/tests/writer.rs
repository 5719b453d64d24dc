//! The writer thread: nothing is told before it is kept, and a failed disk is waited for.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod shelf;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shelf::{Move, Shelf, batch, contents, open, small};
use tidegate_store::disk::sim::{Crash, DiskFault, SimDisk};
use tidegate_store::disk::{FsDisk, FsFiles};
use tidegate_store::{
    BatchRefusal, DiskTrouble, Durability, Health, KeptBatch, Location, LogOptions, LogState, LogWriter, Producer,
    RawRecord, SnapshotSink, StoreError, WriterOptions, backup_online,
};

fn put(number: u32) -> tidegate_store::RecordBatch {
    batch(&[Move::Put(number, number.to_le_bytes().repeat(20))])
}

fn start(disk: &SimDisk, options: WriterOptions) -> LogWriter {
    let (log, ..) = open(disk.boot(), small()).unwrap();
    LogWriter::start::<Shelf, _>(log, options).unwrap()
}

fn wait(producer: &mut Producer, count: usize) -> Vec<KeptBatch> {
    let mut done = Vec::new();
    while done.len() < count {
        assert!(producer.wait(&mut done), "the writer is gone");
    }
    done
}

fn until(condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happens");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_told_survives_a_power_cut_at_any_moment() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let writer = start(&disk, WriterOptions::default());
        let told = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let wakes = Arc::clone(&told);
                let mut producer = writer.producer(move || {
                    wakes.fetch_add(1, Ordering::Relaxed);
                });
                std::thread::spawn(move || {
                    let mut done = Vec::new();
                    for n in 0..25 {
                        producer.submit(put(thread * 100 + n)).unwrap();
                        if n % 4 == 0 {
                            done.extend(wait(&mut producer, n as usize + 1 - done.len()));
                        }
                    }
                    assert!(done.iter().enumerate().all(|(n, done)| done.ticket == n as u64), "in order");
                    done.len()
                })
            })
            .collect();
        let counts: Vec<usize> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        // Everything that was told is on the disk; what was submitted after may be.
        disk.crash(Crash::Tear);
        let (_, shelf, report) = open(disk.boot(), small()).unwrap();
        assert_eq!(report.damaged_bytes, 0, "{report}");
        for (thread, count) in counts.into_iter().enumerate() {
            for n in 0..count as u32 {
                assert!(shelf.0.contains_key(&(thread as u32 * 100 + n)), "seed {seed}: {thread} {n}");
            }
        }
        assert!(told.load(Ordering::Relaxed) > 0);
        drop(writer);
    }
}

/// What nobody waits for is not worth a sync: it goes with the next batch that somebody does wait for.
#[test]
fn what_nobody_waits_for_is_written_with_what_somebody_does() {
    let disk = SimDisk::new(1);
    let never = WriterOptions { gather_max: Duration::from_secs(3600), ..WriterOptions::default() };
    let writer = start(&disk, never);
    let mut producer = writer.producer(|| {});
    for n in 0..5 {
        producer.submit_unawaited(put(n)).unwrap();
    }
    producer.submit(put(5)).unwrap();
    assert_eq!(wait(&mut producer, 6).len(), 6);
    assert_eq!(writer.metrics().groups, 1);
    producer.submit_unawaited(put(6)).unwrap();
    producer.hurry();
    assert_eq!(wait(&mut producer, 1).len(), 1, "somebody waits for it now");
    producer.hurry();
    producer.submit_unawaited(put(7)).unwrap();
    writer.close().unwrap();
    assert_eq!(wait(&mut producer, 1).len(), 1, "and an orderly end waits for nothing");
    assert_eq!(open(disk.boot(), small()).unwrap().1.0.len(), 8);
}

#[test]
fn what_nobody_waits_for_is_not_put_off_for_ever() {
    let disk = SimDisk::new(1);
    let writer = start(&disk, WriterOptions::default());
    let mut producer = writer.producer(|| {});
    producer.submit_unawaited(put(1)).unwrap();
    assert_eq!(wait(&mut producer, 1).len(), 1);
}

#[test]
fn f114_a_full_disk_refuses_and_what_waits_is_kept_when_there_is_room() {
    let disk = SimDisk::new(1);
    let writer = start(&disk, WriterOptions::default());
    let mut producer = writer.producer(|| {});
    producer.submit(put(1)).unwrap();
    wait(&mut producer, 1);
    disk.set_broken(Some(DiskFault::Full));
    producer.submit(put(2)).unwrap();
    until(|| writer.health() != Health::Fine);
    let Health::Failed { trouble, why } = writer.health() else { panic!("it failed") };
    assert!(trouble == DiskTrouble::DiskFull && why.contains("log-0000"), "{why}");
    let (refusal, back) = producer.submit(put(3)).unwrap_err();
    assert_eq!((refusal, back), (BatchRefusal::Failed, put(3)));
    let mut done = Vec::new();
    producer.poll(&mut done);
    assert!(done.is_empty(), "not kept, not told");
    disk.set_broken(None);
    assert_eq!(wait(&mut producer, 1)[0].ticket, 1);
    until(|| writer.health() == Health::Fine);
    assert!(writer.metrics().retries > 0);
    writer.close().unwrap();
    let (_, shelf, report) = open(disk.boot(), small()).unwrap();
    assert_eq!(shelf.0.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert!(report.damaged_bytes == 0 && report.is_closed, "{report}");
}

#[test]
fn f115_after_a_failed_sync_the_batch_is_written_again_elsewhere() {
    let disk = SimDisk::new(1);
    let writer = start(&disk, WriterOptions::default());
    let mut producer = writer.producer(|| {});
    producer.submit(put(1)).unwrap();
    let first = wait(&mut producer, 1)[0].at.file;
    // The write succeeds, the sync does not, and the next one would.
    disk.fail_call(1, DiskFault::Device);
    producer.submit(put(2)).unwrap();
    assert_ne!(wait(&mut producer, 1)[0].at.file, first);
    disk.crash(Crash::LoseUnsynced);
    let (_, shelf, _) = open(disk.boot(), small()).unwrap();
    assert_eq!(shelf.0.len(), 2);
    drop(writer);
}

#[test]
fn a_full_queue_refuses_instead_of_growing() {
    let disk = SimDisk::new(1);
    let writer = start(&disk, WriterOptions { queue_batches_max: 3, ..WriterOptions::default() });
    let mut producer = writer.producer(|| {});
    // Nothing leaves the queue while the files are broken, and nobody knows that yet.
    disk.set_broken(Some(DiskFault::Device));
    let mut refusals = Vec::new();
    for n in 0..10 {
        refusals.extend(producer.submit(put(n)).err().map(|(refusal, _)| refusal));
    }
    assert!(refusals.len() >= 7, "{refusals:?}");
    assert!(writer.metrics().queue_batches <= 3);
    disk.set_broken(None);
    wait(&mut producer, 10 - refusals.len());
    assert_eq!(writer.metrics().refused, refusals.len() as u64);
}

fn location(done: KeptBatch, batch: &tidegate_store::RecordBatch) -> Location {
    let (at, len) = batch.places().next().unwrap();
    Location { file: done.at.file, offset: done.at.offset + at, len }
}

#[test]
fn payloads_are_found_by_their_first_place_through_compactions() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes: 2000, compact_bytes_min: u64::MAX, ..LogOptions::default() };
    let (log, ..) = open(FsDisk::open(dir.path()).unwrap(), options).unwrap();
    let writer = LogWriter::start::<Shelf, _>(log, WriterOptions::default()).unwrap();
    let mut producer = writer.producer(|| {});
    let mut places = Vec::new();
    for n in 0..100 {
        producer.submit(put(n)).unwrap();
        places.push(location(wait(&mut producer, 1)[0], &put(n)));
    }
    let mut reader = writer.reader(FsFiles::new(dir.path()));
    let mut payload = Vec::new();
    let mut left: Vec<u32> = (0..100).collect();
    for round in 1..=4 {
        // Some leave from everywhere, so that files become sparse.
        left.retain(|n| n * 7 % 5 != round);
        for n in (0..100).filter(|n| n * 7 % 5 == round) {
            producer.submit(batch(&[Move::Take(n)])).unwrap();
            wait(&mut producer, 1);
        }
        writer.compact();
        until(|| writer.metrics().log.compactions == u64::from(round));
        for n in &left {
            reader.read(places[*n as usize], &mut payload).unwrap();
            assert_eq!(payload[4..], n.to_le_bytes().repeat(20));
        }
    }
    assert!(writer.metrics().disk_bytes < 20 * 200, "{:?}", writer.metrics());
    writer.close().unwrap();
}

#[test]
fn with_an_interval_a_failed_sync_costs_nothing_that_was_told() {
    let disk = SimDisk::new(1);
    let durability = Durability::Interval(Duration::from_millis(1));
    let writer = start(&disk, WriterOptions { durability, ..WriterOptions::default() });
    let mut producer = writer.producer(|| {});
    let mut places = Vec::new();
    for n in 0..200 {
        if n % 50 == 25 {
            disk.fail_call(1, DiskFault::Device);
        }
        while producer.submit(put(n)).is_err() {
            std::thread::yield_now();
        }
        places.push(location(wait(&mut producer, 1)[0], &put(n)));
    }
    let mut reader = writer.reader(disk.boot());
    let mut payload = Vec::new();
    for (n, at) in places.iter().enumerate() {
        reader.read(*at, &mut payload).unwrap();
        assert_eq!(payload[..4], (n as u32).to_le_bytes());
    }
    writer.close().unwrap();
    disk.crash(Crash::LoseUnsynced);
    let (mut log, shelf, _) = open(disk.boot(), small()).unwrap();
    assert_eq!(contents(&mut log, &shelf).len(), 200);
}

#[test]
fn a_copy_of_a_running_store_is_the_store_of_that_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let (log, ..) = open(FsDisk::open(&store).unwrap(), small()).unwrap();
    let writer = LogWriter::start::<Shelf, _>(log, WriterOptions::default()).unwrap();
    let mut producer = writer.producer(|| {});
    for n in 0..50 {
        producer.submit(put(n)).unwrap();
    }
    wait(&mut producer, 50);
    let report = backup_online::<Shelf>(&writer, &store, &copy).unwrap();
    assert!(report.is_sound(), "{report}");
    producer.submit(put(99)).unwrap();
    wait(&mut producer, 1);
    writer.close().unwrap();
    let (mut log, shelf, _) = open(FsDisk::open(&copy).unwrap(), small()).unwrap();
    assert_eq!(contents(&mut log, &shelf).into_keys().collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
}

/// A disk that the log itself has filled: what takes things back is still written, and then it heals.
fn fills_and_heals(seed: u64, durability: Durability, size_max: Option<u64>, crash: Option<Crash>) -> u32 {
    let disk = SimDisk::new(seed);
    if size_max.is_none() {
        disk.set_capacity(Some(64 * 1024));
    }
    let log_options = LogOptions { segment_bytes: 4096, compact_bytes_min: 1 << 40, size_max, ..LogOptions::default() };
    let options = WriterOptions { durability, takes_while_failed: true, ..WriterOptions::default() };
    let begin = |disk: &SimDisk| {
        let (log, shelf, report) = open(disk.boot(), log_options).unwrap();
        assert!(!report.is_damaged(), "{report}");
        (LogWriter::start::<Shelf, _>(log, options).unwrap(), shelf)
    };
    let (mut writer, _) = begin(&disk);
    let mut producer = writer.producer(|| {});
    let mut number = 0;
    while writer.health() == Health::Fine {
        producer.submit(put(number)).unwrap();
        wait(&mut producer, 1);
        number += 1;
    }
    assert_eq!(writer.health().word(), "full");
    // Everything that was under way when it was found out.
    for more in number..number + 10 {
        producer.submit(put(more)).unwrap();
    }
    wait(&mut producer, 10);
    number += 10;
    if let Some(how) = crash {
        disk.crash(how);
        drop(writer);
        let shelf;
        (writer, shelf) = begin(&disk);
        assert_eq!(shelf.0.len(), number as usize, "seed {seed}: what was told is there");
        producer = writer.producer(|| {});
    }
    for taken in 0..number {
        producer.submit_unawaited(batch(&[Move::Take(taken)])).unwrap();
    }
    wait(&mut producer, number as usize);
    until(|| writer.health() == Health::Fine);
    producer.submit(put(1)).unwrap();
    wait(&mut producer, 1);
    writer.close().unwrap();
    let (_, shelf, report) = open(disk.boot(), log_options).unwrap();
    assert!(shelf.0.len() == 1 && !report.is_damaged(), "seed {seed}: {report}");
    number
}

#[test]
fn f114_a_disk_that_the_log_has_filled_takes_what_empties_it_and_heals() {
    for seed in 0..2 {
        assert!(fills_and_heals(seed, Durability::Always, None, None) > 100);
        fills_and_heals(seed, Durability::Interval(Duration::from_millis(1)), None, None);
        fills_and_heals(seed, Durability::Off, None, None);
        fills_and_heals(seed, Durability::Always, None, Some(Crash::Process));
        fills_and_heals(seed, Durability::Always, None, Some(Crash::Tear));
    }
}

#[test]
fn f114_a_store_that_has_its_maximum_takes_what_empties_it_and_heals() {
    assert!(fills_and_heals(1, Durability::Always, Some(64 * 1024), None) > 100);
    fills_and_heals(2, Durability::Always, Some(64 * 1024), Some(Crash::LoseUnsynced));
}

/// Somebody else takes the rest of the disk: the reserve is ours.
#[test]
fn f114_a_disk_that_others_have_filled_has_a_reserve_for_what_empties_the_log() {
    let disk = SimDisk::new(3);
    disk.set_capacity(Some(256 * 1024));
    let options = WriterOptions { takes_while_failed: true, ..WriterOptions::default() };
    let writer = start(&disk, options);
    let mut producer = writer.producer(|| {});
    for number in 0..100 {
        producer.submit(put(number)).unwrap();
    }
    wait(&mut producer, 100);
    assert_eq!(writer.health(), Health::Fine);
    // All that is left.
    let left = tidegate_store::disk::Disk::partition(&disk).unwrap().free;
    disk.put("ballast", vec![0; left as usize]);
    for number in 0..100 {
        producer.submit(batch(&[Move::Take(number)])).unwrap();
    }
    wait(&mut producer, 100);
    assert_eq!(writer.health().word(), "full", "and nobody is told otherwise");
    until(|| writer.metrics().log.compactions > 0);
    disk.put("ballast", Vec::new());
    until(|| writer.health() == Health::Fine);
    assert!(disk.contents("RESERVE").is_some(), "it is there again");
    writer.close().unwrap();
    assert!(open(disk.boot(), small()).unwrap().1.0.is_empty());
}

/// A state that cannot be written down.
#[derive(Default)]
struct Cursed(Shelf);

impl LogState for Cursed {
    fn apply(&mut self, record: RawRecord<'_>, at: Location) -> Result<(), StoreError> {
        self.0.apply(record, at)
    }

    fn live(&self, each: &mut dyn FnMut(Location)) {
        self.0.live(each);
    }

    fn dump(&self, _: &mut dyn SnapshotSink) -> Result<(), StoreError> {
        panic!("injected")
    }
}

#[test]
fn a_compaction_that_panics_costs_a_store_that_is_not_vital_nothing_but_the_compaction() {
    let disk = SimDisk::new(1);
    let (log, ..) = open(disk.boot(), small()).unwrap();
    let options = WriterOptions { is_vital: false, ..WriterOptions::default() };
    let writer = LogWriter::start::<Cursed, _>(log, options).unwrap();
    let mut producer = writer.producer(|| {});
    producer.submit(put(1)).unwrap();
    wait(&mut producer, 1);
    writer.compact();
    until(|| writer.metrics().compactions_failed == 1);
    assert_eq!(writer.health(), Health::Fine);
    producer.submit(put(2)).unwrap();
    wait(&mut producer, 1);
    writer.close().unwrap();
}
