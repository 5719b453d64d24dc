//! The smart space: one owner of the dataset, its standing queries, subscribers and rules. Everything that changes goes
//! through here, one request after the other; readers take a [`Snapshot`] and go elsewhere.
//!
//! A request that fails changes nothing. A request that succeeds answers with its deltas, which a log must have stored
//! before the request is confirmed, and leaves events for subscribers, which [`GraphSpace::ready`] names and
//! [`GraphSpace::poll`] hands out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oxrdf::{BlankNode, NamedOrBlankNode, Quad, Term};

use crate::data_charge::DataBudget;
use crate::dataset::{Dataset, DatasetLimits, QuadChange, Snapshot};
use crate::delta::QuadDelta;
use crate::draft::DraftWatch;
use crate::error::GraphError;
use crate::journal::JournalLimits;
use crate::limits::QueryLimits;
use crate::masks::Mask;
use crate::rules::{RuleId, UpdateRules};
use crate::staging::{StagedQuad, Staging};
use crate::standing::{Fired, StandingContext, StandingQueries};
use crate::subscribe::SubscriberId;
use crate::subscriber::{QueueLimits, Subscriber};
use crate::update::Update;

/// Every maximum of a space.
#[derive(Clone, Debug)]
pub struct SpaceLimits {
    /// Limits of the data.
    pub dataset: DatasetLimits,
    /// Of one evaluation of a standing query or a rule.
    pub standing: QueryLimits,
    /// Of what is kept to answer a check.
    pub journal: JournalLimits,
    /// Of what waits for a subscriber.
    pub queue: QueueLimits,
    /// Distinct standing queries.
    pub standing_queries_max: usize,
    /// Rows that one standing query may have to keep.
    pub standing_rows_max: usize,
    /// Subscribers.
    pub subscribers_max: usize,
    /// Steps up to which a standing query is evaluated again by the commit that concerns it. Those that take more wait for
    /// [`GraphSpace::poll_evaluation`]; with `u64::MAX` none does.
    pub inline_steps_max: u64,
    /// Rules.
    pub rules_max: usize,
    /// Runs of rules that one request may cause; more is a loop.
    pub rule_runs_max: usize,
}

impl Default for SpaceLimits {
    fn default() -> Self {
        Self {
            dataset: DatasetLimits::default(),
            // A standing query is evaluated by the writer, where everybody waits: a tenth of what a reader may use.
            standing: QueryLimits { steps_max: 5_000_000, live_terms_max: 1_000_000, ..QueryLimits::default() },
            journal: JournalLimits::default(),
            queue: QueueLimits::default(),
            standing_queries_max: 200_000,
            standing_rows_max: 1_000_000,
            subscribers_max: 1_000_000,
            inline_steps_max: u64::MAX,
            rules_max: 1_000,
            rule_runs_max: 64,
        }
    }
}

/// The commits of an update, and the rules that it stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateOutcome {
    /// Its deltas, to be stored in this order: its own, then those of the rules it woke. Empty if nothing changed.
    pub deltas: Vec<QuadDelta>,
    /// Rules that were removed because they did not come to rest or failed, and why.
    pub stopped: Vec<(RuleId, GraphError)>,
    /// New names of the blank nodes that the request brought.
    pub blanks: Vec<(BlankNode, BlankNode)>,
    /// The bytes of the first delta, if they were made beforehand: a log is to store them in its place. They may also name
    /// quads that were as they had to be, which makes no difference when they are read again.
    pub bytes: Option<Vec<u8>>,
}

/// The space.
pub struct GraphSpace {
    pub(crate) dataset: Dataset,
    pub(crate) standing: StandingQueries,
    pub(crate) subscribers: BTreeMap<u64, Subscriber>,
    pub(crate) subscribers_made: u64,
    pub(crate) ready: Vec<SubscriberId>,
    pub(crate) rules: UpdateRules,
    /// Rules whose `WHERE` gained solutions.
    pub(crate) woken: BTreeSet<u64>,
    pub(crate) limits: SpaceLimits,
    /// The large change that is under way.
    pub(crate) staging: Option<Staging>,
    /// Quads of large changes that were given up, to be let go.
    pub(crate) discarded: Vec<StagedQuad>,
    /// The words of quads of large changes, to be let go.
    pub(crate) leftovers: Vec<Vec<Quad>>,
    /// Updates that are worked out elsewhere.
    pub(crate) drafts: Vec<DraftWatch>,
    pub(crate) apart_made: u64,
}

impl GraphSpace {
    /// An empty space. The seed keeps strangers from choosing terms that collide.
    pub fn new(seed: u64, limits: SpaceLimits) -> Self {
        Self {
            dataset: Dataset::new(seed, limits.dataset.clone()),
            standing: StandingQueries::new(seed),
            subscribers: BTreeMap::new(),
            subscribers_made: 0,
            ready: Vec::new(),
            rules: UpdateRules::default(),
            woken: BTreeSet::new(),
            limits,
            staging: None,
            discarded: Vec::new(),
            leftovers: Vec::new(),
            drafts: Vec::new(),
            apart_made: 0,
        }
    }

    /// The number of the last commit.
    pub fn version(&self) -> u64 {
        self.dataset.version()
    }

    /// The data now, in O(1).
    pub fn snapshot(&self) -> Snapshot {
        self.dataset.snapshot()
    }

    /// Whether any quad matches.
    pub fn has(&self, mask: &Mask) -> bool {
        let snapshot = self.snapshot();
        mask.pattern(&snapshot).is_some_and(|pattern| snapshot.scan(pattern).next().is_some())
    }

    /// Distinct standing queries.
    pub fn standing_queries(&self) -> usize {
        self.standing.len()
    }

