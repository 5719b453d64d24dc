//! The names of a question: for whoever asks the same at the same time or later, and for what it will cost.
//!
//! Two questions are the same if they differ in nothing but the names of their variables, the order of their patterns and
//! columns, and how a `SELECT` is to be written, and if both askers may see the same. Which of these they want is part of
//! the second name, by which answers are kept as they are sent.

use std::hash::Hash;

use siphasher::sip128::{Hasher128, SipHasher24};
use tidegate_control::admission::{Class, QueryKey};
use tidegate_graph::{CanonicalPattern, Footprint, PatternKind, Query};

use super::order::Shape;
use super::request::{Form, SpaceRequest};

/// How a question is known to others.
#[derive(Clone, Debug)]
pub(crate) struct QueryName {
    /// Equal for the same questions.
    pub(crate) question: u128,
    /// Equal for those whose answers are the same bytes.
    pub(crate) written: u128,
    /// Of the projection of a plain pattern: equal for all of the same pattern; and its kind.
    pub(crate) pattern: Option<(u128, PatternKind)>,
    /// The numbers of a `SELECT`'s columns in the canonical form.
    pub(crate) columns: Vec<u32>,
    pub(crate) footprint: Footprint,
}

impl QueryName {
    /// For those who wait together.
    pub(crate) fn key(&self) -> QueryKey {
        QueryKey(self.question)
    }

    fn of_query(query: &Query, form: Form, hashed: &QuestionHasher) -> Self {
        let canonical = query.canonical_form();
        let footprint = query.footprint();
        let (columns, plain) = (canonical.columns, canonical.plain);
        let Some(names) = query.variables() else {
            let question = hashed.of(&("other", &canonical.question, form));
            return Self { question, written: question ^ 1, pattern: None, columns, footprint };
        };
        // A plain pattern says nothing of its columns; otherwise they are in it.
        let mut sorted = columns.clone();
        sorted.sort_unstable();
        let question = hashed.of(&("select", &canonical.question, plain.map(|_| sorted)));
        let written = hashed.of(&("written", question, names, &columns, form));
        let pattern = plain.map(|kind| (hashed.of_pattern(&canonical.question), kind));
        Self { question, written, pattern, columns, footprint }
    }
}

/// Hashes what only those with equal rights share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionHasher {
    pub(crate) scope: u64,
    pub(crate) seed: (u64, u64),
}

impl QuestionHasher {
    fn of(&self, what: &impl Hash) -> u128 {
        let mut hasher = SipHasher24::new_with_keys(self.seed.0, self.seed.1);
        self.scope.hash(&mut hasher);
        what.hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    /// Of the rows of a plain pattern.
    pub(crate) fn of_pattern(&self, pattern: &CanonicalPattern) -> u128 {
        self.of(&("pattern", pattern))
    }
}

impl<C> SpaceRequest<C> {
    /// Its names: for sharing (none if its answer cannot be shared), and for what it will cost.
    pub(crate) fn names(&self, scope: u64, seed: (u64, u64)) -> (Option<QueryName>, Shape) {
        let words = self.words();
        let (shape, hashed) = (shape(self.class(), &words, self.size(), seed), QuestionHasher { scope, seed });
        let name = match self {
            Self::Query { query, form } if query.is_repeatable() => QueryName::of_query(query, *form, &hashed),
            Self::Match { masks, form } => {
                let question = hashed.of(&("match", words, form));
                let footprint = Footprint::of_masks(masks);
                QueryName { question, written: question ^ 1, pattern: None, columns: Vec::new(), footprint }
            }
            _ => return (None, shape),
        };
        (Some(name), shape)
    }

    /// The standing question that it checks, for this client: equal for a later check of the same. Of what goes on with a
    /// subscription always, because its name is known to one client; else only if the client says which version it has.
    pub(crate) fn check_name(&self, name: Option<&QueryName>, client: u64, is_check: bool) -> Option<u64> {
        let hashed = |what: &dyn Fn(&mut SipHasher24)| {
            let mut hasher = SipHasher24::new_with_keys(client, CHECK_KEY);
            what(&mut hasher);
            hasher.finish128().h1
        };
        match (self, name) {
            (Self::Subscribe { seen: Some(seen), .. }, _) => Some(hashed(&|hasher| seen.name.hash(hasher))),
            (Self::Query { .. } | Self::Match { .. }, Some(name)) if is_check => {
                Some(hashed(&|hasher| name.written.hash(hasher)))
            }
            _ => None,
        }
    }

    /// What it reads, if its answer depends on that alone.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        match self {
            Self::Query { query, .. } if query.is_repeatable() => Some(query.footprint()),
            Self::Match { masks, .. } => Some(Footprint::of_masks(masks)),
            _ => None,
        }
    }

    /// What it says, in one spelling; of changes without a condition only that they are changes.
    fn words(&self) -> String {
        match self {
            Self::Query { query, .. } => query.canonical(),
            Self::Match { masks, .. } => format!("{masks:?}"),
            Self::Update(update) => update.conditions(),
            Self::Subscribe { what, .. } => what.canonical(),
            Self::Edit { .. } | Self::Put { .. } | Self::AddRule { .. } | Self::RemoveRule(_) => String::new(),
        }
    }

    /// Quads that it brings or takes away by name.
    fn size(&self) -> usize {
        match self {
            Self::Update(update) => update.size(),
            Self::Edit { remove, insert } => remove.len() + insert.len(),
            Self::Put { insert, .. } => insert.len(),
            _ => 0,
        }
    }
}

