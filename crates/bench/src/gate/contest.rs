//! Publishers that contend for one subscriber, which works on so many messages a second.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Result;
use tidegate_wire_mqtt::QoS;

use crate::beats::Beat;
use crate::cases::{FlowSpec, PublishPace, Topology};
use crate::clients::{self, ClientSpec, ReadSpeed};
use crate::engine::{Engine, Greeting, LoadSwitch};
use crate::measure::RunSettings;
use crate::process::{BrokerNeeds, RunningBroker};
use crate::timer::CaseClock;

/// Messages a second that the subscriber works on.
pub(super) const CAPACITY: f64 = 500.0;
/// Messages that it takes: the one that it works on and the next, so that the others wait in the broker.
const AHEAD: NonZeroU16 = NonZeroU16::new(2).unwrap();
/// A message has about the size of one turn of our scheduler, so that turns are messages.
const PAYLOAD_BYTES: usize = 1000;
/// Messages that may wait for it. Everything that is measured is beyond the time that this takes to fill.
pub(super) const QUEUE_MAX: u32 = 500;

/// What every broker is told.
pub(super) const WISH: BrokerNeeds = BrokerNeeds { queue_max: Some(QUEUE_MAX), ..BrokerNeeds::NONE };

/// By which share intervals differ. Without it rates that are multiples of each other meet in the same way again and
/// again, and a full queue has always or never a place for the same publisher.
const JITTER: f64 = 0.1;

/// So many publishers that each send so many messages a second.
pub(super) fn group(count: u32, per_s: f64) -> FlowSpec {
    let pace = PublishPace::Each(rhythm(per_s));
    FlowSpec { shape: Topology::FanIn(count), qos: QoS::AtLeastOnce, payload_bytes: PAYLOAD_BYTES, pace }
}

/// The rhythm of such a publisher.
pub(super) fn rhythm(per_s: f64) -> Beat {
    Beat { per_s, jitter: JITTER, batch: 1 }
}

/// Who publishes, flow by flow; streams are numbered through.
pub(super) fn publishers(groups: &[FlowSpec], number: u32) -> Vec<ClientSpec> {
    let (mut all, mut first) = (Vec::new(), 0);
    for (flow, group) in groups.iter().enumerate() {
        all.extend(clients::publishers(flow, group, first, number));
        first += group.publishers();
    }
    all
}

/// Everybody connected, and the publishers going for as long as it takes until their rhythms are known.
pub(super) fn begin(groups: &[FlowSpec], broker: &RunningBroker, setting: &RunSettings, number: u32) -> Result<Engine> {
    let streams = groups.iter().map(FlowSpec::publishers).sum();
    let mut clients = publishers(groups, number);
    clients.push(clients::worker(streams, number, ReadSpeed::Worker { per_s: CAPACITY, receive_max: AHEAD }));
    let mut engine = Engine::new(groups, clients, Greeting::Mqtt, CaseClock::start(), setting.stop.clone())?;
    engine.connect(broker.address)?;
    engine.run(LoadSwitch::On, warm_up(setting))?;
    Ok(engine)
}

/// 4.5 s by default: a rhythm is known after sixteen intervals, and the rarest publishers send four messages a second.
pub(super) fn warm_up(setting: &RunSettings) -> Duration {
    setting.time.mul_f64(1.5)
}
