//! The pacer with another client: rumqttc publishes, this says when.
//!
//! `cargo run -p tidegate-pace --example rumqttc -- 127.0.0.1 1883` against a running broker.
//!
//! What a check is to a persistent query, a message is here: the time to its PUBACK is the response time, and a
//! connection that breaks is a failed attempt. Stop the broker and start it again while this runs.

use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tidegate_pace::{DetectorRule, Outcome, Pace, PacerConfig};
use tokio::time::{Instant, sleep_until, timeout};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let host = arguments.next().unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = arguments.next().map_or(Ok(1883), |port| port.parse())?;
    let (client, mut connection) = AsyncClient::new(MqttOptions::new("paced", host, port), 10);

    let mut config = PacerConfig { interval: Duration::from_secs(1), ..PacerConfig::default() };
    config.detector.rule = DetectorRule::Light;
    let mut pace = Pace::new(&config)?;
    let mut delay = pace.first_delay().unwrap_or_default();
    for number in 0..10 {
        // While we wait, the connection is kept alive; one that is broken is not asked again before its time.
        let due = Instant::now() + delay;
        let _ = tokio::time::timeout_at(due, async { while connection.poll().await.is_ok() {} }).await;
        sleep_until(due).await;
        pace.sent();
        let sent = Instant::now();
        client.try_publish("paced/number", QoS::AtLeastOnce, false, number.to_string())?;
        let answered = timeout(config.request_timeout, async {
            loop {
                match connection.poll().await {
                    Ok(Event::Incoming(Packet::PubAck(_))) => return Outcome::answered(sent.elapsed(), 0),
                    Ok(_) => {}
                    Err(_) => return Outcome::Failed,
                }
            }
        });
        let outcome = answered.await.unwrap_or(Outcome::TimedOut);
        delay = pace.outcome(&outcome).unwrap_or_default();
        let state = pace.snapshot();
        let what = match &outcome {
            Outcome::Answered { latency, .. } => format!("acknowledged after {latency:?}"),
            other => format!("{other:?}"),
        };
        println!("{number}: {what}; AST {:?}, RBT {:?}, next in {delay:?}", state.ast, state.rbt);
    }
    Ok(())
}
