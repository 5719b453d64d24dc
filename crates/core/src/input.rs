//! Bytes of a connected client: decoded and handed to the file of their packet.

use alloc::boxed::Box;
use alloc::format;
use core::fmt::Write;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::{AckKind, Decoded, Disconnect, Packet, PeerError, ReasonCode, decode};

use crate::connection::Connection;
use crate::event::Why;
use crate::limits::PACKETS_PER_INPUT_MAX;
use crate::shard::{ConnId, Progress, Then};
use crate::state::{ShardState, WillFate};

/// How much of a connection is handled at once, and what is known of how it came.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    /// The bytes may have come at any time since then.
    pub since: Timestamp,
    /// When the connection was last known to be read dry.
    pub dry_at: Timestamp,
    /// Units of work after which the rest is left: one for each packet, one for each KiB of it, and one for eight copies.
    /// One packet at least is handled.
    pub units: u32,
}

/// Eighths of a unit, rounded up.
fn whole(eighths: u64) -> u32 {
    u32::try_from(eighths.div_ceil(8)).unwrap_or(u32::MAX)
}

/// Bytes of a packet that cost an eighth of a unit.
const COST_BYTES: usize = 128;

/// Whether a packet ended its connection.
pub(crate) type Handled = Result<(), Ending>;

/// What became of a packet that did not end its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It was dealt with.
    On,
    /// It was not, and is to be handed in again when the connection, paused now, is read again.
    Wait,
}

/// How a packet ended its connection. In a box: it is rare, and the answer to every packet has room for it.
#[derive(Debug)]
pub(crate) struct Ending(Box<(Why, WillFate)>);

impl Ending {
    pub(crate) fn new(why: Why, will: WillFate) -> Self {
        Self(Box::new((why, will)))
    }

    /// The client broke a rule.
    pub(crate) fn protocol(reason: ReasonCode, detail: &str) -> Self {
        Self::new(Why::Protocol { reason, detail: detail.into() }, WillFate::Publish)
    }

    pub(crate) fn into_parts(self) -> (Why, WillFate) {
        *self.0
    }
}

impl From<PeerError> for Ending {
    fn from(error: PeerError) -> Self {
        Self::new(Why::Protocol { reason: error.reason, detail: format!("{error}") }, WillFate::Publish)
    }
}

impl ShardState {
    pub(crate) fn handle_input(&mut self, conn: ConnId, bytes: &[u8], now: Timestamp) -> Progress {
        self.handle_input_since(conn, bytes, now, now)
    }

    pub(crate) fn handle_input_since(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        since: Timestamp,
        now: Timestamp,
    ) -> Progress {
        self.handle_portion(conn, bytes, &Portion { since, dry_at: now, units: u32::MAX }, now)
    }

    pub(crate) fn handle_portion(&mut self, conn: ConnId, bytes: &[u8], portion: &Portion, now: Timestamp) -> Progress {
        let Portion { since, dry_at, units } = *portion;
        self.settle_memory();
        let mut consumed = 0;
        // In eighths of a unit.
        let (mut used, most) = (0_u64, u64::from(units) * 8);
        self.gate.begin_reading(dry_at, now);
        self.saturation.begin_reading();
        if let Some(connection) = self.connection_mut(conn) {
            connection.dry_at = dry_at;
        }
        let lag = now.as_nanos().saturating_sub(since.as_nanos());
        let lag_per_byte = lag as f64 / bytes.len().max(1) as f64;
        for _ in 0..PACKETS_PER_INPUT_MAX {
            if used >= most {
                break;
            }
            let Some(connection) = self.connection_mut(conn).filter(|connection| !connection.is_closing) else {
                return Progress { consumed: bytes.len(), at_least: 0, then: Then::Close, units: whole(used) };
            };
            if connection.pause.is_some() {
                return Progress { consumed, at_least: 1, then: Then::Pause, units: whole(used) };
            }
            connection.seen_at = now;
            if consumed > 0 {
                connection.partial = None;
            }
            let version = connection.peer.version;
            let rest = &bytes[consumed..];
            let handled = match decode(rest, version, &self.limits) {
                Ok(Decoded::Packet { packet, consumed: size }) => {
                    let behind = (bytes.len() - consumed - size) as f64 * lag_per_byte;
                    let likely = Timestamp::from_nanos(now.as_nanos().saturating_sub(behind as u64));
                    let came = ArrivalTime::new(since, likely, now);
                    let copies = self.copies;
                    let handled = self.handle_packet(conn, &packet, came, now);
                    self.journal.end_whole();
                    if self.saturation.is_too_much_turned_away() {
                        self.pause_turned_away(conn, now);
                    }
                    used += 8 + (size / COST_BYTES) as u64 + (self.copies - copies);
                    if matches!(handled, Ok(Flow::Wait)) {
                        self.note_whole(conn);
                    } else {
                        consumed += size;
                        self.count_received(conn, size, matches!(packet, Packet::Publish(_)), now);
                    }
                    handled
                }
                Ok(Decoded::Incomplete { at_least }) => {
                    if !rest.is_empty() {
                        self.expect_rest(conn, at_least, now);
                    }
                    return self.progress(conn, consumed, at_least, used);
                }
                Err(error) => Err(self.broken(error)),
            };
            if let Err(ending) = handled {
                let (why, will) = ending.into_parts();
                self.end_connection(conn, why, will, now);
                return Progress { consumed: bytes.len(), at_least: 0, then: Then::Close, units: whole(used) };
            }
        }
        // What was being received is here, and what follows it may be whole: nobody waits for its rest.
        if let Some(connection) = self.connection_mut(conn).filter(|_| consumed > 0) {
            connection.partial = None;
        }
        self.progress(conn, consumed, 1, used)
    }

