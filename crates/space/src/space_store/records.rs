//! What the space keeps, as records of the store: a tag, the version of its layout, and bytes. A release refuses what it
//! does not know; it never guesses.

use tidegate_graph::{QuadDelta, RuleId};
use tidegate_store::{RawRecord, RecordBatch, StoreError};

use crate::persistence::DurableChange;

/// The layout that this release writes, for every tag.
const VERSION: u8 = 1;

/// One commit.
const DELTA: u8 = 1;
/// A portion of the data; only in snapshots.
const QUADS: u8 = 2;
/// The version of the data; only in snapshots, behind all portions.
const DATA_VERSION: u8 = 3;
const RULE: u8 = 4;
const NO_RULE: u8 = 5;
/// Rules were named up to this number, though none may be left that has it; only in snapshots.
const RULES_MADE: u8 = 6;

/// A record, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Delta(Box<QuadDelta>),
    Quads(Box<QuadDelta>),
    Version(u64),
    Rule(RuleId, &'a str, &'a str),
    NoRule(RuleId),
    RulesMade(u64),
}

impl<'a> Record<'a> {
    /// None for one that is not known and may be skipped.
    pub(super) fn read(raw: RawRecord<'a>) -> Result<Option<Self>, StoreError> {
        let wrong = |what| StoreError::Record { tag: raw.tag, what };
        if raw.version != VERSION || !(DELTA..=RULES_MADE).contains(&raw.tag) {
            let error = wrong("is not known to this release");
            return if raw.is_skippable { Ok(None) } else { Err(error) };
        }
        let delta = || QuadDelta::decode(raw.payload).map(Box::new).ok_or(wrong("is no change of a graph"));
        let number = || {
            let bytes = raw.payload.try_into().map_err(|_| wrong("is no number"))?;
            Ok::<_, StoreError>(u64::from_le_bytes(bytes))
        };
        Ok(Some(match raw.tag {
            DELTA => Self::Delta(delta()?),
            QUADS => Self::Quads(delta()?),
            DATA_VERSION => Self::Version(number()?),
            RULE => rule(raw.payload).ok_or(wrong("is no rule"))?,
            NO_RULE => Self::NoRule(RuleId(number()?)),
            _ => Self::RulesMade(number()?),
        }))
    }

    /// Calls with the record as bytes.
    pub(super) fn with_raw<T>(&self, then: impl FnOnce(RawRecord<'_>) -> T) -> T {
        let (tag, payload) = match self {
            Self::Delta(delta) => (DELTA, delta.encode()),
            Self::Quads(delta) => (QUADS, delta.encode()),
            Self::Version(version) => (DATA_VERSION, version.to_le_bytes().to_vec()),
            Self::Rule(id, name, text) => (RULE, rule_bytes(*id, name, text)),
            Self::NoRule(id) => (NO_RULE, id.0.to_le_bytes().to_vec()),
            Self::RulesMade(made) => (RULES_MADE, made.to_le_bytes().to_vec()),
        };
        then(RawRecord { tag, version: VERSION, is_skippable: false, payload: &payload })
    }
}

/// Adds what was done to a batch.
pub(super) fn push(kept: DurableChange<'_>, batch: &mut RecordBatch) -> Result<(), StoreError> {
    let (tag, payload) = match kept {
        DurableChange::DeltaBytes(payload) => {
            return batch.push(RawRecord { tag: DELTA, version: VERSION, is_skippable: false, payload });
        }
        DurableChange::Delta(delta) => (DELTA, delta.encode()),
        DurableChange::Rule(id, name, text) => (RULE, rule_bytes(id, name, text)),
        DurableChange::NoRule(id) => (NO_RULE, id.0.to_le_bytes().to_vec()),
    };
    batch.push(RawRecord { tag, version: VERSION, is_skippable: false, payload: &payload })
}

/// Number, length of the name, name, text.
fn rule_bytes(id: RuleId, name: &str, text: &str) -> Vec<u8> {
    let mut bytes = id.0.to_le_bytes().to_vec();
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

fn rule(bytes: &[u8]) -> Option<Record<'_>> {
    let (id, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (name, text) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (name, text) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(text).ok()?);
    Some(Record::Rule(RuleId(u64::from_le_bytes(*id)), name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_anything_else_is_refused() {
        let delta = || Box::new(QuadDelta { version: 7, ..QuadDelta::default() });
        for record in [
            Record::Delta(delta()),
            Record::Quads(delta()),
            Record::Version(u64::MAX),
            Record::Rule(RuleId(3), "näme", "INSERT { ?s ?p 1 } WHERE { ?s ?p 0 }"),
            Record::NoRule(RuleId(3)),
            Record::RulesMade(9),
        ] {
            record.with_raw(|raw| {
                assert_eq!(Record::read(raw).unwrap().unwrap(), record);
                let cut = RawRecord { payload: &raw.payload[..raw.payload.len() - 1], ..raw };
                let is_text = matches!(record, Record::Rule(..));
                assert!(Record::read(cut).is_err() || is_text, "{record:?}");
                let later = RawRecord { version: 2, ..raw };
                assert!(Record::read(later).is_err());
                assert_eq!(Record::read(RawRecord { is_skippable: true, ..later }).unwrap(), None);
            });
        }
        for payload in [&[0; 11][..], &[0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1], &[255; 12]] {
            assert!(Record::read(RawRecord { tag: RULE, version: 1, is_skippable: false, payload }).is_err());
        }
    }
}
