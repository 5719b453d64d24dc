//! What the user sees: a table that grows line by line, what was wrong below it, or one JSON object.

use std::fmt::Write;

use serde_json::{Value, json};

use super::measure::{Faults, Idle, Outcome, Overload, Traffic};

/// What one broker did in one case.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) case: &'static str,
    pub(super) broker: String,
    /// The reason, if the case could not be measured.
    pub(super) outcome: Result<Outcome, String>,
}

/// The line above the table.
pub(super) fn header(own: &str, peer: Option<&str>) -> String {
    let mut line = format!("{:<17}{:>18}{:>13}{:>16}", "case", format!("{own} CPU s/M"), "delivered/s", "p50/p99 µs");
    if let Some(peer) = peer {
        let _ =
            write!(line, "{:>20}{:>13}{:>16}{:>8}", format!("{peer} CPU s/M"), "delivered/s", "p50/p99 µs", "ratio");
    }
    line
}

/// The lines of one case: ours first, then the peer if there is one.
pub(super) fn lines(entries: &[Entry]) -> String {
    let Some(first) = entries.first() else { return String::new() };
    if entries.iter().all(|entry| matches!(entry.outcome, Ok(Outcome::Traffic(_)))) {
        return traffic_line(first.case, entries);
    }
    let mut text = String::new();
    for (number, entry) in entries.iter().enumerate() {
        let case = if number == 0 { entry.case } else { "" };
        let what = match &entry.outcome {
            Ok(Outcome::Traffic(traffic)) => traffic_columns(traffic, 18).trim_start().to_owned(),
            Ok(Outcome::Idle(idle)) => idle_words(idle),
            Ok(Outcome::Overload(overload)) => overload_words(overload),
            Err(reason) => format!("failed: {reason}"),
        };
        let _ = writeln!(text, "{case:<17}{:<11}{what}", entry.broker);
    }
    text
}

fn traffic_line(case: &str, entries: &[Entry]) -> String {
    let mut line = format!("{case:<17}");
    let mut costs = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        if let Ok(Outcome::Traffic(traffic)) = &entry.outcome {
            line.push_str(&traffic_columns(traffic, if number == 0 { 18 } else { 20 }));
            costs.push(traffic.cpu_s_per_million);
        }
    }
    // How many times more the peer needs for the same messages.
    if let [Some(own), Some(peer)] = costs[..]
        && own > 0.0
    {
        let _ = write!(line, "{:>7.1}×", peer / own);
    }
    if entries.iter().all(|entry| entry.broker == "relay") {
        line.push_str("   copies bytes only");
    }
    line.push('\n');
    line
}

fn traffic_columns(traffic: &Traffic, width: usize) -> String {
    let cost = traffic.cpu_s_per_million.map_or_else(|| "–".to_owned(), |cost| format!("{cost:.2}"));
    let latency = format!("{:.0}/{:.0}", traffic.p50_us, traffic.p99_us);
    format!("{cost:>width$}{:>13}{latency:>16}", grouped(traffic.delivered_per_s))
}

fn idle_words(idle: &Idle) -> String {
    let memory = idle.kib_each.map_or_else(|| "– KiB".to_owned(), |kib| format!("{kib:.2} KiB"));
    let connects = grouped(idle.connects_per_s);
    format!("{memory} each, {connects} connects/s, {} connections", grouped(idle.connections as f64))
}

fn overload_words(overload: &Overload) -> String {
    let memory = overload.rss_kib.map_or_else(|| "– MiB".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0));
    format!(
        "probes p50/p99 {:.0}/{:.0} µs, {memory}, dropped {} of {}",
        overload.probe_p50_us,
        overload.probe_p99_us,
        grouped(overload.dropped() as f64),
        grouped(overload.sent as f64)
    )
}

impl Outcome {
    fn traffic(&self) -> Option<&Traffic> {
        if let Self::Traffic(traffic) = self { Some(traffic) } else { None }
    }
}

impl Overload {
    /// Messages of the flood that did not arrive.
    pub(super) fn dropped(&self) -> u64 {
        self.sent.saturating_sub(self.delivered)
    }
}

/// What stands below the table: the generator's share, and everything that should be zero and is not.
pub(super) fn notes(entries: &[Entry]) -> String {
    let mut text = String::new();
    let traffic = |entry: &Entry| entry.outcome.as_ref().ok().and_then(Outcome::traffic).cloned();
    let all: Vec<Traffic> = entries.iter().filter_map(traffic).collect();
    if let Some(range) = range(all.iter().map(|traffic| traffic.generator_cores)) {
        let _ = writeln!(text, "load generator: {range} cores, one thread");
    }
    if let Some(range) = range(all.iter().filter_map(|traffic| traffic.other_cores)) {
        let _ = writeln!(text, "other processes meanwhile: {range} cores");
    }
    // `None` while there was nothing to lose.
    let mut is_clean = None;
    for entry in entries {
        let (what, faults) = match &entry.outcome {
            Ok(Outcome::Traffic(traffic)) => ("", traffic.faults),
            Ok(Outcome::Overload(overload)) => (" probes", Faults { closed: overload.closed, ..overload.probes }),
            _ => continue,
        };
        let words = fault_words(&faults);
        is_clean = Some(is_clean != Some(false) && words.is_empty());
        if !words.is_empty() {
            let _ = writeln!(text, "{}, {}{what}: {words}", entry.case, entry.broker);
        }
    }
    if is_clean == Some(true) {
        text.push_str("no message lost, duplicated or reordered (the flood aside)\n");
    }
    if entries.iter().any(is_unmeasured) {
        text.push_str("–: CPU time and memory are measured on Linux only, and need --pid with --url\n");
    }
    text
}

