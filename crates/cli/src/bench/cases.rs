//! The table of cases, and who takes part in each.

use tidegate_wire_mqtt::QoS;

/// A row of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Messages through a broker.
    Traffic(Flow),
    /// The same through a process that only copies bytes: what the system itself costs.
    Relay(Flow),
    /// Connections that say nothing.
    Idle {
        /// How many, if the limit of open files allows.
        connections: usize,
    },
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

/// Every case, in the order of the report.
pub(super) const CASES: &[Case] = &[
    Case { name: "fan-in q0", kind: Kind::Traffic(Flow::windowed(Shape::FanIn(50), Q0, 64)) },
    Case { name: "fan-out q0 1→50", kind: Kind::Traffic(Flow::windowed(Shape::FanOut(50), Q0, 64)) },
    Case { name: "pairs q0", kind: Kind::Traffic(Flow::windowed(PAIRS, Q0, 64)) },
    Case { name: "pairs q1", kind: Kind::Traffic(Flow::windowed(PAIRS, Q1, 64)) },
    Case { name: "pairs q2", kind: Kind::Traffic(Flow::windowed(PAIRS, Q2, 64)) },
    Case { name: "pairs q0 1 KiB", kind: Kind::Traffic(Flow::windowed(PAIRS, Q0, 1024)) },
    Case { name: "relay q0", kind: Kind::Relay(Flow::windowed(PAIRS, Q0, 64)) },
    Case { name: "paced 5 000/s q0", kind: Kind::Traffic(Flow::paced(Q0)) },
    Case { name: "paced 5 000/s q1", kind: Kind::Traffic(Flow::paced(Q1)) },
    Case { name: "idle 5 000", kind: Kind::Idle { connections: 5_000 } },
    Case {
        name: "overload",
        kind: Kind::Overload {
            flood: Flow { shape: Shape::FanIn(50), qos: Q0, payload_bytes: 256, pace: Pace::Flood },
            probes: Flow { shape: Shape::Pairs(5), qos: Q1, payload_bytes: 64, pace: Pace::Rate(250.0) },
        },
    },
];

/// The cases whose name contains this.
pub(super) fn chosen(only: Option<&str>) -> Vec<Case> {
    let is_wanted = |case: &&Case| only.is_none_or(|part| case.name.contains(part));
    CASES.iter().filter(is_wanted).copied().collect()
}

/// A client of the generator.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) part: Part,
}

/// What a client does.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Publishes the messages of one stream.
    Publish { flow: usize, stream: u32, topic: String },
    /// Receives those of `streams` streams from `first` on.
    Subscribe { flow: usize, filter: String, first: u32, streams: u32, reader: Reader },
    /// Stays.
    Idle,
}

/// How fast a subscriber reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// All there is.
    Eager,
    /// A little at a time.
    Slow,
}

/// Who publishes in a flow. `first` is the number of its first stream, `run` keeps the names of runs apart.
pub(super) fn publishers(flow: usize, of: &Flow, first: u32, run: u32) -> Vec<Client> {
    let client = |number| Client {
        id: format!("bench-{run}-p{flow}-{number}"),
        part: Part::Publish { flow, stream: first + number, topic: format!("bench/{run}/{flow}/{number}") },
    };
    (0..of.publishers()).map(client).collect()
}

/// Who subscribes in a flow.
pub(super) fn subscribers(flow: usize, of: &Flow, first: u32, run: u32, reader: Reader) -> Vec<Client> {
    let client = |number| {
        let (filter, first, streams) = match of.shape {
            Shape::Pairs(_) => (format!("bench/{run}/{flow}/{number}"), first + number, 1),
            Shape::FanIn(publishers) => (format!("bench/{run}/{flow}/+"), first, publishers),
            Shape::FanOut(_) => (format!("bench/{run}/{flow}/0"), first, 1),
        };
        let id = format!("bench-{run}-s{flow}-{number}");
        Client { id, part: Part::Subscribe { flow, filter, first, streams, reader } }
    };
    (0..of.subscribers()).map(client).collect()
}

/// Clients that only stay.
pub(super) fn idlers(count: usize, run: u32) -> Vec<Client> {
    (0..count).map(|number| Client { id: format!("bench-{run}-i{number}"), part: Part::Idle }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_a_part_of_their_name() {
        assert_eq!(chosen(None).len(), CASES.len());
        let names: Vec<_> = chosen(Some("pairs")).iter().map(|case| case.name).collect();
        assert_eq!(names, ["pairs q0", "pairs q1", "pairs q2", "pairs q0 1 KiB"]);
        assert!(chosen(Some("nonsense")).is_empty());
    }

    #[test]
    fn each_subscriber_expects_the_streams_that_reach_it() {
        for shape in [Shape::FanIn(3), Shape::FanOut(4), Shape::Pairs(5)] {
            let flow = Flow::windowed(shape, Q0, 64);
            let deliveries: u64 = subscribers(0, &flow, 0, 1, Reader::Eager)
                .iter()
                .map(|client| match client.part {
                    Part::Subscribe { streams, .. } => u64::from(streams),
                    _ => 0,
                })
                .sum();
            assert_eq!(deliveries, flow.fan() * u64::from(flow.publishers()), "{shape:?}");
        }
    }
}
