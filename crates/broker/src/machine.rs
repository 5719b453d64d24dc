//! How much memory there is: what the control group allows, else what the machine has.

use std::fs;

/// The budget when none is configured: half of what there is. The other half is for the allocator, the kernel's buffers
/// of sockets and everybody else; 1 GiB where nobody says how much there is.
pub(crate) fn memory_auto() -> u64 {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let allowed = groups.iter().filter_map(|path| group_limit(&read(path)));
    let total = memory_total(&read("/proc/meminfo"));
    allowed.chain(total).min().map_or(1 << 30, |bytes| bytes / 2)
}

/// `max`, or a number of bytes; version 1 says "none" by a number close to 2^63.
fn group_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes > 0 && *bytes < 1 << 62)
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
        assert_eq!(group_limit("134217728\n"), Some(128 << 20));
        assert_eq!(group_limit("max\n"), None);
        assert_eq!(group_limit("9223372036854771712\n"), None);
        assert_eq!(memory_total("MemTotal:       16318480 kB\nMemFree: 1 kB\n"), Some(16_318_480 * 1024));
        assert_eq!(memory_total(""), None);
        assert!(memory_auto() > 1 << 20);
    }
}
