//! The sinks, as an operator sees them: a list, one of them in words, and numbers.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::exposition::{MetricKind, MetricsPage};
use crate::problem::{Answered, Problem, json_of};
use crate::process_control::SinkReport;
use crate::state::AdminState;

pub(crate) async fn list(State(state): State<Arc<AdminState>>) -> Answered {
    Ok(json_of(&json!({ "sinks": state.process.sinks().iter().map(view).collect::<Vec<_>>() })))
}

/// One of them, with what is to be said about it.
pub(crate) async fn show(State(state): State<Arc<AdminState>>, Path(name): Path<String>) -> Answered {
    let sinks = state.process.sinks();
    let Some(sink) = sinks.iter().find(|sink| sink.name == name) else {
        let known: Vec<&str> = sinks.iter().map(|sink| sink.name.as_str()).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are: {}", known.join(", ")) };
        let words = format!("no sink is called {name:?}; {known}");
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-such-sink", words));
    };
    let mut answer = view(sink);
    answer["text"] = why(sink).into();
    Ok(json_of(&answer))
}

fn view(sink: &SinkReport) -> Value {
    json!({
        "name": sink.name,
        "type": sink.kind,
        "address": sink.address,
        "state": sink.state,
        "age_s": sink.age.as_secs(),
        "next_try_s": sink.next_try.map(|time| time.as_secs()),
        "queued": sink.queued_messages,
        "queued_bytes": sink.queued_bytes,
        "spool_bytes_max": sink.spool_bytes_max,
        "sent": sink.sent,
        "batches": sink.batches,
        "failures": sink.failures,
        "refused": sink.refused,
        "unmapped": sink.unmapped,
        "lost": sink.lost,
        "batch_size": sink.batch_size,
        "under_way": sink.under_way,
        "latency_ms": sink.latency.map(|time| (time.as_secs_f64() * 1e4).round() / 10.0),
        "trouble": sink.trouble,
        "refusal": sink.refusal,
    })
}

/// What is to be said about a sink, and what to do.
fn why(sink: &SinkReport) -> String {
    let SinkReport { name, kind, address, trouble, .. } = sink;
    let mut text = match (sink.state, trouble) {
        ("down", trouble) => {
            let why = trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let next =
                sink.next_try.map(|time| format!(" It tries again in {} s.", time.as_secs())).unwrap_or_default();
            format!("sink {name:?} gets nothing through to {address} ({kind}) for {} s{why}.{next}", sink.age.as_secs())
        }
        ("up", _) => format!("sink {name:?} works, to {address} ({kind}), for {} s.", sink.age.as_secs()),
        _ => format!("sink {name:?} to {address} ({kind}) has had nothing to send yet."),
    };
    let mut say = |line: String| {
        text.push('\n');
        text.push_str(&line);
    };
    if sink.queued_messages > 0 {
        let part = sink.queued_bytes * 100 / sink.spool_bytes_max.max(1);
        say(format!(
            "{} messages wait for it, {part} % of its spool; when that is full, the oldest of the lowest class go.",
            sink.queued_messages
        ));
    }
    if let (true, Some(latency)) = (sink.state == "up", sink.latency) {
        let each = sink.sent.checked_div(sink.batches).unwrap_or(0);
        say(format!(
            "an answer takes {:.1} ms; {each} messages go together on average, and the next time {} at most.",
            latency.as_secs_f64() * 1e3,
            sink.batch_size
        ));
    }
    if let Some(trouble) = trouble.as_ref().filter(|_| sink.state != "down") {
        say(format!("{trouble}."));
    }
    for (count, what) in [
        (sink.refused, "were refused there for good, and are lost: the receiver does not want what is in them"),
        (sink.unmapped, "say nothing in the words of this receiver: no number, no text, no JSON object"),
        (sink.lost, "of QoS 0 found no room while the receiver was away: QoS 1 would have kept them"),
    ] {
        if count > 0 {
            say(format!("{count} messages {what}."));
        }
    }
    if let Some(refusal) = sink.refusal.as_ref().filter(|refusal| trouble.as_ref() != Some(refusal)) {
        say(format!("of the last one that was refused {refusal}."));
    }
    text
}

/// One line for each sink that gets nothing through, or none.
pub(crate) fn down(sinks: &[SinkReport]) -> Vec<Value> {
    let is_down = |sink: &&SinkReport| sink.is_down;
    let line = |sink: &SinkReport| json!({ "name": sink.name, "address": sink.address, "age_s": sink.age.as_secs(), "trouble": sink.trouble });
    sinks.iter().filter(is_down).map(line).collect()
}

pub(crate) fn metrics(page: &mut MetricsPage, sinks: &[SinkReport]) {
    if sinks.is_empty() {
        return;
    }
    let family = page.family("sink_up", MetricKind::Gauge, "0 while a sink gets nothing through.");
    for sink in sinks {
        family.put([("sink", sink.name.as_str())], u64::from(!sink.is_down));
    }
    let family =
        page.family("sink_queued_messages", MetricKind::Gauge, "Messages that wait for a sink, or are under way.");
    for sink in sinks {
        family.put([("sink", sink.name.as_str())], sink.queued_messages);
    }
    let family = page.family("sink_messages", MetricKind::Counter, "Messages of a sink, by what became of them.");
    for sink in sinks {
        for (outcome, count) in
            [("sent", sink.sent), ("refused", sink.refused), ("unmapped", sink.unmapped), ("lost", sink.lost)]
        {
            family.put([("sink", sink.name.as_str()), ("outcome", outcome)], count);
        }
    }
    let family =
        page.family("sink_batches", MetricKind::Counter, "Batches of a sink, by outcome; what failed goes again.");
    for sink in sinks {
        family.put([("sink", sink.name.as_str()), ("outcome", "taken")], sink.batches);
        family.put([("sink", sink.name.as_str()), ("outcome", "failed")], sink.failures);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sink_that_is_down_says_why_and_when_it_tries_again() {
        let sink = SinkReport {
            name: "log".to_owned(),
            kind: "webhook",
            address: "http://h:80/x".to_owned(),
            state: "down",
            is_down: true,
            age: Duration::from_secs(90),
            next_try: Some(Duration::from_secs(12)),
            queued_messages: 700,
            queued_bytes: 64 << 20,
            spool_bytes_max: 256 << 20,
            refused: 2,
            trouble: Some("it answered 503: busy".to_owned()),
            refusal: Some("it answered 422: no number".to_owned()),
            ..SinkReport::default()
        };
        assert_eq!(
            why(&sink),
            "sink \"log\" gets nothing through to http://h:80/x (webhook) for 90 s: it answered 503: busy. It tries again in 12 s.\n\
             700 messages wait for it, 25 % of its spool; when that is full, the oldest of the lowest class go.\n\
             2 messages were refused there for good, and are lost: the receiver does not want what is in them.\n\
             of the last one that was refused it answered 422: no number."
        );
        assert_eq!(down(&[sink, SinkReport::default()]).len(), 1);
    }

    #[test]
    fn a_sink_that_works_says_its_batches() {
        let latency = Some(Duration::from_millis(9));
        let sink = SinkReport { state: "up", sent: 900, batches: 3, latency, batch_size: 500, ..SinkReport::default() };
        let text = why(&sink);
        assert!(
            text.contains(
                "an answer takes 9.0 ms; 300 messages go together on average, and the next time 500 at most."
            ),
            "{text}"
        );
    }
}
