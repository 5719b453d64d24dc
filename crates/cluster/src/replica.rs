//! What a stream says about a store's folder, message by message, for whoever follows it to carry it on some day.
//!
//! Messages that nobody needs are thrown away behind the writer's back, so gaps in the sequences are ordinary: bytes of a file
//! whose making was thrown away belong to a file without a name until a table names it; a file with a hole in it is one that is being
//! thrown away. At the end all that counts must be whole ([`Copied::whole`]).
//!
//! It refuses to hold bytes: the rim writes them into files called by their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use crate::entry::{DiskOp, Entry, FileEntry, FileKey, Opening};
use crate::limits::FILES_MAX;

/// What the rim has to do to the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write at the end of the file with this key, which is made if it is missing.
    Append(FileKey, Bytes),
    /// Cut it.
    Truncate(FileKey, u64),
    /// Remove it, if it is there.
    Remove(FileKey),
}

/// Why a stream cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// Something of an epoch that was over.
    OldEpoch {
        /// Of the message.
        epoch: u64,
        /// The epoch that had begun.
        current: u64,
    },
    /// Not the next message.
    Order {
        /// Its sequence.
        sequence: u64,
    },
    /// A file that counts is not whole.
    Hole {
        /// Its name.
        name: String,
    },
    /// Bytes that no file's name is known for: names were removed, or lost with the end of the stream.
    Nameless,
    /// More files than a store has.
    TooMany,
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldEpoch { epoch, current } => {
                write!(f, "the stream has a message of epoch {epoch} behind the beginning of epoch {current}")
            }
            Self::Order { sequence } => write!(f, "the stream's message {sequence} came out of order"),
            Self::Hole { name } => write!(f, "the stream does not have all of {name}: messages were removed from it"),
            Self::Nameless => f.write_str("the stream has bytes of files that it has no names for: its end was lost"),
            Self::TooMany => write!(f, "the stream has more than {FILES_MAX} files"),
        }
    }
}

impl std::error::Error for ReplicaError {}

#[derive(Clone, Debug, Default)]
struct File {
    name: Option<String>,
    size: u64,
    is_holey: bool,
}

/// A folder, as far as a stream was read.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    files: BTreeMap<FileKey, File>,
    sequence: u64,
    epoch: u64,
    opening: Option<(u64, Opening)>,
    data: (u64, u64),
}

impl Replica {
    /// The sequence of the last message that was read.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The epoch that has begun last; 0 if none has.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Who has begun it, and at which sequence.
    pub fn opening(&self) -> Option<&(u64, Opening)> {
        self.opening.as_ref()
    }

    /// The last epoch that has changed anything, and the process that has done it.
    pub fn last_writer(&self) -> (u64, u64) {
        self.data
    }

    /// Reads the next message there is. Only the sequences that were thrown away may be missing.
    pub fn apply(&mut self, sequence: u64, entry: Entry) -> Result<Vec<Change>, ReplicaError> {
        let Entry { epoch, op, .. } = entry;
        if sequence <= self.sequence {
            return Err(ReplicaError::Order { sequence });
        }
        if epoch < self.epoch {
            return Err(ReplicaError::OldEpoch { epoch, current: self.epoch });
        }
        self.sequence = sequence;
        self.epoch = epoch;
        let op = match op {
            DiskOp::Open(opening) => {
                self.opening = Some((sequence, opening));
                return Ok(Vec::new());
            }
            op => op,
        };
        self.data = (epoch, self.opening.as_ref().map_or(0, |(_, opening)| opening.incarnation));
        let changes = self.change(op);
        if self.files.len() > FILES_MAX { Err(ReplicaError::TooMany) } else { Ok(changes) }
    }

    fn change(&mut self, op: DiskOp) -> Vec<Change> {
        match op {
            DiskOp::Open(_) => Vec::new(),
            DiskOp::Create { file, name } => {
                let changes = self.displace(&name, file);
                self.files.insert(file, File { name: Some(name), ..File::default() });
                changes
            }
            DiskOp::Append { file, at, bytes } => {
                let known = self.files.entry(file).or_default();
                if known.size < at || known.is_holey {
                    known.is_holey = true;
                    return Vec::new();
                }
                // Its truncation was thrown away with the names before a table.
                let cut = (known.size > at).then_some(Change::Truncate(file, at));
                known.size = at + bytes.len() as u64;
                cut.into_iter().chain([Change::Append(file, bytes)]).collect()
            }
            DiskOp::Truncate { file, size } => {
                let Some(known) = self.files.get_mut(&file).filter(|known| known.size > size) else {
                    return Vec::new();
                };
                known.size = size;
                vec![Change::Truncate(file, size)]
            }
            DiskOp::Rename { file, name } => {
                let changes = self.displace(&name, file);
                self.files.entry(file).or_default().name = Some(name);
                changes
            }
            DiskOp::Remove { file } => self.files.remove(&file).map(|_| Change::Remove(file)).into_iter().collect(),
            DiskOp::Table { files } => self.take_table(files),
        }
    }

    /// Whoever has the name loses it.
    fn displace(&mut self, name: &str, by: FileKey) -> Vec<Change> {
        let is_other = |(key, file): &(&FileKey, &File)| **key != by && file.name.as_deref() == Some(name);
        let Some(key) = self.files.iter().find(is_other).map(|(key, _)| *key) else { return Vec::new() };
        self.files.remove(&key);
        vec![Change::Remove(key)]
    }

    fn take_table(&mut self, entries: Vec<FileEntry>) -> Vec<Change> {
        let named: BTreeSet<FileKey> = entries.iter().map(|entry| entry.file).collect();
        let gone: Vec<FileKey> = self.files.keys().copied().filter(|key| !named.contains(key)).collect();
        let mut changes = Vec::new();
        for key in gone {
            self.files.remove(&key);
            changes.push(Change::Remove(key));
        }
        for FileEntry { file, name, size } in entries {
            let known = self.files.entry(file).or_default();
            known.name = Some(name);
            if known.size > size {
                known.size = size;
                changes.push(Change::Truncate(file, size));
            }
            known.is_holey |= known.size < size;
        }
        changes
    }

    /// What is there.
    pub fn finish(&self) -> Copied {
        let mut copied = Copied::default();
        for (&key, file) in &self.files {
            match &file.name {
                None => copied.loose.push(key),
                Some(name) if file.is_holey => copied.holey.push((key, name.clone())),
                Some(name) => copied.files.push(FileEntry { file: key, name: name.clone(), size: file.size }),
            }
        }
        copied
    }
}

/// What was read of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files that are whole.
    pub files: Vec<FileEntry>,
    /// Bytes of no file. Only a stream that has lost its end, or was tampered with, has any when all of it is read.
    pub loose: Vec<FileKey>,
    /// Files that count and are not whole: their removal was lost with the end of the stream, or somebody has removed messages.
    pub holey: Vec<(FileKey, String)>,
}

impl Copied {
    /// The files, for whoever has nothing else.
    pub fn whole(&self) -> Result<&[FileEntry], ReplicaError> {
        match self.holey.first() {
            Some((_, name)) => Err(ReplicaError::Hole { name: name.clone() }),
            None if !self.loose.is_empty() => Err(ReplicaError::Nameless),
            None => Ok(&self.files),
        }
    }
}

#[cfg(test)]
mod tests;