/// For the estimate of its cost: the words themselves, and the words without constants.
fn shape(class: Class, words: &str, size: usize, seed: (u64, u64)) -> Shape {
    let hash = |words: &str| {
        let mut hasher = SipHasher24::new_with_keys(seed.0, seed.1);
        (class.index(), words).hash(&mut hasher);
        // Zero is no name.
        hasher.finish128().h1.max(1)
    };
    let exact = if words.is_empty() { 0 } else { hash(words) };
    Shape { exact, kind: hash(&without_constants(words)), size: u32::try_from(size).unwrap_or(u32::MAX), own: 0 }
}

/// A text without its IRIs and strings. Only for estimates: what it takes for a constant may be none.
fn without_constants(words: &str) -> String {
    let mut kept = String::with_capacity(words.len());
    let mut rest = words.chars().peekable();
    while let Some(next) = rest.next() {
        let end = match next {
            '<' if rest.peek().is_some_and(|next| !matches!(next, ' ' | '=')) => '>',
            '"' => '"',
            _ => {
                kept.push(next);
                continue;
            }
        };
        kept.push(next);
        while let Some(inside) = rest.next() {
            if inside == '\\' {
                rest.next();
            } else if inside == end {
                break;
            }
        }
    }
    kept
}

/// Keeps names of checks apart from other hashes; clients are numbers that nobody can choose.
const CHECK_KEY: u64 = 0x7069_6465_6761_7465;

#[cfg(test)]
mod tests {
    use sparesults::QueryResultsFormat;
    use tidegate_graph::QueryLimits;

    use super::*;

    fn name(text: &str, form: Form, scope: u64) -> Option<QueryName> {
        let query = Box::new(Query::parse(text, &QueryLimits::default()).unwrap());
        SpaceRequest::<()>::Query { query, form }.names(scope, (1, 2)).0
    }

    const JSON: Form = Form::Results(QueryResultsFormat::Json);

    #[test]
    fn f104_only_equal_questions_in_equal_forms_by_equals_have_equal_answers() {
        let written = |text: &str, form, scope| name(text, form, scope).map(|name| name.written);
        let plain = written("SELECT ?o { <urn:a> <urn:b> ?o }", JSON, 0);
        assert!(plain.is_some());
        assert_eq!(written("PREFIX u: <urn:>\nSELECT  ?o # spaces\nWHERE { u:a u:b ?o . }", JSON, 0), plain);
        for (text, form, scope) in [
            ("SELECT ?o { <urn:a> <urn:b> ?o }", JSON, 1),
            ("SELECT ?o { <urn:a> <urn:b> ?o }", Form::Ssap, 0),
            ("SELECT ?o { <urn:a> <urn:c> ?o }", JSON, 0),
            ("SELECT ?x { <urn:a> <urn:b> ?x }", JSON, 0),
        ] {
            assert_ne!(written(text, form, scope), plain, "{text} {form:?} {scope}");
        }
        // The same names in the same order, and the other way round.
        let crossed = |text: &str| written(text, JSON, 0);
        assert_ne!(crossed("SELECT ?a ?b { ?a <urn:p> ?b }"), crossed("SELECT ?a ?b { ?b <urn:p> ?a }"));
        assert!(name("SELECT (RAND() AS ?x) {}", JSON, 0).is_none());
    }

    #[test]
    fn equal_questions_join_whatever_they_call_their_columns() {
        let question = |text: &str, form, scope| name(text, form, scope).map(|name| name.question);
        let plain = question("SELECT ?s ?o { ?s <urn:b> ?o . ?s <urn:c> 1 }", JSON, 0);
        for (text, form) in [
            ("SELECT ?y ?x { ?x <urn:c> 1 . ?x <urn:b> ?y }", JSON),
            ("SELECT ?s ?o { ?s <urn:b> ?o . ?s <urn:c> 1 }", Form::Ssap),
        ] {
            assert_eq!(question(text, form, 0), plain, "{text}");
        }
        for (text, scope) in [
            ("SELECT ?s ?o { ?s <urn:b> ?o . ?s <urn:c> 1 }", 1),
            ("SELECT ?s { ?s <urn:b> ?o . ?s <urn:c> 1 }", 0),
            ("SELECT DISTINCT ?s ?o { ?s <urn:b> ?o . ?s <urn:c> 1 }", 0),
        ] {
            assert_ne!(question(text, JSON, scope), plain, "{text}");
        }
        let graph = |form| question("CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }", form, 0);
        assert_ne!(graph(JSON), graph(Form::Ssap), "triples are written once");
    }
}
