//! A broker that is a node of a cluster: it stands by while another has the log, serves while it has it itself, and stands by again when
//! another has taken it.
//!
//! One node serves at a time. What its store writes is kept by the engine, too, before anybody is told (`tidegate-cluster-nats`); who may
//! write is decided by the engine's order of messages, so a node that was asleep acknowledges nothing when it wakes.

mod access;
mod board;
mod door;
pub mod managed;
pub mod status;
pub mod why;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ring::rand::{SecureRandom, SystemRandom};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tidegate_cluster::{NodeName, next_incarnation};
use tidegate_cluster_nats::{
    AccessFile, Carrier, ClusterError, ClusterView, Ending, EngineOptions, EngineUser, Membership, News, stand_by,
};
use tracing::{error, info, warn};

use crate::config::{Origin, Sources};
use crate::plan;
use crate::plan::cluster::{ClusterPlan, EnginePlan};
use crate::serve::{Process, Ready, Seat, ServeEnd, prepare, serve};
use crate::supervisor::Supervisor;
use board::ClusterBoard;
use door::StandbyDoor;
use managed::RunningEngine;

/// The log of a cluster that has one active node.
const LINEAGE: &str = "main";
/// How long a node that ends in good order waits for another to carry on.
const SUCCESSOR_MAX: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(100);
/// Before an engine that has gone away in the middle of a takeover is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop.
pub(crate) fn run(process: &mut Process, ready: Ready, plan: &ClusterPlan) -> Result<()> {
    let engine = match &plan.engine {
        EnginePlan::Managed(engine) => Some(RunningEngine::start(plan, engine)?),
        EnginePlan::At(_) => None,
    };
    let board = ClusterBoard::new(plan);
    let (mut ready, mut incarnation) = (Some(ready), random_number()?);
    loop {
        let is_lost = Arc::new(AtomicBool::new(false));
        let Some(carrier) = wait_for_turn(process, plan, &board, &is_lost, &mut incarnation)? else {
            info!(event = "stopped", "stopped");
            drop(engine);
            return Ok(());
        };
        let fresh = match configuration(&process.sources, ready.take(), plan) {
            Ok(fresh) => fresh,
            Err(error) => {
                carrier.leave();
                return Err(error);
            }
        };
        let is_over = AtomicBool::new(false);
        let served = std::thread::scope(|scope| {
            scope.spawn(|| access::copy(&access_files(plan), &carrier, &is_over));
            let _over = access::OnDrop(&is_over);
            serve_as_owner(process, fresh, &board, &carrier, &is_lost)
        });
        let (ending, epoch) = (carrier.ending(), carrier.epoch());
        // In good order or not: others need not wait for this process.
        carrier.leave();
        match (served, ending) {
            (Ok(ServeEnd::Stopped), _) => {
                if engine.is_some() {
                    wait_for_successor(plan, epoch);
                }
                return Ok(());
            }
            (Err(error), None) => return Err(error),
            (Ok(ServeEnd::Lost) | Err(_), ending) => {
                board.is_fenced();
                let why = match ending {
                    Some(Ending::Fenced { by }) => format!("another node has it since epoch {by}"),
                    Some(Ending::TailLost) => "the engine has lost a part that it had kept".to_owned(),
                    None => "it was given up".to_owned(),
                };
                warn!(event = "cluster_fenced", why, "this node has lost the log, and stands by again");
            }
        }
    }
}

/// The engine beside this node ends last: whoever carries on has the log before one of the engine's servers is missing.
fn wait_for_successor(plan: &ClusterPlan, epoch: u64) {
    let until = Instant::now() + SUCCESSOR_MAX;
    while Instant::now() < until {
        let Ok(view) = look(plan) else { return };
        let has_successor = view.owner.is_some_and(|(_, now)| now > epoch);
        let is_anybody_there = view.nodes.iter().any(|node| node.node != plan.node && status::is_alive(node));
        if has_successor || !is_anybody_there {
            return;
        }
        std::thread::sleep(GLANCE);
    }
}

/// The configuration as it is now; the one from before if that has become unsound meanwhile. Not one of another cluster, node
/// or folder: the log that was taken over is this one's.
fn configuration(sources: &Sources, before: Option<Ready>, plan: &ClusterPlan) -> Result<Ready> {
    match (prepare(sources), before) {
        (Ok(fresh), _) if plan::cluster::plan(&fresh.loaded)?.is_some_and(|fresh| fresh.is_same_node(plan)) => {
            Ok(fresh)
        }
        (Ok(_), Some(before)) => {
            error!(event = "reload_failed", "[cluster] or the folder of the store has changed: that needs a restart");
            Ok(before)
        }
        (Ok(_), None) => bail!("[cluster] or the folder of the store has changed: start this node anew"),
        (Err(problems), Some(before)) => {
            error!(event = "reload_failed", "{problems}");
            error!(event = "reload_failed", "the configuration from the start is in force");
            Ok(before)
        }
        (Err(problems), None) => Err(problems.into()),
    }
}

