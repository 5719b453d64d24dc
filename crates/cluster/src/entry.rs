//! One message of a lineage's stream: what was done to the store's folder, by whom in which epoch, as which operation of it.
//!
//! Layout, little-endian: `TD` (2), version (1), kind (1), epoch (8), number (8), what the kind says, CRC-32C of all of it
//! (4). An operation's bytes never change: sent twice, either copy may arrive.
//!
//! Version 2 is the same, and names files of other folders than the store's: a release that does not know those says so, and
//! does not take them for damage.

use std::fmt;

use bytes::Bytes;

use crate::folder::{ACCESS_FILES, Folder};
use crate::limits::{FILE_NAME_BYTES_MAX, FILES_MAX, PIECE_BYTES_MAX};
use crate::names::{NodeName, Subject};

const MAGIC: [u8; 2] = *b"TD";
/// What is about the store alone, as every release reads it.
const VERSION: u8 = 1;
/// What names files of other folders.
const VERSION_OF_FOLDERS: u8 = 2;
const HEAD_BYTES: usize = 20;
const SUM_BYTES: usize = 4;

/// A file of a lineage. Names come again, keys do not: what is thrown away under a key is never somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileKey {
    /// The epoch that made it.
    pub epoch: u64,
    /// Which of its files.
    pub count: u64,
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its key.
    pub file: FileKey,
    /// Its name in the store's folder.
    pub name: String,
    /// Its bytes.
    pub size: u64,
}

/// Who carries a lineage from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The node.
    pub node: NodeName,
    /// Which of its processes.
    pub incarnation: u64,
    /// The cluster's own number, from its first opening: two of the same name are told apart.
    pub cluster: u64,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// An epoch begins; operation 0 of it.
    Open(Opening),
    /// A new, empty file.
    Create {
        /// The file.
        file: FileKey,
        /// Its name.
        name: String,
    },
    /// Bytes at the end of a file.
    Append {
        /// The file.
        file: FileKey,
        /// Its size before.
        at: u64,
        /// What was appended.
        bytes: Bytes,
    },
    /// A file is cut.
    Truncate {
        /// The file.
        file: FileKey,
        /// Its size from now on.
        size: u64,
    },
    /// A file has another name; whoever had that name is gone.
    Rename {
        /// The file.
        file: FileKey,
        /// Its name from now on.
        name: String,
    },
    /// A file is gone.
    Remove {
        /// The file.
        file: FileKey,
    },
    /// All files there are: what was said about names before is not needed any more.
    Table {
        /// The files.
        files: Vec<FileEntry>,
    },
}

impl DiskOp {
    /// Where it belongs.
    pub fn subject(&self) -> Subject {
        match self {
            Self::Open(_) => Subject::Owner,
            Self::Append { file, .. } => Subject::File(*file),
            _ => Subject::Names,
        }
    }

    /// Which releases can read it.
    fn version(&self) -> u8 {
        let is_elsewhere = |name: &str| Folder::of(name).0 != Folder::Store;
        let is_new = match self {
            Self::Create { name, .. } | Self::Rename { name, .. } => is_elsewhere(name),
            Self::Table { files } => files.iter().any(|entry| is_elsewhere(&entry.name)),
            _ => false,
        };
        if is_new { VERSION_OF_FOLDERS } else { VERSION }
    }
}

/// A message of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The epoch of who wrote it.
    pub epoch: u64,
    /// Which operation of the epoch, from 0.
    pub number: u64,
    /// What was done.
    pub op: DiskOp,
}

/// Why a message is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// It is not ours, or not as it was written.
    Damaged,
    /// Another release has written it.
    Version(u8),
    /// A kind that is not known.
    Kind(u8),
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("a message of the stream is damaged, or not Tidegate's"),
            Self::Version(found) => {
                write!(
                    f,
                    "a message of the stream has version {found}, this release reads up to {VERSION_OF_FOLDERS}; use the newer release"
                )
            }
            Self::Kind(kind) => write!(f, "a message of the stream has kind {kind}, which this release does not know"),
        }
    }
}

impl std::error::Error for EntryError {}

impl Entry {
    /// The message's bytes.
    pub fn encode(&self) -> Bytes {
        let kind = match &self.op {
            DiskOp::Open(_) => 0,
            DiskOp::Create { .. } => 1,
            DiskOp::Append { .. } => 2,
            DiskOp::Truncate { .. } => 3,
            DiskOp::Rename { .. } => 4,
            DiskOp::Remove { .. } => 5,
            DiskOp::Table { .. } => 6,
        };
        let mut out = Writer(Vec::with_capacity(HEAD_BYTES + SUM_BYTES + 64));
        out.0.extend(MAGIC);
        out.0.extend([self.op.version(), kind]);
        out.number(self.epoch);
        out.number(self.number);
        match &self.op {
            DiskOp::Open(Opening { node, incarnation, cluster }) => {
                out.number(*incarnation);
                out.number(*cluster);
                out.text(node.as_str());
            }
            DiskOp::Create { file, name } | DiskOp::Rename { file, name } => {
                out.key(*file);
                out.text(name);
            }
            DiskOp::Append { file, at, bytes } => {
                out.key(*file);
                out.number(*at);
                out.0.extend_from_slice(bytes);
            }
            DiskOp::Truncate { file, size } => {
                out.key(*file);
                out.number(*size);
            }
            DiskOp::Remove { file } => out.key(*file),
            DiskOp::Table { files } => {
                for FileEntry { file, name, size } in files {
                    out.key(*file);
                    out.number(*size);
                    out.text(name);
                }
            }
        }
        let sum = crc32c::crc32c(&out.0);
        out.0.extend(sum.to_le_bytes());
        out.0.into()
    }

