//! A directory that is kept elsewhere, too: what is synced is on the own medium *and* where the mirror brings it.
//!
//! It lies below the log, as every disk does: what the log does about a sync that failed, it does about a mirror that failed.
//! Where copies go, and what they are worth, is the mirror's business.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{Disk, Files, Partition};

/// What happens to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorChange<'a> {
    /// A new, empty file.
    Create(&'a str),
    /// Bytes at the end of a file.
    Append(&'a str, &'a [u8]),
    /// A file is cut.
    Truncate(&'a str, u64),
    /// From one name to another.
    Rename(&'a str, &'a str),
    /// A file is gone.
    Remove(&'a str),
}

/// Where the copy goes. Which files it wants is for the mirror to know.
pub trait Mirror: Send + Sync + fmt::Debug {
    /// Takes a change, in the order of the calls; the number is what to wait for. What is refused has not happened. Who is not urgent
    /// may be held up for those who are.
    fn push(&self, change: MirrorChange<'_>, is_urgent: bool) -> io::Result<u64>;
    /// Returns when everything up to this number is kept there.
    fn wait(&self, number: u64) -> io::Result<()>;
    /// Whether it is certain that nobody else writes in the place of who writes here. While it is not, nobody is told anything: who
    /// was asleep does not know what has changed.
    fn holds(&self) -> bool {
        true
    }
}

/// A disk and its mirror.
#[derive(Debug)]
pub struct MirroredDisk<D> {
    disk: D,
    mirror: Arc<dyn Mirror>,
    /// The last change of this handle.
    pushed: u64,
    /// The owner's own, for which somebody waits; others write beside it.
    is_urgent: bool,
}

impl<D: Disk> MirroredDisk<D> {
    /// What happens to `disk` from now on happens to the mirror; what is there has to be there already.
    pub fn new(disk: D, mirror: Arc<dyn Mirror>) -> Self {
        Self { disk, mirror, pushed: 0, is_urgent: true }
    }

    /// First the mirror, which may refuse; then the own one, for which it is ordinary to fail halfway.
    fn push(&mut self, change: MirrorChange<'_>) -> io::Result<()> {
        self.pushed = self.mirror.push(change, self.is_urgent)?;
        Ok(())
    }
}

impl<D: Disk> Files for MirroredDisk<D> {
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read(name, offset, into)
    }

    fn size(&mut self, name: &str) -> io::Result<u64> {
        self.disk.size(name)
    }
}

impl<D: Disk> Disk for MirroredDisk<D> {
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        // Before the mirror hears of it: one that is there already is not to be emptied elsewhere.
        self.disk.create(name)?;
        self.push(MirrorChange::Create(name))
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.push(MirrorChange::Append(name, bytes))?;
        self.disk.append(name, bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        // The mirror has been at it since the bytes were appended: both go on at the same time.
        let own = self.disk.sync(name);
        self.mirror.wait(self.pushed).and(own)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let own = self.disk.sync_names();
        self.mirror.wait(self.pushed).and(own)
    }

    fn truncate(&mut self, name: &str, size: u64) -> io::Result<()> {
        self.push(MirrorChange::Truncate(name, size))?;
        self.disk.truncate(name, size)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.push(MirrorChange::Rename(from, to))?;
        self.disk.rename(from, to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.push(MirrorChange::Remove(name))?;
        self.disk.remove(name)
    }

    fn note(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.note(name, at, bytes)
    }

    fn reserve(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        self.disk.reserve(name, bytes)
    }

    fn partition(&self) -> Option<Partition> {
        self.disk.partition()
    }

    fn close(&mut self, name: &str) {
        self.disk.close(name);
    }

    fn salt(&mut self) -> u32 {
        self.disk.salt()
    }

    fn clock(&self) -> Duration {
        self.disk.clock()
    }

    fn again(&self) -> io::Result<Self> {
        let (disk, mirror) = (self.disk.again()?, Arc::clone(&self.mirror));
        Ok(Self { disk, mirror, pushed: self.pushed, is_urgent: false })
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{Crash, SimDisk};
    use crate::{Log, LogOptions, RawRecord, RecordBatch};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// A mirror in memory, which keeps nothing while it is broken.
    #[derive(Debug, Default)]
    struct Memory {
        files: Mutex<BTreeMap<String, Vec<u8>>>,
        is_broken: std::sync::atomic::AtomicBool,
    }

    impl Mirror for Memory {
        fn push(&self, change: MirrorChange<'_>, _: bool) -> io::Result<u64> {
            let mut files = self.files.lock().unwrap();
            match change {
                MirrorChange::Create(name) => drop(files.insert(name.to_owned(), Vec::new())),
                MirrorChange::Append(name, bytes) => files.entry(name.to_owned()).or_default().extend(bytes),
                MirrorChange::Truncate(name, size) => files.get_mut(name).unwrap().truncate(size as usize),
                MirrorChange::Rename(from, to) => {
                    let bytes = files.remove(from).unwrap_or_default();
                    files.insert(to.to_owned(), bytes);
                }
                MirrorChange::Remove(name) => drop(files.remove(name)),
            }
            Ok(0)
        }

        fn wait(&self, _: u64) -> io::Result<()> {
            let is_broken = self.is_broken.load(std::sync::atomic::Ordering::Relaxed);
            if is_broken { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
        }
    }

    fn batch(payload: &[u8]) -> RecordBatch {
        let mut batch = RecordBatch::new();
        batch.push(RawRecord { tag: 1, version: 1, is_skippable: false, payload }).unwrap();
        batch
    }

    /// What a store with the mirror's files has: the own disk is gone.
    fn elsewhere(mirror: &Memory) -> Vec<Vec<u8>> {
        let disk = SimDisk::new(2);
        let mut handle = disk.boot();
        for (name, bytes) in &*mirror.files.lock().unwrap() {
            handle.create(name).and_then(|()| handle.append(name, bytes)).and_then(|()| handle.sync(name)).unwrap();
        }
        handle.sync_names().unwrap();
        let mut kept = Vec::new();
        let log = Log::open(disk.boot(), LogOptions::default(), |record, _| {
            kept.push(record.payload.to_vec());
            Ok(())
        });
        assert!(log.unwrap().1.is_sound());
        kept
    }

    #[test]
    fn what_a_log_has_synced_is_there_though_the_disk_is_gone() {
        let (disk, mirror) = (SimDisk::new(1), Arc::new(Memory::default()));
        let mirrored = MirroredDisk::new(disk.boot(), Arc::clone(&mirror) as Arc<dyn Mirror>);
        let (mut log, _) = Log::open(mirrored, LogOptions::default(), |_, _| Ok(())).unwrap();
        for payload in [b"one", b"two"] {
            log.append(&[batch(payload)], &mut Vec::new()).unwrap();
            log.sync().unwrap();
        }
        disk.crash(Crash::LoseUnsynced);
        assert_eq!(elsewhere(&mirror), [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn a_mirror_that_fails_is_a_sync_that_failed() {
        let (disk, mirror) = (SimDisk::new(1), Arc::new(Memory::default()));
        let mirrored = MirroredDisk::new(disk.boot(), Arc::clone(&mirror) as Arc<dyn Mirror>);
        let (mut log, _) = Log::open(mirrored, LogOptions::default(), |_, _| Ok(())).unwrap();
        mirror.is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
        log.append(&[batch(b"one")], &mut Vec::new()).unwrap();
        assert!(log.sync().is_err() && log.is_failed());
        mirror.is_broken.store(false, std::sync::atomic::Ordering::Relaxed);
        log.repair().unwrap();
        log.append(&[batch(b"one, again")], &mut Vec::new()).unwrap();
        log.sync().unwrap();
        assert_eq!(
            elsewhere(&mirror),
            [b"one, again".to_vec()],
            "what was not settled does not count elsewhere either"
        );
    }
}
