//! The table of cases: what is measured, in which group, and what it should come to.

use tidegate_wire_mqtt::QoS;

use super::goals::Goal;

/// A row of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) goals: &'static [Goal],
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Messages through a broker.
    Traffic(Flow),
    /// The same through our broker and through a process that only copies bytes: what the system itself costs.
    Relay(Flow),
    /// The same through our broker with one shard and with two.
    Shards(Flow),
    /// The same beside so many subscriptions that do not match, one after the other.
    Subscriptions { flow: Flow, counts: &'static [usize] },
    /// Connections that say nothing; fewer if the limit of open files is lower.
    Idle { connections: usize },
    /// So many clients that connect and disconnect over and over.
    Churn { clients: usize },
    /// So many clients that lose their connections and all come back at once.
    Storm { clients: usize },
    /// A flood towards a slow subscriber, and the light traffic beside it.
    Overload {
        /// What floods.
        flood: Flow,
        /// What suffers.
        probes: Flow,
    },
}

/// A kind of messages and who exchanges them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) shape: Shape,
    pub(super) qos: QoS,
    pub(super) payload_bytes: usize,
    pub(super) pace: Pace,
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Many publishers, one subscriber with a wildcard.
    FanIn(u32),
    /// One publisher, many subscribers of its topic.
    FanOut(u32),
    /// Publishers with one subscriber each.
    Pairs(u32),
}

/// When a publisher sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// As soon as fewer than `WINDOW` of its messages are on their way: delivery is measured, not buffers.
    Window,
    /// So many a second over all publishers, whatever comes back (an open loop).
    Rate(f64),
    /// Whatever the socket takes.
    Flood,
}

/// Undelivered messages allowed per publisher that has a window.
pub(super) const WINDOW: u64 = 100;

/// Unacknowledged messages allowed per such publisher at QoS 1 and 2; mosquitto's default for its own.
pub(super) const INFLIGHT: u64 = 20;

impl Flow {
    const fn windowed(shape: Shape, qos: QoS, payload_bytes: usize) -> Self {
        Self { shape, qos, payload_bytes, pace: Pace::Window }
    }

    const fn paced(qos: QoS) -> Self {
        Self { shape: Shape::Pairs(50), qos, payload_bytes: 64, pace: Pace::Rate(5_000.0) }
    }

    /// Deliveries that one message should cause.
    pub(super) fn fan(&self) -> u64 {
        match self.shape {
            Shape::FanIn(_) | Shape::Pairs(_) => 1,
            Shape::FanOut(subscribers) => subscribers.into(),
        }
    }

    /// How many publish.
    pub(super) fn publishers(&self) -> u32 {
        match self.shape {
            Shape::FanIn(count) | Shape::Pairs(count) => count,
            Shape::FanOut(_) => 1,
        }
    }

    /// How many subscribe.
    pub(super) fn subscribers(&self) -> u32 {
        match self.shape {
            Shape::FanIn(_) => 1,
            Shape::FanOut(count) | Shape::Pairs(count) => count,
        }
    }
}

const Q0: QoS = QoS::AtMostOnce;
const Q1: QoS = QoS::AtLeastOnce;
const Q2: QoS = QoS::ExactlyOnce;
const PAIRS: Shape = Shape::Pairs(50);
const FIRST: Goal = Goal::DeliversMost;

/// The goals of traffic at a pace.
const PACED: &[Goal] = &[Goal::LatencyNotAbove, Goal::CostRatio(1.0)];

const fn traffic(name: &'static str, flow: Flow, goals: &'static [Goal]) -> Case {
    Case { group: "traffic", name, kind: Kind::Traffic(flow), goals }
}

const fn alone(group: &'static str, name: &'static str, kind: Kind, goals: &'static [Goal]) -> Case {
    Case { group, name, kind, goals }
}

