//! What a result is made of: rows of named terms, and differences between results.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::fmt;
use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;
pub use tidegate_wire_ssap::SsapValue as Term;

use crate::prelude::*;

/// One solution: terms by name, in the order of names. What is unbound is not there. Names and not columns, because
/// brokers leave out the head of an empty result, and then name variables in another order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row(Box<[(Arc<str>, Term)]>);

impl Row {
    /// A row of these bindings.
    pub fn new(bindings: impl IntoIterator<Item = (Arc<str>, Term)>) -> Self {
        let mut bindings: Vec<_> = bindings.into_iter().map(|(name, term)| (name, plain(term))).collect();
        bindings.sort();
        Self(bindings.into())
    }

    /// What a name is bound to.
    pub fn get(&self, name: &str) -> Option<&Term> {
        self.0.iter().find(|(bound, _)| &**bound == name).map(|(_, term)| term)
    }

    /// The characters that a name is bound to, whatever kind of term it is.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(text_of)
    }

    /// All bindings, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Term)> {
        self.0.iter().map(|(name, term)| (&**name, term))
    }

    /// A number that is the same for equal rows.
    fn print(&self) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(0x7469_6465, 0x6761_7465);
        for (name, term) in &self.0 {
            name.hash(&mut hasher);
            let (kind, text, more) = match term {
                Term::Uri(text) => (0_u8, text, ""),
                Term::Blank(text) => (1, text, ""),
                Term::Literal { text, datatype: Some(datatype), .. } => (2, text, datatype.as_str()),
                Term::Literal { text, language: Some(language), .. } => (3, text, language.as_str()),
                Term::Literal { text, .. } => (4, text, ""),
            };
            (kind, text, more).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The characters of a term.
pub(crate) fn text_of(term: &Term) -> &str {
    match term {
        Term::Uri(text) | Term::Blank(text) | Term::Literal { text, .. } => text,
    }
}

/// Two brokers, one term: a plain string is written with its datatype by some.
fn plain(mut term: Term) -> Term {
    if let Term::Literal { datatype, .. } = &mut term
        && datatype.as_deref() == Some("http://www.w3.org/2001/XMLSchema#string")
    {
        *datatype = None;
    }
    term
}

/// A term as SPARQL writes it.
pub(crate) fn write_term(term: &Term, f: &mut impl fmt::Write) -> fmt::Result {
    match term {
        Term::Uri(text) => write!(f, "<{text}>"),
        Term::Blank(text) => write!(f, "_:{text}"),
        Term::Literal { text, datatype, language } => {
            f.write_char('"')?;
            for character in text.chars() {
                match character {
                    '"' => f.write_str("\\\"")?,
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
            match (datatype, language) {
                (_, Some(language)) => write!(f, "@{language}"),
                (Some(datatype), None) => write!(f, "^^<{datatype}>"),
                (None, None) => Ok(()),
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, term)) in self.iter().enumerate() {
            write!(f, "{}?{name} = ", if place > 0 { ", " } else { "" })?;
            write_term(term, f)?;
        }
        Ok(())
    }
}

/// What entered a result and what left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Rows that are new.
    pub added: Vec<Row>,
    /// Rows that are gone.
    pub removed: Vec<Row>,
}

impl Delta {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Rows on both sides.
    pub fn len(&self) -> usize {
        self.added.len() + self.removed.len()
    }

    /// The same change backwards.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { added: self.removed, removed: self.added }
    }

    /// This change and then another, as one. What enters and leaves again is not told.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let mut net = NetChange::of(self);
        net.add(next);
        net.into_delta()
    }
}

/// A sum of changes that can grow: each row with how much more often it is there than before.
#[derive(Debug, Default)]
pub(crate) struct NetChange(BTreeMap<Row, i64>);

impl NetChange {
    pub(crate) fn of(delta: Delta) -> Self {
        let mut net = Self::default();
        net.add(delta);
        net
    }

    /// One more change. What enters and leaves again needs no room.
    pub(crate) fn add(&mut self, delta: Delta) {
        for (rows, by) in [(delta.added, 1), (delta.removed, -1)] {
            for row in rows {
                match self.0.entry(row) {
                    Entry::Vacant(free) => {
                        free.insert(by);
                    }
                    Entry::Occupied(held) if *held.get() == -by => {
                        held.remove();
                    }
                    Entry::Occupied(mut held) => *held.get_mut() += by,
                }
            }
        }
    }

    pub(crate) fn into_delta(self) -> Delta {
        let mut sum = Delta::default();
        for (row, count) in self.0 {
            let side = if count > 0 { &mut sum.added } else { &mut sum.removed };
            side.extend(core::iter::repeat_n(row, usize::try_from(count.unsigned_abs()).unwrap_or(0)));
        }
        sum
    }
}

/// A result as it is held: each row with how often it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    rows: BTreeMap<Row, u32>,
    print: u64,
}

