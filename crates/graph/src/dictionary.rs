//! Terms as numbers. A number is used again only when no quad, mask or plan refers to its term any more, so that churn
//! (a sensor that sends a new value every second) does not grow memory.
//!
//! [`TermTable`] is the part that a snapshot shares: persistent, cloned in O(1). An older snapshot keeps its own meaning of
//! a number that was used again since. [`Dictionary`] is the writer's part: counts of references and free numbers.

use std::hash::BuildHasher;

use ecow::EcoString;
use foldhash::fast::FixedState;
use imbl::{OrdSet, Vector};
use oxrdf::{Term, TermRef};

use crate::encode::{decode, encode};
use crate::error::Limit;

/// The number of a term. 0 stands for the default graph and for no term.
pub(crate) type Id = u32;

/// Number and text of every term, and the way back from the text.
#[derive(Clone)]
pub(crate) struct TermTable {
    /// Empty for a number that is free: no term's text is. Short ones, such as most values of sensors, are in place.
    texts: Vector<EcoString>,
    /// The upper half is the hash of the text, the lower the number: eight bytes a term instead of a hash trie's forty.
    by_hash: OrdSet<u64>,
    hasher: FixedState,
}

impl TermTable {
    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        self.texts.get(id as usize).map(EcoString::as_str).filter(|text| !text.is_empty())
    }

    pub(crate) fn term(&self, id: Id) -> Option<Term> {
        decode(self.text(id)?)
    }

    pub(crate) fn find(&self, term: TermRef<'_>) -> Option<Id> {
        let mut text = String::new();
        encode(term, &mut text);
        self.find_text(&text)
    }

    fn find_text(&self, text: &str) -> Option<Id> {
        let hash = self.hash(text);
        // Without an end, for which it would look as long as for the beginning.
        let candidates = self.by_hash.range(hash..).take_while(|key| **key & !u64::from(u32::MAX) == hash);
        candidates.map(|key| *key as Id).find(|id| self.text(*id) == Some(text))
    }

    /// With the seed of the space.
    pub(crate) fn hasher(&self) -> FixedState {
        self.hasher.clone()
    }

    fn hash(&self, text: &str) -> u64 {
        self.hasher.hash_one(text) & !u64::from(u32::MAX)
    }
}

/// The only writer of [`TermTable`].
pub(crate) struct Dictionary {
    terms: TermTable,
    counts: Vec<u32>,
    free: Vec<Id>,
    /// Numbers whose count is or was 0 since the last sweep.
    idle: Vec<Id>,
    /// Numbers that became free since it was last looked whether there are too many of them.
    freed: usize,
    text_bytes: usize,
    /// Of these terms, those that nothing holds, and bytes of their texts.
    idle_terms: usize,
    idle_bytes: usize,
    scratch: String,
    /// The highest number that there may be.
    last: Id,
}

/// Terms that are held together or not at all: dropped before they are kept, they are let go.
pub(crate) struct Holding<'a> {
    dictionary: &'a mut Dictionary,
    held: Vec<Id>,
}

impl<'a> Holding<'a> {
    pub(crate) fn new(dictionary: &'a mut Dictionary) -> Self {
        Self { dictionary, held: Vec::new() }
    }

    /// The number of a term, which is held from now on.
    pub(crate) fn hold(&mut self, term: &Term) -> Result<Id, Limit> {
        let id = self.dictionary.intern(term.as_ref()).ok_or(Limit::Terms)?;
        self.dictionary.hold(id);
        self.held.push(id);
        Ok(id)
    }

    /// Whoever has their numbers lets them go.
    pub(crate) fn keep(mut self) {
        self.held.clear();
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        for id in self.held.drain(..) {
            self.dictionary.release(id);
        }
    }
}

impl Dictionary {
    /// `seed` keeps strangers from choosing texts that collide.
    pub(crate) fn new(seed: u64) -> Self {
        let terms = TermTable {
            texts: Vector::unit(EcoString::new()),
            by_hash: OrdSet::new(),
            hasher: FixedState::with_seed(seed),
        };
        let (free, idle, scratch) = (Vec::new(), Vec::new(), String::new());
        let counts = vec![1];
        let (idle_terms, idle_bytes, text_bytes) = (0, 0, 0);
        Self { terms, counts, free, idle, freed: 0, text_bytes, idle_terms, idle_bytes, scratch, last: Id::MAX }
    }