/// Every case, in the order of the report.
pub(super) const CASES: &[Case] = &[
    traffic("fan-in q0", Flow::windowed(Shape::FanIn(50), Q0, 64), &[Goal::CostRatio(8.0), FIRST]),
    traffic("fan-out q0 1→50", Flow::windowed(Shape::FanOut(50), Q0, 64), &[Goal::CostRatio(5.0), FIRST]),
    traffic("pairs q0", Flow::windowed(PAIRS, Q0, 64), &[Goal::CostRatio(14.0), FIRST]),
    traffic("pairs q1", Flow::windowed(PAIRS, Q1, 64), &[Goal::CostRatio(11.0), FIRST]),
    traffic("pairs q2", Flow::windowed(PAIRS, Q2, 64), &[Goal::CostRatio(12.0), FIRST]),
    traffic("pairs q0 1 KiB", Flow::windowed(PAIRS, Q0, 1024), &[Goal::CostRatio(9.0), FIRST]),
    alone("latency", "paced 5 000/s q0", Kind::Traffic(Flow::paced(Q0)), PACED),
    alone("latency", "paced 5 000/s q1", Kind::Traffic(Flow::paced(Q1)), PACED),
    alone("relay", "relay q0", Kind::Relay(Flow::windowed(PAIRS, Q0, 64)), &[]),
    alone("relay", "relay q0 1 KiB", Kind::Relay(Flow::windowed(PAIRS, Q0, 1024)), &[]),
    alone("relay", "relay paced q0", Kind::Relay(Flow::paced(Q0)), &[]),
    alone("shards", "shards q1", Kind::Shards(Flow::windowed(PAIRS, Q1, 64)), &[Goal::ShardGain(1.6)]),
    alone(
        "subscriptions",
        "subscriptions",
        Kind::Subscriptions { flow: Flow::windowed(PAIRS, Q0, 64), counts: &[1, 1_000, 100_000] },
        &[Goal::Flat(1.2)],
    ),
    alone("idle", "idle 5 000", Kind::Idle { connections: 5_000 }, &[Goal::KibPerConnection(2.0)]),
    alone("idle", "idle 10 000", Kind::Idle { connections: 10_000 }, &[Goal::KibPerConnection(2.0)]),
    alone("churn", "churn 64", Kind::Churn { clients: 64 }, &[Goal::ConnectsMost]),
    alone("storm", "storm 10 000", Kind::Storm { clients: 10_000 }, &[Goal::AllBack]),
    alone(
        "overload-probes",
        "overload-probes",
        Kind::Overload {
            flood: Flow { shape: Shape::FanIn(50), qos: Q0, payload_bytes: 256, pace: Pace::Flood },
            probes: Flow { shape: Shape::Pairs(5), qos: Q1, payload_bytes: 64, pace: Pace::Rate(250.0) },
        },
        &[Goal::ProbesBelowMs(5.0), Goal::MemoryBelowMib(64.0), Goal::DropsCounted],
    ),
];

/// All groups by one word, for those who like to say what they want.
pub(super) const EVERYTHING: &str = "peers";

/// The names that choose cases: all, then each group in the order of the report.
pub(super) fn groups() -> Vec<&'static str> {
    let mut names = vec![EVERYTHING];
    names.extend(CASES.iter().map(|case| case.group));
    names.dedup();
    names
}

/// The cases of these groups (of all, if none is named) whose name contains this.
pub(super) fn chosen(groups: &[String], only: Option<&str>) -> Vec<Case> {
    let all = groups.is_empty() || groups.iter().any(|group| group == EVERYTHING);
    let is_named = |case: &&Case| all || groups.iter().any(|group| group == case.group);
    let is_wanted = |case: &&Case| only.is_none_or(|part| case.name.contains(part));
    CASES.iter().filter(is_named).filter(is_wanted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &[&str], only: Option<&str>) -> Vec<&'static str> {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        chosen(&groups, only).iter().map(|case| case.name).collect()
    }

    #[test]
    fn cases_are_chosen_by_group_and_by_a_part_of_their_name() {
        assert_eq!(names(&[], None).len(), CASES.len());
        assert_eq!(names(&["peers"], None).len(), CASES.len());
        assert_eq!(names(&[], Some("pairs")), ["pairs q0", "pairs q1", "pairs q2", "pairs q0 1 KiB"]);
        assert_eq!(names(&["storm", "idle"], None), ["idle 5 000", "idle 10 000", "storm 10 000"]);
        assert_eq!(names(&["idle"], Some("10 000")), ["idle 10 000"]);
        assert!(names(&["idle"], Some("storm")).is_empty());
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
        assert_eq!(groups.len(), 10);
    }
}
