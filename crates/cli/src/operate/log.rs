//! `tidegate log`: what one client does, or what becomes of the messages of a topic, as it happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_program::Stop;

use super::table::{shown, whole};
use super::{out, paint};
use crate::arguments::LogArgs;

/// Time between two looks: a shard has room for 4096 lines of one log.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn log(args: &LogArgs) -> Result<u8> {
    let door = args.admin.client()?;
    let client = args.client.as_ref().or(args.literal.as_ref());
    let begun = door.request("POST", "/api/v1/log", Some(&json!({ "client": client, "topic": args.topic })))?;
    let place = format!("/api/v1/log?log={}", begun["log"].as_str().unwrap_or_default());
    let stop = Stop::on_signals()?;
    let whom = [client.map(|it| format!("client {it:?}")), args.topic.as_ref().map(|it| format!("topic {it:?}"))];
    let whom: Vec<String> = whom.into_iter().flatten().collect();
    eprintln!("following {}; Ctrl-C ends it", whom.join(" and "));
    let (start, mut left) = (Instant::now(), args.lines.unwrap_or(u64::MAX));
    let is_over = |left: u64| left == 0 || stop.is_wanted() || args.time.is_some_and(|time| start.elapsed() >= time);
    while !is_over(left) {
        std::thread::sleep(LOOK);
        let answer = door.get(&place)?;
        for line in answer["lines"].as_array().into_iter().flatten().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            left -= 1;
            out(&if args.json { format!("{line}\n") } else { text(line) });
        }
        match answer["missed"].as_u64() {
            None | Some(0) => {}
            // The form of what is read by a program stays the same.
            Some(missed) if args.json => out(&format!("{}\n", json!({ "what": "missed", "lines": missed }))),
            Some(missed) => out(&format!("  {missed} lines more than there is room for\n")),
        }
    }
    Ok(0)
}

/// Time of the day, client and words: the day is known to whoever follows.
fn text(line: &Value) -> String {
    let at = line["at"].as_str().and_then(|at| at.split_once('T')).map_or("", |(_, time)| time.trim_end_matches('Z'));
    let words = paint::by_mood(mood(line), &whole(&line["text"]));
    format!("{at} {} {words}\n", shown(&line["client"]))
}

fn mood(line: &Value) -> &'static str {
    match (line["what"].as_str(), line["outcome"].as_str()) {
        (Some("lost" | "refused" | "denied" | "banned"), _) | (_, Some("refused" | "lost")) => "trouble",
        (Some("queued" | "slowed" | "disconnected"), _) | (_, Some("held" | "unread")) => "notice",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_the_client_and_nothing_that_moves_a_cursor() {
        let line = json!({
            "at": "2026-11-18T00:38:12.042Z", "client": "a\u{1b}[1", "what": "published", "outcome": "refused", "text": "published x\u{7}",
        });
        assert_eq!(text(&line), "00:38:12.042 a\\u{1b}[1 published x\\u{7}\n");
        assert_eq!((mood(&line), mood(&json!({ "what": "sent" }))), ("trouble", ""));
    }
}
