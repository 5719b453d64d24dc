//! How much memory there is: what the control groups of this process allow, else what the machine has.

use std::fs;

use crate::control_group::memory_limit;

/// The budget when none is configured: half of what there is. The other half is for the allocator, the kernel's buffers
/// of sockets and everybody else; 1 GiB where nobody says how much there is.
pub(crate) fn memory_auto() -> u64 {
    let read = |path: &str| fs::read_to_string(path).ok();
    let text = |path| read(path).unwrap_or_default();
    let allowed = memory_limit(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"), read);
    let total = memory_total(&text("/proc/meminfo"));
    allowed.into_iter().chain(total).min().map_or(1 << 30, |bytes| bytes / 2)
}

/// `MemTotal:       16318480 kB`
fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        assert_eq!(memory_total("MemTotal:       16318480 kB\nMemFree: 1 kB\n"), Some(16_318_480 * 1024));
        assert_eq!(memory_total(""), None);
        assert!(memory_auto() > 1 << 20);
    }
}
