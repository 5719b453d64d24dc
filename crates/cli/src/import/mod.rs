//! `tidegate import`: a `mosquitto.conf` as a configuration of this broker, on the standard output; what has no counterpart
//! stands at its end as a comment, with the reason, and is counted on the standard error.
//!
//! The thin part: files are read here, `mosquitto` translates.

mod bridges;
mod listeners;
mod mosquitto;
#[cfg(test)]
mod tests;
mod translation;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::operate::out;
use mosquitto::ConfLine;

/// Files that are read because `include_dir` names their folder; a configuration has a handful.
const FILES_MAX: usize = 100;
/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// `tidegate import FILE`.
pub(crate) fn run(path: &Path) -> Result<u8> {
    let lines = with_included(read(path, 0)?)?;
    let translated = mosquitto::translate(&lines);
    out(&translated.to_toml(path));
    for remark in translated.remarks() {
        eprintln!("{remark}");
    }
    let missing = translated.missing();
    if missing > 0 {
        let words = if missing == 1 { "1 line is" } else { &*format!("{missing} lines are") };
        eprintln!("{words} not taken over, with the reason at the end");
    }
    Ok(0)
}

/// The lines of a file; 0 is the one that was named, the others are included.
fn read(path: &Path, file: usize) -> Result<Vec<ConfLine>> {
    let about = std::fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
    if about.len() > FILE_BYTES_MAX {
        bail!("{} has {} bytes: no mosquitto.conf is that long", path.display(), about.len());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(mosquitto::lines(&text, &path.display().to_string(), file))
}

/// The files of an `include_dir` stand where it does, as in mosquitto; in one of them the word means nothing.
fn with_included(main: Vec<ConfLine>) -> Result<Vec<ConfLine>> {
    let (mut lines, mut count) = (Vec::new(), 0);
    for line in main {
        let folder = (line.word == "include_dir").then(|| PathBuf::from(&line.value));
        lines.push(line);
        for file in folder.map(|folder| included(&folder)).transpose()?.unwrap_or_default() {
            count += 1;
            lines.extend(read(&file, count)?);
        }
    }
    Ok(lines)
}

/// In the order in which mosquitto reads them.
fn included(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("include_dir {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "conf"));
    files.sort();
    if files.len() > FILES_MAX {
        bail!("include_dir {} has {} files: {FILES_MAX} are read at most", folder.display(), files.len());
    }
    Ok(files)
}
