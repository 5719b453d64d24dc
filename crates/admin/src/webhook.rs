//! Alarms to somebody else's server: a POST for each one that is raised or over, in their order, from a thread of its own.
//!
//! What cannot be delivered is tried again a few times, then counted as lost and said in the log: an alarm that is late by
//! minutes is none. The board of alarms never waits for it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tracing::{info, warn};

use crate::limits::{POST_TIMEOUT, WEBHOOK_PAUSE, WEBHOOK_TRIES, WEBHOOK_WAITING_MAX};
use crate::post::{HttpTarget, PostThread};
use crate::state::lock;

/// Where alarms go: `http://HOST[:PORT][/PATH]`.
pub fn receiver(url: &str) -> Option<HttpTarget> {
    HttpTarget::parse(url, 80, "/")
}

/// Sends alarms until it is dropped.
#[derive(Debug)]
pub(crate) struct Webhook {
    letters: SyncSender<Value>,
    /// The name of this machine: who gets alarms of many brokers wants to know whose it is.
    pub(crate) host: String,
    lost: Arc<AtomicU64>,
    sender: Mutex<Option<PostThread>>,
}

impl Webhook {
    pub(crate) fn start(receiver: HttpTarget) -> io::Result<Self> {
        let (letters, waiting) = mpsc::sync_channel::<Value>(WEBHOOK_WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&lost);
        let run = move |stopped: &mpsc::Receiver<()>| {
            // Two channels and one thread: it looks whether it has to end after each wait.
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                match waiting.recv_timeout(LOOK_EVERY) {
                    Ok(letter) => deliver(&receiver, &letter, stopped, &counter),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let sender = Mutex::new(Some(PostThread::start("webhook", run)?));
        Ok(Self { letters, host: host_name(), lost, sender })
    }

    /// To be delivered; lost if too many wait already.
    pub(crate) fn tell(&self, alarm: Value) {
        if self.letters.try_send(alarm).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            warn!(event = "webhook_full", "an alarm is not sent: too many wait for the receiver");
        }
    }
}

/// As Linux tells it; empty elsewhere.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// How soon the thread sees that it has to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn deliver(receiver: &HttpTarget, letter: &Value, stopped: &mpsc::Receiver<()>, lost: &AtomicU64) {
    let (body, host) = (letter.to_string(), receiver.host());
    let mut pause = WEBHOOK_PAUSE;
    for attempt in 1..=WEBHOOK_TRIES {
        match receiver.send(body.as_bytes(), POST_TIMEOUT) {
            Ok(()) => {
                if attempt > 1 {
                    info!(event = "webhook", host, attempt, "an alarm has reached its receiver");
                }
                return;
            }
            Err(error) if attempt == WEBHOOK_TRIES => {
                lost.fetch_add(1, Ordering::Relaxed);
                warn!(event = "webhook_failed", host, %error, alarm = body, "an alarm has not reached its receiver");
            }
            Err(error) => {
                if attempt == 1 {
                    warn!(event = "webhook_failed", host, %error, "an alarm is sent again in a moment");
                }
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                pause *= 2;
            }
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        lock(&self.sender).take().map(|sender| sender.end(POST_TIMEOUT));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    /// Answers one request with this status; what it was sent.
    fn answer(listener: &TcpListener, status: &str) -> Value {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(text) = line.strip_prefix("Content-Length: ") {
                length = text.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn alarms_come_in_order_and_a_receiver_that_fails_is_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = receiver(&format!("http://{}/alarms", listener.local_addr().unwrap())).unwrap();
        let webhook = Webhook::start(target).unwrap();
        webhook.tell(json!({ "n": 1 }));
        webhook.tell(json!({ "n": 2 }));
        assert_eq!(answer(&listener, "503 Busy"), json!({ "n": 1 }));
        assert_eq!(answer(&listener, "204 No Content"), json!({ "n": 1 }), "again");
        assert_eq!(answer(&listener, "200 OK"), json!({ "n": 2 }));
        assert_eq!(webhook.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_waits_is_bounded_and_the_rest_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let webhook = Webhook::start(receiver(&format!("http://{}", listener.local_addr().unwrap())).unwrap()).unwrap();
        for n in 0..WEBHOOK_WAITING_MAX + 10 {
            webhook.tell(json!(n));
        }
        // One may be under way.
        assert!((9..=10).contains(&webhook.lost.load(Ordering::Relaxed)));
    }
}
