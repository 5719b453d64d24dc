//! What a process used: CPU time and memory, as Linux tells it in /proc. Elsewhere nothing is measured, and the report
//! says so.

use std::time::Duration;

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// User and system time of all threads, in seconds; the kernel counts in ticks of 10 ms.
    pub(super) cpu_s: f64,
    /// Resident memory, in KiB.
    pub(super) rss_kib: u64,
}

/// What the process used so far; `None` if it cannot be known.
pub(super) fn usage(pid: u32) -> Option<Usage> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let ticks = cpu_ticks(&stat)?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(Usage {
        cpu_s: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        rss_kib: pages * rustix::param::page_size() as u64 / 1024,
    })
}

/// The fields utime and stime. The name of the command may contain anything: they are counted from its closing bracket.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// CPU time of this process: the generator's own share.
pub(super) fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of everything that runs on this machine, in seconds; `None` if it cannot be known.
pub(super) fn machine_cpu_s() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    Some(busy_ticks(&stat)? as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The first line: user, nice, system, idle, waiting for disks, interrupts, soft interrupts, taken by the host.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks = fields.map(|field| field.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    Some(ticks.iter().sum::<u64>() - idle)
}

/// Lets this process and those it starts open as many files as the system permits; returns how many.
pub(super) fn raise_file_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused on some systems for huge values; then the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_does_not_move_the_fields() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 3 0 100 1000 50 184467";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn a_machine_that_waits_is_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 1000 8 16 32 64 64\ncpu0 1 1 1 1\n"), Some(63));
        assert_eq!(busy_ticks("nonsense"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_memory_and_nobody_has_none() {
        assert!(usage(std::process::id()).unwrap().rss_kib > 100);
        assert_eq!(usage(u32::MAX), None);
    }
}
