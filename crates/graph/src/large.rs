//! Large changes of a space: begun, made in pieces, and done in one moment or not at all. At most one is under way.

use oxrdf::Quad;

use crate::delta::QuadDelta;
use crate::error::GraphError;
use crate::masks::Mask;
use crate::space::{GraphSpace, UpdateOutcome};
use crate::staging::{LargeChange, StagedOutcome, Staging};

impl GraphSpace {
    /// Begins a large change. With `is_logged` its outcome has the bytes for a log. Out of step while another one is under
    /// way.
    pub fn begin_large(&mut self, change: LargeChange, is_logged: bool) -> Result<(), GraphError> {
        if self.staging.is_some() {
            return Err(GraphError::OutOfStep);
        }
        let number = self.next_apart();
        self.staging = Some(Staging::new(change, &mut self.dataset, number, is_logged)?);
        Ok(())
    }

    /// Does so many steps of the large change; whether it is ready to be done. After an error it is over, and has changed
    /// nothing.
    pub fn stage(&mut self, steps_max: usize) -> Result<bool, GraphError> {
        let Some(staging) = &mut self.staging else { return Err(GraphError::OutOfStep) };
        let staged = staging.piece(&mut self.dataset, steps_max);
        if staged.is_err() {
            self.abandon_large();
        }
        staged
    }

    /// Does the large change that is ready, behind everything that was committed so far; then the rules that it wakes.
    pub fn commit_large(&mut self) -> Result<UpdateOutcome, GraphError> {
        if let Some(Err(limit)) = self.staging.as_ref().map(|staging| staging.check(&self.dataset)) {
            self.abandon_large();
            return Err(limit.into());
        }
        let Some(staging) = self.staging.take() else { return Err(GraphError::OutOfStep) };
        let before = self.dataset.snapshot();
        let StagedOutcome { change, delta, bytes, blanks, unchanged } = staging.finish(&mut self.dataset);
        keep_for_tidying(&mut self.leftovers, unchanged);
        let mut outcome = UpdateOutcome { blanks, bytes, ..UpdateOutcome::default() };
        if !delta.is_empty() {
            self.committed(&change, delta.version, Some(before));
            outcome.deltas.push(delta);
        }
        self.dataset.sweep();
        self.run_rules(&mut outcome);
        Ok(outcome)
    }

    /// The large change is not wanted any more.
    pub fn abandon_large(&mut self) {
        if let Some(staging) = self.staging.take() {
            let (quads, texts) = staging.discard(&mut self.dataset);
            self.discarded.extend(quads);
            keep_for_tidying(&mut self.leftovers, texts);
        }
    }

    /// What a change did is not needed any more. If that is much, [`GraphSpace::tidy`] lets it go: the words of a million quads
    /// take as long as a hundred thousand changes of others.
    pub fn let_go(&mut self, delta: QuadDelta) {
        if delta.len() > LEFTOVER_MIN {
            keep_for_tidying(&mut self.leftovers, delta.added);
            keep_for_tidying(&mut self.leftovers, delta.removed);
        }
    }

    /// Whether something of large changes is still to be let go.
    pub fn is_untidy(&self) -> bool {
        self.has_leftovers() || self.dataset.dictionary.has_idle()
    }

    /// Whether quads of large changes are: before the next one is begun, so that they do not add up.
    pub fn has_leftovers(&self) -> bool {
        !self.discarded.is_empty() || !self.leftovers.is_empty()
    }

    /// Lets so many quads go that a large change held.
    pub fn tidy(&mut self, quads_max: usize) {
        for _ in 0..quads_max {
            let Some(quad) = self.discarded.pop() else { break };
            quad.let_go(&mut self.dataset);
        }
        if self.discarded.is_empty() {
            self.discarded = Vec::new();
        }
        if let Some(last) = self.leftovers.last_mut() {
            last.truncate(last.len().saturating_sub(quads_max));
            if last.is_empty() {
                self.leftovers.pop();
            }
        }
        self.dataset.sweep();
    }

    /// Whether more quads match than this. One that says all its terms is taken to match one: most changes have only such.
    pub fn matches_more_than(&self, masks: &[Mask], count: usize) -> bool {
        if masks.len() <= count && masks.iter().all(Mask::is_exact) {
            return false;
        }
        let snapshot = self.snapshot();
        let patterns = masks.iter().filter_map(|mask| mask.pattern(&snapshot));
        patterns.flat_map(|pattern| snapshot.scan(pattern)).nth(count).is_some()
    }

    /// A number for what is worked out apart from the commits: it is part of the names of its blank nodes. With the version
    /// at which it began it is never given again, because what is done has a later one.
    pub(crate) fn next_apart(&mut self) -> u64 {
        self.apart_made += 1;
        self.apart_made
    }
}

fn keep_for_tidying(leftovers: &mut Vec<Vec<Quad>>, quads: Vec<Quad>) {
    if !quads.is_empty() {
        leftovers.push(quads);
    }
}

/// Quads whose words are let go at once: about a tenth of a millisecond.
const LEFTOVER_MIN: usize = 1024;