    /// Distinct terms and the bytes of their texts.
    pub fn terms(&self) -> (usize, usize) {
        (self.dataset.dictionary.len(), self.dataset.dictionary.text_bytes())
    }

    /// Bytes of memory that the data take: an estimate from the numbers of quads and terms and the bytes of texts.
    pub fn data_bytes(&self) -> usize {
        self.dataset.bytes(0)
    }

    /// From now on the data are charged to this budget, what is there already whether there is room for it or not; changes that
    /// would make them grow beyond it are refused with [`Limit::DataBytes`](crate::Limit::DataBytes).
    pub fn charge_data_to(&mut self, budget: Arc<dyn DataBudget>) {
        self.dataset.charge_to(budget);
    }

    /// Does an update, all of it or nothing, then the rules it wakes.
    pub fn update(&mut self, update: &Update, limits: &QueryLimits) -> Result<UpdateOutcome, GraphError> {
        self.transaction(|dataset| update.apply(dataset, limits))
    }

    /// Removes what matches any of the masks, then inserts the quads, as one change. Blank nodes of the quads are new
    /// ones; the outcome has their names.
    pub fn edit(&mut self, remove: &[Mask], insert: &[Quad]) -> Result<UpdateOutcome, GraphError> {
        let mut blanks = BTreeMap::new();
        let mut outcome = self.transaction(|dataset| edit(dataset, remove, insert, &mut blanks))?;
        outcome.blanks = blanks.into_iter().map(|(old, new)| (BlankNode::new_unchecked(old), new)).collect();
        Ok(outcome)
    }

    pub(crate) fn transaction(
        &mut self,
        work: impl FnOnce(&mut Dataset) -> Result<(), GraphError>,
    ) -> Result<UpdateOutcome, GraphError> {
        let mut outcome = UpdateOutcome::default();
        outcome.deltas.extend(self.commit(work)?);
        self.run_rules(&mut outcome);
        Ok(outcome)
    }

    /// One transaction, told to the standing queries. `None` if nothing changed.
    pub(crate) fn commit(
        &mut self,
        work: impl FnOnce(&mut Dataset) -> Result<(), GraphError>,
    ) -> Result<Option<QuadDelta>, GraphError> {
        if let Err(error) = work(&mut self.dataset) {
            self.dataset.rollback();
            return Err(error);
        }
        let (change, delta) = self.dataset.commit();
        if delta.is_empty() {
            self.dataset.sweep();
            return Ok(None);
        }
        self.committed(&change, delta.version, None);
        if let Some(staging) = &mut self.staging {
            staging.follow(&change, &mut self.dataset);
        }
        self.dataset.sweep();
        Ok(Some(delta))
    }

    /// Tells the standing queries, and whoever works on drafts.
    pub(crate) fn committed(&mut self, change: &QuadChange, version: u64, before: Option<Snapshot>) {
        for draft in &mut self.drafts {
            draft.look(change);
        }
        // While a snapshot exists every change costs twice as much. So none is taken beforehand: whom the change does
        // not touch does not ask what was before, and for the others it is found by going back.
        let touched = self.standing.touched(change);
        if !touched.is_empty() {
            let after = self.dataset.snapshot();
            let before = before.unwrap_or_else(|| after.before(change));
            let fired = self.standing.on_change(touched, &before, &after, &context(&self.limits));
            self.tell(fired, version);
        }
    }

    pub(crate) fn tell(&mut self, fired: Vec<Fired>, version: u64) {
        for Fired { entry: number, outcome } in fired {
            let Some(entry) = self.standing.entry(number) else { continue };
            let change = entry.journal.last();
            for id in &entry.subscribers {
                let Some(subscriber) = self.subscribers.get_mut(id) else { continue };
                let was_ready = subscriber.has_events();
                match &outcome {
                    Ok(delta) => subscriber.push(delta, change, version, &self.limits.queue),
                    Err(error) => subscriber.end(error.clone()),
                }
                if !was_ready && subscriber.has_events() {
                    self.ready.push(SubscriberId(*id));
                }
            }
            match outcome {
                Ok(delta) if !delta.added.is_empty() => self.woken.extend(&entry.rules),
                Ok(_) => {}
                Err(_) => {
                    // Its rules will be found without their query, and stopped.
                    self.woken.extend(&entry.rules);
                    self.standing.remove(number, &mut self.dataset.dictionary);
                }
            }
        }
    }
}

pub(crate) fn context(limits: &SpaceLimits) -> StandingContext<'_> {
    StandingContext {
        query: &limits.standing,
        journal: &limits.journal,
        queries_max: limits.standing_queries_max,
        rows_max: limits.standing_rows_max,
        inline_steps_max: limits.inline_steps_max,
    }
}

fn edit(
    dataset: &mut Dataset,
    remove: &[Mask],
    insert: &[Quad],
    blanks: &mut BTreeMap<String, BlankNode>,
) -> Result<(), GraphError> {
    if !remove.is_empty() {
        // Only here: while a snapshot exists, every change copies a path of each index.
        let snapshot = dataset.snapshot();
        for pattern in remove.iter().filter_map(|mask| mask.pattern(&snapshot)) {
            for quad in snapshot.scan(pattern) {
                dataset.remove_ids(quad)?;
            }
        }
    }
    for quad in insert {
        let mut quad = quad.clone();
        let mut fresh = |node: &mut BlankNode| {
            *node = blanks.entry(node.as_str().to_owned()).or_insert_with(|| dataset.fresh_blank()).clone();
        };
        if let NamedOrBlankNode::BlankNode(node) = &mut quad.subject {
            fresh(node);
        }
        if let Term::BlankNode(node) = &mut quad.object {
            fresh(node);
        }
        dataset.insert(quad.as_ref())?;
    }
    Ok(())
}
