//! How many questions are answered without an evaluation, on a mixed load: several ways to write the same question, parts
//! of larger ones, and changes in between, most of which do not concern what is asked. The former rule (the same words, and
//! no change at all since) is counted beside it, on the same requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use sparesults::QueryResultsFormat;
use tidegate_graph::{Query, QueryLimits, Update};
use tidegate_space::{AnswerSource, Form, SpaceRequest};

use super::Named;
use super::host::{SpaceHost, ask};
use crate::measure::RunSettings;

const DEVICES: u64 = 200;
const ROOMS: u64 = 10;
const REQUESTS: usize = 20_000;
/// One of so many requests is a change.
const CHANGE_EVERY: u64 = 5;

/// Questions of dashboards and of devices; `{dev}` is a device, `{room}` a room.
const QUESTIONS: [&str; 9] = [
    "SELECT ?d ?r { ?d <urn:in> ?r }",
    "SELECT ?room ?dev { ?dev <urn:in> ?room }",
    "SELECT ?d { ?d <urn:in> <urn:room{room}> }",
    "SELECT ?r { <urn:dev{dev}> <urn:in> ?r }",
    "SELECT ?v { <urn:dev{dev}> <urn:value> ?v }",
    "SELECT ?x { <urn:dev{dev}> <urn:value> ?x }",
    "SELECT ?d ?v { ?d <urn:in> <urn:room{room}> . ?d <urn:value> ?v }",
    "SELECT ?v ?d { ?d <urn:value> ?v . ?d <urn:in> <urn:room{room}> }",
    "SELECT (COUNT(*) AS ?n) { ?d <urn:in> <urn:room{room}> }",
];

/// Numbers that are the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

pub(super) async fn run(setting: &RunSettings) -> Result<Named> {
    let (host, limits, mut draw) = (SpaceHost::start()?, QueryLimits::default(), Draw(1));
    let handle = host.handle();
    for device in 0..DEVICES {
        let text =
            format!("INSERT DATA {{ <urn:dev{device}> <urn:in> <urn:room{}> ; <urn:value> {device} }}", device % ROOMS);
        let update = Update::parse(&text, &limits)?;
        ask(&handle, || SpaceRequest::Update(Box::new(update.clone()))).await?;
    }
    let (mut asked, mut remembered, mut formerly) = (0u32, 0u32, 0u32);
    let (mut fresh_time, mut name_time, mut fresh) = (Duration::ZERO, Duration::ZERO, 0u32);
    // What the former rule would have remembered.
    let mut words = BTreeSet::new();
    for _ in 0..setting.scaled(REQUESTS) {
        if draw.below(CHANGE_EVERY) == 0 {
            let (device, value) = (draw.below(DEVICES), draw.below(1000));
            let text = format!(
                "DELETE WHERE {{ <urn:dev{device}> <urn:value> ?v }} ; INSERT DATA {{ <urn:dev{device}> <urn:value> {value} }}"
            );
            let update = Update::parse(&text, &limits)?;
            ask(&handle, || SpaceRequest::Update(Box::new(update.clone()))).await?;
            words.clear();
            continue;
        }
        let question = QUESTIONS[draw.below(QUESTIONS.len() as u64) as usize];
        let text = question
            .replace("{dev}", &draw.below(DEVICES / 10).to_string())
            .replace("{room}", &draw.below(ROOMS).to_string());
        let began = Instant::now();
        let query = Query::parse(&text, &limits)?;
        let named = Instant::now();
        let (form, footprint, freed) = (query.canonical_form(), query.footprint(), query.freed(|_| true));
        let named = named.elapsed();
        drop((form, footprint, freed));
        let form = Form::Results(QueryResultsFormat::Json);
        let answered = ask(&handle, || SpaceRequest::Query { query: Box::new(query.clone()), form }).await?;
        // Named a second time for the measurement.
        let time = began.elapsed().saturating_sub(named);
        asked += 1;
        formerly += u32::from(!words.insert(text));
        if answered.source == AnswerSource::Fresh {
            (fresh_time, name_time, fresh) = (fresh_time + time, name_time + named, fresh + 1);
        } else {
            remembered += 1;
        }
    }
    let share = |part: u32| 100.0 * f64::from(part) / f64::from(asked.max(1));
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(fresh.max(1));
    Ok(vec![
        ("% without evaluation", share(remembered)),
        ("% by the former rule", share(formerly)),
        ("µs a query", micros(fresh_time)),
        ("µs for its names", micros(name_time)),
        ("% of its time for names", 100.0 * name_time.as_secs_f64() / fresh_time.as_secs_f64().max(1e-9)),
    ])
}
