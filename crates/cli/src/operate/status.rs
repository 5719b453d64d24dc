//! `tidegate status`: how the broker is, on one screen.

use anyhow::Result;
use serde_json::Value;

use super::table::{Align, TextTable, number, shown};
use super::{out, print_json};
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
        "tidegate {}, up {} s, {} shards\n\
         level    {} ({}){cause}; memory {} of {} MiB\n\
         clients  {} connected, {} sessions, {} subscriptions, {} slowed, {} slow to read\n\
         rates    {}/s received, {}/s passed, {}/s delivered, {}/s lost\n\
         waiting  {} held, {} queued, {} unacknowledged, {} retained\n\n",
        shown(&answer["version"]),
        shown(&answer["uptime_s"]),
        shown(&answer["shards"]),
        shown(&pressure["level"]),
        shown(&pressure["name"]),
        mib(&pressure["memory_used_bytes"]),
        mib(&pressure["memory_max_bytes"]),
        shown(&clients["connected"]),
        shown(&clients["sessions"]),
        shown(&clients["subscriptions"]),
        shown(&answer["publishers_throttled"]),
        shown(&answer["clients_slow"]),
        number(&rates["received"]),
        number(&rates["passed"]),
        number(&rates["delivered"]),
        number(&rates["lost"]),
        shown(&waiting["held_messages"]),
        shown(&waiting["queue_messages"]),
        shown(&waiting["inflight"]),
        shown(&waiting["retained_messages"]),
    );
    let mut table = TextTable::new(&[("LISTENER", Align::Left), ("ADDRESS", Align::Left), ("STATE", Align::Left)]);
    for listener in answer["listeners"].as_array().into_iter().flatten() {
        table.row(["name", "address", "state"].map(|name| shown(&listener[name])));
    }
    text.push_str(&table.text());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_listener_has_a_line() {
        let listeners = json!([{"name": "mqtt", "address": "127.0.0.1:1883", "state": "open"},
            {"name": "wss", "address": null, "state": "off"}]);
        let text = text(&json!({ "version": "1", "pressure": {"level": 2, "name": "strained", "cause": "memory"},
            "listeners": listeners }));
        assert!(text.contains("level    2 (strained), because of memory; memory 0 of 0 MiB\n"), "{text}");
        assert!(text.contains("\nmqtt      127.0.0.1:1883  open\nwss       -               off\n"), "{text}");
    }
}
