//! Files that are not what was written: flipped bits, missing files, other formats, other owners.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod shelf;

use std::fs;

use shelf::{Contents, Move, Shelf, append, contents, model, open, small};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidegate_store::disk::FsDisk;
use tidegate_store::disk::sim::SimDisk;
use tidegate_store::{FileId, LogOptions, StoreError, backup, check, restore};

fn put(number: u32) -> Move {
    Move::Put(number, vec![number as u8; 60])
}

/// A store with a snapshot, a kept segment and several others: names with their bytes, and what is in it.
fn some_store() -> (Vec<(String, Vec<u8>)>, Contents) {
    let disk = SimDisk::new(5);
    let (mut log, ..) = open(disk.boot(), small()).unwrap();
    let mut batches: Vec<Vec<Move>> = (0..12).map(|n| vec![put(n)]).collect();
    batches.extend((0..8).map(|n| vec![Move::Take(n * 3 / 2)]));
    for batch in &batches {
        append(&mut log, batch).unwrap();
        if log.is_segment_full() {
            log.rotate().unwrap();
        }
    }
    log.compact::<Shelf>().unwrap();
    for n in 50..62 {
        batches.push(vec![put(n), Move::Take(n - 3)]);
        append(&mut log, &batches[batches.len() - 1]).unwrap();
        log.sync().unwrap();
        if log.is_segment_full() {
            log.rotate().unwrap();
        }
    }
    log.close().unwrap();
    let mut names = tidegate_store::disk::Disk::list(&mut disk.boot()).unwrap();
    names.sort();
    let files: Vec<_> = names.into_iter().map(|name| (name.clone(), disk.contents(&name).unwrap())).collect();
    assert!(files.iter().any(|(name, _)| name.starts_with("snapshot")));
    (files, model(&batches))
}

fn disk_of(files: &[(String, Vec<u8>)]) -> SimDisk {
    let disk = SimDisk::new(9);
    for (name, bytes) in files {
        disk.put(name, bytes.clone());
    }
    disk
}

/// F112: one flipped bit costs one batch at most, is reported, and never changes a payload.
#[test]
fn f112_a_flipped_bit_anywhere_costs_one_batch_and_is_reported() {
    let (files, sound) = some_store();
    let mut reported = 0;
    for file in 0..files.len() {
        for at in 0..files[file].1.len() {
            let mut files = files.clone();
            files[file].1[at] ^= 1 << (at % 8);
            let (mut log, shelf, report) = open(disk_of(&files), small()).unwrap();
            let found = contents(&mut log, &shelf);
            let different: Vec<u32> = (0..100).filter(|n| found.get(n) != sound.get(n)).collect();
            for number in &different {
                let content = found.get(number);
                let is_old = content.is_none_or(|content| *content == vec![*number as u8; 60]);
                assert!(is_old, "byte {at} of {}: box {number} was altered", files[file].0);
            }
            assert!(different.len() <= 2, "byte {at} of {}: {different:?}; {report}", files[file].0);
            if !different.is_empty() && found.len() == shelf.0.len() {
                assert!(!report.is_sound(), "byte {at} of {} is lost silently", files[file].0);
                assert!(report.lines[0].starts_with(&files[file].0) && !report.set_aside.is_empty(), "{report}");
                reported += 1;
            }
            // Once more: the damage is not set aside twice, and nothing else is lost.
            let (_, again, _) = open(log.abandon(), small()).unwrap();
            assert_eq!(again, shelf);
        }
    }
    assert!(reported > 1000, "{reported}");
}

/// F112: damage in front of what was synced later is no torn tail, even in the last segment.
#[test]
fn f112_damage_in_the_last_segment_does_not_cost_what_comes_after() {
    let disk = SimDisk::new(5);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    let mut ends = Vec::new();
    for n in 0..5 {
        append(&mut log, &[put(n)]).unwrap();
        log.sync().unwrap();
        ends.push(log.end().unwrap().offset as usize);
    }
    let name = FileId::segment(1).name();
    let mut bytes = disk.contents(&name).unwrap();
    bytes[ends[1] + 30] ^= 1;
    disk.put(&name, bytes);
    let (_, shelf, report) = open(log.abandon(), LogOptions::default()).unwrap();
    assert_eq!(shelf.0.keys().copied().collect::<Vec<_>>(), [0, 1, 3, 4]);
    let expected = format!("{name}: bytes {} to {} are damaged", ends[1], ends[2]);
    assert!(report.lines[0].starts_with(&expected), "{report}");
    let strict = LogOptions { strict: true, ..LogOptions::default() };
    assert!(matches!(open(disk.boot(), strict), Err(StoreError::Strict { .. })));
}