impl View {
    /// The rows, each as often as it is there.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().flat_map(|(row, count)| core::iter::repeat_n(row, *count as usize))
    }

    /// Distinct rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A number that is the same for equal results, whatever their order.
    pub(crate) fn print(&self) -> u64 {
        self.print
    }

    /// The same for rows that are not held.
    pub(crate) fn print_of(rows: &[Row]) -> u64 {
        rows.iter().fold(0, |sum, row| sum.wrapping_add(row.print()))
    }

    fn add(&mut self, row: Row) {
        self.print = self.print.wrapping_add(row.print());
        *self.rows.entry(row).or_default() += 1;
    }

    /// False if it was not there.
    fn remove(&mut self, row: &Row) -> bool {
        let Some(count) = self.rows.get_mut(row) else { return false };
        *count -= 1;
        if *count == 0 {
            self.rows.remove(row);
        }
        self.print = self.print.wrapping_sub(row.print());
        true
    }

    /// Takes a change in; the answer is what it really changed. A row that was not there cannot leave.
    pub(crate) fn apply(&mut self, delta: Delta) -> Delta {
        let removed = delta.removed.into_iter().filter(|row| self.remove(row)).collect();
        for row in &delta.added {
            self.add(row.clone());
        }
        Delta { added: delta.added, removed }
    }

    /// Becomes these rows; the answer is the difference.
    pub(crate) fn replace(&mut self, rows: Vec<Row>) -> Delta {
        let mut next = Self::default();
        for row in rows {
            next.add(row);
        }
        let delta = self.difference(&next);
        *self = next;
        delta
    }

    /// What leads from here to there.
    pub(crate) fn difference(&self, next: &Self) -> Delta {
        let beyond = |of: &Self, than: &Self| {
            let more = |(row, count): (&Row, &u32)| {
                let extra = count.saturating_sub(than.rows.get(row).copied().unwrap_or(0));
                core::iter::repeat_n(row.clone(), extra as usize)
            };
            of.rows.iter().flat_map(more).collect::<Vec<_>>()
        };
        Delta { added: beyond(next, self), removed: beyond(self, next) }
    }

    /// A view of these rows.
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        let mut view = Self::default();
        view.replace(rows);
        view
    }
}

#[cfg(test)]
pub(crate) fn literal_row(name: &str, text: &str) -> Row {
    Row::new([(name.into(), Term::Literal { text: text.into(), datatype: None, language: None })])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rows(texts: &[u8]) -> Vec<Row> {
        texts.iter().map(|text| literal_row("o", &text.to_string())).collect()
    }

    #[test]
    fn a_row_is_shown_as_sparql_writes_it() {
        let literal = Term::Literal { text: "a \"b\"\n".into(), datatype: None, language: Some("en".into()) };
        let row = Row::new([("s".into(), Term::Uri("urn:a".into())), ("o".into(), literal)]);
        assert_eq!(row.to_string(), "?o = \"a \\\"b\\\"\\n\"@en, ?s = <urn:a>");
        assert_eq!((row.text("s"), row.text("x")), (Some("urn:a"), None));
        assert!(row.print() != literal_row("o", "urn:a").print());
    }

    #[test]
    fn a_plain_string_is_the_same_with_and_without_its_datatype() {
        let datatype = Some("http://www.w3.org/2001/XMLSchema#string".to_owned());
        let typed = Row::new([("o".into(), Term::Literal { text: "x".into(), datatype, language: None })]);
        assert_eq!(typed, literal_row("o", "x"));
    }

    proptest! {
        /// A change that is applied leads where a replacement does, backwards too, and so does the sum of two.
        #[test]
        fn changes_add_up(a in prop::collection::vec(0u8..6, 0..8), b in prop::collection::vec(0u8..6, 0..8),
                          c in prop::collection::vec(0u8..6, 0..8)) {
            let mut view = View::of(rows(&a));
            let first = view.replace(rows(&b));
            let second = view.replace(rows(&c));
            prop_assert_eq!(view.print(), View::print_of(&rows(&c)));
            let mut again = View::of(rows(&a));
            again.apply(first.clone().then(second.clone()));
            prop_assert_eq!(&again, &View::of(rows(&c)));
            again.apply(second.inverse());
            again.apply(first.inverse());
            prop_assert_eq!(&again, &View::of(rows(&a)));
        }

        /// Whatever a broker claims, nothing that was not there leaves, and print and rows agree.
        #[test]
        fn lies_change_nothing_but_what_they_say(a in prop::collection::vec(0u8..6, 0..8),
                                                 lie in prop::collection::vec(0u8..6, 0..8)) {
            let mut view = View::of(rows(&a));
            let done = view.apply(Delta { added: Vec::new(), removed: rows(&lie) });
            prop_assert!(done.removed.len() <= a.len());
            let held: Vec<Row> = view.rows().cloned().collect();
            prop_assert_eq!(view.print(), View::print_of(&held));
        }
    }
}
