//! What other devices, limits and settings would have done with a recorded day: the question, the runs, and what is said of
//! them. Pure: a trace and words go in, numbers and texts come out.
//!
//! ```text
//! as recorded       the trace through the broker as it ships
//! more devices      each device several times, each copy at times of its own
//! with settings     the same load, under the limits and settings that were asked about
//! ```
//! Publishers do not react: what they sent, they send again. One reader takes everything.

mod account;
mod page;
mod question;
mod rates;
mod said;
mod settings;

pub use account::{Account, Bucket, GroupAccount, PublisherAccount};
pub use page::{html, timeline_csv};
pub use question::{Devices, Limit, Question};
pub use said::{json, text};

use tidegate_core::trace::{ALL, Trace};

use crate::broker::{self, Imposed, Order, Publishers};

/// One column: what was run, and what came of it.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its head.
    pub name: String,
    pub account: Account,
}

/// Everything that is said.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// The least change first, what was asked about last.
    pub columns: Vec<Column>,
    /// For each group, and for all: the least round rate under which none of its publishers would have waited as recorded.
    pub unnoticed: Vec<(String, Option<String>)>,
    /// A block of tidegate.toml; empty if no setting was asked about.
    pub settings: String,
}

/// What was held at the end gets this long to pass, seconds.
const AFTERWARDS: f64 = 30.0;

/// Answers a question about a trace.
pub fn answer(trace: &Trace, question: &Question) -> Result<WhatIf, String> {
    let mut columns = vec![column("as recorded", trace, question, false)?];
    let more = question.applied_to(trace)?;
    if let Some(more) = &more {
        columns.push(column(&question.devices_in_words(trace), more, question, false)?);
    }
    if question.has_settings() {
        columns.push(column("with the settings", more.as_ref().unwrap_or(trace), question, true)?);
    }
    Ok(WhatIf { columns, unnoticed: rates::unnoticed(trace), settings: settings::block(trace, question) })
}

fn column(name: &str, trace: &Trace, question: &Question, with_settings: bool) -> Result<Column, String> {
    let mut config = Publishers {
        duration: trace.seconds() + AFTERWARDS,
        closed_loop: false,
        rule: Some(tidegate_control::rhythm::RhythmRule::Practical),
        enforce_always: false,
        order: Order::Drr,
        capacity: question.reader,
        queue_items: 10_000,
        ..Publishers::default()
    };
    let mut imposed = Imposed::default();
    if with_settings {
        question.settings.apply(&mut config);
        imposed.rate = question.limit_of_all().map(|limit| limit.rate);
        imposed.by_group =
            question.limits.iter().filter(|limit| limit.group > 0).map(|it| (it.group, it.rate)).collect();
    }
    let fates = broker::fates(&config, &imposed, trace)?;
    Ok(Column { name: name.to_owned(), account: Account::of(trace, &fates) })
}

/// What a group is called; 0 is everybody who is in none.
fn name_of(trace: &Trace, group: u8) -> &str {
    match group.checked_sub(1) {
        Some(place) => trace.groups().get(usize::from(place)).map_or("?", |group| group.name.as_str()),
        None if trace.groups().is_empty() => ALL,
        None => "others",
    }
}

#[cfg(test)]
mod tests;
