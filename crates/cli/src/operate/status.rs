//! `tidegate status`: how the broker is, on one screen.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use super::table::{Align, TextTable, counted, number, shown, span, whole};
use super::{out, print_json, sentence};
use crate::arguments::PlainArgs;

/// `tidegate status`.
pub(crate) fn status(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.get("/api/v1/status")?;
    if args.json {
        return print_json(&answer);
    }
    out(&text(&answer));
    Ok(0)
}

fn text(answer: &Value) -> String {
    let (clients, rates, waiting, pressure) =
        (&answer["clients"], &answer["rates"], &answer["waiting"], &answer["pressure"]);
    let cause = pressure["cause"].as_str().map(|cause| format!(", because of {cause}")).unwrap_or_default();
    let mib = |value: &Value| value.as_u64().unwrap_or(0) >> 20;
    let mut text = format!(
        "{}tidegate {}, up {}, {}\n\
         level    {} ({}){cause}; memory {} of {} MiB\n\
         clients  {} connected, {}, {}\n\
         trouble  {} held back, {} losing, {} slow to read, {} banned\n\
         rates    {}/s received, {}/s passed, {}/s delivered, {}/s refused, {}/s lost\n\
         waiting  {} held, {} queued, {} unacknowledged, {} retained\n\n",
        sentence(answer),
        shown(&answer["version"]),
        span(answer["uptime_s"].as_u64().unwrap_or(0)),
        counted(answer["shards"].as_u64().unwrap_or(0), "shard"),
        shown(&pressure["level"]),
        shown(&pressure["name"]),
        mib(&pressure["memory_used_bytes"]),
        mib(&pressure["memory_max_bytes"]),
        shown(&clients["connected"]),
        counted(clients["sessions"].as_u64().unwrap_or(0), "session"),
        counted(clients["subscriptions"].as_u64().unwrap_or(0), "subscription"),
        counted(answer["publishers_throttled"].as_u64().unwrap_or(0), "publisher"),
        counted(answer["clients_losing"].as_u64().unwrap_or(0), "receiver"),
        shown(&answer["clients_slow"]),
        shown(&answer["bans"]),
        number(&rates["received"]),
        number(&rates["passed"]),
        number(&rates["delivered"]),
        number(&rates["refused"]),
        number(&rates["lost"]),
        shown(&waiting["held_messages"]),
        shown(&waiting["queue_messages"]),
        shown(&waiting["inflight"]),
        shown(&waiting["retained_messages"]),
    );
    for sink in answer["sinks_down"].as_array().into_iter().flatten() {
        let (name, age) = (shown(&sink["name"]), span(sink["age_s"].as_u64().unwrap_or(0)));
        let _ = writeln!(text, "sink     {name} gets nothing through for {age}: {}", whole(&sink["trouble"]));
    }
    if let Some(upstream) = answer["guard"]["upstream"].as_str() {
        let guard = &answer["guard"];
        let state = match guard["is_reached"].as_bool() {
            None => "not asked yet".to_owned(),
            Some(true) => {
                format!("which answers; {}", counted(guard["connections"].as_u64().unwrap_or(0), "connection"))
            }
            Some(false) => {
                let age = span(guard["lost_for_s"].as_u64().unwrap_or(0));
                format!("which cannot be reached for {age}: {}", whole(&guard["trouble"]))
            }
        };
        let _ = writeln!(text, "guard    of {upstream}, {state}");
    }
    for bridge in answer["bridges_down"].as_array().into_iter().flatten() {
        let (name, age) = (shown(&bridge["name"]), span(bridge["age_s"].as_u64().unwrap_or(0)));
        let _ = writeln!(text, "bridge   {name} is down for {age}: {}", whole(&bridge["trouble"]));
    }
    let mut table = TextTable::new(&[("LISTENER", Align::Left), ("ADDRESS", Align::Left), ("STATE", Align::Left)]);
    for listener in answer["listeners"].as_array().into_iter().flatten() {
        let [name, kind, address, state] = ["name", "kind", "address", "state"].map(|name| shown(&listener[name]));
        // Only one with a name of its own has to say what is spoken there.
        let name = if listener["kind"].is_string() && name != kind { format!("{name} ({kind})") } else { name };
        table.row([name, address, state]);
    }
    text.push_str(&table.text());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_comes_first_with_what_to_type() {
        let now = json!({"mood": "trouble", "text": "\"a\" floods", "next": "tidegate why a"});
        let text = text(&json!({ "version": "1", "uptime_s": 7300, "shards": 1, "now": now, "clients_losing": 2 }));
        assert!(
            text.starts_with("\"a\" floods\n  next:  tidegate why a\ntidegate 1, up 2 h 1 min, 1 shard\n"),
            "{text}"
        );
        assert!(text.contains(", 2 receivers losing, "), "{text}");
    }

    #[test]
    fn an_old_look_says_how_old_it_is() {
        let text = |age: u64| text(&json!({ "now": {"mood": "calm", "text": "calm"}, "looked_s_ago": age }));
        assert!(text(10).starts_with("calm\ntidegate "), "{}", text(10));
        assert!(text(90).starts_with("calm\n  as of 90 s ago\ntidegate "), "{}", text(90));
    }

    #[test]
    fn every_listener_has_a_line() {
        let listeners = json!([{"name": "mqtt", "address": "127.0.0.1:1883", "state": "open"},
            {"name": "wss", "kind": "wss", "address": null, "state": "off"},
            {"name": "f", "kind": "mqtts", "address": "127.0.0.1:8884", "state": "open"}]);
        let text = text(&json!({ "version": "1", "pressure": {"level": 2, "name": "strained", "cause": "memory"},
            "listeners": listeners }));
        assert!(text.contains("level    2 (strained), because of memory; memory 0 of 0 MiB\n"), "{text}");
        assert!(text.contains("\nmqtt       127.0.0.1:1883  open\nwss        -               off\n"), "{text}");
        assert!(text.contains("\nf (mqtts)  127.0.0.1:8884  open\n"), "{text}");
    }
}