    /// Reads a message. Any bytes may come: the engine is shared.
    pub fn decode(message: &Bytes) -> Result<Self, EntryError> {
        let damaged = EntryError::Damaged;
        let body = message.len().checked_sub(SUM_BYTES).filter(|len| *len >= HEAD_BYTES).ok_or(damaged)?;
        let (head, sum) = message.split_at_checked(body).ok_or(damaged)?;
        if !head.starts_with(&MAGIC) || sum != crc32c::crc32c(head).to_le_bytes() {
            return Err(damaged);
        }
        let (version, kind) = (head[2], head[3]);
        if !(VERSION..=VERSION_OF_FOLDERS).contains(&version) {
            return Err(EntryError::Version(version));
        }
        let mut rest = Reader(&head[4..]);
        let (epoch, number) = (rest.number()?, rest.number()?);
        let op = match kind {
            0 => {
                let (incarnation, cluster) = (rest.number()?, rest.number()?);
                let node = rest.text()?.parse().map_err(|_| damaged)?;
                DiskOp::Open(Opening { node, incarnation, cluster })
            }
            1 => DiskOp::Create { file: rest.key()?, name: rest.file_name()? },
            2 => {
                let (file, at) = (rest.key()?, rest.number()?);
                let len = rest.0.len();
                if len > PIECE_BYTES_MAX {
                    return Err(damaged);
                }
                rest.0 = &[];
                DiskOp::Append { file, at, bytes: message.slice(body - len..body) }
            }
            3 => DiskOp::Truncate { file: rest.key()?, size: rest.number()? },
            4 => DiskOp::Rename { file: rest.key()?, name: rest.file_name()? },
            5 => DiskOp::Remove { file: rest.key()? },
            6 => DiskOp::Table { files: rest.files()? },
            other => return Err(EntryError::Kind(other)),
        };
        if rest.0.is_empty() { Ok(Self { epoch, number, op }) } else { Err(damaged) }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn key(&mut self, file: FileKey) {
        self.number(file.epoch);
        self.number(file.count);
    }

    /// Names are bounded below 256 by who makes them.
    fn text(&mut self, text: &str) {
        self.0.push(text.len().min(255) as u8);
        self.0.extend(text.bytes().take(255));
    }
}

struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    fn take(&mut self, len: usize) -> Result<&'m [u8], EntryError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(EntryError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, EntryError> {
        let bytes = self.take(8)?.try_into().map_err(|_| EntryError::Damaged)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn key(&mut self) -> Result<FileKey, EntryError> {
        Ok(FileKey { epoch: self.number()?, count: self.number()? })
    }

    fn text(&mut self) -> Result<&'m str, EntryError> {
        let len = self.take(1)?.first().copied().unwrap_or(0);
        std::str::from_utf8(self.take(usize::from(len))?).map_err(|_| EntryError::Damaged)
    }

    /// A name of the store's; nothing else is ever written into a folder.
    fn file_name(&mut self) -> Result<String, EntryError> {
        let name = self.text()?;
        if is_mirrored(name) { Ok(name.to_owned()) } else { Err(EntryError::Damaged) }
    }

    fn files(&mut self) -> Result<Vec<FileEntry>, EntryError> {
        let mut files = Vec::new();
        while !self.0.is_empty() {
            if files.len() == FILES_MAX {
                return Err(EntryError::Damaged);
            }
            let (file, size) = (self.key()?, self.number()?);
            files.push(FileEntry { file, size, name: self.file_name()? });
        }
        Ok(files)
    }
}

/// Whether a file of a folder has a copy elsewhere: what the log is made of. Its lock, its mark, its reserve and what was
/// set aside are of one machine.
pub(crate) fn is_mirrored(name: &str) -> bool {
    let (folder, inside) = Folder::of(name);
    if folder == Folder::Access {
        return ACCESS_FILES.contains(&inside.strip_suffix(".tmp").unwrap_or(inside));
    }
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let stem = inside.strip_suffix(".tmp").unwrap_or(inside).strip_suffix(".tide");
    stem.is_some_and(|stem| !stem.is_empty() && !stem.starts_with('.'))
        && name.len() <= FILE_NAME_BYTES_MAX
        && inside.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;
