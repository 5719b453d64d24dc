//! Every key of a scenario, and what it changes in a world.

use tidegate_control::pacer::{DetectorRule, InitialRule, PacerConfig, Parameter, Preset};
use tidegate_control::rhythm::RhythmRule;
use tidegate_face_coap::RtoRule;
use tidegate_settings::ConfigValue;
use tidegate_settings::suggest::did_you_mean;

use crate::broker::{Interval, Order, Publishers};
use crate::coap::{Watchers, Way};
use crate::polling::{Algorithm, Baseline, Broker, Change, Count, Host, Polling, Service, StepChoice};

const SECONDS_MAX: f64 = 86_400.0;
const FOREVER: &str = "never";

/// What is wrong with a key that no world has.
pub(super) fn unknown(path: &str, keys: &[&str]) -> String {
    format!("unknown key{}", hint(path, keys.iter().copied()))
}

/// What may be meant by a name that is not known, as the end of a sentence.
pub(super) fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    did_you_mean(wrong, known).map(|hint| format!("; {hint}")).unwrap_or_default()
}

/// A world's keys: each written once, with what it changes.
macro_rules! keys {
    ($(#[$about:meta])* $list:ident, $set:ident($world:ident: $World:ty, $path:ident, $value:ident) {
        $($key:literal => $change:expr,)+
    }) => {
        $(#[$about])*
        pub const $list: &[&str] = &[$($key),+];

        /// Changes one thing of such a world.
        pub(super) fn $set($world: &mut $World, $path: &str, $value: &ConfigValue) -> Result<(), String> {
            match $path {
                $($key => $change,)+
                _ => return Err(unknown($path, $list)),
            }
            Ok(())
        }
    };
}

keys! {
    /// Keys of the polling world.
    POLLING_KEYS, change_polling(world: Polling, path, value) {
        "run.duration" => world.duration = value.seconds(1.0, SECONDS_MAX)?,
        "run.warm_up" => world.warm_up = value.seconds(0.0, SECONDS_MAX)?,
        "clients.count" => world.clients.count = Count::Clients(value.count(1, 10_000_000)?),
        "clients.load" => world.clients.count = Count::Load(value.number(0.001, 1000.0)?),
        "clients.algorithm" => world.clients.algorithm = value.one_of(&algorithms())?,
        "clients.others" => world.clients.others = value.share(0.0, 1.0)?,
        "clients.others_algorithm" => world.clients.others_algorithm = value.one_of(&algorithms())?,
        "clients.interval" => world.clients.interval = value.seconds(0.01, SECONDS_MAX)?,
        "clients.request_timeout" => world.clients.request_timeout = value.seconds(0.01, 3600.0)?,
        "clients.alpha" => world.clients.alpha = value.number(1.1, 8.0)?,
        "clients.step" => set_step(world, value)?,
        "clients.delta" => set_step(world, value)?,
        "clients.detection_delay" => set_parameter(world, Parameter::DetectionDelay, value)?,
        "clients.beta" => world.clients.beta = value.number(1.01, 16.0)?,
        "clients.recovery" => world.clients.recovery = value.number(1e-4, 1.0)?,
        "clients.jitter" => {
            let is_number = value.as_number().is_some();
            world.clients.jitter = if is_number { value.number(0.0, 0.99) } else { value.share(0.0, 0.99) }?;
        },
        "clients.detector" => {
            world.clients.detector = Some(value.one_of(&names(DetectorRule::ALL, |rule| rule.name()))?);
        },
        "clients.initial" => world.clients.initial = Some(value.one_of(&names(InitialRule::ALL, |rule| rule.name()))?),
        "clients.gate" => world.clients.gate = value.flag()?,
        "clients.smoothing" => world.clients.smoothing = value.flag()?,
        "clients.thinning" => world.clients.thinning = value.flag()?,
        "clients.hints" => world.clients.hints = Some(word_or_flag(value, ["obey", "ignore"])?),
        "clients.together" => world.clients.together = value.flag()?,
        "clients.start" => world.clients.together = value.one_of(&[("immediately", true), ("spread", false)])?,
        "clients.timeout" => world.clients.request_timeout = value.seconds(0.001, 3600.0)?,
        "clients.once" => world.clients.once = value.flag()?,
        "clients.no_show" => world.clients.no_show = value.share(0.0, 1.0)?,
        "clients.T" => set_parameter(world, Parameter::BeforeDecrease, value)?,
        "clients.N" => set_parameter(world, Parameter::Growths, value)?,
        "clients.K" => set_parameter(world, Parameter::Burst, value)?,
        "clients.ast" => set_parameter(world, Parameter::Ast, value)?,
        "clients.floor" => set_parameter(world, Parameter::Floor, value)?,
        "clients.ceiling" => set_parameter(world, Parameter::Ceiling, value)?,
        "clients.t_min" => set_parameter(world, Parameter::Minimum, value)?,
        "clients.t_max" => set_parameter(world, Parameter::Maximum, value)?,
        "clients.rounds" => set_parameter(world, Parameter::Rounds, value)?,
        "clients.rbt" => set_parameter(world, Parameter::Rbt, value)?,
        "clients.noise" => set_parameter(world, Parameter::Noise, value)?,
        "clients.theta" => set_parameter(world, Parameter::Theta, value)?,
        "clients.kappa" => set_parameter(world, Parameter::Kappa, value)?,
        "clients.gamma" => set_parameter(world, Parameter::Gamma, value)?,
        "clients.average" => set_parameter(world, Parameter::Average, value)?,
        "clients.t_net" => set_parameter(world, Parameter::Network, value)?,
        "clients.t_proc" => set_parameter(world, Parameter::Processing, value)?,
        "clients.t_small" => set_parameter(world, Parameter::Small, value)?,
        "clients.queue_target" => set_parameter(world, Parameter::QueueTarget, value)?,
        "clients.denial" => set_parameter(world, Parameter::Denial, value)?,
        "broker.preset" => {
            let name = value.one_of(&Broker::PRESETS.map(|name| (name, name)))?;
            if let Some(preset) = Broker::preset(name) {
                world.broker = preset;
            }
        },
        "broker.queue_items" => world.broker.queue_items = Some(value.seconds(0.001, SECONDS_MAX)?),
        "broker.queue_delay" => world.broker.queue_delay = Some(value.seconds(0.001, SECONDS_MAX)?),
        "broker.denies" => world.broker.denies = value.flag()?,
        "broker.deadlines" => world.broker.deadlines = value.flag()?,
        "broker.coalescing" => world.broker.coalescing = value.flag()?,
        "broker.reports_queue" => world.broker.reports_queue = value.flag()?,
        "broker.permitted" => world.broker.permitted = Some(value.seconds(0.001, SECONDS_MAX)?),
        "broker.spread" => world.broker.spread = value.flag()?,
        "broker.shed_above" => {
            let is_never = value.text() == Some(FOREVER);
            world.broker.shed_above = if is_never { f64::INFINITY } else { value.seconds(0.0, SECONDS_MAX)? };
        },
        "host.capacity" => world.host.capacity = value.rate(0.1, 1e7)?,
        "host.servers" => world.host.servers = value.count(1, 1024)?,
        "host.service" => {
            world.host.service = value.one_of(&[("exponential", Service::Exponential), ("fixed", Service::Fixed)])?;
        },
        "host.service_cv" => world.host.service = Service::LogNormal(value.number(0.0, 20.0)?),
        "host.denial_cost" => world.host.denial_cost = value.share(0.0, 10.0)?,
        "host.drop_cost" => world.host.drop_cost = value.share(0.0, 10.0)?,
        "host.notification_cost" => world.host.notification_cost = value.share(0.0, 10.0)?,
        "host.answer_cost" => world.host.answer_cost = value.share(0.0, 10.0)?,
        "host.dip_from" => set_dip(&mut world.host, path, value)?,
        "host.dip_length" => set_dip(&mut world.host, path, value)?,
        "host.dip_factor" => set_dip(&mut world.host, path, value)?,
        "host.flap_period" => set_flap(&mut world.host, path, value)?,
        "host.flap_factor" => set_flap(&mut world.host, path, value)?,
        "link.rtt" => world.link.rtt = value.seconds(0.0, 60.0)?,
        "link.loss" => world.link.loss = value.share(0.0, 0.99)?,
        "link.loss_burst" => world.link.loss_burst = value.number(1.0, 1e4)?,
        "link.request_loss" => world.link.request_loss = value.share(0.0, 0.99)?,
        "updates.rate" => world.updates.rate = value.rate(0.0, 1e4)?,
        "updates.spread" => world.updates.spread = value.number(0.0, 5.0)?,
        "updates.slides" => world.updates.slides = Some(value.seconds(0.1, SECONDS_MAX)?),
        "updates.data" => world.updates.events = value.one_of(&[("events", true), ("state", false)])?,
    }
}

keys! {
    /// Keys of the world of the broker.
    PUBLISHER_KEYS, set_publishers(world: Publishers, path, value) {
        "run.duration" => world.duration = value.seconds(1.0, SECONDS_MAX)?,
        "run.warm_up" => world.warm_up = value.seconds(0.0, SECONDS_MAX)?,
        "publishers.count" => world.count = value.count(1, 1_000_000)?,
        "publishers.interval" => {
            let mean = world.interval.mean();
            world.interval = value.one_of(&[
                ("uniform", Interval::Uniform(0.0, 2.0 * mean)),
                ("whole-seconds", Interval::WholeSeconds(1, (2.0 * mean - 1.0).max(1.0) as u32)),
                ("exponential", Interval::Exponential(mean)),
                ("periodic", Interval::Periodic(mean, 0.1)),
            ])?;
        },
        "publishers.interval_min" => set_interval(&mut world.interval, path, value)?,
        "publishers.interval_max" => set_interval(&mut world.interval, path, value)?,
        "publishers.interval_mean" => set_interval(&mut world.interval, path, value)?,
        "publishers.interval_cv" => set_interval(&mut world.interval, path, value)?,
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
        },
        "broker.enforce_always" => world.enforce_always = value.flag()?,
        "broker.order" => world.order = value.one_of(&Order::ALL)?,
        "broker.capacity" => world.capacity = Some(value.rate(0.1, 1e7)?),
        "broker.load" => world.load = Some(value.number(0.001, 1000.0)?),
        "broker.queue_items" => world.queue_items = value.count(1, 10_000_000)?,
    }
}

