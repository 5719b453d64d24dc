//! Every key of a scenario, and what it changes in a world.

use tidegate_control::pacer::{DetectorRule, InitialRule, Preset};
use tidegate_control::rhythm::RhythmRule;

use super::suggest::did_you_mean;
use super::value::Value;
use crate::broker::{Interval, Order, Publishers};
use crate::polling::{Algorithm, Baseline, Broker, Change, Count, Polling, Service, StepChoice};

/// Keys of the polling world.
pub const POLLING_KEYS: &[&str] = &[
    "run.duration",
    "run.warm_up",
    "clients.count",
    "clients.load",
    "clients.algorithm",
    "clients.others",
    "clients.others_algorithm",
    "clients.interval",
    "clients.request_timeout",
    "clients.alpha",
    "clients.step",
    "clients.beta",
    "clients.recovery",
    "clients.jitter",
    "clients.detector",
    "clients.initial",
    "clients.gate",
    "clients.thinning",
    "clients.hints",
    "clients.together",
    "clients.once",
    "clients.no_show",
    "broker.preset",
    "broker.queue_items",
    "broker.queue_delay",
    "broker.denies",
    "broker.deadlines",
    "broker.coalescing",
    "broker.reports_queue",
    "broker.permitted",
    "broker.spread",
    "broker.shed_above",
    "host.capacity",
    "host.servers",
    "host.service",
    "host.service_cv",
    "host.denial_cost",
    "host.drop_cost",
    "host.notification_cost",
    "host.answer_cost",
    "host.dip_from",
    "host.dip_length",
    "host.dip_factor",
    "host.flap_period",
    "host.flap_factor",
    "link.rtt",
    "link.loss",
    "link.loss_burst",
    "link.request_loss",
    "updates.rate",
    "updates.spread",
    "updates.slides",
    "updates.data",
];

/// Keys of the world of the broker.
pub const PUBLISHER_KEYS: &[&str] = &[
    "run.duration",
    "run.warm_up",
    "publishers.count",
    "publishers.interval",
    "publishers.interval_min",
    "publishers.interval_max",
    "publishers.interval_mean",
    "publishers.interval_cv",
    "publishers.regular",
    "publishers.rate_range",
    "publishers.closed_loop",
    "publishers.message_bytes",
    "publishers.attackers",
    "publishers.attack_factor",
    "publishers.attack_from",
    "publishers.attack_length",
    "broker.rule",
    "broker.enforce_always",
    "broker.order",
    "broker.capacity",
    "broker.load",
    "broker.queue_items",
];

const SECONDS_MAX: f64 = 86_400.0;
const FOREVER: &str = "never";

/// What is wrong with a key that no world has.
pub(super) fn unknown(path: &str, keys: &[&str]) -> String {
    let hint = did_you_mean(path, keys.iter().copied()).unwrap_or_default();
    format!("unknown key{hint}")
}

/// Changes one thing of a polling world.
pub(super) fn set_polling(world: &mut Polling, path: &str, value: &Value) -> Result<(), String> {
    let (section, _) = path.split_once('.').unwrap_or((path, ""));
    match section {
        "run" => set_run(&mut world.warm_up, &mut world.duration, path, value),
        "clients" => set_clients(world, path, value),
        "broker" => set_broker(world, path, value),
        "host" => set_host(world, path, value),
        "link" | "updates" => set_surroundings(world, path, value),
        _ => Err(unknown(path, POLLING_KEYS)),
    }
}

fn set_run(warm_up: &mut f64, duration: &mut f64, path: &str, value: &Value) -> Result<(), String> {
    match path {
        "run.duration" => *duration = value.seconds(1.0, SECONDS_MAX)?,
        "run.warm_up" => *warm_up = value.seconds(0.0, SECONDS_MAX)?,
        _ => return Err(unknown(path, POLLING_KEYS)),
    }
    Ok(())
}

fn set_clients(world: &mut Polling, path: &str, value: &Value) -> Result<(), String> {
    let clients = &mut world.clients;
    match path {
        "clients.count" => clients.count = Count::Clients(value.count(1, 10_000_000)?),
        "clients.load" => clients.count = Count::Load(value.number(0.001, 1000.0)?),
        "clients.algorithm" => clients.algorithm = value.one_of(&algorithms())?,
        "clients.others" => clients.others = value.share(0.0, 1.0)?,
        "clients.others_algorithm" => clients.others_algorithm = value.one_of(&algorithms())?,
        "clients.interval" => clients.interval = value.seconds(0.01, SECONDS_MAX)?,
        "clients.request_timeout" => clients.request_timeout = value.seconds(0.01, 3600.0)?,
        "clients.alpha" => clients.alpha = value.number(1.1, 8.0)?,
        "clients.step" => {
            clients.step = match value {
                Value::Text(text) if text == "matched" => StepChoice::Matched,
                Value::Text(text) if text == "shipped" => StepChoice::Shipped,
                _ => StepChoice::Fixed(
                    value.seconds(1e-6, 3600.0).map_err(|error| format!("{error}, or matched, or shipped"))?,
                ),
            }
        }
        "clients.beta" => clients.beta = value.number(1.01, 16.0)?,
        "clients.recovery" => clients.recovery = value.number(1e-4, 1.0)?,
        "clients.jitter" => clients.jitter = value.share(0.0, 0.99)?,
        "clients.detector" => {
            clients.detector = Some(value.one_of(&names(DetectorRule::ALL, |rule| rule.name()))?);
        }
        "clients.initial" => clients.initial = Some(value.one_of(&names(InitialRule::ALL, |rule| rule.name()))?),
        "clients.gate" => clients.gate = value.flag()?,
        "clients.thinning" => clients.thinning = value.flag()?,
        "clients.hints" => clients.hints = Some(value.flag()?),
        "clients.together" => clients.together = value.flag()?,
        "clients.once" => clients.once = value.flag()?,
        "clients.no_show" => clients.no_show = value.share(0.0, 1.0)?,
        _ => return Err(unknown(path, POLLING_KEYS)),
    }
    Ok(())
}

