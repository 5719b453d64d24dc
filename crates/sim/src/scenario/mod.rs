//! Scenarios: what to run, in TOML.
//!
//! A scenario names a world, changes some of its settings, varies others along axes, says how often to repeat, and what
//! is expected to come out. Everything is checked before anything runs, and every mistake is named with its line.

mod book;
mod keys;
mod read;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;

use tidegate_core::trace::Trace;
use tidegate_settings::Origin;
pub use tidegate_settings::{ConfigEntry, ConfigProblem};

pub use book::{BOOK, named};
pub use keys::{COAP_KEYS, POLLING_KEYS, PUBLISHER_KEYS, algorithms};
pub use world::World;

use crate::broker::{self, Publishers};
use crate::coap::{self, Watchers};
use crate::polling::{self, Algorithm, Own, Polling};

/// A scenario that has been checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name: that of the file.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is to find out.
    pub question: String,
    /// What a reader of its page has to know besides, in Markdown.
    pub notes: String,
    pub world: WorldKind,
    /// The metric that was chosen before the first run.
    pub primary: String,
    /// How often each case is run, with consecutive seeds.
    pub replications: u32,
    /// Fewer are enough once every interval of the primary metric is within this share of its mean, and every expectation is
    /// decided; none: all are run.
    pub precision: Option<f64>,
    /// The first seed.
    pub seed: u64,
    /// An extra figure: `timeline` or `trace`.
    pub plot: Option<String>,
    /// Only cases with this label are in it.
    pub plot_only: Option<String>,
    /// Variants of a further figure, which shows these alone.
    pub plot_levels: Option<String>,
    /// What differs from the default world.
    pub settings: Vec<ConfigEntry>,
    /// What varies.
    pub axes: Vec<Axis>,
    /// What is expected.
    pub asserts: Vec<Assert>,
    /// Arrivals that take the place of drawn publishers, in the world of the broker.
    pub trace: Option<Arc<Trace>>,
    /// An algorithm of the reader's own, that `clients.algorithm` can name.
    pub own: Option<Own>,
    /// A quick look: shorter runs, and no case with very many clients.
    pub quick: bool,
}

/// Which world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldKind {
    /// Clients that poll.
    Polling,
    /// Publishers before a real shard.
    Broker,
    /// Clients that watch values by CoAP, behind lossy links.
    Coap,
}

/// What varies: named points, each with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The key, or `variant`.
    pub name: String,
    /// Label and settings.
    pub points: Vec<(String, Vec<ConfigEntry>)>,
}

/// What is expected of a metric in some of the cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assert {
    /// In words.
    pub says: String,
    pub metric: String,
    /// In the cases with these labels.
    pub place: Vec<(String, String)>,
    pub relation: Option<Relation>,
    /// Where it stands.
    pub origin: Option<Origin>,
}

/// What is expected.
#[derive(Clone, Debug, PartialEq)]
pub enum Relation {
    /// The mean is at least this.
    AtLeast(f64),
    /// The mean is at most this.
    AtMost(f64),
    /// Less than in the case with these labels, by a paired comparison.
    LessThan(Vec<(String, String)>),
    /// More than there.
    MoreThan(Vec<(String, String)>),
}

/// A quick look has no case with more clients, and no more replications.
const QUICK_CLIENTS_MAX: u32 = 50_000;
const QUICK_REPLICATIONS: u32 = 3;

/// Labels and settings of a point of the grid.
type Point<'a> = (Vec<(String, String)>, Vec<&'a ConfigEntry>);

/// One point of the grid.
#[derive(Clone, Debug)]
pub struct Case {
    /// Axis and label, in the order of the axes.
    pub labels: Vec<(String, String)>,
    /// What to run.
    pub world: World,
}