keys! {
    /// Keys of the world of CoAP.
    COAP_KEYS, set_watchers(world: Watchers, path, value) {
        "run.duration" => world.duration = value.seconds(1.0, SECONDS_MAX)?,
        "run.warm_up" => world.warm_up = value.seconds(0.0, SECONDS_MAX)?,
        "clients.count" => world.clients = value.count(1, 4_000)?,
        "clients.way" => world.way = value.one_of(&[("observe", Way::Observe), ("poll", Way::Poll)])?,
        "clients.algorithm" => world.preset = value.one_of(&names(Preset::ALL, |preset| preset.name()))?,
        "clients.interval" => world.interval = value.seconds(0.01, SECONDS_MAX)?,
        "broker.repetitions" => {
            world.repetitions = value.one_of(&[("cocoa", RtoRule::Cocoa), ("default", RtoRule::Default)])?;
        },
        "link.rtt" => world.rtt = value.seconds(0.0, 60.0)?,
        "link.loss" => world.loss = value.share(0.0, 0.99)?,
        "updates.rate" => world.updates = value.rate(0.0, 1e3)?,
    }
}

/// What a scenario can choose for the papers' pool only.
const OF_THE_POOL: [&str; 5] =
    ["broker.queue_items", "broker.denies", "broker.deadlines", "broker.reports_queue", "broker.permitted"];

