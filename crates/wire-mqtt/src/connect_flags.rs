//! The flags of CONNECT (section 3.1.2.3): one byte that says what follows.

use crate::error::{Parse, violation};
use crate::qos::QoS;
use crate::version::Version;

const RESERVED: u8 = 0b0000_0001;
const CLEAN_START: u8 = 0b0000_0010;
const WILL: u8 = 0b0000_0100;
const WILL_QOS: u8 = 0b0001_1000;
const WILL_RETAIN: u8 = 0b0010_0000;
const PASSWORD: u8 = 0b0100_0000;
const USER_NAME: u8 = 0b1000_0000;

/// Flags that are consistent with each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectFlags {
    pub(crate) clean_start: bool,
    /// Quality of service and retain flag of the will, if there is one.
    pub(crate) will: Option<(QoS, bool)>,
    pub(crate) password: bool,
    pub(crate) user_name: bool,
}

impl ConnectFlags {
    pub(crate) fn read(byte: u8, version: Version) -> Parse<Self> {
        if version == Version::V31 {
            return Self::read_unused(byte);
        }
        if byte & RESERVED != 0 {
            return Err(violation!(MalformedPacket, "reserved connect flag", "MQTT-3.1.2-3"));
        }
        let flags = Self {
            clean_start: byte & CLEAN_START != 0,
            will: read_will(byte)?,
            password: byte & PASSWORD != 0,
            user_name: byte & USER_NAME != 0,
        };
        if !version.is_v5() && flags.password && !flags.user_name {
            return Err(violation!(MalformedPacket, "password without user name", "MQTT-3.1.2-22 (3.1.1)"));
        }
        Ok(flags)
    }

    /// In 3.1 the reserved bit is "not used", and what a will would have been like means nothing without one.
    fn read_unused(byte: u8) -> Parse<Self> {
        let unused = if byte & WILL == 0 { RESERVED | WILL_QOS | WILL_RETAIN } else { RESERVED };
        Self::read(byte & !unused, Version::V311)
    }

    pub(crate) fn byte(self) -> u8 {
        let when = |set: bool, bits: u8| if set { bits } else { 0 };
        let will = self.will.map_or(0, |(qos, retain)| WILL | qos.bits() << 3 | when(retain, WILL_RETAIN));
        when(self.clean_start, CLEAN_START) | will | when(self.password, PASSWORD) | when(self.user_name, USER_NAME)
    }
}

fn read_will(byte: u8) -> Parse<Option<(QoS, bool)>> {
    let qos = byte & WILL_QOS;
    let retain = byte & WILL_RETAIN != 0;
    if byte & WILL != 0 {
        let qos = QoS::from_bits(qos >> 3).ok_or(violation!(MalformedPacket, "will QoS 3", "MQTT-3.1.2-12"))?;
        return Ok(Some((qos, retain)));
    }
    if qos != 0 {
        return Err(violation!(MalformedPacket, "will QoS without a will", "MQTT-3.1.2-11"));
    }
    if retain {
        return Err(violation!(MalformedPacket, "will retain without a will", "MQTT-3.1.2-13"));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_reads_back_or_is_refused() {
        let mut accepted = 0;
        for byte in 0..=u8::MAX {
            if let Ok(flags) = ConnectFlags::read(byte, Version::V5) {
                assert_eq!(flags.byte(), byte);
                accepted += 1;
            }
        }
        // Clean, user name, password freely; no will, or one of three QoS with or without retain.
        assert_eq!(accepted, 8 * (1 + 3 * 2));
    }

    #[test]
    fn password_alone_is_legal_in_5_only() {
        assert!(ConnectFlags::read(PASSWORD, Version::V5).is_ok());
        assert!(ConnectFlags::read(PASSWORD, Version::V311).is_err());
    }
}
