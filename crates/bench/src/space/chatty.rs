//! One chatty KP beside many that others rely on: a customer that asks ten thousand times a second, a hundred services that
//! ask once a second each. What counts is how long the services wait for an answer, alone and beside it.
//!
//! ```text
//! a p99 is of a thousand answers: ten seconds of a hundred services
//! alone, beside; beside, alone; alone, beside; … : each pair one after the other, so that the machine's moods are in both
//! times as long = the middle of p99 beside / p99 alone of the pairs; at least and at most of them stand with it
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use sparesults::QueryResultsFormat;
use tidegate_graph::{Query, QueryLimits, Update};
use tidegate_space::{
    Caller, Class, Form, KpRole, KpStanding, Refused, RequestOrigin, SpaceHandle, SpaceRequest, TextReading,
};
use tokio::task::JoinSet;

use super::Named;
use super::host::{SpaceHost, ask};
use crate::measure::RunSettings;

/// Services, each of which asks once a second.
const SERVICES: usize = 100;
/// What the customer asks in a second.
const CHATTY: f64 = 10_000.0;
/// Answers in a round: its p99 is the tenth of the slowest, and not the slowest but one.
const ANSWERS: usize = 1000;
/// Pairs of rounds.
const PAIRS: usize = 5;
/// What it has under way at most: the rest of what it would have asked is not asked.
const CHATTY_WINDOW: usize = 4096;
const DEVICES: usize = 1000;
/// How long an answer is awaited at the end: longer than any request may take.
const LAST_ANSWER: Duration = Duration::from_secs(12);

/// What one round brought.
#[derive(Default)]
struct Round {
    times: Vec<Duration>,
    refused: usize,
    chatty: usize,
    chatty_refused: usize,
}

pub(super) async fn run(setting: &RunSettings) -> Result<Named> {
    let host = SpaceHost::start()?;
    let handle = host.handle();
    for device in 0..DEVICES {
        let text = format!("INSERT DATA {{ <urn:dev:{device}> <urn:value> {device} }}");
        let update = Update::parse(&text, &QueryLimits::default())?;
        ask(&handle, || SpaceRequest::Update(Box::new(update.clone()))).await?;
    }
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // What comes later finds more that is remembered, and a machine that is warmer: each is first in turn.
        let order = if pair % 2 == 0 { [0.0, CHATTY] } else { [CHATTY, 0.0] };
        for chatty in order {
            let came = round(&handle, chatty, setting).await?;
            if setting.stop.is_wanted() {
                bail!("interrupted");
            }
            let rounds = if chatty > 0.0 { &mut beside } else { &mut alone };
            rounds.push(came);
        }
    }
    let ratios: Vec<f64> = alone.iter().zip(&beside).map(|(alone, beside)| beside.p99() / alone.p99()).collect();
    let rounds = || alone.iter().chain(&beside);
    Ok(vec![
        ("p99 ms alone", middle(alone.iter().map(Round::p99).collect())),
        ("p99 ms beside", middle(beside.iter().map(Round::p99).collect())),
        ("times as long", middle(ratios.clone())),
        ("times at least", ratios.iter().copied().fold(f64::INFINITY, f64::min)),
        ("times at most", ratios.iter().copied().fold(0.0, f64::max)),
        ("answers in each round", rounds().map(|round| round.times.len()).min().unwrap_or(0) as f64),
        ("services refused", rounds().map(|round| round.refused).sum::<usize>() as f64),
        ("chatty asked", beside.iter().map(|round| round.chatty).sum::<usize>() as f64),
        ("chatty refused", beside.iter().map(|round| round.chatty_refused).sum::<usize>() as f64),
    ])
}

