//! The answer as a page, with a time line, and the time line as a table.

use std::fmt::Write;

use super::account::{Bucket, Ends};
use super::said::{clock, rows, text};
use super::{Column, WhatIf};
use crate::report::svg::{Chart, CurveShape, Emphasis, Scale, Series, escaped};

const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
content=\"width=device-width\"><title>What if</title><style>:root{color-scheme:light dark}body{font:15px system-ui;margin:2em auto;\
max-width:60em;padding:0 1em}td,th{padding:.2em .8em;text-align:right}td:first-child,th:first-child{text-align:left}\
table{border-collapse:collapse}tr+tr{border-top:1px solid #8884}pre{overflow:auto;background:#8882;padding:1em}\
svg{max-width:100%;height:auto}</style>";

/// One file without anything from elsewhere.
pub fn html(title: &str, answer: &WhatIf) -> String {
    let mut page = format!("{HEAD}<h1>{}</h1><table><tr><th></th>", escaped(title));
    for column in &answer.columns {
        let _ = write!(page, "<th>{}</th>", escaped(&column.name));
    }
    page.push_str("</tr>");
    let tables: Vec<_> = answer.columns.iter().map(|column| rows(&column.account)).collect();
    for row in 0..tables.first().map_or(0, Vec::len) {
        let _ = write!(page, "<tr><td>{}</td>", tables[0][row].0.trim());
        for table in &tables {
            let _ = write!(page, "<td>{}</td>", table[row].1);
        }
        page.push_str("</tr>");
    }
    page.push_str("</table><h2>Over time</h2>");
    let rate = |bucket: &Bucket, step: f64| bucket.ends.messages as f64 / step;
    page.push_str(&chart("Messages a second", "messages/s", &answer.columns, rate));
    let late = |bucket: &Bucket, _: f64| bucket.latency.quantile(0.99) * 1e3;
    page.push_str(&chart("99 % of the messages arrive within", "ms", &answer.columns, late));
    let lost = |bucket: &Bucket, step: f64| bucket.ends.lost() as f64 / step;
    page.push_str(&chart("Lost or refused", "messages/s", &answer.columns, lost));
    let _ = write!(page, "<h2>In full</h2><pre>{}</pre>", escaped(&text(answer)));
    page.push_str("</html>\n");
    page
}

fn chart(title: &str, unit: &str, columns: &[Column], value: impl Fn(&Bucket, f64) -> f64) -> String {
    let last = columns.len().saturating_sub(1);
    let of = |(place, column): (usize, &Column)| {
        let timeline = &column.account.timeline;
        let step = timeline.get(1).map_or(1.0, |second| second.from - timeline[0].from);
        let points = timeline.iter().map(|bucket| (bucket.from / 60.0, value(bucket, step))).collect();
        let emphasis = if place == last { Emphasis::Bold } else { Emphasis::Plain };
        Series { emphasis, ..Series::new(column.name.clone(), CurveShape::Line, points) }
    };
    let series: Vec<Series> = columns.iter().enumerate().map(of).collect();
    let points = || series.iter().flat_map(|series| series.points.iter());
    let scales = Some([Scale::even(points().map(|it| it.0)), Scale::even(points().map(|it| it.1))]);
    let (x, y) = ("minutes since the recording began".to_owned(), unit.to_owned());
    Chart { title: title.to_owned(), x, y, scales, series, ..Chart::default() }.svg()
}

/// A line for each part of the time of each column.
pub fn timeline_csv(answer: &WhatIf) -> String {
    let mut csv =
        "column,from_s,clock,messages,waited,wait_mean_s,refused,shed,dropped,unsent,latency_p99_s\n".to_owned();
    for Column { name, account } in &answer.columns {
        for Bucket { from, ends, latency } in &account.timeline {
            let Ends { messages, waited, refused, shed, dropped, unsent, .. } = ends;
            let _ = writeln!(
                csv,
                "\"{name}\",{from:.3},{},{messages},{waited},{:.6},{refused},{shed},{dropped},{unsent},{:.6}",
                clock(*from),
                ends.wait_mean(),
                latency.quantile(0.99)
            );
        }
    }
    csv
}