/// What a scenario can choose for the papers' pool only.
const OF_THE_POOL: [&str; 5] =
    ["broker.queue_items", "broker.denies", "broker.deadlines", "broker.reports_queue", "broker.permitted"];

fn set_broker(world: &mut Polling, path: &str, value: &Value) -> Result<(), String> {
    let broker = &mut world.broker;
    if broker.is_product && OF_THE_POOL.contains(&path) {
        return Err("the broker that ships decides this itself; choose another broker.preset".to_owned());
    }
    if !broker.is_product && path == "broker.coalescing" {
        return Err("only the broker that ships does this: broker.preset = \"product\"".to_owned());
    }
    match path {
        "broker.preset" => {
            let name = value.one_of(&Broker::PRESETS.map(|name| (name, name)))?;
            if let Some(preset) = Broker::preset(name) {
                *broker = preset;
            }
        }
        "broker.queue_items" => broker.queue_items = Some(value.seconds(0.001, SECONDS_MAX)?),
        "broker.queue_delay" => broker.queue_delay = Some(value.seconds(0.001, SECONDS_MAX)?),
        "broker.denies" => broker.denies = value.flag()?,
        "broker.deadlines" => broker.deadlines = value.flag()?,
        "broker.coalescing" => broker.coalescing = value.flag()?,
        "broker.reports_queue" => broker.reports_queue = value.flag()?,
        "broker.permitted" => broker.permitted = Some(value.seconds(0.001, SECONDS_MAX)?),
        "broker.spread" => broker.spread = value.flag()?,
        "broker.shed_above" if *value == Value::Text(FOREVER.to_owned()) => broker.shed_above = f64::INFINITY,
        "broker.shed_above" => broker.shed_above = value.seconds(0.0, SECONDS_MAX)?,
        _ => return Err(unknown(path, POLLING_KEYS)),
    }
    Ok(())
}

fn set_host(world: &mut Polling, path: &str, value: &Value) -> Result<(), String> {
    let host = &mut world.host;
    match path {
        "host.capacity" => host.capacity = value.rate(0.1, 1e7)?,
        "host.servers" => host.servers = value.count(1, 1024)?,
        "host.service" => {
            host.service = value.one_of(&[("exponential", Service::Exponential), ("fixed", Service::Fixed)])?;
        }
        "host.service_cv" => host.service = Service::LogNormal(value.number(0.0, 20.0)?),
        "host.denial_cost" => host.denial_cost = value.share(0.0, 10.0)?,
        "host.drop_cost" => host.drop_cost = value.share(0.0, 10.0)?,
        "host.notification_cost" => host.notification_cost = value.share(0.0, 10.0)?,
        "host.answer_cost" => host.answer_cost = value.share(0.0, 10.0)?,
        "host.dip_from" | "host.dip_length" | "host.dip_factor" => {
            let (mut from, mut length, mut factor) = match host.change {
                Change::Dip { from, length, factor } => (from, length, factor),
                _ => (300.0, 60.0, 0.1),
            };
            match path {
                "host.dip_from" => from = value.seconds(0.0, SECONDS_MAX)?,
                "host.dip_length" => length = value.seconds(0.0, SECONDS_MAX)?,
                _ => factor = value.share(0.001, 10.0)?,
            }
            host.change = Change::Dip { from, length, factor };
        }
        "host.flap_period" | "host.flap_factor" => {
            let (mut period, mut factor) = match host.change {
                Change::Flap { period, factor } => (period, factor),
                _ => (60.0, 0.3),
            };
            if path == "host.flap_period" {
                period = value.seconds(0.1, SECONDS_MAX)?;
            } else {
                factor = value.share(0.001, 10.0)?;
            }
            host.change = Change::Flap { period, factor };
        }
        _ => return Err(unknown(path, POLLING_KEYS)),
    }
    Ok(())
}

