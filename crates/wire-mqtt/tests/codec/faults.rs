//! FAULTS.md, section A, by row: the part of each that the codec alone must hold. The bytes are in the table of
//! `malformed`, each with the row in its name.

use tidegate_wire_mqtt::ReasonCode::{self, *};
use tidegate_wire_mqtt::Version::{V5, V311};
use tidegate_wire_mqtt::{Decoded, Limits, Packet, Sender, decode, decode_connect};

use crate::malformed::rows;

/// The rows of the table with this number: refused, as a client's packet too, and with these reasons only.
fn refused(row: &str, count: usize, reasons: &[ReasonCode]) {
    let clients = Limits { topic_alias_max: 10, ..Limits::default() }.with_sender(Sender::Client);
    let mut seen = 0;
    for &(version, bytes, reason, _, what) in rows().filter(|(.., what)| what.starts_with(row)) {
        let error = decode(bytes, version, &clients).unwrap_err();
        assert!(reasons.contains(&reason) && reasons.contains(&error.reason), "{what}: {error}");
        seen += 1;
    }
    assert!(seen >= count, "{row}: {seen} in the table");
}

#[test]
fn f001_a_length_beyond_the_cap_is_refused_on_the_header() {
    refused("f001", 1, &[PacketTooLarge]);
    for (length, is_accepted) in [(&b"\xfd\xff\x03"[..], false), (b"\xfc\xff\x03", true), (b"\xff\xff\xff\x7f", false)]
    {
        let first = [b"\x10", length].concat();
        let judged = decode_connect(&first, &Limits::before_connect());
        assert_eq!(judged.is_ok(), is_accepted, "{length:x?}: {judged:?}");
    }
}

#[test]
fn f002_a_length_of_five_bytes_is_malformed() {
    refused("f002", 2, &[MalformedPacket]);
}

#[test]
fn f003_integers_in_more_bytes_than_needed_are_malformed() {
    refused("f003", 3, &[MalformedPacket]);
}

#[test]
fn f007_flags_of_connect_are_malformed() {
    refused("f007", 1, &[MalformedPacket]);
    for flags in 1..=15 {
        for level in [4, 5] {
            let bytes = [&[0x10 | flags, 0x0d], &b"\x00\x04MQTT"[..], &[level], b"\x02\x00\x00\x00\x00\x00"].concat();
            assert!(decode_connect(&bytes, &Limits::before_connect()).is_err(), "{flags}");
        }
    }
}

#[test]
fn f008_other_names_and_levels_are_unsupported() {
    refused("f008", 2, &[UnsupportedProtocolVersion]);
}

#[test]
fn f009_impossible_connect_flags_are_malformed() {
    refused("f009", 5, &[MalformedPacket]);
}

#[test]
fn f011_an_impossible_client_id_is_refused() {
    refused("f011", 2, &[ClientIdentifierNotValid, MalformedPacket]);
}

#[test]
fn f012_text_that_is_not_utf_8_is_malformed() {
    refused("f012", 5, &[MalformedPacket]);
}

#[test]
fn f013_a_topic_that_is_none_is_refused() {
    refused("f013", 5, &[TopicNameInvalid, ProtocolError]);
    // A topic that ends where the packet ends is complete.
    let whole = decode(b"\x30\x03\x00\x01a", V311, &Limits::default());
    assert!(
        matches!(whole, Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) if publish.payload.is_empty())
    );
}

#[test]
fn f014_a_packet_identifier_that_is_not_there_is_malformed() {
    refused("f014", 2, &[MalformedPacket]);
}

#[test]
fn f015_qos_3_dup_at_qos_0_and_identifier_0_are_refused() {
    refused("f015", 3, &[MalformedPacket, ProtocolError]);
}

#[test]
fn f016_a_subscribe_that_asks_for_nothing_or_the_impossible_is_refused() {
    refused("f016", 5, &[MalformedPacket, ProtocolError]);
    for flags in (0..=15).filter(|&flags| flags != 2) {
        let error = decode(&[0x80 | flags], V5, &Limits::default()).unwrap_err();
        assert_eq!(error.reason, MalformedPacket, "{flags}");
    }
}

#[test]
fn f020_shares_without_name_or_filter_are_refused() {
    refused("f020", 7, &[TopicFilterInvalid, ProtocolError]);
}

#[test]
fn f022_properties_twice_unknown_misplaced_or_out_of_range_are_refused() {
    refused("f022", 15, &[MalformedPacket, ProtocolError]);
}

#[test]
fn f023_a_will_with_bad_properties_is_refused() {
    refused("f023", 2, &[MalformedPacket, ProtocolError]);
}

#[test]
fn f024_alias_0_and_aliases_beyond_the_maximum_are_invalid() {
    refused("f024", 1, &[TopicAliasInvalid]);
    let limits = Limits { topic_alias_max: 10, ..Limits::default() };
    assert!(decode(b"\x30\x07\x00\x01a\x03\x23\x00\x0a", V5, &limits).is_ok());
    assert_eq!(decode(b"\x30\x07\x00\x01a\x03\x23\x00\x0b", V5, &limits).unwrap_err().reason, TopicAliasInvalid);
}
