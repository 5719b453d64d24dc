//! What the model says about the same: the polling world of the laboratory, with what was measured of this host, and the same
//! sessions and pacers. What the model does not know is not predicted.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tidegate_client::PacerConfig;
use tidegate_control::pacer::{HintUse, Preset};
use tidegate_sim::polling::{self, Algorithm, Broker, Count, Outcome, Polling, StepChoice};

use super::figures::Figures;
use super::gauge::Gauge;
use super::plan::RealArgs;

/// Replications of the model: it takes milliseconds.
const REPLICATIONS: u64 = 20;

/// The first interval of the KPs.
pub(super) fn interval(args: &RealArgs, gauge: &Gauge) -> Duration {
    args.interval.unwrap_or_else(|| {
        let seconds = f64::from(args.kps) / (gauge.capacity * args.load);
        Duration::from_secs_f64(seconds.clamp(0.02, 600.0))
    })
}

/// The world that the testbed is, as far as the model knows such things.
pub(super) fn world(args: &RealArgs, gauge: &Gauge, control: Preset) -> Polling {
    let mut world = Polling { warm_up: args.warm_up, duration: args.warm_up + args.secs, ..Polling::default() };
    world.clients.count = Count::Clients(args.kps);
    world.clients.algorithm = Algorithm::SessionOf(control);
    world.clients.interval = interval(args, gauge).as_secs_f64();
    world.clients.request_timeout = RealArgs::PATIENCE.as_secs_f64();
    // The papers give no δ: theirs is the one at which the mean timeout is the first interval. Ours is what ships.
    let is_paper = PacerConfig::from(control).hints == HintUse::Ignore;
    world.clients.step = if is_paper { StepChoice::Matched } else { StepChoice::Shipped };
    // The broker sheds no notification.
    let product = Broker::preset("product").unwrap_or(world.broker);
    world.broker = Broker { shed_above: f64::INFINITY, ..product };
    world.host.capacity = gauge.capacity;
    world.host.notification_cost = gauge.update_cpu / gauge.check_cpu.max(1e-9);
    // A host that runs in turns keeps a question waiting for the next one, as a longer way would.
    world.link.rtt = 2.0 * args.delay.as_secs_f64() + (gauge.lone_latency - 1.0 / gauge.capacity).max(0.0);
    world.link.loss = args.loss;
    world.link.request_loss = args.exchange_loss();
    world.updates.rate = args.updates;
    world.updates.events = false;
    world
}

/// The same pacer as in the model.
pub(super) fn pacer(args: &RealArgs, gauge: &Gauge, control: Preset) -> Result<PacerConfig> {
    world(args, gauge, control).pacer(control).map_err(|error| anyhow!("{error}"))
}

/// What the model says, a line for each of its replications.
pub(super) fn predict(args: &RealArgs, gauge: &Gauge, control: Preset) -> Result<Vec<Figures>> {
    let world = world(args, gauge, control);
    let seeds = (0..REPLICATIONS).map(|number| u64::from(args.seed) + number);
    seeds
        .map(|seed| polling::run(&world, seed).map_err(|error| anyhow!("{error}")))
        .map(|outcome| outcome.map(|outcome| figures(args, gauge, &outcome)))
        .collect()
}

fn figures(args: &RealArgs, gauge: &Gauge, outcome: &Outcome) -> Figures {
    let metric = |name: &str| outcome.metric(name).unwrap_or(f64::NAN);
    let answers = metric("goodput") * gauge.capacity;
    // The model counts what arrives; what was lost was asked, too.
    let requests = metric("offered") * gauge.capacity / (1.0 - args.exchange_loss());
    let updates = args.updates * f64::from(args.kps);
    let some = |value: f64, is_there: bool| if is_there { value } else { f64::NAN };
    Figures {
        stale: metric("stale"),
        found_after: some(metric("detection_mean"), metric("detection_mean") > 0.0),
        requests_per_answer: some(requests / answers, answers > 0.0),
        answers,
        latency_p50: some(metric("latency_p50"), answers > 0.0),
        latency_p99: some(metric("latency_p99"), answers > 0.0),
        cpu: gauge.idle_cpu + answers * gauge.check_cpu + updates * gauge.update_cpu,
        bytes: requests * gauge.request_bytes
            + answers / (1.0 - args.loss) * gauge.answer_bytes
            + updates * gauge.notification_bytes,
        refused: f64::NAN,
        lost: args.loss,
        unanswered: f64::NAN,
        delegated: f64::NAN,
    }
}
