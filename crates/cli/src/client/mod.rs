//! A small blocking MQTT client for `pub`, `sub` and the demonstration: a socket and a clock around the client library's
//! [`MqttConnection`], one thread, QoS 0 to 2 in both directions.
//!
//! The owner asks for the [`next`](BlockingClient::next) thing that happened, with a deadline; pings and acknowledgements are
//! done on the way. It refuses to know about reconnecting, files and terminals.

pub(crate) mod again;
mod error;
mod link;
mod options;
pub(crate) mod properties;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use tidegate_client::session::mqtt::connection::{
    BrokerReason, ConnectionBounds, MqttConnection, PacketMeaning, PacketTooLarge,
};
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::property::PropertySite;
use tidegate_wire_mqtt::{
    Connect, Decoded, Delivery, Disconnect, Limits, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode,
    Sender, Subscribe, Subscription, SubscriptionList, TopicFilter, TopicFilters, Unsubscribe, Version, Will, decode,
};

pub(crate) use tidegate_client::session::mqtt::connection::ReceivedMessage;

pub(crate) use error::ClientError;
use link::BrokerLink;
pub(crate) use options::{BrokerAddress, ConnectOptions, WillMessage};

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Happened {
    /// A message arrived, and was acknowledged.
    Message(ReceivedMessage),
    /// A message of ours is done, well or not; and when a refused one may come again.
    Published(PacketId, ReasonCode, Option<Duration>),
    /// A subscription was answered.
    Subscribed(Vec<ReasonCode>),
    /// An unsubscription was answered.
    Unsubscribed,
    /// The deadline passed, or a signal came.
    Nothing,
}

/// A connection to a broker.
pub(crate) struct BlockingClient {
    link: BrokerLink,
    connection: MqttConnection,
    hello: ConnectOptions,
    /// The beginning of its time.
    started: Instant,
    /// Messages of ours that are not done.
    outgoing: BTreeSet<PacketId>,
    /// How many of ours may be under way, whatever the broker allows.
    window_max: usize,
    /// A message is being written.
    is_publishing: bool,
    /// Something came from the broker.
    has_heard: bool,
}

/// Reads never take longer, so that a signal is noticed that came just before.
const READ_MAX: Duration = Duration::from_secs(1);

/// How long a broker may take to answer CONNECT.
const ANSWER_MAX: Duration = Duration::from_secs(30);

impl BlockingClient {
    /// Connects and waits for the broker's answer.
    pub(crate) fn connect(target: &BrokerAddress, hello: ConnectOptions) -> Result<Self, ClientError> {
        let link = BrokerLink::open(target)?;
        let bounds = ConnectionBounds {
            // Whatever the broker sends is printed, not kept: its own limits are enough.
            limits: Limits { packet_bytes_max: u32::MAX, topic_levels_max: usize::MAX, ..Limits::default() },
            window_max: usize::from(u16::MAX),
            aliases_max: usize::from(u16::MAX),
            keep_alive_min: Duration::ZERO,
        };
        let mut client = Self {
            link,
            connection: MqttConnection::new(hello.version, bounds),
            hello,
            started: Instant::now(),
            outgoing: BTreeSet::new(),
            window_max: usize::MAX,
            is_publishing: false,
            has_heard: false,
        };
        client.say_hello()?;
        client.await_connack(Instant::now() + ANSWER_MAX)?;
        Ok(client)
    }

    fn say_hello(&mut self) -> Result<(), ClientError> {
        let hello = self.hello.clone();
        let mut properties = properties::of_site(&hello.properties, PropertySite::Connect);
        properties.extend(hello.session_expiry.map(Property::SessionExpiry));
        let of_will = properties::of_site(&hello.properties, PropertySite::Will);
        let will = hello.will.as_ref().map(|will| Will {
            qos: will.qos,
            retain: will.retain,
            properties: Properties::new(&of_will),
            topic: &will.topic,
            payload: &will.payload,
        });
        let greeting = Connect {
            version: hello.version,
            is_bridge: false,
            clean_start: hello.clean_start,
            keep_alive: hello.keep_alive,
            properties: Properties::new(&properties),
            client_id: &hello.client_id,
            will,
            user_name: hello.user.as_deref(),
            password: hello.password.as_deref().map(str::as_bytes),
        };
        self.connection.open(&greeting, self.now()).map_err(too_large)?;
        self.flush()
    }

