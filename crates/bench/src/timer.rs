//! The generator's clock, and sleeping for less than a millisecond, which `mio` cannot.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

/// Nanoseconds since the case began; shared by its threads, so that times of one can be compared with the other's.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaseClock(Instant);

impl CaseClock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(super) fn now_ns(self) -> u64 {
        // 584 years.
        self.0.elapsed().as_nanos() as u64
    }
}

/// Waits for readiness with the precision of the system's timers.
#[derive(Debug)]
pub(super) struct Sleeper {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Sleeper {
    /// Registers under a token that no connection has.
    pub(super) fn new(poll: &Poll) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let token = mio::Token(usize::MAX);
        poll.registry().register(&mut mio::unix::SourceFd(&timer.as_raw_fd()), token, mio::Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Waits until something is ready, but no longer than this.
    pub(super) fn wait(&self, poll: &mut Poll, events: &mut Events, limit: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if limit.is_zero() {
            return poll_once(poll, events, Duration::ZERO);
        }
        let it_value = Timespec { tv_sec: 0, tv_nsec: limit.min(WAIT_MAX).as_nanos() as _ };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        // Arming again before each wait also clears what expired: nothing has to be read.
        poll_once(poll, events, 2 * WAIT_MAX)
    }
}

#[cfg(not(target_os = "linux"))]
impl Sleeper {
    pub(super) fn new(_: &Poll) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Without fine timers the last millisecond is spent asking.
    pub(super) fn wait(&self, poll: &mut Poll, events: &mut Events, limit: Duration) -> io::Result<()> {
        let whole = Duration::from_millis(limit.min(WAIT_MAX).as_millis() as u64);
        poll_once(poll, events, whole)
    }
}

/// The loop looks at the clock and at Ctrl-C at least this often.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(10);

fn poll_once(poll: &mut Poll, events: &mut Events, limit: Duration) -> io::Result<()> {
    match poll.poll(events, Some(limit)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        outcome => outcome,
    }
}
