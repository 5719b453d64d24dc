//! The first packet: is it a CONNECT, and if not, what may be answered?
//!
//! Pure. MQTT 5 may be told why in a CONNACK [MQTT-3.1.4-2]; 3.1.1 only has words for a few refusals, and a packet that
//! does not conform is answered by closing (3.1.1, MQTT-3.1.4-1). What is no MQTT at all gets no answer, but the log
//! should say what it looked like: TLS on the plain port is the most common mistake of all.

use std::time::Duration;

use tidegate_control::hints::Hints;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{
    ConnAck, Connect, Decoded, Encode, Limits, Packet, Peer, PeerError, Properties, Property, ReasonCode, Retain,
    Version, decode_connect, version_of_connect,
};

/// What the first bytes of a client come to.
#[derive(Debug)]
pub enum First<'a> {
    /// Nothing wrong so far; more is needed.
    Incomplete,
    /// A CONNECT of so many bytes.
    Connect {
        /// The packet.
        connect: Connect<'a>,
        consumed: usize,
    },
    /// It ends here.
    Refuse {
        /// What to write before closing; may be empty.
        answer: Vec<u8>,
        /// For the log.
        why: String,
    },
}

/// What a CONNECT may ask for, before anybody knows who is asking.
pub fn connect_limits(settings: &Settings) -> Limits {
    let mut limits = Limits::before_connect();
    limits.packet_bytes_max = limits.packet_bytes_max.min(settings.packet_bytes_max);
    limits.topic_levels_max = settings.topic_levels_max;
    limits.qos_max = settings.qos_max;
    if !settings.retain_available {
        limits.retain = Retain::Unavailable;
    }
    limits
}

/// Looks at the first bytes of a client.
pub fn first_packet<'a>(input: &'a [u8], limits: &Limits) -> First<'a> {
    match decode_connect(input, limits) {
        Ok(Decoded::Incomplete { .. }) => First::Incomplete,
        Ok(Decoded::Packet { packet: Packet::Connect(connect), consumed }) => First::Connect { connect, consumed },
        Ok(Decoded::Packet { packet, .. }) => {
            First::Refuse { answer: Vec::new(), why: format!("first packet is {}", packet.kind().name()) }
        }
        Err(error) => {
            let why = recognise(input).map_or_else(|| in_words(&error, limits), str::to_owned);
            First::Refuse { answer: answer(input, &error), why }
        }
    }
}

fn in_words(error: &PeerError, limits: &Limits) -> String {
    match error.reason {
        ReasonCode::PacketTooLarge => {
            // The smaller of limits.packet_bytes_max and what nobody needs for a CONNECT.
            format!("{error}; at most {} bytes are accepted here", limits.packet_bytes_max)
        }
        _ => error.to_string(),
    }
}

/// A CONNACK that says no.
pub(crate) fn refusal(version: Version, reason: ReasonCode) -> Vec<u8> {
    refusal_with(version, reason, Properties::EMPTY)
}

/// A CONNACK that says no, and when to come back.
pub(crate) fn refusal_until(version: Version, reason: ReasonCode, words: &str, retry_after: Duration) -> Vec<u8> {
    let mut pace = Vec::new();
    let hints = Hints { retry_after: Some(retry_after), ..Hints::default() };
    hints.write(|name, text| pace.push((name, text)));
    let pace = pace.iter().map(|(name, text)| Property::UserProperty(name, text));
    let properties: Vec<Property<'_>> = [Property::ReasonString(words)].into_iter().chain(pace).collect();
    refusal_with(version, reason, Properties::new(&properties))
}

fn refusal_with(version: Version, reason: ReasonCode, properties: Properties<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = ConnAck { session_present: false, reason, properties }.encode(Peer::new(version), &mut out);
    out
}

/// What may be said about a CONNECT that cannot be read.
fn answer(input: &[u8], error: &PeerError) -> Vec<u8> {
    let reason = error.reason;
    match version_of_connect(input) {
        Some(version @ Version::V5) => refusal(version, reason),
        Some(version) if has_word_before_5(reason) => refusal(version, reason),
        None if reason == ReasonCode::UnsupportedProtocolVersion => match unknown_level(input) {
            // Who knows a later version knows the CONNACK of 5, too; the bit of bridges and the levels before 4 belong
            // to the old family.
            Some(6..0x80) => refusal(Version::V5, reason),
            Some(_) => refusal(Version::V311, reason),
            None => Vec::new(),
        },
        Some(_) | None => Vec::new(),
    }
}

/// Refusals of a packet that conforms. The others are broken packets, or broken rules of the protocol.
fn has_word_before_5(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::UnsupportedProtocolVersion
            | ReasonCode::ClientIdentifierNotValid
            | ReasonCode::QosNotSupported
            | ReasonCode::RetainNotSupported
            | ReasonCode::QuotaExceeded
    )
}

/// The level in a CONNECT whose protocol name is MQTT's.
fn unknown_level(input: &[u8]) -> Option<u8> {
    let length_bytes = input.iter().skip(1).take_while(|&&byte| byte & 0x80 != 0).count() + 1;
    let body = input.get(1 + length_bytes..)?;
    body.strip_prefix(b"\x00\x04MQTT").or_else(|| body.strip_prefix(b"\x00\x06MQIsdp"))?.first().copied()
}

