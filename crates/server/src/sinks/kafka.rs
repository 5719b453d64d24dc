//! Kafka: a message is a record, its topic is the key. All messages of a topic go to the same partition, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rskafka::BackoffConfig;
use rskafka::chrono::DateTime;
use rskafka::client::error::{Error as KafkaError, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use rustls::ClientConfig;
use tidegate_sink::{SinkBatch, SinkMessage, SinkVerdict};

use crate::bridges::client_config;
use crate::config::bridge::BridgeTls;
use crate::config::kafka::{KafkaLogin, KafkaMechanism};
use crate::config::sink::{SinkSettings, SinkTarget};

/// See the module.
pub(super) struct KafkaReceiver {
    brokers: Vec<String>,
    topic: String,
    /// None: the connections are plain.
    tls: Option<Arc<ClientConfig>>,
    login: Option<KafkaLogin>,
    timeout: Duration,
    partitions: Vec<PartitionClient>,
}

impl KafkaReceiver {
    pub(super) fn new(settings: &SinkSettings) -> Result<Self> {
        let SinkTarget::Kafka { brokers, topic, is_tls, login } = settings.target.clone() else {
            anyhow::bail!("this is no Kafka")
        };
        let trust = BridgeTls { ca: settings.ca.clone(), ..BridgeTls::default() };
        let tls = is_tls.then(|| client_config(&trust)).transpose().context("TLS")?;
        Ok(Self { brokers, topic, tls: tls.map(Arc::new), login, timeout: settings.timeout, partitions: Vec::new() })
    }

    pub(super) fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "kafkas" } else { "kafka" };
        format!("{scheme}://{}/{}", self.brokers.join(","), self.topic)
    }

    pub(super) async fn deliver(&mut self, batch: &SinkBatch) -> SinkVerdict {
        let verdict = match tokio::time::timeout(self.timeout, self.produce(batch)).await {
            Ok(Ok(())) => SinkVerdict::Taken { unmapped: 0 },
            Ok(Err(error)) => judge(&error),
            Err(_) => SinkVerdict::Later { after: None, why: format!("no answer in {} s", self.timeout.as_secs_f64()) },
        };
        if matches!(verdict, SinkVerdict::Later { .. }) {
            // Leaders move: the next batch asks who they are.
            self.partitions.clear();
        }
        verdict
    }

    async fn produce(&mut self, batch: &SinkBatch) -> Result<()> {
        if self.partitions.is_empty() {
            self.connect().await?;
        }
        let mut parts: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        for message in &batch.messages {
            let place = place_of(&message.topic, self.partitions.len());
            parts.entry(place).or_default().push(record(message));
        }
        for (place, records) in parts {
            let partition = self.partitions.get(place).context("no partition")?;
            partition.produce(records, Compression::NoCompression).await?;
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<()> {
        // Its own patience is without end: ours is said by the configuration.
        let backoff = BackoffConfig { deadline: Some(self.timeout), ..BackoffConfig::default() };
        let mut builder = ClientBuilder::new(self.brokers.clone()).client_id("tidegate").backoff_config(backoff);
        if let Some(tls) = &self.tls {
            builder = builder.tls_config(Arc::clone(tls));
        }
        if let Some(login) = &self.login {
            builder = builder.sasl_config(sasl(login));
        }
        let client: Client = builder.build().await?;
        let topics = client.list_topics().await?;
        let topic = topics.iter().find(|topic| topic.name == self.topic);
        let topic = topic.with_context(|| format!("there is no topic {:?} at Kafka", self.topic))?;
        for partition in &topic.partitions {
            let made = client.partition_client(self.topic.clone(), *partition, UnknownTopicHandling::Error).await?;
            self.partitions.push(made);
        }
        Ok(())
    }
}

fn sasl(login: &KafkaLogin) -> SaslConfig {
    let credentials = Credentials::new(login.user.clone(), login.password.0.clone());
    match login.mechanism {
        KafkaMechanism::Plain => SaslConfig::Plain(credentials),
        KafkaMechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
        KafkaMechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
    }
}

/// Only what is said about the content is the content's fault: it would be said for ever, and what is behind would wait.
fn judge(error: &anyhow::Error) -> SinkVerdict {
    let why = format!("{error:#}");
    match error.downcast_ref::<KafkaError>() {
        Some(KafkaError::ServerError {
            protocol_error:
                ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge | ProtocolError::InvalidRecord,
            ..
        }) => SinkVerdict::Refused { why },
        _ => SinkVerdict::Later { after: None, why },
    }
}

/// The same for a topic as long as the number of partitions is.
fn place_of(topic: &str, partitions: usize) -> usize {
    let hash = topic
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    usize::try_from(hash % (partitions.max(1) as u64)).unwrap_or(0)
}

fn record(message: &SinkMessage) -> Record {
    let mut headers = BTreeMap::from([("mqtt-retain".to_owned(), vec![b'0' + u8::from(message.retain)])]);
    headers.insert("mqtt-qos".to_owned(), vec![b'0' + message.qos.bits()]);
    for (name, value) in &message.user_properties {
        headers.insert(name.clone(), value.clone().into_bytes());
    }
    let at_ms = i64::try_from(message.at_ms).unwrap_or(0);
    Record {
        key: Some(message.topic.clone().into_bytes()),
        value: Some(message.payload.clone()),
        headers,
        timestamp: DateTime::from_timestamp_millis(at_ms).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use rskafka::client::error::RequestContext;

    use super::*;

    #[test]
    fn a_topic_has_one_partition_and_topics_are_spread() {
        let places: Vec<usize> = (0..100).map(|number| place_of(&format!("sensors/{number}"), 4)).collect();
        assert_eq!(places[7], place_of("sensors/7", 4));
        for place in 0..4 {
            assert!(places.iter().filter(|other| **other == place).count() > 10, "{places:?}");
        }
        assert_eq!(place_of("x", 1), 0);
    }

    #[test]
    fn a_record_that_is_not_wanted_is_given_up_and_nothing_else_is() {
        let answer = |protocol_error| {
            let request = RequestContext::Partition("t".into(), 0);
            let (error_message, response, is_virtual) = (None, None, false);
            judge(&KafkaError::ServerError { protocol_error, error_message, request, response, is_virtual }.into())
        };
        for error in [ProtocolError::MessageTooLarge, ProtocolError::RecordListTooLarge, ProtocolError::InvalidRecord] {
            assert!(matches!(answer(error), SinkVerdict::Refused { .. }), "{error:?}");
        }
        for error in [ProtocolError::NotLeaderOrFollower, ProtocolError::TopicAuthorizationFailed] {
            assert!(matches!(answer(error), SinkVerdict::Later { .. }), "{error:?}");
        }
        assert!(matches!(judge(&anyhow::anyhow!("no route")), SinkVerdict::Later { .. }));
    }

    #[test]
    fn a_record_has_the_topic_as_its_key() {
        let message =
            SinkMessage { topic: "a/b".into(), payload: b"21".to_vec(), at_ms: 1500, ..SinkMessage::default() };
        let record = record(&message);
        assert_eq!((record.key.as_deref(), record.value.as_deref()), (Some(&b"a/b"[..]), Some(&b"21"[..])));
        assert_eq!(record.timestamp.timestamp_millis(), 1500);
        assert_eq!(record.headers["mqtt-qos"], b"0");
    }
}
