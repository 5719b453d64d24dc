//! Confirmed inserts over SSAP, as fast as the connections take them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::Named;
use super::host::{SpaceHost, is_over, rate};
use crate::measure::RunSettings;

/// Requests that are written at once.
const BATCH: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(connections: usize, is_durable: bool, setting: &RunSettings) -> Result<Named> {
    let host = if is_durable { SpaceHost::start_durable()? } else { SpaceHost::start()? };
    let (at, began) = (host.ssap()?, Instant::now());
    let until = began + setting.time;
    let outcomes = thread::scope(|scope| {
        let one = |number| scope.spawn(move || connection(at, number, until, usize::MAX, setting));
        let all: Vec<_> = (0..connections).map(one).collect();
        all.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a client has panicked"))?).collect()
    });
    let outcomes: Vec<InsertOutcome> = Result::from_iter::<Vec<Result<_>>>(outcomes)?;
    let confirmed = outcomes.iter().map(|outcome| outcome.count).sum();
    let refused: usize = outcomes.iter().map(|outcome| outcome.refused).sum();
    let last = outcomes.iter().map(|outcome| outcome.last).max().unwrap_or(began);
    Ok(vec![("confirmed inserts/s", rate(confirmed, last.duration_since(began))), ("refused", refused as f64)])
}

/// What became of the requests of one connection.
pub(super) struct InsertOutcome {
    pub(super) count: usize,
    pub(super) refused: usize,
    pub(super) last: Instant,
}

/// Inserts until then, or so many, and reads every answer.
pub(super) fn connection(
    at: SocketAddr,
    number: usize,
    until: Instant,
    most: usize,
    setting: &RunSettings,
) -> Result<InsertOutcome> {
    let mut stream = TcpStream::connect(at).context("the door of SSAP is closed")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let reading = stream.try_clone()?;
    stream.write_all(message(number, "JOIN", 1, "").as_bytes())?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(reading));
        let mut sent = 0;
        while sent < most && !is_over(until, setting) {
            let mut batch = String::new();
            for _ in 0..BATCH.min(most - sent) {
                sent += 1;
                batch.push_str(&message(number, "INSERT", sent + 1, &triple(number, sent)));
            }
            stream.write_all(batch.as_bytes())?;
        }
        stream.shutdown(Shutdown::Write)?;
        let mut confirmed = reader.join().map_err(|_| anyhow!("a reader has panicked"))??;
        // One of them is the JOIN's.
        confirmed.count = confirmed.count.saturating_sub(1);
        if confirmed.count + confirmed.refused != sent {
            bail!("{} of {sent} requests were answered", confirmed.count + confirmed.refused);
        }
        Ok(confirmed)
    })
}

fn message(number: usize, kind: &str, id: usize, parameters: &str) -> String {
    format!(
        "<SSAP_message><node_id>kp{number}</node_id><space_id>X</space_id><transaction_type>{kind}</transaction_type>\
         <message_type>REQUEST</message_type><transaction_id>{id}</transaction_id>{parameters}</SSAP_message>"
    )
}

fn triple(number: usize, count: usize) -> String {
    format!(
        "<parameter name=\"insert_graph\" encoding=\"RDF-M3\"><triple_list><triple>\
         <subject type=\"uri\">http://ex.org/{number}/{count}</subject><predicate>http://ex.org/is</predicate>\
         <object type=\"literal\">{count}</object></triple></triple_list></parameter>\
         <parameter name=\"confirm\">TRUE</parameter>"
    )
}

/// Counts answers up to the end of the connection.
fn read(mut stream: TcpStream) -> Result<InsertOutcome> {
    let (mut buffer, mut kept) = (vec![0; 64 << 10], Vec::new());
    let mut confirmed = InsertOutcome { count: 0, refused: 0, last: Instant::now() };
    loop {
        let length = stream.read(&mut buffer).context("answers stay away")?;
        if length == 0 {
            return Ok(confirmed);
        }
        kept.extend_from_slice(&buffer[..length]);
        let mut at = 0;
        while let Some(end) = find(&kept[at..], b"</SSAP_message>") {
            let is_success = find(&kept[at..at + end], b">m3:Success<").is_some();
            *(if is_success { &mut confirmed.count } else { &mut confirmed.refused }) += 1;
            at += end + b"</SSAP_message>".len();
        }
        kept.drain(..at);
        confirmed.last = Instant::now();
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|part| part == word)
}
