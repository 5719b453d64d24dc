//! `tidegate bench sink`: how fast a webhook takes what waited for it. A receiver of this program refuses (503) while the backlog is
//! published at QoS 1; then it takes, and the time is measured until it has every message. A receiver that does nothing but count is
//! the fastest there is: the figure is the sink's own.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;

use crate::arguments::BenchArgs;
use crate::bridge::line;
use crate::goals::rate_line;
use crate::process::start_with_sink;

/// Messages that wait, at scale 1.
const BACKLOG: f64 = 200_000.0;
/// How long a drain may take.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// Messages a second that are the goal.
const GOAL: f64 = 20_000.0;

/// Who takes them.
#[derive(Debug, Default)]
struct CountingReceiver {
    takes: AtomicBool,
    requests: AtomicU64,
    copies: AtomicU64,
    numbers: Mutex<BTreeSet<u64>>,
}

impl CountingReceiver {
    fn start() -> Result<(u16, Arc<Self>)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (port, receiver) = (listener.local_addr()?.port(), Arc::new(Self::default()));
        let own = Arc::clone(&receiver);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                // One connection is one sink; a broken one is made again by it.
                std::thread::spawn(move || drop(own.serve(stream)));
            }
        });
        Ok((port, receiver))
    }

    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::with_capacity(256 << 10, stream.try_clone()?);
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse()?;
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let status = if self.takes.load(Ordering::Relaxed) {
                self.take(&body)?;
                "204 No Content"
            } else {
                "503 Service Unavailable"
            };
            stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        }
    }

    fn take(&self, body: &[u8]) -> Result<()> {
        let body: Value = serde_json::from_slice(body)?;
        let messages = body["messages"].as_array().context("messages")?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.copies.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let number = |message: &Value| message["payload"].as_str().and_then(|text| text.parse::<u64>().ok());
        self.numbers().extend(messages.iter().filter_map(number));
        Ok(())
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures and reports.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let backlog = (BACKLOG * args.scale).max(100.0) as u64;
    let (port, receiver) = CountingReceiver::start()?;
    let broker = start_with_sink(port)?;
    line::publish(broker.address, "drain/backlog", backlog)?;
    receiver.takes.store(true, Ordering::Relaxed);
    // From the first batch that is taken: before that it is its own pause that is waited for.
    let waited = Instant::now();
    while receiver.numbers().is_empty() {
        if waited.elapsed() > DRAIN_MAX || stop.is_wanted() {
            bail!("nothing is taken");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    while (receiver.numbers().len() as u64) < backlog {
        if begun.elapsed() > DRAIN_MAX || stop.is_wanted() {
            bail!("{} of {backlog} messages arrived", receiver.numbers().len());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (requests, copies) = (receiver.requests.load(Ordering::Relaxed), receiver.copies.load(Ordering::Relaxed));
    let rate = backlog as f64 / seconds.max(1e-9);
    let text = format!(
        "webhook: {backlog} messages in {seconds:.2} s: {rate:.0}/s in {requests} requests ({} each); {} came twice\n{}\n",
        copies / requests.max(1),
        copies - backlog,
        rate_line("webhook", rate, GOAL),
    );
    let row = json!({ "messages": backlog, "seconds": seconds, "per_s": rate, "requests": requests, "twice": copies - backlog });
    let json = format!("{}\n", json!({ "sink": [row] }));
    let mut out = std::io::stdout().lock();
    match &args.json {
        Some(path) if path.as_path() == Path::new("-") => out.write_all(json.as_bytes())?,
        Some(path) => {
            out.write_all(text.as_bytes())?;
            std::fs::write(path, json).with_context(|| format!("--json {}", path.display()))?;
        }
        None => out.write_all(text.as_bytes())?,
    }
    Ok(0)
}
