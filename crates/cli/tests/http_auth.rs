//! Users that a web server knows: who comes in, and who does not when it is away.

#![cfg(unix)]
#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_test_support::{Broker, Launch, PATIENCE, text};

/// Lets in whoever says "sesame" as a sensor, until it is away.
struct Accounts {
    port: u16,
    is_away: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

/// One that takes every question and answers none.
fn silent() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            open.push(stream);
        }
    });
    (port, asked)
}

impl Accounts {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (is_away, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (away, count) = (Arc::clone(&is_away), Arc::clone(&asked));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if away.load(Ordering::SeqCst) {
                    continue;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                while !request.ends_with(b"}") {
                    match stream.read(&mut buffer) {
                        Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
                        _ => break,
                    }
                }
                let is_right = String::from_utf8_lossy(&request).contains("\"password\":\"sesame\"");
                let yes = "HTTP/1.1 200 OK\r\n\r\n{\"result\":\"allow\",\"roles\":[\"sensor\"]}";
                let answer = if is_right { yes } else { "HTTP/1.1 401 No\r\n\r\n" };
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { port, is_away, asked }
    }
}

/// What a publisher is told.
fn publish(broker: &Broker, user: &str, password: &str, topic: &str) -> String {
    let arguments = ["-V", "5", "-i", user, "-u", user, "-P", password, "-t", topic, "-m", "x", "-q", "1"];
    text(&broker.publish(&arguments).stderr)
}

#[test]
fn a_web_server_says_who_comes_in_and_nobody_new_does_while_it_is_away() {
    let accounts = Accounts::new();
    let config = format!(
        "[http_auth]\nurl = \"http://127.0.0.1:{}/mqtt\"\n[[security.rule]]\nrole = \"sensor\"\nallow = \"write\"\ntopic = \"sensors/%u/#\"\n",
        accounts.port
    );
    let broker = Launch::new().user("ann", "admin").config(&config).start();
    assert_eq!(publish(&broker, "bob", "sesame", "sensors/bob/t"), "");
    assert!(publish(&broker, "bob", "sesame", "sensors/ann/t").contains("0x87"), "the rules of its role");
    assert_eq!(accounts.asked.load(Ordering::SeqCst), 1, "the second time it was remembered");
    assert!(publish(&broker, "bob", "wrong", "sensors/bob/t").contains("0x86"));
    assert!(publish(&broker, "ann", "sesame", "x").contains("0x86"), "who is in the file is judged there");
    assert_eq!(accounts.asked.load(Ordering::SeqCst), 2);
    accounts.is_away.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        assert!(publish(&broker, "eve", "sesame", "sensors/eve/t").contains("0x88"), "never a yes");
    }
    assert_eq!(publish(&broker, "bob", "sesame", "sensors/bob/t"), "", "who was let in of late");
}

#[test]
fn a_silent_web_server_does_not_hold_those_whose_password_is_here() {
    let (port, asked) = silent();
    let config = format!("[http_auth]\nurl = \"http://127.0.0.1:{port}/mqtt\"\ntimeout = \"30s\"\n");
    let broker = Launch::new().user("ann", "").config(&config).start();
    // More than there are threads for passwords, which is one.
    let waiting: Vec<_> = (0..4)
        .map(|n| {
            let name = format!("eve{n}");
            let arguments = ["-V", "5", "-i", &name, "-u", &name, "-P", "x", "-t", "t", "-m", "x"];
            broker.tool("pub", &arguments).stderr(Stdio::null()).spawn().expect("pub runs")
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    while asked.load(Ordering::SeqCst) < 4 {
        assert!(Instant::now() < end, "{} are asked at once", asked.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(publish(&broker, "ann", "secret", "t"), "", "she does not wait for them");
    for mut child in waiting {
        assert_eq!(child.try_wait().expect("it is ours"), None, "they wait still");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}
