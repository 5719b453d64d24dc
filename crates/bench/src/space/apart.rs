//! What others wait beside a large load, and beside an update whose `WHERE` takes long: a client changes one triple every
//! few milliseconds, alone and while somebody else does that.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use oxrdf::{GraphName, Literal, NamedNode, Quad};
use tidegate_graph::{Mask, QueryLimits, Update};
use tidegate_space::{Caller, Refused, RequestOrigin, SpaceHandle, SpaceRequest};

use super::Named;
use super::host::{SpaceHost, is_over};
use crate::measure::RunSettings;

/// Triples of one load: about 14 MB of text.
const LOAD: usize = 280_000;
/// Triples that the long `WHERE` multiplies: some seconds of work.
const PAIRED: usize = 3_000;
/// Between two changes of the client that is measured.
const PACE: Duration = Duration::from_millis(5);
const LONG_WHERE: &str = "INSERT { <urn:sum> <urn:of> ?n } WHERE { SELECT (COUNT(*) AS ?n) { \
                          ?a <urn:x> ?b . ?c <urn:x> ?d FILTER(?b + ?d < 0) } }";

pub(super) async fn run(setting: &RunSettings) -> Result<Named> {
    let host = SpaceHost::start()?;
    let handle = host.handle();
    let alone = others(&handle, setting, 0).await?;
    // Made before, and elsewhere: only the space is meant.
    let load = made(0, setting.scaled(LOAD)).await?;
    let began = Instant::now();
    let loading = async {
        put(&handle, false, load).await?;
        anyhow::Ok(began.elapsed())
    };
    let (beside_load, loaded) = tokio::try_join!(others(&handle, setting, 1), loading)?;
    put(&handle, true, made(1, setting.scaled(PAIRED)).await?).await?;
    let update = Update::parse(LONG_WHERE, &QueryLimits::default())?;
    let long = async {
        match handle.ask(SpaceRequest::Update(Box::new(update)), by(9)).await {
            // It may take longer than anything may.
            Ok(_) | Err(Refused::Late) => Ok(()),
            Err(other) => bail!("refused: {other:?}"),
        }
    };
    let (beside_where, ()) = tokio::try_join!(others(&handle, setting, 2), long)?;
    Ok(vec![
        ("ms p99 alone", alone.p99_ms),
        ("ms at most", alone.max_ms),
        ("ms p99 beside a load", beside_load.p99_ms),
        ("ms at most beside a load", beside_load.max_ms),
        ("s for the load", loaded.as_secs_f64()),
        ("ms p99 beside a long WHERE", beside_where.p99_ms),
        ("ms at most beside a long WHERE", beside_where.max_ms),
    ])
}

/// Another client.
fn by(client: u64) -> RequestOrigin {
    RequestOrigin::new(0, None).of(Caller { client, ..Caller::default() })
}

fn quad(graph: usize, number: usize) -> Quad {
    let node = |text: String| NamedNode::new_unchecked(text);
    let (subject, property) = (node(format!("urn:load:{graph}:{number}")), node("urn:x".to_owned()));
    Quad::new(subject, property, Literal::from(number as u64), GraphName::DefaultGraph)
}

async fn made(graph: usize, count: usize) -> Result<Vec<Quad>> {
    Ok(tokio::task::spawn_blocking(move || (0..count).map(|number| quad(graph, number)).collect()).await?)
}

/// Triples that are put into the space with one request.
async fn put(handle: &SpaceHandle, replaces: bool, insert: Vec<Quad>) -> Result<()> {
    let ask = SpaceRequest::Put { target: Box::new(Mask::default()), replaces, insert };
    match handle.ask(ask, by(8)).await {
        Ok(_) => Ok(()),
        Err(refused) => bail!("the load was refused: {refused:?}"),
    }
}

struct Waits {
    p99_ms: f64,
    max_ms: f64,
}

/// Changes of one triple, one after the other, for the time of a measurement.
async fn others(handle: &SpaceHandle, setting: &RunSettings, phase: usize) -> Result<Waits> {
    let (until, mut waits, mut number) = (Instant::now() + setting.time, Vec::new(), 0);
    while !is_over(until, setting) {
        number += 1;
        let text = format!("INSERT DATA {{ <urn:small:{phase}> <urn:p> {number} }}");
        let update = Update::parse(&text, &QueryLimits::default())?;
        let began = Instant::now();
        if let Err(refused) = handle.ask(SpaceRequest::Update(Box::new(update)), by(1)).await {
            bail!("refused: {refused:?}");
        }
        waits.push(began.elapsed());
        tokio::time::sleep(PACE).await;
    }
    waits.sort_unstable();
    let at = |part: usize| waits.get(waits.len() * part / 100).or(waits.last()).copied().unwrap_or_default();
    Ok(Waits { p99_ms: at(99).as_secs_f64() * 1e3, max_ms: at(100).as_secs_f64() * 1e3 })
}
