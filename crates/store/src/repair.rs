//! Carries out what a replay found necessary. Damaged bytes are copied into a named file first: what looks like garbage
//! to us may be worth something to its owner.

use std::ops::Range;

use crate::disk::Disk;
use crate::error::{DiskTrouble, StoreError};
use crate::file::FileId;
use crate::limits::{QUARANTINE_FILES_MAX, SCAN_BYTES};
use crate::replay::{Repair, Replayed};

/// Ends the name of what was set aside.
pub(crate) const BAD: &str = ".bad";

pub(crate) fn repair(disk: &mut impl Disk, found: &mut Replayed) -> Result<(), StoreError> {
    let place = disk.place();
    let names = disk.list().map_err(StoreError::io("list", &place))?;
    let mut room = QUARANTINE_FILES_MAX.saturating_sub(names.iter().filter(|name| name.ends_with(BAD)).count());
    for step in std::mem::take(&mut found.repairs) {
        match step {
            Repair::Remove { name } => {
                disk.remove(&name).map_err(StoreError::io("remove", &name))?;
                FileId::parse(&name).map(|id| found.sizes.remove(&id));
            }
            Repair::SetFileAside { file } => {
                let (from, to) = (file.name(), format!("{file}{BAD}"));
                disk.rename(&from, &to).map_err(StoreError::io("rename", &from))?;
                found.sizes.remove(&file);
                found.report.set_aside.push(to);
            }
            Repair::SetAside { file, from, to } => {
                copy_or_leave(disk, file, from..to, &names, &mut room, found)?;
            }
            Repair::Cut { file, at, end } => {
                // Left in place it does no harm: the next segment will say where this one ends.
                if !copy_or_leave(disk, file, at..end, &names, &mut room, found)? {
                    continue;
                }
                let name = file.name();
                disk.truncate(&name, at).map_err(StoreError::io("cut", &name))?;
                disk.sync(&name).map_err(StoreError::io("sync", &name))?;
                found.sizes.insert(file, at);
            }
        }
    }
    disk.sync_names().map_err(StoreError::io("sync", &place))
}

/// Copies a part of a file; false if the disk is full. A full disk is what a broker may find after a crash that a full
/// disk has caused, and it should start all the same.
fn copy_or_leave(
    disk: &mut impl Disk,
    file: FileId,
    part: Range<u64>,
    names: &[String],
    room: &mut usize,
    found: &mut Replayed,
) -> Result<bool, StoreError> {
    let target = format!("{file}-at-{}{BAD}", part.start);
    // Done at an earlier start, or too much of it already.
    if names.contains(&target) || *room == 0 {
        return Ok(true);
    }
    *room -= 1;
    match copy(disk, &file.name(), part, &target) {
        Ok(()) => {
            found.report.set_aside.push(target);
            Ok(true)
        }
        Err(error) if error.trouble() == DiskTrouble::DiskFull => {
            let _ = disk.remove(&target);
            found.report.say(format!("{file}: no space to set the damaged bytes aside; they stay in the file"));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn copy(disk: &mut impl Disk, name: &str, part: Range<u64>, target: &str) -> Result<(), StoreError> {
    disk.create(target).map_err(StoreError::io("create", target))?;
    let mut buffer = vec![0; SCAN_BYTES];
    let mut at = part.start;
    while at < part.end {
        let most = (part.end - at).min(SCAN_BYTES as u64) as usize;
        let len = disk.read(name, at, &mut buffer[..most]).map_err(StoreError::io("read", name))?;
        if len == 0 {
            break;
        }
        disk.append(target, &buffer[..len]).map_err(StoreError::io("write", target))?;
        at += len as u64;
    }
    disk.sync(target).map_err(StoreError::io("sync", target))?;
    disk.close(target);
    Ok(())
}
