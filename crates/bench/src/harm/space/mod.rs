//! The front desk of the smart space: who asks what, with default settings and with nothing refused.
//!
//! *Off* parks everything for as long as its time allows (`postpone`, ten seconds of work ahead): the desk then neither
//! refuses nor prefers anybody. Each asker is a thread with one connection that waits for each answer, as SPARQL clients
//! do; it knows no tickets, and comes again at once.

mod asker;

use std::fmt::Write;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use tidegate_sim::zoo::judge::{self, Comparison, SOCKETS};
use tidegate_sim::zoo::model::{CohortSide, Phases};
use tidegate_sim::zoo::space::{Askers, SpaceScenario};
use tidegate_sim::zoo::tally::{CohortTally, Figures};
use tidegate_sim::zoo::verdict::{self, HarmVerdict};

use super::report;
use crate::process;
use crate::space::socket::SubscriberSocket;
use asker::{Http, TimedRequest};
use tidegate_program::Stop;

/// Nothing is refused.
const OFF: &[&str] = &[
    "space.update_policy=postpone",
    "space.update_delay_max=10s",
    "space.query_policy=postpone",
    "space.query_delay_max=10s",
    "space.advanced_query_policy=postpone",
    "space.advanced_query_delay_max=10s",
    "space.subscribe_policy=postpone",
    "space.subscribe_delay_max=10s",
    "space.check_policy=postpone",
    "space.check_delay_max=10s",
];
/// Triples of one part of a load.
const PART: u32 = 20_000;

/// All runs of a scenario.
#[derive(Debug)]
pub(super) struct SpaceRow {
    pub(super) scenario: &'static SpaceScenario,
    on: Vec<SpaceRun>,
    off: Vec<SpaceRun>,
    pub(super) verdict: HarmVerdict,
}

/// One run.
#[derive(Clone, Debug)]
struct SpaceRun {
    /// Of each kind of askers.
    figures: Vec<Figures>,
    /// Seconds until the bulk load was done; infinite if it was refused, none if there is none.
    load_s: Option<f64>,
}

pub(super) fn run(scenario: &'static SpaceScenario, stop: &Stop, phases: Phases) -> Result<SpaceRow> {
    let mut row = SpaceRow { scenario, on: Vec::new(), off: Vec::new(), verdict: HarmVerdict::default() };
    let mut found: Vec<Vec<Comparison>> = Vec::new();
    while verdict::is_open(&found, &SOCKETS) {
        // By turns, as with the others.
        let is_on_first = found.len().is_multiple_of(2);
        let first = once(scenario, if is_on_first { &[] } else { OFF }, phases, stop)?;
        let second = once(scenario, if is_on_first { OFF } else { &[] }, phases, stop)?;
        let (on, off) = if is_on_first { (first, second) } else { (second, first) };
        let innocents = scenario
            .askers
            .iter()
            .zip(&on.figures)
            .zip(&off.figures)
            .filter(|((it, _), _)| it.side == CohortSide::Innocent);
        found.push(innocents.flat_map(|((it, on), off)| judge::compare_cohort(it.name, on, off)).collect());
        row.on.push(on);
        row.off.push(off);
    }
    row.verdict = HarmVerdict::of(&found, &SOCKETS);
    Ok(row)
}

fn once(scenario: &SpaceScenario, settings: &[&str], phases: Phases, stop: &Stop) -> Result<SpaceRun> {
    let broker = process::start_space(settings)?;
    let at = broker.space.context("no smart space")?;
    let mut loader = Http::connect(at)?;
    for first in (0..scenario.triples).step_by(PART as usize) {
        loader.load(first, PART.min(scenario.triples - first))?;
    }
    let people: Vec<&Askers> =
        scenario.askers.iter().flat_map(|askers| std::iter::repeat_n(askers, askers.count as usize)).collect();
    let start = Barrier::new(people.len() + 1);
    let begun = Instant::now() + Duration::from_millis(200);
    let (records, load_s) = thread::scope(|scope| {
        let one = |(number, askers): (usize, &&Askers)| {
            let (askers, start) = (**askers, &start);
            scope.spawn(move || {
                start.wait();
                let kind = scenario.askers.iter().position(|it| it.name == askers.name).unwrap_or_default();
                asker::ask(at, &askers, (kind, number), begun, phases, stop)
            })
        };
        let threads: Vec<_> = people.iter().enumerate().map(one).collect();
        start.wait();
        let load_s = trouble(scenario, at, &mut loader, begun, phases);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Vec<TimedRequest>>>| {
            thread.join().map_err(|_| anyhow!("an asker has panicked"))?
        };
        (threads.into_iter().map(join).collect::<Result<Vec<Vec<TimedRequest>>>>(), load_s)
    });
    let records = records?;
    let tally = |askers: &Askers| {
        let mut tally = CohortTally::new(phases, 1);
        let of = people.iter().zip(&records).filter(|(person, _)| person.name == askers.name);
        for asked in of.flat_map(|(_, records)| records) {
            tally.on_offered(asked.due_ns);
            match asked.done_ns {
                Some(done_ns) => tally.on_delivered(asked.due_ns, done_ns),
                None => tally.on_refused(asked.due_ns),
            }
        }
        tally.figures()
    };
    Ok(SpaceRun { figures: scenario.askers.iter().map(tally).collect(), load_s })
}

