//! The commands that ask a running broker: what is going on, why, and what to do about it.
//!
//! All of them are questions to its admin door (`http`), and all they do is put the answers into a table (`table`) or
//! print them as they are (`--json`). What the answers mean is said by the broker.

mod control;
mod kps;
mod log;
mod paint;
mod status;
mod table;
mod token;
mod top;

use anyhow::Result;
use serde_json::Value;

use crate::arguments::{ClientsArgs, KickArgs, PlainArgs, WhyArgs};
pub(crate) use control::{ban, limits};
pub(crate) use kps::kps;
pub(crate) use log::log;
pub(crate) use status::status;
use table::{Align, Column, TextTable, number, shown, span, whole};
pub(crate) use tidegate_program::out;
use tidegate_program::{AdminClient, AdminError, escaped};
pub(crate) use token::token;
pub(crate) use top::top;

/// `tidegate why`.
pub(crate) fn why(args: &WhyArgs) -> Result<u8> {
    let place = match args.whom.as_slice() {
        [client] => format!("/api/v1/clients/{}/why", escaped(client)),
        [kind, name] if kind == "bridge" => format!("/api/v1/bridges/{}", escaped(name)),
        [kind, name] if kind == "sink" => format!("/api/v1/sinks/{}", escaped(name)),
        _ => {
            let words = "expected a client identifier, or: why bridge NAME, or: why sink NAME";
            return Err(AdminError::usage(words.to_owned()).into());
        }
    };
    let answer = args.admin.client()?.get(&place)?;
    if args.json {
        return print_json(&answer);
    }
    out(&format!("{}\n", answer["text"].as_str().unwrap_or_default()));
    Ok(0)
}

/// `tidegate bridges`.
pub(crate) fn bridges(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.get("/api/v1/bridges")?;
    if args.json {
        return print_json(&answer);
    }
    let rows = answer["bridges"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        out("no bridges; [[bridge]] in the configuration makes one\n");
        return Ok(0);
    }
    out(&TextTable::of(BRIDGES, rows).text_within(terminal_columns()));
    out("more about one:  tidegate why bridge NAME\n");
    Ok(0)
}

const BRIDGES: &[Column] = &[
    ("BRIDGE", Align::Left, "name", shown),
    ("STATE", Align::Left, "state", shown),
    ("ADDRESS", Align::Left, "address", shown),
    ("FOR", Align::Right, "age_s", |value| span(value.as_u64().unwrap_or(0))),
    ("QUEUED", Align::Right, "queued", shown),
    ("SENT", Align::Right, "sent", shown),
    ("RECEIVED", Align::Right, "received", shown),
    ("REFUSED", Align::Right, "refused", shown),
    ("WINDOW", Align::Right, "window", shown),
    ("ANSWER ms", Align::Right, "latency_ms", number),
    ("TROUBLE", Align::Left, "trouble", whole),
];

/// `tidegate sinks`.
pub(crate) fn sinks(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.get("/api/v1/sinks")?;
    if args.json {
        return print_json(&answer);
    }
    let rows = answer["sinks"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        out("no sinks; [[sink]] in the configuration makes one\n");
        return Ok(0);
    }
    out(&TextTable::of(SINKS, rows).text_within(terminal_columns()));
    out("more about one:  tidegate why sink NAME\n");
    Ok(0)
}

const SINKS: &[Column] = &[
    ("SINK", Align::Left, "name", shown),
    ("TYPE", Align::Left, "type", shown),
    ("STATE", Align::Left, "state", shown),
    ("ADDRESS", Align::Left, "address", shown),
    ("FOR", Align::Right, "age_s", |value| span(value.as_u64().unwrap_or(0))),
    ("QUEUED", Align::Right, "queued", shown),
    ("SENT", Align::Right, "sent", shown),
    ("REFUSED", Align::Right, "refused", shown),
    ("FAILURES", Align::Right, "failures", shown),
    ("ANSWER ms", Align::Right, "latency_ms", number),
    ("TROUBLE", Align::Left, "trouble", whole),
];

