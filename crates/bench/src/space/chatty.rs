//! One chatty KP beside many that others rely on: a customer that asks ten thousand times a second, a hundred services that
//! ask once a second each. What counts is how long the services wait for an answer, alone and beside it.

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
    let alone = round(&handle, 0.0, setting).await?;
    let beside = round(&handle, CHATTY, setting).await?;
    let p99 = |round: &Round| {
        let mut times = round.times.clone();
        times.sort_unstable();
        times.get(times.len().saturating_sub(1) * 99 / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    };
    let (before, after) = (p99(&alone), p99(&beside));
    Ok(vec![
        ("p99 ms alone", before),
        ("p99 ms beside", after),
        ("times as long", after / before),
        ("services refused", (alone.refused + beside.refused) as f64),
        ("chatty asked", beside.chatty as f64),
        ("chatty refused", beside.chatty_refused as f64),
    ])
}

/// All ask for as long as a case takes, at a pace: nobody waits for the others. The customer has a thread of its own, so that
/// it is not in the way of whoever looks at the clock.
async fn round(handle: &SpaceHandle, chatty: f64, setting: &RunSettings) -> Result<Round> {
    let (mut round, began) = (Round::default(), Instant::now());
    let until = began + setting.time;
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