/// What is not asked over and over: the load, and how long that took, and the standing query.
fn trouble(
    scenario: &SpaceScenario,
    at: std::net::SocketAddr,
    loader: &mut Http,
    begun: Instant,
    phases: Phases,
) -> Option<f64> {
    let sleep_until = |at: Instant| thread::sleep(at.saturating_duration_since(Instant::now()));
    sleep_until(begun + Duration::from_secs_f64(phases.lead));
    let load_s = (scenario.bulk > 0).then(|| {
        let began = Instant::now();
        let loaded = loader.load(scenario.triples, scenario.bulk);
        if loaded.is_ok() { began.elapsed().as_secs_f64() } else { f64::INFINITY }
    });
    let Some(query) = scenario.standing else { return load_s };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return load_s };
    runtime.block_on(async {
        let subscribed = async {
            let mut socket = SubscriberSocket::connect(at).await?;
            socket.subscribe(query).await?;
            while socket.next().await.is_ok() {}
            anyhow::Ok(())
        };
        let end = begun + Duration::from_secs_f64(phases.trouble_end());
        // When the trouble ends the subscriber is gone.
        let _ = tokio::time::timeout_at(end.into(), subscribed).await;
    });
    load_s
}

/// One scenario, as text.
pub(super) fn lines(row: &SpaceRow) -> String {
    let mut text = format!("{}: {}\n", row.scenario.name, row.scenario.about);
    for (place, askers) in row.scenario.askers.iter().enumerate() {
        let side = if askers.side == CohortSide::Innocent { "" } else { " (guilty)" };
        let of = |runs: &[SpaceRun]| -> Vec<Figures> {
            runs.iter().filter_map(|run| run.figures.get(place)).copied().collect()
        };
        text.push_str(&report::line(&format!("{}{side}", askers.name), "on", &of(&row.on)));
        text.push_str(&report::line("", "off", &of(&row.off)));
    }
    if row.scenario.bulk > 0 {
        let loads = |runs: &[SpaceRun]| report::spread(&runs.iter().filter_map(|run| run.load_s).collect::<Vec<_>>());
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  the load took {} s on, {} s off (–: refused)", loads(&row.on), loads(&row.off));
    }
    text.push_str(&report::verdict(&row.verdict));
    text
}

/// A row as JSON.
pub(super) fn json(row: &SpaceRow) -> Value {
    let run = |run: &SpaceRun| -> Value {
        let asker = |(askers, figures): (&Askers, &Figures)| {
            json!({
                "askers": askers.name,
                "per_s": figures.per_s,
                "p50_ms": figures.p50_ms,
                "p99_ms": figures.p99_ms,
                "loss": figures.loss,
                "recovered_s": figures.recovered_s,
            })
        };
        let askers: Vec<Value> = row.scenario.askers.iter().zip(&run.figures).map(asker).collect();
        json!({ "askers": askers, "load_s": run.load_s })
    };
    json!({
        "scenario": row.scenario.name,
        "about": row.scenario.about,
        "on": row.on.iter().map(run).collect::<Vec<_>>(),
        "off": row.off.iter().map(run).collect::<Vec<_>>(),
        "pairs": row.verdict.pairs,
        "harm": report::findings(&row.verdict.harms),
        "by_chance": report::findings(&row.verdict.chance),
    })
}
