//! A directory of the file system, held by a lock for as long as it is open.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::{Disk, Files};
use crate::error::StoreError;
use crate::limits::HANDLES_MAX;

/// Name of the file that the lock is on. It is left behind: removing it would open a race.
pub(crate) const LOCK: &str = "LOCK";

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
    lock: Arc<File>,
    opened: Instant,
}

impl FsDisk {
    /// Opens the directory, makes it if it is missing, and locks it.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let place = dir.display().to_string();
        std::fs::create_dir_all(dir).map_err(StoreError::io("create the directory", &place))?;
        let path = dir.join(LOCK);
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut lock = options.map_err(StoreError::io("write into the directory, at", &path.display().to_string()))?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(StoreError::io("lock", &path.display().to_string())(error.into()));
            }
            let pid = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            return Err(StoreError::Locked { dir: place, pid });
        }
        // The pid is a courtesy to the next one who fails; the lock is what holds.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        let handle = File::open(dir).map_err(StoreError::io("open the directory", &place))?;
        Ok(Self {
            files: FsFiles::new(dir),
            writing: BTreeMap::new(),
            dir: handle,
            lock: Arc::new(lock),
            opened: Instant::now(),
        })
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
        if flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK) {
            let pid = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            return Err(StoreError::Locked { dir: place, pid });
        }
        let (files, writing) = (FsFiles::new(dir), BTreeMap::new());
        Ok(Self { files, writing, dir: handle, lock: Arc::new(lock), opened: Instant::now() })
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
        let file = OpenOptions::new().append(true).create_new(true).open(self.path(name))?;
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
            lock: Arc::clone(&self.lock),
            opened: self.opened,
        })
    }

    fn place(&self) -> String {
        self.files.dir.display().to_string()
    }
}
