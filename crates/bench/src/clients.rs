//! Who takes part in a case: publishers, subscribers, and those that only stay.

use std::num::NonZeroU16;

use super::cases::{FlowSpec, Topology};

/// A client of the generator.
#[derive(Clone, Debug)]
pub(super) struct ClientSpec {
    pub(super) id: String,
    pub(super) part: ClientPart,
}

/// What a client does.
#[derive(Clone, Debug)]
pub(super) enum ClientPart {
    /// Publishes the messages of one stream.
    Publish { flow: usize, stream: u32, topic: String },
    /// Receives those of `streams` streams from `first` on.
    Subscribe { flow: usize, filter: String, first: u32, streams: u32, reader: ReadSpeed },
    /// Stays.
    Idle,
}

/// How fast a subscriber reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReadSpeed {
    /// All there is.
    Eager,
    /// The same, in a session that outlives its connection.
    Lasting,
    /// A little at a time.
    Slow,
    /// Works on one message after the other, so many a second, and acknowledges what is done; takes so many at a time.
    Worker { per_s: f64, receive_max: NonZeroU16 },
}

/// Who publishes in a flow. `first` is the number of its first stream, `run` keeps the names of runs apart.
pub(super) fn publishers(flow: usize, of: &FlowSpec, first: u32, run: u32) -> Vec<ClientSpec> {
    let client = |number| ClientSpec {
        id: format!("bench-{run}-p{flow}-{number}"),
        part: ClientPart::Publish { flow, stream: first + number, topic: format!("bench/{run}/{flow}/{number}") },
    };
    (0..of.publishers()).map(client).collect()
}

/// Who subscribes in a flow.
pub(super) fn subscribers(flow: usize, of: &FlowSpec, first: u32, run: u32, reader: ReadSpeed) -> Vec<ClientSpec> {
    let client = |number| {
        let (filter, first, streams) = match of.shape {
            Topology::Pairs(_) => (format!("bench/{run}/{flow}/{number}"), first + number, 1),
            Topology::FanIn(publishers) => (format!("bench/{run}/{flow}/+"), first, publishers),
            Topology::FanOut(_) => (format!("bench/{run}/{flow}/0"), first, 1),
        };
        let id = format!("bench-{run}-s{flow}-{number}");
        ClientSpec { id, part: ClientPart::Subscribe { flow, filter, first, streams, reader } }
    };
    (0..of.subscribers()).map(client).collect()
}

/// One subscriber of all flows of a run, whose streams are `streams` in all.
pub(super) fn worker(streams: u32, run: u32, reader: ReadSpeed) -> ClientSpec {
    let filter = format!("bench/{run}/#");
    ClientSpec {
        id: format!("bench-{run}-w"),
        part: ClientPart::Subscribe { flow: 0, filter, first: 0, streams, reader },
    }
}

/// Clients that only stay.
pub(super) fn idlers(count: usize, run: u32) -> Vec<ClientSpec> {
    (0..count).map(|number| ClientSpec { id: format!("bench-{run}-i{number}"), part: ClientPart::Idle }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::PublishPace;
    use tidegate_wire_mqtt::QoS;

    #[test]
    fn each_subscriber_expects_the_streams_that_reach_it() {
        for shape in [Topology::FanIn(3), Topology::FanOut(4), Topology::Pairs(5)] {
            let flow = FlowSpec { shape, qos: QoS::AtMostOnce, payload_bytes: 64, pace: PublishPace::Window };
            let deliveries: u64 = subscribers(0, &flow, 0, 1, ReadSpeed::Eager)
                .iter()
                .map(|client| match client.part {
                    ClientPart::Subscribe { streams, .. } => u64::from(streams),
                    _ => 0,
                })
                .sum();
            assert_eq!(deliveries, flow.fan() * u64::from(flow.publishers()), "{shape:?}");
        }
    }
}
