//! The bridges to other brokers, as an operator sees them: a list, one of them in words, and numbers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::exposition::{MetricKind, MetricsPage};
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::BridgeReport;
use crate::state::AdminState;

pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Answered {
    Ok(json_of(&json!({ "bridges": state.process.bridges().iter().map(view).collect::<Vec<_>>() })))
}

/// One of them, with what is to be said about it.
pub(crate) async fn show(State(state): State<Arc<AdminState>>, Path(name): Path<String>) -> Answered {
    let bridges = state.process.bridges();
    let Some(bridge) = bridges.iter().find(|bridge| bridge.name == name) else {
        let known: Vec<&str> = bridges.iter().map(|bridge| bridge.name.as_str()).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are: {}", known.join(", ")) };
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-bridge",
            format!("no bridge is called {name:?}; {known}"),
        ));
    };
    let mut answer = view(bridge);
    answer["text"] = why(bridge).into();
    Ok(json_of(&answer))
}

fn view(bridge: &BridgeReport) -> Value {
    let ms = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 1e4).round() / 10.0);
    json!({
        "name": bridge.name,
        "address": bridge.address,
        "state": bridge.state,
        "age_s": bridge.age.as_secs(),
        "next_try_s": bridge.next_try.map(|time| time.as_secs()),
        "queued": bridge.queued_messages,
        "queued_bytes": bridge.queued_bytes,
        "spool_bytes_max": bridge.spool_bytes_max,
        "sent": bridge.sent,
        "received": bridge.received,
        "deferred": bridge.deferred,
        "refused": bridge.refused,
        "refused_here": bridge.refused_here,
        "looped": bridge.looped,
        "unmapped": bridge.unmapped,
        "too_large": bridge.too_large,
        "lost": bridge.lost,
        "connects": bridge.connects,
        "failures": bridge.failures,
        "window": bridge.window,
        "under_way": bridge.under_way,
        "latency_ms": ms(bridge.latency),
        "base_latency_ms": ms(bridge.base_latency),
        "pause_ms": ms(bridge.pause),
        "trouble": bridge.trouble,
    })
}

/// What is to be said about a bridge, and what to do.
fn why(bridge: &BridgeReport) -> String {
    let BridgeReport { name, address, trouble, .. } = bridge;
    let mut text = match (bridge.is_up, trouble) {
        (true, _) => format!("bridge {name:?} stands, to {address}, for {} s.", bridge.age.as_secs()),
        (false, trouble) => {
            let why = trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let next =
                bridge.next_try.map(|time| format!(" It tries again in {} s.", time.as_secs())).unwrap_or_default();
            format!("bridge {name:?} is down for {} s, last tried {address}{why}.{next}", bridge.age.as_secs())
        }
    };
    let mut say = |line: String| {
        text.push('\n');
        text.push_str(&line);
    };
    if bridge.queued_messages > 0 {
        let part = bridge.queued_bytes * 100 / bridge.spool_bytes_max.max(1);
        say(format!(
            "{} messages wait for it, {part} % of its spool; when that is full, the oldest of the lowest class go.",
            bridge.queued_messages
        ));
    }
    if let Some(pause) = bridge.pause {
        say(format!("the other broker refused messages for now: nothing goes for {} ms more.", pause.as_millis()));
    }
    if let (true, Some(latency), Some(base)) = (bridge.is_up, bridge.latency, bridge.base_latency) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let pace = if ms(latency) > 1.5 * ms(base) { "so it goes slower" } else { "so it may go faster" };
        say(format!(
            "an answer takes {:.1} ms, and {:.1} ms when the other broker has nothing else to do: {pace}. {} of {} messages are under way.",
            ms(latency),
            ms(base),
            bridge.under_way,
            bridge.window
        ));
    }
    if let Some(trouble) = trouble.as_ref().filter(|_| bridge.is_up) {
        say(format!("{trouble}."));
    }
    for (count, what) in [
        (bridge.refused, "were refused there for good: look at the rules of access of the other broker"),
        (bridge.refused_here, "of the other broker were refused here for good"),
        (
            bridge.looped,
            "came through more than eight bridges: there is a ring; narrow the topics of one of its bridges",
        ),
        (bridge.unmapped, "were of topics that this bridge has no more"),
        (bridge.too_large, "are larger than the other side takes"),
        (bridge.lost, "of QoS 0 went with a connection: QoS 1 would have kept them"),
    ] {
        if count > 0 {
            say(format!("{count} messages {what}."));
        }
    }
    text
}

