//! A client that subscribes: it applies what it is told, and knows what its view must be.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_graph::{Query, QueryLimits, ResultDelta, Row, SubscriberId};

use crate::machine::notification::SpaceNotification;
use crate::machine::request::{Begun, Subscribed};

/// The data, plainly: subject and object.
pub(in crate::machine) type Data = BTreeSet<(u64, u64)>;

const INTEGER: &str = "http://www.w3.org/2001/XMLSchema#integer";

/// What is subscribed to: two that are followed, and one that is evaluated beside the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum WantedQuery {
    All,
    One,
    Count,
}

impl WantedQuery {
    pub(in crate::machine) fn query(self) -> Box<Query> {
        let text = match self {
            Self::All => "SELECT ?s ?o { ?s <urn:p> ?o }",
            Self::One => "SELECT ?o { <urn:s1> <urn:p> ?o }",
            Self::Count => "SELECT (COUNT(?o) AS ?n) { ?s <urn:p> ?o }",
        };
        Box::new(Query::parse(text, &QueryLimits::default()).unwrap())
    }

    /// The result on these data, as rows in words.
    fn result(self, data: &Data) -> BTreeMap<String, i64> {
        let object = |o: u64| format!("\"{o}\"^^<{INTEGER}>");
        let rows: Vec<String> = match self {
            Self::All => data.iter().map(|(s, o)| format!("<urn:s{s}> {}", object(*o))).collect(),
            Self::One => data.iter().filter(|(s, _)| *s == 1).map(|(_, o)| object(*o)).collect(),
            Self::Count => vec![object(data.len() as u64)],
        };
        rows.into_iter().map(|row| (row, 1)).collect()
    }
}

fn words(row: &Row) -> String {
    row.iter().map(|term| term.as_ref().map_or_else(String::new, ToString::to_string)).collect::<Vec<_>>().join(" ")
}

/// What a client has of its subscription.
#[derive(Debug)]
pub(in crate::machine) struct SimulatedSubscriber {
    pub(in crate::machine) wanted: WantedQuery,
    pub(in crate::machine) name: String,
    pub(in crate::machine) id: SubscriberId,
    pub(in crate::machine) connection: u64,
    pub(in crate::machine) sequence: u64,
    pub(in crate::machine) version: u64,
    view: BTreeMap<String, i64>,
}

impl SimulatedSubscriber {
    /// A subscription that begins anew.
    pub(in crate::machine) fn new(wanted: WantedQuery, connection: u64, subscribed: &Subscribed) -> Self {
        let Begun::Whole(baseline) = &subscribed.begun else { panic!("nothing was there before") };
        let mut view = BTreeMap::new();
        for row in &baseline.rows {
            *view.entry(words(row)).or_default() += 1;
        }
        let (id, name) = (subscribed.id, subscribed.name.clone());
        Self { wanted, name, id, connection, sequence: 0, version: baseline.version, view }
    }

    /// Goes on where it stopped.
    pub(in crate::machine) fn resume(&mut self, connection: u64, subscribed: &Subscribed, version: u64) {
        self.connection = connection;
        match &subscribed.begun {
            Begun::Whole(_) => *self = Self::new(self.wanted, connection, subscribed),
            Begun::Missed { sequence, delta, .. } => self.apply(*sequence, version, delta),
        }
    }

    pub(in crate::machine) fn hear(&mut self, told: &SpaceNotification) -> bool {
        match told {
            SpaceNotification::Changed { sequence, version, delta } => {
                assert_eq!(*sequence, self.sequence + 1, "numbers have no gaps");
                self.apply(*sequence, *version, delta);
                true
            }
            SpaceNotification::Delegated { sequence, .. } => {
                assert_eq!(*sequence, self.sequence, "it has no number of its own");
                true
            }
            SpaceNotification::Ended(_) | SpaceNotification::Restarting { .. } => false,
        }
    }

    fn apply(&mut self, sequence: u64, version: u64, delta: &ResultDelta) {
        assert!(version >= self.version, "{version} after {}", self.version);
        (self.sequence, self.version) = (sequence, version);
        for (rows, count) in [(&delta.added, 1), (&delta.removed, -1)] {
            for row in rows {
                let row = words(row);
                let counted = self.view.entry(row.clone()).or_default();
                *counted += count;
                if *counted == 0 {
                    self.view.remove(&row);
                }
            }
        }
    }

    /// Its view is the result at its version.
    pub(in crate::machine) fn check(&self, data: &Data) {
        assert_eq!(self.view, self.wanted.result(data), "{:?} at version {}", self.wanted, self.version);
    }
}
