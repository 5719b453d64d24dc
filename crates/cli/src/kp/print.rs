//! What is printed: rows, changes of a result, and how its pacer is; as lines or as JSON.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tidegate_client::{ChangeSource, Level, PacerConfig, Parameter, ResultChange, Row, Term, WatchStats};
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

/// What a level of control has, by what it was told to be: the rest of a pacer's state moves, and nothing reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    level: Level,
    detector: bool,
    is_polling: bool,
}

impl Parts {
    pub(super) fn of(config: &PacerConfig, is_polling: bool) -> Self {
        Self { level: config.level, detector: config.ignores(Parameter::Detector).is_none(), is_polling }
    }

    fn ast(self) -> bool {
        matches!(self.level, Level::Adaptive | Level::Active)
    }

    fn rbt(self) -> bool {
        self.level == Level::Active
    }
}

pub(super) fn print_pacer(stats: &WatchStats, parts: Parts, is_json: bool) -> Result<()> {
    let told = if is_json { pacer_json(stats, parts).to_string() } else { pacer_line(stats, parts) };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}")?;
    Ok(out.flush()?)
}

fn pacer_json(stats: &WatchStats, parts: Parts) -> Value {
    let (pacer, counts) = (&stats.pacer, &stats.counts);
    let millis = |time: Duration| time.as_millis();
    json!({"pacer": {
        "level": pacer.level.name(), "ast_ms": parts.ast().then(|| millis(pacer.ast)),
        "rbt_ms": parts.rbt().then(|| millis(pacer.rbt)), "t_ms": stats.timeout.map(millis),
        "stretch": parts.rbt().then_some(pacer.stretch), "congested": parts.detector.then_some(pacer.congested),
        "loss_rate": pacer.loss_rate, "burst": pacer.burst,
        "live": stats.is_live, "rows": stats.rows, "notifications": counts.notifications, "checks": counts.checks,
        "answered": counts.answered, "denied": counts.denied, "failed": counts.failed, "gaps": counts.gaps,
        "losses": counts.losses, "away": counts.away, "delegations": counts.delegations,
        "delegated_ms": stats.delegated.map(millis)}})
}

fn pacer_line(stats: &WatchStats, parts: Parts) -> String {
    let (pacer, counts) = (&stats.pacer, &stats.counts);
    let lost = counts.gaps + counts.losses + counts.away;
    // Before the first one the estimate is only what is assumed.
    let losses = if lost == 0 { "none".to_owned() } else { format!("{:.4}/s", pacer.loss_rate) };
    let seconds = |is_there: bool, time: Duration| {
        if is_there { format!("{:.2} s", time.as_secs_f64()) } else { "–".to_owned() }
    };
    // AST and RBT say how long the others wait.
    let timeout = stats.timeout.filter(|_| !parts.ast()).map(|t| format!("t {}  ", seconds(true, t)));
    format!(
        "# {} {}  {}AST {}  RBT {}  stretch {}{}  losses {losses}  checks {} ({} denied, {} failed)  notified {}  lost {lost}",
        pacer.level,
        match stats.delegated {
            Some(every) => format!("delegated, every {:.1} s", every.as_secs_f64()),
            None if stats.is_live => "live".to_owned(),
            None if parts.is_polling => "polling".to_owned(),
            None => "away".to_owned(),
        },
        timeout.unwrap_or_default(),
        seconds(parts.ast(), pacer.ast),
        seconds(parts.rbt(), pacer.rbt),
        if parts.rbt() { format!("{:.2}", pacer.stretch) } else { "–".to_owned() },
        if parts.detector && pacer.congested { " congested" } else { "" },
        counts.checks,
        counts.denied,
        counts.failed,
        counts.notifications,
    )
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
