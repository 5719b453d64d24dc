//! Quality of service and packet identifiers: the two small numbers that most packets carry.

use core::num::NonZeroU16;

/// A packet identifier. Zero does not exist. [MQTT-2.2.1-3]
pub type PacketId = NonZeroU16;

/// Quality of service of a message or a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// Delivered once or not at all.
    #[default]
    AtMostOnce = 0,
    /// Delivered once or more often.
    AtLeastOnce = 1,
    /// Delivered once.
    ExactlyOnce = 2,
}

impl QoS {
    /// From its two bits; `None` for 3, which every use of the field forbids.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }

    /// As its two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
