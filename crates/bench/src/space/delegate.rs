//! A broker with more to tell than its door can write: subscribers who accept to check by themselves, and a client that asks
//! something small over HTTP, once with delegation and once without. What counts is how long the client waits.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use oxrdf::{GraphName, Literal, NamedNode, Quad};
use serde_json::{Value, json};
use tidegate_graph::Mask;
use tidegate_space::{DelegationConfig, Refused, RequestOrigin, ServiceOptions, SpaceHandle, SpaceRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Named;
use super::host::{SpaceHost, rate};
use super::socket::SubscriberSocket;
use crate::measure::RunSettings;

/// How much there is to tell.
#[derive(Clone, Copy, Debug)]
struct PushLoad {
    sockets: usize,
    per_socket: usize,
    /// For how long it is seen what the broker makes of it, before anything is measured.
    settling: Duration,
}

/// Much, and within what a processor can write.
const BRISK: PushLoad = PushLoad { sockets: 40, per_socket: 10, settling: Duration::from_secs(4) };
/// Several times what can be written: a turn over all sockets takes longer than anybody should wait. At most 256
/// subscriptions are handed over in a second, so this takes its time.
const OVERLOAD: PushLoad = PushLoad { sockets: 800, per_socket: 2, settling: Duration::from_secs(12) };
/// Changes in a second, each told to all of them, and the bytes of each.
const CHANGES: f64 = 200.0;
const VALUE_BYTES: usize = 2000;
/// Between two questions of the client that is measured.
const PACE: Duration = Duration::from_millis(5);
const QUERY: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

pub(super) async fn run(is_overload: bool, setting: &RunSettings) -> Result<Named> {
    let load = if is_overload { OVERLOAD } else { BRISK };
    let load = PushLoad { sockets: setting.scaled(load.sockets), ..load };
    let off = round(0.0, load, setting).await?;
    let on = round(1.0, load, setting).await?;
    Ok(vec![
        ("ms p50 without", off.at(50)),
        ("ms p99 without", off.at(99)),
        ("ms p50 with", on.at(50)),
        ("ms p99 with", on.at(99)),
        ("times as long", on.at(99) / off.at(99)),
        ("messages/s without", off.messages),
        ("messages/s with", on.messages),
        ("% fewer messages", 100.0 * (1.0 - on.messages / off.messages.max(1e-9))),
        ("changes/s without", off.changes),
        ("changes/s with", on.changes),
        ("refused without", off.refused as f64),
        ("refused with", on.refused as f64),
        ("delegated", on.delegated as f64),
        ("of", (load.sockets * load.per_socket) as f64),
    ])
}

struct Round {
    waits: Vec<Duration>,
    messages: f64,
    /// Changes that were made in a second.
    changes: f64,
    /// Questions and changes that were sent away.
    refused: usize,
    delegated: usize,
}

impl Round {
    fn at(&self, part: usize) -> f64 {
        let place = self.waits.len().saturating_sub(1) * part / 100;
        self.waits.get(place).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3)
    }
}

/// Seen by all threads of a round.
#[derive(Default)]
struct RoundState {
    is_over: AtomicBool,
    messages: AtomicUsize,
    changes: AtomicUsize,
    refused: AtomicUsize,
}

async fn round(share_max: f64, load: PushLoad, setting: &RunSettings) -> Result<Round> {
    let delegation = DelegationConfig { share_max, ..DelegationConfig::default() };
    let host = SpaceHost::start_by(&ServiceOptions { delegation, ..ServiceOptions::default() })?;
    let (handle, at, state) = (host.handle(), host.http()?, Arc::new(RoundState::default()));
    change(&handle, 0, &state).await?;
    let threads = [
        beside(&state, move |state| listen_all(at, load, state)),
        beside(&state, move |state| change_all(handle, state)),
    ];
    let outcome = measure(at, load.settling, setting, &state).await;
    let delegated = host.handle().watch().delegated().delegated;
    state.is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a thread of the case has panicked"))??;
    }
    let Counted { mut waits, messages, changes } = outcome?;
    waits.sort_unstable();
    let refused = state.refused.load(Ordering::Relaxed);
    Ok(Round { waits, messages, changes, refused, delegated })
}

/// A thread with a runtime of its own: whoever looks at the clock is in nobody's way.
fn beside<F: Future<Output = Result<()>>>(
    state: &Arc<RoundState>,
    work: impl FnOnce(Arc<RoundState>) -> F + Send + 'static,
) -> JoinHandle<Result<()>> {
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work(state))
    })
}

/// How long each question took, and what happened meanwhile in a second.
struct Counted {
    waits: Vec<Duration>,
    messages: f64,
    changes: f64,
}

/// Asks one thing after the other.
async fn measure(at: SocketAddr, settling: Duration, setting: &RunSettings, state: &RoundState) -> Result<Counted> {
    let mut asker = Asker { stream: TcpStream::connect(at).await?, buffer: Vec::new() };
    asker.stream.set_nodelay(true)?;
    let (began, mut number, mut waits) = (Instant::now(), 0, Vec::new());
    let numbers = || [&state.messages, &state.changes].map(|number| number.load(Ordering::Relaxed));
    let mut counted = None;
    while began.elapsed() < settling + setting.time && !setting.stop.is_wanted() {
        number += 1;
        let asked = Instant::now();
        let text = format!("ASK {{ <urn:lamp> <urn:size> ?o FILTER(?o != {number}) }}");
        let is_answered = asker.ask(at, &text).await?;
        state.refused.fetch_add(usize::from(!is_answered), Ordering::Relaxed);
        if began.elapsed() >= settling {
            counted.get_or_insert_with(|| (Instant::now(), numbers()));
            waits.push(asked.elapsed());
        }
        tokio::time::sleep(PACE).await;
    }
    let (since, before) = counted.context("nothing was measured")?;
    let (now, time) = (numbers(), since.elapsed());
    let [messages, changes] = [0, 1].map(|which| rate(now[which] - before[which], time));
    Ok(Counted { waits, messages, changes })
}