    /// Of a copy of terms that somebody else holds: none of them is forgotten here, and new ones are the copy's own.
    pub(crate) fn of_copy(terms: TermTable) -> Self {
        let counts = vec![u32::MAX; terms.texts.len()];
        let (free, idle, scratch) = (Vec::new(), Vec::new(), String::new());
        let (idle_terms, idle_bytes, text_bytes) = (0, 0, 0);
        Self { terms, counts, free, idle, freed: 0, text_bytes, idle_terms, idle_bytes, scratch, last: Id::MAX }
    }

    /// Whether some terms are still to be forgotten.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    pub(crate) fn terms(&self) -> &TermTable {
        &self.terms
    }

    /// Numbers go no further than this.
    #[cfg(test)]
    pub(crate) fn end_at(&mut self, last: Id) {
        self.last = last;
    }

    /// Terms that are known now.
    pub(crate) fn len(&self) -> usize {
        self.terms.by_hash.len()
    }

    /// Bytes of their texts.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Terms that something holds, and bytes of their texts: what is left of the others is forgotten by sweeps.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.len().saturating_sub(self.idle_terms), self.text_bytes.saturating_sub(self.idle_bytes))
    }

    /// The number of a term, which is forgotten at the next sweep unless something holds it. `None` when all numbers
    /// are in use.
    pub(crate) fn intern(&mut self, term: TermRef<'_>) -> Option<Id> {
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        encode(term, &mut text);
        let id = self.terms.find_text(&text).or_else(|| self.add(&text));
        self.scratch = text;
        id
    }

    fn add(&mut self, text: &str) -> Option<Id> {
        let id = if let Some(id) = self.free.pop() {
            id
        } else {
            let id = Id::try_from(self.counts.len()).ok().filter(|id| *id <= self.last)?;
            self.counts.push(0);
            self.terms.texts.push_back(EcoString::new());
            id
        };
        self.terms.texts.set(id as usize, EcoString::from(text));
        self.terms.by_hash.insert(self.terms.hash(text) | u64::from(id));
        self.text_bytes += text.len();
        (self.idle_terms, self.idle_bytes) = (self.idle_terms + 1, self.idle_bytes + text.len());
        self.idle.push(id);
        Some(id)
    }

    pub(crate) fn hold(&mut self, id: Id) {
        let Some(count) = self.counts.get_mut(id as usize) else { return };
        let was_idle = *count == 0;
        *count = count.saturating_add(1);
        if was_idle && let Some(text) = self.terms.text(id) {
            self.idle_terms = self.idle_terms.saturating_sub(1);
            self.idle_bytes = self.idle_bytes.saturating_sub(text.len());
        }
    }

    pub(crate) fn release(&mut self, id: Id) {
        // A count that once stuck at its maximum is never trusted again: the term stays.
        if let Some(count) = self.counts.get_mut(id as usize).filter(|count| **count != u32::MAX) {
            let was_held = *count > 0;
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.idle.push(id);
                if was_held && let Some(text) = self.terms.text(id) {
                    (self.idle_terms, self.idle_bytes) = (self.idle_terms + 1, self.idle_bytes + text.len());
                }
            }
        }
    }

    /// Forgets terms that nothing holds, and leaves it to the next sweep if there are very many. Numbers stay valid between
    /// two sweeps.
    pub(crate) fn sweep(&mut self) {
        let mut forgotten = 0;
        while forgotten < SWEPT_MAX
            && let Some(id) = self.idle.pop()
        {
            if self.counts.get(id as usize) != Some(&0) {
                continue;
            }
            // A number may be in the list twice; the second time its text is gone.
            let Some(place) = self.terms.texts.get_mut(id as usize).filter(|text| !text.is_empty()) else { continue };
            let text = std::mem::take(place);
            self.terms.by_hash.remove(&(self.terms.hash(&text) | u64::from(id)));
            self.text_bytes -= text.len();
            self.idle_terms = self.idle_terms.saturating_sub(1);
            self.idle_bytes = self.idle_bytes.saturating_sub(text.len());
            self.free.push(id);
            self.freed += 1;
            forgotten += 1;
        }
        if self.idle.is_empty() && self.idle.capacity() > IDLE_KEPT {
            self.idle = Vec::new();
        }
        // Not after each, so that a number that becomes free pays for looking at eight others at most.
        let is_due = self.terms.by_hash.is_empty() || self.freed >= self.counts.len() / 16;
        if self.counts.len() > IDLE_KEPT && is_due {
            self.freed = 0;
            self.trim();
        }
    }

    /// Gives back the free numbers at the end if they are at least half of all, as when a bulk load is deleted.
    fn trim(&mut self) {
        let length = self.terms.texts.iter().rposition(|text| !text.is_empty()).map_or(1, |last| last + 1);
        if length > self.counts.len() / 2 {
            return;
        }
        self.terms.texts.truncate(length);
        self.counts.truncate(length);
        self.counts.shrink_to_fit();
        self.free.retain(|id| (*id as usize) < length);
        self.free.shrink_to_fit();
    }
}

