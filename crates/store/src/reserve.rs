//! The reserve of a log: a file that takes bytes from others, and gives them to the log when the disk is full.

use crate::disk::Disk;
use crate::log::Log;
use crate::room::{LogUsage, RESERVE};

/// Whether a log has its reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    /// Nobody has tried; or nobody knows how large the disk is.
    Unknown,
    There,
    /// It was used, or there was no room for it.
    Lacking,
}

impl<D: Disk> Log<D> {
    /// What it takes, and what there is.
    pub fn usage(&self) -> LogUsage {
        LogUsage {
            size: self.files().map(|(_, size)| size).sum(),
            records: self.records,
            size_max: self.options.size_max,
            partition: self.disk.partition(),
            lacks_reserve: self.reserve == Reserve::Lacking,
            is_rewritten: self.options.is_rewritten,
        }
    }

    /// One that is there from before.
    pub(crate) fn find_reserve(&mut self) {
        if self.disk.size(RESERVE).is_ok() {
            self.reserve = Reserve::There;
        }
    }

    /// Gives its bytes back to the disk; false if there is none.
    pub fn release_reserve(&mut self) -> bool {
        if self.reserve != Reserve::There {
            return false;
        }
        self.reserve = Reserve::Lacking;
        self.disk.remove(RESERVE).is_ok()
    }

    /// Sets the reserve aside, if it is not, there is room for it, and as much stays free.
    pub fn restore_reserve(&mut self) {
        let usage = self.usage();
        let (Some(bytes), Some(partition)) = (usage.reserve(), usage.partition) else { return };
        if self.reserve == Reserve::There || bytes == 0 {
            return;
        }
        self.reserve = Reserve::Lacking;
        if partition.free / 2 < bytes {
            return;
        }
        self.reserve = match self.disk.reserve(RESERVE, bytes) {
            Ok(()) => Reserve::There,
            Err(error) if crate::error::is_full(&error) => Reserve::Lacking,
            // A file system that cannot do it is no reason to refuse anybody.
            Err(_) => Reserve::Unknown,
        };
    }
}
