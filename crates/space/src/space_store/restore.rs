//! A copy of the space is put back: its versions go on where no life of the space has been.
//!
//! ```text
//! copy: version 1 ──> the space went on: 2, 3, … which clients have seen
//!                └──> the copy goes on at max(1, microseconds of now) + up to 2³²
//! ```
//! With version 2 once more, whoever has seen the old one would be told that nothing has changed. What the space was after the
//! copy was made nobody can know who has the copy alone: its versions may be ahead of the clock, too, because each crash leaves
//! some out. So chance is added.

use std::fs;
use std::path::Path;

use tidegate_store::disk::FsDisk;
use tidegate_store::{Log, LogOptions, LogState, RecoveryReport, StoreError};

use super::{SpaceImage, version_batch, version_of_now};
use crate::service::random;

/// Puts a copy of a space back, where none is. The report is about the copy.
pub fn restore_space(from: &Path, to: &Path) -> Result<RecoveryReport, StoreError> {
    let report = tidegate_store::restore::<SpaceImage>(from, to)?;
    match leave_versions_out(to) {
        Ok(()) => Ok(report),
        Err(error) => {
            // With the versions of the copy it must not be used. It was not there before.
            let _ = fs::remove_dir_all(to);
            Err(error)
        }
    }
}

fn leave_versions_out(dir: &Path) -> Result<(), StoreError> {
    let mut image = SpaceImage::default();
    let options = LogOptions { is_rewritten: true, ..LogOptions::default() };
    let (mut log, _) = Log::open(FsDisk::open(dir)?, options, |record, at| image.apply(record, at))?;
    let chance = u64::from(u32::from_le_bytes(random()));
    let version = image.version().max(version_of_now()).saturating_add(chance);
    log.append(&[version_batch(version)?], &mut Vec::new())?;
    log.close().map(drop)
}
