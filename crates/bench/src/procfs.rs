//! What a process used: CPU time and memory, as Linux tells it in /proc. Elsewhere nothing is measured, and the report
//! says so.

use std::time::Duration;

use super::outcome::{Cores, CpuCost};

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessUsage {
    /// CPU time of all threads, in seconds; the kernel counts in ticks of 10 ms.
    pub(super) cpu: CpuCost,
    /// Resident memory, in KiB.
    pub(super) rss_kib: u64,
}

/// What the process used so far; `None` if it cannot be known.
pub(super) fn usage(pid: u32) -> Option<ProcessUsage> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let (user, system) = cpu_ticks(&stat)?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(ProcessUsage {
        cpu: CpuCost { user: user as f64, system: system as f64 }.per(rustix::param::clock_ticks_per_second() as f64),
        rss_kib: pages * rustix::param::page_size() as u64 / 1024,
    })
}

/// CPU time of all threads that live, in nanoseconds, as the scheduler counts it; `None` if it cannot be known.
pub(super) fn cpu_ns(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.map(|task| of_task(task.ok()?)).sum()
}

/// The same for the threads whose names begin so.
pub(super) fn thread_cpu_ns(pid: u32, name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_task = |task: std::fs::DirEntry| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        comm.starts_with(name).then(|| text.split_whitespace().next()?.parse::<u64>().ok())?
    };
    // One may end while it is looked at.
    Some(tasks.filter_map(|task| of_task(task.ok()?)).sum())
}

/// The fields utime and stime. The name of the command may contain anything: they are counted from its closing bracket.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The most memory that was ever resident, in KiB; the kernel keeps it, so that no moment is missed.
pub(super) fn rss_max_kib(pid: u32) -> Option<u64> {
    peak_kib(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Who used the processor since `start`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuMeter {
    pid: Option<u32>,
    broker: Option<ProcessUsage>,
    own: Duration,
    machine: Option<f64>,
}

impl CpuMeter {
    /// Begins to look at the broker with this process id, at this process and at the machine.
    pub(super) fn start(pid: Option<u32>) -> Self {
        Self { pid, broker: pid.and_then(usage), own: own_cpu(), machine: machine_cpu_s() }
    }

    /// The broker's CPU time since then, and the cores that everybody used for so long.
    pub(super) fn stop(&self, seconds: f64) -> (Option<CpuCost>, Cores) {
        let now = Self::start(self.pid);
        let cost = self.broker.zip(now.broker).map(|(before, after)| CpuCost {
            user: after.cpu.user - before.cpu.user,
            system: after.cpu.system - before.cpu.system,
        });
        let tool_s = now.own.saturating_sub(self.own).as_secs_f64();
        let machine_s = self.machine.zip(now.machine).map(|(before, after)| after - before);
        let others_s = machine_s.zip(cost).map(|(all, broker)| (all - broker.total() - tool_s).max(0.0));
        let cores = Cores {
            broker: cost.map(|cost| cost.total() / seconds),
            tool: tool_s / seconds,
            others: others_s.map(|others| others / seconds),
        };
        (cost, cores)
    }
}

/// CPU time of this process: the generator's own share.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of everything that runs on this machine, in seconds; `None` if it cannot be known.
fn machine_cpu_s() -> Option<f64> {
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
        assert_eq!(cpu_ticks(stat), Some((12, 30)));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn the_peak_is_found_among_other_lines() {
        assert_eq!(peak_kib("VmPeak:\t  9000 kB\nVmHWM:\t    4321 kB\nVmRSS:\t 12 kB\n"), Some(4321));
        assert_eq!(peak_kib("VmRSS:\t 12 kB\n"), None);
    }

    #[test]
    fn what_the_tool_used_is_told_apart() {
        let meter = CpuMeter::start(None);
        let (cost, cores) = meter.stop(2.0);
        assert_eq!((cost, cores.broker, cores.others), (None, None, None));
        assert!(cores.tool >= 0.0);
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
        assert!(cpu_ns(std::process::id()).unwrap() > 0);
        assert_eq!(cpu_ns(u32::MAX), None);
    }
}
