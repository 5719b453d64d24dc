//! The pacer alone, with another client: rumqttc publishes, `tidegate-control` says when.
//!
//! `cargo run -p tidegate-client --example rumqttc_pacer -- 127.0.0.1 1883` against a running broker.
//!
//! What a check is to a persistent query, a message is here: the time to its PUBACK is the response time, and a
//! connection that breaks is a failed attempt.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tidegate_control::Timestamp;
use tidegate_control::pacer::{DetectorRule, Outcome, Pacer, PacerConfig};
use tokio::time::{Instant, timeout};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let host = arguments.next().unwrap_or_else(|| "127.0.0.1".to_owned());
    let port = arguments.next().map_or(Ok(1883), |port| port.parse())?;
    let (client, mut connection) = AsyncClient::new(MqttOptions::new("paced", host, port), 10);

    let mut config = PacerConfig { interval: Duration::from_secs(1), ..PacerConfig::default() };
    config.detector.rule = DetectorRule::Light;
    let mut pacer = Pacer::new(&config.build()?);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(std::process::id()));
    let began = Instant::now();
    let mut delay = pacer.first_delay(&mut rng).unwrap_or_default();
    for number in 0..10 {
        // While we wait, the connection is kept alive.
        let _ = timeout(delay, async { while connection.poll().await.is_ok() {} }).await;
        pacer.on_sent();
        let sent = Instant::now();
        client.publish("paced/number", QoS::AtLeastOnce, false, number.to_string()).await?;
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
        let now = Timestamp::ZERO + began.elapsed();
        delay = pacer.on_outcome(now, &outcome, &mut rng).unwrap_or_default();
        let state = pacer.snapshot();
        println!("{number}: {outcome:?}; AST {:?}, RBT {:?}, next in {delay:?}", state.ast, state.rbt);
    }
    Ok(())
}