/// A file that somebody removed is missed, even when the end is torn too.
#[test]
fn f113_a_missing_segment_is_reported_and_the_others_are_read() {
    let (mut files, sound) = some_store();
    let last = files.len() - 2;
    assert!(files[last].0.starts_with("log"), "the snapshot sorts behind the segments");
    files[last].1.pop();
    let gone = files.remove(last - 1).0;
    let strict = LogOptions { strict: true, ..small() };
    assert!(matches!(open(disk_of(&files), strict), Err(StoreError::Strict { .. })));
    let (mut log, shelf, report) = open(disk_of(&files), small()).unwrap();
    assert!(report.missing == 1 && report.lines.iter().any(|line| line.starts_with(&gone)), "{report}");
    let found = contents(&mut log, &shelf);
    assert!(!found.is_empty() && found.iter().filter(|(n, _)| sound.contains_key(n)).all(|(n, v)| sound[n] == *v));
}

fn strict() -> LogOptions {
    LogOptions { strict: true, ..small() }
}

/// F113: the newest segment has no successor that would miss it; the mark does.
#[test]
fn f113_the_newest_segment_missing_or_empty_is_named_counted_and_refused_by_strict() {
    let (files, _) = some_store();
    let newest = files.iter().rposition(|(name, _)| name.starts_with("log")).unwrap();
    let name = files[newest].0.clone();
    let (mut without, mut emptied) = (files.clone(), files.clone());
    without.remove(newest);
    emptied[newest].1.clear();
    let mut bare = files.clone();
    bare[newest].1.truncate(50);
    for files in [without, emptied, bare] {
        assert!(matches!(open(disk_of(&files), strict()), Err(StoreError::Strict { .. })));
        let disk = disk_of(&files);
        let (log, _, report) = open(disk.boot(), small()).unwrap();
        assert!(report.is_damaged() && report.lines.iter().any(|line| line.starts_with(&name)), "{report}");
        assert!(log.end().unwrap().file.name() > name, "never the same name");
        let (_, _, report) = open(log.abandon(), small()).unwrap();
        assert!(!report.lines.iter().any(|line| line.contains("newest")), "told once: {report}");
    }
}

/// F113: a snapshot was written when its segment had been begun.
#[test]
fn f113_a_snapshot_misses_its_segment_also_without_a_mark() {
    let disk = SimDisk::new(5);
    let (mut log, ..) = open(disk.boot(), small()).unwrap();
    append(&mut log, &[put(1)]).unwrap();
    log.compact::<Shelf>().unwrap();
    append(&mut log, &[put(2)]).unwrap();
    log.sync().unwrap();
    let name = log.end().unwrap().file.name();
    let number = log.end().unwrap().file.number();
    let snapshot = FileId::snapshot(number).name();
    let files = [(snapshot.clone(), disk.contents(&snapshot).unwrap()), (name.clone(), Vec::new())];
    for files in [&files[..1], &files[..]] {
        assert!(matches!(open(disk_of(files), strict()), Err(StoreError::Strict { .. })));
        let (_, _, report) = open(disk_of(files), small()).unwrap();
        assert!(report.is_damaged() && report.lines[0].starts_with(&name), "{report}");
    }
}

/// F111: an end that was synced is not called one that was never written, wherever it is cut; and one of which no sync is
/// known is not called unacknowledged.
#[test]
fn f111_a_cut_below_the_mark_is_a_loss_and_above_it_a_torn_end() {
    let disk = SimDisk::new(5);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    for n in 0..4 {
        append(&mut log, &[put(n)]).unwrap();
        log.sync().unwrap();
    }
    let synced = log.end().unwrap().offset as usize;
    append(&mut log, &[put(9)]).unwrap();
    let name = FileId::segment(1).name();
    let bytes = disk.contents(&name).unwrap();
    let mark = disk.contents("MARK").unwrap();
    for cut in 96..bytes.len() {
        let files = [(name.clone(), bytes[..cut].to_vec()), ("MARK".to_owned(), mark.clone())];
        let (_, _, report) = open(disk_of(&files), LogOptions::default()).unwrap();
        assert_eq!(report.is_damaged(), cut < synced, "cut at {cut}: {report}");
        assert!(!report.to_string().contains("acknowledged"), "{report}");
        let strict = LogOptions { strict: true, ..LogOptions::default() };
        assert_eq!(open(disk_of(&files), strict).is_err(), cut < synced, "cut at {cut}");
    }
    let (_, _, report) = open(disk_of(&[(name, bytes[..synced - 1].to_vec())]), LogOptions::default()).unwrap();
    assert!(report.lines[0].contains("no mark tells whether they had been acknowledged"), "{report}");
}

