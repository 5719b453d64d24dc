//! Everybody at once: clients that all want an answer now, from a broker that can give a few at a time.
//!
//! `cargo bench -p tidegate-client --bench burst [-- --clients 10000 --rounds 3]`
//!
//! The same clients three times: as the SDK does it ([`Space::waiting`]: keep the appointment, else full jitter), with a
//! fixed timer of one second, and with plain exponential back-off without jitter. They sit behind 60 hosts, each a
//! connection of the SDK with at most 64 lines, because the door takes 4096. The ideal is the time that the broker needs
//! for as many queries if four clients ask one after the other and nobody is refused: measured before and after each
//! case, because a machine that others use, too, is not the same a minute later.

#![allow(clippy::expect_used, missing_docs, reason = "a step that cannot be done has failed the measurement")]

mod child;

use std::time::{Duration, Instant};

use child::{Broker, be_broker, number};
use tidegate_client::{Space, SpaceStats};

/// Machines that the clients are behind.
const HOSTS: usize = 60;
/// Nobody gives up before this.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
enum Manner {
    Paced,
    Fixed,
    Exponential,
}

/// One case, as it went.
struct Case {
    ideal: f64,
    drained: f64,
    each: f64,
}

fn main() {
    if be_broker() {
        return;
    }
    let (clients, rounds) = (number("--clients", 10_000), number("--rounds", 3));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(run(clients, rounds));
}

async fn run(clients: usize, rounds: usize) {
    let broker = Broker::start();
    let space = Space::connect(&broker.url).await.expect("a space");
    let lamps: Vec<String> = (0..1000).map(|number| format!("<urn:n{number}> <urn:v> {number} .")).collect();
    space.update(&format!("INSERT DATA {{ {} }}", lamps.join(" "))).await.expect("data");
    println!("{clients} clients behind {HOSTS} hosts; the order rotates");
    println!(
        "{:<13}{:>9}{:>9}{:>9}{:>10}{:>9}{:>10}{:>9}{:>9}",
        "", "ideal", "drained", "x ideal", "requests", "refused", "per client", "failed", "slowest"
    );
    let manners = [Manner::Paced, Manner::Fixed, Manner::Exponential];
    let mut cases: [Vec<Case>; 3] = Default::default();
    let mut rate = ideal(&space, clients.min(2000), 0).await;
    for case in 0..manners.len() * rounds {
        let place = (case / manners.len() + case) % manners.len();
        let (time, stats, slowest) = burst(&broker.url, clients, manners[place], case + 1).await;
        let after = ideal(&space, clients.min(2000), 100 + case).await;
        let best = clients as f64 * (1.0 / rate + 1.0 / after) / 2.0;
        rate = after;
        let (drained, each) = (time.as_secs_f64(), stats.requests as f64 / clients as f64);
        println!(
            "{:<13}{best:>7.2} s{drained:>7.2} s{:>9.2}{:>10}{:>9}{each:>10.2}{:>9}{:>7.2} s",
            format!("{:?}", manners[place]),
            drained / best,
            stats.requests,
            stats.refused,
            stats.failed,
            slowest.as_secs_f64()
        );
        cases[place].push(Case { ideal: best, drained, each });
    }
    println!("\nmedian");
    for (manner, cases) in manners.iter().zip(&cases) {
        let ratio = median(cases.iter().map(|case| case.drained / case.ideal));
        let each = median(cases.iter().map(|case| case.each));
        println!("{:<13}{ratio:>9.2} x ideal{each:>9.2} requests per client", format!("{manner:?}"));
    }
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Every client has a question of its own, so that none is answered with another's.
fn question(salt: usize, number: usize) -> String {
    format!("SELECT ?s {{ ?s <urn:v> ?o FILTER(?o * 7 = {salt}{number:06}) }}")
}

/// Queries a second if nobody is refused.
async fn ideal(space: &Space, queries: usize, salt: usize) -> f64 {
    let began = Instant::now();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let space = space.waiting(PATIENCE);
            tokio::spawn(async move {
                for number in (worker..queries).step_by(4) {
                    space.query(&question(salt, number)).await.expect("an answer");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    queries as f64 / began.elapsed().as_secs_f64()
}

/// The time until everybody is served, what all requests went through, and the longest of the times to an answer.
async fn burst(url: &str, clients: usize, manner: Manner, salt: usize) -> (Duration, SpaceStats, Duration) {
    let mut hosts = Vec::new();
    for _ in 0..HOSTS {
        let space = Space::connect(url).await.expect("a space");
        hosts.push(if matches!(manner, Manner::Paced) { space.waiting(PATIENCE) } else { space });
    }
    let began = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|number| tokio::spawn(client(hosts[number % HOSTS].clone(), question(salt, number), manner, began)))
        .collect();
    let mut slowest = Duration::ZERO;
    for task in tasks {
        slowest = slowest.max(task.await.expect("a client"));
    }
    let mut sum = SpaceStats::default();
    for host in &hosts {
        let stats = host.stats();
        sum.requests += stats.requests;
        sum.refused += stats.refused;
        sum.failed += stats.failed;
    }
    (began.elapsed(), sum, slowest)
}

async fn client(space: Space, text: String, manner: Manner, began: Instant) -> Duration {
    let mut tries = 0_u32;
    while space.query(&text).await.is_err() {
        tries += 1;
        let delay = match manner {
            Manner::Paced => panic!("nobody waits for so long"),
            Manner::Fixed => Duration::from_secs(1),
            Manner::Exponential => Duration::from_millis(100) * 2_u32.pow(tries.min(9)),
        };
        tokio::time::sleep(delay).await;
    }
    began.elapsed()
}
