//! Answers without an evaluation: what is remembered for an equal question is written for this asker, what is remembered
//! for a larger one is cut down for it. On the thread that has read the question; only short results are kept as rows, so
//! that writing one costs about as much as reading a text.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidegate_graph::{FreedQuery, Query, Row};

use crate::machine::cache::{CachedRows, Remembered};
use crate::machine::order::Shape;
use crate::machine::query_name::{QueryName, QuestionHasher};
use crate::machine::request::{AnswerSource, Form, RequestOrigin, ResponseBody, SpaceResponse};
use crate::memory::AnswerBytes;
use crate::notifications::SpaceRequest;
use crate::render;
use crate::shared_state::{Shared, Task, lock};
use crate::watcher::WatchTerms;

/// Rows of a result while it is written, as long as they are within so many bytes.
pub(crate) struct RowKeeper {
    rows: Option<Vec<Row>>,
    bytes: usize,
    bytes_max: usize,
}

impl RowKeeper {
    /// Keeps up to so many bytes; with none, nothing.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { rows: (bytes_max > 0).then(Vec::new), bytes: 0, bytes_max }
    }

    /// False if it is too much; then nothing is kept.
    pub(crate) fn push(&mut self, row: &Row) -> bool {
        let Some(rows) = &mut self.rows else { return false };
        let fields = row.iter().flatten().map(|term| size_of_val(term) + text_bytes(term));
        self.bytes += size_of::<Row>() + 16 + fields.sum::<usize>();
        if self.bytes > self.bytes_max {
            self.rows = None;
        } else {
            rows.push(Row::clone(row));
        }
        self.rows.is_some()
    }

    /// All rows, if they were few enough.
    pub(crate) fn finish(self, name: &QueryName, answers: &Arc<AnswerBytes>) -> Option<Arc<CachedRows>> {
        let (rows, bytes) = (self.rows?, self.bytes);
        Some(Arc::new(CachedRows { columns: name.columns.clone(), rows, bytes, _charge: answers.hold(bytes) }))
    }
}

fn text_bytes(term: &oxrdf::Term) -> usize {
    match term {
        oxrdf::Term::NamedNode(node) => node.as_str().len(),
        oxrdf::Term::BlankNode(node) => node.as_str().len(),
        oxrdf::Term::Literal(literal) => literal.value().len(),
    }
}

/// Writes rows for this asker, with its own names and order of columns; and only those with the value, if it asks for
/// that. None if they do not have what it asks for, which the cache rules out.
pub(crate) fn write(
    query: &Query,
    form: Form,
    kept: &CachedRows,
    columns: &[u32],
    part: Option<&FreedQuery>,
) -> Option<Vec<u8>> {
    let place = |number: &u32| kept.columns.iter().position(|column| column == number);
    let places = columns.iter().map(place).collect::<Option<Vec<usize>>>()?;
    let wanted = match part {
        Some(part) => Some((place(&part.freed)?, &part.value)),
        None => None,
    };
    let is_wanted =
        |row: &&Row| wanted.is_none_or(|(at, value)| row.get(at).is_some_and(|it| it.as_ref() == Some(value)));
    let rows = kept.rows.iter().filter(is_wanted);
    let rows = rows.map(|row| Ok(places.iter().map(|at| row.get(*at).cloned().flatten()).collect::<Row>()));
    render::rows(&query.variables()?, rows, form, &mut RowKeeper::new(0)).ok()
}

/// A question that has joined an evaluation, with what is to be known to ask it anew.
#[derive(Debug)]
pub(crate) struct JoinedTask {
    pub(crate) task: Task,
    origin: RequestOrigin,
    shape: Shape,
}

impl Shared {
    /// Has a question answered with an equal one that is being evaluated, on data that are those of now for it; gives it
    /// back if there is none.
    pub(crate) fn join_running(&self, mut task: Task, asker: &RequestOrigin, shape: Shape) -> Option<Task> {
        let is_running = task.name.as_ref().is_some_and(|name| lock(&self.evaluating).is_running(name));
        if !is_running {
            return Some(task);
        }
        task.hints = lock(&self.desk).front.hints(self.now(), &task, &asker.caller);
        let name = task.name.clone()?;
        let unchanged = |at| lock(&self.cache).unchanged_at(&name.footprint, at);
        let extend = |terms: &mut Arc<Mutex<WatchTerms>>, joined: &JoinedTask, until| {
            lock(terms).extend(until, &joined.task.requester.progress)
        };
        let times = (self.now(), task.until);
        let joined = JoinedTask { task, origin: *asker, shape };
        lock(&self.evaluating).join(&name, joined, times, unchanged, extend).err().map(|joined| joined.task)
    }

    /// What somebody joined is over, and has written nothing under the names that it asks by: it is written from the rows, or asked
    /// anew if these were not kept.
    pub(crate) fn answer_renamed(&self, joined: JoinedTask) {
        let JoinedTask { task, origin, shape } = joined;
        match self.remembered(&task, origin.scope) {
            Some((bytes, version)) => {
                let (hints, source) = (task.hints.clone(), AnswerSource::Shared);
                self.reply(task, Ok(SpaceResponse { answer: ResponseBody::Bytes(bytes), version, hints, source }));
            }
            None => self.enter(task, shape, &origin.caller),
        }
    }

    /// The answer to a question, if it is known without an evaluation, and its version.
    pub(crate) fn remembered(&self, task: &Task, scope: u64) -> Option<(Bytes, u64)> {
        let name = task.name.as_deref()?;
        let found = lock(&self.cache).find(name);
        let (rows, part, version) = match (found, &task.ask) {
            (Some((Remembered::Written(bytes), version)), _) => return Some((bytes, version)),
            (Some((Remembered::Rows(rows), version)), _) => (rows, None, version),
            (None, SpaceRequest::Query { query, .. }) if name.pattern.is_some() => {
                let (rows, part, version) = self.containing(query, scope)?;
                (rows, Some(part), version)
            }
            (None, _) => return None,
        };
        let SpaceRequest::Query { query, form } = &task.ask else { return None };
        let columns = part.as_ref().map_or(&name.columns, |part| &part.columns);
        let bytes = render::held(write(query, *form, &rows, columns, part.as_ref())?, &self.held);
        lock(&self.cache).keep(name, version, bytes.clone());
        Some((bytes, version))
    }

    /// Rows of a question that contains this one.
    fn containing(&self, query: &Query, scope: u64) -> Option<(Arc<CachedRows>, FreedQuery, u64)> {
        let hashed = QuestionHasher { scope, seed: self.seed };
        query.freed(|kind| lock(&self.cache).has(kind)).into_iter().find_map(|freed| {
            let (rows, version) = lock(&self.cache).find_containing(hashed.of_pattern(&freed.question), &freed)?;
            Some((rows, freed, version))
        })
    }
}
