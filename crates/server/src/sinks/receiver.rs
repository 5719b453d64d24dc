//! Who takes the messages of a sink: one of the kinds that there are.

use anyhow::Result;
use tidegate_sink::{SinkBatch, SinkVerdict};

use super::web::WebReceiver;
use crate::config::sink::{SinkSettings, SinkTarget};

pub(super) enum Receiver {
    Web(Box<WebReceiver>),
    #[cfg(feature = "postgres")]
    Postgres(Box<super::postgres::PostgresReceiver>),
    #[cfg(feature = "kafka")]
    Kafka(Box<super::kafka::KafkaReceiver>),
}

impl Receiver {
    /// Nothing is connected yet.
    pub(super) fn new(settings: &SinkSettings) -> Result<Self> {
        match &settings.target {
            SinkTarget::Webhook { .. } | SinkTarget::Influx { .. } => {
                Ok(Self::Web(Box::new(WebReceiver::new(settings)?)))
            }
            #[cfg(feature = "postgres")]
            SinkTarget::Postgres { .. } => {
                Ok(Self::Postgres(Box::new(super::postgres::PostgresReceiver::new(settings)?)))
            }
            #[cfg(feature = "kafka")]
            SinkTarget::Kafka { .. } => Ok(Self::Kafka(Box::new(super::kafka::KafkaReceiver::new(settings)?))),
            #[allow(unreachable_patterns, reason = "with all features there is no other")]
            other => anyhow::bail!("this program was built without {}", other.kind()),
        }
    }

    /// Where it is, without anything secret.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Web(web) => web.address(),
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.address(),
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.address(),
        }
    }

    /// Brings it a batch.
    pub(super) async fn deliver(&mut self, batch: &SinkBatch) -> SinkVerdict {
        match self {
            Self::Web(web) => web.deliver(batch).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => postgres.deliver(batch).await,
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => kafka.deliver(batch).await,
        }
    }
}
