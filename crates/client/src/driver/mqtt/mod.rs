//! An MQTT client as its user holds it. One task has the session and never waits for the user: reading, acknowledging and
//! pinging go on whatever is not taken.

mod link;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_wire_mqtt::topic::check_name;
use tidegate_wire_mqtt::{Limits, QoS, ReasonCode};
use tokio::sync::{Mutex, mpsc, oneshot};

use self::task::{MqttCommand, MqttTask};
use super::address::{BrokerUrl, within};
use super::events::{Events, Notices};
use super::tls::BrokerRoute;
use crate::error::Error;
use crate::limits::{ANSWER_TIMEOUT, CHANNEL, RECEIVE_MAX};
use crate::session::mqtt::{MqttConfig, MqttMessage, MqttSession};

/// The broker has a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishAck {
    /// From sending to the answer; nothing at QoS 0, which has no answer.
    pub after: Duration,
}

/// Why a message is not where it should be.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PublishError {
    /// The broker did not take it.
    Rejected {
        /// The reason code of the PUBACK or PUBREC.
        reason: ReasonCode,
        /// The broker's reason string.
        detail: Option<String>,
        /// When to come back. Until then this client sends nothing more.
        retry_after: Option<Duration>,
    },
    /// There was no answer in time; it may still arrive.
    Timeout,
    /// The backlog is full.
    Full,
    /// It had to make room for another one.
    Dropped,
    /// It is larger than the broker takes.
    TooLarge,
    /// The topic is none, and why.
    Topic(&'static str),
    /// The client is gone.
    Closed,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { reason, retry_after, .. } => {
                write!(f, "rejected: {} (0x{:02x})", reason.name(), reason.code())?;
                match retry_after {
                    Some(after) => write!(f, "; come back in {} ms", after.as_millis()),
                    None => Ok(()),
                }
            }
            Self::Timeout => f.write_str("no answer in time; it may still arrive"),
            Self::Full => f.write_str("too many messages wait"),
            Self::Dropped => f.write_str("it had to make room for another one"),
            Self::TooLarge => f.write_str("larger than the broker takes"),
            Self::Topic(why) => write!(f, "no topic: {why}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

impl std::error::Error for PublishError {}

/// What a client went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MqttStats {
    /// Messages that wait.
    pub waiting: usize,
    /// Bytes of them.
    pub waiting_bytes: usize,
    /// Messages under way.
    pub under_way: usize,
    /// Connections so far.
    pub connects: u64,
    /// Messages of QoS 0 that came and found no room.
    pub unread: u64,
}

/// A connection to an MQTT broker, which comes back by itself; clones share it.
#[derive(Clone, Debug)]
pub struct Mqtt {
    commands: mpsc::Sender<MqttCommand>,
    inbox: Arc<Mutex<mpsc::Receiver<MqttMessage>>>,
    patience: Duration,
    notices: Arc<Notices>,
}

/// Where brokers are, if nothing is said.
const PORTS: &[(&str, u16)] = &[("mqtt", 1883), ("mqtts", 8883), ("ws", 8083), ("wss", 8084)];

impl Mqtt {
    /// Connects to `mqtt://[user:password@]host`, `mqtts://`, `ws://` or `wss://`.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        Self::connect_with(address, MqttConfig::default()).await
    }

    /// The same, with more to say.
    pub async fn connect_with(address: &str, config: MqttConfig) -> Result<Self, Error> {
        let address = BrokerUrl::read(address, PORTS)?;
        let config = MqttConfig { user: config.user.or_else(|| address.user.clone()), ..config };
        let (road, notices) = (BrokerRoute::new(address, config.ca.as_deref())?, Arc::new(Notices::default()));
        let (commands, orders) = mpsc::channel(CHANNEL);
        let (inbox, messages) = mpsc::channel(RECEIVE_MAX.into());
        let (connected, answer) = oneshot::channel();
        let task = MqttTask::new(road, MqttSession::new(config), orders, inbox, connected, Arc::clone(&notices));
        tokio::spawn(task.run());
        within(ANSWER_TIMEOUT * 2, answer).await?.map_err(|_| Error::Closed)??;
        Ok(Self { commands, inbox: Arc::new(Mutex::new(messages)), patience: ANSWER_TIMEOUT * 2, notices })
    }

    /// Publishes at QoS 1, and says what came of it.
    pub async fn publish(&self, topic: &str, payload: impl Into<Vec<u8>>) -> Result<PublishAck, PublishError> {
        let (topic, payload) = (topic.to_owned(), payload.into());
        self.publish_message(MqttMessage { topic, payload, qos: QoS::AtLeastOnce, retain: false }).await
    }

    /// Publishes, and says what came of it.
    pub async fn publish_message(&self, message: MqttMessage) -> Result<PublishAck, PublishError> {
        check_name(&message.topic, &Limits::default()).map_err(|violation| PublishError::Topic(violation.detail))?;
        let (answer, outcome) = oneshot::channel();
        let work = async {
            self.commands.send(MqttCommand::Publish(message, answer)).await.map_err(|_| PublishError::Closed)?;
            outcome.await.map_err(|_| PublishError::Closed)?
        };
        within(self.patience, work).await.map_err(|_| PublishError::Timeout)?
    }

    /// Wants messages; they come by [`Mqtt::next`], after each return of the connection, too.
    pub async fn subscribe(&self, filter: &str, qos: QoS) -> Result<(), Error> {
        let (answer, outcome) = oneshot::channel();
        let order = MqttCommand::Subscribe(filter.to_owned(), qos, answer);
        self.commands.send(order).await.map_err(|_| Error::Closed)?;
        let reason = within(ANSWER_TIMEOUT, outcome).await?.map_err(|_| Error::Closed)?;
        if reason.is_failure() { Err(Error::Rejected(reason.name().to_owned())) } else { Ok(()) }
    }

    /// The next message. What is not taken is not acknowledged, and the broker sends no more than it was told to.
    pub async fn next(&self) -> Option<MqttMessage> {
        self.inbox.lock().await.recv().await
    }

    /// What happens from now on: connections, cuts, returns, refusals.
    pub fn events(&self) -> Events {
        self.notices.read()
    }

    /// Numbers of this client: connections, messages, refusals.
    pub async fn stats(&self) -> Result<MqttStats, Error> {
        let (answer, stats) = oneshot::channel();
        self.commands.send(MqttCommand::Stats(answer)).await.map_err(|_| Error::Closed)?;
        stats.await.map_err(|_| Error::Closed)
    }
}