/// `tidegate alarms`: 0 if none is raised, else 1.
pub(crate) fn alarms(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.get("/api/v1/alarms")?;
    let rows = |name: &str| answer[name].as_array().map_or(&[][..], Vec::as_slice);
    let code = u8::from(!rows("alarms").is_empty());
    if args.json {
        print_json(&answer)?;
        return Ok(code);
    }
    if code == 0 {
        out("no alarms\n");
    }
    out(&pending_text(rows("pending")));
    if !rows("alarms").is_empty() {
        let mut table = TextTable::new(&[("SINCE", Align::Left), ("KIND", Align::Left), ("WHAT", Align::Left)]);
        for alarm in rows("alarms") {
            table.row([shown(&alarm["since"]), shown(&alarm["kind"]), raised_text(alarm)]);
        }
        out(&format!("{}\n", table.text_within(terminal_columns())));
    }
    if !rows("cleared").is_empty() {
        let columns = ["FROM", "TO", "KIND", "AT ITS WORST"].map(|head| (head, Align::Left));
        let mut table = TextTable::new(&columns);
        for alarm in rows("cleared") {
            let (from, to) = (shown(&alarm["since"]), shown(&alarm["cleared_at"]));
            table.row([from, to, shown(&alarm["kind"]), whole(&alarm["worst"])]);
        }
        out(&format!("{}\n", table.text_within(terminal_columns())));
    }
    Ok(code)
}

/// What is wrong and no alarm yet: who reads the status beside it sees why.
fn pending_text(rows: &[Value]) -> String {
    let line = |alarm: &Value| {
        let [lasts, after] = ["lasts_s", "raised_after_s"].map(|name| alarm[name].as_u64().unwrap_or(0));
        let words = whole(&alarm["text"]);
        format!("  {}: {words} (seen for {lasts} s; an alarm if it lasts {after} s)\n", shown(&alarm["kind"]))
    };
    if rows.is_empty() { String::new() } else { format!("not yet:\n{}", rows.iter().map(line).collect::<String>()) }
}

/// A raised one; of one that is not seen any more it says so, and when it is over.
fn raised_text(alarm: &Value) -> String {
    let words = whole(&alarm["text"]);
    match (alarm["gone_s"].as_u64(), alarm["cleared_after_s"].as_u64()) {
        (Some(gone), Some(after)) => format!("{words} (not seen for {gone} s; over after {after} s)"),
        _ => words,
    }
}

/// The one sentence of the broker, with what to type.
fn sentence(status: &Value) -> String {
    let now = &status["now"];
    let text = paint::by_mood(now["mood"].as_str().unwrap_or_default(), &whole(&now["text"]));
    let age = status["looked_s_ago"].as_u64().filter(|age| *age > LOOK_FRESH_S);
    let age = age.map(|age| format!("  as of {} ago\n", span(age))).unwrap_or_default();
    match now["next"].as_str().filter(|next| !next.is_empty()) {
        Some(next) => format!("{text}\n{age}  next:  {}\n", tidegate_program::harmless(next)),
        None => format!("{text}\n{age}"),
    }
}

/// Seconds after which the age of a look is worth a word: the broker looks every ten seconds, unless that takes too long.
const LOOK_FRESH_S: u64 = 15;

/// `tidegate clients`.
pub(crate) fn clients(args: &ClientsArgs) -> Result<u8> {
    let door = args.admin.client()?;
    let path = match (args.closed, &args.state) {
        (true, _) => format!("/api/v1/clients?state=closed&limit={}", args.limit),
        (false, None) => format!("/api/v1/clients?sort={}&limit={}", args.sort.name(), args.limit),
        (false, Some(state)) => {
            format!("/api/v1/clients?state={state}&sort={}&limit={}", args.sort.name(), args.limit)
        }
    };
    let answer = door.get(&path)?;
    if args.json {
        return print_json(&answer);
    }
    let rows = answer["clients"].as_array().map_or(&[][..], Vec::as_slice);
    let table = TextTable::of(if args.closed { CLOSED } else { CLIENTS }, rows);
    out(&table.text());
    let total = answer["total"].as_u64().unwrap_or(0) as usize;
    if total > rows.len() {
        out(&format!("{} of {total} clients; more with --limit\n", rows.len()));
    }
    Ok(0)
}

/// What is shown of clients; `top` has room for some of it.
const CLIENTS: &[Column] = &[
    ("CLIENT", Align::Left, "client_id", shown),
    ("STATE", Align::Left, "state", shown),
    ("RATE/s", Align::Right, "rate", number),
    ("LEARNED/s", Align::Right, "learned_rate", number),
    ("LIMIT/s", Align::Right, "limit_rate", number),
    ("DELAY", Align::Right, "delay_ms", delay),
    ("HELD", Align::Right, "held", shown),
    ("QUEUE", Align::Right, "queue_messages", shown),
    ("INFLIGHT", Align::Right, "inflight", shown),
    ("REFUSED", Align::Right, "refused", shown),
    ("LOST", Align::Right, "drops", shown),
    ("IN", Align::Right, "received", shown),
    ("OUT", Align::Right, "delivered", shown),
    ("SUBS", Align::Right, "subscriptions", shown),
    ("USER", Align::Left, "user", shown),
    ("ADDRESS", Align::Left, "address", shown),
    ("MQTT", Align::Left, "protocol", shown),
    ("SINCE", Align::Left, "connected_since", shown),
];

