//! A copy of a lineage's files, written while its stream is read: the folder is there when it is needed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_cluster::{Change, Copied, Entry, FileKey, Folder, Replica};
use tidegate_store::disk::{FsDisk, create_private_dir};

use crate::engine::{ClusterError, Engine};

/// Files that are open at once; the last ones written.
const OPEN_MAX: usize = 16;

pub(crate) struct Follower {
    dir: PathBuf,
    /// Held so that two processes do not follow into one folder.
    _lock: FsDisk,
    open: BTreeMap<FileKey, File>,
    pub(crate) replica: Replica,
}

impl Follower {
    /// Begins from nothing: what an earlier process has read may have been thrown away since.
    pub(crate) fn begin(dir: &Path) -> Result<Self, ClusterError> {
        let lock = FsDisk::open(dir).map_err(|error| ClusterError::Refused(error.to_string()))?;
        let entries = std::fs::read_dir(dir).map_err(at("read", dir))?;
        for entry in entries.flatten().filter(|entry| entry.file_name() != "LOCK") {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed =
                if is_folder { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
            removed.map_err(at("remove", &entry.path()))?;
        }
        let (open, replica) = (BTreeMap::new(), Replica::default());
        Ok(Self { dir: dir.to_path_buf(), _lock: lock, open, replica })
    }

    /// Takes the next message of the stream.
    pub(crate) fn take(&mut self, engine: &Engine, sequence: u64, message: &Bytes) -> Result<(), ClusterError> {
        let entry = Entry::decode(message).map_err(|error| engine.strange(&error.to_string()))?;
        let changes = self.replica.apply(sequence, entry).map_err(|error| engine.strange(&error.to_string()))?;
        for change in changes {
            self.change(change).map_err(at("write into", &self.dir))?;
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        match change {
            Change::Append(key, bytes) => self.file(key)?.write_all(&bytes),
            Change::Truncate(key, size) => self.file(key)?.set_len(size),
            Change::Remove(key) => {
                self.open.remove(&key);
                match std::fs::remove_file(self.path(key)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            }
        }
    }

    fn path(&self, key: FileKey) -> PathBuf {
        self.dir.join(format!("{}-{}.part", key.epoch, key.count))
    }

    fn file(&mut self, key: FileKey) -> io::Result<&mut File> {
        if !self.open.contains_key(&key) {
            if self.open.len() >= OPEN_MAX {
                self.open.pop_first();
            }
            let file = private().open(self.path(key))?;
            self.open.insert(key, file);
        }
        self.open.get_mut(&key).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// All that counts, under its names and on the medium.
    pub(crate) fn finish(mut self) -> Result<Copied, ClusterError> {
        let copied = self.replica.finish();
        self.open.clear();
        let others = [Folder::Space, Folder::Access].map(|folder| copy_in(&self.dir, folder));
        for other in &others {
            create_private_dir(other).map_err(at("make", other))?;
        }
        for entry in &copied.files {
            let (from, to) = (self.path(entry.file), copy_of(&self.dir, &entry.name));
            // One that never had a byte has no file yet.
            let file = private().open(&from).map_err(at("open", &from))?;
            file.sync_all().map_err(at("sync", &from))?;
            std::fs::rename(&from, &to).map_err(at("rename", &from))?;
        }
        for key in copied.loose.iter().copied().chain(copied.holey.iter().map(|(key, _)| *key)) {
            let _ = std::fs::remove_file(self.path(key));
        }
        for dir in others.iter().chain([&self.dir]) {
            sync_dir(dir)?;
        }
        Ok(copied)
    }
}

/// Messages are in it: it is its owner's alone, as every file of a store is.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options
}

/// Where a folder is in a finished copy.
pub(crate) fn copy_in(following: &Path, folder: Folder) -> PathBuf {
    match folder {
        Folder::Store => following.to_path_buf(),
        Folder::Space => following.join("space"),
        Folder::Access => following.join("access"),
    }
}

/// Where a file of the lineage is in a finished copy.
pub(crate) fn copy_of(following: &Path, name: &str) -> PathBuf {
    let (folder, inside) = Folder::of(name);
    copy_in(following, folder).join(inside)
}

/// Names are on the medium when this returns.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), ClusterError> {
    create_private_dir(dir).map_err(at("make", dir))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at("sync", dir))
}

pub(crate) fn at(what: &str, place: &Path) -> impl FnOnce(io::Error) -> ClusterError {
    let what = format!("cannot {what} {}", place.display());
    move |source| ClusterError::Io { what, source }
}