/// Terms that one sweep forgets: about a millisecond, for which every other change waits.
const SWEPT_MAX: usize = 4096;
/// A larger list of idle numbers, left by a bulk load, is given back.
const IDLE_KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use oxrdf::NamedNodeRef;

    use super::*;

    fn iri(text: &str) -> TermRef<'_> {
        NamedNodeRef::new_unchecked(text).into()
    }

    #[test]
    fn a_term_has_one_number_while_it_is_held() {
        let mut dictionary = Dictionary::new(1);
        let a = dictionary.intern(iri("a")).unwrap();
        dictionary.hold(a);
        assert_eq!(dictionary.intern(iri("a")), Some(a));
        dictionary.sweep();
        assert_eq!(dictionary.terms().find(iri("a")), Some(a));
        dictionary.release(a);
        dictionary.sweep();
        assert_eq!(dictionary.terms().find(iri("a")), None);
        assert_eq!((dictionary.len(), dictionary.text_bytes()), (0, 0));
    }

    #[test]
    fn a_bulk_load_that_is_deleted_leaves_no_tables_behind() {
        let mut dictionary = Dictionary::new(1);
        let load = |dictionary: &mut Dictionary, count: usize| -> Vec<Id> {
            (0..count)
                .map(|n| {
                    let id = dictionary.intern(iri(&n.to_string())).unwrap();
                    dictionary.hold(id);
                    id
                })
                .collect()
        };
        let ids = load(&mut dictionary, 10 * IDLE_KEPT);
        let (kept, snapshot) = (ids[10], dictionary.terms().clone());
        for part in ids.chunks(IDLE_KEPT) {
            part.iter().filter(|id| **id != kept).for_each(|id| dictionary.release(*id));
            dictionary.sweep();
        }
        assert!(dictionary.counts.capacity() <= 2 * IDLE_KEPT, "{}", dictionary.counts.capacity());
        assert!(dictionary.free.capacity() <= 2 * IDLE_KEPT, "{}", dictionary.free.capacity());
        assert_eq!(dictionary.terms.texts.len(), dictionary.counts.len());
        assert_eq!(dictionary.terms().find(iri("10")), Some(kept));
        assert_eq!(snapshot.find(iri("40000")), ids.get(40000).copied());
        // No number is given twice.
        let mut again = load(&mut dictionary, IDLE_KEPT);
        again.sort_unstable();
        again.dedup();
        assert_eq!((again.len(), dictionary.len()), (IDLE_KEPT, IDLE_KEPT));
    }

    #[test]
    fn churn_does_not_grow_and_snapshots_keep_their_meaning() {
        let mut dictionary = Dictionary::new(1);
        let first = dictionary.intern(iri("first")).unwrap();
        dictionary.hold(first);
        let snapshot = dictionary.terms().clone();
        dictionary.release(first);
        for n in 0..1000 {
            let id = dictionary.intern(iri(&n.to_string())).unwrap();
            dictionary.hold(id);
            dictionary.release(id);
            dictionary.sweep();
        }
        assert!(dictionary.counts.len() < 5, "{}", dictionary.counts.len());
        assert_eq!(snapshot.text(first), Some("Nfirst"));
        assert_eq!(snapshot.find(iri("first")), Some(first));
    }
}
