//! A receiver that speaks HTTP: a webhook, or InfluxDB. One connection, kept open between batches.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use tidegate_sink::render::influx::LineRule;
use tidegate_sink::render::{influx, webhook};
use tidegate_sink::{SinkBatch, SinkVerdict};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::signature;
use crate::bridges::client_config;
use crate::config::bridge::BridgeTls;
use crate::config::sink::{SinkSecret, SinkSettings, SinkTarget};
use crate::fetch::WebAddress;

/// Bytes of an answer that are read: its first words are for the operator.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// In which words.
enum WebWords {
    Webhook { key: Option<hmac::Key> },
    Influx { rules: Vec<LineRule> },
}

/// See the module.
pub(super) struct WebReceiver {
    sink: String,
    at: WebAddress,
    words: WebWords,
    /// The field `Authorization`.
    authorization: Option<String>,
    tls: Option<TlsConnector>,
    timeout: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// Numbers of requests begin with it: those of another life of the process are others.
    life: String,
}

impl WebReceiver {
    pub(super) fn new(settings: &SinkSettings) -> Result<Self> {
        let bearer =
            |scheme: &str, token: &Option<SinkSecret>| token.as_ref().map(|token| format!("{scheme} {}", token.0));
        let (at, words, authorization) = match &settings.target {
            SinkTarget::Webhook { at, secret, token } => {
                let key = secret.as_ref().map(|secret| signature::key_of(&secret.0));
                (at.clone(), WebWords::Webhook { key }, bearer("Bearer", token))
            }
            SinkTarget::Influx { at, token, rules } => {
                (in_milliseconds(at), WebWords::Influx { rules: rules.clone() }, bearer("Token", token))
            }
            other => anyhow::bail!("{} does not speak HTTP", other.kind()),
        };
        let tls = if at.is_encrypted() {
            let trust = BridgeTls { ca: settings.ca.clone(), ..BridgeTls::default() };
            Some(TlsConnector::from(Arc::new(client_config(&trust).context("TLS")?)))
        } else {
            None
        };
        let mut life = [0; 8];
        SystemRandom::new().fill(&mut life).map_err(|_| anyhow::anyhow!("no random numbers"))?;
        let life = format!("{:016x}", u64::from_be_bytes(life));
        let (sink, timeout) = (settings.name.clone(), settings.timeout);
        Ok(Self { sink, at, words, authorization, tls, timeout, connection: None, life })
    }

    /// Without the path: whoever knows it may write there, at Slack and its like.
    pub(super) fn address(&self) -> String {
        self.at.origin()
    }

    pub(super) async fn deliver(&mut self, batch: &SinkBatch) -> SinkVerdict {
        let (kind, body, unmapped) = match &self.words {
            WebWords::Webhook { .. } => {
                let body = webhook::body(&self.sink, &batch.messages, |bytes| STANDARD.encode(bytes));
                ("application/json", Bytes::from(body), 0)
            }
            WebWords::Influx { rules } => {
                let (lines, unmapped) = influx::body(rules, &batch.messages);
                ("text/plain; charset=utf-8", Bytes::from(lines), unmapped)
            }
        };
        if unmapped == batch.messages.len() {
            return SinkVerdict::Taken { unmapped };
        }
        let answered = tokio::time::timeout(self.timeout, self.ask(batch.number, kind, body)).await;
        let verdict = match answered {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => SinkVerdict::Later { after: None, why: in_words(&error) },
            Err(_) => SinkVerdict::Later { after: None, why: format!("no answer in {} s", self.timeout.as_secs_f64()) },
        };
        match verdict {
            SinkVerdict::Taken { .. } => SinkVerdict::Taken { unmapped },
            verdict => {
                // Whatever state it is in: the next request begins anew.
                self.connection = None;
                verdict
            }
        }
    }

    async fn ask(&mut self, number: u64, kind: &str, body: Bytes) -> Result<SinkVerdict> {
        let mut request = self.request(number, kind, body.clone())?;
        if let Some(mut kept) = self.connection.take()
            && kept.ready().await.is_ok()
        {
            match kept.try_send_request(request).await {
                Ok(answer) => return self.judge(kept, answer).await,
                // It was closed meanwhile, and nothing was sent: a new one is as good.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None if error.error().is_incomplete_message() || error.error().is_canceled() => {
                        request = self.request(number, kind, body)?;
                    }
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut fresh = self.connect().await?;
        let answer = fresh.send_request(request).await?;
        self.judge(fresh, answer).await
    }

    async fn judge(
        &mut self,
        connection: SendRequest<Full<Bytes>>,
        answer: hyper::Response<hyper::body::Incoming>,
    ) -> Result<SinkVerdict> {
        let status = answer.status().as_u16();
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        match Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => {
                self.connection = Some(connection);
                let words = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                Ok(SinkVerdict::of_status(status, after.map(Duration::from_secs), &words))
            }
            // The status was said; what follows it is nobody's business.
            Err(_) => Ok(SinkVerdict::of_status(status, after.map(Duration::from_secs), "")),
        }
    }

    fn request(&self, number: u64, kind: &str, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.at.path())
            .header(HOST, self.at.authority())
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, kind);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let WebWords::Webhook { key } = &self.words {
            let (id, seconds) = (format!("{}-{number}", self.life), seconds());
            if let Some(key) = key {
                request = request.header("webhook-signature", signature::sign(key, &id, seconds, &body));
            }
            request = request.header("webhook-id", id).header("webhook-timestamp", seconds);
        }
        Ok(request.body(Full::new(body))?)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let (host, port) = self.at.host_and_port();
        let tcp = TcpStream::connect((host, port)).await?;
        tcp.set_nodelay(true)?;
        match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                begin(TokioIo::new(tls.connect(name, tcp).await?)).await
            }
            None => begin(TokioIo::new(tcp)).await,
        }
    }
}

/// HTTP over a stream; its other half lives as long as it is used.
async fn begin<S>(stream: S) -> Result<SendRequest<Full<Bytes>>>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(stream).await?;
    tokio::spawn(async move {
        // What goes wrong is said to whoever asks.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Lines have times in milliseconds, and InfluxDB is to know it.
fn in_milliseconds(at: &WebAddress) -> WebAddress {
    let with = |sign: char| WebAddress::parse(&format!("{at}{sign}precision=ms")).unwrap_or_else(|| at.clone());
    match at.path() {
        path if path.contains("precision=") => at.clone(),
        path if path.contains('?') => with('&'),
        _ => with('?'),
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// With its cause: "error sending request" alone helps nobody.
fn in_words(error: &anyhow::Error) -> String {
    format!("{error:#}")
}
