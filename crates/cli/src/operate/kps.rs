//! `tidegate kps`: the knowledge processors (KPs) of the smart space that were heard of late, those that ask most first.

use anyhow::Result;
use serde_json::Value;

use super::table::{Align, Column, TextTable, number, shown, span};
use super::{out, print_json};
use crate::arguments::PlainArgs;

pub(crate) fn kps(args: &PlainArgs) -> Result<u8> {
    let answer = args.admin.client()?.get("/api/v1/kps")?;
    if args.json {
        return print_json(&answer);
    }
    out(&text(&answer));
    Ok(0)
}

fn text(answer: &Value) -> String {
    let rows = answer["kps"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return "no KP was heard of late\n".to_owned();
    }
    let (table, total) = (TextTable::of(KPS, &folded(rows)).text(), answer["total"].as_u64().unwrap_or(0) as usize);
    let rest = if total > rows.len() {
        format!("{} of {total} KPs, those that ask most\n", rows.len())
    } else {
        String::new()
    };
    table + &rest
}

/// Those that ask most, below the clients of `top`; nothing where there are none.
pub(super) fn in_top(answer: &Value) -> String {
    const SHOWN: [&str; 8] = ["KP", "CLASS", "REQUESTS", "ANSWERED", "REFUSED", "WAIT/ms", "HEARD", "ADDRESS"];
    let rows = answer["kps"].as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return String::new();
    }
    let columns: Vec<Column> = KPS.iter().filter(|(head, ..)| SHOWN.contains(head)).copied().collect();
    let rows = folded(rows);
    let rest = rows.len().saturating_sub(IN_TOP_MAX);
    let rest = if rest > 0 { format!("and {rest} more:  tidegate kps\n") } else { String::new() };
    format!("\n{}{rest}", TextTable::of(&columns, &rows[..rows.len().min(IN_TOP_MAX)]).text())
}

/// Those without a name of their own are one line, however many: each `tidegate kp` without `--node` is another.
fn folded(rows: &[Value]) -> Vec<Value> {
    let (mut folded, unnamed): (Vec<Value>, Vec<Value>) = rows.iter().cloned().partition(|row| !is_unnamed(row));
    if unnamed.len() < 2 {
        return rows.to_vec();
    }
    let mut all = unnamed[0].clone();
    for name in ["class", "role", "weight", "door", "user", "address"] {
        if unnamed.iter().any(|row| row[name] != all[name]) {
            all[name] = Value::Null;
        }
    }
    let of = |name: &str| unnamed.iter().map(|row| row[name].as_f64().unwrap_or(0.0)).collect::<Vec<f64>>();
    for name in ["requests", "answered", "refused", "limited", "outdated", "failed", "delegated"] {
        all[name] = (of(name).iter().sum::<f64>() as u64).into();
    }
    let answered: f64 = of("answered").iter().sum();
    let waited: f64 = of("waited_mean_ms").iter().zip(of("answered")).map(|(mean, count)| mean * count).sum();
    all["waited_mean_ms"] = (waited / answered.max(1.0)).into();
    all["waited_max_ms"] = of("waited_max_ms").into_iter().fold(0.0, f64::max).into();
    all["silent_s"] = (of("silent_s").into_iter().fold(f64::MAX, f64::min) as u64).into();
    all["name"] = format!("({} without a name)", unnamed.len()).into();
    // By its requests, as the others are.
    let requests = |row: &Value| row["requests"].as_u64().unwrap_or(0);
    let place = folded.iter().position(|row| requests(row) < requests(&all)).unwrap_or(folded.len());
    folded.insert(place, all);
    folded
}

/// Whether its name is one of chance, as our clients make them, or it has none.
fn is_unnamed(row: &Value) -> bool {
    let Some(name) = row["name"].as_str() else { return true };
    let is_hex = |rest: &str| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_prefix("tidegate-").is_some_and(is_hex)
}

/// KPs that stand in `top`.
pub(super) const IN_TOP_MAX: usize = 5;

const KPS: &[Column] = &[
    ("KP", Align::Left, "name", shown),
    ("CLASS", Align::Left, "class", shown),
    ("ROLE", Align::Left, "role", shown),
    ("SHARE", Align::Right, "weight", shown),
    ("REQUESTS", Align::Right, "requests", shown),
    ("ANSWERED", Align::Right, "answered", shown),
    ("REFUSED", Align::Right, "refused", shown),
    ("LIMITED", Align::Right, "limited", shown),
    ("OUTDATED", Align::Right, "outdated", shown),
    ("FAILED", Align::Right, "failed", shown),
    ("WAIT/ms", Align::Right, "waited_mean_ms", number),
    ("WORST/ms", Align::Right, "waited_max_ms", number),
    ("DELEGATED", Align::Right, "delegated", shown),
    ("HEARD", Align::Right, "silent_s", ago),
    ("PROTOCOL", Align::Left, "door", shown),
    ("USER", Align::Left, "user", shown),
    ("ADDRESS", Align::Left, "address", shown),
];

fn ago(value: &Value) -> String {
    format!("{} ago", span(value.as_u64().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn those_without_a_name_of_their_own_are_one_line() {
        let kp = |name: &str, requests: u64| {
            json!({ "name": name, "class": "normal", "weight": 1, "address": "10.0.0.7", "door": "http", "silent_s": requests,
                    "requests": requests, "answered": requests, "waited_mean_ms": 1.0, "waited_max_ms": requests })
        };
        let unnamed = |number: u64| kp(&format!("tidegate-{number:016x}"), number);
        let rows = [kp("lamp", 9), unnamed(3), kp("tidegate-x", 2), unnamed(2), unnamed(1)];
        let folded = folded(&rows);
        let names: Vec<&str> = folded.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!(names, ["lamp", "(3 without a name)", "tidegate-x"]);
        let all = &folded[1];
        assert_eq!((&all["requests"], &all["silent_s"], &all["class"]), (&6.into(), &1.into(), &"normal".into()));
        assert_eq!((all["waited_mean_ms"].as_f64(), all["waited_max_ms"].as_f64()), (Some(1.0), Some(3.0)));
        assert_eq!(super::folded(&rows[..2]).len(), 2, "one is as it is");
    }

    #[test]
    fn each_kp_has_a_line_and_what_is_left_out_is_said() {
        let kp = json!({
            "name": "lamp\u{1b}[1", "user": null, "address": "10.0.0.7", "door": "ssap", "class": "agents",
            "role": "service", "weight": 8, "silent_s": 90, "requests": 12, "answered": 10, "refused": 2, "limited": 7, "outdated": 0,
            "failed": 0, "waited_mean_ms": 0.25, "waited_max_ms": 12.5, "delegated": 1,
        });
        let lines = text(&json!({ "kps": [kp], "total": 3 }));
        for part in ["agents", "service", "10.0.0.7", "ssap", "12.5", "DELEGATED", "LIMITED", "1 of 3 KPs"] {
            assert!(lines.contains(part), "{part:?} in {lines}");
        }
        assert!(!lines.contains('\u{1b}'), "what a client says does not reach the terminal as it is");
        assert_eq!(text(&json!({ "kps": [], "total": 0 })), "no KP was heard of late\n");
        let many = vec![json!({ "name": "lamp", "requests": 7, "silent_s": 0 }); IN_TOP_MAX + 2];
        let short = in_top(&json!({ "kps": many }));
        assert_eq!(short.matches("lamp").count(), IN_TOP_MAX);
        assert!(short.contains("REQUESTS") && short.ends_with("and 2 more:  tidegate kps\n"), "{short}");
        assert_eq!(in_top(&json!({ "kps": [] })), "");
    }
}
