//! What an operator does with a store: look whether it is sound, copy it, and put a copy back.
//!
//! A copy appears under its name only when it is complete; before that it is a directory that ends in `.partial`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::compact::LogState;
use crate::disk::{Disk, FsDisk, create_private_dir, narrow_dir};
use crate::error::StoreError;
use crate::file::FileId;
use crate::mark::{self, MARK, SyncMark};
use crate::read::read_record;
use crate::replay::replay;
use crate::report::RecoveryReport;
use crate::writer::LogWriter;

/// Reads everything in a store that is not in use, and changes nothing. The report says what opening would repair.
pub fn check<S: LogState>(dir: &Path) -> Result<RecoveryReport, StoreError> {
    let mut disk = FsDisk::open_to_read(dir)?;
    check_disk::<S>(&mut disk)
}

pub(crate) fn check_disk<S: LogState>(disk: &mut impl Disk) -> Result<RecoveryReport, StoreError> {
    let mut state = S::default();
    let mut report = replay(disk, None, &mut |record, at| state.apply(record, at))?.report;
    // A replay reads what it needs; what is only referred to is read here.
    let (mut places, mut payload) = (Vec::new(), Vec::new());
    state.live(&mut |at| places.push(at));
    places.sort_unstable();
    let mut salt = None;
    for at in places {
        let known = salt.filter(|(file, _)| *file == at.file).map(|(_, salt)| salt);
        match read_record(disk, at, known, &mut payload) {
            Ok((_, found)) => salt = Some((at.file, found)),
            Err(error @ (StoreError::Damaged { .. } | StoreError::Gone { .. })) => {
                report.damaged_bytes += u64::from(at.len);
                report.say(format!("{error}; a record that is still needed is lost"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(report)
}

/// Copies a store that is not in use, and checks the copy.
pub fn backup<S: LogState>(dir: &Path, to: &Path) -> Result<RecoveryReport, StoreError> {
    let mut disk = FsDisk::open_to_read(dir)?;
    let place = disk.place();
    let names = disk.list().map_err(StoreError::io("list", &place))?;
    let files: Vec<FileId> = names.iter().filter_map(|name| FileId::parse(name)).collect();
    let mark = mark::read(&mut disk).map(|(_, mark)| mark);
    copy::<S>(dir, to, &files, mark)
}

/// Copies the store of a running writer as it is at this moment, and checks the copy. Writing goes on meanwhile.
pub fn backup_online<S: LogState>(writer: &LogWriter, dir: &Path, to: &Path) -> Result<RecoveryReport, StoreError> {
    let sealed = writer.seal()?;
    copy::<S>(dir, to, &sealed.files, sealed.mark)
}

/// Puts a copy back. It never writes over a store: `to` must not be there, or be empty.
pub fn restore<S: LogState>(from: &Path, to: &Path) -> Result<RecoveryReport, StoreError> {
    backup::<S>(from, to)
}

fn copy<S: LogState>(
    dir: &Path,
    to: &Path,
    files: &[FileId],
    mark: Option<SyncMark>,
) -> Result<RecoveryReport, StoreError> {
    let partial = partial_name(to);
    let place = partial.display().to_string();
    if to.exists() {
        // Removes an empty directory only.
        fs::remove_dir(to).map_err(StoreError::io("write a copy to", &to.display().to_string()))?;
    }
    create_private_dir(&partial).map_err(StoreError::io("create", &place))?;
    for id in files {
        let name = id.name();
        fs::copy(dir.join(&name), partial.join(&name))
            .and_then(|_| File::open(partial.join(&name))?.sync_all())
            .map_err(StoreError::io("copy", &name))?;
    }
    // So that a copy misses what somebody takes from it.
    if let Some(mark) = mark {
        let path = partial.join(MARK);
        fs::write(&path, mark::first(mark))
            .and_then(|()| File::open(&path)?.sync_all())
            .map_err(StoreError::io("write", MARK))?;
    }
    // A file that is copied has the rights that it had.
    let _ = narrow_dir(&partial);
    let report = {
        let mut disk = FsDisk::open_to_read(&partial)?;
        let report = check_disk::<S>(&mut disk)?;
        disk.sync_names().map_err(StoreError::io("sync", &place))?;
        report
    };
    fs::rename(&partial, to).map_err(StoreError::io("rename", &place))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(StoreError::io("sync", &place))?;
    Ok(report)
}

fn partial_name(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}
