//! Statements about packets that the table of bad ones does not show; see `specs/`.

use tidegate_wire_mqtt::Version::{V5, V311};
use tidegate_wire_mqtt::{
    ConnAck, Connect, Decoded, Disconnect, Encode, Encoded, Limits, Packet, Peer, Properties, Property, QoS,
    ReasonCode, Sender, Version, Will, decode,
};

fn encoded(packet: &impl Encode, peer: Peer) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = packet.encode(peer, &mut out);
    out
}

fn connect(version: Version) -> Connect<'static> {
    let will =
        Will { qos: QoS::AtLeastOnce, retain: true, properties: Properties::EMPTY, topic: "w", payload: b"dead" };
    Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive: 0,
        properties: Properties::EMPTY,
        client_id: "id",
        will: Some(will),
        user_name: Some("user"),
        password: Some(b"secret"),
    }
}

/// Where the connect flags are in a CONNECT of fewer than 128 bytes.
const FLAGS: usize = 9;

#[test]
fn each_field_of_connect_is_there_exactly_if_its_flag_is() {
    for version in [V311, V5] {
        let bytes = encoded(&connect(version), Peer::new(version));
        assert!(decode(&bytes, version, &Limits::default()).is_ok());
        // Will, user name, password: announced or not, the bytes behind stay the same and no longer fit.
        for flag in [0x80, 0x40, 0xc0, 0x04 | 0x08 | 0x20] {
            let mut without = bytes.clone();
            without[FLAGS] &= !flag;
            assert!(decode(&without, version, &Limits::default()).is_err(), "{version:?} {flag:x}");
        }
        let bare = Connect { will: None, user_name: None, password: None, ..connect(version) };
        let bytes = encoded(&bare, Peer::new(version));
        for flag in [0x80, 0xc0, 0x04] {
            let mut with = bytes.clone();
            with[FLAGS] |= flag;
            assert!(decode(&with, version, &Limits::default()).is_err(), "{version:?} {flag:x}");
        }
    }
}

#[test]
fn fields_of_connect_come_in_their_order() {
    let bytes = encoded(&connect(V311), Peer::new(V311));
    assert_eq!(&bytes[12..], b"\x00\x02id\x00\x01w\x00\x04dead\x00\x04user\x00\x06secret");
    let bytes = encoded(&connect(V5), Peer::new(V5));
    assert_eq!(&bytes[12..], b"\x00\x00\x02id\x00\x00\x01w\x00\x04dead\x00\x04user\x00\x06secret");
}

#[test]
fn names_in_connect_must_be_utf_8() {
    for part in [&b"id"[..], b"user"] {
        for version in [V311, V5] {
            let mut bytes = encoded(&connect(version), Peer::new(version));
            let at = bytes.windows(part.len()).position(|window| window == part).unwrap();
            bytes[at] = 0xff;
            let error = decode(&bytes, version, &Limits::default()).unwrap_err();
            assert_eq!(error.reason, ReasonCode::MalformedPacket);
            bytes[at] = 0;
            assert!(decode(&bytes, version, &Limits::default()).is_err());
        }
    }
    // The will topic, behind its length of one byte.
    let mut bytes = encoded(&connect(V311), Peer::new(V311));
    let at = bytes.windows(3).position(|window| window == b"\x00\x01w").unwrap() + 2;
    bytes[at] = 0xff;
    assert!(decode(&bytes, V311, &Limits::default()).is_err());
}

#[test]
fn filters_must_be_utf_8() {
    for bytes in [&b"\x82\x06\x00\x01\x00\x01\xff\x00"[..], b"\xa2\x05\x00\x01\x00\x01\xff"] {
        let error = decode(bytes, V311, &Limits::default()).unwrap_err();
        assert_eq!(error.reason, ReasonCode::MalformedPacket);
    }
}

#[test]
fn texts_in_properties_must_be_utf_8() {
    // Content type, response topic, and both halves of a user property.
    for property in [&b"\x03\x00\x01?"[..], b"\x08\x00\x01?", b"\x26\x00\x01?\x00\x01v", b"\x26\x00\x01k\x00\x01?"] {
        for (byte, is_accepted) in [(b'x', true), (0xff, false), (0, false)] {
            let property: Vec<u8> = property.iter().map(|&b| if b == b'?' { byte } else { b }).collect();
            let head = [0x30, 4 + property.len() as u8, 0, 1, b't', property.len() as u8];
            let packet = [&head[..], &property].concat();
            assert_eq!(decode(&packet, V5, &Limits::default()).is_ok(), is_accepted, "{packet:x?}");
        }
    }
}

#[test]
fn reserved_flags_of_every_packet_are_checked() {
    // CONNECT says itself which version it is: see `f007_flags_of_connect_are_malformed`.
    for kind in (2..=15_u8).filter(|kind| *kind != 3) {
        let allowed = if matches!(kind, 6 | 8 | 10) { 2 } else { 0 };
        for flags in (0..16).filter(|flags| *flags != allowed) {
            let error = decode(&[kind << 4 | flags], V5, &Limits::default()).unwrap_err();
            assert_eq!(error.reason, ReasonCode::MalformedPacket, "{kind} {flags}");
        }
    }
}

#[test]
fn no_properties_are_a_length_of_zero() {
    let connack = ConnAck { session_present: false, reason: ReasonCode::Success, properties: Properties::EMPTY };
    assert_eq!(encoded(&connack, Peer::new(V5)), b"\x20\x03\x00\x00\x00");
}

#[test]
fn a_refusal_never_says_that_a_session_is_present() {
    let connack = ConnAck { session_present: true, reason: ReasonCode::NotAuthorized, properties: Properties::EMPTY };
    assert_eq!(encoded(&connack, Peer::new(V5)), b"\x20\x03\x00\x87\x00");
    assert_eq!(encoded(&connack, Peer::new(V311)), b"\x20\x02\x00\x05");
}

#[test]
fn a_reason_string_that_does_not_fit_is_left_out_of_every_packet() {
    let list = [Property::ReasonString("why"), Property::UserProperty("k", "v")];
    let properties = Properties::new(&list);
    let small = Peer { packet_bytes_max: 8, ..Peer::new(V5) };
    let mut out = Vec::new();
    let disconnect = Disconnect { reason: ReasonCode::NotAuthorized, properties };
    assert!(matches!(disconnect.encode(small, &mut out), Encoded::Trimmed { .. }));
    assert_eq!(out, b"\xe0\x01\x87");
    out.clear();
    let connack = ConnAck { session_present: false, reason: ReasonCode::NotAuthorized, properties };
    assert!(matches!(connack.encode(small, &mut out), Encoded::Trimmed { .. }));
    assert_eq!(out, b"\x20\x03\x00\x87\x00");
}

#[test]
fn a_byte_order_mark_in_a_topic_is_part_of_it() {
    let decoded = decode(b"\x30\x07\x00\x04\xef\xbb\xbfa\x00", V5, &Limits::default().with_sender(Sender::Client));
    let Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) = decoded else { panic!("{decoded:?}") };
    assert_eq!(publish.topic, "\u{feff}a");
}
