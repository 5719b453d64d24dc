//! `tidegate top`: a table of clients that follows what happens.
//!
//! On a terminal it is drawn in place: the cursor goes home and every line is overwritten and cleared to its end, so
//! nothing flickers and nothing is left over; single keys sort, pause and end it (`TopView`). Elsewhere, or with `--once`,
//! it is printed once.

use std::io::{IsTerminal, Write, stdin};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use tidegate_core::RATE_WINDOW;

use super::table::{Column, TextTable, counted, number, shown, span};
use super::{CLIENTS, kps, out, print_json, sentence};
use crate::arguments::{Sort, TopArgs};
use tidegate_program::AdminClient;
use tidegate_program::Stop;

/// Another screen without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Characters of one change of colour, at most.
const COLOUR_CHARS: usize = 7;

pub(crate) fn top(args: &TopArgs) -> Result<u8> {
    let door = args.admin.client()?;
    if args.json {
        let TopAnswers { status, clients, kps } = ask(&door, args, 100)?;
        return print_json(&json!({
            "status": status, "clients": clients["clients"], "total": clients["total"], "kps": kps["kps"],
        }));
    }
    if args.once || !std::io::stdout().is_terminal() {
        out(&look(&door, args, 100)?);
        return Ok(0);
    }
    let stop = Stop::on_signals()?;
    let mut view = TopView { sort: args.sort, ..TopView::default() };
    // Before the screen is taken: an error should be seen.
    let mut text = look(&door, args, 100)?;
    let screen = Screen::take();
    loop {
        draw(&format!("{}\n{text}", view.words()));
        match rest(args.interval, &stop) {
            Rested::End => {
                drop(screen);
                return Ok(0);
            }
            Rested::Key(key) if view.press(key) == TopKey::End => {
                drop(screen);
                return Ok(0);
            }
            // What is known is drawn again with other words above it, or in another order.
            Rested::Key(_) | Rested::Time => {}
        }
        if !view.is_paused {
            let args = TopArgs { sort: view.sort, ..args.clone() };
            text = look(&door, &args, rows().saturating_sub(9).max(1))?;
        }
    }
}

/// What the keys have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TopView {
    sort: Sort,
    is_paused: bool,
    shows_help: bool,
}

impl Default for TopView {
    fn default() -> Self {
        Self { sort: Sort::Trouble, is_paused: false, shows_help: false }
    }
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopKey {
    End,
    Changed,
    Nothing,
}

/// The keys that sort, each by the first letter of what stands above its column, or the next that is free.
const SORTS: [(u8, Sort); 8] = [
    (b't', Sort::Trouble),
    (b'r', Sort::Rate),
    (b'd', Sort::Delay),
    (b'u', Sort::Queue),
    (b'l', Sort::Drops),
    (b'e', Sort::Refused),
    (b'i', Sort::Received),
    (b'n', Sort::Id),
];

impl TopView {
    fn press(&mut self, key: u8) -> TopKey {
        let key = key.to_ascii_lowercase();
        match key {
            b'q' => return TopKey::End,
            b'p' | b' ' => self.is_paused = !self.is_paused,
            b'h' | b'?' => self.shows_help = !self.shows_help,
            b's' => {
                let place = SORTS.iter().position(|(_, sort)| *sort == self.sort).map_or(0, |place| place + 1);
                self.sort = SORTS[place % SORTS.len()].1;
            }
            key => match SORTS.iter().find(|(letter, _)| *letter == key) {
                Some((_, sort)) => self.sort = *sort,
                None => return TopKey::Nothing,
            },
        }
        TopKey::Changed
    }

    /// The line above all others.
    fn words(self) -> String {
        if self.shows_help {
            return "sort by: t trouble  r rate  d delay  u queue  l lost  e refused  i in  n name   p pause  q quit  h back"
                .to_owned();
        }
        let paused = if self.is_paused { "   PAUSED, p goes on" } else { "" };
        format!("by {}   s next order, p pause, h all keys, q quit{paused}", self.sort.name())
    }
}

/// The terminal while it is ours: given back as it was, however that ends.
struct Screen {
    /// How the keyboard was; none if there is none.
    keyboard: Option<Termios>,
}

impl Screen {
    fn take() -> Self {
        out(ENTER);
        // Single keys are wanted, and not shown. Ctrl-C still is a signal.
        let keyboard = tcgetattr(stdin()).ok();
        if let Some(mut ours) = keyboard.clone() {
            ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &ours);
        }
        Self { keyboard }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.keyboard {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
        out(LEAVE);
    }
}

/// How a rest has ended.
enum Rested {
    Time,
    Key(u8),
    /// A signal.
    End,
}

/// Until the time is over, a key is pressed or a signal comes.
fn rest(interval: Duration, stop: &Stop) -> Rested {
    let end = Instant::now() + interval;
    while !stop.is_wanted() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Rested::Time;
        }
        if let Some(key) = pressed(left.min(Duration::from_millis(50))) {
            return Rested::Key(key);
        }
    }
    Rested::End
}

