//! Answers of now. An answer is kept with the version it is about and forgotten with it: there is no way to get one that
//! is older than a change that was confirmed.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_control::admission::QueryKey;

use crate::limits::{CACHE_BYTES_MAX, CACHE_ENTRIES_MAX};

#[derive(Debug, Default)]
pub(crate) struct Cache {
    version: u64,
    answers: BTreeMap<u128, Bytes>,
    bytes: usize,
}

impl Cache {
    /// The answer at this version.
    pub(crate) fn find(&self, key: QueryKey, version: u64) -> Option<Bytes> {
        if self.version == version { self.answers.get(&key.0).cloned() } else { None }
    }

    pub(crate) fn keep(&mut self, key: QueryKey, version: u64, answer: Bytes) {
        if version < self.version || answer.len() > CACHE_BYTES_MAX / 8 {
            return;
        }
        let is_full = self.answers.len() >= CACHE_ENTRIES_MAX || self.bytes + answer.len() > CACHE_BYTES_MAX;
        if version > self.version || is_full {
            self.forget(version);
        }
        self.bytes += answer.len();
        if let Some(before) = self.answers.insert(key.0, answer) {
            self.bytes -= before.len();
        }
    }

    /// Nothing older than this version is needed any more.
    pub(crate) fn forget(&mut self, version: u64) {
        self.version = version;
        self.answers.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f106_an_answer_lives_as_long_as_its_version() {
        let mut cache = Cache::default();
        cache.keep(QueryKey(1), 7, Bytes::from_static(b"seven"));
        assert_eq!(cache.find(QueryKey(1), 7).as_deref(), Some(&b"seven"[..]));
        assert_eq!(cache.find(QueryKey(1), 8), None);
        cache.forget(8);
        cache.keep(QueryKey(1), 7, Bytes::from_static(b"late"));
        assert_eq!(cache.find(QueryKey(1), 8), None, "an answer of before does not come in late");
    }

    #[test]
    fn it_is_bounded_and_its_bytes_add_up() {
        let mut cache = Cache::default();
        for key in 0..3 * CACHE_ENTRIES_MAX as u128 {
            cache.keep(QueryKey(key), 1, Bytes::from(vec![0; 10_000]));
            assert!(cache.answers.len() <= CACHE_ENTRIES_MAX && cache.bytes <= CACHE_BYTES_MAX);
        }
        assert_eq!(cache.bytes, cache.answers.values().map(Bytes::len).sum::<usize>());
    }
}
