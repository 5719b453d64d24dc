//! What a persistent query costs its client: bytes at rest, and processor time of a check.
//!
//! `cargo bench -p tidegate-client --bench watches [-- --queries 10000]`
//!
//! First the state alone, in virtual time, each with a row of its own; then the whole client, one thread, against a
//! broker in another process over WebSocket and HTTP.

#![allow(clippy::expect_used, missing_docs, reason = "a step that cannot be done has failed the measurement")]

mod child;

use std::sync::Arc;
use std::time::{Duration, Instant};

use child::{Broker, be_broker, number};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::time::{ClockId, clock_gettime};
use tidegate_client::session::hub::Hub;
use tidegate_client::session::watch::{ChangeDelivery, Input, WatchAction, WatchPlan};
use tidegate_client::{Level, PacerConfig, Row, Space, Term};
use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;

fn main() {
    if be_broker() {
        return;
    }
    let queries = number("--queries", 10_000);
    match number("--part", 0) {
        1 => state_alone(queries),
        2 => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(whole_client(queries));
        }
        // Each in a process of its own: memory that one has freed would hide what the other takes.
        _ => {
            for part in ["1", "2"] {
                let program = std::env::current_exe().expect("this program");
                let arguments = ["--queries", &queries.to_string(), "--part", part];
                std::process::Command::new(program).args(arguments).status().expect("a process");
            }
        }
    }
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn row(number: usize) -> Row {
    let literal = Term::Literal { text: format!("value of lamp {number}"), datatype: None, language: None };
    Row::new([(Arc::from("o"), literal)])
}

fn state_alone(queries: usize) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let pacer = PacerConfig::default().build().expect("the usual one");
    let plan = Arc::new(WatchPlan { pacer, delivery: ChangeDelivery::Push, check_timeout: Duration::from_secs(2) });
    let before = resident();
    let mut hub = Hub::default();
    let mut now = Timestamp::ZERO;
    for _ in 0..queries {
        hub.open(&plan, now, &mut rng).expect("room");
    }
    let answer = |hub: &mut Hub, rng: &mut Xoshiro256PlusPlus, now: Timestamp| {
        let mut checks = 0;
        while let Some((id, action)) = hub.poll_action() {
            let rows = vec![row(id.0 as usize)];
            let input = match action {
                WatchAction::Subscribe { attempt, .. } => Input::Subscribed { attempt, sequence: 0, rows },
                WatchAction::Check { attempt, .. } => {
                    checks += 1;
                    Input::Whole { attempt, rows, version: None, hints: Hints::default() }
                }
            };
            hub.handle(id, input, now, rng);
        }
        while hub.poll_change().is_some() {}
        checks
    };
    answer(&mut hub, &mut rng, now);
    let bytes = resident().saturating_sub(before) / queries;
    let (mut checks, began) = (0_u32, processor());
    while (checks as usize) < queries * 20 {
        now = hub.poll_timeout().expect("checks go on");
        hub.turn(now, &mut rng);
        checks += answer(&mut hub, &mut rng, now);
    }
    let each = processor().saturating_sub(began) / checks;
    println!("state alone   {queries} queries  {bytes} B each  {checks} checks  {each:?} of processor time each");
}

async fn whole_client(queries: usize) {
    let broker = Broker::start();
    let space = Space::connect(&broker.url).await.expect("a space");
    let before = resident();
    let began = Instant::now();
    let mut held = Vec::new();
    for number in 0..queries {
        let text = format!("SELECT ?o {{ <urn:lamp{number}> <urn:state> ?o }}");
        let pacer = PacerConfig { level: Level::Fixed, interval: Duration::from_secs(20), ..PacerConfig::default() };
        let mut query = space.persistent_query(&text).pacer(pacer).open().await.expect("a subscription");
        query.next().await.expect("a baseline");
        held.push(query);
    }
    let bytes = resident().saturating_sub(before) / queries;
    println!("whole client  {queries} queries  {bytes} B each  opened in {:.1} s", began.elapsed().as_secs_f64());
    let count = |list: Vec<tidegate_client::WatchStats>| list.iter().map(|stats| stats.counts.answered).sum::<u64>();
    let mut stats = Vec::new();
    for query in &held {
        stats.push(query.stats().await.expect("it is open"));
    }
    let (first, began) = (count(stats), processor());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let spent = processor().saturating_sub(began);
    let mut stats = Vec::new();
    for query in &held {
        stats.push(query.stats().await.expect("it is open"));
    }
    let live = stats.iter().filter(|stats| stats.is_live).count();
    let checks = count(stats) - first;
    let each = spent / u32::try_from(checks.max(1)).unwrap_or(1);
    println!("              {checks} checks over HTTP in 20 s  {each:?} of processor time each  {live} live");
}
