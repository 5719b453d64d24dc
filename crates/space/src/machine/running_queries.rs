//! Questions that are being evaluated, and who has joined one of them meanwhile.
//!
//! An evaluation sees the data of one version. Whoever asks the same while it lasts may have its answer if nothing that the
//! question reads was changed since that version: then it is the answer of now as well, and whoever was confirmed a change
//! before asking sees that change. Where this cannot be said, the question is asked anew.
//!
//! Whoever joins may have the evaluation go on for longer, up to [`TIME_MAX`] from its beginning: asking the same again and
//! again keeps nothing alive for ever.
//!
//! Pure. `T` is a question with whoever waits for it, `W` whatever its driver watches the evaluation by. Driven by the
//! shared state, under a lock of its own.

use std::collections::BTreeMap;

use tidegate_control::Timestamp;

use super::query_name::QueryName;
use crate::limits::{JOINED_RUNNING_MAX, TIME_MAX};

/// The number of an evaluation; none is ever used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunNumber(u64);

/// Whoever has joined, with the version that the answer is of for it: the present one when it did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LateAsker<T> {
    pub(crate) asker: T,
    pub(crate) version: u64,
}

#[derive(Debug)]
struct RunningQuery<T, W> {
    /// The version of the data that it sees.
    at: u64,
    /// When it ends, whoever waits.
    until_max: Timestamp,
    /// The question, and names of the answers that it writes.
    question: u128,
    written: Vec<u128>,
    watch: W,
    joined: Vec<LateAsker<T>>,
}

#[derive(Debug)]
pub(crate) struct RunningQueries<T, W> {
    all: BTreeMap<RunNumber, RunningQuery<T, W>>,
    /// The newest that writes each answer.
    by_written: BTreeMap<u128, RunNumber>,
    /// The newest of each question, under whatever names: whoever asks it under others can be written an answer from its rows.
    by_question: BTreeMap<u128, RunNumber>,
    made: u64,
}

impl<T, W> Default for RunningQueries<T, W> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_written: BTreeMap::new(), by_question: BTreeMap::new(), made: 0 }
    }
}

impl<T, W> RunningQueries<T, W> {
    /// An evaluation of a question begins, on the data of this version, for answers of these names.
    pub(crate) fn begin(
        &mut self,
        now: Timestamp,
        at: u64,
        (question, written): (u128, Vec<u128>),
        watch: W,
    ) -> RunNumber {
        self.made += 1;
        let number = RunNumber(self.made);
        self.by_written.extend(written.iter().map(|name| (*name, number)));
        self.by_question.insert(question, number);
        let run = RunningQuery { at, until_max: now + TIME_MAX, question, written, watch, joined: Vec::new() };
        self.all.insert(number, run);
        number
    }

    /// Whether there is one that somebody might join.
    pub(crate) fn is_running(&self, name: &QueryName) -> bool {
        self.by_written.contains_key(&name.written) || self.of_question(name).is_some()
    }

    /// The one whose rows answer a `SELECT` under other names.
    fn of_question(&self, name: &QueryName) -> Option<RunNumber> {
        self.by_question.get(&name.question).copied().filter(|_| !name.columns.is_empty())
    }

    /// Somebody asks, and waits until then. `unchanged_at` says the present version, if nothing that the question reads was
    /// changed since another; `extend` has the evaluation go on until a time, or says that it is being ended. The asker is
    /// returned if there is nothing to join.
    pub(crate) fn join(
        &mut self,
        name: &QueryName,
        asker: T,
        (now, until): (Timestamp, Timestamp),
        unchanged_at: impl FnOnce(u64) -> Option<u64>,
        extend: impl FnOnce(&mut W, &T, Timestamp) -> bool,
    ) -> Result<(), T> {
        let number = self.by_written.get(&name.written).copied().or_else(|| self.of_question(name));
        let run = number.and_then(|number| self.all.get_mut(&number));
        let may_join = |run: &&mut RunningQuery<T, W>| run.joined.len() < JOINED_RUNNING_MAX && now < run.until_max;
        let Some(run) = run.filter(may_join) else { return Err(asker) };
        let Some(version) = unchanged_at(run.at) else { return Err(asker) };
        if !extend(&mut run.watch, &asker, until.min(run.until_max)) {
            return Err(asker);
        }
        run.joined.push(LateAsker { asker, version });
        Ok(())
    }

