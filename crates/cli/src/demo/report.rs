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
    why: String,
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
        why: String,
    ) -> Self {
        let end = flood.end + LATE;
        let (before, flooded) = (Latencies::of(trips, &calm, end), Latencies::of(trips, &flood, end));
        Self { before, flooded, flooder, why }
    }

    fn json(&self) -> Value {
        let Flooder { offered, passed, held, refused, dropped, queued } = self.flooder;
        json!({
            "before": self.before.json(),
            "flooded": self.flooded.json(),
            "flooder": { "offered": offered, "passed": passed, "held": held, "refused": refused },
            "subscriber": { "dropped": dropped, "queued": queued },
            "why": self.why,
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
        format!("{text}\n{}\n\n$ tidegate why flooder\n{}\n", self.headline(), on.why)
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
}
