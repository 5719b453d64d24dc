//! Numbers with their names, before it is known who reads them: `/metrics` as OpenMetrics text, a collector as OTLP.
//!
//! A family has one meaning, one type and one unit; its samples differ by labels, whose values come from closed sets.

use std::fmt::Write;

use tidegate_control::Spread;

/// All families, in order.
#[derive(Debug, Default)]
pub(crate) struct MetricsPage(Vec<Family>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

#[derive(Debug)]
pub(crate) struct Family {
    /// With the prefix, and without what is appended to samples.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    /// One sentence.
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: MetricValue,
}

#[derive(Debug)]
pub(crate) enum MetricValue {
    Whole(u64),
    Real(f64),
    Buckets(Buckets),
}

/// A histogram as both readers want it.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// Inclusive; one less than there are buckets.
    pub(crate) limits: Vec<f64>,
    /// Not cumulative.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Buckets {
    pub(crate) fn seconds(spread: &Spread) -> Self {
        let limits = (0..Spread::BUCKETS).filter_map(Spread::limit_seconds).collect();
        Self { limits, counts: spread.buckets.to_vec(), sum: spread.sum_seconds() }
    }

    pub(crate) fn ratio(spread: &Spread) -> Self {
        let limits = (0..Spread::BUCKETS).filter_map(Spread::limit_ratio).collect();
        Self { limits, counts: spread.buckets.to_vec(), sum: spread.sum_ratio() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl From<u64> for MetricValue {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for MetricValue {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<Buckets> for MetricValue {
    fn from(buckets: Buckets) -> Self {
        Self::Buckets(buckets)
    }
}

impl Family {
    /// The unit, as the name of the metric ends.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes"].into_iter().find(|unit| self.name.ends_with(&format!("_{unit}")))
    }
}

impl MetricsPage {
    pub(crate) fn families(&self) -> &[Family] {
        &self.0
    }

    /// A family of ours.
    pub(crate) fn family(&mut self, name: &str, kind: MetricKind, help: &'static str) -> &mut Family {
        self.plain_family(format!("tidegate_{name}"), kind, help)
    }

    /// A family that all exporters share has no prefix.
    pub(crate) fn plain_family(&mut self, name: String, kind: MetricKind, help: &'static str) -> &mut Family {
        self.0.push(Family { name, kind, help, samples: Vec::new() });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// One number that goes up and down.
    pub(crate) fn gauge(&mut self, name: &str, help: &'static str, value: impl Into<MetricValue>) {
        self.family(name, MetricKind::Gauge, help).put([], value);
    }

    /// One number that only ever grows.
    pub(crate) fn counter(&mut self, name: &str, help: &'static str, value: u64) {
        self.family(name, MetricKind::Counter, help).put([], value);
    }

    /// One histogram.
    pub(crate) fn histogram(&mut self, name: &str, help: &'static str, buckets: Buckets) {
        self.family(name, MetricKind::Histogram, help).put([], buckets);
    }

    /// OpenMetrics 1.0.
    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(64 * 1024);
        for family in &self.0 {
            family.write(&mut text);
        }
        text.push_str("# EOF\n");
        text
    }
}

impl Family {
    pub(crate) fn put<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: impl Into<MetricValue>) {
        self.put_all(labels.map(|(name, value)| (name, value.to_owned())).into(), value);
    }

    pub(crate) fn put_all(&mut self, labels: Vec<(&'static str, String)>, value: impl Into<MetricValue>) {
        self.samples.push(Sample { labels, value: value.into() });
    }

    // Writing to a string cannot fail.
    fn write(&self, text: &mut String) {
        let Self { name, help, .. } = self;
        let (kind, suffix) = match self.kind {
            MetricKind::Counter => ("counter", "_total"),
            MetricKind::Gauge => ("gauge", ""),
            MetricKind::Histogram => ("histogram", ""),
            MetricKind::Info => ("info", "_info"),
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if let Some(unit) = self.unit() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for Sample { labels, value } in &self.samples {
            let labels = labels_text(labels);
            let _ = match value {
                MetricValue::Whole(number) => writeln!(text, "{name}{suffix}{} {number}", in_braces(&labels)),
                MetricValue::Real(number) => writeln!(text, "{name}{suffix}{} {number}", in_braces(&labels)),
                MetricValue::Buckets(buckets) => buckets.write(text, name, &labels),
            };
        }
    }
}

impl Buckets {
    fn write(&self, text: &mut String, name: &str, labels: &str) -> std::fmt::Result {
        let (mut so_far, comma) = (0, if labels.is_empty() { "" } else { "," });
        let limits = self.limits.iter().copied().map(Some).chain([None]);
        for (count, limit) in self.counts.iter().zip(limits) {
            so_far += count;
            match limit {
                Some(limit) => writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{limit}\"}} {so_far}")?,
                None => writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {so_far}")?,
            }
        }
        let labels = in_braces(labels);
        writeln!(text, "{name}_sum{labels} {}\n{name}_count{labels} {so_far}", self.sum)
    }
}

fn labels_text(labels: &[(&'static str, String)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    labels.join(",")
}

fn in_braces(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

/// A label value has three characters that mean something.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_openmetrics() {
        let mut page = MetricsPage::default();
        page.counter("things", "Things.", 3);
        page.family("odd_seconds", MetricKind::Gauge, "Odd.").put([("class", "a \"b\"\\")], 0.25);
        let (limits, counts) = (vec![1.0, 2.0], vec![4, 0, 1]);
        page.family("times_seconds", MetricKind::Histogram, "Times.")
            .put([("op", "x")], Buckets { limits, counts, sum: 7.5 });
        let expected = "# TYPE tidegate_things counter\n# HELP tidegate_things Things.\ntidegate_things_total 3\n\
             # TYPE tidegate_odd_seconds gauge\n# UNIT tidegate_odd_seconds seconds\n# HELP tidegate_odd_seconds Odd.\n\
             tidegate_odd_seconds{class=\"a \\\"b\\\"\\\\\"} 0.25\n\
             # TYPE tidegate_times_seconds histogram\n# UNIT tidegate_times_seconds seconds\n\
             # HELP tidegate_times_seconds Times.\n\
             tidegate_times_seconds_bucket{op=\"x\",le=\"1\"} 4\ntidegate_times_seconds_bucket{op=\"x\",le=\"2\"} 4\n\
             tidegate_times_seconds_bucket{op=\"x\",le=\"+Inf\"} 5\ntidegate_times_seconds_sum{op=\"x\"} 7.5\n\
             tidegate_times_seconds_count{op=\"x\"} 5\n# EOF\n";
        assert_eq!(page.text(), expected);
        assert_eq!(crate::metrics_check::check(expected), Ok(()));
    }
}
