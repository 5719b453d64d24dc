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
    let (table, total) = (TextTable::of(KPS, rows).text(), answer["total"].as_u64().unwrap_or(0) as usize);
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
    let rest = rows.len().saturating_sub(IN_TOP_MAX);
    let rest = if rest > 0 { format!("and {rest} more:  tidegate kps\n") } else { String::new() };
    format!("\n{}{rest}", TextTable::of(&columns, &rows[..rows.len().min(IN_TOP_MAX)]).text())
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
