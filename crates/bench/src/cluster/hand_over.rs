//! A hand-over under load: the owner is killed with its engine, or told to end, while a client publishes without pause to another whose session
//! lasts. Timed is that one's way back; counted is what was acknowledged and never came.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tidegate_program::Stop;

use super::clients::{Shared, Stayer, publish};
use super::nodes::Nodes;

/// Messages that are acknowledged before and after.
const MESSAGES: u64 = 200;
/// Nothing takes that long, unless it never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// How the owner ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Kill,
    Drain,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::Kill, Self::Drain];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Drain => "drain",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Kill => "kill -9 of the owner and its engine",
            Self::Drain => "a planned stop of the owner",
        }
    }

    /// Seconds.
    pub(super) fn goal(self) -> f64 {
        match self {
            Self::Kill => 15.0,
            Self::Drain => 1.0,
        }
    }
}

/// What some hand-overs brought.
#[derive(Clone, Debug, Default)]
pub(super) struct HandOvers {
    /// Of each, until the session was let in again.
    pub(super) seconds: Vec<f64>,
    pub(super) acknowledged: u64,
    /// Acknowledged, and never delivered.
    pub(super) lost: u64,
    /// Times that the session was not there.
    pub(super) absent: u64,
}

/// So many of them, one after the other.
pub(super) fn run(nodes: &mut Nodes, way: Way, rounds: usize, stop: &Stop) -> Result<HandOvers> {
    let mut found = HandOvers::default();
    let mut stayer = Stayer::begin(nodes.addresses(), Instant::now() + PATIENCE)?;
    for round in 0..rounds {
        if stop.is_wanted() {
            bail!("interrupted");
        }
        // Each has numbers of its own.
        let first = (round as u64) << 32;
        hand_over(nodes, way, &mut stayer, first, &mut found, stop).with_context(|| format!("round {}", round + 1))?;
        nodes.mend(stop)?;
    }
    Ok(found)
}

fn hand_over(
    nodes: &mut Nodes,
    way: Way,
    stayer: &mut Stayer,
    first: u64,
    found: &mut HandOvers,
    stop: &Stop,
) -> Result<()> {
    let (addresses, until, shared) = (nodes.addresses(), Instant::now() + PATIENCE, Shared::default());
    let acknowledged = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&addresses, first, &shared, until, stop));
        let mut script = || -> Result<()> {
            take_until(stayer, &shared, MESSAGES, until, stop)?;
            let begun = match way {
                Way::Kill => nodes.kill_owner(stop)?,
                Way::Drain => nodes.drain_owner(stop)?,
            };
            found.absent += u64::from(!stayer.come_back(until)?);
            found.seconds.push(begun.elapsed().as_secs_f64());
            let so_far = shared.acknowledged.load(Ordering::Relaxed);
            take_until(stayer, &shared, so_far + MESSAGES, until, stop)
        };
        let done = script();
        // However it went: the publisher ends before this does.
        shared.is_over.store(true, Ordering::Relaxed);
        let acknowledged = publisher.join().map_err(|_| anyhow!("the publisher has failed"))?;
        done.and(acknowledged)
    })?;
    let is_complete = |stayer: &Stayer| acknowledged.is_subset(&stayer.received);
    while !is_complete(stayer) && Instant::now() < until && !stop.is_wanted() {
        stayer.take();
    }
    found.acknowledged += acknowledged.len() as u64;
    found.lost += acknowledged.difference(&stayer.received).count() as u64;
    Ok(())
}

/// Takes messages until so many were acknowledged to the publisher.
fn take_until(stayer: &mut Stayer, shared: &Shared, count: u64, until: Instant, stop: &Stop) -> Result<()> {
    while shared.acknowledged.load(Ordering::Relaxed) < count {
        if Instant::now() > until || stop.is_wanted() {
            bail!("{} of {count} messages were acknowledged", shared.acknowledged.load(Ordering::Relaxed));
        }
        stayer.take();
    }
    Ok(())
}
