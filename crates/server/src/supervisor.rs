//! What a supervisor such as systemd is told: the protocol of sd_notify(3), which is one datagram of text per message.
//!
//! Without `NOTIFY_SOCKET` nothing is told to anybody. A watchdog is fed from a thread that asks every shard for a sign of
//! life first: a broker whose loop hangs is restarted, one whose main thread merely waits is not.

use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_broker::Watchdog;

/// How to reach the supervisor, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    /// A sign of life is expected at least that often.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one that started this process.
    pub fn of_process() -> Self {
        Self::of(|name| std::env::var(name).ok(), std::process::id())
    }

    fn of(variable: impl Fn(&str) -> Option<String>, process: u32) -> Self {
        let address = variable("NOTIFY_SOCKET").and_then(|path| address(&path));
        let socket = address.and_then(|address| Some(Arc::new((UnixDatagram::unbound().ok()?, address))));
        // The variables may have been meant for a parent of ours.
        let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(process));
        let micros = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok()).filter(|&micros: &u64| micros > 0);
        Self { socket, watchdog: micros.filter(|_| is_ours).map(Duration::from_micros) }
    }

    /// The listeners are open.
    pub fn ready(&self) {
        self.tell(&format!("READY=1\nMAINPID={}", std::process::id()));
    }

    /// The configuration is being read again; [`ready`](Self::ready) follows, whatever comes of it.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Tells the supervisor that the process goes down.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// A sign of life of a process that has no broker to ask.
    pub fn is_alive(&self) {
        if self.watchdog.is_some() {
            self.tell("WATCHDOG=1");
        }
    }

    /// Signs of life for so long at most, or until the value is dropped: of a process that does one thing and answers nobody meanwhile.
    pub fn feed_for(&self, most: Duration) -> Feeding {
        let (stop, is_over) = std::sync::mpsc::channel::<()>();
        let watchdog = self.watchdog.filter(|_| self.socket.is_some());
        let thread = watchdog.map(|watchdog| {
            let (supervisor, until) = (self.clone(), Instant::now() + most);
            std::thread::spawn(move || {
                while Instant::now() < until {
                    supervisor.is_alive();
                    if is_over.recv_timeout(watchdog / 2) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })
        });
        Feeding { stop: Some(stop), thread }
    }

    /// From now on a sign of life is sent as long as every loop turns.
    pub fn feed(&self, mut pulse: Watchdog) {
        let (Some(watchdog), Some(_)) = (self.watchdog, &self.socket) else { return };
        let supervisor = self.clone();
        std::thread::spawn(move || {
            loop {
                // Twice as often as needed, as sd_watchdog_enabled(3) advises; each answer has some looks of time.
                pulse.knock();
                std::thread::sleep(watchdog / 4);
                if pulse.is_answered() {
                    supervisor.tell("WATCHDOG=1");
                }
                std::thread::sleep(watchdog / 4);
            }
        });
    }

    fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // A supervisor that does not listen is no reason to stop serving.
            let _ = socket.0.send_to_addr(text.as_bytes(), &socket.1);
        }
    }
}

/// See [`Supervisor::feed_for`].
#[derive(Debug)]
pub struct Feeding {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A path, or with `@` in front a name that only the kernel knows.
fn address(path: &str) -> Option<SocketAddr> {
    match path.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name).ok(),
        #[cfg(not(target_os = "linux"))]
        Some(_) => None,
        None if path.starts_with('/') => SocketAddr::from_pathname(path).ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(variables: &[(&str, &str)]) -> Supervisor {
        let find =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        Supervisor::of(find, 7)
    }

    #[test]
    fn each_message_is_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = supervisor(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
        supervisor.ready();
        supervisor.reloading();
        supervisor.stopping();
        let mut heard = [0; 200];
        let mut next = || {
            let count = socket.recv(&mut heard).unwrap();
            String::from_utf8(heard[..count].to_vec()).unwrap()
        };
        assert!(next().starts_with("READY=1\n"));
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(next(), "STOPPING=1");
    }

    #[test]
    fn without_a_supervisor_nobody_is_told() {
        for variables in [&[][..], &[("NOTIFY_SOCKET", "relative")], &[("NOTIFY_SOCKET", "/nonexistent/socket")]] {
            supervisor(variables).ready();
        }
    }

    #[test]
    fn a_watchdog_of_somebody_else_is_not_fed() {
        let watchdog = |pid: &str| supervisor(&[("WATCHDOG_USEC", "3000000"), ("WATCHDOG_PID", pid)]).watchdog;
        assert_eq!(watchdog("7"), Some(Duration::from_secs(3)));
        assert_eq!(watchdog("8"), None);
        assert_eq!(supervisor(&[("WATCHDOG_USEC", "3000000")]).watchdog, Some(Duration::from_secs(3)));
        assert_eq!(supervisor(&[("WATCHDOG_USEC", "0")]).watchdog, None);
    }

    #[test]
    fn a_process_that_reads_its_store_is_not_taken_for_one_that_hangs_until_it_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = supervisor(&[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "2000")]);
        let feeding = supervisor.feed_for(Duration::from_secs(3600));
        let mut heard = [0; 20];
        for _ in 0..3 {
            let count = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..count], b"WATCHDOG=1");
        }
        drop(feeding);
        socket.set_nonblocking(true).unwrap();
        while socket.recv(&mut heard).is_ok() {}
        // Nor for one that takes too long.
        drop(supervisor.feed_for(Duration::ZERO));
        assert!(socket.recv(&mut heard).is_err());
    }
}