    /// A packet that was dealt with. (One that waits will come again, and is counted then.)
    #[inline]
    fn count_received(&mut self, conn: ConnId, size: usize, is_publish: bool, now: Timestamp) {
        self.stats.packets_received += 1;
        self.stats.bytes_received += size as u64;
        self.stats.publish_received += u64::from(is_publish);
        if let Some(connection) = self.connections.get_mut(conn.index) {
            connection.traffic.bytes_received += size as u64;
            connection.traffic.received += u64::from(is_publish);
            if !is_publish {
                connection.unread_since = None;
                connection.silent.spend(now);
            }
        }
    }

    /// What a client did wrong; of a packet that is too large also what would have been accepted.
    #[cold]
    fn broken(&self, error: PeerError) -> Ending {
        let mut ending = Ending::from(error);
        if let (ReasonCode::PacketTooLarge, Why::Protocol { detail, .. }) = (error.reason, &mut ending.0.0) {
            let _ = write!(detail, "; at most {} bytes are accepted", self.limits.packet_bytes_max);
        }
        ending
    }

    /// Whoever does not take its answers is not asked for more: TCP tells it to wait.
    fn progress(&self, conn: ConnId, consumed: usize, at_least: usize, used: u64) -> Progress {
        let is_full = |connection: &Connection| {
            connection.answer_bytes > self.settings.outbox_bytes_max || connection.is_owed_much()
        };
        let is_clogged = self.links.is_clogged() || self.connection(conn).is_some_and(is_full);
        let then = if is_clogged { Then::Pause } else { Then::Continue };
        Progress { consumed, at_least, then, units: whole(used) }
    }

    fn handle_packet(
        &mut self,
        conn: ConnId,
        packet: &Packet<'_>,
        came: ArrivalTime,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        match packet {
            Packet::Publish(publish) => return self.handle_publish(conn, publish, came, now),
            Packet::Ack(ack) => match ack.kind {
                AckKind::PubAck => self.handle_puback(conn, ack.packet_id, now)?,
                AckKind::PubRec => self.handle_pubrec(conn, ack.packet_id, ack.reason, now)?,
                AckKind::PubRel => self.handle_pubrel(conn, ack.packet_id),
                AckKind::PubComp => self.handle_pubcomp(conn, ack.packet_id, now)?,
            },
            Packet::PingReq => self.send(conn, &Packet::PingResp),
            Packet::Subscribe(subscribe) => self.handle_subscribe(conn, subscribe, now),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(conn, unsubscribe),
            Packet::Disconnect(disconnect) => return Err(self.handle_disconnect(conn, disconnect)),
            Packet::Connect(_) => {
                return Err(Ending::protocol(ReasonCode::ProtocolError, "second CONNECT [MQTT-3.1.0-2]"));
            }
            Packet::Auth(_) => {
                let detail = "AUTH without an authentication method [MQTT-4.12.0-1]";
                return Err(Ending::protocol(ReasonCode::ProtocolError, detail));
            }
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                return Err(Ending::protocol(ReasonCode::ProtocolError, "a packet that only servers send"));
            }
        }
        Ok(Flow::On)
    }

    /// The client says goodbye: its will is forgotten, unless it asks for it.
    fn handle_disconnect(&mut self, conn: ConnId, packet: &Disconnect<'_>) -> Ending {
        let session = self.connection(conn).map(|connection| connection.session);
        let session = session.and_then(|session| self.sessions.get_mut(session));
        if let (Some(session), Some(seconds)) = (session, packet.properties.session_expiry()) {
            if !session.is_lasting() && seconds > 0 {
                // [MQTT-3.14.2-2] A session that was to end with the connection cannot be made to last now.
                let detail = "session expiry raised from zero in DISCONNECT [MQTT-3.14.2-2]";
                return Ending::protocol(ReasonCode::ProtocolError, detail);
            }
            let wanted = match seconds {
                u32::MAX => core::time::Duration::MAX,
                seconds => core::time::Duration::from_secs(seconds.into()),
            };
            session.expiry = wanted.min(self.settings.session_expiry_max);
            // The store is told when the connection ends, which is next.
        }
        let will = match packet.reason {
            ReasonCode::Success => WillFate::Discard,
            _ => WillFate::Publish,
        };
        Ending::new(Why::Goodbye, will)
    }
}
