//! A small blocking MQTT client for `pub` and `sub`: one thread, one connection, QoS 0 to 2 in both directions.
//!
//! The owner asks for the [`next`](BlockingClient::next) thing that happened, with a deadline; pings and acknowledgements are
//! done on the way. It refuses to know about reconnecting, files and terminals.

pub(crate) mod again;
mod error;
mod link;
pub(crate) mod properties;
mod receive;
pub(crate) mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use tidegate_wire_mqtt::property::PropertySite;
use tidegate_wire_mqtt::{
    Connect, Delivery, Disconnect, Encode, Encoded, Limits, Packet, PacketId, Peer, Properties, Property, Publish, QoS,
    ReasonCode, Subscribe, Subscription, SubscriptionList, TopicFilter, TopicFilters, Unsubscribe, Version, Will,
};

pub(crate) use error::ClientError;
use link::BrokerLink;
use properties::Typed;
use tls::Trust;

/// Where the broker is.
#[derive(Clone, Debug)]
pub(crate) struct BrokerAddress {
    /// Name or address.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// TLS, if it is to be used.
    pub(crate) tls: Option<Trust>,
    /// Our own end, if it matters.
    pub(crate) from: Option<IpAddr>,
}

/// What to say in CONNECT.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    /// The version of the connection.
    pub(crate) version: Version,
    /// Empty: the broker chooses.
    pub(crate) client_id: String,
    /// Forget a session from before.
    pub(crate) clean_start: bool,
    /// Seconds; 0 is never.
    pub(crate) keep_alive: u16,
    /// User name.
    pub(crate) user: Option<String>,
    /// Password.
    pub(crate) password: Option<String>,
    /// What to publish when we die.
    pub(crate) will: Option<WillMessage>,
    /// Properties of all packets.
    pub(crate) properties: Vec<Typed>,
    /// Seconds that the session outlives the connection (MQTT 5).
    pub(crate) session_expiry: Option<u32>,
    /// Print what is sent and received.
    pub(crate) debug: bool,
}

/// A will.
#[derive(Clone, Debug)]
pub(crate) struct WillMessage {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
}

/// A message that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    /// 0 at QoS 0.
    pub(crate) packet_id: u16,
    /// Properties as on the wire; read them with [`Properties::from_encoded`].
    pub(crate) properties: Vec<u8>,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Happened {
    /// A message arrived, and was acknowledged.
    Message(ReceivedMessage),
    /// A message of ours is done, well or not.
    Published(PacketId, ReasonCode),
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
    peer: Peer,
    limits: Limits,
    hello: ConnectOptions,
    /// Bytes that arrived; those before `read` are done with.
    inbox: Vec<u8>,
    read: usize,
    last_sent: Instant,
    /// When a ping was sent that has no answer yet.
    pinged: Option<Instant>,
    /// Zero is never.
    keep_alive: Duration,
    next_id: PacketId,
    /// Messages of ours that are not done.
    outgoing: BTreeSet<PacketId>,
    /// QoS 2 messages that arrived and are not released.
    incoming: BTreeSet<PacketId>,
    /// How many of ours may be under way (Receive Maximum).
    window: usize,
    aliases: BTreeMap<NonZeroU16, String>,
    /// A message is being written.
    is_publishing: bool,
}

/// Reads never take longer, so that a signal is noticed that came just before.
const READ_MAX: Duration = Duration::from_secs(1);

/// How long a broker may take to answer CONNECT.
const ANSWER_MAX: Duration = Duration::from_secs(30);

