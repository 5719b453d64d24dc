//! Carries out what a replay found necessary. Damaged bytes are copied into a named file first: what looks like garbage
//! to us may be worth something to its owner.

use crate::disk::Disk;
use crate::error::StoreError;
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
            Repair::SetAside { file, from, to } => copy(disk, file, from, to, &names, &mut room, found)?,
            Repair::Cut { file, at, end } => {
                copy(disk, file, at, end, &names, &mut room, found)?;
                let name = file.name();
                disk.truncate(&name, at).map_err(StoreError::io("cut", &name))?;
                disk.sync(&name).map_err(StoreError::io("sync", &name))?;
                found.sizes.insert(file, at);
            }
        }
    }
    disk.sync_names().map_err(StoreError::io("sync", &place))
}

/// Copies a part of a file, unless that was done at an earlier start or there is too much of it already.
fn copy(
    disk: &mut impl Disk,
    file: FileId,
    from: u64,
    to: u64,
    names: &[String],
    room: &mut usize,
    found: &mut Replayed,
) -> Result<(), StoreError> {
    let target = format!("{file}-at-{from}{BAD}");
    if names.contains(&target) || *room == 0 {
        return Ok(());
    }
    *room -= 1;
    disk.create(&target).map_err(StoreError::io("create", &target))?;
    let mut buffer = vec![0; SCAN_BYTES];
    let mut at = from;
    while at < to {
        let most = (to - at).min(SCAN_BYTES as u64) as usize;
        let name = file.name();
        let len = disk.read(&name, at, &mut buffer[..most]).map_err(StoreError::io("read", &name))?;
        if len == 0 {
            break;
        }
        disk.append(&target, &buffer[..len]).map_err(StoreError::io("write", &target))?;
        at += len as u64;
    }
    disk.sync(&target).map_err(StoreError::io("sync", &target))?;
    disk.close(&target);
    found.report.set_aside.push(target);
    Ok(())
}