/// A client of `/query` with one connection.
struct Asker {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Asker {
    /// Whether it was answered; else it was sent away.
    async fn ask(&mut self, at: SocketAddr, text: &str) -> Result<bool> {
        let head = format!(
            "POST /query HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/sparql-query\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        self.stream.write_all(format!("{head}{text}").as_bytes()).await?;
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
                let length: usize = length.with_context(|| format!("no length: {head}"))?;
                let is_answered = head.starts_with("http/1.1 200");
                if !is_answered && !head.starts_with("http/1.1 503") {
                    bail!("refused: {head}");
                }
                if self.buffer.len() >= end + 4 + length {
                    self.buffer.drain(..end + 4 + length);
                    return Ok(is_answered);
                }
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the broker has closed the connection");
            }
        }
    }
}

/// Changes the lamp at a pace.
async fn change_all(handle: SpaceHandle, state: Arc<RoundState>) -> Result<()> {
    let (began, mut number) = (Instant::now(), 0_u32);
    while !state.is_over.load(Ordering::Relaxed) {
        number += 1;
        change(&handle, number, &state).await?;
        let due = began + Duration::from_secs_f64(f64::from(number) / CHANGES);
        tokio::time::sleep_until(due.into()).await;
    }
    Ok(())
}

async fn change(handle: &SpaceHandle, number: u32, state: &RoundState) -> Result<()> {
    let node = |text: &str| NamedNode::new_unchecked(text);
    let value = Literal::from(format!("{number}{}", "x".repeat(VALUE_BYTES)));
    let insert = vec![Quad::new(node("urn:lamp"), node("urn:state"), value, GraphName::DefaultGraph)];
    let subject = Some(node("urn:lamp").into());
    let lamp = Mask { subject, predicate: Some(node("urn:state")), ..Mask::default() };
    let ask = SpaceRequest::Edit { remove: vec![lamp], insert };
    match handle.ask(ask, RequestOrigin::new(0, None)).await {
        Ok(_) => drop(state.changes.fetch_add(1, Ordering::Relaxed)),
        Err(Refused::Busy(_)) => drop(state.refused.fetch_add(1, Ordering::Relaxed)),
        Err(refused) => bail!("a change was refused: {refused:?}"),
    }
    Ok(())
}

/// Subscribers on their sockets, until it is over.
async fn listen_all(at: SocketAddr, load: PushLoad, state: Arc<RoundState>) -> Result<()> {
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..load.sockets {
        let mut socket = SubscriberSocket::connect(at).await?;
        let ask = json!({"subscribe": {"sparql": QUERY, "alias": "a", "pace-delegate": "accept"}}).to_string();
        for _ in 0..load.per_socket {
            socket.tell(ask.as_bytes()).await?;
        }
        let state = Arc::clone(&state);
        all.spawn(listen(socket, state));
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

/// A subscription that is checked from here.
struct CheckedSubscription {
    due: Instant,
    every: Duration,
    sequence: u64,
}

async fn listen(mut socket: SubscriberSocket, state: Arc<RoundState>) -> Result<()> {
    let mut checked: HashMap<String, CheckedSubscription> = HashMap::new();
    while !state.is_over.load(Ordering::Relaxed) {
        if let Ok(message) = timeout(LOOK, socket.next()).await {
            state.messages.fetch_add(1, Ordering::Relaxed);
            let message = message?;
            if message.windows(DELEGATE.len()).any(|part| part == DELEGATE) {
                heed(&mut checked, &serde_json::from_slice::<Value>(&message)?["notification"]);
            }
        }
        let now = Instant::now();
        for (spuid, subscription) in checked.iter_mut().filter(|(_, it)| it.due <= now) {
            subscription.due = now + subscription.every;
            let ask = json!({"subscribe": {"sparql": QUERY, "spuid": spuid, "sequence": subscription.sequence,
                                           "pace-delegate": "accept"}});
            socket.tell(ask.to_string().as_bytes()).await?;
        }
    }
    Ok(())
}

/// The broker has said who brings the changes.
fn heed(checked: &mut HashMap<String, CheckedSubscription>, told: &Value) {
    let Some(spuid) = told["spuid"].as_str() else { return };
    if told["pace-delegate"] != "check" {
        checked.remove(spuid);
        return;
    }
    let every = told["pace-interval-ms"].as_str().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let (every, now) = (Duration::from_millis(every), Instant::now());
    let due = now + every.mul_f64(phase(spuid));
    let known = checked.entry(spuid.to_owned()).or_insert(CheckedSubscription { due, every, sequence: 0 });
    known.every = every;
    known.sequence = told["sequence"].as_u64().unwrap_or(known.sequence);
}

/// The part of an interval after which a subscription is first checked, as the client library draws one: those who are handed
/// over together do not check together.
fn phase(spuid: &str) -> f64 {
    let sum = spuid.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    f64::from(sum % 1000) / 1000.0
}

const DELEGATE: &[u8] = b"\"pace-delegate\"";
/// How often it is looked which checks are due.
const LOOK: Duration = Duration::from_millis(50);
