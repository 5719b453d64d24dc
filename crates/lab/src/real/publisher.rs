//! A publisher: it changes the items of some KPs, at times that follow from the seed, and notes when the broker has each change.
//! It comes to the broker by a way of its own, on which nothing is lost: the papers' losses are those of mobile clients.

use std::time::{Duration, Instant};

use anyhow::Result;
use tidegate_client::{Mqtt, MqttConfig, Space, SpaceConfig, Triple, TripleNode};
use tidegate_sim::chance::Stream;

use super::host::Host;
use super::kp::Book;
use super::plan::PublisherDoor;

/// How long a publisher comes back to a broker that is too busy; then the change is lost, and the next one brings more.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// One publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    speech: Speech,
    /// The KPs whose items are its own, and the versions that these have.
    items: Vec<(usize, u64)>,
}

#[derive(Debug)]
enum Speech {
    Ssap(Space),
    Http(Space),
    Mqtt(Mqtt),
}

impl Publisher {
    pub(super) async fn open(host: &Host, door: PublisherDoor, number: usize, items: Vec<usize>) -> Result<Self> {
        let name = format!("publisher{number}");
        let speech = match door {
            PublisherDoor::Ssap => Speech::Ssap(enter(&format!("ssap://{}", host.ssap), name).await?),
            PublisherDoor::Http => Speech::Http(enter(&format!("http://{}", host.http), name).await?),
            PublisherDoor::Mqtt => {
                let config = MqttConfig { client_id: name, ..MqttConfig::default() };
                Speech::Mqtt(Mqtt::connect_with(&format!("mqtt://{}", host.mqtt), config).await?)
            }
        };
        Ok(Self { speech, items: items.into_iter().map(|item| (item, 0)).collect() })
    }

    /// Publishes for as long as it lives: each item changes at this rate, at times of chance.
    pub(super) async fn live(mut self, rate: f64, mut chance: Stream, book: Book) {
        let all = rate * self.items.len() as f64;
        if all <= 0.0 {
            return;
        }
        let mut due = Instant::now();
        loop {
            // One that was late goes on with what is due: the times are those of the seed.
            due += Duration::from_secs_f64(chance.exponential(1.0 / all));
            let item = (chance.unit() * self.items.len() as f64) as usize;
            tokio::time::sleep_until(due.into()).await;
            self.change(item, &book).await;
        }
    }

    /// So many changes, as fast as the broker takes them; how many it took.
    pub(super) async fn change_often(mut self, times: usize, book: Book) -> u64 {
        let mut done = 0;
        for number in 0..times {
            let item = number % self.items.len().max(1);
            done += u64::from(self.change(item, &book).await);
        }
        done
    }

    /// The next version of one of its items; whether the broker has it.
    async fn change(&mut self, item: usize, book: &Book) -> bool {
        let Some((kp, version)) = self.items.get_mut(item) else { return false };
        *version += 1;
        let (kp, version) = (*kp, *version);
        let is_true = self.say(kp, version).await.is_ok();
        if is_true {
            book.copies().on_update(kp, version, Instant::now());
        }
        is_true
    }

    async fn say(&self, kp: usize, version: u64) -> Result<()> {
        match &self.speech {
            Speech::Ssap(space) => {
                let triple = |object| Triple {
                    subject: TripleNode::Uri(format!("urn:testbed:{kp}").into()),
                    predicate: TripleNode::Uri("urn:testbed:value".into()),
                    object,
                };
                let new = triple(TripleNode::Literal(version.to_string().into()));
                space.edit(&[new], &[triple(TripleNode::Any)]).await?;
            }
            Speech::Http(space) => {
                let item = format!("<urn:testbed:{kp}> <urn:testbed:value>");
                let update = format!("DELETE {{ {item} ?v }} INSERT {{ {item} '{version}' }} WHERE {{ {item} ?v }}");
                space.update(&update).await?;
            }
            Speech::Mqtt(mqtt) => {
                mqtt.publish(&format!("testbed/{kp}"), version.to_string()).await?;
            }
        }
        Ok(())
    }
}

async fn enter(url: &str, name: String) -> Result<Space> {
    let config = SpaceConfig { node: Some(name), ..SpaceConfig::default() };
    Ok(Space::connect_with(url, config).await?.waiting(WAIT_MAX))
}
