//! Four writers and a hundred subscribers: each must hear of everything, under consecutive numbers.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::Value;
use tokio::time::timeout;

use super::Named;
use super::host::{SpaceHost, rate};
use super::insert;
use super::socket::SubscriberSocket;
use crate::measure::RunSettings;

const WRITERS: usize = 4;
const SUBSCRIBERS: usize = 100;
const INSERTS: usize = 1000;
const QUERY: &str = "SELECT ?s { ?s <http://ex.org/is> ?o }";
/// Longest silence after which what has not come is lost.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(setting: &RunSettings) -> Result<Named> {
    let host = SpaceHost::start()?;
    let (subscribers, inserts) = (setting.scaled(SUBSCRIBERS), setting.scaled(INSERTS));
    let mut listening = Vec::new();
    for _ in 0..subscribers {
        let mut socket = SubscriberSocket::connect(host.http()?).await?;
        socket.subscribe(QUERY).await?;
        listening.push(tokio::spawn(async move { listen(socket, WRITERS * inserts).await }));
    }
    let (at, began) = (host.ssap()?, Instant::now());
    let writing = {
        let setting = setting.clone();
        let until = began + Duration::from_secs(600);
        let one = move |number| {
            let setting = setting.clone();
            thread::spawn(move || insert::connection(at, number, until, inserts, &setting))
        };
        (0..WRITERS).map(one).collect::<Vec<_>>()
    };
    let (mut heard, mut messages, mut gaps) = (0, 0, 0);
    for subscriber in listening {
        let outcome = subscriber.await?;
        heard += outcome.rows;
        messages += outcome.messages;
        gaps += outcome.gaps;
    }
    let time = began.elapsed();
    let mut refused = 0;
    for writer in writing {
        refused += writer.join().map_err(|_| anyhow!("a writer has panicked"))??.refused;
    }
    let expected = subscribers * (WRITERS * inserts - refused);
    Ok(vec![
        ("lost", expected.saturating_sub(heard) as f64),
        ("gaps", gaps as f64),
        ("refused", refused as f64),
        ("rows/s", rate(heard, time)),
        ("rows per message", heard as f64 / (messages.max(1)) as f64),
    ])
}

#[derive(Default)]
struct NotificationCount {
    rows: usize,
    messages: usize,
    /// Numbers that were left out.
    gaps: u64,
}

async fn listen(mut socket: SubscriberSocket, wanted: usize) -> NotificationCount {
    let (mut heard, mut last) = (NotificationCount::default(), 0);
    while heard.rows < wanted {
        let Ok(Ok(text)) = timeout(PATIENCE, socket.next()).await else { break };
        let told: Value = serde_json::from_slice(&text).unwrap_or_default();
        let told = &told["notification"];
        let sequence = told["sequence"].as_u64().unwrap_or_default();
        heard.gaps += sequence.saturating_sub(last + 1);
        last = sequence;
        heard.messages += 1;
        heard.rows += told["addedResults"]["results"]["bindings"].as_array().map_or(0, Vec::len);
    }
    heard
}
