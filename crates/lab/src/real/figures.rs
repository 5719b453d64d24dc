//! The figures of a run: the same of the testbed and of the model, so that one stands beside the other.

use tidegate_sim::statistics::Estimate;

use super::room::RoomFigures;

/// What came of one run. What there is none of is not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) stale: f64,
    pub(super) found_after: f64,
    pub(super) requests_per_answer: f64,
    pub(super) answers: f64,
    pub(super) latency_p50: f64,
    pub(super) latency_p99: f64,
    pub(super) cpu: f64,
    pub(super) bytes: f64,
    pub(super) refused: f64,
    pub(super) lost: f64,
    pub(super) unanswered: f64,
    pub(super) delegated: f64,
}

/// A figure: its name for programs, its head in a table, its unit, what it is, how many of the unit there are in it, and where
/// it is found.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) head: &'static str,
    pub(super) unit: &'static str,
    pub(super) meaning: &'static str,
    scale: f64,
    of: fn(&Figures) -> f64,
}

/// All of them, in the order of tables.
pub(super) const COLUMNS: [Column; 12] = [
    column("stale", "stale", "%", "mean share of the KPs whose copy is out of date", 100.0, |it| it.stale),
    column(
        "found_after",
        "found after",
        "s",
        "from the loss of a notification to the answer that shows it",
        1.0,
        |it| it.found_after,
    ),
    column("requests_per_answer", "requests/answer", "", "requests that were sent for each useful answer", 1.0, |it| {
        it.requests_per_answer
    }),
    column("answers", "answers", "/s", "useful answers of all KPs", 1.0, |it| it.answers),
    column("latency_p50", "p50", "ms", "of checks that were answered, median", 1000.0, |it| it.latency_p50),
    column("latency_p99", "p99", "ms", "of checks that were answered, 99 %", 1000.0, |it| it.latency_p99),
    column("cpu", "broker CPU", "% of a core", "CPU time of the broker process", 100.0, |it| it.cpu),
    column("bytes", "wire", "KiB/s", "bytes of all messages between KPs and broker, both ways", 1.0 / 1024.0, |it| {
        it.bytes
    }),
    column("refused", "refused", "% of requests", "requests that the broker was too busy for", 100.0, |it| it.refused),
    column("lost", "lost", "% of messages", "messages of KPs that never arrived", 100.0, |it| it.lost),
    column("unanswered", "unanswered", "% of requests", "requests that were given up", 100.0, |it| it.unanswered),
    column("delegated", "handed over", "/s", "subscriptions that the broker handed over to checks", 1.0, |it| {
        it.delegated
    }),
];

const fn column(
    name: &'static str,
    head: &'static str,
    unit: &'static str,
    meaning: &'static str,
    scale: f64,
    of: fn(&Figures) -> f64,
) -> Column {
    Column { name, head, unit, meaning, scale, of }
}

impl Column {
    /// The mean over the runs in which there is such a figure, in its unit.
    pub(super) fn estimate(&self, runs: &[Figures]) -> Option<Estimate> {
        let values: Vec<f64> = self.values(runs).into_iter().filter(|value| value.is_finite()).collect();
        (!values.is_empty()).then(|| Estimate::of(&values))
    }

    /// Of each run, in its unit.
    pub(super) fn values(&self, runs: &[Figures]) -> Vec<f64> {
        runs.iter().map(|figures| (self.of)(figures) * self.scale).collect()
    }
}

impl Figures {
    /// Of a run on sockets.
    pub(super) fn of(room: &RoomFigures) -> Self {
        let RoomFigures { freshness, traffic, seconds, .. } = room;
        let share = |part: u64| if traffic.requests == 0 { f64::NAN } else { part as f64 / traffic.requests as f64 };
        let (answered, requests) = (room.answered as f64, traffic.requests as f64);
        Self {
            stale: freshness.stale,
            found_after: freshness.found_after.unwrap_or(f64::NAN),
            requests_per_answer: if room.answered == 0 { f64::NAN } else { requests / answered },
            answers: answered / seconds,
            latency_p50: room.latency.map_or(f64::NAN, |(p50, _)| p50),
            latency_p99: room.latency.map_or(f64::NAN, |(_, p99)| p99),
            cpu: room.cpu.map_or(f64::NAN, |cpu| cpu / seconds),
            bytes: traffic.bytes() as f64 / seconds,
            refused: share(room.refused),
            lost: traffic.lost_share(),
            unanswered: share(room.unanswered),
            delegated: room.delegations as f64 / seconds,
        }
    }
}
