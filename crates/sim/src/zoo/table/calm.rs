//! Nothing is scarce: whatever the fleet does, it should not notice that there is a gate.

use super::super::model::{APP, CALM, Cohort, DEVICE, During, Readers, Rule, Speaks, Style, ZooScenario};
use super::{CAREFUL, CHANCE, GATEWAY};

const ONE: ZooScenario = ZooScenario { rule: Rule::Calm, ..CALM };
/// Of these nobody has been seen before.
const NEW: ZooScenario = ZooScenario { is_known: false, ..ONE };

pub(super) const ALL: &[ZooScenario] = &[
    ZooScenario { name: "calm-fleet", about: "20 devices of 5/s, one application", cohorts: &[DEVICE, CAREFUL], ..ONE },
    ZooScenario {
        name: "calm-bursts",
        about: "10 devices that send 200 messages at once, every 5 s",
        cohorts: &[DEVICE, Cohort { name: "bursts", count: 10, per_s: 40.0, style: Style::Batches(200), ..DEVICE }],
        ..ONE
    },
    ZooScenario {
        name: "calm-poisson",
        about: "20 devices that send 50/s by chance",
        cohorts: &[Cohort { per_s: 50.0, speaks: Speaks::V5, qos: 1, ..CHANCE }],
        ..ONE
    },
    ZooScenario {
        name: "calm-doubling",
        about: "20 devices go from 20 to 40/s, QoS 1, MQTT 5",
        cohorts: &[Cohort { per_s: 20.0, during: During::PerSecond(40.0), speaks: Speaks::V5, qos: 1, ..DEVICE }],
        ..ONE
    },
    ZooScenario {
        name: "calm-tripling-311",
        about: "20 devices go from 20 to 60/s, QoS 1, MQTT 3.1.1",
        cohorts: &[Cohort { per_s: 20.0, during: During::PerSecond(60.0), qos: 1, ..DEVICE }],
        ..ONE
    },
    ZooScenario {
        name: "calm-ramp",
        about: "20 devices grow from 5 to 100/s",
        cohorts: &[Cohort { during: During::RampTo(100.0), ..DEVICE }],
        ..ONE
    },
    ZooScenario {
        name: "calm-gateway",
        about: "a gateway of 500/s and 1 000 topics from its first message, QoS 1, MQTT 5",
        cohorts: &[GATEWAY, DEVICE],
        ..NEW
    },
    ZooScenario {
        name: "calm-gateway-q0-311",
        about: "the same at QoS 0, MQTT 3.1.1",
        cohorts: &[Cohort { speaks: Speaks::V311, qos: 0, ..GATEWAY }, DEVICE],
        ..NEW
    },
    ZooScenario {
        name: "calm-gateway-q2",
        about: "the same at QoS 2, one topic",
        cohorts: &[Cohort { qos: 2, topics: 1, per_s: 200.0, ..GATEWAY }, DEVICE],
        ..NEW
    },
    ZooScenario {
        name: "outage-100",
        about: "10 devices come back with 100 messages each, QoS 1, MQTT 5",
        cohorts: &[Cohort { name: "back", count: 10, during: During::Backlog(100), ..CAREFUL }, DEVICE],
        ..ONE
    },
    ZooScenario {
        name: "outage-1000-311",
        about: "one device comes back with 1 000 messages, QoS 1, MQTT 3.1.1",
        cohorts: &[
            Cohort { name: "back", count: 1, speaks: Speaks::V311, during: During::Backlog(1000), ..CAREFUL },
            DEVICE,
        ],
        ..ONE
    },
    ZooScenario {
        name: "outage-1000-q0",
        about: "one device comes back with 1 000 messages, QoS 0",
        cohorts: &[Cohort { name: "back", count: 1, during: During::Backlog(1000), ..DEVICE }, DEVICE],
        ..ONE
    },
    ZooScenario {
        name: "outage-fleet",
        about: "100 devices come back with 50 messages each, at the same moment",
        cohorts: &[Cohort { name: "back", count: 100, per_s: 1.0, during: During::Backlog(50), ..CAREFUL }, DEVICE],
        ..ONE
    },
    ZooScenario {
        name: "calm-mixed",
        about: "QoS 0, 1 and 2, MQTT 3.1.1 and 5, 1 to 50/s",
        cohorts: &[
            Cohort { name: "q0", per_s: 50.0, ..DEVICE },
            Cohort { name: "q1", per_s: 1.0, qos: 1, ..DEVICE },
            Cohort { name: "q2", per_s: 10.0, qos: 2, speaks: Speaks::V5, ..DEVICE },
            Cohort { name: "large", count: 2, per_s: 5.0, qos: 1, bytes: 20_000, speaks: Speaks::V5, ..DEVICE },
        ],
        readers: &[Readers { qos: 2, ..APP }],
        ..ONE
    },
    ZooScenario {
        name: "calm-fan-out",
        about: "one publisher of 50/s, 100 subscribers",
        cohorts: &[Cohort { name: "news", count: 1, per_s: 50.0, ..DEVICE }],
        readers: &[Readers { count: 100, qos: 0, ..APP }],
        ..ONE
    },
    ZooScenario {
        name: "calm-two-shards",
        about: "the fleet and a gateway on two threads",
        shards: 2,
        cohorts: &[GATEWAY, DEVICE, CAREFUL],
        ..ONE
    },
];
