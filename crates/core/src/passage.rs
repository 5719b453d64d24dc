//! Messages that only pass through, of clients whose sessions another broker has: a guard.
//!
//! *Towards the other broker* a message is told to its publisher's claim, rhythm and limit, counted, and goes on as it
//! came. Who sent it, and how that stood, is its [`Provenance`]: whoever drives this remembers it for the topic.
//! *From there* a packet goes to its client as it is. What nobody was promised (QoS 0) waits in the client's queue while
//! the client is slower than what comes, in the order of claims, and the longest flow loses when the queue is full;
//! everything else goes straight into the outbox, and who does not empty that is read no further.

use tidegate_control::Timestamp;
use tidegate_control::claim::Colour;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::{Delivery, PacketId, Properties, QoS, ReasonCode};

use crate::access::Identity;
use crate::cache::Target;
use crate::connect::Unwelcome;
use crate::connection::Connection;
use crate::event::Why;
use crate::face::{Frames, OutgoingPublication};
use crate::gate::{GateArrival, NameProof};
use crate::input::Flow;
use crate::message::{Precedence, Publication, Shareable};
use crate::session::{Session, SubscriptionIds};
use crate::shard::ConnId;
use crate::state::{ShardState, WillFate};

/// A message on its way to the other broker.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// Its topic; empty if it cannot be read.
    pub topic: &'a str,
    pub qos: QoS,
    pub retain: bool,
    /// When it came.
    pub came: ArrivalTime,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassOutcome {
    /// It goes on.
    On(Provenance),
    /// Not now: the connection is paused, and the message is to be handed in again.
    Wait,
}

/// Who published a message, and how that stood, as numbers to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The publisher: the same number for all that it sends.
    pub origin: u64,
    /// Class, claim and whom it belongs to.
    pub standing: u64,
}

impl Provenance {
    /// Of a message that came by no way that is known: it has no claim, and a flow of this number.
    pub fn unknown(flow: u64) -> Self {
        let standing = Precedence { colour: Colour::Excess, ..Precedence::UNKNOWN };
        Self { origin: flow.max(1), standing: standing.bits().unwrap_or(0) }
    }
}

/// A packet for a client that is not to wait in any queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// A message.
    Message,
    /// Something else: it need not wait behind a heap of messages.
    Answer,
    /// Nothing may come after it.
    Last,
}

