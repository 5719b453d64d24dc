//! A directory of the file system, held by locks for as long as it is open.
//!
//! One lock is on the directory itself, which nobody can replace unnoticed, and one on the file `LOCK`, for releases that
//! know no other. What is in here are other people's messages: nobody else may read it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstatvfs};
use rustix::io::Errno;

use super::{Disk, Files, Partition};
use crate::error::StoreError;
use crate::limits::HANDLES_MAX;

/// Name of the file that the second lock is on. It is left behind: removing it would open a race.
pub(crate) const LOCK: &str = "LOCK";
/// Rights of every file: the owner's.
const FILE_MODE: u32 = 0o600;
/// Rights of every folder: the owner's.
const DIR_MODE: u32 = 0o700;

/// Makes a folder, with those above it, that only its owner can look into. Those that are there stay as they are.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
}

/// Takes the rights of others from a file or folder; whether they had any.
fn narrow(path: &Path) -> io::Result<bool> {
    let metadata = std::fs::symlink_metadata(path)?;
    let mode = metadata.permissions().mode() & 0o7777;
    // The owner's own stay as they are: some files are to be read only.
    let wanted = mode & 0o700;
    if metadata.is_symlink() || wanted == mode {
        return Ok(false);
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted))?;
    Ok(true)
}

/// Takes the rights of others from a folder and the files in it. What was done or could not be, in words.
pub fn narrow_dir(dir: &Path) -> Option<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let (mut narrowed, mut failed) = (0, None);
    for path in std::iter::once(dir.to_path_buf()).chain(entries.map(|entry| entry.path())) {
        match narrow(&path) {
            Ok(is_done) => narrowed += usize::from(is_done),
            Err(error) => failed = failed.or(Some((path, error))),
        }
    }
    match failed {
        Some((path, error)) => {
            let path = path.display();
            Some(format!("others than the broker may read {path}, and that cannot be changed: {error}"))
        }
        None if narrowed > 0 => {
            let dir = dir.display();
            Some(format!("others could read {dir} and what is in it ({narrowed} names); now only its owner can"))
        }
        None => None,
    }
}

/// The files of a directory, for reading: any number of readers beside the one owner.
#[derive(Debug)]
pub struct FsFiles {
    dir: PathBuf,
    open: BTreeMap<String, File>,
}

impl FsFiles {
    /// Of this directory; nothing is opened yet.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), open: BTreeMap::new() }
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if !self.open.contains_key(name) {
            if self.open.len() >= HANDLES_MAX {
                // Segments are read in order, mostly: the lowest name is the one that is done.
                self.open.pop_first();
            }
            let file = File::open(self.dir.join(name))?;
            self.open.insert(name.to_owned(), file);
        }
        self.open.get(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for FsFiles {
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.file(name)?;
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn size(&mut self, name: &str) -> io::Result<u64> {
        Ok(self.file(name)?.metadata()?.len())
    }
}

/// The owner of a directory.
#[derive(Debug)]
pub struct FsDisk {
    files: FsFiles,
    /// Files being written.
    writing: BTreeMap<String, File>,
    dir: File,
    /// Held until the last handle is gone.
    locks: Arc<[File; 2]>,
    opened: Instant,
    narrowed: Option<String>,
}

impl FsDisk {
    /// Opens the directory, makes it if it is missing, locks it, and keeps others from looking into it.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let place = dir.display().to_string();
        create_private_dir(dir).map_err(StoreError::io("create the directory", &place))?;
        let handle = File::open(dir).map_err(StoreError::io("open the directory", &place))?;
        let path = dir.join(LOCK);
        // Before anything is written: this one cannot be removed by hand while somebody has it. A file system that knows no
        // locks of directories has the other one.
        if flock(&handle, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(locked(place, &path));
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(&path);
        let mut lock = options.map_err(StoreError::io("write into the directory, at", &path.display().to_string()))?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(StoreError::io("lock", &path.display().to_string())(error.into()));
            }
            return Err(locked(place, &path));
        }
        // The pid is a courtesy to the next one who fails; the lock is what holds.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        let narrowed = narrow_dir(dir);
        Self::new(dir, handle, lock, narrowed).map_err(StoreError::io("open the directory", &place))
    }

