//! What is said on the wire: answers and indications.

use std::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_graph::Row;
use tidegate_wire_ssap::{AnswerWriter, RowWriter, SEQUENCE_MAX, SsapHeader, Status, write_triples};

use super::plan::{ReplyForm, Rows, status_of};
use super::terms::triple_of;
use crate::change::{Manner, WrittenChange};
use crate::http::problem::{LIMITED, OUTDATED};
use crate::limits::DISK_RETRY;
use crate::machine::notification::delegation_hints;
use crate::machine::request::{Begun, Refused, ResponseBody, SpaceResponse, Subscribed};
use crate::render::write_row;

/// A status and nothing else. The words are for people; clients pass over parameters that they do not know.
pub(crate) fn status(header: &SsapHeader, status: Status, words: &str, out: &mut String) {
    let message = AnswerWriter::confirm(header, status, out);
    if words.is_empty() { message.finish() } else { message.text("reason", words).finish() }
}

/// The answer to a change, a question or a rule.
pub(crate) fn answer(
    header: &SsapHeader,
    reply: &ReplyForm,
    answered: &SpaceResponse,
    is_told: bool,
    out: &mut String,
) {
    let confirm = |out| {
        let message = AnswerWriter::confirm(header, Status::Success, out);
        if is_told {
            paced(message.text("pace-version", &answered.version.to_string()), &answered.hints)
        } else {
            message
        }
    };
    match (reply, &answered.answer) {
        (
            ReplyForm::Blanks { confirm: false, .. }
            | ReplyForm::Status { confirm: false }
            | ReplyForm::Rule { confirm: false },
            _,
        ) => {}
        (ReplyForm::Blanks { names, .. }, ResponseBody::Changed { blanks, .. }) => {
            let given = names.iter().map(|(label, name)| (label.as_str(), name.as_str()));
            let made = blanks.iter().map(|(label, name)| (label.as_str(), name.as_str()));
            confirm(out).blank_nodes(given.chain(made)).finish();
        }
        (ReplyForm::Results, ResponseBody::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            confirm(out).with("results", |out| out.push_str(text)).finish();
        }
        (ReplyForm::Truth, ResponseBody::Changed { is_change, .. }) => {
            let write = |out: &mut String| tidegate_wire_ssap::write_boolean(*is_change, out);
            confirm(out).with("results", write).finish();
        }
        (ReplyForm::Rule { .. }, ResponseBody::Rule(name)) => {
            confirm(out).text("update_id", name).finish();
        }
        _ => confirm(out).finish(),
    }
}

/// The client has the answer already; there is no `results`.
pub(crate) fn not_modified(header: &SsapHeader, version: u64, out: &mut String) {
    let message = AnswerWriter::confirm(header, Status::Success, out).text("pace-not-modified", "TRUE");
    message.text("pace-version", &version.to_string()).finish();
}

/// What is said about pace, beside everything else.
fn paced<'a>(mut message: AnswerWriter<'a>, hints: &Hints) -> AnswerWriter<'a> {
    let mut pairs = Vec::new();
    hints.write(|name, text| pairs.push((name, text)));
    for (name, text) in pairs {
        message = message.text(name, &text);
    }
    message
}

/// Why there is no answer, and when to come back.
pub(crate) fn refusal(header: &SsapHeader, refused: &Refused, out: &mut String) {
    let after = |retry_after| Hints { retry_after, ..Hints::default() };
    let (status, words, hints) = match refused {
        Refused::Busy(hints) => (Status::OutOfResources, "too much to do".to_owned(), (**hints).clone()),
        Refused::Limited(time) => (Status::OutOfResources, LIMITED.to_owned(), after(Some(*time))),
        Refused::Late => (Status::OutOfResources, "not done in time, nothing was changed".to_owned(), after(None)),
        Refused::Dropped => (Status::OutOfResources, "there is too much to do".to_owned(), after(None)),
        Refused::Outdated => (Status::OutOfResources, OUTDATED.to_owned(), after(None)),
        Refused::Unwritable => {
            (Status::OutOfResources, "the disk fails; nothing was changed".to_owned(), after(Some(DISK_RETRY)))
        }
        Refused::Unconfirmed => {
            (Status::SibError, "the disk fails; what is stored is not known".to_owned(), after(None))
        }
        // Not for want of room: the same question has the same answer, and nobody shall come back with it.
        Refused::TooLong => (Status::KpRequest, "the answer is too long; use LIMIT".to_owned(), after(None)),
        Refused::Closing => (Status::Closing, "the broker ends".to_owned(), after(None)),
        Refused::Panicked => (Status::SibError, "an internal error, which is logged".to_owned(), after(None)),
        Refused::Unavailable(condition) => {
            (Status::OutOfResources, condition.words().to_owned(), after(Some(condition.retry_after())))
        }
        Refused::Declined(_) => (Status::KpRequest, "declined".to_owned(), after(None)),
        Refused::Failed(error) => (status_of(error), error.to_string(), after(None)),
    };
    paced(AnswerWriter::confirm(header, status, out).text("reason", &words), &hints).finish();
}

/// A subscription as it is written about.
#[derive(Clone, Debug)]
pub(crate) struct SsapSubscription {
    pub(crate) header: SsapHeader,
    /// Its name on the wire.
    pub(crate) name: String,
    pub(crate) rows: Rows,
    pub(crate) variables: Vec<String>,
}

/// Numbers begin again at 1 after the highest.
fn in_circle(sequence: u64) -> u32 {
    ((sequence.saturating_sub(1)) % u64::from(SEQUENCE_MAX)) as u32 + 1
}

