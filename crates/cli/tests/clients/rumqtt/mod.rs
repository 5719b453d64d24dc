//! `rumqttc`, both of its clients. What the versions have in common is tested once, in `common.rs`, on [`Client`].

mod common;
mod properties;
mod users;
mod v4;
mod v5;

use std::time::Duration;

use ::rumqttc::{TlsConfiguration, Transport};

use crate::broker::{Broker, HOST};

/// Longest wait for one packet: a guard, not a measure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Requests that a client holds before it sends them; the longest burst here has 1000.
const REQUESTS_MAX: usize = 2048;
/// Longest packet that a client accepts.
const PACKET_BYTES_MAX: u32 = 1024 * 1024;

/// A message as it is sent, and as it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
}

impl Message {
    fn new(topic: &str, qos: u8, payload: impl Into<Vec<u8>>) -> Self {
        Self { topic: topic.to_owned(), payload: payload.into(), qos, retain: false }
    }

    fn retained(self) -> Self {
        Self { retain: true, ..self }
    }
}

/// How a client comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Mqtt,
    Mqtts,
    Ws,
    Wss,
}

/// What a client says when it connects.
#[derive(Clone, Debug)]
struct Hello<'a> {
    id: &'a str,
    door: Door,
    /// Whether it starts afresh and leaves nothing behind; otherwise its session is kept.
    clean: bool,
    will: Option<Message>,
}

impl<'a> Hello<'a> {
    fn new(id: &'a str) -> Self {
        Self { id, door: Door::Mqtt, clean: true, will: None }
    }

    fn by(self, door: Door) -> Self {
        Self { door, ..self }
    }

    fn keeping(self) -> Self {
        Self { clean: false, ..self }
    }

    fn with_will(self, will: Message) -> Self {
        Self { will: Some(will), ..self }
    }

    /// Host (or address, for WebSocket), port and transport, as rumqttc wants them.
    fn target(&self, broker: &Broker) -> (String, u16, Transport) {
        let ports = broker.ports;
        let host = || HOST.to_owned();
        let tls = || {
            let ca = std::fs::read(broker.ca_file()).expect("the certificate");
            TlsConfiguration::Simple { ca, alpn: None, client_auth: None }
        };
        match self.door {
            Door::Mqtt => (host(), ports.mqtt, Transport::Tcp),
            Door::Mqtts => (host(), ports.mqtts, Transport::Tls(tls())),
            Door::Ws => (format!("ws://{HOST}:{}/mqtt", ports.ws), ports.ws, Transport::Ws),
            Door::Wss => (format!("wss://{HOST}:{}/mqtt", ports.wss), ports.wss, Transport::Wss(tls())),
        }
    }
}

/// What both versions can do. A client is driven by the calls below; dropping it cuts the connection without a word.
trait Client: Sized {
    /// Connects; also says whether the broker had a session.
    fn connect(broker: &Broker, hello: &Hello<'_>) -> (Self, bool);
    /// Subscribes and returns the granted quality of service.
    fn subscribe(&mut self, filter: &str, qos: u8) -> u8;
    /// Unsubscribes and waits for the answer.
    fn unsubscribe(&mut self, filter: &str);
    /// Publishes all and waits until each is acknowledged as its quality of service wants.
    fn publish(&mut self, messages: &[Message]);
    /// The next message that arrives.
    fn receive(&mut self) -> Message;
    /// Says goodbye and waits until the broker has closed the connection.
    fn disconnect(self);

    /// A client with a clean session.
    fn open(broker: &Broker, id: &str) -> Self {
        Self::connect(broker, &Hello::new(id)).0
    }

    /// The next messages.
    fn receive_many(&mut self, count: usize) -> Vec<Message> {
        (0..count).map(|_| self.receive()).collect()
    }
}
