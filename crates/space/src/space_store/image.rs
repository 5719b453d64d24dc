//! What the records add up to: the data, their version and the rules. A restart makes the space out of it; a compaction
//! reads the log into one of its own and writes that down. So for the time of a compaction the data are in memory twice.

use std::collections::BTreeMap;

use tidegate_graph::{DatasetLimits, GraphSpace, QuadDelta, QueryLimits, RuleId, SpaceLimits};
use tidegate_store::{Location, LogState, RawRecord, SnapshotSink, StoreError};
use tracing::error;

use super::records::Record;
use crate::service::random;

/// Bytes of the terms in one portion of a snapshot.
const PORTION_BYTES: usize = 1 << 20;

/// The state of the space's log.
pub struct SpaceImage {
    space: GraphSpace,
    /// Name and text of each rule.
    rules: BTreeMap<u64, (String, String)>,
    rules_made: u64,
    /// Changes that do not follow the one before: something between was lost with a damaged place.
    pub(super) holes: u64,
}

impl std::fmt::Debug for SpaceImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpaceImage").field("version", &self.space.version()).finish_non_exhaustive()
    }
}

impl Default for SpaceImage {
    fn default() -> Self {
        // What was taken once is read again, whatever the limits are now.
        let dataset = DatasetLimits {
            term_bytes_max: usize::MAX,
            quads_max: usize::MAX,
            change_quads_max: usize::MAX,
            change_bytes_max: usize::MAX,
        };
        let limits = SpaceLimits { dataset, ..SpaceLimits::default() };
        let space = GraphSpace::new(u64::from_le_bytes(random()), limits);
        Self { space, rules: BTreeMap::new(), rules_made: 0, holes: 0 }
    }
}

/// A space as it was, and the names that its rules have on the wire.
pub struct RestoredSpace {
    /// The space.
    pub space: GraphSpace,
    /// Rules by name.
    pub names: Vec<(String, RuleId)>,
}

impl std::fmt::Debug for RestoredSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoredSpace").field("version", &self.space.version()).field("names", &self.names).finish()
    }
}

impl SpaceImage {
    pub(super) fn version(&self) -> u64 {
        self.space.version()
    }

    #[cfg(test)]
    pub(crate) fn holes(&self) -> u64 {
        self.holes
    }

    /// The space, with these limits from now on. A rule that is not understood any more stays in the log and is not in
    /// force, which is logged.
    pub(crate) fn restore(self, limits: SpaceLimits) -> RestoredSpace {
        let Self { mut space, rules, rules_made, .. } = self;
        space.set_limits(limits);
        let mut names = Vec::new();
        for (id, (name, text)) in rules {
            match space.restore_rule(RuleId(id), &text, &QueryLimits::default()) {
                Ok(id) => names.push((name, id)),
                Err(error) => error!(event = "rule_not_restored", rule = name, %error, "a rule is not in force"),
            }
        }
        space.replay_rules_made(rules_made);
        RestoredSpace { space, names }
    }
}

impl LogState for SpaceImage {
    fn apply(&mut self, raw: RawRecord<'_>, _: Location) -> Result<(), StoreError> {
        let does_not_fit = |_| StoreError::Record { tag: raw.tag, what: "does not fit the data" };
        match Record::read(raw)? {
            None => {}
            Some(Record::Delta(delta)) => {
                let follows = self.space.replay(&delta).map_err(does_not_fit)?;
                self.holes += u64::from(!follows);
            }
            Some(Record::Quads(portion)) => self.space.replay_quads(portion.added).map_err(does_not_fit)?,
            Some(Record::Version(version)) => self.space.replay_version(version),
            Some(Record::Rule(id, name, text)) => {
                self.rules_made = self.rules_made.max(id.0);
                self.rules.insert(id.0, (name.to_owned(), text.to_owned()));
            }
            Some(Record::NoRule(id)) => drop(self.rules.remove(&id.0)),
            Some(Record::RulesMade(made)) => self.rules_made = self.rules_made.max(made),
        }
        Ok(())
    }

    /// Nothing is read later: the data are in memory.
    fn live(&self, _: &mut dyn FnMut(Location)) {}

    fn dump(&self, sink: &mut dyn SnapshotSink) -> Result<(), StoreError> {
        let snapshot = self.space.snapshot();
        let (mut portion, mut bytes) = (Vec::new(), 0);
        let mut quads = snapshot.quads().peekable();
        while let Some(quad) = quads.next() {
            bytes += quad.to_string().len();
            portion.push(quad);
            if bytes >= PORTION_BYTES || quads.peek().is_none() {
                let added = std::mem::take(&mut portion);
                let delta = QuadDelta { version: snapshot.version(), added, removed: Vec::new() };
                Record::Quads(Box::new(delta)).with_raw(|raw| sink.push(raw))?;
                bytes = 0;
            }
        }
        Record::Version(snapshot.version()).with_raw(|raw| sink.push(raw))?;
        for (id, (name, text)) in &self.rules {
            Record::Rule(RuleId(*id), name, text).with_raw(|raw| sink.push(raw))?;
        }
        Record::RulesMade(self.rules_made).with_raw(|raw| sink.push(raw))
    }
}
