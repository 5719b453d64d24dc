//! The animals of the smart space: who asks what, beside which load or standing query. Data, like the scenarios of the
//! broker: `tidegate bench harm` runs them on sockets, and the space's own tests in virtual time, before the machines that
//! run in the field, with the same judge.

mod table;

use super::model::CohortSide;

pub use table::all;

/// What somebody asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AskerTask {
    /// `INSERT DATA` of one triple.
    Insert,
    /// `DELETE`/`INSERT WHERE` of one value.
    Change,
    /// An update; `{n}` is another number each time.
    Update(&'static str),
    /// The same for a query.
    Query(&'static str),
}

impl AskerTask {
    /// The text of a request: the `count`th of the asker of this number.
    pub fn text(self, number: usize, count: u64) -> String {
        match self {
            Self::Insert => format!("INSERT DATA {{ <urn:zoo:w{number}x{count}> <urn:zoo:v> {count} }}"),
            Self::Change => format!(
                "DELETE {{ <urn:zoo:c{number}> <urn:zoo:v> ?o }} INSERT {{ <urn:zoo:c{number}> <urn:zoo:v> {count} }} \
                 WHERE {{ OPTIONAL {{ <urn:zoo:c{number}> <urn:zoo:v> ?o }} }}"
            ),
            Self::Query(text) | Self::Update(text) => text.replace("{n}", &(count * 31 + number as u64).to_string()),
        }
    }
}

/// Askers that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Askers {
    /// Their name.
    pub name: &'static str,
    /// Who they are in the comparison.
    pub side: CohortSide,
    pub count: u32,
    /// What each asks, over and over.
    pub what: AskerTask,
    /// Requests a second of each; as fast as it is answered if none is said.
    pub per_s: Option<f64>,
    /// Whether it asks only while the trouble lasts.
    pub is_trouble: bool,
    /// In virtual time: milliseconds of a processor that one request takes.
    pub work_ms: f64,
}

/// One animal of the smart space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceScenario {
    pub name: &'static str,
    /// What happens, in a line.
    pub about: &'static str,
    /// Triples that are there before.
    pub triples: u32,
    /// Triples that are loaded at once, at the beginning of the trouble.
    pub bulk: u32,
    /// A query that somebody has subscribed to while the trouble lasts.
    pub standing: Option<&'static str>,
    /// In virtual time: milliseconds of a processor that it takes to evaluate that; 0 if each change tells the difference.
    pub standing_ms: f64,
    pub askers: &'static [Askers],
}

/// A triple of those that are there, or are loaded: subject, predicate and object by number.
pub fn triple(number: u32) -> [String; 3] {
    [
        format!("urn:zoo:s{number}"),
        format!("urn:zoo:p{}", number % PREDICATES),
        format!("urn:zoo:o{}", number % OBJECTS),
    ]
}

const PREDICATES: u32 = 7;
const OBJECTS: u32 = 100;
