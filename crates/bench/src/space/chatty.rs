//! One chatty KP beside many that others rely on: a customer that asks ten thousand times a second, a hundred services that
//! ask once a second each. What counts is how long the services wait for an answer, alone and beside it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sparesults::QueryResultsFormat;
use tidegate_graph::{Query, QueryLimits, Update};
use tidegate_space::{
    Caller, Class, Form, KpRole, KpStanding, Refused, RequestOrigin, SpaceHandle, SpaceRequest, TextReading,
};

use super::Named;
use super::host::{SpaceHost, ask, is_over};
use crate::measure::RunSettings;

/// Services, each of which asks once a second.
const SERVICES: usize = 100;
/// What the customer asks in a second.
const CHATTY: f64 = 10_000.0;
/// What it has under way at most: the rest of what it would have asked is not asked.
const CHATTY_WINDOW: usize = 4096;
const DEVICES: usize = 1000;

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

/// All ask for as long as a case takes, at a pace: nobody waits for the others.
async fn round(handle: &SpaceHandle, chatty: f64, setting: &RunSettings) -> Result<Round> {
    let (mut round, began) = (Round::default(), Instant::now());
    let until = began + setting.time;
    let (mut services, mut customer) = (VecDeque::new(), VecDeque::new());
    let (mut asked, mut service) = (0, 0);
    while !is_over(until, setting) {
        let elapsed = began.elapsed().as_secs_f64();
        while (service as f64) < elapsed * SERVICES as f64 {
            service += 1;
            services.push_back((Instant::now(), start(handle, service % SERVICES, service, KpRole::Service)));
        }
        while (asked as f64) < elapsed * chatty {
            asked += 1;
            if customer.len() < CHATTY_WINDOW {
                round.chatty += 1;
                customer.push_back(start(handle, SERVICES, asked, KpRole::Customer));
            }
        }
        settle(&mut services, &mut customer, &mut round, false).await?;
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    settle(&mut services, &mut customer, &mut round, true).await?;
    Ok(round)
}

type Services = VecDeque<(Instant, TextReading<()>)>;

/// Takes the answers that are there; or all.
async fn settle(
    services: &mut Services,
    customer: &mut VecDeque<TextReading<()>>,
    round: &mut Round,
    is_last: bool,
) -> Result<()> {
    let patience = if is_last { Duration::from_secs(10) } else { Duration::ZERO };
    let mut waiting = VecDeque::new();
    while let Some((asked, mut reading)) = services.pop_front() {
        match tokio::time::timeout(patience, reading.wait()).await {
            Err(_) => waiting.push_back((asked, reading)),
            Ok((Ok(_), _)) => round.times.push(asked.elapsed()),
            Ok((Err(Refused::Busy(_)), _)) => round.refused += 1,
            Ok((Err(other), _)) => bail!("a service was refused: {other:?}"),
        }
    }
    *services = waiting;
    while let Some(reading) = customer.front_mut() {
        let Ok((outcome, _)) = tokio::time::timeout(patience, reading.wait()).await else { break };
        round.chatty_refused += usize::from(outcome.is_err());
        customer.pop_front();
    }
    Ok(())
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