impl ShardState {
    /// Whether a client may go on to the other broker, before anybody there is asked: it is who it is only by its own word.
    pub(crate) fn judge_arrival(
        &mut self,
        client_id: &str,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<(), Unwelcome> {
        if self.sessions.len() >= self.settings.sessions_max {
            return Err(ReasonCode::QuotaExceeded.into());
        }
        self.settle_memory();
        self.check_arrival(client_id, identity, NameProof::Claimed, now)
    }

    pub(crate) fn pass_behind(&mut self, conn: ConnId, passing: &Passing<'_>, now: Timestamp) -> PassOutcome {
        let Some(connection) = self.connection(conn) else { return PassOutcome::Wait };
        let (index, dry_at) = (connection.session(), connection.dry_at());
        let Passing { topic, qos, retain, came } = *passing;
        let arrival = GateArrival { conn, session: index, delivery: Delivery::AtMostOnce, came, dry_at };
        let origin = self.sessions.get(index).map_or(0, Session::origin);
        let mut publication = Publication {
            topic,
            payload: &[],
            properties: Properties::EMPTY,
            qos,
            retain,
            expires: None,
            origin,
            standing: Precedence::UNKNOWN,
        };
        publication.standing = self.classify(index, &publication, now);
        if self.admit_to_pass(arrival, &mut publication, now) == Flow::Wait {
            return PassOutcome::Wait;
        }
        if self.recording.is_on() {
            self.record(index, &publication, came.likely(), now);
        }
        self.stats.publish_passed += 1;
        self.sample.note(topic, now);
        self.stats.by_class[publication.standing.class.index()].received += 1;
        if let Some(session) = self.sessions.get_mut(index) {
            session.ledger.pass();
        }
        if self.gate.is_unread() {
            self.note_unread(conn, index, now);
        }
        PassOutcome::On(Provenance { origin, standing: publication.standing.bits().unwrap_or(0) })
    }

    /// A message of QoS 0, which is this packet, for a client.
    pub(crate) fn hand_down(
        &mut self,
        conn: ConnId,
        packet: &[u8],
        topic: &str,
        provenance: Provenance,
        now: Timestamp,
    ) {
        let open = self.connection(conn).filter(|connection| !connection.is_closing());
        let Some(session) = open.map(Connection::session) else { return };
        let publication = of_packet(packet, topic, provenance);
        let target = Target {
            session,
            qos: QoS::AtMostOnce,
            retain_as_published: false,
            is_latest: false,
            no_local: false,
            ids: SubscriptionIds::default(),
        };
        self.saturation.begin_message();
        self.deliver(&target, &Shareable::new(publication), &mut Frames::for_receivers(1), now);
    }

    /// A packet for a client that goes as it is, and now.
    pub(crate) fn put_through(&mut self, conn: ConnId, packet: &[u8], what: Through, now: Timestamp) {
        let Some(connection) = self.connection(conn).filter(|connection| !connection.is_closing()) else { return };
        let index = connection.session();
        match what {
            Through::Answer => {
                let Some(connection) = self.connections.get_mut(conn.index) else { return };
                let written = connection.put_answer(packet, &mut self.spares);
                self.note_sent(conn, written);
            }
            Through::Last => {
                let Some(connection) = self.connections.get_mut(conn.index) else { return };
                connection.put_last(packet, &mut self.spares);
                self.note_sent(conn, packet.len());
            }
            Through::Message => {
                let publication = of_packet(packet, "", Provenance::unknown(0));
                let class = publication.standing.class;
                self.stats.begin_delivery(class);
                if let Some(session) = self.sessions.get_mut(index) {
                    session.ledger.begin_delivery();
                }
                // With a number it is not dropped for want of room.
                let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
                let ids = SubscriptionIds::default();
                let copy = OutgoingPublication { publication: &publication, delivery, retain: false, ids: &ids, now };
                self.send_now(Some(conn.index), &copy, &mut Frames::for_receivers(1));
                if let Some(connection) = self.connections.get_mut(conn.index) {
                    connection.note_delivered();
                }
                self.stats.finish_delivery(class);
            }
        }
    }

    /// Whether messages wait for a client beyond its outbox.
    pub(crate) fn is_behind(&self, conn: ConnId) -> bool {
        let open = self.connection(conn).filter(|connection| !connection.is_closing());
        let session = open.and_then(|connection| self.sessions.get(connection.session()));
        session.is_some_and(|session| session.queue_len() > 0)
    }

    /// Whether a client has so much before it that no more is to be fetched for it.
    pub(crate) fn is_outbox_full(&self, conn: ConnId) -> bool {
        self.connection(conn).is_some_and(|connection| connection.outbox_len() > self.settings.outbox_bytes_max)
    }

    /// The other broker has ended a client's connection, or is gone.
    pub(crate) fn handle_upstream_end(&mut self, conn: ConnId, why: Why, now: Timestamp) {
        match why {
            Why::UpstreamLost | Why::TakenOver => self.end_connection(conn, why, WillFate::Discard, now),
            why if self.connection(conn).is_some_and(|connection| !connection.is_closing()) => self.cut(conn, why, now),
            _ => {}
        }
    }
}

fn of_packet<'a>(packet: &'a [u8], topic: &'a str, provenance: Provenance) -> Publication<'a> {
    Publication {
        topic,
        payload: packet,
        properties: Properties::EMPTY,
        qos: QoS::AtMostOnce,
        retain: false,
        expires: None,
        origin: provenance.origin,
        standing: match provenance.standing {
            0 => Precedence::UNKNOWN,
            bits => Precedence::from_bits(bits),
        },
    }
}
