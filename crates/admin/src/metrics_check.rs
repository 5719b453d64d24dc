//! A checker of OpenMetrics text, for tests: what a scraper would stumble over, and what we promise besides.

use std::collections::{BTreeMap, BTreeSet};

/// The first thing that is wrong.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let (mut families, mut helped, mut series) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut units = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    // By name and labels other than the limit: the last limit, its count, and whether sum and count were said.
    let mut buckets: BTreeMap<String, (f64, f64, u8)> = BTreeMap::new();
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
            if !helped.insert(name.clone()) {
                return wrong("help twice");
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (_, unit) = rest.split_once(' ').ok_or(format!("no unit: {line}"))?;
            if rest != format!("{name} {unit}") || !name.ends_with(&format!("_{unit}")) {
                return wrong("a unit that the name does not end with");
            }
            units.insert(name.clone());
            continue;
        }
        if !helped.contains(name) {
            return wrong("no help before it");
        }
        if ["_seconds", "_bytes"].iter().any(|unit| name.ends_with(unit)) != units.contains(name) {
            return wrong("no unit, or one without a name");
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
        let others = labels.iter().filter(|(label, _)| label != "le");
        let of = format!("{name} {:?}", others.collect::<Vec<_>>());
        if suffix == "_bucket" {
            let Some((_, limit)) = labels.iter().find(|(label, _)| label == "le") else { return wrong("no limit") };
            let limit = if limit == "+Inf" { f64::INFINITY } else { limit.parse().map_err(|_| line.to_owned())? };
            let (below, count, said) = buckets.get(&of).copied().unwrap_or((f64::NEG_INFINITY, 0.0, 0));
            if limit <= below || value < count || said != 0 {
                return wrong("buckets that do not grow");
            }
            buckets.insert(of, (limit, value, 0));
        } else if kind == "histogram" {
            match buckets.get_mut(&of) {
                Some((limit, count, said)) if *limit == f64::INFINITY && (suffix == "_sum" || *count == value) => {
                    *said += 1;
                }
                _ => return wrong("the count is not that of the last bucket"),
            }
        }
    }
    let is_whole = |(_, (.., said)): (&String, &(f64, f64, u8))| *said == 2;
    if buckets.iter().all(is_whole) { Ok(()) } else { Err("a histogram without sum or count".to_owned()) }
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
            "# TYPE tidegate_h histogram\n# HELP tidegate_h Such.\ntidegate_h_bucket{{le=\"1\"}} 3\n\
             tidegate_h_bucket{{le=\"+Inf\"}} {second}\ntidegate_h_sum 1\ntidegate_h_count {count}\n# EOF\n"
        )
    };
    assert_eq!(check(&histogram(4, 4)), Ok(()));
    assert!(check(&histogram(2, 2)).is_err() && check(&histogram(4, 5)).is_err());
    for gone in ["tidegate_h_sum 1\n", "tidegate_h_bucket{le=\"+Inf\"} 4\n", "# HELP tidegate_h Such.\n"] {
        assert!(check(&histogram(4, 4).replace(gone, "")).is_err(), "{gone}");
    }
    let unit = "# TYPE tidegate_x_bytes gauge\n# UNIT tidegate_x_bytes bytes\n# HELP tidegate_x_bytes X.\ntidegate_x_bytes 1\n# EOF\n";
    assert_eq!(check(unit), Ok(()));
    assert!(check(&unit.replace("UNIT tidegate_x_bytes bytes", "UNIT tidegate_x_bytes seconds")).is_err());
    assert!(check(&unit.replace("# UNIT tidegate_x_bytes bytes\n", "")).is_err());
}
