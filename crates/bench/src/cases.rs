//! The table of cases: what is measured, in which group, and what it should come to.

use tidegate_wire_mqtt::QoS;

use super::admin::AdminCase;
use super::beats::Beat;
use super::durable::{self, DurableCase};
use super::gate::{self, GateCase};
use super::goals::{self, Goal, at_least, at_most, beside, goal};
use super::report::BrokerRole;
use super::space::SpaceCase;

/// A row of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct BenchCase {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: CaseKind,
    pub(super) goals: &'static [Goal],
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum CaseKind {
    /// Messages through a broker.
    Traffic(FlowSpec),
    /// The same through our broker and through a process that only copies bytes: what the system itself costs.
    Relay(FlowSpec),
    /// The same through our broker with one shard and with two.
    Shards(FlowSpec),
    /// The same beside so many subscriptions that do not match, one after the other.
    Subscriptions { flow: FlowSpec, counts: &'static [usize] },
    /// Connections that say nothing; fewer if the limit of open files is lower.
    Idle { connections: usize },
    /// So many clients that connect and disconnect over and over.
    Churn { clients: usize },
    /// So many clients that lose their connections and all come back at once, each with a password or none.
    Storm { clients: usize, users: UserCheck },
    /// A flood towards a slow subscriber, and the light traffic beside it.
    Overload {
        /// The traffic that floods the broker.
        flood: FlowSpec,
        /// The traffic whose latency is measured beside the flood.
        probes: FlowSpec,
    },
    /// What the gate is for, with it and without.
    Gate(GateCase),
    /// What is kept on disk, and what that costs.
    Durable(DurableCase),
    /// The smart space, in this process.
    Space(SpaceCase),
    /// What the admin page and the metrics cost the broker's clients.
    Admin(AdminCase),
}

/// Whether a broker asks who its clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserCheck {
    /// Anybody may come.
    Nobody,
    /// One user with a password that all clients have.
    One,
}

/// A kind of messages and who exchanges them.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSpec {
    pub(super) shape: Topology,
    pub(super) qos: QoS,
    pub(super) payload_bytes: usize,
    pub(super) pace: PublishPace,
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// Many publishers, one subscriber with a wildcard.
    FanIn(u32),
    /// One publisher, many subscribers of its topic.
    FanOut(u32),
    /// Publishers with one subscriber each.
    Pairs(u32),
}

/// When a publisher sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PublishPace {
    /// As soon as fewer than `WINDOW` of its messages are on their way: delivery is measured, not buffers.
    Window,
    /// As soon as the message before is acknowledged.
    OneByOne,
    /// So many a second over all publishers, whatever comes back (an open loop).
    Rate(f64),
    /// Whatever the socket takes.
    Flood,
    /// Each publisher by a rhythm of its own, whatever comes back (an open loop).
    Each(Beat),
}

/// Undelivered messages allowed per publisher that has a window.
pub(super) const WINDOW: u64 = 100;

/// Unacknowledged messages allowed per such publisher at QoS 1 and 2; mosquitto's default for its own.
pub(super) const INFLIGHT: u64 = 20;

impl FlowSpec {
    pub(super) const fn windowed(shape: Topology, qos: QoS, payload_bytes: usize) -> Self {
        Self { shape, qos, payload_bytes, pace: PublishPace::Window }
    }

    const fn paced(qos: QoS) -> Self {
        Self { shape: Topology::Pairs(50), qos, payload_bytes: 64, pace: PublishPace::Rate(5_000.0) }
    }

    /// Deliveries that one message should cause.
    pub(super) fn fan(&self) -> u64 {
        match self.shape {
            Topology::FanIn(_) | Topology::Pairs(_) => 1,
            Topology::FanOut(subscribers) => subscribers.into(),
        }
    }

    /// The number of publishers.
    pub(super) fn publishers(&self) -> u32 {
        match self.shape {
            Topology::FanIn(count) | Topology::Pairs(count) => count,
            Topology::FanOut(_) => 1,
        }
    }

    /// The number of subscribers.
    pub(super) fn subscribers(&self) -> u32 {
        match self.shape {
            Topology::FanIn(_) => 1,
            Topology::FanOut(count) | Topology::Pairs(count) => count,
        }
    }
}

const Q0: QoS = QoS::AtMostOnce;
const Q1: QoS = QoS::AtLeastOnce;
const Q2: QoS = QoS::ExactlyOnce;
const PAIRS: Topology = Topology::Pairs(50);
/// Those whom our figures are compared with.
const MOSQUITTO: &[BrokerRole] = &[BrokerRole::Mosquitto];
const PEERS: &[BrokerRole] = &[BrokerRole::Mosquitto, BrokerRole::Peer];