/// F113: what was put into or taken out of the middle of the newest segment shifts the rest: that is a loss, too.
#[test]
fn f113_shifted_bytes_in_the_newest_segment_are_a_loss() {
    let disk = SimDisk::new(5);
    let (mut log, ..) = open(disk.boot(), LogOptions::default()).unwrap();
    for n in 0..4 {
        append(&mut log, &[put(n)]).unwrap();
    }
    log.sync().unwrap();
    let name = FileId::segment(1).name();
    let mark = disk.contents("MARK").unwrap();
    let bytes = disk.contents(&name).unwrap();
    let mut longer = bytes.clone();
    longer.insert(150, 7);
    let mut shorter = bytes;
    shorter.remove(150);
    for bytes in [longer, shorter] {
        let files = [(name.clone(), bytes), ("MARK".to_owned(), mark.clone())];
        let (_, _, report) = open(disk_of(&files), LogOptions::default()).unwrap();
        assert!(report.is_damaged(), "{report}");
    }
}

/// F113: garbage instead of files: set aside under its name, and a start with what is left.
#[test]
fn f113_garbage_is_set_aside_whole() {
    let name = FileId::segment(4).name();
    let disk = SimDisk::new(1);
    disk.put(&name, b"not a log at all, but longer than any header would be ".repeat(5));
    let strict = LogOptions { strict: true, ..LogOptions::default() };
    assert!(matches!(open(disk.boot(), strict), Err(StoreError::Strict { .. })));
    let (log, shelf, report) = open(disk.boot(), LogOptions::default()).unwrap();
    assert!(shelf.0.is_empty() && report.lines[0].contains(&name), "{report}");
    assert!(disk.contents(&format!("{name}.bad")).is_some());
    assert_eq!(log.end().unwrap().file, FileId::segment(5), "never the same name");
}

/// F113: a newer release's files are refused, and stay as they are.
#[test]
fn f113_another_format_is_refused_and_nothing_is_changed() {
    let (mut files, _) = some_store();
    let last = files.len() - 1;
    for copy in [0, 48] {
        files[last].1[copy + 8] = 7;
    }
    let disk = disk_of(&files);
    let error = open(disk.boot(), small()).unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 7, .. }), "{error}");
    for (name, bytes) in &files {
        assert_eq!(disk.contents(name).as_ref(), Some(bytes));
    }
    let unknown = |record: tidegate_store::RawRecord<'_>, _| Err(StoreError::Record { tag: record.tag, what: "newer" });
    let (sound, _) = some_store();
    let disk = disk_of(&sound);
    assert!(tidegate_store::Log::open(disk.boot(), small(), unknown).is_err());
    assert_eq!(disk.calls(), 0, "refused before anything was changed");
}

/// F128: a store of another release is refused by whoever would write, before anything is written; and read by nobody.
#[test]
fn f128_another_release_is_refused_before_anything_is_written() {
    let (mut files, _) = some_store();
    let newest = files.iter().rposition(|(name, _)| name.starts_with("log")).unwrap();
    for copy in [0, 48] {
        files[newest].1[copy + 8] = 2;
    }
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    fs::create_dir(&store).unwrap();
    for (name, bytes) in &files {
        fs::write(store.join(name), bytes).unwrap();
    }
    assert!(matches!(open(FsDisk::open(&store).unwrap(), small()), Err(StoreError::Version { found: 2, .. })));
    assert!(matches!(check::<Shelf>(&store), Err(StoreError::Version { .. })));
    assert!(backup::<Shelf>(&store, &copy).is_err() && !copy.exists());
    for (name, bytes) in &files {
        assert_eq!(&fs::read(store.join(name)).unwrap(), bytes, "{name}");
    }
}

