//! A client for what is not measured: holding subscriptions, reading counters. Blocking, one packet after the other, around
//! the client library's connection. What is measured has no such client: the generator writes messages from a template and
//! reads only their heads (`packets.rs`, `receive.rs`), because a client that understands all would be what is measured.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tidegate_client::session::mqtt::connection::{ConnectionBounds, MqttConnection, PacketMeaning, PacketTooLarge};
use tidegate_control::Timestamp;
use tidegate_wire_mqtt::{
    Connect, Limits, Packet, Properties, QoS, Subscribe, Subscription, SubscriptionList, SubscriptionOptions,
    TopicFilter,
};

use super::packets::{self, PEER, SessionLifetime};

/// The longest that a broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Filters of one SUBSCRIBE: fewer than any broker refuses.
const FILTERS_PER_PACKET: usize = 50;
/// Bytes of one packet that are waited for.
const PACKET_BYTES_MAX: u32 = 1024 * 1024;

/// A connected client.
#[derive(Debug)]
pub(super) struct PlainClient {
    socket: TcpStream,
    connection: MqttConnection,
}

impl PlainClient {
    /// Connects and waits for the welcome.
    pub(super) fn connect(address: SocketAddr, id: &str) -> Result<Self> {
        Self::connect_as(address, id, SessionLifetime::Clean)
    }

    /// The same with a session that lasts, or not.
    pub(super) fn connect_as(address: SocketAddr, id: &str, stay: SessionLifetime) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&address, ANSWER_MAX).context("cannot connect")?;
        socket.set_nodelay(true)?;
        let limits = Limits { packet_bytes_max: PACKET_BYTES_MAX, ..packets::limits() };
        let bounds = ConnectionBounds { limits, window_max: 1, aliases_max: 0, keep_alive_min: Duration::ZERO };
        let mut client = Self { socket, connection: MqttConnection::new(PEER.version, bounds) };
        let greeting = Connect {
            version: PEER.version,
            is_bridge: false,
            clean_start: stay == SessionLifetime::Clean,
            keep_alive: packets::KEEP_ALIVE,
            properties: Properties::EMPTY,
            client_id: id,
            will: None,
            user_name: None,
            password: None,
        };
        client.connection.open(&greeting, Timestamp::ZERO).map_err(too_large)?;
        match client.hear(ANSWER_MAX)? {
            Some(PacketMeaning::Connected { .. }) => Ok(client),
            other => bail!("no welcome, but {other:?}"),
        }
    }

    /// The socket alone, for who speaks by hand from here on.
    pub(super) fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Subscribes to all of these, a batch at a time, and waits until they are granted.
    pub(super) fn subscribe(&mut self, filters: &[String], qos: QoS) -> Result<()> {
        let options = SubscriptionOptions::with_qos(qos);
        for batch in filters.chunks(FILTERS_PER_PACKET) {
            let parsed = batch.iter().map(|name| {
                let filter = TopicFilter::parse(name, &packets::limits());
                let filter = filter.map_err(|rule| anyhow!("{name:?}: {}", rule.detail))?;
                Ok(Subscription { filter, options })
            });
            let wanted = parsed.collect::<Result<Vec<_>>>()?;
            let (packet_id, properties) = (self.connection.take_id(|_| false), Properties::EMPTY);
            let subscriptions = SubscriptionList::new(&wanted);
            let packet = Packet::Subscribe(Subscribe { packet_id, properties, subscriptions });
            self.connection.write(&packet).map_err(too_large)?;
            loop {
                match self.hear(ANSWER_MAX)? {
                    Some(PacketMeaning::Subscribed(_, reasons)) if reasons.iter().any(|reason| reason.is_failure()) => {
                        bail!("a subscription was refused")
                    }
                    Some(PacketMeaning::Subscribed(..)) => break,
                    Some(_) => {}
                    None => bail!("no answer to a subscription"),
                }
            }
        }
        Ok(())
    }

    /// Listens for so long; the payload that came last.
    pub(super) fn last_payload(&mut self, time: Duration) -> Result<Option<Vec<u8>>> {
        let end = Instant::now() + time;
        let mut last = None;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.hear(left)? {
                Some(PacketMeaning::Message(message)) => last = Some(message.payload),
                Some(_) => {}
                None => return Ok(last),
            }
        }
    }

    /// Sends what is written; the next packet, if one comes in time.
    fn hear(&mut self, time: Duration) -> Result<Option<PacketMeaning>> {
        self.socket.write_all(&self.connection.take_output())?;
        let end = Instant::now() + time;
        loop {
            match self.connection.poll_packet(|_, _| ()) {
                Some(PacketMeaning::Refused(told)) => bail!("refused: {:?}", told.reason),
                Some(PacketMeaning::Nonsense(what)) => bail!("no MQTT: {what}"),
                Some(meaning) => return Ok(Some(meaning)),
                None => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) => bail!("closed by the broker"),
                Ok(count) => self.connection.handle_bytes(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn too_large(packet: PacketTooLarge) -> anyhow::Error {
    anyhow!("a packet could not be encoded: {packet:?}")
}