const FIRST: Goal = beside(PEERS, goal("delivers more per second than every peer", 0.0, goals::delivers_most));

/// The goals of traffic at a pace.
const PACED: &[Goal] = &[
    beside(MOSQUITTO, goal("p50 and p99 not above mosquitto's", 0.0, goals::latency)),
    beside(MOSQUITTO, goal("CPU per delivery not above mosquitto's", 1.0, goals::cost_ratio)),
];

/// mosquitto needs at least so many times our CPU time per delivery.
const fn cheaper(least: f64) -> Goal {
    beside(MOSQUITTO, goal("CPU per delivery ≥ {}× less than mosquitto's", least, goals::cost_ratio))
}

const SMALL: Goal = goal("resident ≤ {} KiB per connection", 2.0, goals::memory_each);
const ALL_BACK: Goal = goal("all back, no error other than \"come back later\"", 0.0, goals::all_back);

const fn traffic(name: &'static str, flow: FlowSpec, goals: &'static [Goal]) -> BenchCase {
    BenchCase { group: "traffic", name, kind: CaseKind::Traffic(flow), goals }
}

const fn alone(group: &'static str, name: &'static str, kind: CaseKind, goals: &'static [Goal]) -> BenchCase {
    BenchCase { group, name, kind, goals }
}

