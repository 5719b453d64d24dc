//! Places at the doors: how many connections each kind of door may have at once, and what becomes of one that finds none.
//!
//! Every connection is a descriptor of the process, which MQTT, the operator and the log's files need as well; so all doors
//! together have a share of them, which whoever opens the doors knows. Decides nothing about what is asked.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_http::{PLAIN_REFUSAL, last_words};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::counts::{ConnectionKind, Counts};
use crate::limits::{
    HTTP_CONNECTIONS_MAX, REFUSAL_BYTES, REFUSAL_TIME, REFUSALS_MAX, SOCKETS_MAX, SSAP_CONNECTIONS_MAX,
};

/// What a connection to the HTTP door hears that finds no place.
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\npace-retry-after-ms: 1000\r\n\
    Content-Type: application/problem+json\r\nContent-Length: 132\r\nConnection: close\r\n\r\n\
    {\"type\":\"urn:tidegate:problem:crowded\",\"title\":\"Service Unavailable\",\"status\":503,\
    \"detail\":\"too many connections\",\"error\":\"crowded\"}";

/// A connection has one as long as it is open.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    _permit: OwnedSemaphorePermit,
}

/// The places of all doors.
#[derive(Debug)]
pub(crate) struct Places {
    free: [Arc<Semaphore>; ConnectionKind::ALL.len()],
    /// Somebody has been turned away since there was room for all.
    is_crowded: [AtomicBool; ConnectionKind::ALL.len()],
    /// For those who are told that there is no place.
    refusals: Arc<Semaphore>,
}

impl Places {
    /// Divides what all doors may have together: evenly, because whoever fills one should find the others open.
    pub(crate) fn new(together: usize) -> Self {
        let refusals = (together / 8).clamp(1, REFUSALS_MAX);
        let each = (together.saturating_sub(refusals) / ConnectionKind::ALL.len()).max(1);
        let most = ConnectionKind::ALL.map(|entry| match entry {
            ConnectionKind::Http => HTTP_CONNECTIONS_MAX,
            ConnectionKind::Socket => SOCKETS_MAX,
            ConnectionKind::Ssap => SSAP_CONNECTIONS_MAX,
        });
        Self {
            free: most.map(|most| Arc::new(Semaphore::new(each.min(most)))),
            is_crowded: Default::default(),
            refusals: Arc::new(Semaphore::new(refusals)),
        }
    }

    /// A place, if there is one; else that is counted, and logged when it begins.
    pub(crate) fn take(&self, entry: ConnectionKind, counts: &Counts) -> Option<ConnectionPlace> {
        let is_crowded = &self.is_crowded[entry as usize];
        let free = &self.free[entry as usize];
        let Ok(permit) = Arc::clone(free).try_acquire_owned() else {
            counts.turned_away(entry);
            if !is_crowded.swap(true, Ordering::Relaxed) {
                warn!(
                    event = "space_crowded",
                    door = entry.name(),
                    "more connections than places at a door of the smart space: more are turned away"
                );
            }
            return None;
        };
        if is_crowded.load(Ordering::Relaxed) && free.available_permits() > 0 {
            is_crowded.store(false, Ordering::Relaxed);
            info!(event = "space_uncrowded", door = entry.name(), "there are places again");
        }
        Some(ConnectionPlace { _permit: permit })
    }

    /// Tells a connection to the HTTP door that there is no place for it. Whoever is still sending would not hear it if the
    /// socket was closed at once; a few are listened to for a moment.
    pub(crate) fn refuse(&self, stream: TcpStream) {
        self.dismiss(stream, REFUSAL);
    }

    /// Tells a client that speaks plain HTTP that it came to a door with TLS.
    pub(crate) fn refuse_plain(&self, stream: TcpStream) {
        self.dismiss(stream, PLAIN_REFUSAL);
    }

    fn dismiss(&self, stream: TcpStream, words: &'static str) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else {
            if let Ok(mut stream) = stream.into_std() {
                let _ = stream.write(words.as_bytes());
            }
            return;
        };
        tokio::spawn(async move {
            let _ = timeout(REFUSAL_TIME, last_words(stream, words, REFUSAL_BYTES)).await;
            drop(permit);
        });
    }
}

/// Accepting failed: it is logged when that begins, and tried again after this time.
#[derive(Debug, Default)]
pub(crate) struct AcceptTrouble(bool);

impl AcceptTrouble {
    pub(crate) async fn failed(&mut self, door: &str, error: &std::io::Error) {
        if !std::mem::replace(&mut self.0, true) {
            warn!(event = "accept_failed", listener = door, %error, "cannot accept");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    pub(crate) fn over(&mut self) {
        self.0 = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_doors_together_keep_to_their_share_and_each_to_its_maximum() {
        for together in 4..5000 {
            let places = Places::new(together);
            let sum: usize = places.free.iter().chain([&places.refusals]).map(|free| free.available_permits()).sum();
            assert!(sum <= together, "{sum} of {together}");
            assert!(places.free.iter().all(|free| free.available_permits() > 0));
        }
        let most = Places::new(usize::MAX);
        assert_eq!(most.free[ConnectionKind::Ssap as usize].available_permits(), SSAP_CONNECTIONS_MAX);
    }

    #[test]
    fn a_door_that_is_full_leaves_the_others_their_places_and_counts() {
        let (places, counts) = (Places::new(4), Counts::default());
        let place = places.take(ConnectionKind::Http, &counts);
        assert!(place.is_some() && places.take(ConnectionKind::Http, &counts).is_none());
        assert!(places.take(ConnectionKind::Ssap, &counts).is_some());
        drop(place);
        assert!(places.take(ConnectionKind::Http, &counts).is_some(), "given back");
        assert_eq!(counts.all_turned_away(), [("http", 1), ("websocket", 0), ("ssap", 0)]);
    }

    #[test]
    fn a_refusal_is_as_long_as_it_says() {
        let (head, body) = REFUSAL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
