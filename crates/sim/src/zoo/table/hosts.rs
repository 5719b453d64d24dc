//! The broker itself is what is scarce: its loop, its connections, its memory of retained messages.

use super::super::model::{
    APP, Attendance, CALM, Churn, Cohort, CohortSide, DEVICE, During, FLOODER, Home, ReadPace, Readers, Rule, Speaks,
    ZooScenario,
};
use super::{CAREFUL, GATEWAY};

/// In virtual time a broker that can do 3 000 units of work a second, and a hundredth of the load.
const ONE: ZooScenario = ZooScenario { rule: Rule::NotWorse, capacity: 3_000.0, scale: 0.01, is_known: false, ..CALM };
/// The same with the rates as they are.
const SMALL: ZooScenario = ZooScenario { scale: 1.0, is_known: true, ..ONE };
const PROBE: Cohort = Cohort { name: "probe", count: 5, per_s: 50.0, qos: 1, ..DEVICE };
const PROBED: Readers = Readers { name: "probed", count: 5, of: &["probe"], is_paired: true, ..APP };
const BLAST: Cohort =
    Cohort { name: "blast", side: CohortSide::Heavy, bytes: 256, during: During::Full, per_s: 0.5, ..DEVICE };
const SLOW_PROBES: Cohort = Cohort { per_s: 5.0, ..PROBE };

pub(super) const ALL: &[ZooScenario] = &[
    ZooScenario {
        name: "fan-in-500k",
        about: "50 publishers, QoS 0, 500 000/s together, into one fast receiver",
        cohorts: &[Cohort { name: "fan", count: 50, per_s: 10_000.0, bytes: 256, ..DEVICE }],
        ..ONE
    },
    ZooScenario {
        name: "fan-in-200k",
        about: "50 publishers, QoS 0, 200 000/s together, into one fast receiver",
        cohorts: &[Cohort { name: "fan", count: 50, per_s: 4_000.0, ..DEVICE }],
        ..ONE
    },
    ZooScenario {
        name: "fan-in-blast",
        about: "50 publishers as fast as their sockets take it, into one fast receiver; 5 probes of 50/s at QoS 1",
        cohorts: &[SLOW_PROBES, Cohort { count: 50, ..BLAST }],
        readers: &[PROBED, Readers { of: &["blast"], qos: 0, ..APP }],
        ..SMALL
    },
    ZooScenario {
        name: "fan-out-20x20",
        about: "20 publishers as fast as their sockets take it to 20 subscribers; 5 probes of 50/s at QoS 1",
        cohorts: &[SLOW_PROBES, BLAST],
        readers: &[PROBED, Readers { count: 20, of: &["blast"], qos: 0, ..APP }],
        ..SMALL
    },
    ZooScenario {
        name: "pairs-blast",
        about: "20 pairs as fast as their sockets take it, and 5 probes",
        cohorts: &[SLOW_PROBES, BLAST],
        readers: &[PROBED, Readers { count: 20, of: &["blast"], is_paired: true, qos: 0, ..APP }],
        ..SMALL
    },
    ZooScenario {
        name: "loop-flood",
        about: "5 flooders as fast as they are answered keep the loop busy; a fleet and a gateway beside them",
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort { per_s: 200.0, topics: 100, ..GATEWAY },
            Cohort { count: 5, during: During::Full, ..FLOODER },
        ],
        ..SMALL
    },
    ZooScenario {
        name: "loop-flood-nat",
        about: "100 names behind one address keep the loop busy",
        rule: Rule::OneOrMany,
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort { count: 100, per_s: 1.0, home: Home::Network(4), during: During::Full, ..FLOODER },
        ],
        ..SMALL
    },
    ZooScenario {
        name: "loop-flood-two-shards",
        about: "5 flooders keep two threads busy",
        shards: 2,
        rule: Rule::OneOrMany,
        cohorts: &[DEVICE, CAREFUL, Cohort { count: 5, during: During::Full, ..FLOODER }],
        ..SMALL
    },
    ZooScenario {
        name: "flood-to-nobody",
        about: "a flooder at QoS 0 whom nobody reads",
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 0, during: During::Full, ..FLOODER }],
        readers: &[Readers { of: &["device", "careful"], ..APP }],
        ..SMALL
    },
    ZooScenario {
        name: "retained-storm",
        about: "retained messages on 2 000 topics, and 5 readers who come for all of them",
        rule: Rule::Calm,
        capacity: 20_000.0,
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort {
                name: "retained",
                side: CohortSide::Heavy,
                count: 2,
                per_s: 1000.0,
                topics: 1000,
                retain: true,
                qos: 1,
                ..DEVICE
            },
        ],
        readers: &[
            Readers { of: &["device", "careful"], ..APP },
            Readers { name: "late", count: 5, counts: false, qos: 0, stay: Attendance::Trouble, ..APP },
        ],
        ..SMALL
    },
    ZooScenario {
        name: "reconnect-storm",
        about: "500 clients vanish and come back at once",
        rule: Rule::Calm,
        capacity: 20_000.0,
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort { name: "storm", side: CohortSide::Heavy, count: 500, per_s: 0.2, churn: Churn::Return, ..CAREFUL },
        ],
        ..SMALL
    },
    ZooScenario {
        name: "will-storm",
        about: "50 clients vanish and come back all the time, and everybody hears their wills",
        rule: Rule::Calm,
        capacity: 20_000.0,
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort {
                name: "mortal",
                side: CohortSide::Guilty,
                count: 50,
                per_s: 1.0,
                churn: Churn::Wills(200),
                ..CAREFUL
            },
        ],
        ..SMALL
    },
    ZooScenario {
        name: "dead-readers-and-flood",
        about: "a flooder at QoS 0, and 20 readers of everything that do not read",
        capacity: 20_000.0,
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 0, speaks: Speaks::V311, ..FLOODER }],
        readers: &[
            Readers { of: &["device", "careful"], ..APP },
            Readers { name: "dead", count: 20, counts: false, pace: ReadPace::Dead, stay: Attendance::Trouble, ..APP },
        ],
        ..SMALL
    },
];