    /// The same to read only, and nothing in it is changed: it may be a copy, and on a medium that cannot be written. One
    /// without the file of the lock never was in use.
    pub(crate) fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        let place = dir.display().to_string();
        let handle = File::open(dir).map_err(StoreError::io("open the directory", &place))?;
        let path = dir.join(LOCK);
        let lock = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => handle.try_clone(),
            file => file,
        };
        let lock = lock.map_err(StoreError::io("open", &path.display().to_string()))?;
        // A medium that knows no locks has no broker on it either: no other error counts.
        let is_taken = |file: &File| flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        if is_taken(&handle) || is_taken(&lock) {
            return Err(locked(place, &path));
        }
        Self::new(dir, handle, lock, None).map_err(StoreError::io("open the directory", &place))
    }

    fn new(dir: &Path, handle: File, lock: File, narrowed: Option<String>) -> io::Result<Self> {
        Ok(Self {
            files: FsFiles::new(dir),
            writing: BTreeMap::new(),
            dir: File::open(dir)?,
            locks: Arc::new([handle, lock]),
            opened: Instant::now(),
            narrowed,
        })
    }

    /// What was done about the rights of others, if they had any.
    pub fn narrowed(&self) -> Option<&str> {
        self.narrowed.as_deref()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.files.dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.dir.join(name)
    }

    fn writer(&mut self, name: &str) -> io::Result<&mut File> {
        if !self.writing.contains_key(name) {
            let file = OpenOptions::new().append(true).open(self.path(name))?;
            self.writing.insert(name.to_owned(), file);
        }
        self.writing.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn locked(dir: String, path: &Path) -> StoreError {
    let pid = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    StoreError::Locked { dir, pid }
}

impl Files for FsDisk {
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.files.read(name, offset, into)
    }

    fn size(&mut self, name: &str) -> io::Result<u64> {
        self.files.size(name)
    }
}

impl Disk for FsDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.files.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(self.path(name))?;
        self.writing.insert(name.to_owned(), file);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.writer(name)?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.writer(name)?.sync_data()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn truncate(&mut self, name: &str, size: u64) -> io::Result<()> {
        self.writer(name)?.set_len(size)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.close(from);
        self.close(to);
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.close(name);
        std::fs::remove_file(self.path(name))
    }

    fn note(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.writing.contains_key(name) {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(FILE_MODE).open(self.path(name))?;
            self.writing.insert(name.to_owned(), file);
        }
        self.writer(name)?.write_all_at(bytes, at)
    }

    fn reserve(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(self.path(name))?;
        let reserved = match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // Not every file system can; bytes are bytes.
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => fill(&mut file, bytes),
            reserved => reserved.map_err(io::Error::from),
        };
        if reserved.is_err() {
            let _ = std::fs::remove_file(self.path(name));
        }
        reserved
    }

    fn partition(&self) -> Option<Partition> {
        let stat = fstatvfs(&self.dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        // Some that are not disks say 0.
        (stat.f_blocks > 0).then(|| Partition { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }

    fn close(&mut self, name: &str) {
        self.writing.remove(name);
        self.files.open.remove(name);
    }

    fn salt(&mut self) -> u32 {
        // Keyed anew by the system's generator for every call.
        RandomState::new().hash_one(0) as u32
    }

    fn clock(&self) -> Duration {
        self.opened.elapsed()
    }

    fn again(&self) -> io::Result<Self> {
        Ok(Self {
            files: FsFiles::new(&self.files.dir),
            writing: BTreeMap::new(),
            dir: File::open(&self.files.dir)?,
            locks: Arc::clone(&self.locks),
            opened: self.opened,
            narrowed: None,
        })
    }

    fn place(&self) -> String {
        self.files.dir.display().to_string()
    }
}

/// Zeroes, where a file system cannot set bytes aside otherwise.
fn fill(file: &mut File, bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; 64 * 1024];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(zeroes.len() as u64) as usize;
        file.write_all(&zeroes[..part])?;
        left -= part as u64;
    }
    file.sync_all()
}
