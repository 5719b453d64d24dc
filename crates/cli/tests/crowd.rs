//! The operator's door when others want to keep it shut: silent connections, used-up descriptors, guessed passwords.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_test_support::{Broker, Launch, exchange};

/// A guard only: whoever waits so long waits for nothing.
const PATIENCE: Duration = Duration::from_secs(120);

/// The operator's door and the smart space.
fn launch() -> Launch {
    Launch::new().door("http").door("admin").config("")
}

trait Ask {
    fn host(&self) -> &str;
    fn code(&self, path: &str, headers: &str) -> Option<u16>;
}

impl Ask for Broker {
    fn host(&self) -> &str {
        self.address("admin")
    }

    /// The code of an answer; none if there is none.
    fn code(&self, path: &str, headers: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(self.host()).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n{headers}\r\n", self.host());
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }
}

/// Keeps `count` connections open that never finish what they begin with `words`, and renews them, while `work` runs, which
/// counts what is answered.
fn besieged<T>(host: &str, count: usize, words: &str, work: impl FnOnce(&AtomicUsize) -> T) -> T {
    let (is_over, opened, answered) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut open = std::collections::VecDeque::new();
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = TcpStream::connect(host) {
                        let _ = stream.write_all(words.as_bytes());
                        open.push_back(stream);
                        opened.fetch_add(1, Ordering::Relaxed);
                    }
                    if open.len() > count / 4 {
                        open.pop_front();
                        // One new connection of each besieger for each request that is answered: how fast the machine is
                        // does not matter.
                        let seen = answered.load(Ordering::Relaxed);
                        while answered.load(Ordering::Relaxed) == seen && !is_over.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                }
            });
        }
        while opened.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = work(&answered);
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn silent_connections_keep_neither_health_checks_nor_the_operator_out() {
    let broker = launch().user("ann", "admin").start();
    let host = broker.host().to_owned();
    let ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    for words in ["", "GET /healthz HT", "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
    {
        besieged(&host, 240, words, |answered| {
            let ask = |path, headers| {
                let code = broker.code(path, headers);
                answered.fetch_add(1, Ordering::Relaxed);
                code == Some(200)
            };
            assert_eq!((0..40).filter(|_| ask("/healthz", "")).count(), 40, "{words:?}");
            assert!(ask("/readyz", ""));
            assert_eq!((0..10).filter(|_| ask("/api/v1/status", ann)).count(), 10, "{words:?}");
        });
    }
    let answer = exchange(&host, &format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n{ann}\r\n"));
    assert!(answer.contains("\ntidegate_admin_evicted_total ") && !answer.contains("evicted_total 0\n"), "{answer}");
    assert_eq!(broker.logged("event=admin_crowded"), 1, "said once");
}

#[test]
#[cfg(target_os = "linux")]
fn with_all_descriptors_taken_the_operator_still_comes_in() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    let broker = launch().start();
    // As if others had taken the rest: from now on the process gets no more than it has.
    let open = std::fs::read_dir(format!("/proc/{}/fd", broker.child.id())).expect("its descriptors");
    let open: BTreeSet<u64> = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // Whatever it has inherited may stand far behind.
    let most = (0..=open.len() as u64).find(|number| !open.contains(number));
    let pid = i32::try_from(broker.child.id()).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Nofile, Rlimit { current: most, maximum: most }).expect("a lower limit");
    let clients: Vec<TcpStream> = (0..64).filter_map(|_| TcpStream::connect(broker.address("mqtt")).ok()).collect();
    let end = Instant::now() + PATIENCE;
    while broker.metric("tidegate_admin_accept_failed_total") < 1.0 {
        assert!(Instant::now() < end, "the descriptors are not used up: {}", clients.len());
    }
    let answered = (0..40).filter(|_| broker.code("/healthz", "") == Some(200)).count();
    assert_eq!(answered, 40);
    assert_eq!(broker.code("/api/v1/status", ""), Some(200));
    assert_eq!(broker.logged("listener=admin"), 1, "said once");
}

/// Of 256 descriptors a half is kept, and the smart space has a quarter of the rest.
#[test]
fn connections_to_the_smart_space_keep_out_neither_mqtt_nor_the_operator() {
    const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00";
    let broker = launch().after("ulimit -n 256").start();
    let space = broker.address("sparql").to_owned();
    let refused = r#"tidegate_space_connections_refused_total{door="http"}"#;
    let crowd: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(&space).ok()).collect();
    let end = Instant::now() + PATIENCE;
    while broker.metric(refused) < 200.0 {
        assert!(Instant::now() < end, "{} have come", crowd.len());
    }
    let clients = (0..60).map(|_| {
        let mut client = TcpStream::connect(broker.address("mqtt")).expect("the door is open");
        client.set_read_timeout(Some(PATIENCE)).expect("a socket");
        client.write_all(CONNECT).expect("it listens");
        let mut connack = [0; 4];
        client.read_exact(&mut connack).expect("an answer");
        assert_eq!(connack, [0x20, 2, 0, 0]);
        client
    });
    let clients: Vec<TcpStream> = clients.collect();
    assert_eq!((clients.len(), broker.code("/healthz", "")), (60, Some(200)));
    let mut late = TcpStream::connect(&space).expect("the door is open");
    let mut answer = String::new();
    late.read_to_string(&mut answer).expect("its own answer");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("urn:tidegate:problem:crowded"), "{answer}");
    assert_eq!((broker.logged("event=space_crowded"), broker.logged("event=accept_failed")), (1, 0));
}

#[test]
fn wrong_passwords_of_others_do_not_pause_whoever_knows_the_right_one() {
    let broker = launch().user("ann", "admin").start();
    let (right, wrong) = ("Authorization: Basic YW5uOnNlY3JldA==\r\n", "Authorization: Basic YW5uOndyb25n\r\n");
    assert_eq!(broker.code("/api/v1/status", right), Some(200));
    let guesses = |count: usize| (0..count).filter_map(|_| broker.code("/api/v1/status", wrong)).collect::<Vec<u16>>();
    let codes = guesses(12);
    assert!(codes.contains(&401) && codes.last() == Some(&429), "guessing is paused: {codes:?}");
    assert_eq!(broker.code("/api/v1/status", right), Some(200), "she is known");
    // Users are read again: what is known of her survives that, too.
    let host = broker.host();
    let reload = exchange(host, &format!("POST /api/v1/reload HTTP/1.0\r\nHost: {host}\r\n{right}\r\n"));
    assert!(reload.contains("200 OK"), "{reload}");
    assert_eq!(guesses(12).last(), Some(&429));
    assert_eq!(broker.code("/api/v1/status", right), Some(200), "still");
}
