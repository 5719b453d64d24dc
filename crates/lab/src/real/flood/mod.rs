//! A publisher that floods, a publisher that is rare, and a reader that is slow, on real brokers: what the back-off of the
//! broker does to the uplink, and to the latency of the rare one. Beside it what the model, the same shard in virtual time, says.

mod packets;
mod predict;
mod reader;
mod sender;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_client::{Mqtt, MqttConfig, MqttMessage, QoS};
use tidegate_control::rhythm::RhythmRule;
use tidegate_program::Stop;
use tokio::sync::oneshot;

use super::host::Host;
use super::room::pass;

/// Bytes of a message of the flood.
pub(super) const PAYLOAD_BYTES: usize = 10_000;
/// Messages while it behaves, and the time between them.
pub(super) const USUAL: u32 = 20;
pub(super) const USUAL_INTERVAL: Duration = Duration::from_millis(200);
/// Messages of the flood, 20 MB, and the time between them.
pub(super) const FLOOD: u32 = 2000;
pub(super) const FLOOD_INTERVAL: Duration = Duration::from_millis(4);
/// The time between two messages of the rare one.
pub(super) const RARE_INTERVAL: Duration = Duration::from_secs(1);
/// What the reader takes in a second.
pub(super) const READER_BYTES: f64 = 1e6;
/// What is still under way when the flood is over may come for so long.
const AFTERWARDS: f64 = 2.0;
/// Names of the topics.
const FLOOD_TOPIC: &str = "flood/sensor";
const RARE_TOPIC: &str = "rare/sensor";

/// A way to set the broker.
pub(super) struct Setting {
    pub(super) name: &'static str,
    settings: &'static [&'static str],
    rule: Option<RhythmRule>,
    is_strict: bool,
}

/// Without any control, ours for everybody at all times, and the paper's back-off with its order.
pub(super) const SETTINGS: [Setting; 3] = [
    Setting { name: "off", settings: &["backoff.mode=off"], rule: None, is_strict: false },
    Setting {
        name: "ours, always",
        settings: &["backoff.enforce=always"],
        rule: Some(RhythmRule::Practical),
        is_strict: false,
    },
    Setting {
        name: "paper",
        settings: &["backoff.mode=paper", "priority.mode=paper"],
        rule: Some(RhythmRule::Paper),
        is_strict: true,
    },
];

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FloodFigures {
    /// Bytes of the flooder that the broker's TCP has acknowledged, and that the flooder wanted to send.
    pub(super) acked: f64,
    pub(super) offered: f64,
    /// Seconds from the rare publisher to the reader: the mean, and the longest.
    pub(super) rare_mean: f64,
    pub(super) rare_max: f64,
    /// Messages of the rare one that arrived, and that it sent.
    pub(super) rare_arrived: u64,
    pub(super) rare_sent: u64,
}

/// One setting on a broker of its own, and in the model.
pub(super) struct Flooded {
    pub(super) setting: &'static Setting,
    pub(super) real: FloodFigures,
    pub(super) model: FloodFigures,
}

/// All settings at the same time, each on a broker of its own: what is measured is bytes and waiting, not speed.
pub(super) async fn run(stop: &Stop) -> Result<Vec<Flooded>> {
    let mut hosts = Vec::new();
    for setting in &SETTINGS {
        let settings: Vec<String> = setting.settings.iter().map(|&text| text.to_owned()).collect();
        hosts.push(Host::start(&settings)?);
    }
    let [first, second, third] = &hosts[..] else { return Ok(Vec::new()) };
    let real = tokio::try_join!(flood(first.mqtt, stop), flood(second.mqtt, stop), flood(third.mqtt, stop))?;
    let mut flooded = Vec::new();
    for (setting, real) in SETTINGS.iter().zip([real.0, real.1, real.2]) {
        flooded.push(Flooded { setting, real, model: predict::predict(setting)? });
    }
    Ok(flooded)
}

async fn flood(broker: SocketAddr, stop: &Stop) -> Result<FloodFigures> {
    let began = Instant::now();
    let reader = reader::Reader::open(broker, began).await?;
    let (over, is_over) = oneshot::channel();
    let reading = tokio::spawn(reader.read(is_over));
    let rare = tokio::spawn(rare(broker, began));
    let sending = sender::Sender::open(broker).await?;
    let sending = tokio::spawn(sending.send());
    let seconds = USUAL_INTERVAL.as_secs_f64() * f64::from(USUAL) + FLOOD_INTERVAL.as_secs_f64() * f64::from(FLOOD);
    pass(seconds, stop).await?;
    let sent = sending.await??;
    let rare_sent = rare.await??;
    pass(AFTERWARDS, stop).await?;
    let _ = over.send(());
    let latencies = reading.await?;
    let count = latencies.len() as f64;
    Ok(FloodFigures {
        acked: sent.acked,
        offered: sent.offered,
        rare_mean: if latencies.is_empty() { f64::NAN } else { latencies.iter().sum::<f64>() / count },
        rare_max: latencies.iter().copied().fold(f64::NAN, f64::max),
        rare_arrived: latencies.len() as u64,
        rare_sent,
    })
}

/// A message a second, with the time in it; how many.
async fn rare(broker: SocketAddr, began: Instant) -> Result<u64> {
    let config = MqttConfig { client_id: "rare".to_owned(), ..MqttConfig::default() };
    let mqtt = Mqtt::connect_with(&format!("mqtt://{broker}"), config).await?;
    let count = rare_count();
    for number in 0..count {
        let due = began + RARE_INTERVAL.mul_f64(number as f64 + 0.5);
        tokio::time::sleep_until(due.into()).await;
        let sent = began.elapsed().as_secs_f64();
        let message =
            MqttMessage { topic: RARE_TOPIC.to_owned(), payload: sent.to_string().into(), ..MqttMessage::default() };
        // At QoS 0, as the flood: nobody waits for an answer.
        mqtt.publish_message(MqttMessage { qos: QoS::AtMostOnce, ..message }).await?;
    }
    Ok(count)
}

/// As many as there is time for.
fn rare_count() -> u64 {
    let seconds = USUAL_INTERVAL.as_secs_f64() * f64::from(USUAL) + FLOOD_INTERVAL.as_secs_f64() * f64::from(FLOOD);
    (seconds / RARE_INTERVAL.as_secs_f64()) as u64
}
