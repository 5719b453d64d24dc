//! Who is who: users, neighbours, classes; and the rare among the chatty.

use super::super::model::{
    CALM, Cohort, CohortSide, DEVICE, During, FLOODER, Home, ReadPace, Readers, Rule, Speaks, ZooScenario,
};
use super::{CAREFUL, WORKER};

const ONE: ZooScenario = ZooScenario { rule: Rule::OneOrMany, readers: &[WORKER], ..CALM };
const RARE: ZooScenario = ZooScenario { rule: Rule::Rare, readers: &[HALF], ..ONE };
/// A receiver that takes 60 a second for a while.
const SLOW: Readers = Readers { pace: ReadPace::Slows(60.0), window: Some(4), ..WORKER };
const HALF: Readers = Readers { pace: ReadPace::Slows(500.0), window: Some(16), ..WORKER };
const CHATTY: Cohort =
    Cohort { name: "chatty", side: CohortSide::Heavy, count: 16, per_s: 18.0, qos: 1, speaks: Speaks::V5, ..DEVICE };
const SELDOM: Cohort = Cohort { name: "rare", count: 8, per_s: 1.0, ..DEVICE };

pub(super) const ALL: &[ZooScenario] = &[
    ZooScenario {
        name: "one-user",
        about: "21 devices share one user, one of them floods 2 000/s, QoS 1, MQTT 5",
        cohorts: &[
            Cohort { home: Home::User("fleet"), ..DEVICE },
            Cohort { home: Home::User("fleet"), ..CAREFUL },
            Cohort { home: Home::User("fleet"), ..FLOODER },
        ],
        ..ONE
    },
    ZooScenario {
        name: "one-user-311",
        about: "the same, the flooder with MQTT 3.1.1 at QoS 0",
        cohorts: &[
            Cohort { home: Home::User("fleet"), ..DEVICE },
            Cohort { home: Home::User("fleet"), ..CAREFUL },
            Cohort { home: Home::User("fleet"), speaks: Speaks::V311, qos: 0, ..FLOODER },
        ],
        ..ONE
    },
    ZooScenario {
        name: "two-users",
        about: "the same beside one device of another user",
        cohorts: &[
            Cohort { home: Home::User("fleet"), ..DEVICE },
            Cohort { name: "other", count: 1, per_s: 2.0, home: Home::User("other"), ..CAREFUL },
            Cohort { home: Home::User("fleet"), ..FLOODER },
        ],
        ..ONE
    },
    ZooScenario {
        name: "four-users",
        about: "four users with fleets of their own, the devices of one of them go from 5 to 200/s",
        cohorts: &[
            Cohort { name: "north", count: 8, home: Home::User("north"), ..DEVICE },
            Cohort { name: "south", count: 8, home: Home::User("south"), ..CAREFUL },
            Cohort { name: "east", count: 8, home: Home::User("east"), ..CAREFUL },
            Cohort { name: "west", count: 8, home: Home::User("west"), during: During::PerSecond(200.0), ..FLOODER },
        ],
        ..ONE
    },
    ZooScenario {
        name: "nat-neighbour",
        about: "20 devices and a flooder of 2 000/s behind one address",
        cohorts: &[
            Cohort { home: Home::Network(1), ..DEVICE },
            Cohort { home: Home::Network(1), ..CAREFUL },
            Cohort { home: Home::Network(1), ..FLOODER },
        ],
        ..ONE
    },
    ZooScenario {
        name: "nat-crowd",
        about: "100 names behind one address, 20/s each, that nobody has seen before",
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort {
                name: "crowd",
                count: 100,
                per_s: 0.01,
                home: Home::Network(3),
                during: During::PerSecond(20.0),
                ..FLOODER
            },
        ],
        ..ONE
    },
    ZooScenario {
        name: "rare-q0-chatty-q1",
        about: "8 rare devices at QoS 0 beside 16 chatty ones at QoS 1, five times of what the receiver takes",
        cohorts: &[SELDOM, CHATTY],
        readers: &[SLOW],
        ..RARE
    },
    ZooScenario {
        name: "rare-q1-chatty-q0",
        about: "the same the other way round",
        cohorts: &[Cohort { qos: 1, speaks: Speaks::V5, ..SELDOM }, Cohort { qos: 0, speaks: Speaks::V311, ..CHATTY }],
        readers: &[SLOW],
        ..RARE
    },
    ZooScenario {
        name: "rare-all-q0",
        about: "rare and chatty at QoS 0",
        cohorts: &[SELDOM, Cohort { qos: 0, speaks: Speaks::V311, ..CHATTY }],
        readers: &[Readers { qos: 0, ..SLOW }],
        ..RARE
    },
    ZooScenario {
        name: "rare-all-q2",
        about: "rare and chatty at QoS 2",
        cohorts: &[Cohort { qos: 2, speaks: Speaks::V5, ..SELDOM }, Cohort { qos: 2, ..CHATTY }],
        readers: &[Readers { qos: 2, ..SLOW }],
        ..RARE
    },
    ZooScenario {
        name: "classes",
        about: "10 rare, 10 usual and 10 busy publishers, three times of what the receiver takes",
        cohorts: &[
            Cohort { name: "rare", count: 10, per_s: 4.0, ..CAREFUL },
            Cohort { name: "usual", side: CohortSide::Heavy, count: 10, per_s: 36.0, ..CAREFUL },
            Cohort { name: "busy", side: CohortSide::Heavy, count: 10, per_s: 110.0, ..CAREFUL },
        ],
        ..RARE
    },
    ZooScenario {
        name: "many-flows",
        about: "120 chatty devices of 30/s at a receiver of 500/s, and 5 rare ones at QoS 1",
        cohorts: &[
            Cohort { name: "rare", count: 5, per_s: 1.0, ..CAREFUL },
            Cohort { name: "chatty", side: CohortSide::Heavy, count: 120, per_s: 30.0, ..DEVICE },
        ],
        ..RARE
    },
    ZooScenario {
        name: "all-double",
        about: "everybody doubles, and the receiver takes two thirds of it",
        rule: Rule::NotWorse,
        cohorts: &[
            Cohort { name: "rare", count: 10, per_s: 1.0, during: During::PerSecond(2.0), ..DEVICE },
            Cohort {
                name: "mid",
                side: CohortSide::Heavy,
                count: 40,
                per_s: 9.0,
                during: During::PerSecond(18.0),
                ..DEVICE
            },
        ],
        ..ONE
    },
    ZooScenario {
        name: "gateway-beside-flooders",
        about: "a known gateway of 200/s beside 5 flooders, at a receiver of 500/s",
        cohorts: &[
            Cohort { topics: 100, per_s: 200.0, name: "gateway", count: 1, ..CAREFUL },
            DEVICE,
            Cohort { count: 5, during: During::PerSecond(1000.0), ..FLOODER },
        ],
        ..ONE
    },
];
