//! Flooders of every kind before a receiver that takes 500 messages a second.

use super::super::model::{
    CALM, Churn, Cohort, DEVICE, During, FLOODER, Home, Manners, Readers, Rule, Speaks, ZooScenario,
};
use super::{CAREFUL, WORKER};

const ONE: ZooScenario = ZooScenario { rule: Rule::NotWorse, readers: &[WORKER], ..CALM };
const MANY: ZooScenario = ZooScenario { rule: Rule::OneOrMany, ..ONE };
const OLD: Cohort = Cohort { speaks: Speaks::V311, ..FLOODER };

pub(super) const ALL: &[ZooScenario] = &[
    ZooScenario {
        name: "flood-q0",
        about: "one flooder at QoS 0 as fast as its socket takes it",
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 0, during: During::Full, ..OLD }],
        ..ONE
    },
    ZooScenario {
        name: "flood-q0-2000",
        about: "one flooder at QoS 0, 2 000/s",
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 0, ..OLD }],
        ..ONE
    },
    ZooScenario {
        name: "flood-q0-v5",
        about: "the same in MQTT 5, as fast as its socket takes it",
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 0, during: During::Full, ..FLOODER }],
        ..ONE
    },
    ZooScenario {
        name: "flood-q1",
        about: "one flooder at QoS 1, MQTT 5, as fast as it is answered",
        cohorts: &[DEVICE, CAREFUL, Cohort { during: During::Full, ..FLOODER }],
        ..ONE
    },
    ZooScenario {
        name: "flood-q1-2000",
        about: "one flooder at QoS 1, MQTT 5, 2 000/s",
        cohorts: &[DEVICE, CAREFUL, FLOODER],
        ..ONE
    },
    ZooScenario {
        name: "flood-q1-311",
        about: "one flooder at QoS 1, MQTT 3.1.1, as fast as it is answered",
        cohorts: &[DEVICE, CAREFUL, Cohort { during: During::Full, ..OLD }],
        ..ONE
    },
    ZooScenario {
        name: "flood-q2",
        about: "one flooder at QoS 2, MQTT 5, as fast as it is answered",
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 2, during: During::Full, ..FLOODER }],
        ..ONE
    },
    ZooScenario {
        name: "flood-q2-311",
        about: "one flooder at QoS 2, MQTT 3.1.1, 2 000/s",
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 2, ..OLD }],
        ..ONE
    },
    ZooScenario {
        name: "flood-obeying",
        about: "one flooder of 2 000/s at QoS 1 that obeys the hints",
        rule: Rule::Obedience,
        cohorts: &[DEVICE, CAREFUL, Cohort { manners: Manners::Obeys, ..FLOODER }],
        ..ONE
    },
    ZooScenario {
        name: "flood-obeying-311",
        about: "one flooder of 2 000/s at QoS 0, MQTT 3.1.1, that obeys the notices",
        rule: Rule::Obedience,
        cohorts: &[DEVICE, CAREFUL, Cohort { qos: 0, manners: Manners::Obeys, ..OLD }],
        ..ONE
    },
    ZooScenario {
        name: "flood-large",
        about: "one flooder with messages of 20 000 bytes, 500/s",
        cohorts: &[DEVICE, CAREFUL, Cohort { bytes: 20_000, during: During::PerSecond(500.0), ..FLOODER }],
        ..ONE
    },
    ZooScenario {
        name: "flood-new",
        about: "a flooder that nobody has seen before, in a fleet that nobody has seen before",
        is_known: false,
        rule: Rule::NotLockedOut,
        cohorts: &[DEVICE, CAREFUL, FLOODER],
        ..ONE
    },
    ZooScenario {
        name: "firmware-7-of-27",
        about: "7 of 27 devices go from 5 to 400/s, QoS 1, MQTT 5",
        cohorts: &[DEVICE, CAREFUL, Cohort { name: "faulty", count: 7, during: During::PerSecond(400.0), ..FLOODER }],
        ..MANY
    },
    ZooScenario {
        name: "firmware-4-of-24",
        about: "4 of 24 devices go from 5 to 400/s",
        cohorts: &[DEVICE, CAREFUL, Cohort { name: "faulty", count: 4, during: During::PerSecond(400.0), ..FLOODER }],
        ..MANY
    },
    ZooScenario {
        name: "firmware-q0",
        about: "7 of 27 devices go from 5 to 400/s, QoS 0, MQTT 3.1.1",
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort { name: "faulty", count: 7, qos: 0, during: During::PerSecond(400.0), ..OLD },
        ],
        ..MANY
    },
    ZooScenario {
        name: "small-flooders-100",
        about: "100 devices go from 1 to 30/s, each from a network of its own",
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort { name: "faulty", count: 100, per_s: 1.0, during: During::PerSecond(30.0), ..FLOODER },
        ],
        ..MANY
    },
    ZooScenario {
        name: "rotating-ids",
        about: "3 connections that take another name after every 500 messages, QoS 0, from one network",
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort {
                name: "rotating",
                count: 3,
                qos: 0,
                home: Home::Network(9),
                during: During::Full,
                churn: Churn::NewName(500),
                ..OLD
            },
        ],
        ..MANY
    },
    ZooScenario {
        name: "rotating-ids-beside",
        about: "the same from the address of the innocent, who are known",
        cohorts: &[
            Cohort { home: Home::Network(1), ..DEVICE },
            Cohort { home: Home::Network(1), ..CAREFUL },
            Cohort {
                name: "rotating",
                count: 3,
                qos: 0,
                home: Home::Network(1),
                during: During::PerSecond(1000.0),
                churn: Churn::NewName(500),
                ..OLD
            },
        ],
        ..MANY
    },
    ZooScenario {
        name: "trained-flooders",
        about: "30 devices that have long sent 20/s send 80/s, from one network",
        cohorts: &[
            DEVICE,
            CAREFUL,
            Cohort {
                name: "trained",
                count: 30,
                per_s: 10.0,
                home: Home::Network(7),
                during: During::PerSecond(80.0),
                ..FLOODER
            },
        ],
        ..MANY
    },
    ZooScenario {
        name: "flood-two-shards",
        about: "3 flooders at QoS 0 on two threads",
        shards: 2,
        cohorts: &[DEVICE, CAREFUL, Cohort { count: 3, qos: 0, ..OLD }],
        ..MANY
    },
    ZooScenario {
        name: "flood-two-shards-q2",
        about: "3 flooders at QoS 2 on two threads",
        shards: 2,
        cohorts: &[DEVICE, CAREFUL, Cohort { count: 3, qos: 2, ..FLOODER }],
        ..MANY
    },
    ZooScenario {
        name: "flood-window-2",
        about: "one flooder of 2 000/s before a receiver that takes two messages at a time",
        cohorts: &[DEVICE, CAREFUL, FLOODER],
        readers: &[Readers { window: Some(2), ..WORKER }],
        ..ONE
    },
];