/// F119.
#[test]
fn f119_a_second_owner_is_refused_with_the_first_ones_pid() {
    let dir = tempfile::tempdir().unwrap();
    let first = FsDisk::open(dir.path()).unwrap();
    let error = FsDisk::open(dir.path()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(first);
    FsDisk::open(dir.path()).unwrap();
}

/// F119: the file of the lock may go; the directory cannot.
#[test]
fn f119_a_lock_that_was_removed_by_hand_still_holds() {
    let dir = tempfile::tempdir().unwrap();
    let first = FsDisk::open(dir.path()).unwrap();
    fs::remove_file(dir.path().join("LOCK")).unwrap();
    assert!(matches!(FsDisk::open(dir.path()), Err(StoreError::Locked { pid: None, .. })));
    assert!(matches!(check::<Shelf>(dir.path()), Err(StoreError::Locked { .. })));
    drop(first);
    FsDisk::open(dir.path()).unwrap();
}

fn modes(dir: &Path) -> Vec<u32> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.chain([dir.to_path_buf()]).map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777).collect()
}

/// F150: nobody else may read what was kept, also where an earlier release, or somebody, has let them.
#[test]
fn f150_files_and_folders_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let disk = FsDisk::open(&store).unwrap();
    assert_eq!(disk.narrowed(), None);
    let (mut log, ..) = open(disk, small()).unwrap();
    append(&mut log, &[put(1)]).unwrap();
    log.compact::<Shelf>().unwrap();
    drop(log.close().unwrap());
    backup::<Shelf>(&store, &copy).unwrap();
    for dir in [&store, &copy] {
        let modes = modes(dir);
        assert!(modes.len() > 3 && modes.iter().all(|mode| mode | 0o700 == 0o700), "{modes:?}");
    }
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(&store).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let disk = FsDisk::open(&store).unwrap();
    assert!(disk.narrowed().unwrap().contains("others could read"));
    assert!(modes(&store).iter().all(|mode| mode | 0o700 == 0o700));
}

/// A copy misses what was taken from it.
#[test]
fn f113_the_newest_segment_of_a_copy_is_missed() {
    let (files, _) = some_store();
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    fs::create_dir(&store).unwrap();
    for (name, bytes) in &files {
        fs::write(store.join(name), bytes).unwrap();
    }
    assert!(!backup::<Shelf>(&store, &copy).unwrap().is_damaged());
    let newest = files.iter().rfind(|(name, _)| name.starts_with("log")).unwrap();
    fs::remove_file(copy.join(&newest.0)).unwrap();
    assert!(check::<Shelf>(&copy).unwrap().is_damaged());
}

/// F117.
#[test]
fn f117_a_place_that_cannot_be_a_store_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    fs::write(&file, "a file").unwrap();
    let error = FsDisk::open(&file).unwrap_err().to_string();
    assert!(error.contains("data"), "{error}");
    assert!(check::<Shelf>(&dir.path().join("missing")).is_err());
    assert!(!dir.path().join("missing").exists(), "a check makes nothing");
}

#[test]
fn a_check_finds_what_a_start_would_repair_and_changes_nothing() {
    let (files, _) = some_store();
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in &files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let report = check::<Shelf>(dir.path()).unwrap();
    assert!(report.is_sound() && report.is_closed, "{report}");
    for (name, bytes) in &files {
        let mut damaged = bytes.clone();
        damaged[bytes.len() - 6] ^= 4;
        fs::write(dir.path().join(name), &damaged).unwrap();
        let is_read = name.starts_with("snapshot") || *name >= FileId::segment(5).name();
        let report = check::<Shelf>(dir.path()).unwrap();
        assert!(!report.is_sound() || !is_read, "{name}: {report}");
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), damaged);
        fs::write(dir.path().join(name), bytes).unwrap();
    }
}

#[test]
fn a_copy_is_a_store_and_never_writes_over_one() {
    let (files, sound) = some_store();
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    fs::create_dir(&store).unwrap();
    for (name, bytes) in &files {
        fs::write(store.join(name), bytes).unwrap();
    }
    assert!(backup::<Shelf>(&store, &copy).unwrap().is_sound());
    assert!(backup::<Shelf>(&store, &copy).is_err(), "there is one already");
    fs::remove_dir_all(&store).unwrap();
    fs::create_dir(&store).unwrap();
    restore::<Shelf>(&copy, &store).unwrap();
    let (mut log, shelf, _) = open(FsDisk::open(&store).unwrap(), small()).unwrap();
    assert_eq!(contents(&mut log, &shelf), sound);
}
