//! A checker of OpenMetrics text, for tests: what a scraper would stumble over, and what we promise besides.

use std::collections::{BTreeMap, BTreeSet};

/// The first thing that is wrong.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let mut family: Option<(String, String)> = None;
    let mut buckets: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in body.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { return wrong("no type") };
            if !is_name(name) || !(name.starts_with("tidegate_") || name.starts_with("process_")) {
                return wrong("a bad name");
            }
            if !["gauge", "counter", "histogram", "info"].contains(&kind) {
                return wrong("an unknown type");
            }
            if name.ends_with("_total") || !families.insert(name.to_owned()) {
                return wrong("a family twice, or named like a sample");
            }
            family = Some((name.to_owned(), kind.to_owned()));
            continue;
        }
        let Some((name, kind)) = &family else { return wrong("no family before it") };
        if let Some(rest) = line.strip_prefix("# HELP ") {
            if rest.split_once(' ').is_none_or(|(other, help)| other != name || !help.ends_with('.')) {
                return wrong("help of another family, or no sentence");
            }
            continue;
        }
        let Some((sample, value)) = line.rsplit_once(' ') else { return wrong("no value") };
        let Ok(value) = value.parse::<f64>() else { return wrong("not a number") };
        if !series.insert(sample.to_owned()) {
            return wrong("twice");
        }
        let (base, labels) = sample.split_once('{').map_or((sample, ""), |(base, labels)| (base, labels));
        let labels = if labels.is_empty() { Vec::new() } else { labels_of(labels).ok_or(format!("labels: {line}"))? };
        let suffix = base.strip_prefix(name.as_str()).ok_or(format!("not of {name}: {line}"))?;
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        if !allowed.contains(&suffix) || (kind == "counter" && value < 0.0) {
            return wrong("not a sample of its type");
        }
        if suffix == "_bucket" {
            let Some((_, limit)) = labels.iter().find(|(label, _)| label == "le") else { return wrong("no limit") };
            let limit = if limit == "+Inf" { f64::INFINITY } else { limit.parse().map_err(|_| line.to_owned())? };
            let (below, count) = buckets.get(name).copied().unwrap_or((f64::NEG_INFINITY, 0.0));
            if limit <= below || value < count {
                return wrong("buckets that do not grow");
            }
            buckets.insert(name.clone(), (limit, value));
        }
        if suffix == "_count" && buckets.get(name) != Some(&(f64::INFINITY, value)) {
            return wrong("the count is not that of the last bucket");
        }
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Names and values up to the brace.
fn labels_of(text: &str) -> Option<Vec<(String, String)>> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(letters.next().filter(|(_, letter)| "\\\"n".contains(*letter))?.1),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((name.to_owned(), value));
        rest = after.get(end..)?;
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (rest == "}").then_some(labels),
        }
    }
}

#[test]
fn what_is_wrong_is_found() {
    let good = "# TYPE tidegate_a counter\n# HELP tidegate_a Things.\ntidegate_a_total{x=\"1\\\"\",y=\"\"} 1\n# EOF\n";
    assert_eq!(check(good), Ok(()));
    for (from, to) in [
        ("# EOF\n", ""),
        ("_total{", "{"),
        (" 1\n#", " x\n#"),
        ("Things.", "Things"),
        ("counter", "count"),
        ("\\\"\"", "\\q\""),
        ("y=\"\"}", "y=\"\""),
        ("tidegate_a_total", "tidegate_b_total"),
        (" 1\n", " 1\ntidegate_a_total{x=\"1\\\"\",y=\"\"} 1\n"),
    ] {
        assert!(check(&good.replacen(from, to, 1)).is_err(), "{from:?} → {to:?}");
    }
    let histogram = |second: u32, count: u32| {
        format!(
            "# TYPE tidegate_h histogram\ntidegate_h_bucket{{le=\"1\"}} 3\ntidegate_h_bucket{{le=\"+Inf\"}} {second}\n\
             tidegate_h_sum 1\ntidegate_h_count {count}\n# EOF\n"
        )
    };
    assert_eq!(check(&histogram(4, 4)), Ok(()));
    assert!(check(&histogram(2, 2)).is_err() && check(&histogram(4, 5)).is_err());
}