impl BlockingClient {
    /// Connects and waits for the broker's answer.
    pub(crate) fn connect(target: &BrokerAddress, hello: ConnectOptions) -> Result<Self, ClientError> {
        let link = BrokerLink::open(target)?;
        let version = hello.version;
        // Whatever the broker sends is printed, not kept: its own limits are enough.
        let limits = Limits { packet_bytes_max: u32::MAX, topic_levels_max: usize::MAX, ..Limits::default() };
        let mut client = Self {
            link,
            peer: Peer::new(version),
            limits: limits.with_sender(tidegate_wire_mqtt::Sender::Server),
            keep_alive: Duration::from_secs(hello.keep_alive.into()),
            hello,
            inbox: Vec::new(),
            read: 0,
            last_sent: Instant::now(),
            pinged: None,
            next_id: PacketId::MIN,
            outgoing: BTreeSet::new(),
            incoming: BTreeSet::new(),
            window: usize::from(u16::MAX),
            aliases: BTreeMap::new(),
            is_publishing: false,
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
        self.send(&Packet::Connect(Connect {
            version: hello.version,
            clean_start: hello.clean_start,
            keep_alive: hello.keep_alive,
            properties: Properties::new(&properties),
            client_id: &hello.client_id,
            will,
            user_name: hello.user.as_deref(),
            password: hello.password.as_deref().map(str::as_bytes),
        }))
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
        self.window = self.window.min(usize::from(max.max(1)));
    }

    /// Whether one more message may be under way.
    pub(crate) fn has_room(&self) -> bool {
        self.outgoing.len() < self.window
    }

    /// Messages of ours that are not done.
    pub(crate) fn under_way(&self) -> usize {
        self.outgoing.len()
    }

    /// The same error, or one that says more: which it is if the broker closed while a message was under way.
    pub(crate) fn explain(&self, error: ClientError) -> ClientError {
        let is_under_way = self.is_publishing || !self.outgoing.is_empty();
        match error {
            ClientError::Lost(error) if is_under_way && !self.peer.version.is_v5() => {
                ClientError::LostAfterPublish(error)
            }
            error => error,
        }
    }

    /// The version that was agreed on.
    pub(crate) fn version(&self) -> Version {
        self.peer.version
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
        if self.keep_alive.is_zero() {
            return Ok(None);
        }
        if let Some(pinged) = self.pinged {
            let patience = pinged + self.keep_alive;
            return if now >= patience { Err(ClientError::Silent) } else { Ok(Some(patience)) };
        }
        // A little early, so that the broker's clock is not the one that decides.
        let due = self.last_sent + self.keep_alive.mul_f32(0.9);
        if now < due {
            return Ok(Some(due));
        }
        self.send(&Packet::PingReq)?;
        self.pinged = Some(now);
        Ok(Some(now + self.keep_alive))
    }

    /// Reads what is there; false if nothing came in this time or a signal did.
    fn read_some(&mut self, wait: Duration) -> Result<bool, ClientError> {
        self.link.set_read_timeout(wait).map_err(ClientError::Lost)?;
        self.inbox.drain(..self.read);
        self.read = 0;
        let mut buffer = [0; 16 * 1024];
        match self.link.read(&mut buffer) {
            Ok(0) => Err(ClientError::Lost(io::Error::new(ErrorKind::UnexpectedEof, "the broker closed it"))),
            Ok(len) => {
                self.inbox.extend_from_slice(&buffer[..len]);
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(false),
                _ => Err(error.into()),
            },
        }
    }

    fn send(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        match packet.encode(self.peer, &mut bytes) {
            Encoded::Written { .. } | Encoded::Trimmed { .. } => {}
            Encoded::TooLarge | Encoded::NotInVersion => {
                let most = Some(self.peer.packet_bytes_max).filter(|most| *most < u32::MAX);
                return Err(ClientError::TooLarge { bytes: packet.encoded_len(self.peer.version), most });
            }
        }
        if self.hello.debug {
            eprintln!("sending {:?}, {} bytes", packet.kind(), bytes.len());
        }
        self.last_sent = Instant::now();
        Ok(self.link.write_all(&bytes).and_then(|()| self.link.flush())?)
    }

    /// A packet identifier that is free. There is one: the window is smaller than their number.
    fn take_id(&mut self) -> PacketId {
        loop {
            let id = self.next_id;
            self.next_id = id.checked_add(1).unwrap_or(PacketId::MIN);
            if !self.outgoing.contains(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests;
