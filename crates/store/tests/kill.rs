//! F109 with a real process and a real directory: whatever was told before `kill -9` is there afterwards.
//!
//! The test starts itself once more as the process to be killed.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot set up has failed")]

mod shelf;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use shelf::{Move, Shelf, batch, contents, open, small};
use tidegate_store::LogWriter;
use tidegate_store::disk::FsDisk;

const DIR: &str = "TIDEGATE_STORE_KILL_DIR";
const FIRST: &str = "TIDEGATE_STORE_KILL_FIRST";
const ROUNDS: u32 = 8;

/// Not a test by itself: the process that is killed. It tells what is kept, until it is killed or has told a lot.
#[test]
#[ignore = "started by the test below"]
fn the_process_that_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let first: u32 = std::env::var(FIRST).unwrap().parse().unwrap();
    let (log, ..) = open(FsDisk::open(dir.as_ref()).unwrap(), small()).unwrap();
    let writer = LogWriter::start::<Shelf, _>(log, tidegate_store::WriterOptions::default()).unwrap();
    let mut producer = writer.producer(|| {});
    let (mut submitted, mut told, mut done) = (0, 0, Vec::new());
    while told < 20_000 {
        while submitted - told < 32 {
            let number = first + submitted;
            producer.submit(batch(&[Move::Put(number, number.to_le_bytes().repeat(9))])).unwrap();
            submitted += 1;
        }
        assert!(producer.wait(&mut done));
        for done in done.drain(..) {
            println!("kept {}", first + done.ticket as u32);
            told += 1;
        }
    }
}

#[test]
fn f109_what_was_told_is_there_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--ignored", "--nocapture"])
            .env(DIR, dir.path())
            .env(FIRST, (round * 100_000).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The harness writes its own words in front of the first line.
            let line = line.unwrap();
            let Some(number) = line.split("kept ").nth(1).and_then(|number| number.parse::<u32>().ok()) else {
                continue;
            };
            kept.push(number);
            told += 1;
            if told == 40 + round * 17 {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "it was killed and did not end by itself");
        let (mut log, shelf, report) = open(FsDisk::open(dir.path()).unwrap(), small()).unwrap();
        assert_eq!(report.damaged_bytes, 0, "{report}");
        let contents = contents(&mut log, &shelf);
        for number in &kept {
            assert_eq!(contents.get(number), Some(&number.to_le_bytes().repeat(9)), "round {round}, {number}");
        }
    }
    assert!(kept.len() > 300);
}
