//! Is there room where the data will be? Asked at the start and at every reload: a full disk is better found then than by
//! the first write that fails.

use std::path::Path;

use rustix::fs::statvfs;

const MIB: u64 = 1 << 20;
/// Less than this is little on any disk.
const LITTLE: u64 = 256 * MIB;
/// A twentieth of a disk is little, unless it is still more than this.
const ENOUGH: u64 = 4096 * MIB;

/// A warning if the file system of this folder is nearly full. A folder that is not there yet will be on the file system
/// of the nearest one above it.
pub fn warning(folder: &Path) -> Option<String> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let system = statvfs(there).ok()?;
    let (free, total) =
        (system.f_bavail.saturating_mul(system.f_frsize), system.f_blocks.saturating_mul(system.f_frsize));
    is_little(free, total).then(|| {
        let (free, percent) = (free / MIB, free.saturating_mul(100) / total.max(1));
        format!("the disk of {} is nearly full: {free} MiB left ({percent} %)", folder.display())
    })
}

fn is_little(free: u64, total: u64) -> bool {
    // Some file systems know no size; they say nothing about being full either.
    total > 0 && (free < LITTLE || (free < total / 20 && free < ENOUGH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f149_little_is_little_on_small_and_on_large_disks() {
        assert!(is_little(100 * MIB, 1_000_000 * MIB));
        assert!(is_little(1000 * MIB, 100_000 * MIB), "one percent of a hundred gigabytes");
        assert!(!is_little(10_000 * MIB, 1_000_000 * MIB), "one percent of a terabyte is still much");
        assert!(!is_little(1000 * MIB, 2000 * MIB));
        assert!(!is_little(0, 0), "unknown is not full");
    }

    #[test]
    fn f149_a_folder_that_is_not_there_is_judged_by_the_one_above() {
        assert_eq!(warning(Path::new("/proc/nonexistent/deeper")), None);
    }
}
