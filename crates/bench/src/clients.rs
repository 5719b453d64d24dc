//! Who takes part in a case: publishers, subscribers, and those that only stay.

use std::num::NonZeroU16;

use super::cases::{Flow, Shape};

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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reader {
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

/// One subscriber of all flows of a run, whose streams are `streams` in all.
pub(super) fn worker(streams: u32, run: u32, reader: Reader) -> Client {
    let filter = format!("bench/{run}/#");
    Client { id: format!("bench-{run}-w"), part: Part::Subscribe { flow: 0, filter, first: 0, streams, reader } }
}

/// Clients that only stay.
pub(super) fn idlers(count: usize, run: u32) -> Vec<Client> {
    (0..count).map(|number| Client { id: format!("bench-{run}-i{number}"), part: Part::Idle }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Pace;
    use tidegate_wire_mqtt::QoS;

    #[test]
    fn each_subscriber_expects_the_streams_that_reach_it() {
        for shape in [Shape::FanIn(3), Shape::FanOut(4), Shape::Pairs(5)] {
            let flow = Flow { shape, qos: QoS::AtMostOnce, payload_bytes: 64, pace: Pace::Window };
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
