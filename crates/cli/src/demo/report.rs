//! What the two runs came to, as a table and in one sentence.

use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use super::fleet::Trip;

/// A message that took longer is as good as lost to whoever watches a machine.
pub(super) const LATE: Duration = Duration::from_secs(1);

/// One run.
#[derive(Debug)]
pub(super) struct DemoRun {
    pub(super) before: Latencies,
    pub(super) flooded: Latencies,
    pub(super) flooder: Flooder,
    words: DemoWords,
}

/// What the broker says at the end of the flood.
#[derive(Debug)]
pub(super) struct DemoWords {
    /// Whose messages fill the subscriber's queue.
    pub(super) culprit: Option<String>,
    /// `why` of the flooder.
    pub(super) why: String,
}

/// Whose messages wait for the subscriber or were lost there, by the broker's own account of it.
pub(super) fn culprit(why: &Value) -> Option<String> {
    let number = |flow: &Value, name: &str| flow[name].as_u64().unwrap_or(0);
    let flows = why["crowding"].as_array()?;
    let worst = flows.iter().max_by_key(|flow| number(flow, "waiting") + number(flow, "lost"))?;
    let (name, waiting, lost) = (worst["client_id"].as_str()?, number(worst, "waiting"), number(worst, "lost"));
    let (queued, rate) = (number(&why["client"], "queue_messages"), worst["rate"].as_f64().unwrap_or(0.0));
    let tail = if lost > 0 { format!(", and {lost} were lost") } else { String::new() };
    (waiting + lost > 0).then(|| {
        format!(
            "the culprit is {name:?}: it sends {rate:.0}/s, and {waiting} of the {queued} messages that wait for the \
             subscriber are its own{tail}"
        )
    })
}

/// What became of the flooder's messages during the flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flooder {
    pub(super) offered: u64,
    pub(super) passed: u64,
    pub(super) held: u64,
    pub(super) refused: u64,
    /// What the subscriber lost for want of room, and what waits for it at the end of the flood.
    pub(super) dropped: u64,
    pub(super) queued: u64,
}

/// How long a message took, or at least has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessageTime {
    // The first in the order of all: whoever has not arrived comes after all that have.
    has_not_arrived: bool,
    time: Duration,
}

/// How long messages took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latencies {
    messages: usize,
    p50: MessageTime,
    p99: MessageTime,
    /// Messages that took longer than [`LATE`], or did not arrive.
    late: usize,
    /// Of those, the ones that did not arrive.
    missing: usize,
}

impl Latencies {
    /// Of the messages that were sent in this time.
    fn of(trips: &[Trip], when: &Range<Duration>, end: Duration) -> Self {
        let trips = trips.iter().filter(|trip| when.contains(&trip.sent));
        let took = |trip: &Trip| match trip.took {
            Some(time) => MessageTime { time, has_not_arrived: false },
            None => MessageTime { time: end.saturating_sub(trip.sent), has_not_arrived: true },
        };
        let mut took: Vec<MessageTime> = trips.map(took).collect();
        took.sort_unstable();
        let at = |share: f64| {
            let place = ((took.len() as f64 * share).ceil() as usize).clamp(1, took.len().max(1)) - 1;
            took.get(place).copied().unwrap_or_default()
        };
        let is_late = |took: &&MessageTime| took.time > LATE || took.has_not_arrived;
        Self {
            messages: took.len(),
            p50: at(0.5),
            p99: at(0.99),
            late: took.iter().filter(is_late).count(),
            missing: took.iter().filter(|took| took.has_not_arrived).count(),
        }
    }

    fn late_percent(&self) -> f64 {
        self.late as f64 * 100.0 / self.messages.max(1) as f64
    }

    fn json(&self) -> Value {
        let ms = |took: MessageTime| json!(took.time.as_secs_f64() * 1000.0);
        json!({
            "messages": self.messages,
            "p50_ms": ms(self.p50),
            "p99_ms": ms(self.p99),
            "late": self.late,
            "missing": self.missing,
        })
    }
}

impl DemoRun {
    pub(super) fn new(
        trips: &[Trip],
        calm: Range<Duration>,
        flood: Range<Duration>,
        flooder: Flooder,
        words: DemoWords,
    ) -> Self {
        let end = flood.end + LATE;
        let (before, flooded) = (Latencies::of(trips, &calm, end), Latencies::of(trips, &flood, end));
        Self { before, flooded, flooder, words }
    }

    fn json(&self) -> Value {
        let Flooder { offered, passed, held, refused, dropped, queued } = self.flooder;
        json!({
            "before": self.before.json(),
            "flooded": self.flooded.json(),
            "flooder": { "offered": offered, "passed": passed, "held": held, "refused": refused },
            "subscriber": { "dropped": dropped, "queued": queued },
            "culprit": self.words.culprit,
            "why": self.words.why,
        })
    }
}

/// Both runs.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) off: DemoRun,
    pub(super) on: DemoRun,
    pub(super) times: u32,
}

impl Report {
    pub(super) fn json(&self) -> Value {
        json!({ "times": self.times, "control_off": self.off.json(), "control_on": self.on.json() })
    }

