//! An hour of what went on: the last minutes second by second, the rest in points of ten seconds. Pure: it is given
//! points and never looks at a clock.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::limits::{HISTORY_SECONDS, HISTORY_TENS};

/// One moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Seconds of the Unix epoch.
    pub(crate) at: u64,
    pub(crate) values: [f64; FIELDS.len()],
}

/// How a point of ten seconds comes from ten of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    Mean,
    Max,
}

/// Names of the values, in order.
const FIELDS: [(&str, Merge); 16] = [
    ("level", Merge::Max),
    ("received", Merge::Mean),
    ("passed", Merge::Mean),
    ("delivered", Merge::Mean),
    ("lost", Merge::Mean),
    ("refused", Merge::Mean),
    ("bytes_received", Merge::Mean),
    ("bytes_sent", Merge::Mean),
    ("connected", Merge::Max),
    ("throttled", Merge::Max),
    ("held", Merge::Max),
    ("queued", Merge::Max),
    ("memory_used", Merge::Max),
    ("latency_p50_ms", Merge::Mean),
    ("latency_p99_ms", Merge::Max),
    ("cpu_cores", Merge::Mean),
];

#[derive(Debug, Default)]
pub(crate) struct History {
    seconds: VecDeque<Point>,
    tens: VecDeque<Point>,
    /// Points since the last one of ten.
    pending: usize,
}

impl History {
    pub(crate) fn push(&mut self, point: Point) {
        keep(&mut self.seconds, point, HISTORY_SECONDS);
        self.pending += 1;
        if self.pending == 10 {
            self.pending = 0;
            let last: Vec<Point> = self.seconds.iter().rev().take(10).copied().collect();
            let merged = merged(&last, point.at);
            keep(&mut self.tens, merged, HISTORY_TENS);
        }
    }

    /// The last so many seconds, in the finest points that reach so far.
    pub(crate) fn json(&self, span: u64) -> Value {
        let is_fine = span <= HISTORY_SECONDS as u64;
        let (points, step) = if is_fine { (&self.seconds, 1) } else { (&self.tens, 10) };
        let from = points.back().map_or(0, |last| last.at.saturating_sub(span));
        let row = |point: &Point| {
            let mut row = vec![json!(point.at)];
            row.extend(point.values.iter().map(|value| json!((value * 100.0).round() / 100.0)));
            Value::Array(row)
        };
        let rows: Vec<Value> = points.iter().filter(|point| point.at > from).map(row).collect();
        let mut names = vec!["at"];
        names.extend(FIELDS.iter().map(|(name, _)| *name));
        json!({ "step_s": step, "fields": names, "points": rows })
    }
}

fn keep(points: &mut VecDeque<Point>, point: Point, most: usize) {
    if points.len() >= most {
        points.pop_front();
    }
    points.push_back(point);
}

fn merged(points: &[Point], at: u64) -> Point {
    let count = points.len().max(1) as f64;
    let mut values = [0.0; FIELDS.len()];
    for (place, (value, (_, merge))) in values.iter_mut().zip(FIELDS).enumerate() {
        let all = points.iter().map(|point| point.values.get(place).copied().unwrap_or(0.0));
        *value = match merge {
            Merge::Mean => all.sum::<f64>() / count,
            Merge::Max => all.fold(0.0, f64::max),
        };
    }
    Point { at, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = History::default();
        for at in 1..=10_000_u64 {
            history.push(Point { at, values: [at as f64; FIELDS.len()] });
        }
        assert_eq!((history.seconds.len(), history.tens.len()), (HISTORY_SECONDS, HISTORY_TENS));
        let hour = history.json(3600);
        let points = hour["points"].as_array().unwrap();
        assert_eq!((points.len(), &hour["step_s"]), (360, &json!(10)));
        assert_eq!(points[359][0], 10_000);
        assert_eq!(
            (&points[359][1], &points[359][2]),
            (&json!(10_000.0), &json!(9995.5)),
            "the worst level, mean rates"
        );
        assert_eq!(history.json(60)["points"].as_array().unwrap().len(), 60);
        assert_eq!(hour["fields"].as_array().unwrap().len(), points[0].as_array().unwrap().len());
        assert_eq!(History::default().json(60)["points"], json!([]));
    }
}
