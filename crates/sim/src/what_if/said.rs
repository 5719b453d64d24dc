//! The answer for a terminal, and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::account::{Account, Bucket, Ends};
use super::{Column, WhatIf};

/// Lines of the time line on a terminal.
const LINES: usize = 24;
const BAR: usize = 30;

/// Everything in words and tables.
pub fn text(answer: &WhatIf) -> String {
    let mut out = String::new();
    compare(&mut out, &answer.columns);
    if let Some(column) = answer.columns.last() {
        groups(&mut out, column);
        worst(&mut out, column);
        timeline(&mut out, column);
    }
    let unnoticed: Vec<String> = answer
        .unnoticed
        .iter()
        .map(|(group, rate)| format!("{group}={}", rate.as_deref().unwrap_or("more than 20000/s")))
        .collect();
    let _ = writeln!(
        out,
        "\nThe least round limits under which nobody would have waited as recorded: {}",
        unnoticed.join(", ")
    );
    if answer.settings.is_empty() {
        let _ = writeln!(out, "\nNo setting was asked about: there is nothing to write (--limit, --set).");
    } else {
        let _ = writeln!(out, "\nThe settings to write, in tidegate.toml:\n\n{}", answer.settings.trim_end());
    }
    out
}

/// What is said of an account in the first table: what it is, and the value.
pub(super) fn rows(account: &Account) -> Vec<(&'static str, String)> {
    let all = account.all();
    let Ends { messages, waited, refused, shed, dropped, unsent, left, wait_max, .. } = all.ends;
    let of = |part: u64| share(part, messages);
    vec![
        ("publishers", all.publishers.to_string()),
        ("messages", messages.to_string()),
        ("in the busiest second", account.busiest.to_string()),
        ("waited at the gate", of(waited)),
        ("  mean of those", seconds(all.ends.wait_mean())),
        ("  longest", seconds(wait_max)),
        ("refused, and told so", of(refused)),
        ("dropped: would wait too long", of(shed)),
        ("not sent: socket full", of(unsent)),
        ("dropped: queue full", of(dropped)),
        ("under way at the end", left.to_string()),
        ("latency p50", seconds(all.latency.quantile(0.5))),
        ("latency p99", seconds(all.latency.quantile(0.99))),
        ("latency longest", seconds(all.latency.max())),
        ("publishers that wait or lose", account.affected.to_string()),
    ]
}

fn compare(out: &mut String, columns: &[Column]) {
    let tables: Vec<_> = columns.iter().map(|column| rows(&column.account)).collect();
    let wide = columns.iter().map(|column| column.name.len()).max().unwrap_or(0).max(12) + 2;
    let _ = write!(out, "{:<30}", "");
    for column in columns {
        let _ = write!(out, "{:>wide$}", column.name);
    }
    out.push('\n');
    for row in 0..tables.first().map_or(0, Vec::len) {
        let _ = write!(out, "{:<30}", tables[0][row].0);
        for table in &tables {
            let _ = write!(out, "{:>wide$}", table[row].1);
        }
        out.push('\n');
    }
}

fn groups(out: &mut String, column: &Column) {
    if column.account.groups.len() < 2 {
        return;
    }
    let _ = writeln!(out, "\nBy group, {}:", column.name);
    let _ = writeln!(
        out,
        "{:<16}{:>11}{:>11}{:>9}{:>11}{:>9}{:>9}{:>11}{:>11}",
        "", "publishers", "messages", "waited", "mean", "refused", "lost", "p50", "p99"
    );
    for group in &column.account.groups {
        let Ends { messages, waited, refused, .. } = group.ends;
        let _ = writeln!(
            out,
            "{:<16}{:>11}{:>11}{:>9}{:>11}{:>9}{:>9}{:>11}{:>11}",
            group.name,
            group.publishers,
            messages,
            share(waited, messages),
            seconds(group.ends.wait_mean()),
            share(refused, messages),
            share(group.ends.lost() - refused, messages),
            seconds(group.latency.quantile(0.5)),
            seconds(group.latency.quantile(0.99))
        );
    }
}

