//! A persistent query as its user holds it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_control::ConfigError;
use tidegate_control::pacer::{DetectorRule, InitialRule, Level, PacerConfig, Parameter, Preset};
use tokio::sync::{mpsc, oneshot};

use super::SpaceQuery;
use super::address::within;
use super::outlet::Outlet;
use super::query_task::SpaceCommand;
use crate::error::Error;
use crate::limits::{ANSWER_TIMEOUT, PLANS_MAX};
use crate::session::hub::WatchId;
use crate::session::row::Row;
use crate::session::watch::{ChangeDelivery, ResultChange, WatchPlan, WatchStats};

/// A persistent query that is being described.
#[derive(Debug)]
#[must_use = "a persistent query begins with `open`"]
pub struct QueryBuilder {
    what: SpaceQuery,
    commands: mpsc::Sender<SpaceCommand>,
    plans: Arc<Plans>,
    pacer: PacerConfig,
    delivery: ChangeDelivery,
}

/// Settings that were checked: queries that are paced alike share them.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<Vec<(PacerConfig, Arc<WatchPlan>)>>);

impl Plans {
    fn plan(&self, pacer: PacerConfig, delivery: ChangeDelivery) -> Result<Arc<WatchPlan>, Error> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(config, plan): &&(PacerConfig, Arc<WatchPlan>)| *config == pacer && plan.delivery == delivery;
        if let Some((_, plan)) = held.iter().find(is_it) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(WatchPlan { check_timeout: pacer.request_timeout, pacer: pacer.build()?, delivery });
        if held.len() >= PLANS_MAX {
            held.remove(0);
        }
        held.push((pacer, Arc::clone(&plan)));
        Ok(plan)
    }
}

/// A result that is followed. Dropping it ends the subscription.
#[derive(Debug)]
pub struct PersistentQuery {
    id: WatchId,
    outlet: Arc<Outlet>,
    commands: mpsc::Sender<SpaceCommand>,
}

impl QueryBuilder {
    pub(crate) fn new(what: SpaceQuery, commands: mpsc::Sender<SpaceCommand>, plans: &Arc<Plans>) -> Self {
        Self { what, commands, plans: Arc::clone(plans), pacer: PacerConfig::default(), delivery: ChangeDelivery::Push }
    }

    /// The level of control; `active` if nothing is said.
    pub fn control(mut self, level: Level) -> Self {
        self.pacer.level = level;
        self
    }

    /// How congestion is recognised.
    pub fn detector(mut self, rule: DetectorRule) -> Self {
        self.pacer.detector.rule = rule;
        self
    }

    /// How the first back-off of an episode is found.
    pub fn initial(mut self, rule: InitialRule) -> Self {
        self.pacer.initial = rule;
        self
    }

    /// The mean interval of the basic levels, and the first of the others.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.pacer.interval = interval;
        self
    }

    /// A named combination, such as the papers' own, in place of everything that was said about pace before.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.pacer = preset.into();
        self
    }

    /// One value by its name: α, β, δ and all the others of the papers.
    pub fn set(mut self, parameter: Parameter, value: &str) -> Result<Self, ConfigError> {
        self.pacer.set(parameter, value)?;
        Ok(self)
    }

    /// Everything about pace.
    pub fn pacer(mut self, config: PacerConfig) -> Self {
        self.pacer = config;
        self
    }

    /// No subscription, only checks: for brokers that have none.
    pub fn poll(mut self) -> Self {
        self.delivery = ChangeDelivery::Poll;
        self
    }

    /// Begins, and waits for the first result.
    pub async fn open(self) -> Result<PersistentQuery, Error> {
        let outlet = Arc::new(Outlet::default());
        let plan = self.plans.plan(self.pacer, self.delivery)?;
        let (opened, answer) = oneshot::channel();
        let order = SpaceCommand::Open { what: self.what, plan, outlet: Arc::downgrade(&outlet), opened };
        self.commands.send(order).await.map_err(|_| Error::Closed)?;
        // Two rounds: one attempt may fail for a reason that passes.
        let id = within(ANSWER_TIMEOUT * 2, answer).await?.map_err(|_| Error::Closed)??;
        Ok(PersistentQuery { id, outlet, commands: self.commands })
    }
}

impl PersistentQuery {
    /// Its number, by which [events](crate::ClientEvent) name it.
    pub fn id(&self) -> u64 {
        self.id.0
    }

    /// The next change: the whole result first, then differences. If changes came faster than they were taken, their
    /// sum. `None` when the space is closed.
    pub async fn next(&mut self) -> Option<ResultChange> {
        loop {
            // Registered before looking, so that nothing is missed in between.
            let woken = self.outlet.wake.notified();
            if let Some(change) = self.outlet.take() {
                return Some(change);
            }
            tokio::select! {
                () = woken => {}
                () = self.commands.closed() => return self.outlet.take(),
            }
        }
    }

    /// A change that is there already.
    pub fn try_next(&mut self) -> Option<ResultChange> {
        self.outlet.take()
    }

    /// Checks now, whatever the pace: somebody waits.
    pub async fn check(&self) -> Result<(), Error> {
        self.commands.send(SpaceCommand::CheckNow(self.id)).await.map_err(|_| Error::Closed)
    }

    /// AST, RBT, σ, estimates and counts.
    pub async fn stats(&self) -> Result<WatchStats, Error> {
        let (answer, stats) = oneshot::channel();
        self.commands.send(SpaceCommand::Stats(self.id, answer)).await.map_err(|_| Error::Closed)?;
        stats.await.map_err(|_| Error::Closed)
    }

    /// The whole result as it is known.
    pub async fn view(&self) -> Result<Vec<Row>, Error> {
        let (answer, rows) = oneshot::channel();
        self.commands.send(SpaceCommand::View(self.id, answer)).await.map_err(|_| Error::Closed)?;
        rows.await.map_err(|_| Error::Closed)
    }
}

impl Drop for PersistentQuery {
    fn drop(&mut self) {
        // If there is no room, the query task finds the outlet gone.
        let _ = self.commands.try_send(SpaceCommand::Close(self.id));
    }
}