/// What it looks like, if it is no MQTT.
fn recognise(input: &[u8]) -> Option<&'static str> {
    const SIGNS: [(&[u8], &str); 10] = [
        (b"\x16\x03", "a TLS handshake on a port without TLS"),
        (b"GET ", "an HTTP request on an MQTT port"),
        (b"POST ", "an HTTP request on an MQTT port"),
        (b"HEAD ", "an HTTP request on an MQTT port"),
        (b"PUT ", "an HTTP request on an MQTT port"),
        (b"OPTIONS ", "an HTTP request on an MQTT port"),
        (b"PRI * HTTP", "an HTTP request on an MQTT port"),
        (b"SSH-", "an SSH client on an MQTT port"),
        (b"PROXY ", "a PROXY header, which is not accepted here"),
        (b"\r\n\r\n\0\r\nQUIT\n", "a PROXY header, which is not accepted here"),
    ];
    SIGNS.iter().find(|(sign, _)| input.starts_with(sign)).map(|&(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(input: &[u8]) -> (Vec<u8>, String) {
        match first_packet(input, &connect_limits(&Settings::default())) {
            First::Refuse { answer, why } => (answer, why),
            other => panic!("{other:?}"),
        }
    }

    /// A CONNECT with this name, level, flags and what follows the keep-alive.
    fn connect(name: &str, level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
        let mut body = vec![0, name.len() as u8];
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[level, flags, 0, 60]);
        body.extend_from_slice(rest);
        [&[0x10, body.len() as u8], &body[..]].concat()
    }

    #[test]
    fn f006_to_f012_answers() {
        let long = [&b"\x10\xff\xff\xff\x7f\x00\x04MQTT"[..], b"\x05"].concat();
        let cases: &[(&str, Vec<u8>, &[u8])] = &[
            ("F001 v5 announces 256 MiB", long, b"\x20\x03\x00\x95\x00"),
            ("F001 nobody knows who announces 256 MiB", b"\x10\xff\xff\xff\x7f".to_vec(), b""),
            ("F002 five bytes of length", b"\x10\xff\xff\xff\xff\x01".to_vec(), b""),
            ("F006 PINGREQ", b"\xc0\x00".to_vec(), b""),
            ("F006 reserved", b"\x00\x00".to_vec(), b""),
            ("F006 AUTH", b"\xf0\x00".to_vec(), b""),
            ("F007 flags of the fixed header", [&[0x1f], &connect("MQTT", 4, 2, b"\0\0")[1..]].concat(), b""),
            ("F008 level 6", connect("MQTT", 6, 2, b"\0\0"), b"\x20\x03\x00\x84\x00"),
            ("F008 level 3 of MQTT", connect("MQTT", 3, 2, b"\0\0"), b"\x20\x02\x00\x01"),
            ("F008 level 0", connect("MQTT", 0, 2, b"\0\0"), b"\x20\x02\x00\x01"),
            ("F008 bridge bit of v5", connect("MQTT", 0x85, 2, b"\0\0"), b"\x20\x02\x00\x01"),
            ("F008 level 4 of MQIsdp", connect("MQIsdp", 4, 2, b"\0\0"), b"\x20\x02\x00\x01"),
            ("F008 other name", connect("MQTX", 4, 2, b"\0\0"), b""),
            ("F009 reserved flag, v5", connect("MQTT", 5, 3, b"\0\0\0"), b"\x20\x03\x00\x81\x00"),
            ("F009 reserved flag, v3", connect("MQTT", 4, 3, b"\0\0"), b""),
            ("F009 will QoS 3, v5", connect("MQTT", 5, 0x1e, b"\0\0\0"), b"\x20\x03\x00\x81\x00"),
            ("F011 empty id that is to last, v3", connect("MQTT", 4, 0, b"\0\0"), b"\x20\x02\x00\x02"),
            ("F012 id with NUL, v5", connect("MQTT", 5, 2, b"\0\0\x01\0"), b"\x20\x03\x00\x81\x00"),
            ("F012 id with NUL, v3", connect("MQTT", 4, 2, b"\0\x01\0"), b""),
            ("F022 Receive Maximum 0", connect("MQTT", 5, 2, b"\x03\x21\0\0\0\0"), b"\x20\x03\x00\x82\x00"),
        ];
        for (name, input, expected) in cases {
            assert_eq!(refused(input).0, *expected, "{name}: {:?}", refused(input).1);
        }
    }

    #[test]
    fn f028_strangers_are_recognised() {
        for (input, expected) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00"[..], "TLS"),
            (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "PROXY"),
            (b"\r\n\r\n\0\r\nQUIT\n\x21", "PROXY"),
        ] {
            let (answer, why) = refused(input);
            assert!(answer.is_empty() && why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_good_connect_is_taken_and_what_follows_is_left() {
        let bytes = [&connect("MQTT", 4, 2, b"\0\x01x")[..], b"\xc0\x00"].concat();
        let First::Connect { connect, consumed } = first_packet(&bytes, &Limits::before_connect()) else {
            panic!("refused")
        };
        assert_eq!((connect.client_id, consumed), ("x", bytes.len() - 2));
        for end in 0..consumed {
            assert!(matches!(first_packet(&bytes[..end], &Limits::before_connect()), First::Incomplete), "{end}");
        }
    }
}
