//! The space without sockets: updates, updates beside many subscriptions, and one question asked very often.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use oxrdf::{GraphName, Literal, NamedNode, Quad};
use sparesults::QueryResultsFormat;
use tidegate_graph::{Query, QueryLimits, Update};
use tidegate_space::{
    Form, NotificationInlet, PendingReply, RequestOrigin, SpaceHandle, SpaceRequest, Watched, outlet,
};

use super::Named;
use super::host::{SpaceHost, ask, is_over, rate};
use crate::measure::RunSettings;

/// Changes under way.
const WINDOW: usize = 64;
/// Subscriptions that share a way to their subscriber.
const PER_OUTLET: usize = 1000;
/// Changes of one measurement beside subscriptions, of which the best of five counts: the machine has other things to do.
const CHANGES: usize = 20_000;
const TRIES: usize = 5;
const BESIDE: [(&str, usize); 4] =
    [("µs alone", 0), ("µs beside 1 000", 1000), ("µs beside 10 000", 10_000), ("µs beside 100 000", 100_000)];

/// SPARQL updates of one triple each, parsed and confirmed.
pub(super) async fn updates(is_durable: bool, setting: &RunSettings) -> Result<Named> {
    let host = if is_durable { SpaceHost::start_durable()? } else { SpaceHost::start()? };
    let (began, mut count) = (Instant::now(), 0);
    let mut under_way: VecDeque<PendingReply> = VecDeque::new();
    while !is_over(began + setting.time, setting) {
        count += 1;
        let text = format!("INSERT DATA {{ <urn:s{count}> <urn:p> {count} }}");
        let update = Update::parse(&text, &QueryLimits::default())?;
        under_way.push_back(host.handle().start(SpaceRequest::Update(Box::new(update)), RequestOrigin::new(0, None)));
        finish(&mut under_way, WINDOW).await?;
    }
    finish(&mut under_way, 0).await?;
    Ok(vec![("updates/s", rate(count, began.elapsed()))])
}

/// Waits until so few are under way.
async fn finish(under_way: &mut VecDeque<PendingReply>, most: usize) -> Result<()> {
    while under_way.len() > most {
        let Some(waiting) = under_way.pop_front() else { break };
        if let Err(refused) = waiting.answer().await {
            bail!("refused: {refused:?}");
        }
    }
    Ok(())
}

/// What a change costs beside subscriptions that it does not touch. Each number of subscriptions has a space of its own,
/// and they take turns: what the machine does meanwhile concerns all of them.
pub(super) async fn run(setting: &RunSettings) -> Result<Named> {
    let mut hosts = Vec::new();
    for (name, wanted) in BESIDE {
        let host = SpaceHost::start()?;
        let inlets = subscribe(&host.handle(), if wanted > 0 { setting.scaled(wanted) } else { 0 }, setting).await?;
        hosts.push((name, host, inlets, Duration::MAX));
    }
    let mut number = 0;
    for _ in 0..TRIES {
        for (_, host, _, best) in &mut hosts {
            let from = number;
            *best = (*best).min(changes(&host.handle(), setting.scaled(CHANGES), &mut number).await?);
            number = from;
        }
        number += setting.scaled(CHANGES);
    }
    let each = |best: &Duration| best.as_secs_f64() * 1e6 / setting.scaled(CHANGES) as f64;
    let mut figures: Named = hosts.iter().map(|(name, _, _, best)| (*name, each(best))).collect();
    if let (Some((_, alone)), Some((_, most))) = (figures.first(), figures.last()) {
        figures.push(("times as much", most / alone));
    }
    Ok(figures)
}

/// So many subscriptions that nothing touches.
async fn subscribe(handle: &SpaceHandle, count: usize, setting: &RunSettings) -> Result<Vec<NotificationInlet>> {
    let mut inlets = Vec::new();
    for first in (0..count).step_by(PER_OUTLET) {
        let (out, inlet) = outlet(handle);
        for standing in first..count.min(first + PER_OUTLET) {
            let text = format!("SELECT ?o {{ <urn:other:{standing}> <urn:p> ?o }}");
            let query = Query::parse(&text, &QueryLimits::default())?;
            ask(handle, || SpaceRequest::Subscribe {
                what: Watched::Query(Box::new(query.clone())),
                name: format!("beside {standing}"),
                seen: None,
                outlet: Some(std::sync::Arc::clone(&out)),
            })
            .await?;
        }
        inlets.push(inlet);
        if setting.stop.is_wanted() {
            bail!("interrupted");
        }
    }
    Ok(inlets)
}

async fn changes(handle: &SpaceHandle, count: usize, number: &mut usize) -> Result<Duration> {
    let node = |text: String| NamedNode::new_unchecked(text);
    let began = Instant::now();
    let mut under_way = VecDeque::new();
    for _ in 0..count {
        *number += 1;
        // The same property as theirs, and few subjects: what differs is only how many subscriptions there are.
        let subject = node(format!("urn:own:{}", *number % 1000));
        let insert =
            Quad::new(subject, node("urn:p".to_owned()), Literal::from(*number as u64), GraphName::DefaultGraph);
        let change = SpaceRequest::Edit { remove: Vec::new(), insert: vec![insert] };
        under_way.push_back(handle.start(change, RequestOrigin::new(0, None)));
        finish(&mut under_way, WINDOW).await?;
    }
    finish(&mut under_way, 0).await?;
    Ok(began.elapsed())
}

/// One question, asked ten thousand times within a second in which the data change five times.
pub(super) async fn same(setting: &RunSettings) -> Result<Named> {
    let host = SpaceHost::start()?;
    let handle = host.handle();
    let mut number = 0;
    changes(&handle, setting.scaled(10_000), &mut number).await?;
    let text = "SELECT (COUNT(*) AS ?n) { ?s <urn:p> ?o }";
    let query = Query::parse(text, &QueryLimits::default())?;
    let (asked, began) = (10_000, Instant::now());
    let mut waiting = Vec::with_capacity(asked);
    for count in 0..asked {
        if count % (asked / 5) == 0 {
            changes(&handle, 1, &mut number).await?;
        }
        let form = Form::Results(QueryResultsFormat::Json);
        waiting.push(
            handle.start(SpaceRequest::Query { query: Box::new(query.clone()), form }, RequestOrigin::new(0, None)),
        );
        if count % 100 == 99 {
            tokio::time::sleep_until((began + Duration::from_millis(count as u64 / 10)).into()).await;
        }
    }
    let mut answered = 0;
    for waiting in waiting {
        answered += usize::from(waiting.answer().await.is_ok());
    }
    let fresh =
        handle.counts().into_iter().filter(|(class, outcome, _)| class.contains("query") && *outcome == "fresh");
    let fresh: u64 = fresh.map(|(_, _, count)| count).sum();
    Ok(vec![("answered", answered as f64), ("evaluations", fresh as f64), ("seconds", began.elapsed().as_secs_f64())])
}
