//! What recovery found, in words.

use std::fmt;

use crate::file::FileId;
use crate::limits::REPORT_LINES_MAX;

/// The account of a recovery, or of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The snapshot it began with.
    pub snapshot: Option<FileId>,
    /// Segments that were read after it.
    pub segments: u64,
    /// Records applied.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes at the end of the log that are not whole and of which no sync is known: mostly a write that never ended.
    pub torn_bytes: u64,
    /// Bytes that had been written and are not what they were.
    pub damaged_bytes: u64,
    /// Segments that should be there and are not, and snapshots without their end.
    pub missing: u64,
    /// Files that were set aside, or that would be.
    pub set_aside: Vec<String>,
    /// The log was closed in good order.
    pub is_closed: bool,
    /// One line for each thing that was not in order.
    pub lines: Vec<String>,
    /// Lines that were too many.
    pub lines_left_out: u64,
}

impl RecoveryReport {
    /// Whether there was nothing to read: the folder is new.
    pub fn is_new(&self) -> bool {
        self.snapshot.is_none() && self.records == 0 && self.is_sound()
    }

    /// Nothing is wrong, and nothing was repaired. A torn end is a repair.
    pub fn is_sound(&self) -> bool {
        self.lines.is_empty()
    }

    /// Something that had been kept is gone.
    pub fn is_damaged(&self) -> bool {
        self.damaged_bytes > 0 || self.missing > 0
    }

    pub(crate) fn say(&mut self, line: String) {
        if self.lines.len() < REPORT_LINES_MAX {
            self.lines.push(line);
        } else {
            self.lines_left_out += 1;
        }
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.snapshot {
            Some(snapshot) => write!(f, "{snapshot} and ")?,
            None => f.write_str("no snapshot, ")?,
        }
        write!(f, "{} segments: {} records, {} bytes", self.segments, self.records, self.bytes)?;
        for line in &self.lines {
            write!(f, "\n{line}")?;
        }
        if self.lines_left_out > 0 {
            write!(f, "\n... and {} more", self.lines_left_out)?;
        }
        Ok(())
    }
}
