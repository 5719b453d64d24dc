//! The animals of the smart space: who asks what, beside which load or standing query. Data, like the scenarios of the
//! broker: `tidegate bench harm` runs them on sockets, and the space's own tests in virtual time, before the machines that
//! run in the field, with the same judge.

mod table;

use super::model::{CohortSide, Manners};

pub use table::all;

/// What somebody asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AskerTask {
    /// `INSERT DATA` of one triple.
    Insert,
    /// `DELETE`/`INSERT WHERE` of one value.
    Change,
    /// An update; `{n}` is another number each time, `{w}` one that makes it dear or cheap.
    Update(&'static str),
    /// The same for a query.
    Query(&'static str),
}

impl AskerTask {
    /// The text of a request: the `count`th of the asker of this number.
    fn text(self, number: usize, count: u64, is_dear: bool) -> String {
        match self {
            Self::Insert => format!("INSERT DATA {{ <urn:zoo:w{number}x{count}> <urn:zoo:v> {count} }}"),
            Self::Change => format!(
                "DELETE {{ <urn:zoo:c{number}> <urn:zoo:v> ?o }} INSERT {{ <urn:zoo:c{number}> <urn:zoo:v> {count} }} \
                 WHERE {{ OPTIONAL {{ <urn:zoo:c{number}> <urn:zoo:v> ?o }} }}"
            ),
            Self::Query(text) | Self::Update(text) => {
                let width = if is_dear { DEAR_WIDTH } else { CHEAP_WIDTH };
                text.replace("{n}", &(count * 31 + number as u64).to_string()).replace("{w}", width)
            }
        }
    }
}

/// Lengths of names: of all that there are, and of the first hundred.
const DEAR_WIDTH: &str = "99";
const CHEAP_WIDTH: &str = "12";

/// What the space can know of whose requests these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskerNames {
    /// Each asks from an address of its own.
    Own,
    /// All are one client of one address: connections of one KP.
    One,
    /// All ask from one address, and under another name each time.
    EachTime,
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
    /// One request in so many is dear, of the same shape as the others; 0: none is.
    pub dear_every: u64,
    /// In virtual time: milliseconds that this one takes.
    pub dear_ms: f64,
    /// How long it waits for an answer; as long as the space allows if none is said.
    pub patience_ms: Option<u32>,
    /// Who it is to the space.
    pub names: AskerNames,
    /// What it does when it is refused: who does not obey comes again at once, or when its next one is due.
    pub manners: Manners,
}

impl Askers {
    /// The text of the `count`th request of the asker of this number.
    pub fn text(&self, number: usize, count: u64) -> String {
        self.what.text(number, count, self.is_dear(number, count))
    }

    /// Whether that is a dear one.
    pub fn is_dear(&self, number: usize, count: u64) -> bool {
        self.dear_every > 0 && (count + number as u64).is_multiple_of(self.dear_every)
    }

    /// In virtual time: milliseconds of a processor that it takes.
    pub fn takes_ms(&self, number: usize, count: u64) -> f64 {
        if self.is_dear(number, count) { self.dear_ms } else { self.work_ms }
    }
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