impl Round {
    /// Milliseconds that one in a hundred waits longer than.
    fn p99(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len().saturating_sub(1) * 99 / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// The middle one, of an odd number.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// All ask until there are enough answers, at a pace: nobody waits for the others. The customer has a thread of its own, so that
/// it is not in the way of whoever looks at the clock.
async fn round(handle: &SpaceHandle, chatty: f64, setting: &RunSettings) -> Result<Round> {
    let (mut round, began) = (Round::default(), Instant::now());
    let until = began + Duration::from_secs_f64(setting.scaled(ANSWERS) as f64 / SERVICES as f64);
    let (own, stop) = (handle.clone(), setting.stop.clone());
    let is_over = move || Instant::now() >= until || stop.is_wanted();
    let customer = std::thread::spawn(move || chat(&own, chatty, is_over));
    let mut services = JoinSet::new();
    let mut asked = 0;
    while Instant::now() < until && !setting.stop.is_wanted() {
        while (asked as f64) < began.elapsed().as_secs_f64() * SERVICES as f64 {
            asked += 1;
            let (at, mut reading) = (Instant::now(), start(handle, asked % SERVICES, asked, KpRole::Service));
            services.spawn(async move { (reading.wait().await.0.map(drop), at.elapsed()) });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while let Some(answered) = services.join_next().await {
        match answered? {
            (Ok(()), time) => round.times.push(time),
            (Err(Refused::Busy(_)), _) => round.refused += 1,
            (Err(other), _) => bail!("a service was refused: {other:?}"),
        }
    }
    let told = customer.join().map_err(|_| anyhow!("the customer's thread has panicked"))??;
    (round.chatty, round.chatty_refused) = told;
    Ok(round)
}

/// Asks at a pace, whatever becomes of it; how often, and how often in vain.
fn chat(handle: &SpaceHandle, rate: f64, is_over: impl Fn() -> bool) -> Result<(usize, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (began, mut due, mut asked, mut refused) = (Instant::now(), 0_usize, 0, 0);
        let mut waiting = VecDeque::new();
        while !is_over() {
            while (due as f64) < began.elapsed().as_secs_f64() * rate {
                due += 1;
                if waiting.len() < CHATTY_WINDOW {
                    asked += 1;
                    waiting.push_back(start(handle, SERVICES, asked, KpRole::Customer));
                }
            }
            refused += settle(&mut waiting, Duration::ZERO).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        refused += settle(&mut waiting, LAST_ANSWER).await;
        Ok((asked, refused))
    })
}

/// Takes the answers that come within this time, in their order; how many were none.
async fn settle(waiting: &mut VecDeque<TextReading<()>>, patience: Duration) -> usize {
    let mut refused = 0;
    while let Some(reading) = waiting.front_mut() {
        let Ok((outcome, _)) = tokio::time::timeout(patience, reading.wait()).await else { break };
        refused += usize::from(outcome.is_err());
        waiting.pop_front();
    }
    refused
}

/// A question that nobody has asked before.
fn start(handle: &SpaceHandle, kp: usize, number: usize, role: KpRole) -> TextReading<()> {
    let device = number * 7 % DEVICES;
    let text = format!("SELECT ?o {{ <urn:dev:{device}> <urn:value> ?o FILTER(?o != {}) }}", number + DEVICES);
    let standing = KpStanding { role, ..KpStanding::default() };
    let caller = Caller { client: kp as u64 + 1, ..Caller::default() }.of(kp as u64 + 1, standing);
    let asker = RequestOrigin::new(0, None).of(caller);
    handle.read(text.len(), Class::Query, asker, move |limits| match Query::parse(&text, limits) {
        Ok(query) => {
            let form = Form::Results(QueryResultsFormat::Json);
            ((), Ok(SpaceRequest::Query { query: Box::new(query), form }))
        }
        Err(error) => ((), Err(Refused::Failed(error))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_p99_of_a_round_is_not_its_slowest_answer() {
        let times = (0..ANSWERS).map(|number| Duration::from_millis(number as u64)).collect();
        let round = Round { times, ..Round::default() };
        assert!((980.0..990.0 + 1.0).contains(&round.p99()), "{}", round.p99());
        assert!(PAIRS % 2 == 1 && (middle(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