fn set_surroundings(world: &mut Polling, path: &str, value: &Value) -> Result<(), String> {
    match path {
        "link.rtt" => world.link.rtt = value.seconds(0.0, 60.0)?,
        "link.loss" => world.link.loss = value.share(0.0, 0.99)?,
        "link.loss_burst" => world.link.loss_burst = value.number(1.0, 1e4)?,
        "link.request_loss" => world.link.request_loss = value.share(0.0, 0.99)?,
        "updates.rate" => world.updates.rate = value.rate(0.0, 1e4)?,
        "updates.spread" => world.updates.spread = value.number(0.0, 5.0)?,
        "updates.slides" => world.updates.slides = Some(value.seconds(0.1, SECONDS_MAX)?),
        "updates.data" => world.updates.events = value.one_of(&[("events", true), ("state", false)])?,
        _ => return Err(unknown(path, POLLING_KEYS)),
    }
    Ok(())
}

/// Changes one thing of a world of the broker.
pub(super) fn set_publishers(world: &mut Publishers, path: &str, value: &Value) -> Result<(), String> {
    match path {
        "run.duration" | "run.warm_up" => set_run(&mut world.warm_up, &mut world.duration, path, value)?,
        "publishers.count" => world.count = value.count(1, 1_000_000)?,
        "publishers.interval" => {
            let mean = world.interval.mean();
            world.interval = value.one_of(&[
                ("uniform", Interval::Uniform(0.0, 2.0 * mean)),
                ("whole-seconds", Interval::WholeSeconds(1, (2.0 * mean - 1.0).max(1.0) as u32)),
                ("exponential", Interval::Exponential(mean)),
                ("periodic", Interval::Periodic(mean, 0.1)),
            ])?;
        }
        "publishers.interval_min"
        | "publishers.interval_max"
        | "publishers.interval_mean"
        | "publishers.interval_cv" => {
            set_interval(&mut world.interval, path, value)?;
        }
        "publishers.regular" => world.regular = value.count(0, 1_000_000)?,
        "publishers.rate_range" => world.rate_range = value.number(1.0, 1e6)?,
        "publishers.closed_loop" => world.closed_loop = value.flag()?,
        "publishers.message_bytes" => world.message_bytes = value.count(1, 1_000_000)?,
        "publishers.attackers" => world.attackers = value.count(0, 1_000_000)?,
        "publishers.attack_factor" => world.attack_factor = value.number(0.001, 1e6)?,
        "publishers.attack_from" => world.attack_from = value.seconds(0.0, SECONDS_MAX)?,
        "publishers.attack_length" => world.attack_length = value.seconds(0.0, SECONDS_MAX)?,
        "broker.rule" => {
            let mut rules: Vec<_> = RhythmRule::ALL.iter().map(|rule| (rule.name(), Some(*rule))).collect();
            rules.push(("none", None));
            world.rule = value.one_of(&rules)?;
        }
        "broker.enforce_always" => world.enforce_always = value.flag()?,
        "broker.order" => world.order = value.one_of(&Order::ALL)?,
        "broker.capacity" => world.capacity = Some(value.rate(0.1, 1e7)?),
        "broker.load" => world.load = Some(value.number(0.001, 1000.0)?),
        "broker.queue_items" => world.queue_items = value.count(1, 10_000_000)?,
        _ => return Err(unknown(path, PUBLISHER_KEYS)),
    }
    Ok(())
}

fn set_interval(interval: &mut Interval, path: &str, value: &Value) -> Result<(), String> {
    match (interval, path) {
        (Interval::Uniform(low, _), "publishers.interval_min") => *low = value.seconds(0.0, SECONDS_MAX)?,
        (Interval::Uniform(_, high), "publishers.interval_max") => *high = value.seconds(1e-6, SECONDS_MAX)?,
        (Interval::WholeSeconds(low, _), "publishers.interval_min") => *low = value.seconds(0.0, SECONDS_MAX)? as u32,
        (Interval::WholeSeconds(_, high), "publishers.interval_max") => *high = value.seconds(1.0, SECONDS_MAX)? as u32,
        (Interval::Exponential(mean) | Interval::Periodic(mean, _), "publishers.interval_mean") => {
            *mean = value.seconds(1e-6, SECONDS_MAX)?;
        }
        (Interval::Periodic(_, cv), "publishers.interval_cv") => *cv = value.share(0.0, 10.0)?,
        _ => return Err("the interval of this scenario has no such parameter; see publishers.interval".to_owned()),
    }
    Ok(())
}

/// Algorithms of clients, by name.
pub fn algorithms() -> Vec<(&'static str, Algorithm)> {
    let pacers = Preset::ALL.iter().map(|preset| (preset.name(), Algorithm::Pacer(*preset)));
    pacers
        .chain([("session", Algorithm::Session)])
        .chain(Baseline::ALL.iter().map(|(name, rule)| (*name, Algorithm::Baseline(*rule))))
        .collect()
}

fn names<T: Copy>(all: &[T], name: impl Fn(&T) -> &'static str) -> Vec<(&'static str, T)> {
    all.iter().map(|value| (name(value), *value)).collect()
}