impl Scenario {
    fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: name.to_owned(),
            question: String::new(),
            notes: String::new(),
            world: WorldKind::Polling,
            primary: "stale".to_owned(),
            replications: 10,
            precision: None,
            seed: 1,
            plot: None,
            plot_only: None,
            plot_levels: None,
            settings: Vec::new(),
            axes: Vec::new(),
            asserts: Vec::new(),
            trace: None,
            own: None,
            quick: false,
        }
    }

    /// Reads a scenario; the name is that of the file.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<ConfigProblem>> {
        read::read(name, text, None)
    }

    /// The same where `clients.algorithm` can also be this one.
    pub fn read_with(name: &str, text: &str, own: Own) -> Result<Self, Vec<ConfigProblem>> {
        read::read(name, text, Some(own))
    }

    /// The metrics of its world: name, unit, meaning.
    pub fn metrics(&self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self.world {
            WorldKind::Polling => polling::METRICS,
            WorldKind::Broker => broker::METRICS,
            WorldKind::Coap => coap::METRICS,
        }
    }

    /// Changes a setting, as `--set` does; [`Scenario::check`] says whether it fits.
    pub fn set(&mut self, path: &str, value: &str) {
        // What the command line says holds for every case, also if a case says it in other words.
        const SAME: [[&str; 2]; 4] = [
            ["clients.count", "clients.load"],
            ["clients.step", "clients.delta"],
            ["clients.together", "clients.start"],
            ["clients.request_timeout", "clients.timeout"],
        ];
        let is_same =
            |other: &str| other == path || SAME.iter().any(|words| words.contains(&other) && words.contains(&path));
        for axis in &mut self.axes {
            for (_, settings) in &mut axis.points {
                settings.retain(|setting| !is_same(&setting.path));
            }
        }
        self.axes.retain(|axis| !is_same(&axis.name));
        self.settings.push(ConfigEntry::flag("--set", path, value));
    }

    /// Every case, in the order of the axes.
    pub fn cases(&self) -> Result<Vec<Case>, ConfigProblem> {
        let mut points: Vec<Point<'_>> = vec![(Vec::new(), Vec::new())];
        for axis in &self.axes {
            let mut next = Vec::new();
            for (labels, settings) in &points {
                for (label, more) in &axis.points {
                    let mut labels = labels.clone();
                    labels.push((axis.name.clone(), label.clone()));
                    next.push((labels, settings.iter().copied().chain(more).collect()));
                }
            }
            points = next;
        }
        let mut cases = Vec::with_capacity(points.len());
        for (labels, settings) in points {
            let mut world = self.world_with(&settings)?;
            if self.quick {
                if world.clients() > QUICK_CLIENTS_MAX {
                    continue;
                }
                world.shorten();
            }
            cases.push(Case { labels, world });
        }
        Ok(cases)
    }

    fn world_with(&self, varied: &[&ConfigEntry]) -> Result<World, ConfigProblem> {
        let mut settings: Vec<&ConfigEntry> = self.settings.iter().chain(varied.iter().copied()).collect();
        // A preset first: the other keys of its section change it.
        settings.sort_by_key(|setting| !matches!(setting.path.as_str(), "broker.preset" | "publishers.interval"));
        let mut polling = Polling::default();
        let mut publishers = Publishers::default();
        let mut watchers = Watchers::default();
        for ConfigEntry { path, value, origin } in settings {
            // Who set it on the command line says so itself.
            let place = Some(origin).filter(|origin| matches!(origin, Origin::Text { .. })).cloned();
            let own = self.own.filter(|own| path == "clients.algorithm" && value.text() == Some(own.name));
            match self.world {
                WorldKind::Polling if own.is_some() => {
                    polling.clients.algorithm = own.map_or(polling.clients.algorithm, Algorithm::Own);
                    Ok(())
                }
                WorldKind::Polling => keys::set_polling(&mut polling, path, value),
                WorldKind::Broker => keys::set_publishers(&mut publishers, path, value),
                WorldKind::Coap => keys::set_watchers(&mut watchers, path, value),
            }
            .map_err(|text| problem(place, path, text))?;
        }
        let (warm_up, duration) = match self.world {
            WorldKind::Polling => (polling.warm_up, polling.duration),
            WorldKind::Broker => (publishers.warm_up, publishers.duration),
            WorldKind::Coap => (watchers.warm_up, watchers.duration),
        };
        if warm_up >= duration {
            let text = format!("{warm_up} s is not before the end of the run at {duration} s");
            return Err(problem(None, "run.warm_up", text));
        }
        Ok(match self.world {
            WorldKind::Polling => World::Polling(Box::new(polling)),
            WorldKind::Broker => World::Broker(Box::new(publishers), self.trace.clone()),
            WorldKind::Coap => World::Coap(Box::new(watchers)),
        })
    }

    /// A quick look instead of a result: at most three replications, shorter runs, no case with very many clients.
    pub fn make_quick(&mut self) {
        self.quick = true;
        self.replications = self.replications.min(QUICK_REPLICATIONS);
    }

    /// Drops expectations about cases that there are no more after a change of the axes.
    pub fn forget_lost_expectations(&mut self) {
        let axes = self.axes.clone();
        let exists = |(axis, label): &(String, String)| {
            axes.iter().any(|known| &known.name == axis && known.points.iter().any(|(name, _)| name == label))
        };
        self.asserts.retain(|assert| assert.place.iter().all(exists));
    }

    /// Everything that is wrong with the values.
    pub fn check(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if let Err(problem) = self.cases() {
            problems.push(problem);
        }
        let known = |metric: &str| self.metrics().iter().any(|(name, _, _)| *name == metric);
        let hint = |metric: &str| {
            let names = self.metrics().iter().map(|(name, _, _)| *name);
            keys::hint(metric, names)
        };
        let expected = self.asserts.iter().map(|assert| (assert.origin.clone(), &assert.metric));
        for (origin, metric) in [(None, &self.primary)].into_iter().chain(expected) {
            if !known(metric) {
                problems.push(problem(origin, metric, format!("unknown metric{}", hint(metric))));
            }
        }
        for assert in &self.asserts {
            for (axis, label) in &assert.place {
                let exists = self
                    .axes
                    .iter()
                    .any(|known| &known.name == axis && known.points.iter().any(|(name, _)| name == label));
                if !exists {
                    let text = format!("no case has {axis} = {label}");
                    problems.push(problem(assert.origin.clone(), "assert.where", text));
                }
            }
        }
        problems
    }
}

fn problem(origin: Option<Origin>, key: &str, message: String) -> ConfigProblem {
    ConfigProblem { origin, key: Some(key.to_owned()), ..ConfigProblem::general(message) }
}