fn worst(out: &mut String, column: &Column) {
    if column.account.worst.is_empty() {
        let _ = writeln!(out, "\nNobody would wait at the gate or lose anything, {}.", column.name);
        return;
    }
    let _ =
        writeln!(out, "\nWho would wait or lose most, {} ({} publishers do):", column.name, column.account.affected);
    let _ = writeln!(
        out,
        "{:<12}{:<16}{:>11}{:>9}{:>11}{:>11}{:>9}{:>9}",
        "publisher", "group", "messages", "waited", "mean", "longest", "refused", "lost"
    );
    for publisher in &column.account.worst {
        let Ends { messages, waited, refused, wait_max, .. } = publisher.ends;
        let _ = writeln!(
            out,
            "{:<12}{:<16}{:>11}{:>9}{:>11}{:>11}{:>9}{:>9}",
            publisher.publisher,
            publisher.group,
            messages,
            waited,
            seconds(publisher.ends.wait_mean()),
            seconds(wait_max),
            refused,
            publisher.ends.lost() - refused
        );
    }
}

fn timeline(out: &mut String, column: &Column) {
    let buckets = merged(&column.account.timeline, LINES);
    let most = buckets.iter().map(|bucket| bucket.ends.messages).max().unwrap_or(0).max(1);
    let _ = writeln!(out, "\nOver time, {} (# messages, ~ of them waited, ! lost or refused):", column.name);
    let _ = writeln!(out, "{:>9} {:>10} {:>9} {:>9}", "from", "messages", "waited", "lost");
    for Bucket { from, ends, .. } in &buckets {
        let part = |count: u64| (count * BAR as u64).div_ceil(most) as usize;
        let (all, waited, lost) = (part(ends.messages), part(ends.waited), part(ends.lost()));
        let plain = all.saturating_sub(waited + lost);
        let bar = format!("{}{}{}", "#".repeat(plain), "~".repeat(waited.min(all)), "!".repeat(lost.min(all)));
        let _ = writeln!(out, "{:>9} {:>10} {:>9} {:>9}  {bar}", clock(*from), ends.messages, ends.waited, ends.lost());
    }
}

/// Neighbours together, so that there are so many at most. Latencies are left out.
fn merged(buckets: &[Bucket], most: usize) -> Vec<Bucket> {
    let together = buckets.len().div_ceil(most).max(1);
    let sum = |chunk: &[Bucket]| {
        let mut sum = Bucket { from: chunk[0].from, ..Bucket::default() };
        for Bucket { ends, .. } in chunk {
            sum.ends.messages += ends.messages;
            sum.ends.waited += ends.waited;
            sum.ends.refused += ends.refused;
            sum.ends.shed += ends.shed;
            sum.ends.dropped += ends.dropped;
            sum.ends.unsent += ends.unsent;
        }
        sum
    };
    buckets.chunks(together).map(sum).collect()
}

/// The same for programs.
pub fn json(answer: &WhatIf) -> Value {
    let ends = |ends: &Ends| {
        json!({
            "messages": ends.messages, "waited": ends.waited, "wait_mean_s": ends.wait_mean(), "wait_max_s": ends.wait_max,
            "refused": ends.refused, "shed": ends.shed, "dropped": ends.dropped, "unsent": ends.unsent, "left": ends.left,
        })
    };
    let column = |column: &Column| {
        let groups: Vec<Value> = column
            .account
            .groups
            .iter()
            .map(|group| {
                let latency = json!({
                    "p50_s": group.latency.quantile(0.5), "p99_s": group.latency.quantile(0.99), "max_s": group.latency.max(),
                });
                json!({ "group": group.name, "publishers": group.publishers, "ends": ends(&group.ends), "latency": latency })
            })
            .collect();
        let worst: Vec<Value> = column
            .account
            .worst
            .iter()
            .map(|it| json!({ "publisher": it.publisher, "group": it.group, "ends": ends(&it.ends) }))
            .collect();
        let timeline: Vec<Value> = column
            .account
            .timeline
            .iter()
            .map(|it| json!({ "from_s": it.from, "ends": ends(&it.ends), "p99_s": it.latency.quantile(0.99) }))
            .collect();
        json!({
            "name": column.name, "busiest_second": column.account.busiest, "affected": column.account.affected,
            "groups": groups, "worst": worst, "timeline": timeline,
        })
    };
    let columns: Vec<Value> = answer.columns.iter().map(column).collect();
    let unnoticed: serde_json::Map<String, Value> =
        answer.unnoticed.iter().map(|(group, rate)| (group.clone(), json!(rate))).collect();
    json!({ "columns": columns, "unnoticed": unnoticed, "settings": answer.settings })
}

fn share(part: u64, of: u64) -> String {
    if part == 0 { "0".to_owned() } else { format!("{:.2} %", 100.0 * part as f64 / of.max(1) as f64) }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds < 5e-7 => "0".to_owned(),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// Seconds since the beginning as people read them.
pub(super) fn clock(seconds: f64) -> String {
    let whole = seconds as u64;
    format!("{:02}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}