fn serve_as_owner(
    process: &mut Process,
    mut ready: Ready,
    board: &Arc<ClusterBoard>,
    carrier: &Carrier,
    is_lost: &Arc<AtomicBool>,
) -> Result<ServeEnd> {
    ready.config.mirror = Some(carrier.mirror());
    board.serves(carrier);
    let reporting = Arc::clone(board);
    let report = Arc::new(move || reporting.report());
    let seat = Seat { is_lost: Arc::clone(is_lost), report, space: carrier.space_mirror() };
    serve(process, ready, Some(&seat))
}

/// Stands by until the log is this node's; none if it was told to stop before.
fn wait_for_turn(
    process: &mut Process,
    plan: &ClusterPlan,
    board: &Arc<ClusterBoard>,
    is_lost: &Arc<AtomicBool>,
    incarnation: &mut u64,
) -> Result<Option<Carrier>> {
    let (loaded, supervisor) = (&process.loaded, Supervisor::of_process());
    let door = match plan::admin(&loaded.options).map(|at| StandbyDoor::open(at, Arc::clone(board))) {
        // One that nobody asked for, at a port that is taken, is no reason not to stand by.
        Some(Err(error)) if *loaded.origin("listeners.admin") == Origin::Default => {
            warn!(event = "admin_off", "nobody can ask this node how it is: {error:#}");
            None
        }
        door => door.transpose()?,
    };
    let health = door.as_ref().map(|door| format!("  health http://{}/readyz", door.address)).unwrap_or_default();
    info!(event = "cluster_start", node = %plan.node, cluster = %plan.name, "node {} of {}{health}", plan.node, plan.name);
    supervisor.ready();
    let signals = process.signals.as_mut().context("signals are gone")?;
    let signals = RefCell::new(signals);
    let is_stopping = || {
        supervisor.is_alive();
        signals.try_borrow_mut().is_ok_and(|mut signals| asks_to_stop(&mut signals))
    };
    loop {
        *incarnation = next_incarnation(*incarnation);
        let membership = membership(plan, *incarnation)?;
        let lost = Arc::clone(is_lost);
        let on_end = move |_: Ending| {
            lost.store(true, Ordering::Relaxed);
            // Whoever waits for signals looks.
            let _ = signal_hook::low_level::raise(SIGUSR1);
        };
        match stand_by(&membership, &|news| board.hear(news), &is_stopping, on_end) {
            Err(ClusterError::Unreachable(words)) => {
                board.hear(News::Unreachable(words));
                std::thread::sleep(AGAIN);
            }
            // Overtaken, or without an answer for long, before it had begun.
            Err(error @ ClusterError::Io { .. }) if is_lost.swap(false, Ordering::Relaxed) || is_timeout(&error) => {
                board.hear(News::Unreachable(error.to_string()));
                std::thread::sleep(AGAIN);
            }
            result => return result.context("this node cannot join its cluster"),
        }
    }
}

fn is_timeout(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Io { source, .. } if source.kind() == std::io::ErrorKind::TimedOut)
}

/// What signals mean to a node that stands by.
fn asks_to_stop(signals: &mut Signals) -> bool {
    let mut stop = false;
    for signal in signals.pending() {
        match signal {
            SIGTERM | SIGINT => stop = true,
            SIGHUP => info!(event = "reloaded", "this node stands by: the configuration is read when it takes over"),
            _ => {}
        }
    }
    stop
}

fn random_number() -> Result<u64> {
    let mut bytes = [0; 8];
    let filled = SystemRandom::new().fill(&mut bytes);
    anyhow::ensure!(filled.is_ok(), "the system has no random numbers");
    Ok(u64::from_ne_bytes(bytes))
}

fn membership(plan: &ClusterPlan, incarnation: u64) -> Result<Membership> {
    Ok(Membership {
        engine: engine_options(plan)?,
        node: plan.node.clone(),
        incarnation,
        address: plan.address.clone(),
        store: plan.store.clone(),
        space: plan.space.clone(),
        access: access_files(plan),
    })
}

/// What says who may come in, where it is on this node.
fn access_files(plan: &ClusterPlan) -> Vec<AccessFile> {
    let file = |(name, path): &(&'static str, PathBuf)| AccessFile { name, path: path.clone() };
    plan.access.iter().map(file).collect()
}

/// The cluster, as its engine knows it.
pub fn look(plan: &ClusterPlan) -> Result<ClusterView> {
    Ok(tidegate_cluster_nats::look(&engine_options(plan)?)?)
}

/// Takes a node out of the list of the cluster; whether it was in it.
pub fn forget(plan: &ClusterPlan, node: &NodeName) -> Result<bool> {
    Ok(tidegate_cluster_nats::forget(&engine_options(plan)?, node)?)
}

/// How the engine is asked.
fn engine_options(plan: &ClusterPlan) -> Result<EngineOptions> {
    Ok(EngineOptions {
        servers: plan.servers(),
        user: plan.user.clone().map(|user| EngineUser { name: user.name, password: user.password }),
        // What is between the engines is theirs: to the one beside it, a node speaks within the machine.
        ca: plan.ca.clone().filter(|_| matches!(plan.engine, EnginePlan::At(_))),
        cluster: plan.name.clone(),
        lineage: LINEAGE.parse().context("the name of the log")?,
        replicas: plan.replicas,
        beside: match plan.engine {
            EnginePlan::Managed(_) => Some(plan.server_name()),
            EnginePlan::At(_) => None,
        },
    })
}