impl SsapSubscription {
    pub(crate) fn new(header: SsapHeader, subscribed: &Subscribed, rows: Rows) -> Self {
        let variables = match &subscribed.begun {
            Begun::Whole(baseline) => &baseline.variables,
            Begun::Missed { variables, .. } => variables,
        };
        let variables = variables.iter().map(|name| name.as_str().to_owned()).collect();
        Self { header, name: subscribed.name.clone(), rows, variables }
    }

    /// The first answer. Whoever came back is told whether it is what was missed, or the whole result again.
    /// Whoever speaks of pace is told about it.
    pub(crate) fn begin(&self, begun: &Begun, is_return: bool, hints: Option<&Hints>, out: &mut String) {
        let mut message = AnswerWriter::confirm(&self.header, Status::Success, out).text("subscription_id", &self.name);
        if let Some(hints) = hints {
            message = paced(message, hints);
        }
        if is_return {
            message = message.text("resumed", if matches!(begun, Begun::Missed { .. }) { "TRUE" } else { "FALSE" });
        }
        match begun {
            Begun::Whole(baseline) => message.with("results", |out| self.write(&baseline.rows, out)).finish(),
            Begun::Missed { sequence, delta, .. } => message
                .text("ind_sequence", &in_circle(*sequence).to_string())
                .with("new_results", |out| self.write(&delta.added, out))
                .with("obsolete_results", |out| self.write(&delta.removed, out))
                .finish(),
        }
    }

    /// Tells of a change. Numbers are consecutive even if changes were merged: each says all that is new.
    /// Rows are written once for all who are told the same.
    pub(crate) fn indication(&self, sequence: u64, change: &WrittenChange, out: &mut String) {
        let side = |rows: &[Row]| {
            let mut text = String::new();
            // An empty text for no rows of SPARQL: what clients expect of one side only.
            if !(rows.is_empty() && self.rows == Rows::Sparql) {
                self.write(rows, &mut text);
            }
            text
        };
        let (added, removed) = match self.rows {
            Rows::Triples => (Manner::TriplesAdded, Manner::TriplesRemoved),
            Rows::Sparql => (Manner::RowsAdded, Manner::RowsRemoved),
        };
        AnswerWriter::indication(&self.header, in_circle(sequence), &self.name, out)
            .with("new_results", |out| out.push_str(change.written(added, || side(&change.added))))
            .with("obsolete_results", |out| out.push_str(change.written(removed, || side(&change.removed))))
            .finish();
    }

    /// Nothing is new, but who brings what will be: said with the number of the last change.
    pub(crate) fn delegated(&self, sequence: u64, every: Option<Duration>, out: &mut String) {
        let number = if sequence == 0 { 0 } else { in_circle(sequence) };
        let message = AnswerWriter::indication(&self.header, number, &self.name, out);
        let message = message.text("new_results", "").text("obsolete_results", "");
        paced(message, &delegation_hints(every)).finish();
    }

    /// The broker ends it; with many others if its client is to come back within a time.
    pub(crate) fn ended(&self, status: Status, words: &str, spread: Option<Duration>, out: &mut String) {
        let message = AnswerWriter::ended(&self.header, status, &self.name, out).text("reason", words);
        paced(message, &Hints { spread, ..Hints::default() }).finish();
    }

    /// The client ends it, by a request that may have come elsewhere.
    pub(crate) fn left(&self, request: &SsapHeader, out: &mut String) {
        AnswerWriter::confirm(request, Status::Success, out).text("subscription_id", &self.name).finish();
    }

    fn write(&self, rows: &[Row], out: &mut String) {
        match self.rows {
            Rows::Triples => {
                let triples: Vec<_> = rows.iter().filter_map(triple_of_row).collect();
                write_triples(&triples, out);
            }
            Rows::Sparql => {
                let mut writer = RowWriter::new(&self.variables, out);
                for row in rows {
                    write_row(&mut writer, row);
                }
                writer.finish();
            }
        }
    }
}

fn triple_of_row(row: &Row) -> Option<tidegate_wire_ssap::Triple<'static>> {
    let term = |place: usize| row.get(place).and_then(Option::as_ref);
    Some(triple_of(term(0)?, term(1)?, term(2)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn header() -> SsapHeader {
        let text = |text: &str| text.into();
        SsapHeader {
            transaction_type: text("SUBSCRIBE"),
            message_type: text("REQUEST"),
            transaction_id: text("7"),
            node_id: text("kp1"),
            space_id: text("X"),
        }
    }

    #[test]
    fn numbers_begin_at_one_and_again_after_9999() {
        let (rows, variables) = (Rows::Triples, Vec::new());
        let subscription = SsapSubscription { header: header(), name: "s".into(), rows, variables };
        for (sequence, number) in [(1, 1), (2, 2), (9999, 9999), (10_000, 1), (20_000, 2)] {
            let mut out = String::new();
            subscription.indication(sequence, &WrittenChange::from(Arc::default()), &mut out);
            assert!(out.contains("<parameter name=\"new_results\"><triple_list></triple_list></parameter>"), "{out}");
            let number = format!("<parameter name=\"ind_sequence\">{number}</parameter>");
            assert!(out.contains(&number), "{out}");
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let mut out = String::new();
        refusal(&header(), &Refused::busy(Duration::from_millis(120)), &mut out);
        assert!(out.contains("<parameter name=\"status\">m3:SIB.Failure.OutOfResources</parameter>"), "{out}");
        assert!(out.contains("<parameter name=\"pace-retry-after-ms\">120</parameter>"), "{out}");
    }

    #[test]
    fn an_answer_that_is_too_long_is_no_reason_to_come_back() {
        let mut out = String::new();
        refusal(&header(), &Refused::TooLong, &mut out);
        assert!(out.contains("<parameter name=\"status\">m3:KP.Error.Request</parameter>"), "{out}");
        assert!(!out.contains("pace-retry-after-ms"), "{out}");
    }
}
