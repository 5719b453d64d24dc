//! A disk in memory that fails on demand, by seed: the same seed and the same calls give the same bytes after a crash.
//!
//! It is unkind in the ways that are known of real ones. A crash keeps what was synced, and of the rest any subset of its
//! sectors; names that were not synced may be gone. After a failed sync the data it was about is lost for good,
//! even if a later sync of the same file succeeds, as on Linux.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Disk, Files, Partition};
use crate::error::EIO;

/// Written as a whole or not at all. Real ones have 512 bytes or more; with small ones, small logs tear as large ones do.
const SECTOR: usize = 64;

/// What becomes of unsynced data at a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All of it is there: the process died, the machine did not.
    Process,
    /// None of it is.
    LoseUnsynced,
    /// So many bytes behind what was synced are there, in each file.
    KeepBytes(usize),
    /// Each sector and each name by the toss of a coin.
    Tear,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// No space left.
    Full,
    /// The device failed.
    Device,
    /// The file system became read-only.
    ReadOnly,
}

impl DiskFault {
    fn error(self) -> io::Error {
        match self {
            Self::Full => io::ErrorKind::StorageFull.into(),
            Self::Device => io::Error::from_raw_os_error(EIO),
            Self::ReadOnly => io::ErrorKind::ReadOnlyFilesystem.into(),
        }
    }
}

/// The disk: keep one handle to break it, and give another, from [`SimDisk::boot`], to the log.
#[derive(Debug)]
pub struct SimDisk {
    machine: Arc<Mutex<SimulatedMachine>>,
    /// Handles from before a crash are dead: a process does not write after the power went.
    life: u64,
}

#[derive(Debug, Default)]
struct SimulatedMachine {
    /// Crashes so far.
    life: u64,
    files: BTreeMap<u64, SimFile>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next_file: u64,
    random: u64,
    clock: Duration,
    /// Calls that change something, so far.
    calls: u64,
    /// Which of them fails, and how.
    faults: BTreeMap<u64, DiskFault>,
    /// Every one from this on fails.
    broken: Option<DiskFault>,
    capacity: Option<u64>,
    sync_time: Duration,
}

#[derive(Debug, Default)]
struct SimFile {
    bytes: Vec<u8>,
    /// What is on the medium.
    synced: usize,
    /// Ranges that no sync will ever write.
    poisoned: Vec<(usize, usize)>,
    /// What the medium has of one that was written over.
    before: Option<Vec<u8>>,
}

impl SimDisk {
    /// An empty one.
    pub fn new(seed: u64) -> Self {
        let machine = SimulatedMachine { random: seed, ..SimulatedMachine::default() };
        Self { machine: Arc::new(Mutex::new(machine)), life: 0 }
    }

    /// A handle that works until the next crash.
    #[must_use]
    pub fn boot(&self) -> Self {
        let life = self.machine().life;
        Self { machine: Arc::clone(&self.machine), life }
    }

    fn machine(&self) -> MutexGuard<'_, SimulatedMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, SimulatedMachine>> {
        let machine = self.machine();
        if machine.life == self.life { Ok(machine) } else { Err(DiskFault::Device.error()) }
    }

    /// Pulls the plug; what is on it afterwards is what a restart finds.
    pub fn crash(&self, how: Crash) {
        self.machine().crash(how);
    }

    /// Lets the n-th changing call from now fail once; 0 is the next one.
    pub fn fail_call(&self, n: u64, fault: DiskFault) {
        let mut machine = self.machine();
        let call = machine.calls + n;
        machine.faults.insert(call, fault);
    }

    /// Lets every changing call fail, until told otherwise.
    pub fn set_broken(&self, fault: Option<DiskFault>) {
        self.machine().broken = fault;
    }

    /// Bytes that fit on it.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine().capacity = bytes;
    }

    /// How long each sync takes, on [`Disk::clock`].
    pub fn set_sync_time(&self, time: Duration) {
        self.machine().sync_time = time;
    }

    /// Changing calls so far.
    pub fn calls(&self) -> u64 {
        self.machine().calls
    }

    /// Bytes of a file as a reader sees them now.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let machine = self.machine();
        Some(machine.files.get(machine.names.get(name)?)?.bytes.clone())
    }

    /// Puts a file there, synced: to build damage by hand.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut machine = self.machine();
        let id = machine.new_file(name);
        machine.durable_names.insert(name.to_owned(), id);
        machine.files.insert(id, SimFile { synced: bytes.len(), bytes, ..SimFile::default() });
    }
}

impl SimulatedMachine {
    fn chance(&mut self) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn call(&mut self) -> io::Result<()> {
        let call = self.calls;
        self.calls += 1;
        match self.faults.remove(&call).or(self.broken) {
            Some(fault) => Err(fault.error()),
            None => Ok(()),
        }
    }

    fn new_file(&mut self, name: &str) -> u64 {
        let id = self.next_file;
        self.next_file += 1;
        self.names.insert(name.to_owned(), id);
        self.files.insert(id, SimFile::default());
        id
    }

