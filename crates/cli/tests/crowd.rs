//! The operator's door when others want to keep it shut: silent connections, used-up descriptors, guessed passwords.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

#[allow(dead_code, reason = "shared with the browser's tests")]
#[path = "browser/broker.rs"]
mod broker;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use broker::{Broker, exchange};

impl Broker {
    fn host(&self) -> &str {
        self.admin.trim_start_matches("http://")
    }

    /// The code of an answer; none if there is none.
    fn code(&self, path: &str, headers: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(self.host()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n{headers}\r\n", self.host());
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    fn metric(&self, name: &str) -> u64 {
        let answer = exchange(self.host(), &format!("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.host()));
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {answer}"))
    }
}

/// Keeps `count` connections open that never finish what they begin with `words`, and renews them, while `work` runs.
fn besieged<T>(host: &str, count: usize, words: &str, work: impl FnOnce() -> T) -> T {
    let (is_over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
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
                        // As fast as a besieger needs to be, and the machine is shared.
                        std::thread::sleep(Duration::from_millis(4));
                    }
                }
            });
        }
        while opened.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn silent_connections_keep_neither_health_checks_nor_the_operator_out() {
    let broker = Broker::start(&[("ann", "admin")]);
    let host = broker.host().to_owned();
    let ann = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    for words in ["", "GET /healthz HT", "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
    {
        besieged(&host, 240, words, || {
            let answered = (0..40).filter(|_| broker.code("/healthz", "") == Some(200)).count();
            assert_eq!(answered, 40, "{words:?}");
            assert_eq!(broker.code("/readyz", ""), Some(200));
            let asked = (0..10).filter(|_| broker.code("/api/v1/status", ann) == Some(200)).count();
            assert_eq!(asked, 10, "{words:?}");
        });
    }
    let answer = exchange(&host, &format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n{ann}\r\n"));
    assert!(answer.contains("\ntidegate_admin_evicted_total ") && !answer.contains("evicted_total 0\n"), "{answer}");
    let crowded = broker.log().lines().filter(|line| line.contains("event=admin_crowded")).count();
    assert_eq!(crowded, 1, "said once");
}

#[test]
fn with_all_descriptors_taken_the_operator_still_comes_in() {
    let broker = Broker::start_with(&[], "ulimit -n 64");
    let clients: Vec<TcpStream> =
        (0..200).filter_map(|_| TcpStream::connect(("127.0.0.1", broker.port.parse().expect("a port"))).ok()).collect();
    // The doors of the smart space do not leave any, as those of MQTT do.
    let space = broker.space.trim_start_matches("http://").to_owned();
    let queries: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(&space).ok()).collect();
    let end = Instant::now() + Duration::from_secs(30);
    while broker.metric("tidegate_admin_accept_failed_total") == 0 {
        assert!(Instant::now() < end, "the descriptors are not used up: {} {}", clients.len(), queries.len());
    }
    let answered = (0..40).filter(|_| broker.code("/healthz", "") == Some(200)).count();
    assert_eq!(answered, 40);
    assert_eq!(broker.code("/api/v1/status", ""), Some(200));
    assert_eq!(broker.log().lines().filter(|line| line.contains("listener=admin")).count(), 1, "said once");
}

#[test]
fn wrong_passwords_of_others_do_not_pause_whoever_knows_the_right_one() {
    let broker = Broker::start(&[("ann", "admin")]);
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