const CLOSED: &[Column] = &[
    ("CLOSED", Align::Left, "closed_at", shown),
    ("CLIENT", Align::Left, "client_id", shown),
    ("REASON", Align::Left, "reason", shown),
    ("ADDRESS", Align::Left, "address", shown),
    ("SINCE", Align::Left, "connected_since", shown),
    ("IN", Align::Right, "received", shown),
    ("OUT", Align::Right, "delivered", shown),
    ("REFUSED", Align::Right, "refused", shown),
    ("LOST", Align::Right, "drops", shown),
];

fn delay(value: &Value) -> String {
    match value.as_u64().unwrap_or(0) {
        0 => "-".to_owned(),
        millis if millis < 10_000 => format!("{millis}ms"),
        millis => format!("{}s", millis / 1000),
    }
}

/// `tidegate drops`.
pub(crate) fn drops(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.get("/api/v1/drops")?;
    if args.json {
        return print_json(&answer);
    }
    let (incoming, outgoing) = (&answer["ledger"]["in"], &answer["ledger"]["out"]);
    let repeated = match incoming["lost"][REPEATED].as_u64() {
        Some(count) => format!(" + {count} repeated"),
        None => String::new(),
    };
    let reasons = answer["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    let is_refusal = |reason: &&Value| reason["word"] == "refused";
    let refused: u64 = reasons.iter().filter(is_refusal).filter_map(|reason| reason["messages"].as_u64()).sum();
    out(&format!(
        "in:  {} received = {} passed + {} held{repeated} + {refused} refused + {} lost\n\
         out: {} deliveries = {} delivered + {} queued + {} under way + {} lost\n",
        shown(&incoming["received"]),
        shown(&incoming["passed"]),
        shown(&incoming["held"]),
        lost_of(incoming).saturating_sub(refused),
        shown(&outgoing["deliveries"]),
        shown(&outgoing["delivered"]),
        shown(&outgoing["queued"]),
        shown(&outgoing["inflight"]),
        lost_of(outgoing),
    ));
    out("refused: its sender was told, where the protocol has a word for it; lost: nobody was told\n");
    let lost: Vec<&Value> = reasons.iter().filter(|reason| reason["messages"].as_u64().unwrap_or(0) > 0).collect();
    if lost.is_empty() {
        out("nothing was lost or refused\n");
        return Ok(0);
    }
    let mut table = TextTable::new(&[
        ("MESSAGES", Align::Right),
        ("NOW/s", Align::Right),
        ("WORD", Align::Left),
        ("REASON", Align::Left),
        ("MEANING", Align::Left),
    ]);
    for reason in lost {
        let [messages, word, name] = ["messages", "word", "reason"].map(|name| shown(&reason[name]));
        table.row([messages, number(&reason["rate"]), word, name, whole(&reason["meaning"])]);
    }
    out(&format!("\n{}", table.text_within(terminal_columns())));
    let rows = |name: &str| answer[name].as_array().map_or(&[][..], Vec::as_slice);
    let clients: Vec<&Value> = rows("clients").iter().chain(rows("closed")).collect();
    if !clients.is_empty() {
        let mut table = TextTable::new(&[
            ("CLIENT", Align::Left),
            ("STATE", Align::Left),
            ("REFUSED", Align::Right),
            ("LOST OF ITS OWN", Align::Right),
            ("LOST FOR IT", Align::Right),
        ]);
        for client in clients {
            table.row(["client_id", "state", "refused", "lost_in", "lost_out"].map(|name| shown(&client[name])));
        }
        out(&format!("\n{}", table.text()));
        out("more about one:  tidegate why CLIENT\n");
    }
    Ok(0)
}

/// The name of what is not lost at all.
const REPEATED: &str = "publish_repeated";

/// All losses of one side.
fn lost_of(side: &Value) -> u64 {
    let losses = side["lost"].as_object().into_iter().flatten();
    losses.filter(|(name, _)| *name != REPEATED).filter_map(|(_, count)| count.as_u64()).sum()
}

/// How wide the terminal is; none if the output goes elsewhere.
fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// `tidegate kick`.
pub(crate) fn kick(args: &KickArgs) -> Result<u8> {
    let session = if args.session { "/session" } else { "" };
    let place = format!("/api/v1/clients/{}{session}", escaped(&args.client));
    let answer = args.admin.client()?.request("DELETE", &place, None)?;
    if args.json {
        return print_json(&answer);
    }
    if args.session {
        let lost = match answer["lost"].as_u64() {
            Some(1) => "1 message that waited for it is lost".to_owned(),
            lost => format!("{} messages that waited for it are lost", lost.unwrap_or(0)),
        };
        out(&format!("the session of {:?} has ended; {lost}\n", args.client));
        return Ok(0);
    }
    let mqtt = (answer["mqtt"] != false).then(|| format!("{:?} was disconnected (0x98)", args.client));
    let at_the_space = control::kp_connections(&answer).map(|ended| match mqtt {
        Some(_) => ended,
        None => format!("{:?}: {ended}", args.client),
    });
    let ended: Vec<String> = mqtt.into_iter().chain(at_the_space).collect();
    out(&format!("{}; nothing keeps it from coming back\n", ended.join("; ")));
    Ok(0)
}

/// `tidegate health`: 0 if the broker is alive and takes clients.
pub(crate) fn health(args: &PlainArgs) -> Result<u8> {
    let door = args.admin.client()?;
    door.get("/healthz")?;
    let ready = door.get("/readyz")?;
    if args.json {
        return print_json(&ready);
    }
    out(&format!("healthy and ready{}\n", store_words(&ready["store"])));
    Ok(0)
}

/// How the disk does: behind a comma, or nothing without a store.
fn store_words(store: &Value) -> String {
    let number = |name: &str| store[name].as_f64().unwrap_or(0.0);
    if store.is_null() {
        return String::new();
    }
    let stalls = if number("busy_ms") >= 1000.0 { "; the disk STALLS" } else { "" };
    format!(
        ", syncs last/p99/max {:.1}/{:.1}/{:.1} ms, {} batches wait for the disk{stalls}",
        number("sync_last_ms"),
        number("sync_p99_ms"),
        number("sync_max_ms"),
        number("queue_batches")
    )
}

/// `tidegate reload`.
pub(crate) fn reload(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.request("POST", "/api/v1/reload", None)?;
    if args.json {
        return print_json(&answer);
    }
    let names = |name: &str| -> Vec<String> { answer[name].as_array().into_iter().flatten().map(shown).collect() };
    let (changed, restart) = (names("changed"), names("needs_restart"));
    let what = if changed.is_empty() { "no setting changed".to_owned() } else { changed.join(", ") };
    out(&format!("configuration, users and certificates read again: {what}\n"));
    if !restart.is_empty() {
        out(&format!("after a restart: {}\n", restart.join(", ")));
    }
    Ok(0)
}

/// `tidegate drain`.
pub(crate) fn drain(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.request("POST", "/api/v1/drain", None)?;
    if args.json {
        return print_json(&answer);
    }
    out("draining: no new clients, everybody is told, then the broker ends\n");
    Ok(0)
}

fn print_json(value: &Value) -> Result<u8> {
    out(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(0)
}

/// What `why` says about a client of a door in this process.
pub(crate) fn why_text(door: &AdminClient, client_id: &str) -> Result<String, AdminError> {
    let answer = door.get(&format!("/api/v1/clients/{}/why", escaped(client_id)))?;
    Ok(answer["text"].as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_about_to_be_raised_or_cleared_is_said_with_its_window() {
        let pending = json!([{"kind": "losing", "text": "\"wall-7\" loses 5004/s", "lasts_s": 2, "raised_after_s": 5}]);
        let text = pending_text(pending.as_array().unwrap());
        assert_eq!(text, "not yet:\n  losing: \"wall-7\" loses 5004/s (seen for 2 s; an alarm if it lasts 5 s)\n");
        assert_eq!(pending_text(&[]), "");
        let fading = json!({"text": "\"wall-7\" loses 1537/s", "gone_s": 12, "cleared_after_s": 15});
        assert_eq!(raised_text(&fading), "\"wall-7\" loses 1537/s (not seen for 12 s; over after 15 s)");
        assert_eq!(raised_text(&json!({"text": "x"})), "x");
    }
}
