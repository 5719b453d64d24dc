//! Everybody at once: clients that all want an answer now, from a broker that can give a few at a time.
//!
//! `cargo bench -p tidegate-client --bench burst [-- --clients 10000]`
//!
//! The same clients three times: paced as the SDK does it (a user waits: obey the broker's time, full jitter), with a
//! fixed timer of one second, and with plain exponential back-off without jitter. The ideal is the time that the broker
//! needs for as many queries if four clients ask one after the other and nobody is refused.

#![allow(clippy::expect_used, missing_docs, reason = "a step that cannot be done has failed the measurement")]

mod child;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use child::{Broker, be_broker, number};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tidegate_client::{Error, PacerConfig, Space};
use tidegate_control::Timestamp;
use tidegate_control::pacer::{Outcome, Pacer};
use tokio::sync::Semaphore;

/// Requests on the wire at once: both processes have a limit of open files.
const WIRE_MAX: usize = 2000;

#[derive(Clone, Copy, Debug)]
enum Manner {
    Paced,
    Fixed,
    Exponential,
}

fn main() {
    if be_broker() {
        return;
    }
    let clients = number("--clients", 10_000);
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(run(clients));
}

async fn run(clients: usize) {
    let broker = Broker::start();
    let space = Space::connect(&broker.url).await.expect("a space");
    let lamps: Vec<String> = (0..1000).map(|number| format!("<urn:n{number}> <urn:v> {number} .")).collect();
    space.update(&format!("INSERT DATA {{ {} }}", lamps.join(" "))).await.expect("data");
    println!("{clients} clients; the ideal is measured anew before each case, and the order rotates");
    println!(
        "{:<14}{:>10}{:>12}{:>10}{:>22}{:>10}",
        "", "ideal", "drained", "x ideal", "requests per client", "failed"
    );
    let manners = [Manner::Paced, Manner::Fixed, Manner::Exponential];
    for case in 0..manners.len() * manners.len() {
        let manner = manners[(case / manners.len() + case) % manners.len()];
        let rate = ideal(&space, clients.min(1000), 91 + case).await;
        let (time, requests, failed) = burst(&space, clients, manner, case).await;
        let (best, took) = (clients as f64 / rate, time.as_secs_f64());
        let each = requests as f64 / clients as f64;
        let name = format!("{manner:?}");
        println!("{name:<14}{best:>8.2} s{took:>10.2} s{:>10.2}{each:>22.2}{failed:>10}", took / best);
    }
}

/// Every client has a question of its own, so that none is answered with another's.
fn question(salt: usize, number: usize) -> String {
    format!("SELECT (COUNT(*) AS ?n) {{ ?s <urn:v> ?o FILTER(?o != {salt}{number:06}) }}")
}

/// Queries a second if nobody is refused.
async fn ideal(space: &Space, queries: usize, salt: usize) -> f64 {
    let began = Instant::now();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let space = space.clone();
            tokio::spawn(async move {
                for number in (worker..queries).step_by(4) {
                    while space.query(&question(salt, number)).await.is_err() {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    queries as f64 / began.elapsed().as_secs_f64()
}

async fn burst(space: &Space, clients: usize, manner: Manner, round: usize) -> (Duration, u64, u64) {
    let (requests, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let wire = Arc::new(Semaphore::new(WIRE_MAX));
    let config = PacerConfig { request_timeout: Duration::from_secs(15), ..PacerConfig::default() };
    let plan = config.build().expect("a plan");
    let began = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            let (space, wire, plan) = (space.clone(), Arc::clone(&wire), Arc::clone(&plan));
            let (requests, failed) = (Arc::clone(&requests), Arc::clone(&failed));
            tokio::spawn(async move {
                let mut pacer = Pacer::new(&plan);
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(number as u64);
                let text = question(round + 1, number);
                let mut tries = 0_u32;
                loop {
                    let place = wire.acquire().await.expect("it stays open");
                    pacer.on_user_waiting();
                    pacer.on_sent();
                    requests.fetch_add(1, Ordering::Relaxed);
                    let Err(error) = space.query(&text).await else { return };
                    drop(place);
                    tries += 1;
                    let outcome = match error {
                        Error::Busy { hints, .. } => Outcome::Denied { hints: *hints },
                        Error::TimedOut => Outcome::TimedOut,
                        _ => Outcome::Failed,
                    };
                    if !matches!(outcome, Outcome::Denied { .. }) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    let delay = match manner {
                        Manner::Paced => {
                            let now = Timestamp::ZERO + began.elapsed();
                            pacer.on_outcome(now, &outcome, &mut rng).unwrap_or_default()
                        }
                        Manner::Fixed => Duration::from_secs(1),
                        Manner::Exponential => Duration::from_millis(100) * 2_u32.pow(tries.min(9)),
                    };
                    tokio::time::sleep(delay).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client");
    }
    (began.elapsed(), requests.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
}
