//! How many syncs a second a folder does, one after the other: the limit that no store on it can pass.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What is written before each sync: one page, as a log that grows does.
const PAGE_BYTES: usize = 4096;

/// Appends a page and syncs it, over and over for so long.
pub(super) fn syncs_per_s(folder: &Path, time: Duration) -> Result<f64> {
    let path = folder.join("syncs");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).context("the rate of syncs")?;
    let page = [0x5a; PAGE_BYTES];
    let (begin, mut count) = (Instant::now(), 0u32);
    while begin.elapsed() < time {
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / begin.elapsed().as_secs_f64();
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_rate_and_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        assert!(syncs_per_s(folder.path(), Duration::from_millis(1)).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
