//! An update that is worked out beside the commits.
//!
//! The `WHERE` of an update may take as long as any query, and whoever commits would keep everybody waiting meanwhile. So
//! the update is done on a copy of a snapshot, by whoever owns a thread: an [`UpdateDraft`] becomes a [`DraftedUpdate`],
//! which is for each quad that the update names whether the quad is there afterwards. If no commit has touched what the
//! update reads (the patterns under which a standing query would be found), doing just that is what the update itself would
//! do now: the order is a serial one. Else the draft is *overtaken*, and worth nothing.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::dataset::{Dataset, DatasetLimits, QuadChange, Snapshot, quad_by};
use crate::dictionary::Dictionary;
use crate::error::{GraphError, Limit};
use crate::index::{IdPattern, Quad};
use crate::limits::{CancelToken, QueryLimits};
use crate::prepare::pattern_ids;
use crate::space::{GraphSpace, UpdateOutcome};
use crate::staging::ChangeStep;
use crate::update::Update;

/// An update and the data to work it out on: work for a thread.
pub struct UpdateDraft {
    number: u64,
    update: Update,
    snapshot: Snapshot,
    limits: DatasetLimits,
    steps: DraftSteps,
}

/// What an update does, if nothing that it reads has changed since.
pub struct DraftedUpdate {
    number: u64,
    pub(crate) outcome: Result<Vec<ChangeStep>, GraphError>,
}

impl UpdateDraft {
    /// What to say if the work never ends, or panics.
    pub fn lost(&self) -> DraftedUpdate {
        let outcome = Err(GraphError::Evaluation("the evaluation was lost".to_owned()));
        DraftedUpdate { number: self.number, outcome }
    }

    /// No two drafts of a space have the same, in no two of its lives ([`GraphSpace::replay_lives`]).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Works it out, until it is cancelled.
    pub fn run(self, limits: &QueryLimits, cancel: CancelToken) -> DraftedUpdate {
        let Self { number, update, snapshot, limits: bounds, steps } = self;
        let limits = QueryLimits { cancel, ..limits.clone() };
        let mut dataset = Dataset::draft(&snapshot, bounds, steps);
        drop(snapshot);
        let outcome = update.apply(&mut dataset, &limits).map(|()| match dataset.into_draft() {
            Some((steps, terms)) => {
                let step = |(ids, is_wanted): (Quad, bool)| {
                    let quad = quad_by(&terms, ids)?;
                    Some(if is_wanted { ChangeStep::InsertNamed(quad) } else { ChangeStep::Remove(quad) })
                };
                steps.quads.into_iter().filter_map(step).collect()
            }
            None => Vec::new(),
        });
        DraftedUpdate { number, outcome }
    }
}

impl DraftedUpdate {
    /// The number of its draft.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Quads that it names.
    pub fn size(&self) -> usize {
        self.outcome.as_ref().map_or(0, Vec::len)
    }

    /// Why it cannot be done. What names too many quads may still be done by a commit, which counts only those that change.
    pub fn error(&self) -> Option<&GraphError> {
        self.outcome.as_ref().err()
    }
}

/// Quads that a change on a copy has named, in the numbers of the copy, each with the last word about it.
pub(crate) struct DraftSteps {
    /// What sets blank nodes of this draft apart from those of others.
    name: String,
    quads: Vec<(Quad, bool)>,
    places: HashMap<Quad, u32, FixedState>,
}

impl DraftSteps {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn note(&mut self, quad: Quad, is_wanted: bool, quads_max: usize) -> Result<(), Limit> {
        let next = u32::try_from(self.quads.len()).map_err(|_| Limit::ChangeQuads)?;
        let place = *self.places.entry(quad).or_insert(next);
        if let Some((_, known)) = self.quads.get_mut(place as usize) {
            *known = is_wanted;
            return Ok(());
        }
        self.quads.push((quad, is_wanted));
        if self.quads.len() > quads_max { Err(Limit::ChangeQuads) } else { Ok(()) }
    }
}

/// A draft that is not done yet, and whether it is overtaken.
pub(crate) struct DraftWatch {
    number: u64,
    /// What it reads, the terms held.
    patterns: Vec<IdPattern>,
    is_overtaken: bool,
}

impl DraftWatch {
    /// A change was committed.
    pub(crate) fn look(&mut self, change: &QuadChange) {
        let is_read = |quad: &Quad| self.patterns.iter().any(|pattern| pattern.matches(*quad));
        self.is_overtaken = self.is_overtaken || change.added.iter().chain(&change.removed).any(is_read);
    }

    fn release(&self, dictionary: &mut Dictionary) {
        for id in self.patterns.iter().flat_map(pattern_ids) {
            dictionary.release(id);
        }
    }
}

impl GraphSpace {
    /// Begins to work an update out on the data of now. [`GraphSpace::end_draft`] must follow.
    pub fn begin_draft(&mut self, update: &Update) -> Result<UpdateDraft, GraphError> {
        let patterns = update.held_interests(&mut self.dataset.dictionary)?;
        let number = self.standing.next_number();
        self.drafts.push(DraftWatch { number, patterns, is_overtaken: false });
        let snapshot = self.dataset.snapshot();
        let places = HashMap::with_hasher(snapshot.terms.hasher());
        let steps = DraftSteps { name: format!("d{}", self.next_apart()), quads: Vec::new(), places };
        Ok(UpdateDraft { number, update: update.clone(), snapshot, limits: self.limits.dataset.clone(), steps })
    }

    /// Whether something has changed that this draft reads.
    pub fn is_overtaken(&self, number: u64) -> bool {
        self.drafts.iter().find(|draft| draft.number == number).is_none_or(|draft| draft.is_overtaken)
    }

    /// A draft is done, or is not wanted any more.
    pub fn end_draft(&mut self, number: u64) {
        if let Some(place) = self.drafts.iter().position(|draft| draft.number == number) {
            self.drafts.swap_remove(place).release(&mut self.dataset.dictionary);
        }
    }

    /// Does what an update was found to do; then the rules that it wakes. Out of step if it is overtaken.
    pub fn commit_drafted(&mut self, drafted: DraftedUpdate) -> Result<UpdateOutcome, GraphError> {
        if self.is_overtaken(drafted.number) {
            return Err(GraphError::OutOfStep);
        }
        self.end_draft(drafted.number);
        let steps = drafted.outcome?;
        self.transaction(|dataset| {
            for step in &steps {
                match step {
                    ChangeStep::Insert(quad) | ChangeStep::InsertNamed(quad) => dataset.insert(quad.as_ref())?,
                    ChangeStep::Remove(quad) => dataset.remove(quad.as_ref())?,
                };
            }
            Ok(())
        })
    }
}
