//! One connection of the bridge: bytes to packets and back, and what its broker announced. Who is behind it is not known here.

use tidegate_wire_mqtt::{
    Ack, AckKind, ConnAck, Decoded, Encode, Encoded, Limits, Packet, PacketId, Peer, QoS, ReasonCode, Sender, Version,
    decode,
};

use crate::limits::{PACKET_BYTES_MAX, TOPIC_LEVELS_MAX};

#[derive(Debug)]
pub(crate) struct WireEnd {
    peer: Peer,
    limits: Limits,
    inbox: Vec<u8>,
    /// Bytes of the inbox that are done with.
    read: usize,
    pub(crate) out: Vec<u8>,
    /// The broker has said welcome.
    pub(crate) is_up: bool,
    /// Messages that the broker takes at once.
    pub(crate) receive_max: u16,
    /// The best quality of service that the broker takes.
    pub(crate) qos_max: QoS,
    /// Whether the broker retains.
    pub(crate) retains: bool,
}

impl WireEnd {
    pub(crate) fn new(version: Version) -> Self {
        let limits =
            Limits { packet_bytes_max: PACKET_BYTES_MAX, topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
        Self {
            peer: Peer::new(version),
            limits: limits.with_sender(Sender::Server),
            inbox: Vec::new(),
            read: 0,
            out: Vec::new(),
            is_up: false,
            receive_max: u16::MAX,
            qos_max: QoS::ExactlyOnce,
            retains: true,
        }
    }

    /// Nothing of an earlier connection holds for the next one.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.peer.version);
    }

    pub(crate) fn version(&self) -> Version {
        self.peer.version
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.inbox.drain(..self.read);
        self.read = 0;
        self.inbox.extend_from_slice(bytes);
    }

    /// Takes the bytes out, so that packets that borrow from them can be handled by whoever owns this end.
    pub(crate) fn take_inbox(&mut self) -> (Vec<u8>, usize) {
        (core::mem::take(&mut self.inbox), self.read)
    }

    /// Puts them back, so many of them read. After a reset there is nothing to put back.
    pub(crate) fn put_inbox(&mut self, inbox: Vec<u8>, read: usize) {
        (self.inbox, self.read) = (inbox, read);
    }

    /// The first packet of these bytes, and how many of them it is.
    pub(crate) fn decode<'a>(
        bytes: &'a [u8],
        version: Version,
        limits: &Limits,
    ) -> Result<Option<(Packet<'a>, usize)>, String> {
        match decode(bytes, version, limits) {
            Ok(Decoded::Packet { packet, consumed }) => Ok(Some((packet, consumed))),
            Ok(Decoded::Incomplete { .. }) => Ok(None),
            Err(error) => Err(format!("what it sends is no MQTT: {} [{}]", error.detail, error.section)),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.clone()
    }

    /// The broker has said welcome: what it takes.
    pub(crate) fn on_welcome(&mut self, answer: &ConnAck<'_>) {
        let properties = answer.properties;
        self.is_up = true;
        self.receive_max = properties.receive_maximum().map_or(u16::MAX, std::num::NonZeroU16::get);
        self.qos_max = properties.maximum_qos().unwrap_or(QoS::ExactlyOnce);
        self.retains = properties.retain_available().unwrap_or(true);
        if let Some(most) = properties.maximum_packet_size() {
            self.peer.packet_bytes_max = most.get();
        }
    }

    /// False: it is larger than the broker takes, and was not written.
    pub(crate) fn write(&mut self, packet: &Packet<'_>) -> bool {
        let before = self.out.len();
        match packet.encode(self.peer, &mut self.out) {
            Encoded::Written { .. } | Encoded::Trimmed { .. } => true,
            Encoded::TooLarge | Encoded::NotInVersion => {
                self.out.truncate(before);
                false
            }
        }
    }

    /// A step of a message. Four bytes, or six: every broker takes them.
    pub(crate) fn write_ack(&mut self, kind: AckKind, packet_id: PacketId, reason: ReasonCode) {
        self.write(&Packet::Ack(Ack { reason, ..Ack::success(kind, packet_id) }));
    }
}
