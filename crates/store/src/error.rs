//! What can go wrong with the store, each with the file it happened to: operators look for it with `ls`, not with a
//! debugger.

use std::fmt;
use std::io;

use crate::file::FORMAT;

/// Why the store cannot do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The system said no.
    Io {
        /// What was tried, as in "cannot {action} {file}".
        action: &'static str,
        /// The file or directory.
        file: String,
        /// The system's words.
        source: io::Error,
    },
    /// Another process has the directory.
    Locked {
        /// The directory.
        dir: String,
        /// Its process, as far as the lock file tells.
        pid: Option<u32>,
    },
    /// Written by a release with another format.
    Version {
        file: String,
        /// The format it has.
        found: u16,
    },
    /// Bytes that are not what was written.
    Damaged {
        file: String,
        /// Where the record begins.
        offset: u64,
    },
    /// A file that was there when the location was handed out, and is not any more.
    Gone { file: String },
    /// A record or batch over its limit.
    TooLarge {
        /// The size of the record or batch.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The log failed earlier and is waiting to be repaired.
    Failed,
    /// A compaction would take more room than it makes, and there is little.
    NoGain,
    /// A record that the state does not understand; it is never guessed.
    Record {
        /// The tag of the record.
        tag: u8,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Opened with `strict`, and the files are damaged.
    Strict {
        /// The report, line by line.
        lines: Vec<String>,
    },
}

/// What an error asks of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// No space left; it goes on by itself when there is some.
    DiskFull,
    /// The file system is mounted read-only, or the owner is wrong.
    NotWritable,
    /// The device failed.
    Device,
    /// None of these: see the text.
    Other,
}

impl StoreError {
    pub(crate) fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { action, file, source }
    }

    /// Whether the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.trouble() == DiskTrouble::DiskFull
    }

    /// What kind of trouble this is.
    pub fn trouble(&self) -> DiskTrouble {
        let Self::Io { source, .. } = self else { return DiskTrouble::Other };
        match source.kind() {
            _ if is_full(source) => DiskTrouble::DiskFull,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => DiskTrouble::NotWritable,
            // They have no kinds of their own.
            _ if source.raw_os_error().is_some_and(|code| code == EIO || MEDIUM.contains(&code)) => DiskTrouble::Device,
            _ => DiskTrouble::Other,
        }
    }
}

/// Whether the system says that there is no space, or none for us.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The same number on every Unix.
pub(crate) const EIO: i32 = 5;

/// What else Linux says if bytes cannot be had back: ENODATA and EILSEQ of a medium, EBADMSG and EUCLEAN of a file system
/// that checks.
const MEDIUM: &[i32] = if cfg!(target_os = "linux") { &[61, 84, 74, 117] } else { &[] };

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { action, file, source } => write!(f, "cannot {action} {file}: {source}"),
            Self::Locked { dir, pid: Some(pid) } => {
                write!(f, "{dir} is in use by process {pid}; two brokers cannot share a store")
            }
            Self::Locked { dir, pid: None } => {
                write!(f, "{dir} is in use by another process; two brokers cannot share a store")
            }
            Self::Version { file, found } => write!(
                f,
                "{file} has format {found}, this release reads format {FORMAT}; nothing was changed: use the release \
                 that wrote it, or another directory"
            ),
            Self::Damaged { file, offset } => write!(f, "{file} is damaged at byte {offset}"),
            Self::Gone { file } => write!(f, "{file} is no longer there"),
            Self::TooLarge { bytes, bytes_max } => write!(f, "{bytes} bytes in one piece, at most {bytes_max}"),
            Self::Failed => f.write_str("the log has failed and is waiting for the disk"),
            Self::NoGain => f.write_str("nothing to gain: what is in the log is still needed"),
            Self::Record { tag, what } => write!(f, "record with tag {tag}: {what}"),
            Self::Strict { lines } => {
                write!(f, "the store is damaged and may not be repaired (strict): {}", lines.join("; "))
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