    /// Waits for the broker's answer.
    fn await_connack(&mut self, deadline: Instant) -> Result<(), ClientError> {
        loop {
            if let Some(meaning) = self.poll_packet() {
                if let PacketMeaning::Connected { .. } = meaning {
                    return Ok(());
                }
                self.happened(meaning)?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::Silent);
            }
            self.read_some(left.min(READ_MAX))?;
        }
    }

    /// Sends a message. At QoS 1 and 2 [`Happened::Published`] follows, with the identifier that is returned; there must
    /// be [room](Self::has_room).
    pub(crate) fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        retain: bool,
    ) -> Result<Option<PacketId>, ClientError> {
        let delivery = match qos {
            QoS::AtMostOnce => Delivery::AtMostOnce,
            QoS::AtLeastOnce => Delivery::AtLeastOnce { packet_id: self.take_id(), dup: false },
            QoS::ExactlyOnce => Delivery::ExactlyOnce { packet_id: self.take_id(), dup: false },
        };
        self.outgoing.extend(delivery.packet_id());
        let typed = self.hello.properties.clone();
        let properties = properties::of_site(&typed, PropertySite::Publish);
        let properties = Properties::new(&properties);
        self.is_publishing = true;
        self.send(&Packet::Publish(Publish { delivery, retain, topic, properties, payload }))?;
        self.is_publishing = false;
        Ok(delivery.packet_id())
    }

    /// Not more of ours are under way than this, whatever the broker allows.
    pub(crate) fn limit_window(&mut self, max: u16) {
        self.window_max = usize::from(max.max(1));
    }

    /// Whether one more message may be under way.
    pub(crate) fn has_room(&self) -> bool {
        self.outgoing.len() < self.connection.window().min(self.window_max)
    }

    /// Messages of ours that are not done.
    pub(crate) fn under_way(&self) -> usize {
        self.outgoing.len()
    }

    /// The same error, or one that says more: which it is if the broker closed while a message was under way.
    pub(crate) fn explain(&self, error: ClientError) -> ClientError {
        let is_under_way = self.is_publishing || !self.outgoing.is_empty();
        match error {
            ClientError::Lost(error) if is_under_way && !self.version().is_v5() => ClientError::LostAfterPublish(error),
            error => error,
        }
    }

    /// The version that was agreed on.
    pub(crate) fn version(&self) -> Version {
        self.connection.version()
    }

    /// Asks for messages; [`Happened::Subscribed`] follows.
    pub(crate) fn subscribe(&mut self, list: &[Subscription<'_>]) -> Result<(), ClientError> {
        let typed = self.hello.properties.clone();
        let properties = properties::of_site(&typed, PropertySite::Subscribe);
        let packet_id = self.take_id();
        let properties = Properties::new(&properties);
        self.send(&Packet::Subscribe(Subscribe { packet_id, properties, subscriptions: SubscriptionList::new(list) }))
    }

    /// Asks for them no more; [`Happened::Unsubscribed`] follows.
    pub(crate) fn unsubscribe(&mut self, list: &[TopicFilter<'_>]) -> Result<(), ClientError> {
        let typed = self.hello.properties.clone();
        let properties = properties::of_site(&typed, PropertySite::Unsubscribe);
        let packet_id = self.take_id();
        let properties = Properties::new(&properties);
        self.send(&Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters: TopicFilters::new(list) }))
    }

    /// Says goodbye; the will is not published.
    pub(crate) fn disconnect(mut self) {
        let typed = self.hello.properties.clone();
        let properties = properties::of_site(&typed, PropertySite::Disconnect);
        let packet = Disconnect { reason: ReasonCode::Success, properties: Properties::new(&properties) };
        // The connection may be gone already; then everybody knows.
        let _ = self.send(&Packet::Disconnect(packet));
        self.link.close();
    }

    /// Waits for the next thing to happen, at most until `deadline`.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Happened, ClientError> {
        loop {
            if let Some(happened) = self.take_packet()? {
                return Ok(happened);
            }
            let now = Instant::now();
            let wake = self.keep_alive_turn(now)?;
            let wait = wake.into_iter().chain(deadline).map(|at| at.saturating_duration_since(now)).min();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(Happened::Nothing);
            }
            if !self.read_some(wait.map_or(READ_MAX, |wait| wait.min(READ_MAX)))? {
                return Ok(Happened::Nothing);
            }
        }
    }

    /// Pings when it is time, and says when it is time again.
    fn keep_alive_turn(&mut self, now: Instant) -> Result<Option<Instant>, ClientError> {
        if !self.connection.turn(self.timestamp(now)) {
            return Err(ClientError::Silent);
        }
        self.flush()?;
        Ok(self.connection.poll_timeout().map(|at| self.started + at.since(Timestamp::ZERO)))
    }

    /// The next packet that means something to the owner.
    fn take_packet(&mut self) -> Result<Option<Happened>, ClientError> {
        while let Some(meaning) = self.poll_packet() {
            let happened = self.happened(meaning)?;
            self.flush()?;
            if happened.is_some() {
                return Ok(happened);
            }
        }
        Ok(None)
    }

    fn poll_packet(&mut self) -> Option<PacketMeaning> {
        let is_debug = self.hello.debug;
        self.connection.poll_packet(|kind, len| {
            if is_debug {
                eprintln!("received {kind:?}, {len} bytes");
            }
        })
    }

    fn happened(&mut self, meaning: PacketMeaning) -> Result<Option<Happened>, ClientError> {
        Ok(match meaning {
            PacketMeaning::Nothing | PacketMeaning::Connected { .. } | PacketMeaning::Stored(_) => None,
            PacketMeaning::Message(message) => {
                if let Some(id) = message.packet_id {
                    self.connection.acknowledge(message.qos, id);
                }
                Some(Happened::Message(message))
            }
            PacketMeaning::Done(id, BrokerReason { reason, hints, .. }) => {
                self.outgoing.remove(&id).then_some(Happened::Published(id, reason, hints.retry_after))
            }
            PacketMeaning::Subscribed(_, reasons) => Some(Happened::Subscribed(reasons)),
            PacketMeaning::Unsubscribed(_) => Some(Happened::Unsubscribed),
            PacketMeaning::Refused(BrokerReason { reason, detail, .. }) => {
                let had_credentials = self.hello.user.is_some() || self.hello.password.is_some();
                return Err(ClientError::Refused { reason, version: self.version(), detail, had_credentials });
            }
            PacketMeaning::Ended(BrokerReason { reason, detail, .. }) => {
                return Err(ClientError::Ended { reason, detail });
            }
            PacketMeaning::Nonsense(what) => return Err(ClientError::Protocol(what)),
        })
    }

    /// Reads what is there; false if nothing came in this time or a signal did.
    fn read_some(&mut self, wait: Duration) -> Result<bool, ClientError> {
        self.link.set_read_timeout(wait).map_err(ClientError::Lost)?;
        let mut buffer = [0; 16 * 1024];
        match self.link.read(&mut buffer) {
            Ok(0) => Err(ClientError::Lost(io::Error::new(ErrorKind::UnexpectedEof, "the broker closed it"))),
            Ok(len) if self.is_tls_alert(&buffer[..len]) => Err(ClientError::SpeaksTls),
            Ok(len) => {
                self.has_heard = true;
                self.connection.handle_bytes(&buffer[..len]);
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(false),
                _ => Err(error.into()),
            },
        }
    }

    /// Whether the first that is heard is what a TLS server says to whoever does not speak TLS: an alert (21), of version 3.
    fn is_tls_alert(&self, bytes: &[u8]) -> bool {
        !self.has_heard && matches!(self.link, BrokerLink::Plain(_)) && bytes.starts_with(&[21, 3])
    }

    fn send(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        self.connection.write(packet).map_err(too_large)?;
        self.flush()
    }

    /// Sends what is written.
    fn flush(&mut self) -> Result<(), ClientError> {
        let bytes = self.connection.take_output();
        if bytes.is_empty() {
            return Ok(());
        }
        if self.hello.debug {
            self.trace(&bytes);
        }
        self.connection.note_sent(self.now());
        Ok(self.link.write_all(&bytes).and_then(|()| self.link.flush())?)
    }

    /// Says which packets are sent.
    fn trace(&self, mut bytes: &[u8]) {
        let limits = self.connection.limits().clone().with_sender(Sender::Client);
        while let Ok(Decoded::Packet { packet, consumed }) = decode(bytes, self.version(), &limits) {
            eprintln!("sending {:?}, {consumed} bytes", packet.kind());
            bytes = &bytes[consumed..];
        }
    }

    fn take_id(&mut self) -> PacketId {
        let outgoing = &self.outgoing;
        self.connection.take_id(|id| outgoing.contains(&id))
    }

    fn now(&self) -> Timestamp {
        self.timestamp(Instant::now())
    }

    fn timestamp(&self, at: Instant) -> Timestamp {
        Timestamp::ZERO + at.saturating_duration_since(self.started)
    }
}

fn too_large(PacketTooLarge { bytes, most }: PacketTooLarge) -> ClientError {
    ClientError::TooLarge { bytes, most }
}

#[cfg(test)]
mod tests;
