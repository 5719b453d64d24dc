//! Receivers that pause, sleep, hang or are slow: none of this is a publisher's fault, or its concern.

use super::super::model::{
    APP, Attendance, CALM, Cohort, DEVICE, During, Manners, ReadPace, Readers, Rule, Speaks, ZooScenario,
};
use super::{CAREFUL, CHANCE, GATEWAY};

const ONE: ZooScenario = ZooScenario { rule: Rule::Scarce, is_known: false, ..CALM };
/// A reader of everything that comes with the trouble, and reads nothing.
const IDLE: Readers = Readers { name: "idle", counts: false, pace: ReadPace::Dead, stay: Attendance::Trouble, ..APP };
const GROUP: Readers = Readers { name: "member", count: 2, is_group: true, ..APP };
const PUBLISHER: Cohort = Cohort { name: "publisher", topics: 1, per_s: 200.0, ..GATEWAY };
const GATEWAY_Q0: Cohort = Cohort { qos: 0, speaks: Speaks::V311, ..GATEWAY };

const fn pausing(secs: f64, times: u32) -> Readers {
    Readers { pace: ReadPace::Pauses { secs, times }, ..APP }
}

pub(super) const ALL: &[ZooScenario] = &[
    ZooScenario {
        name: "pause-1s-q0",
        about: "a gateway of 500/s at QoS 0; its subscriber pauses once for 1 s",
        cohorts: &[GATEWAY_Q0, DEVICE],
        readers: &[pausing(1.0, 1)],
        ..ONE
    },
    ZooScenario {
        name: "pause-0.2s-q1",
        about: "a gateway of 500/s at QoS 1; its subscriber pauses once for 0.2 s",
        cohorts: &[GATEWAY, DEVICE],
        readers: &[pausing(0.2, 1)],
        ..ONE
    },
    ZooScenario {
        name: "pause-1s-q1-311",
        about: "the same with MQTT 3.1.1 and 1 s",
        cohorts: &[Cohort { speaks: Speaks::V311, ..GATEWAY }, DEVICE],
        readers: &[pausing(1.0, 1)],
        ..ONE
    },
    ZooScenario {
        name: "pauses-q1",
        about: "a subscriber that pauses 0.2 s again and again",
        cohorts: &[GATEWAY, DEVICE],
        readers: &[pausing(0.2, 4)],
        ..ONE
    },
    ZooScenario {
        name: "pause-obeying",
        about: "a gateway that obeys every hint; its subscriber pauses for 0.3 s",
        rule: Rule::Obedience,
        cohorts: &[Cohort { manners: Manners::Obeys, ..GATEWAY }, DEVICE],
        readers: &[pausing(0.3, 1)],
        ..ONE
    },
    ZooScenario {
        name: "idle-reader",
        about: "a gateway of 500/s, a healthy application, and somebody who subscribes to # and reads nothing",
        cohorts: &[GATEWAY, DEVICE],
        readers: &[APP, IDLE],
        ..ONE
    },
    ZooScenario {
        name: "idle-reader-q0",
        about: "the same at QoS 0",
        cohorts: &[GATEWAY_Q0, DEVICE],
        readers: &[APP, Readers { qos: 0, ..IDLE }],
        ..ONE
    },
    ZooScenario {
        name: "idle-reader-obeying",
        about: "the same with a gateway that obeys",
        rule: Rule::Obedience,
        cohorts: &[Cohort { manners: Manners::Obeys, ..GATEWAY }, DEVICE],
        readers: &[APP, IDLE],
        ..ONE
    },
    ZooScenario {
        name: "idle-readers-20",
        about: "20 readers of # that read nothing",
        cohorts: &[GATEWAY, DEVICE],
        readers: &[APP, Readers { count: 20, ..IDLE }],
        ..ONE
    },
    ZooScenario {
        name: "idle-reader-two-shards",
        about: "a gateway, an application and an idle reader on two threads",
        shards: 2,
        cohorts: &[GATEWAY, DEVICE, CAREFUL],
        readers: &[APP, IDLE],
        ..ONE
    },
    ZooScenario {
        name: "no-acks",
        about: "a reader of # that reads and never acknowledges, beside a healthy application",
        cohorts: &[GATEWAY, DEVICE],
        readers: &[APP, Readers { pace: ReadPace::NoAcks, ..IDLE }],
        ..ONE
    },
    ZooScenario {
        name: "slow-reader-beside",
        about: "a reader of everything that takes 50/s, beside a healthy application; devices of all kinds",
        cohorts: &[
            Cohort { per_s: 50.0, count: 5, qos: 1, speaks: Speaks::V5, ..CHANCE },
            Cohort { name: "double", per_s: 20.0, during: During::PerSecond(40.0), ..CAREFUL },
            Cohort { name: "triple", per_s: 20.0, during: During::PerSecond(60.0), speaks: Speaks::V311, ..CAREFUL },
            DEVICE,
        ],
        readers: &[APP, Readers { name: "slow", counts: false, pace: ReadPace::PerSecond(50.0), ..APP }],
        ..ONE
    },
    ZooScenario {
        name: "share-stuck",
        about: "a shared subscription of three of whom one never acknowledges; 200/s at QoS 1",
        cohorts: &[PUBLISHER, DEVICE],
        readers: &[GROUP, Readers { name: "stuck", count: 1, counts: false, pace: ReadPace::NoAcks, ..GROUP }],
        ..ONE
    },
    ZooScenario {
        name: "share-dead",
        about: "the same with a member that does not even read",
        cohorts: &[PUBLISHER, DEVICE],
        readers: &[GROUP, Readers { name: "dead", count: 1, counts: false, pace: ReadPace::Dead, ..GROUP }],
        ..ONE
    },
    ZooScenario {
        name: "share-slow",
        about: "the same with a member that takes 10/s",
        cohorts: &[PUBLISHER, DEVICE],
        readers: &[GROUP, Readers { name: "slow", count: 1, pace: ReadPace::PerSecond(10.0), ..GROUP }],
        ..ONE
    },
    ZooScenario {
        name: "tight-reader",
        about: "an application that takes 600/s is sent 520/s, beside an idle reader of everything",
        cohorts: &[Cohort { topics: 10, per_s: 420.0, ..GATEWAY }, DEVICE],
        readers: &[Readers { pace: ReadPace::PerSecond(600.0), ..APP }, IDLE],
        ..ONE
    },
];
