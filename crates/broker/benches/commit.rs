//! What durability costs: `cargo bench -p tidegate-broker [-- DIR]`, in a directory of the disk in question.
//!
//! Messages per second (each a batch of the message and one queue's reference) that are synced before they are told, with
//! 1, 16 and 256 under way, from two threads as two shards would; beside them the rate at which this disk syncs when nothing else is done, in rounds that take turns
//! with ours, since both drift. Then the time of a restart with a million queued messages.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark that cannot set up has failed")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_broker::store_link::records::{MessageRecord, Record, StoreImage};
use tidegate_store::disk::FsDisk;
use tidegate_store::{Durability, KeptBatch, Log, LogOptions, LogState, LogWriter, RecordBatch, WriterOptions};
use tidegate_wire_mqtt::QoS;

const PAYLOAD: usize = 100;
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
const MILLION: u64 = 1_000_000;

fn main() {
    let chosen = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).map(PathBuf::from);
    let dir = match chosen {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
    }
    .unwrap();
    println!("payload {PAYLOAD} B, {ROUNDS} rounds of {ROUND:?} each, median");
    println!("under way  durability  messages/s  per group  raw syncs/s of as many bytes  share  CPU µs/message");
    for under_way in [1, 16, 256] {
        commit(dir.path(), under_way, Durability::Always);
    }
    commit(dir.path(), 256, Durability::Interval(Duration::from_millis(100)));
    commit(dir.path(), 256, Durability::Off);
    restart(dir.path());
}

fn message(id: u64) -> RecordBatch {
    let payload = [id as u8; PAYLOAD];
    let mut batch = RecordBatch::new();
    let message = MessageRecord {
        id,
        qos: QoS::AtLeastOnce,
        retain: false,
        expires_ms: None,
        origin: 1,
        standing: None,
        topic: "plant/7/line/3/temperature",
        properties: &[],
        payload: &payload,
    };
    Record::Message(message).push_to(&mut batch).unwrap();
    let queued =
        Record::Queued { session: 1, place: id, message: id, qos: QoS::AtLeastOnce, retain: false, ids: Vec::new() };
    queued.push_to(&mut batch).unwrap();
    batch
}

fn commit(dir: &Path, under_way: usize, durability: Durability) {
    let mut rounds: Vec<(f64, f64, f64, f64)> = (0..ROUNDS).map(|_| round(dir, under_way, durability)).collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, group, raw, cpu) = rounds[ROUNDS / 2];
    let name = match durability {
        Durability::Always => "always",
        Durability::Interval(_) => "interval",
        Durability::Off => "off",
    };
    // Without a sync for each group there is nothing to compare with.
    let share = match durability {
        Durability::Always => format!("{:.0}%", rate / (raw * group) * 100.0),
        _ => String::from("-"),
    };
    println!("{under_way:>9}  {name:>10}  {rate:>10.0}  {group:>9.1}  {raw:>29.0}  {share:>5}  {cpu:>14.2}");
}

/// Messages per second, messages per group, raw syncs per second, CPU per message.
fn round(dir: &Path, under_way: usize, durability: Durability) -> (f64, f64, f64, f64) {
    let store = tempfile::tempdir_in(dir).unwrap();
    let (log, _) = Log::open(FsDisk::open(store.path()).unwrap(), LogOptions::default(), |_, _| Ok(())).unwrap();
    let options = WriterOptions { durability, ..WriterOptions::default() };
    let writer = LogWriter::start::<StoreImage, _>(log, options).unwrap();
    let (start, cpu) = (Instant::now(), cpu_time());
    let shards = under_way.min(2);
    let count: u64 = std::thread::scope(|scope| {
        let run = |shard: usize| {
            let mut producer = writer.producer(|| {});
            let mine = under_way / shards;
            scope.spawn(move || {
                let (mut done, mut told, mut id) = (Vec::<KeptBatch>::new(), 0, shard as u64);
                while start.elapsed() < ROUND || told < id / 2 {
                    while start.elapsed() < ROUND && id / 2 - told < mine as u64 {
                        producer.submit(message(id)).unwrap();
                        id += 2;
                    }
                    done.clear();
                    producer.wait(&mut done);
                    told += done.len() as u64;
                }
                told
            })
        };
        let threads: Vec<_> = (0..shards).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time().saturating_sub(cpu));
    let group = count as f64 / writer.metrics().groups as f64;
    writer.close().unwrap();
    let raw = raw_syncs(store.path(), (group * message(1).bytes() as f64) as usize);
    (count as f64 / elapsed, group, raw, cpu.as_secs_f64() * 1e6 / count as f64)
}

/// Writes and syncs of as many bytes as our groups have, with nothing else done.
fn raw_syncs(dir: &Path, bytes: usize) -> f64 {
    let mut file = File::create(dir.join("raw")).unwrap();
    let bytes = vec![7; bytes];
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < ROUND {
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn open(dir: &Path) -> (Log<FsDisk>, StoreImage, Duration) {
    let start = Instant::now();
    let mut image = StoreImage::default();
    let (log, _) =
        Log::open(FsDisk::open(dir).unwrap(), LogOptions::default(), |record, at| image.apply(record, at)).unwrap();
    (log, image, start.elapsed())
}

fn restart(dir: &Path) {
    let store = tempfile::tempdir_in(dir).unwrap();
    let (mut log, ..) = open(store.path());
    let mut first = RecordBatch::new();
    let session = Record::Session { session: 1, client_id: "c", principal: None, expiry_s: None, ends_ms: None };
    session.push_to(&mut first).unwrap();
    log.append(&[first], &mut Vec::new()).unwrap();
    for chunk in 0..MILLION / 1000 {
        let batches: Vec<RecordBatch> = (1..=1000).map(|n| message(chunk * 1000 + n)).collect();
        log.append(&batches, &mut Vec::new()).unwrap();
        if log.is_segment_full() {
            log.rotate().unwrap();
        }
    }
    drop(log.close().unwrap());
    let before = resident();
    let (mut log, image, time) = open(store.path());
    println!(
        "restart from the log, 1 000 000 queued messages: {time:.2?}, {} MiB for the image of {} messages",
        (resident().saturating_sub(before)) >> 20,
        image.messages()
    );
    drop(image);
    let start = Instant::now();
    log.compact::<StoreImage>().unwrap();
    println!("compaction of it: {:.2?}", start.elapsed());
    drop(log.close().unwrap());
    println!("restart from the snapshot: {:.2?}", open(store.path()).2);
}

/// Bytes in memory, as the system counts them; 0 where it does not tell.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