/// Waits so long for a key.
fn pressed(time: Duration) -> Option<u8> {
    let input = stdin();
    let mut ready = [PollFd::new(&input, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: time.as_nanos().min(999_999_999) as _ };
    let is_ready = input.is_terminal() && matches!(poll(&mut ready, Some(&timeout)), Ok(1));
    let mut key = [0; 1];
    if is_ready && matches!(rustix::io::read(&input, &mut key), Ok(1)) {
        return Some(key[0]);
    }
    if !is_ready && !input.is_terminal() {
        std::thread::sleep(time);
    }
    None
}

fn draw(text: &str) {
    let width = columns();
    let mut screen = String::from("\x1b[H");
    for line in text.lines().take(rows().saturating_sub(1).max(1)) {
        // Colours take no room, and end with the line.
        let colours = line.matches('\x1b').count() * COLOUR_CHARS;
        screen.extend(line.chars().take(width + colours));
        screen.push_str("\x1b[0m\x1b[K\r\n");
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

/// What one look is made of.
struct TopAnswers {
    status: Value,
    clients: Value,
    kps: Value,
}

fn ask(door: &AdminClient, args: &TopArgs, rows: usize) -> Result<TopAnswers> {
    let limit = args.limit.map_or(rows, usize::from).clamp(1, 1000);
    let status = door.get("/api/v1/status")?;
    let clients = door.get(&format!("/api/v1/clients?sort={}&limit={limit}", args.sort.name()))?;
    let kps = door.get("/api/v1/kps")?;
    Ok(TopAnswers { status, clients, kps })
}

/// One look, as text.
fn look(door: &AdminClient, args: &TopArgs, rows: usize) -> Result<String> {
    let TopAnswers { status, clients, kps } = ask(door, args, rows)?;
    let mut clients = clients["clients"].as_array().cloned().unwrap_or_default();
    name_flooders(&mut clients, &status["now"]["troubles"]);
    Ok(format!("{}{}\n{}{}", sentence(&status), summary(&status), table(&clients).text(), kps::in_top(&kps)))
}

/// Who floods and is not slowed, because there is room, is "ok" to the gate; whoever looks for it should find it.
fn name_flooders(clients: &mut [Value], troubles: &Value) {
    let named = |id: &Value| {
        let of_it = troubles.as_array().into_iter().flatten().filter(|trouble| trouble["client"] == *id);
        of_it.map(|trouble| &trouble["kind"]).find(|kind| *kind == "floods" || *kind == "unusual")
    };
    for client in clients.iter_mut().filter(|client| client["state"] == "ok") {
        if let Some(kind) = named(&client["client_id"]) {
            client["state"] = kind.clone();
        }
    }
}

fn summary(status: &Value) -> String {
    let (rates, waiting) = (&status["rates"], &status["waiting"]);
    format!(
        "tidegate {}  up {}  {} connected, {}\n\
         in {}/s  out {}/s  refused {}/s  lost {}/s   held {}  queued {} ({} bytes)\n\
         RATE is over the last {} s, LEARNED what is usual, LIMIT what an operator has set\n",
        shown(&status["version"]).trim_matches('"'),
        span(status["uptime_s"].as_u64().unwrap_or(0)),
        shown(&status["clients"]["connected"]),
        counted(status["clients"]["sessions"].as_u64().unwrap_or(0), "session"),
        number(&rates["received"]),
        number(&rates["delivered"]),
        number(&rates["refused"]),
        number(&rates["lost"]),
        shown(&waiting["held_messages"]),
        shown(&waiting["queue_messages"]),
        shown(&waiting["queue_bytes"]),
        RATE_WINDOW.as_secs(),
    )
}

fn table(clients: &[Value]) -> TextTable {
    const LEFT_OUT: [&str; 6] = ["INFLIGHT", "SUBS", "USER", "ADDRESS", "MQTT", "SINCE"];
    let columns: Vec<Column> = CLIENTS.iter().filter(|(head, ..)| !LEFT_OUT.contains(head)).copied().collect();
    TextTable::of(&columns, clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flooder_that_is_not_slowed_is_called_one() {
        let mut clients = [
            json!({ "client_id": "a", "state": "ok" }),
            json!({ "client_id": "b", "state": "ok" }),
            json!({ "client_id": "c", "state": "paused" }),
        ];
        let trouble = |client: &str, kind: &str| json!({ "client": client, "kind": kind });
        name_flooders(&mut clients, &json!([trouble("a", "floods"), trouble("b", "loses"), trouble("c", "floods")]));
        assert_eq!(clients.map(|client| client["state"].clone()), ["floods", "ok", "paused"]);
    }

    #[test]
    fn keys_sort_pause_help_and_end() {
        let mut view = TopView::default();
        assert_eq!((view.press(b'r'), view.sort), (TopKey::Changed, Sort::Rate));
        assert_eq!((view.press(b'S'), view.sort), (TopKey::Changed, Sort::Delay), "the next order");
        assert_eq!((view.press(b' '), view.is_paused), (TopKey::Changed, true));
        assert!(view.words().contains("by delay") && view.words().contains("PAUSED"), "{}", view.words());
        assert_eq!((view.press(b'p'), view.is_paused), (TopKey::Changed, false));
        view.press(b'?');
        assert!(SORTS.iter().all(|(letter, _)| view.words().contains(&format!("{} ", char::from(*letter)))));
        assert_eq!((view.press(b'x'), view.press(b'Q')), (TopKey::Nothing, TopKey::End));
        for _ in 0..SORTS.len() {
            view.press(b's');
        }
        assert_eq!(view.sort, Sort::Delay, "all orders, and round again");
    }
}