    /// It is over: nobody joins it any more, and whoever has is to be answered.
    pub(crate) fn end(&mut self, number: RunNumber) -> Vec<LateAsker<T>> {
        let Some(run) = self.all.remove(&number) else { return Vec::new() };
        for name in &run.written {
            if self.by_written.get(name) == Some(&number) {
                self.by_written.remove(name);
            }
        }
        if self.by_question.get(&run.question) == Some(&number) {
            self.by_question.remove(&run.question);
        }
        run.joined
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_graph::{Footprint, Mask};

    use super::*;

    const NOW: Timestamp = Timestamp::ZERO;

    fn name(key: u128) -> QueryName {
        let footprint = Footprint::of_masks(&[Mask::default()]);
        QueryName { question: key, written: key, pattern: None, columns: Vec::new(), footprint }
    }

    #[derive(Clone, Copy, Debug)]
    enum Operation {
        /// An evaluation of this question begins on the present data.
        Begin(u128),
        /// The same on data that were there so many changes ago: its snapshot was taken and others overtook it.
        BeginLate(u128, u64),
        Ask(u128),
        Change(u128),
        Cancel(usize),
        End(usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (0..3u128).prop_map(Operation::Begin),
            (0..3u128, 0..3u64).prop_map(|(key, behind)| Operation::BeginLate(key, behind)),
            (0..3u128).prop_map(Operation::Ask),
            (0..3u128).prop_map(Operation::Ask),
            (0..3u128).prop_map(Operation::Change),
            (0..6usize).prop_map(Operation::Cancel),
            (0..6usize).prop_map(Operation::End),
        ]
    }

    proptest! {
        #[test]
        fn nobody_gets_an_answer_older_than_what_was_confirmed_before_it_asked(
            operations in prop::collection::vec(operation(), 1..200),
        ) {
            let mut running = RunningQueries::<(u64, u128), bool>::default();
            // The last version that touched each question.
            let (mut version, mut touched) = (10_u64, [10_u64; 3]);
            let mut open: Vec<(RunNumber, u64, u128)> = Vec::new();
            let (mut asked, mut joined, mut answered) = (0, 0, 0);
            for operation in operations {
                match operation {
                    Operation::Begin(key) => open.push((running.begin(NOW, version, (key, vec![key]), true), version, key)),
                    Operation::BeginLate(key, behind) => {
                        open.push((running.begin(NOW, version - behind, (key, vec![key]), true), version - behind, key));
                    }
                    Operation::Change(key) => {
                        version += 1;
                        touched[key as usize] = version;
                    }
                    Operation::Cancel(nth) => {
                        if let Some((number, ..)) = open.get(nth) {
                            running.all.get_mut(number).unwrap().watch = false;
                        }
                    }
                    Operation::Ask(key) => {
                        asked += 1;
                        let last = touched[key as usize];
                        let unchanged = |at: u64| (at >= last).then_some(version);
                        if running.join(&name(key), (last, key), (NOW, NOW), unchanged, |is_wanted, _, _| *is_wanted).is_ok() {
                            joined += 1;
                        }
                    }
                    Operation::End(nth) => {
                        if nth < open.len() {
                            let (number, at, key) = open.remove(nth);
                            for LateAsker { asker: (last, of), version } in running.end(number) {
                                answered += 1;
                                prop_assert_eq!(of, key);
                                prop_assert!(at >= last, "evaluated at {}, and {} was confirmed before", at, last);
                                prop_assert!(version >= at);
                            }
                            prop_assert!(running.end(number).is_empty(), "each is answered once");
                        }
                    }
                }
            }
            answered += open.into_iter().map(|(number, ..)| running.end(number).len()).sum::<usize>();
            prop_assert!(joined == answered && joined <= asked);
            prop_assert!(running.all.is_empty() && running.by_written.is_empty() && running.by_question.is_empty());
        }
    }

    #[test]
    fn whoever_asks_under_other_names_joins_if_rows_can_be_written_for_it() {
        let mut running = RunningQueries::<u32, ()>::default();
        let number = running.begin(NOW, 1, (7, vec![70]), ());
        let renamed = QueryName { question: 7, written: 71, columns: vec![0], ..name(7) };
        // Neither a truth value nor a graph has columns.
        let other_form = QueryName { columns: Vec::new(), ..renamed.clone() };
        assert!(running.is_running(&renamed) && !running.is_running(&other_form));
        assert_eq!(running.join(&renamed, 1, (NOW, NOW), Some, |(), _, _| true), Ok(()));
        assert_eq!(running.join(&other_form, 2, (NOW, NOW), Some, |(), _, _| true), Err(2));
        assert_eq!(running.end(number), [LateAsker { asker: 1, version: 1 }]);
        assert!(!running.is_running(&renamed));
    }

    #[test]
    fn so_many_may_join_and_no_more() {
        let mut running = RunningQueries::<usize, ()>::default();
        let number = running.begin(NOW, 1, (7, vec![7]), ());
        assert!(running.is_running(&name(7)) && !running.is_running(&name(8)));
        for asker in 0..JOINED_RUNNING_MAX {
            assert_eq!(running.join(&name(7), asker, (NOW, NOW), Some, |(), _, _| true), Ok(()));
        }
        assert_eq!(running.join(&name(7), 9, (NOW, NOW), Some, |(), _, _| true), Err(9));
        assert_eq!(running.end(number).len(), JOINED_RUNNING_MAX);
        assert_eq!(running.join(&name(7), 9, (NOW, NOW), Some, |(), _, _| true), Err(9), "it is over");
    }

    #[test]
    fn whoever_asks_the_same_again_and_again_keeps_nothing_going_beyond_the_longest_time() {
        let mut running = RunningQueries::<u32, Timestamp>::default();
        running.begin(NOW, 1, (7, vec![7]), NOW + TIME_MAX / 2);
        let extend = |until: &mut Timestamp, _: &u32, to: Timestamp| {
            *until = (*until).max(to);
            true
        };
        for tenth in 0..10 {
            let now = NOW + TIME_MAX / 10 * tenth;
            assert_eq!(running.join(&name(7), tenth, (now, now + TIME_MAX), Some, extend), Ok(()));
            let until = running.all.values().next().unwrap().watch;
            assert_eq!(until, NOW + TIME_MAX, "as long as one that says nothing about its time, and no longer");
        }
        let end = NOW + TIME_MAX;
        assert_eq!(running.join(&name(7), 10, (end, end + TIME_MAX), Some, extend), Err(10), "asked anew");
    }
}
