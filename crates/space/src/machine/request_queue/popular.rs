//! Which questions several clients ask: these are never sent away, because together they cost nothing.
//!
//! Every question that can be answered for several has a key, whether anybody else asks it or not. What somebody else asks is
//! known by who asked it last: a table of fixed size, in which a later question takes the place of an earlier one with the same
//! remainder. Who is taken for the only one by mistake gets a place of its own, and no harm is done beyond that.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::admission::QueryKey;

#[derive(Debug)]
pub(super) struct PopularQuestions {
    last: Box<[Option<Asked>]>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    key: QueryKey,
    client: u64,
    at: Timestamp,
    /// When two clients were last seen to ask it.
    shared: Option<Timestamp>,
}

impl Default for PopularQuestions {
    fn default() -> Self {
        Self { last: vec![None; QUESTIONS].into_boxed_slice() }
    }
}

impl PopularQuestions {
    /// A client asks; whether others have asked the same of late.
    pub(super) fn on_asked(&mut self, now: Timestamp, key: QueryKey, client: u64) -> bool {
        let slot = &mut self.last[(key.0 % QUESTIONS as u128) as usize];
        let before = slot.filter(|asked| asked.key == key);
        let is_other = before.is_some_and(|asked| asked.client != client && now.since(asked.at) < LATELY);
        let shared = if is_other { Some(now) } else { before.and_then(|asked| asked.shared) };
        *slot = Some(Asked { key, client, at: now, shared });
        shared.is_some_and(|shared| now.since(shared) < LATELY)
    }
}

/// Questions that are remembered: 64 KiB or so.
const QUESTIONS: usize = 1024;
/// For how long.
const LATELY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_client_asks_again_and_again_is_its_own_and_what_two_ask_is_not() {
        let mut popular = PopularQuestions::default();
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000 + 1);
        let (own, common) = (QueryKey(7), QueryKey(8));
        for second in 0..5 {
            assert!(!popular.on_asked(at(second), own, 1));
        }
        assert!(!popular.on_asked(at(5), common, 1), "nobody else has, yet");
        assert!(popular.on_asked(at(5), common, 2));
        assert!(popular.on_asked(at(6), common, 2), "and it stays so for a while");
        assert!(!popular.on_asked(at(17), common, 2));
        assert!(popular.on_asked(at(18), common, 1));
    }

    #[test]
    fn another_question_in_the_same_place_is_another() {
        let mut popular = PopularQuestions::default();
        let now = Timestamp::from_nanos(1);
        assert!(!popular.on_asked(now, QueryKey(3), 1));
        assert!(!popular.on_asked(now, QueryKey(3 + QUESTIONS as u128), 2));
        assert!(!popular.on_asked(now, QueryKey(3), 2));
    }
}
