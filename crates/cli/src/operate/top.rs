//! `tidegate top`: a table of clients that follows what happens.
//!
//! On a terminal it is drawn in place: the cursor goes home and every line is overwritten and cleared to its end, so
//! nothing flickers and nothing is left over. Elsewhere, or with `--once`, it is printed once.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::http::Door;
use super::table::{Align, Table, number, shown};
use super::{delay, out};
use crate::arguments::TopArgs;
use crate::stop::Stop;

/// Another screen without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

pub(crate) fn top(args: &TopArgs) -> Result<u8> {
    let door = Door::new(&args.admin)?;
    let mut before = Before::default();
    if args.once || !std::io::stdout().is_terminal() {
        out(&look(&door, args, 100, &mut before)?);
        return Ok(0);
    }
    let stop = Stop::on_signals()?;
    // Before the screen is taken: an error should be seen.
    let mut text = look(&door, args, 100, &mut before)?;
    out(ENTER);
    let ended = loop {
        draw(&text);
        if !rest(args.interval, &stop) {
            break Ok(0);
        }
        match look(&door, args, rows().saturating_sub(5).max(1), &mut before) {
            Ok(next) => text = next,
            Err(error) => break Err(error),
        }
    };
    out(LEAVE);
    ended
}

/// False when somebody wants it to end.
fn rest(interval: Duration, stop: &Stop) -> bool {
    let end = Instant::now() + interval;
    while !stop.is_wanted() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

fn draw(text: &str) {
    let width = columns();
    let mut screen = String::from("\x1b[H");
    for line in text.lines().take(rows().saturating_sub(1).max(1)) {
        screen.extend(line.chars().take(width));
        screen.push_str("\x1b[K\r\n");
    }
    screen.push_str("\x1b[J");
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(screen.as_bytes());
    let _ = out.flush();
}

fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row.into(), size.ws_col.into()))
}

fn rows() -> usize {
    size().map_or(24, |(rows, _)| rows)
}

fn columns() -> usize {
    size().map_or(80, |(_, columns)| columns)
}

/// What each client had published at the last look.
#[derive(Default)]
struct Before {
    at: Option<Instant>,
    received: HashMap<String, u64>,
}

impl Before {
    /// Messages per second since then; the broker's own estimate at the first look.
    fn rate(&self, client: &Value) -> Value {
        let (Some(at), Some(before)) = (self.at, client["client_id"].as_str().and_then(|id| self.received.get(id)))
        else {
            return client["rate"].clone();
        };
        let new = client["received"].as_u64().unwrap_or(0).saturating_sub(*before);
        (new as f64 / at.elapsed().as_secs_f64().max(1e-3)).into()
    }

    fn note(&mut self, clients: &[Value]) {
        self.at = Some(Instant::now());
        let received = |client: &Value| Some((client["client_id"].as_str()?.to_owned(), client["received"].as_u64()?));
        self.received = clients.iter().filter_map(received).collect();
    }
}

/// One look, as text.
fn look(door: &Door, args: &TopArgs, rows: usize, before: &mut Before) -> Result<String> {
    let limit = args.limit.map_or(rows, usize::from).clamp(1, 1000);
    let status = door.get("/api/v1/status")?;
    let clients = door.get(&format!("/api/v1/clients?sort={}&limit={limit}", args.sort.name()))?;
    let clients = clients["clients"].as_array().map_or(&[][..], Vec::as_slice);
    let text = format!("{}\n{}", summary(&status), table(clients, before).text());
    before.note(clients);
    Ok(text)
}

fn summary(status: &Value) -> String {
    let (rates, waiting) = (&status["rates"], &status["waiting"]);
    format!(
        "tidegate {}  up {} s  {} connected, {} sessions\nin {}/s  out {}/s  lost {}/s   held {}  queued {} ({} bytes)\n",
        shown(&status["version"]).trim_matches('"'),
        shown(&status["uptime_s"]),
        shown(&status["clients"]["connected"]),
        shown(&status["clients"]["sessions"]),
        number(&rates["received"]),
        number(&rates["delivered"]),
        number(&rates["lost"]),
        shown(&waiting["held_messages"]),
        shown(&waiting["queue_messages"]),
        shown(&waiting["queue_bytes"]),
    )
}

fn table(clients: &[Value], before: &Before) -> Table {
    let mut table = Table::new(&[
        ("CLIENT", Align::Left),
        ("STATE", Align::Left),
        ("RATE/s", Align::Right),
        ("LEARNED/s", Align::Right),
        ("DELAY", Align::Right),
        ("HELD", Align::Right),
        ("QUEUE", Align::Right),
        ("DROPS", Align::Right),
        ("IN", Align::Right),
        ("OUT", Align::Right),
    ]);
    for client in clients {
        let cell = |name: &str| shown(&client[name]);
        table.row([
            cell("client_id"),
            cell("state"),
            number(&before.rate(client)),
            number(&client["learned_rate"]),
            delay(&client["delay_ms"]),
            cell("held"),
            cell("queue_messages"),
            cell("drops"),
            cell("received"),
            cell("delivered"),
        ]);
    }
    table
}