/// Every case, in the order of the report.
pub(super) const CASES: &[BenchCase] = &[
    traffic("fan-in q0", FlowSpec::windowed(Topology::FanIn(50), Q0, 64), &[cheaper(8.0), FIRST]),
    traffic("fan-out q0 1→50", FlowSpec::windowed(Topology::FanOut(50), Q0, 64), &[cheaper(5.0), FIRST]),
    traffic("pairs q0", FlowSpec::windowed(PAIRS, Q0, 64), &[cheaper(14.0), FIRST]),
    traffic("pairs q1", FlowSpec::windowed(PAIRS, Q1, 64), &[cheaper(11.0), FIRST]),
    traffic("pairs q2", FlowSpec::windowed(PAIRS, Q2, 64), &[cheaper(12.0), FIRST]),
    traffic("pairs q0 1 KiB", FlowSpec::windowed(PAIRS, Q0, 1024), &[cheaper(9.0), FIRST]),
    alone("latency", "paced 5 000/s q0", CaseKind::Traffic(FlowSpec::paced(Q0)), PACED),
    alone("latency", "paced 5 000/s q1", CaseKind::Traffic(FlowSpec::paced(Q1)), PACED),
    alone("relay", "relay q0", CaseKind::Relay(FlowSpec::windowed(PAIRS, Q0, 64)), &[]),
    alone("relay", "relay q0 1 KiB", CaseKind::Relay(FlowSpec::windowed(PAIRS, Q0, 1024)), &[]),
    alone("relay", "relay paced q0", CaseKind::Relay(FlowSpec::paced(Q0)), &[]),
    alone(
        "shards",
        "shards q1",
        CaseKind::Shards(FlowSpec::windowed(PAIRS, Q1, 64)),
        &[goal("two shards deliver ≥ {}× what one does, on a quiet machine", 1.6, goals::shard_gain)],
    ),
    alone(
        "subscriptions",
        "subscriptions",
        CaseKind::Subscriptions { flow: FlowSpec::windowed(PAIRS, Q0, 64), counts: &[1, 1_000, 100_000] },
        &[goal("CPU per delivery at most {}× from the least to the most subscriptions", 1.2, goals::flat)],
    ),
    alone("idle", "idle 5 000", CaseKind::Idle { connections: 5_000 }, &[SMALL]),
    alone("idle", "idle 10 000", CaseKind::Idle { connections: 10_000 }, &[SMALL]),
    alone(
        "churn",
        "churn 64",
        CaseKind::Churn { clients: 64 },
        &[beside(
            MOSQUITTO,
            goal("connects per second and CPU per connect ahead of mosquitto", 0.0, goals::connects_most),
        )],
    ),
    alone("storm", "storm 10 000", CaseKind::Storm { clients: 10_000, users: UserCheck::Nobody }, &[ALL_BACK]),
    alone("storm", "storm users", CaseKind::Storm { clients: 10_000, users: UserCheck::One }, &[ALL_BACK]),
    alone(
        "overload-probes",
        "overload-probes",
        CaseKind::Overload {
            flood: FlowSpec { shape: Topology::FanIn(50), qos: Q0, payload_bytes: 256, pace: PublishPace::Flood },
            probes: FlowSpec { shape: Topology::Pairs(5), qos: Q1, payload_bytes: 64, pace: PublishPace::Rate(250.0) },
        },
        &[
            goal("probes p50 < {} ms", 5.0, goals::probes_below_ms),
            goal("resident memory < {} MiB throughout", 64.0, goals::memory_below_mib),
            goal("every drop is counted", 0.0, goals::drops_counted),
        ],
    ),
    gate(
        "overload-flooder",
        GateCase::Flooder,
        &[goal("others' p99 ≤ {}× beside a flooder, with backoff.enforce=always", 1.2, gate::goals::flooder)],
    ),
    gate(
        "overload-classes",
        GateCase::Classes,
        &[
            goal("highest class p99 at 5× ≤ {}× unloaded", 2.0, gate::goals::highest),
            goal("lowest class ≥ {%} % at 5×", 0.05, gate::goals::lowest_share),
            goal("goodput ≥ {%} % of the peak from 1× to 10×", 0.95, gate::goals::goodput),
            goal("rare publishers lose nothing", 0.0, gate::goals::rare_lose_nothing),
        ],
    ),
    gate(
        "overload-priority",
        GateCase::Priority,
        &[goal("a rare publisher's maximum ≤ its minimum without priorities", 0.0, gate::goals::max_below_min)],
    ),
    gate(
        "overload-cost",
        GateCase::Cost { publishers: 10_000 },
        &[
            goal("CPU per message ≤ {}× that without the gate", 1.03, gate::goals::cpu),
            goal("≤ {} B per publisher more than without the gate", 64.0, gate::goals::bytes),
        ],
    ),
    gate(
        "overload-fleet",
        GateCase::Fleet,
        &[goal("≤ {%} % of a good fleet's messages slowed, by default and always", 0.001, gate::goals::delayed)],
    ),
    durable("durable 1", DurableCase::Rate { publishers: 1 }, &[HALF_THE_DISK]),
    durable("durable 16", DurableCase::Rate { publishers: 16 }, &[HALF_THE_DISK]),
    durable(
        "durable 256",
        DurableCase::Rate { publishers: 256 },
        &[
            HALF_THE_DISK,
            goal("≥ {n} messages/s where the disk allows it", 50_000.0, durable::goals::per_second),
            THRICE,
        ],
    ),
    BenchCase {
        group: "durable",
        name: "clean sessions",
        kind: CaseKind::Gate(GateCase::Clean { pairs: 50 }),
        goals: &[goal(
            "CPU per message of sessions that do not last ≤ {}× that without a store",
            1.03,
            gate::goals::cpu,
        )],
    },
    durable(
        "restart",
        DurableCase::Restart { messages: 100_000 },
        &[goal("serves again after < {} s per million messages, none missing", 10.0, durable::goals::restart)],
    ),
    space("space ssap 1", SpaceCase::Insert { connections: 1, is_durable: false }, &[INSERTS]),
    space("space ssap 16", SpaceCase::Insert { connections: 16, is_durable: false }, &[INSERTS]),
    space("space ssap 16 durable", SpaceCase::Insert { connections: 16, is_durable: true }, &[]),
    space("space update", SpaceCase::Update { is_durable: false }, &[]),
    space("space update durable", SpaceCase::Update { is_durable: true }, &[]),
    space("space notify 1", SpaceCase::Notify { subscribers: 1, sockets: 1 }, &[at_most("p50 ms", 0.3)]),
    space(
        "space notify 100",
        SpaceCase::Notify { subscribers: 100, sockets: 100 },
        &[at_most("p50 ms to the last", 2.0)],
    ),
    space("space notify 10 000", SpaceCase::Notify { subscribers: 10_000, sockets: 100 }, &[]),
    space("space beside", SpaceCase::Beside, &[at_most("times as much", 1.2)]),
    space("space writers", SpaceCase::Writers, &[at_most("lost", 0.0), at_most("gaps", 0.0)]),
    space("space same", SpaceCase::Same, &[at_least("answered", 10_000.0), at_most("evaluations", 10.0)]),
    space("space chatty", SpaceCase::Chatty, &[at_most("times as long", 2.0), at_most("services refused", 0.0)]),
    space(
        "space apart",
        SpaceCase::Apart,
        &[at_most("ms p99 beside a load", 20.0), at_most("ms p99 beside a long WHERE", 20.0)],
    ),
    space("space delegate", SpaceCase::Delegate { is_overload: false }, &[]),
    space("space delegate overload", SpaceCase::Delegate { is_overload: true }, &[at_most("times as long", 1.0)]),
    space("space combine", SpaceCase::Combine, &[at_most("% of its time for names", 5.0)]),
    BenchCase {
        group: "admin",
        name: "scrape 10 000",
        kind: CaseKind::Admin(AdminCase::Scrape { clients: 10_000 }),
        goals: &[at_most("p50 ms", 5.0)],
    },
    BenchCase {
        group: "admin",
        name: "dashboards 100",
        kind: CaseKind::Admin(AdminCase::Dashboards { pages: 100 }),
        goals: &[at_most("times the CPU for a message", 1.02)],
    },
];