    fn file(&mut self, name: &str) -> io::Result<&mut SimFile> {
        let id = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        self.files.get_mut(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn crash(&mut self, how: Crash) {
        self.life += 1;
        self.faults.clear();
        self.broken = None;
        if how == Crash::Process {
            // What was written is still there to be read, and no safer than before.
            return;
        }
        self.crash_names(how);
        let ids: Vec<u64> = self.files.keys().copied().collect();
        for id in ids {
            self.crash_file(id, how);
        }
        let (names, files) = (&self.names, &mut self.files);
        files.retain(|id, _| names.values().any(|known| known == id));
        for file in self.files.values_mut() {
            file.synced = file.bytes.len();
            file.poisoned.clear();
        }
        self.durable_names = self.names.clone();
    }

    fn crash_names(&mut self, how: Crash) {
        let all: Vec<String> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        let volatile = std::mem::take(&mut self.names);
        for name in all {
            let keep_new = how == Crash::Tear && self.chance() & 1 == 0;
            let entry = if keep_new { volatile.get(&name) } else { self.durable_names.get(&name) };
            if let Some(id) = entry {
                self.names.insert(name, *id);
            }
        }
    }

    fn crash_file(&mut self, id: u64, how: Crash) {
        let Some(mut file) = self.files.remove(&id) else { return };
        if let Some(before) = file.before.take() {
            file.bytes = self.crash_overwritten(&file.bytes, before, how);
            self.files.insert(id, file);
            return;
        }
        let synced = file.synced.min(file.bytes.len());
        match how {
            Crash::Process => {}
            Crash::LoseUnsynced => file.bytes.truncate(synced),
            Crash::KeepBytes(more) => file.bytes.truncate(synced.saturating_add(more)),
            Crash::Tear => {
                let cut = synced + (self.chance() % (file.bytes.len() - synced + 1) as u64) as usize;
                file.bytes.truncate(cut);
                let mut at = synced;
                while at < file.bytes.len() {
                    let end = ((at / SECTOR + 1) * SECTOR).min(file.bytes.len());
                    if self.chance() & 1 == 0 {
                        file.bytes[at..end].fill(0);
                    }
                    at = end;
                }
            }
        }
        for (start, end) in std::mem::take(&mut file.poisoned) {
            let end = end.min(file.bytes.len());
            if let Some(range) = file.bytes.get_mut(start..end) {
                range.fill(0);
            }
        }
        self.files.insert(id, file);
    }

    /// A file that was written over has the old or the new bytes, sector by sector.
    fn crash_overwritten(&mut self, new: &[u8], mut before: Vec<u8>, how: Crash) -> Vec<u8> {
        if how == Crash::Tear {
            before.resize(new.len(), 0);
            for (old, new) in before.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                if self.chance() & 1 == 0 {
                    old.copy_from_slice(new);
                }
            }
        }
        before
    }

    /// Bytes that still fit.
    fn room(&self) -> u64 {
        let used: usize = self.names.values().filter_map(|id| self.files.get(id)).map(|file| file.bytes.len()).sum();
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used as u64))
    }
}

impl Files for SimDisk {
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut machine = self.alive()?;
        let bytes = &machine.file(name)?.bytes;
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn size(&mut self, name: &str) -> io::Result<u64> {
        Ok(self.alive()?.file(name)?.bytes.len() as u64)
    }
}

impl Disk for SimDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.alive()?.names.keys().cloned().collect())
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.call()?;
        if machine.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        machine.new_file(name);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut machine = self.alive()?;
        let room = usize::try_from(machine.room()).unwrap_or(usize::MAX);
        let result = if bytes.len() > room { Err(DiskFault::Full.error()) } else { machine.call() };
        // A write that fails may have written a part.
        let part = if result.is_ok() { bytes.len() } else { bytes.len().min(room) / 2 };
        machine.file(name)?.bytes.extend_from_slice(&bytes[..part]);
        result
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        let time = machine.sync_time;
        machine.clock += time;
        let result = machine.call();
        let file = machine.file(name)?;
        if result.is_err() && file.synced < file.bytes.len() {
            file.poisoned.push((file.synced, file.bytes.len()));
        }
        // Even then: the system now believes that these pages are clean.
        file.synced = file.bytes.len();
        if result.is_ok() {
            file.before = None;
        }
        result
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.call()?;
        machine.durable_names = machine.names.clone();
        Ok(())
    }

    fn truncate(&mut self, name: &str, size: u64) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.call()?;
        let file = machine.file(name)?;
        file.bytes.truncate(size as usize);
        file.synced = file.synced.min(file.bytes.len());
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.call()?;
        let id = machine.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        machine.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.call()?;
        machine.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn note(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut machine = self.alive()?;
        // No call of its own: whoever counts calls counts those that matter.
        if let Some(fault) = machine.broken {
            return Err(fault.error());
        }
        if !machine.names.contains_key(name) {
            machine.new_file(name);
        }
        let file = machine.file(name)?;
        let old = file.bytes.clone();
        file.before.get_or_insert(old);
        let end = at as usize + bytes.len();
        file.bytes.resize(file.bytes.len().max(end), 0);
        file.bytes[at as usize..end].copy_from_slice(bytes);
        file.synced = file.bytes.len();
        Ok(())
    }

    fn reserve(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.call()?;
        if bytes > machine.room() {
            return Err(DiskFault::Full.error());
        }
        let id = machine.new_file(name);
        let file = SimFile { bytes: vec![0; bytes as usize], synced: bytes as usize, ..SimFile::default() };
        machine.files.insert(id, file);
        Ok(())
    }

    fn partition(&self) -> Option<Partition> {
        let machine = self.machine();
        machine.capacity.map(|total| Partition { free: machine.room(), total })
    }

    fn close(&mut self, _name: &str) {}

    fn salt(&mut self) -> u32 {
        self.machine().chance() as u32
    }

    fn clock(&self) -> Duration {
        self.machine().clock
    }

    fn again(&self) -> io::Result<Self> {
        Ok(Self { machine: Arc::clone(&self.machine), life: self.life })
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}
