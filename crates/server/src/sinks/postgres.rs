//! PostgreSQL: a batch is one statement, so it is there as a whole or not at all.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_sink::{SinkBatch, SinkVerdict};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::bridges::client_config;
use crate::config::bridge::BridgeTls;
use crate::config::sink::{SinkSettings, SinkTarget};

/// See the module.
pub(super) struct PostgresReceiver {
    config: Config,
    /// None: the connection is plain.
    tls: Option<MakeRustlsConnect>,
    table: String,
    timeout: Duration,
    client: Option<Client>,
}

impl PostgresReceiver {
    pub(super) fn new(settings: &SinkSettings) -> Result<Self> {
        let SinkTarget::Postgres { url, password, table } = &settings.target else {
            anyhow::bail!("this is no PostgreSQL");
        };
        let mut config = Config::from_str(url).context("url")?;
        if let Some(password) = password {
            config.password(&password.0);
        }
        config.application_name("tidegate").connect_timeout(settings.timeout);
        // A certificate that nobody looks at protects nobody: TLS is wanted and checked, or it is not spoken.
        let tls = if config.get_ssl_mode() == SslMode::Require {
            let trust = BridgeTls { ca: settings.ca.clone(), ..BridgeTls::default() };
            Some(MakeRustlsConnect::new(client_config(&trust).context("TLS")?))
        } else {
            config.ssl_mode(SslMode::Disable);
            None
        };
        Ok(Self { config, tls, table: table.clone(), timeout: settings.timeout, client: None })
    }

    pub(super) fn address(&self) -> String {
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                tokio_postgres::config::Host::Tcp(name) => name.clone(),
                tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        format!("postgres://{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }

    pub(super) async fn deliver(&mut self, batch: &SinkBatch) -> SinkVerdict {
        let later = |why: String| SinkVerdict::Later { after: None, why };
        let verdict = match tokio::time::timeout(self.timeout, self.insert(batch)).await {
            Ok(Ok(())) => SinkVerdict::Taken { unmapped: 0 },
            Ok(Err(error)) => judge(&error),
            Err(_) => later(format!("no answer in {} s", self.timeout.as_secs_f64())),
        };
        if matches!(verdict, SinkVerdict::Later { .. }) {
            self.client = None;
        }
        verdict
    }

    async fn insert(&mut self, batch: &SinkBatch) -> Result<(), tokio_postgres::Error> {
        let table = &self.table;
        let statement = format!(
            "INSERT INTO {table} (at, topic, payload, qos, retain) \
             SELECT to_timestamp(m.at / 1000.0), m.topic, m.payload, m.qos, m.retain \
             FROM unnest($1::int8[], $2::text[], $3::bytea[], $4::int2[], $5::bool[]) AS m(at, topic, payload, qos, retain)"
        );
        let client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect().await?,
        };
        let messages = &batch.messages;
        let at: Vec<i64> = messages.iter().map(|message| i64::try_from(message.at_ms).unwrap_or(i64::MAX)).collect();
        let topics: Vec<&str> = messages.iter().map(|message| message.topic.as_str()).collect();
        let payloads: Vec<&[u8]> = messages.iter().map(|message| message.payload.as_slice()).collect();
        let qos: Vec<i16> = messages.iter().map(|message| i16::from(message.qos.bits())).collect();
        let retained: Vec<bool> = messages.iter().map(|message| message.retain).collect();
        let done = client.execute(&statement, &[&at, &topics, &payloads, &qos, &retained]).await;
        self.client = Some(client);
        done.map(drop)
    }

    async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let client = if let Some(tls) = &self.tls {
            let (client, connection) = self.config.connect(tls.clone()).await?;
            tokio::spawn(async move { drop(connection.await) });
            client
        } else {
            let (client, connection) = self.config.connect(NoTls).await?;
            tokio::spawn(async move { drop(connection.await) });
            client
        };
        let table = &self.table;
        client
            .batch_execute(&format!(
                "CREATE TABLE IF NOT EXISTS {table} (at timestamptz NOT NULL, topic text NOT NULL, payload bytea NOT NULL, \
                 qos int2 NOT NULL, retain bool NOT NULL)"
            ))
            .await?;
        Ok(client)
    }
}

/// What the database says about the rows is the rows' fault (classes 22 and 23 of SQLSTATE); everything else passes, or is mended.
fn judge(error: &tokio_postgres::Error) -> SinkVerdict {
    let why = if let Some(said) = error.as_db_error() {
        format!("it says {}: {}", said.code().code(), said.message())
    } else {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    match error.code().map(tokio_postgres::error::SqlState::code) {
        Some(code) if code.starts_with("22") || code.starts_with("23") => SinkVerdict::Refused { why },
        _ => SinkVerdict::Later { after: None, why },
    }
}