/// Changes one thing of a polling world, if its broker lets a scenario choose it.
pub(super) fn set_polling(world: &mut Polling, path: &str, value: &ConfigValue) -> Result<(), String> {
    if world.broker.is_product && OF_THE_POOL.contains(&path) {
        return Err("the broker that ships decides this itself; choose another broker.preset".to_owned());
    }
    if world.broker.rule.is_some() && (OF_THE_POOL.contains(&path) || path == "broker.queue_delay") {
        return Err("a rule of the literature decides this itself; choose another broker.preset".to_owned());
    }
    if !world.broker.is_product && path == "broker.coalescing" {
        return Err("only the broker that ships does this: broker.preset = \"product\"".to_owned());
    }
    change_polling(world, path, value)
}

fn set_dip(host: &mut Host, path: &str, value: &ConfigValue) -> Result<(), String> {
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
    Ok(())
}

fn set_flap(host: &mut Host, path: &str, value: &ConfigValue) -> Result<(), String> {
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
    Ok(())
}

fn set_interval(interval: &mut Interval, path: &str, value: &ConfigValue) -> Result<(), String> {
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

/// δ, by either of its names.
fn set_step(world: &mut Polling, value: &ConfigValue) -> Result<(), String> {
    world.clients.step = match value.text() {
        Some("matched") => StepChoice::Matched,
        Some("shipped") => StepChoice::Shipped,
        _ => {
            StepChoice::Fixed(value.seconds(1e-6, 3600.0).map_err(|error| format!("{error}, or matched, or shipped"))?)
        }
    };
    Ok(())
}

/// What clients call by the first of two words, and a scenario also by `true`.
fn word_or_flag(value: &ConfigValue, [yes, no]: [&str; 2]) -> Result<bool, String> {
    match value.text() {
        Some(text) if text == yes => Ok(true),
        Some(text) if text == no => Ok(false),
        _ => value.flag().map_err(|error| format!("{error}, or {yes}, or {no}")),
    }
}

/// What of a pacer has no meaning of its own here. Whether it is readable is known now, whether it is in range when the
/// clients are made.
fn set_parameter(world: &mut Polling, parameter: Parameter, value: &ConfigValue) -> Result<(), String> {
    let text = value.plain().unwrap_or_default();
    PacerConfig::default().set(parameter, &text).map_err(|error| format!("expected {}", error.allowed))?;
    world.clients.parameters.push((parameter, text));
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
