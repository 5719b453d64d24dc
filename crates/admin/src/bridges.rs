//! The bridges to other brokers, as an operator sees them: a list, one of them in words, and numbers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::alarms::ALARMS_MAX;
use crate::exposition::{MetricKind, MetricsPage};
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::BridgeReport;
use crate::state::AdminState;
use crate::why::words::span;

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
    let (facts, steps) = (why(bridge), advice(bridge));
    answer["text"] = in_words(&facts, steps).into();
    answer["facts"] = facts.into();
    answer["proposals"] = steps.into_iter().map(|text| json!({ "text": text, "acts": [] })).collect::<Value>();
    Ok(json_of(&answer))
}

/// What is to be said about the bridge whose spool is the queue of this client.
pub(crate) fn why_spool(state: &AdminState, client_id: &str) -> Option<Vec<String>> {
    let name = client_id.strip_prefix("$bridge/")?;
    let bridges = state.process.bridges();
    let bridge = bridges.iter().find(|bridge| bridge.name == name)?;
    let steps = advice(bridge).into_iter().map(str::to_owned);
    Some(why(bridge).into_iter().chain(steps).collect())
}

/// A bridge that is down, in the sentence and in alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TroubledBridge {
    pub(crate) name: String,
    pub(crate) queued: u64,
    /// Without numbers that change while it lasts, but for what waits.
    pub(crate) text: String,
}

/// So long a bridge may be down, at its start or for another address, before anybody is told.
const DOWN_GRACE: Duration = Duration::from_secs(5);

/// Those that are down, as many as alarms may be about; and how many there are.
pub(crate) fn troubled(bridges: &[BridgeReport]) -> (Vec<TroubledBridge>, usize) {
    let down = || bridges.iter().filter(|bridge| !bridge.is_up && bridge.age >= DOWN_GRACE);
    let trouble = |bridge: &BridgeReport| {
        let BridgeReport { name, address, queued_messages: queued, .. } = bridge;
        let why = bridge.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let waits = match queued {
            0 => String::new(),
            1 => ", and 1 message waits for it".to_owned(),
            queued => format!(", and {queued} messages wait for it"),
        };
        TroubledBridge {
            name: name.clone(),
            queued: *queued,
            text: format!("the bridge {name:?} to {address} is down{why}{waits}"),
        }
    };
    (down().take(ALARMS_MAX).map(trouble).collect(), down().count())
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
        "overrun": bridge.overrun,
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

fn in_words(facts: &[String], steps: Option<&str>) -> String {
    facts.iter().map(String::as_str).chain(steps).collect::<Vec<_>>().join("\n")
}

/// What to do about its trouble, by the words of it.
fn advice(bridge: &BridgeReport) -> Option<&'static str> {
    let trouble = bridge.trouble.as_deref()?;
    let steps = [
        ("Client Identifier", "somebody else has this client_id at the other broker: give the bridge another one"),
        (
            "refused the connection: Not authorized",
            "look at user and password_file of the bridge; or the other broker does not let it have its state topic: \
             notifications = false",
        ),
        ("Not authorized", "the other broker's rules do not allow this topic to the bridge's user"),
        ("Bad User Name or Password", "look at user and password_file of the bridge"),
        ("Receive Maximum", "the other broker does not keep to MQTT 5: version = 4 has no such limit"),
        ("UnknownIssuer", "name the CA of the other broker: ca in [bridge.tls]"),
        ("NotValidForName", "the certificate is for another name: write that one into address"),
        ("onnection refused", "is the other broker there, is the port right?"),
        ("in time", "is the other broker there, is the port right, does a firewall keep it away?"),
        ("lookup", "is the name of the other broker right?"),
    ];
    steps.into_iter().find(|(words, _)| trouble.contains(words)).map(|(_, step)| step)
}

/// What is to be said about a bridge.
fn why(bridge: &BridgeReport) -> Vec<String> {
    let BridgeReport { name, address, trouble, .. } = bridge;
    let first = match (bridge.is_up, trouble) {
        (true, _) => format!("bridge {name:?} stands, to {address}, for {}.", span(bridge.age)),
        (false, trouble) => {
            let why = trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let next = bridge.next_try.map(|time| format!(" It tries again in {}.", span(time))).unwrap_or_default();
            format!("bridge {name:?} is down for {}, last tried {address}{why}.{next}", span(bridge.age))
        }
    };
    let mut lines = vec![first];
    let mut say = |line: String| lines.push(line);
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
    lines
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
            ("overrun", bridge.overrun),
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
            in_words(&why(&bridge), advice(&bridge)),
            "bridge \"hub\" is down for 90 s, last tried 10.0.0.5:1883: Connection refused (os error 111). It tries again in 12 s.\n\
             700 messages wait for it, 25 % of its spool; when that is full, the oldest of the lowest class go.\n\
             is the other broker there, is the port right?"
        );
        let (named, count) = troubled(std::slice::from_ref(&bridge));
        let words = "the bridge \"hub\" to 10.0.0.5:1883 is down: Connection refused (os error 111), and 700 messages wait for it";
        assert_eq!((named[0].text.as_str(), count), (words, 1));
        let young = BridgeReport { age: Duration::from_secs(2), ..bridge.clone() };
        assert_eq!(
            troubled(&[young, BridgeReport { is_up: true, ..bridge.clone() }]).1,
            0,
            "it has only begun, and stands"
        );
        assert_eq!(down(&[bridge, BridgeReport { is_up: true, ..BridgeReport::default() }]).len(), 1);
    }

    #[test]
    fn a_bridge_that_stands_says_its_pace() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let bridge =
            BridgeReport { is_up: true, latency: ms(9), base_latency: ms(2), looped: 1, ..BridgeReport::default() };
        let text = why(&bridge).join("\n");
        assert!(
            text.contains(
                "an answer takes 9.0 ms, and 2.0 ms when the other broker has nothing else to do: so it goes slower"
            ),
            "{text}"
        );
        assert!(text.contains("1 messages came through more than eight bridges: there is a ring"), "{text}");
    }
}
