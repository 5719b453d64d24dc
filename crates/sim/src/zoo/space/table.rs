//! All of them.

use super::{AskerNames, AskerTask, Askers, SpaceScenario};
use crate::zoo::model::{CohortSide, Manners};

const WRITERS: Askers = Askers {
    name: "writers",
    side: CohortSide::Innocent,
    count: 4,
    what: AskerTask::Insert,
    per_s: None,
    is_trouble: false,
    work_ms: 1.0,
    dear_every: 0,
    dear_ms: 0.0,
    patience_ms: None,
    names: AskerNames::Own,
    manners: Manners::Insists,
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
/// One shape, whose constants decide whether it looks at a few thousand pairs or at half a million.
const PAIRS: &str = "SELECT (COUNT(*) AS ?n) { ?a <urn:zoo:p1> ?b . ?c <urn:zoo:p2> ?d \
                     FILTER(STRLEN(STR(?a)) < {w} && REGEX(STR(?a), CONCAT(\"(x{100}){10}\", STR(?c)))) \
                     FILTER(?a != <urn:zoo:{n}>) }";
const JOINS: Askers = Askers { name: "joins", count: 4, what: AskerTask::Query(PAIRS), work_ms: 20.0, ..WRITERS };
const DEAR_JOINS: Askers = Askers {
    name: "dear",
    side: CohortSide::Guilty,
    count: 12,
    is_trouble: true,
    dear_every: 1,
    dear_ms: 900.0,
    ..JOINS
};
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

/// Those of whom some have to be refused: they ask for five times what there is, or for what nobody can answer in time.
const GREEDY: Askers = Askers {
    name: "greedy",
    side: CohortSide::Guilty,
    count: 160,
    what: AskerTask::Query(POINT),
    per_s: Some(6.25),
    is_trouble: true,
    work_ms: 10.0,
    names: AskerNames::One,
    ..WRITERS
};
const PLAIN: Askers = Askers { name: "plain", count: 20, per_s: Some(5.0), ..CHEAP };
const CROWD: Askers = Askers {
    name: "crowd",
    side: CohortSide::Heavy,
    count: 200,
    per_s: Some(2.5),
    work_ms: 20.0,
    names: AskerNames::Own,
    patience_ms: Some(1000),
    ..GREEDY
};
const FEW_WRITERS: Askers = Askers { per_s: Some(20.0), patience_ms: Some(2000), ..WRITERS };

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
    SpaceScenario {
        name: "space-equal-shapes",
        about: "clients whose queries take 20 ms beside twelve whose queries of the same shape take 900 ms",
        askers: &[JOINS, CHEAP, DEAR_JOINS],
        ..ONE
    },
    SpaceScenario {
        name: "space-mixed-shape",
        about: "clients of whose queries, all of one shape, most take 20 ms and one in ten 900 ms",
        askers: &[Askers { count: 8, dear_every: 10, dear_ms: 900.0, ..JOINS }, CHEAP],
        ..ONE
    },
    SpaceScenario {
        name: "space-greedy",
        about: "one client asks on 160 connections for five times what there is, beside 20 plain ones",
        askers: &[PLAIN, GREEDY],
        ..ONE
    },
    SpaceScenario {
        name: "space-greedy-obeys",
        about: "the same client comes back when it is told to",
        askers: &[PLAIN, Askers { manners: Manners::Obeys, ..GREEDY }],
        ..ONE
    },
    SpaceScenario {
        name: "space-names",
        about: "160 connections of one address, under another name each time, beside 20 plain ones",
        askers: &[PLAIN, Askers { names: AskerNames::EachTime, ..GREEDY }],
        ..ONE
    },
    SpaceScenario {
        name: "space-glut",
        about: "200 clients that wait for a second ask for five times what there is, beside 20 plain ones",
        askers: &[Askers { patience_ms: Some(1000), ..PLAIN }, CROWD],
        ..ONE
    },
    SpaceScenario {
        name: "space-glut-obeys",
        about: "the same clients come back when they are told to",
        askers: &[Askers { patience_ms: Some(1000), ..PLAIN }, Askers { manners: Manners::Obeys, ..CROWD }],
        ..ONE
    },
    SpaceScenario {
        name: "space-greedy-writer",
        about: "one client changes on 200 connections five times what there is, beside four writers of 20/s",
        askers: &[
            FEW_WRITERS,
            Askers { count: 200, what: AskerTask::Insert, per_s: Some(25.0), work_ms: 1.0, ..GREEDY },
        ],
        ..ONE
    },
    SpaceScenario {
        name: "space-bulk-greedy-writer",
        about: "the same behind a load of 14 MB",
        bulk: 280_000,
        askers: &[
            FEW_WRITERS,
            Askers { count: 200, what: AskerTask::Insert, per_s: Some(25.0), work_ms: 1.0, ..GREEDY },
        ],
        ..ONE
    },
    SpaceScenario {
        name: "space-slow-impatient",
        about: "six clients that wait two seconds for queries of 1.5 s, beside cheap ones that wait 200 ms",
        askers: &[
            Askers { patience_ms: Some(200), ..CHEAP },
            Askers { count: 6, patience_ms: Some(2000), manners: Manners::Obeys, ..DEAR },
        ],
        ..ONE
    },
];