const HALF_THE_DISK: Goal = goal("≥ {%} % of what the disk allows", 0.5, durable::goals::disk_share);
/// Only where a sync is shared by many: one alone costs the kernel more than any message.
const THRICE: Goal = goal("CPU per message ≤ {}× that without a store", 3.0, durable::goals::cpu_times);

const fn durable(name: &'static str, promise: DurableCase, goals: &'static [Goal]) -> BenchCase {
    BenchCase { group: "durable", name, kind: CaseKind::Durable(promise), goals }
}

/// Ten times what RedSIB was published to confirm.
const INSERTS: Goal = at_least("confirmed inserts/s", 33_000.0);

const fn space(name: &'static str, scenario: SpaceCase, goals: &'static [Goal]) -> BenchCase {
    BenchCase { group: "space", name, kind: CaseKind::Space(scenario), goals }
}

/// A case of the gate is a group of its own.
const fn gate(name: &'static str, scenario: GateCase, goals: &'static [Goal]) -> BenchCase {
    BenchCase { group: name, name, kind: CaseKind::Gate(scenario), goals }
}

/// All groups by one word, for those who like to say what they want.
pub(super) const EVERYTHING: &str = "peers";

/// Everything about overload by one word.
pub(super) const OVERLOAD: &str = "overload";
/// The storm by the name that the other cases of overload have.
pub(super) const OVERLOAD_STORM: &str = "overload-storm";

/// Whether a group's cases belong to what was named.
fn is_meant(group: &str, named: &str) -> bool {
    let is_storm = group == "storm";
    match named {
        EVERYTHING => true,
        OVERLOAD => is_storm || group.starts_with("overload-"),
        OVERLOAD_STORM => is_storm,
        _ => named == group,
    }
}

/// The names that choose cases: those of many groups, then each group in the order of the report.
pub(super) fn groups() -> Vec<&'static str> {
    let mut names = vec![EVERYTHING, OVERLOAD, OVERLOAD_STORM];
    names.extend(CASES.iter().map(|case| case.group));
    names.dedup();
    names
}

/// The cases of these groups (of all, if none is named) whose name contains one of these, if there are any.
pub(super) fn chosen(groups: &[String], only: &[String]) -> Vec<BenchCase> {
    let is_named = |case: &&BenchCase| groups.is_empty() || groups.iter().any(|named| is_meant(case.group, named));
    let is_wanted = |case: &&BenchCase| only.is_empty() || only.iter().any(|part| case.name.contains(part));
    CASES.iter().filter(is_named).filter(is_wanted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &[&str], only: Option<&str>) -> Vec<&'static str> {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        let only: Vec<String> = only.into_iter().map(str::to_owned).collect();
        chosen(&groups, &only).iter().map(|case| case.name).collect()
    }

    #[test]
    fn cases_are_chosen_by_group_and_by_a_part_of_their_name() {
        assert_eq!(names(&[], None).len(), CASES.len());
        assert_eq!(names(&["peers"], None).len(), CASES.len());
        assert_eq!(names(&[], Some("pairs")), ["pairs q0", "pairs q1", "pairs q2", "pairs q0 1 KiB"]);
        assert_eq!(names(&["storm", "idle"], None), ["idle 5 000", "idle 10 000", "storm 10 000", "storm users"]);
        assert_eq!(names(&["idle"], Some("10 000")), ["idle 10 000"]);
        assert!(names(&["idle"], Some("storm")).is_empty());
        assert_eq!(names(&["overload-storm"], None), names(&["storm"], None));
        assert_eq!(names(&["overload-cost"], None), ["overload-cost"]);
        assert_eq!(names(&["overload"], None).len(), 8);
    }

    #[test]
    fn each_group_is_named_once_and_has_cases() {
        let groups = groups();
        assert!(
            ["idle", "churn", "storm", "overload-probes", "subscriptions", "shards", "relay", "latency", "traffic"]
                .iter()
                .all(|name| groups.contains(name))
        );
        assert!(groups.iter().all(|group| !names(&[group], None).is_empty()));
        assert_eq!(groups.len(), 20);
    }
}