/// One line for each bridge that is down, or none.
pub(crate) fn down(bridges: &[BridgeReport]) -> Vec<Value> {
    let is_down = |bridge: &&BridgeReport| !bridge.is_up;
    let line = |bridge: &BridgeReport| json!({ "name": bridge.name, "address": bridge.address, "age_s": bridge.age.as_secs(), "trouble": bridge.trouble });
    bridges.iter().filter(is_down).map(line).collect()
}

pub(crate) fn metrics(page: &mut MetricsPage, bridges: &[BridgeReport]) {
    if bridges.is_empty() {
        return;
    }
    let family = page.family("bridge_up", MetricKind::Gauge, "1 while a bridge stands.");
    for bridge in bridges {
        family.put([("bridge", bridge.name.as_str())], u64::from(bridge.is_up));
    }
    let family =
        page.family("bridge_queued_messages", MetricKind::Gauge, "Messages that wait for a bridge, or are under way.");
    for bridge in bridges {
        family.put([("bridge", bridge.name.as_str())], bridge.queued_messages);
    }
    let family =
        page.family("bridge_window", MetricKind::Gauge, "Messages that a bridge may have under way: its pace.");
    for bridge in bridges {
        family.put([("bridge", bridge.name.as_str())], u64::from(bridge.window));
    }
    let family = page.family("bridge_messages", MetricKind::Counter, "Messages of a bridge, by what became of them.");
    for bridge in bridges {
        for (outcome, count) in [
            ("sent", bridge.sent),
            ("received", bridge.received),
            ("deferred", bridge.deferred),
            ("refused", bridge.refused),
            ("refused-here", bridge.refused_here),
            ("looped", bridge.looped),
            ("unmapped", bridge.unmapped),
            ("too-large", bridge.too_large),
            ("lost", bridge.lost),
        ] {
            family.put([("bridge", bridge.name.as_str()), ("outcome", outcome)], count);
        }
    }
    let family = page.family("bridge_connections", MetricKind::Counter, "Connections of a bridge, by outcome.");
    for bridge in bridges {
        family.put([("bridge", bridge.name.as_str()), ("outcome", "stood")], bridge.connects);
        family.put([("bridge", bridge.name.as_str()), ("outcome", "failed")], bridge.failures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_that_is_down_says_why_and_when_it_tries_again() {
        let bridge = BridgeReport {
            name: "hub".to_owned(),
            address: "10.0.0.5:1883".to_owned(),
            state: "down",
            age: Duration::from_secs(90),
            next_try: Some(Duration::from_secs(12)),
            queued_messages: 700,
            queued_bytes: 64 << 20,
            spool_bytes_max: 256 << 20,
            trouble: Some("Connection refused (os error 111)".to_owned()),
            ..BridgeReport::default()
        };
        assert_eq!(
            why(&bridge),
            "bridge \"hub\" is down for 90 s, last tried 10.0.0.5:1883: Connection refused (os error 111). It tries again in 12 s.\n\
             700 messages wait for it, 25 % of its spool; when that is full, the oldest of the lowest class go."
        );
        assert_eq!(down(&[bridge, BridgeReport { is_up: true, ..BridgeReport::default() }]).len(), 1);
    }

    #[test]
    fn a_bridge_that_stands_says_its_pace() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let bridge =
            BridgeReport { is_up: true, latency: ms(9), base_latency: ms(2), looped: 1, ..BridgeReport::default() };
        let text = why(&bridge);
        assert!(
            text.contains(
                "an answer takes 9.0 ms, and 2.0 ms when the other broker has nothing else to do: so it goes slower"
            ),
            "{text}"
        );
        assert!(text.contains("1 messages came through more than eight bridges: there is a ring"), "{text}");
    }
}