    pub(super) fn text(&self) -> String {
        let (off, on) = (&self.off, &self.on);
        let rows = [
            ("20 good publishers, before: half within".to_owned(), span(off.before.p50), span(on.before.p50)),
            ("                            99 % within".to_owned(), span(off.before.p99), span(on.before.p99)),
            ("the same, during the flood: half within".to_owned(), span(off.flooded.p50), span(on.flooded.p50)),
            ("                            99 % within".to_owned(), span(off.flooded.p99), span(on.flooded.p99)),
            ("     later than a second, or lost".to_owned(), late(&off.flooded), late(&on.flooded)),
            (
                "     of these not there a second after".to_owned(),
                off.flooded.missing.to_string(),
                on.flooded.missing.to_string(),
            ),
            (
                "the flooder's messages: sent".to_owned(),
                off.flooder.offered.to_string(),
                on.flooder.offered.to_string(),
            ),
            ("     passed on".to_owned(), off.flooder.passed.to_string(), on.flooder.passed.to_string()),
            ("     waiting at the end".to_owned(), off.flooder.held.to_string(), on.flooder.held.to_string()),
            (
                "     refused, and told when to come back".to_owned(),
                off.flooder.refused.to_string(),
                on.flooder.refused.to_string(),
            ),
            ("for the subscriber wait".to_owned(), off.flooder.queued.to_string(), on.flooder.queued.to_string()),
            (
                "     for want of room it lost".to_owned(),
                off.flooder.dropped.to_string(),
                on.flooder.dropped.to_string(),
            ),
        ];
        let mut text =
            format!("{:<40}{:>16}{:>16}\n", "from sending to the end of the work", "CONTROL OFF", "CONTROL ON");
        for (name, off, on) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<40}{off:>16}{on:>16}");
        }
        let DemoWords { culprit, why } = &on.words;
        let culprit = culprit.as_ref().map(|words| format!("{words}\n")).unwrap_or_default();
        format!(
            "{text}\n{}\n{culprit}\nwhat `tidegate why flooder` said at the end of the flood, of the broker with control on:\n{why}\n\n\
             Both brokers have ended with this demonstration: there is nobody to ask any more. To ask yourself, start a broker with \
             `tidegate`\nand use the page Demo of its dashboard, http://127.0.0.1:18830.\n",
            self.headline()
        )
    }

    /// One sentence, whichever way it went.
    fn headline(&self) -> String {
        let (off, on) = (&self.off.flooded, &self.on.flooded);
        let facts = format!(
            "one publisher at {} times its rate: the others' p99 is {} with control off and {} with it on ({} before); \
             late or lost: {:.0} % and {:.0} % of their messages.",
            self.times,
            span(off.p99),
            span(on.p99),
            span(self.on.before.p99),
            off.late_percent(),
            on.late_percent()
        );
        let is_no_later = on.late <= off.late;
        let verdict = match (on.p99 < off.p99, on.p99.time * 2 <= off.p99.time) {
            (true, true) if is_no_later => "Control held",
            (true, false) if is_no_later => "Control helped a little",
            _ if on.p99.time > off.p99.time * 2 || on.late > off.late => "Control did harm",
            _ => "No difference this time",
        };
        format!("{verdict}: {facts}")
    }
}

fn late(latencies: &Latencies) -> String {
    format!("{} of {}", latencies.late, latencies.messages)
}

fn span(took: MessageTime) -> String {
    let more = if took.has_not_arrived { "> " } else { "" };
    let secs = took.time.as_secs_f64();
    if secs >= 1.0 { format!("{more}{secs:.1} s") } else { format!("{more}{:.1} ms", secs * 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_arrive_is_late_and_took_longer_than_can_be_said() {
        let at = Duration::from_millis;
        let trip = |sent, took: Option<u64>| Trip { sent: at(sent), took: took.map(at) };
        let trips = [trip(5, Some(1)), trip(10, Some(3)), trip(20, Some(1500)), trip(30, None), trip(40, Some(2))];
        let latencies = Latencies::of(&trips, &(at(10)..at(40)), at(2030));
        let took = |time, has_not_arrived| MessageTime { time: at(time), has_not_arrived };
        let (p50, p99) = (took(1500, false), took(2000, true));
        assert_eq!(latencies, Latencies { messages: 3, p50, p99, late: 2, missing: 1 });
        assert_eq!((span(p50), span(p99)), ("1.5 s".to_owned(), "> 2.0 s".to_owned()));
        assert_eq!(Latencies::of(&[], &(at(0)..at(1)), at(1)).messages, 0);
    }

    #[test]
    fn whose_messages_wait_for_the_subscriber_is_the_culprit() {
        let flow =
            |name: &str, waiting: u64| json!({ "client_id": name, "rate": 1000.4, "waiting": waiting, "lost": 0 });
        let why =
            json!({ "client": { "queue_messages": 3726 }, "crowding": [flow("sensor-3", 2), flow("flooder", 3700)] });
        let expected = "the culprit is \"flooder\": it sends 1000/s, and 3700 of the 3726 messages that wait for the subscriber are its own";
        assert_eq!(culprit(&why).as_deref(), Some(expected));
        assert_eq!(culprit(&json!({ "crowding": [] })), None);
        assert_eq!(culprit(&json!({ "crowding": [flow("sensor-3", 0)] })), None, "nothing waits");
    }
}
