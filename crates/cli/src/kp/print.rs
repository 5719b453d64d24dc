//! What is printed: rows, changes of a result, and how its pacer is; as lines or as JSON.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tidegate_client::{ChangeSource, ResultChange, Row, Term, WatchStats};
use tidegate_program::harmless;

pub(super) fn print_change(change: &ResultChange, order: &[String], is_json: bool) -> Result<()> {
    // Written as a whole, so that a line is never half of one.
    let mut out = std::io::stdout().lock();
    let source = match change.source {
        ChangeSource::Baseline => "baseline",
        ChangeSource::Notification => "notification",
        ChangeSource::Check => "check",
    };
    if is_json {
        let rows = |rows: &[Row]| rows.iter().map(binding).collect::<Vec<Value>>();
        let told = json!({"added": rows(&change.added), "removed": rows(&change.removed), "lost": change.lost,
                          "source": source});
        writeln!(out, "{told}")?;
    } else {
        if change.lost > 0 {
            writeln!(out, "! {} lost, found by {source}", change.lost)?;
        }
        for (sign, rows) in [("- ", &change.removed), ("+ ", &change.added)] {
            for row in rows {
                print_row(&mut out, sign, row, order, false)?;
            }
        }
    }
    Ok(out.flush()?)
}

pub(super) fn print_row(out: &mut impl Write, sign: &str, row: &Row, order: &[String], is_json: bool) -> Result<()> {
    if is_json {
        writeln!(out, "{}", binding(row))?;
    } else {
        let place = |name: &str| order.iter().position(|other| other == name).unwrap_or(usize::MAX);
        let mut bindings: Vec<(&str, &Term)> = row.iter().collect();
        bindings.sort_by_key(|(name, _)| place(name));
        // One binding at a time is how a row is written, whatever its order.
        let parts = bindings.into_iter().map(|(name, term)| Row::new([(name.into(), term.clone())]).to_string());
        writeln!(out, "{sign}{}", harmless(&parts.collect::<Vec<_>>().join(", ")))?;
    }
    Ok(())
}

/// The variables of a query in the order in which it names them: so a row is read as the query is.
pub(super) fn columns(sparql: &str) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for part in sparql.split(['?', '$']).skip(1) {
        let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !name.is_empty() && !columns.contains(&name) {
            columns.push(name);
        }
    }
    columns
}

/// A row as SPARQL's JSON has it.
fn binding(row: &Row) -> Value {
    let value = |term: &Term| match term {
        Term::Uri(text) => json!({"type": "uri", "value": text}),
        Term::Blank(text) => json!({"type": "bnode", "value": text}),
        Term::Literal { text, datatype, language } => {
            let mut value = json!({"type": "literal", "value": text});
            if let Some(language) = language {
                value["xml:lang"] = language.as_str().into();
            } else if let Some(datatype) = datatype {
                value["datatype"] = datatype.as_str().into();
            }
            value
        }
    };
    row.iter().map(|(name, term)| (name.to_owned(), value(term))).collect::<Map<_, _>>().into()
}

pub(super) fn print_pacer(stats: &WatchStats, is_polling: bool, is_json: bool) -> Result<()> {
    let (pacer, counts) = (&stats.pacer, &stats.counts);
    let lost = counts.gaps + counts.losses + counts.away;
    // Before the first one the estimate is only what is assumed.
    let losses = if lost == 0 { "none".to_owned() } else { format!("{:.4}/s", pacer.loss_rate) };
    let mut out = std::io::stdout().lock();
    if is_json {
        let told = json!({"pacer": {
            "level": pacer.level.name(), "ast_ms": pacer.ast.as_millis(), "rbt_ms": pacer.rbt.as_millis(),
            "stretch": pacer.stretch, "congested": pacer.congested, "loss_rate": pacer.loss_rate, "burst": pacer.burst,
            "live": stats.is_live, "rows": stats.rows, "notifications": counts.notifications, "checks": counts.checks,
            "answered": counts.answered, "denied": counts.denied, "failed": counts.failed, "gaps": counts.gaps,
            "losses": counts.losses, "away": counts.away, "delegations": counts.delegations,
            "delegated_ms": stats.delegated.map(|every| every.as_millis())}});
        writeln!(out, "{told}")?;
    } else {
        writeln!(
            out,
            "# {} {}  AST {:.2} s  RBT {:.2} s  stretch {:.2}{}  losses {losses}  checks {} ({} denied, {} failed)  \
             notified {}  lost {lost}",
            pacer.level,
            match stats.delegated {
                Some(every) => format!("delegated, every {:.1} s", every.as_secs_f64()),
                None if stats.is_live => "live".to_owned(),
                None if is_polling => "polling".to_owned(),
                None => "away".to_owned(),
            },
            pacer.ast.as_secs_f64(),
            pacer.rbt.as_secs_f64(),
            pacer.stretch,
            if pacer.congested { " congested" } else { "" },
            counts.checks,
            counts.denied,
            counts.failed,
            counts.notifications,
        )?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_as_the_query_names_them() {
        assert_eq!(columns("SELECT * { ?s ?p ?o }"), ["s", "p", "o"]);
        assert_eq!(columns("SELECT ?z (COUNT(?a) AS ?n) { ?a <urn:p> $z }"), ["z", "a", "n"]);
        let row = Row::new(["o", "p", "s"].map(|name| (name.into(), Term::Uri(format!("urn:{name}")))));
        let mut out = Vec::new();
        print_row(&mut out, "", &row, &columns("SELECT * { ?s ?p ?o }"), false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "?s = <urn:s>, ?p = <urn:p>, ?o = <urn:o>\n");
    }
}
