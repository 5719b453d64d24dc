//! Coming back: a space does again what a log or another node tells it. Standing queries follow, rules stay asleep: what
//! they did has deltas of its own.
//!
//! A log is trusted and may have a hole, where the medium was damaged; [`GraphSpace::replay`] goes on behind it, because a
//! delta says for each of its quads whether it is there afterwards. A node that follows another is not to have holes:
//! [`GraphSpace::apply_delta`] refuses what does not fit.

use oxrdf::Quad;

use crate::delta::QuadDelta;
use crate::error::GraphError;
use crate::space::{GraphSpace, SpaceLimits};

/// Evaluations and drafts of one life of a space: a million each second for twelve days, in each of 16 million lives.
const LIFE_NUMBERS: u64 = 1 << 40;

impl GraphSpace {
    /// Does a delta again that follows directly, all of it or nothing.
    pub fn apply_delta(&mut self, delta: &QuadDelta) -> Result<(), GraphError> {
        if delta.version != self.version() + 1 || delta.is_empty() {
            return Err(GraphError::OutOfStep);
        }
        self.commit(|dataset| {
            for quad in &delta.removed {
                if !dataset.remove(quad.as_ref())? {
                    return Err(GraphError::OutOfStep);
                }
            }
            for quad in &delta.added {
                if !dataset.insert(quad.as_ref())? {
                    return Err(GraphError::OutOfStep);
                }
            }
            Ok(())
        })?;
        self.woken.clear();
        Ok(())
    }

    /// Fills an empty space with the quads of a stored snapshot, as they were at a version.
    pub fn restore(&mut self, version: u64, quads: impl IntoIterator<Item = Quad>) -> Result<(), GraphError> {
        if self.version() != 0 || !self.snapshot().is_empty() {
            return Err(GraphError::OutOfStep);
        }
        self.replay_quads(quads)?;
        self.replay_version(version);
        Ok(())
    }

    /// Does a delta of a log again. One that is in the data already changes nothing. True if it followed directly: else
    /// something between is missing.
    pub fn replay(&mut self, delta: &QuadDelta) -> Result<bool, GraphError> {
        let before = self.version();
        if delta.version <= before {
            return Ok(true);
        }
        self.commit(|dataset| {
            for quad in &delta.removed {
                dataset.remove(quad.as_ref())?;
            }
            for quad in &delta.added {
                dataset.insert(quad.as_ref())?;
            }
            Ok(())
        })?;
        self.dataset.set_version(delta.version);
        self.woken.clear();
        Ok(delta.version == before + 1)
    }

    /// Puts quads of a stored snapshot back, in as many portions as it has; [`GraphSpace::replay_version`] follows.
    pub fn replay_quads(&mut self, quads: impl IntoIterator<Item = Quad>) -> Result<(), GraphError> {
        let version = self.version();
        for quad in quads {
            // Each by itself: a restored dataset may be larger than any update.
            if let Err(limit) = self.dataset.insert(quad.as_ref()) {
                self.dataset.rollback();
                return Err(limit.into());
            }
            self.dataset.commit();
        }
        self.dataset.sweep();
        self.dataset.set_version(version);
        Ok(())
    }

    /// The data are those of this version; versions never go back.
    pub fn replay_version(&mut self, version: u64) {
        self.dataset.set_version(version.max(self.version()));
    }

    /// Rules up to this number were named: none of them is named again.
    pub fn replay_rules_made(&mut self, made: u64) {
        self.rules.made = made.max(self.rules.made);
    }

    /// Subscribers up to this number were named, in an earlier life: none of them is named again.
    pub fn replay_subscribers_made(&mut self, made: u64) {
        self.subscribers_made = made.max(self.subscribers_made);
    }

    /// So many lives of the space came before this one, and what they gave to others to be worked out may still come back:
    /// evaluations and drafts of this life have other numbers, so that none of theirs is taken for one of its own.
    pub fn replay_lives(&mut self, lives: u64) {
        self.standing.skip_numbers(lives.saturating_mul(LIFE_NUMBERS));
    }

    /// Other limits from now on. What is there stays, even if it is more.
    pub fn set_limits(&mut self, limits: SpaceLimits) {
        self.dataset.set_limits(limits.dataset.clone());
        self.limits = limits;
    }
}
