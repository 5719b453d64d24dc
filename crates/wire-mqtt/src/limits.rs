//! How much one packet may ask for.
//!
//! Everything here is checked before anything is allocated, and the size of the packet already on its fixed header. The
//! codec itself allocates nothing when it reads; the limits protect those who work on its results.

use crate::kind::Sender;
use crate::qos::QoS;

/// Whether messages may ask to be retained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Retain {
    /// Messages may be retained.
    #[default]
    Available,
    /// A PUBLISH or a will with the retain flag is refused with 0x9A.
    Unavailable,
}

/// What a reader accepts. Plain values: start from [`Limits::default`] or [`Limits::before_connect`] and change fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Whose packets are read.
    pub sender: Sender,
    /// Bytes of a whole packet with its fixed header, as in the property Maximum Packet Size; beyond it 0x95.
    pub packet_bytes_max: u32,
    /// Properties of one list, user properties included; beyond it 0x97.
    pub property_count_max: usize,
    /// Bytes of one list of properties; beyond it 0x97.
    pub property_bytes_max: usize,
    /// Filters of one SUBSCRIBE or UNSUBSCRIBE; beyond it 0x97.
    pub filter_count_max: usize,
    /// Bytes of a topic name or a topic filter; beyond it 0x90 or 0x8F.
    pub topic_bytes_max: usize,
    /// Levels of a topic name or a topic filter, so that trees stay shallow; beyond it 0x90 or 0x8F.
    pub topic_levels_max: usize,
    /// The Topic Alias Maximum that was announced to this peer; beyond it 0x94.
    pub topic_alias_max: u16,
    /// The Maximum QoS that was announced to this peer; beyond it 0x9B.
    pub qos_max: QoS,
    /// The Retain Available that was announced to this peer.
    pub retain: Retain,
}

impl Limits {
    /// For the first packet, when nobody knows yet who is speaking: 64 KiB, from a client.
    pub fn before_connect() -> Self {
        Self { sender: Sender::Client, packet_bytes_max: 64 * 1024, ..Self::default() }
    }

    /// The same limits for packets of this sender.
    #[must_use]
    pub fn with_sender(self, sender: Sender) -> Self {
        Self { sender, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sender: Sender::Either,
            packet_bytes_max: 1024 * 1024,
            // Real packets carry a handful; 60 000 in one packet were an attack (mosquitto CVE-2021-41039).
            property_count_max: 128,
            property_bytes_max: 64 * 1024,
            // Above what client libraries put into one packet, below what makes a turn long.
            filter_count_max: 1024,
            // What a two-byte length can say.
            topic_bytes_max: 65_535,
            // 65 535 levels overflowed the stack of others (mosquitto #1412).
            topic_levels_max: 64,
            topic_alias_max: u16::MAX,
            qos_max: QoS::ExactlyOnce,
            retain: Retain::Available,
        }
    }
}
