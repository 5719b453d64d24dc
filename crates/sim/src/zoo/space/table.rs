//! All of them.

use super::{AskerTask, Askers, SpaceScenario};
use crate::zoo::model::CohortSide;

const WRITERS: Askers = Askers {
    name: "writers",
    side: CohortSide::Innocent,
    count: 4,
    what: AskerTask::Insert,
    per_s: None,
    is_trouble: false,
    work_ms: 1.0,
};
const POINT: &str = "SELECT ?o { <urn:zoo:s{n}> ?p ?o }";
const CHEAP: Askers = Askers { name: "cheap", count: 2, what: AskerTask::Query(POINT), per_s: Some(50.0), ..WRITERS };
/// Seconds of work on a few thousand triples, and another text each time.
const SLOW: &str = "SELECT (COUNT(*) AS ?n) { ?a <urn:zoo:p1> ?b . ?c <urn:zoo:p2> ?d \
                    FILTER(REGEX(STR(?a), CONCAT(\"(x{100}){10}\", STR(?c)))) FILTER(?a != <urn:zoo:{n}>) }";
const DEAR: Askers = Askers {
    name: "slow",
    side: CohortSide::Guilty,
    count: 2,
    what: AskerTask::Query(SLOW),
    is_trouble: true,
    work_ms: 1500.0,
    ..WRITERS
};
const JOIN: &str = "SELECT (COUNT(*) AS ?n) { ?a <urn:zoo:p1> ?o . ?b <urn:zoo:p2> ?o FILTER(?a != <urn:zoo:{n}>) }";
/// A change for which every pair of a few thousand triples is looked at; another text each time.
const LONG_WHERE: &str = "INSERT { <urn:zoo:sum> <urn:zoo:of{n}> ?n } WHERE { SELECT (COUNT(*) AS ?n) { \
                          ?a <urn:zoo:p1> ?b . ?c <urn:zoo:p2> ?d \
                          FILTER(REGEX(STR(?a), CONCAT(\"(x{100}){10}\", STR(?c)))) FILTER(?a != <urn:zoo:{n}>) } }";
/// Paths from everywhere to everywhere.
const PATHS: &str = "SELECT (COUNT(*) AS ?c) { ?a (<urn:zoo:p1>|<urn:zoo:p2>)* ?b }";
const ONE: SpaceScenario = SpaceScenario {
    name: "",
    about: "",
    triples: 5_000,
    bulk: 0,
    standing: None,
    standing_ms: 0.0,
    askers: &[WRITERS],
};

/// Every scenario of the smart space.
pub fn all() -> impl Iterator<Item = &'static SpaceScenario> {
    ALL.iter()
}

const ALL: &[SpaceScenario] = &[
    SpaceScenario {
        name: "space-bulk-then-writers",
        about: "a load of 14 MB (280 000 triples) at once, and four writers before, during and after it",
        bulk: 280_000,
        ..ONE
    },
    SpaceScenario {
        name: "space-bulk-beside-few",
        about: "the same load beside four writers of 50/s and cheap queries: what each of them waits",
        bulk: 280_000,
        askers: &[Askers { per_s: Some(50.0), ..WRITERS }, CHEAP],
        ..ONE
    },
    SpaceScenario {
        name: "space-long-where",
        about: "two clients change what a WHERE over all pairs finds, beside four writers of 50/s",
        askers: &[
            Askers { per_s: Some(50.0), ..WRITERS },
            Askers { name: "long", what: AskerTask::Update(LONG_WHERE), ..DEAR },
        ],
        ..ONE
    },
    SpaceScenario {
        name: "space-slow-queries",
        about: "two slow queries beside cheap ones",
        askers: &[CHEAP, DEAR],
        ..ONE
    },
    SpaceScenario {
        name: "space-slow-queries-writers",
        about: "four slow queries beside writers and cheap queries",
        askers: &[CHEAP, Askers { per_s: Some(50.0), ..WRITERS }, Askers { count: 4, ..DEAR }],
        ..ONE
    },
    SpaceScenario {
        name: "space-dear-standing",
        about: "somebody subscribes to a query over all paths, and leaves, beside four writers of 20/s",
        triples: 1_500,
        standing: Some(PATHS),
        standing_ms: 400.0,
        askers: &[Askers { per_s: Some(20.0), ..WRITERS }, CHEAP],
        ..ONE
    },
    SpaceScenario {
        name: "space-sequential",
        about: "one client that changes a value, waits for the answer, and does it again",
        standing: Some("SELECT ?s ?o { ?s <urn:zoo:v> ?o }"),
        askers: &[Askers { name: "client", count: 1, what: AskerTask::Change, ..WRITERS }],
        ..ONE
    },
    SpaceScenario {
        name: "space-writers",
        about: "16 writers as fast as they are answered",
        askers: &[Askers { count: 16, ..WRITERS }],
        ..ONE
    },
    SpaceScenario {
        name: "space-query-mix",
        about: "point queries, joins and changes together, as fast as they are answered",
        askers: &[
            Askers { name: "points", per_s: None, ..CHEAP },
            Askers { name: "joins", count: 2, what: AskerTask::Query(JOIN), work_ms: 20.0, ..WRITERS },
            Askers { name: "changes", count: 2, what: AskerTask::Change, ..WRITERS },
        ],
        ..ONE
    },
    SpaceScenario {
        name: "space-crowd",
        about: "30 clients with cheap queries of 10/s each, and two writers",
        askers: &[Askers { count: 30, per_s: Some(10.0), ..CHEAP }, Askers { count: 2, ..WRITERS }],
        ..ONE
    },
];