fn range(values: impl Iterator<Item = f64>) -> Option<String> {
    let (least, most) = values.fold((f64::MAX, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    (least <= most).then(|| format!("{least:.2} to {most:.2}"))
}

fn is_unmeasured(entry: &Entry) -> bool {
    match &entry.outcome {
        Ok(Outcome::Traffic(traffic)) => traffic.cpu_s_per_million.is_none() && traffic.delivered_per_s > 0.0,
        Ok(Outcome::Idle(idle)) => idle.kib_each.is_none(),
        Ok(Outcome::Overload(overload)) => overload.rss_kib.is_none(),
        Err(_) => false,
    }
}

fn fault_words(faults: &Faults) -> String {
    let counts = [
        (faults.lost, "lost"),
        (faults.duplicated, "duplicated"),
        (faults.reordered, "reordered"),
        (faults.unsent, "not sent in time"),
        (faults.stalls, "windows given up"),
        (faults.closed, "connections closed by the broker"),
    ];
    let said = counts.into_iter().filter(|(count, _)| *count > 0);
    said.map(|(count, what)| format!("{} {what}", grouped(count as f64))).collect::<Vec<_>>().join(", ")
}

/// Everything, for programs.
pub(super) fn to_json(entries: &[Entry], secs: f64) -> Value {
    let rows: Vec<Value> = entries.iter().map(entry_json).collect();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({ "version": env!("CARGO_PKG_VERSION"), "secs": secs, "cores": cores, "rows": rows })
}

fn entry_json(entry: &Entry) -> Value {
    let mut row = match &entry.outcome {
        Ok(Outcome::Traffic(traffic)) => json!({
            "delivered_per_s": traffic.delivered_per_s,
            "cpu_s_per_million": traffic.cpu_s_per_million,
            "broker_cores": traffic.broker_cores,
            "generator_cores": traffic.generator_cores,
            "other_cores": traffic.other_cores,
            "rss_kib": traffic.rss_kib,
            "p50_us": traffic.p50_us,
            "p99_us": traffic.p99_us,
            "p999_us": traffic.p999_us,
            "faults": faults_json(&traffic.faults),
        }),
        Ok(Outcome::Idle(idle)) => json!({
            "connections": idle.connections,
            "connects_per_s": idle.connects_per_s,
            "rss_kib_per_connection": idle.kib_each,
        }),
        Ok(Outcome::Overload(overload)) => json!({
            "probe_p50_us": overload.probe_p50_us,
            "probe_p99_us": overload.probe_p99_us,
            "probe_faults": faults_json(&overload.probes),
            "rss_kib": overload.rss_kib,
            "sent": overload.sent,
            "delivered": overload.delivered,
            "delivered_per_s": overload.delivered_per_s,
            "dropped": overload.dropped(),
            "closed": overload.closed,
        }),
        Err(reason) => json!({ "error": reason }),
    };
    row["case"] = entry.case.into();
    row["broker"] = entry.broker.clone().into();
    row
}

fn faults_json(faults: &Faults) -> Value {
    json!({
        "lost": faults.lost,
        "duplicated": faults.duplicated,
        "reordered": faults.reordered,
        "unsent": faults.unsent,
        "stalls": faults.stalls,
        "closed": faults.closed,
    })
}

/// A count with a space between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(broker: &str, cost: Option<f64>, faults: Faults) -> Entry {
        let traffic = Traffic {
            delivered_per_s: 1_234_567.0,
            cpu_s_per_million: cost,
            broker_cores: None,
            generator_cores: 0.5,
            other_cores: None,
            rss_kib: None,
            p50_us: 90.0,
            p99_us: 200.4,
            p999_us: 300.0,
            faults,
        };
        Entry { case: "pairs q0", broker: broker.to_owned(), outcome: Ok(Outcome::Traffic(traffic)) }
    }

    #[test]
    fn columns_stand_below_their_names() {
        let entries = [entry("a", Some(0.5), Faults::default()), entry("b", Some(7.0), Faults::default())];
        let (head, line) = (header("tidegate", Some("mosquitto")), lines(&entries));
        assert_eq!(head.chars().count(), line.trim_end().chars().count(), "{head}\n{line}");
        assert!(line.contains("0.50    1 234 567          90/200"), "{line}");
        assert!(line.trim_end().ends_with("14.0×"), "{line}");
    }

    #[test]
    fn what_is_not_zero_is_said() {
        let bad = Faults { lost: 3, reordered: 1, ..Faults::default() };
        let text = notes(&[entry("a", Some(1.0), Faults::default()), entry("b", Some(1.0), bad)]);
        assert!(text.contains("pairs q0, b: 3 lost, 1 reordered\n"), "{text}");
        assert!(notes(&[entry("a", Some(1.0), Faults::default())]).contains("no message lost"));
        assert!(notes(&[entry("a", None, Faults::default())]).contains("Linux only"));
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0.0, "0"), (999.4, "999"), (1000.0, "1 000"), (1_234_567.0, "1 234 567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn json_names_case_and_broker_and_failures() {
        let failed = Entry { case: "overload", broker: "b".to_owned(), outcome: Err("ended".to_owned()) };
        let value = to_json(&[entry("a", None, Faults::default()), failed], 3.0);
        assert_eq!(value["rows"][0]["case"], "pairs q0");
        assert_eq!(value["rows"][0]["cpu_s_per_million"], Value::Null);
        assert_eq!(value["rows"][1]["error"], "ended");
    }
}
