//! Bytes as a stranger may send them after CONNACK: for each, whether the connection lives, what is said, and which reason
//! a client of MQTT 5 is told. A client of 3.1.1 is told nothing: it has no word for it.

use tidegate_wire_mqtt::ReasonCode::{
    self, MalformedPacket as Malformed, NoMatchingSubscribers as Nobody, PacketIdentifierNotFound as NotFound,
    ProtocolError as Protocol, Success, TopicAliasInvalid as AliasInvalid, TopicFilterInvalid as FilterInvalid,
    TopicNameInvalid as NameInvalid,
};
use tidegate_wire_mqtt::{AckKind, Version};

use crate::net::{Got, Net, Options, ack, lasting};

/// Bytes of a client of MQTT 5 that end its connection, and why.
#[rustfmt::skip]
const ENDINGS_5: &[(&str, ReasonCode, &str)] = &[
    // Acknowledgements: identifier, flags, length, reason, properties.
    ("40 02 0000", Protocol, "PUBACK of identifier 0"),
    ("50 02 0000", Protocol, "PUBREC of identifier 0"),
    ("62 02 0000", Protocol, "PUBREL of identifier 0"),
    ("70 02 0000", Protocol, "PUBCOMP of identifier 0"),
    ("42 02 0001", Malformed, "flags of PUBACK"),
    ("51 02 0001", Malformed, "flags of PUBREC"),
    ("60 02 0001", Malformed, "PUBREL without its flag"),
    ("63 02 0001", Malformed, "PUBREL with one flag more"),
    ("78 02 0001", Malformed, "flags of PUBCOMP"),
    ("40 00", Malformed, "PUBACK of nothing"),
    ("40 01 00", Malformed, "half an identifier"),
    ("40 03 0001 01", Protocol, "a reason that PUBACK has not"),
    ("50 03 0001 92", Protocol, "a reason that PUBREC has not"),
    ("62 03 0001 10", Protocol, "a reason that PUBREL has not"),
    ("70 03 0001 80", Protocol, "a reason that PUBCOMP has not"),
    ("40 05 0001 00 00 00", Malformed, "bytes behind the properties"),
    ("40 06 0001 00 02 01 01", Malformed, "payload format in PUBACK"),
    ("40 0c 0001 00 08 1f 0001 61 1f 0001 61", Protocol, "a reason string twice"),
    ("40 08 0001 00 05 1f 0001 61", Malformed, "a length of properties beyond the packet"),
    // PUBLISH.
    ("36 06 0001 61 0001 00", Malformed, "QoS 3"),
    ("38 04 0001 61 00", Malformed, "DUP at QoS 0"),
    ("32 06 0001 61 0000 00", Protocol, "identifier 0"),
    ("30 03 0000 00", Protocol, "neither topic nor alias"),
    ("30 04 0001 2b 00", NameInvalid, "a wildcard in a topic name"),
    ("30 06 0003 612f23 00", NameInvalid, "another"),
    ("30 04 0001 00 00", Malformed, "U+0000 in a topic name"),
    ("30 05 0002 c080 00", Malformed, "U+0000 in two bytes"),
    ("30 06 0003 eda080 00", Malformed, "a surrogate"),
    ("30 05 0002 c328 00", Malformed, "a broken sequence"),
    ("30 06 0001 61 02 01 02", Protocol, "payload format 2"),
    ("30 08 0001 61 04 01 01 01 01", Protocol, "payload format twice"),
    ("30 07 0001 61 03 23 0000", AliasInvalid, "alias 0"),
    ("30 07 0001 61 03 23 ffff", AliasInvalid, "an alias beyond the maximum"),
    ("30 06 0000 03 23 0001", Protocol, "an alias that was never set"),
    ("30 0a 0001 61 06 23 0001 23 0001", Protocol, "an alias twice"),
    ("30 06 0001 61 02 0b 01", Protocol, "a subscription identifier from a client"),
    ("30 09 0001 61 05 11 00000001", Malformed, "session expiry in PUBLISH"),
    ("30 08 0001 61 04 08 0001 23", Protocol, "a response topic with a wildcard"),
    ("30 06 0001 61 02 00 00", Malformed, "a property of identifier 0"),
    ("30 07 0001 61 03 81 01 00", Malformed, "a property that nobody knows"),
    ("30 06 0001 61 82 00 00", Malformed, "a length of properties in more bytes than needed"),
    ("30 84 00 0001 61 00", Malformed, "a remaining length in more bytes than needed"),
    ("30 ff ff ff ff 01", Malformed, "a remaining length of five bytes"),
    // SUBSCRIBE and UNSUBSCRIBE.
    ("82 03 0001 00", Protocol, "no filter"),
    ("82 07 0000 00 0001 61 00", Protocol, "identifier 0"),
    ("80 07 0001 00 0001 61 00", Malformed, "SUBSCRIBE without its flag"),
    ("82 07 0001 00 0001 61 03", Protocol, "QoS 3"),
    ("82 07 0001 00 0001 61 30", Protocol, "retain handling 3"),
    ("82 07 0001 00 0001 61 40", Malformed, "a reserved option"),
    ("82 07 0001 00 0001 61 80", Malformed, "the other reserved option"),
    ("82 06 0001 00 0001 61", Malformed, "a filter without options"),
    ("82 06 0001 00 0000 00", FilterInvalid, "an empty filter"),
    ("82 08 0001 00 0002 612b 00", FilterInvalid, "a + that does not stand alone"),
    ("82 09 0001 00 0003 232f61 00", FilterInvalid, "a # that is not last"),
    ("82 09 0001 02 0b00 0001 61 00", Protocol, "subscription identifier 0"),
    ("82 0b 0001 04 0b01 0b02 0001 61 00", Protocol, "subscription identifiers twice"),
    ("82 09 0001 02 0101 0001 61 00", Malformed, "payload format in SUBSCRIBE"),
    ("82 10 0001 00 000a 2473686172652f672f61 04", Protocol, "no local of a shared subscription"),
    ("82 0e 0001 00 0008 2473686172652f67 00", FilterInvalid, "a share without a filter"),
    ("82 0f 0001 00 0009 2473686172652f2f61 00", FilterInvalid, "a share without a name"),
    ("82 10 0001 00 000a 2473686172652f2b2f61 00", FilterInvalid, "a share with a wildcard for a name"),
    ("a2 03 0001 00", Protocol, "no filter"),
    ("a2 06 0000 00 0001 61", Protocol, "identifier 0"),
    ("a0 06 0001 00 0001 61", Malformed, "UNSUBSCRIBE without its flag"),
    ("a2 08 0001 02 0b01 0001 61", Malformed, "a subscription identifier in UNSUBSCRIBE"),
    // PINGREQ, DISCONNECT, AUTH, and what only servers send.
    ("c0 01 00", Malformed, "PINGREQ with a body"),
    ("c1 00", Malformed, "flags of PINGREQ"),
    ("e0 01 01", Protocol, "a reason that DISCONNECT has not"),
    ("e0 01 8d", Protocol, "a reason that only servers have"),
    ("e0 07 00 05 11 00000001", Protocol, "session expiry raised from 0"),
    ("e0 0c 00 0a 11 00000000 11 00000000", Protocol, "session expiry twice"),
    ("e8 00", Malformed, "flags of DISCONNECT"),
    ("f0 00", Protocol, "AUTH where no method was named"),
    ("f0 02 18 00", Protocol, "AUTH that goes on with nothing"),
    ("f0 02 19 00", Protocol, "AUTH again where there was none"),
    ("10 0d 0004 4d515454 05 02 0000 00 0000", Protocol, "a second CONNECT"),
    ("20 03 00 00 00", Protocol, "CONNACK"),
    ("90 04 0001 00 00", Protocol, "SUBACK"),
    ("b0 04 0001 00 00", Protocol, "UNSUBACK"),
    ("d0 00", Protocol, "PINGRESP"),
    ("00 00", Malformed, "packet type 0"),
];

/// Bytes of a client of 3.1.1 that end its connection.
const ENDINGS_311: &[&str] = &[
    "40 02 0000",
    "40 03 0001 00",
    "42 02 0001",
    "60 02 0001",
    "62 03 0001 00",
    "36 05 0001 61 0001",
    "38 03 0001 61",
    "32 05 0001 61 0000",
    "30 02 0000",
    "30 03 0001 23",
    "30 03 0001 00",
    "30 05 0003 eda080",
    "30 83 00 0001 61",
    "82 02 0001",
    "82 06 0001 0001 61 03",
    "82 06 0001 0001 61 04",
    "82 06 0000 0001 61 00",
    "82 05 0001 0000 00",
    "a2 02 0001",
    "a2 05 0000 0001 61",
    "c0 01 00",
    "e0 01 00",
    "e1 00",
    "f0 00",
    "10 0c 0004 4d515454 04 02 0000 0000",
    "20 02 00 00",
    "90 03 0001 00",
    "b0 02 0001",
    "d0 00",
    "00 00",
];

fn bytes(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn bytes_that_end_a_connection_of_5_have_the_reason_of_the_specification() {
    let mut net = Net::new(1);
    let witness = net.v5("witness");
    net.subscribe(witness, "#", 0);
    for (text, reason, what) in ENDINGS_5 {
        let wire = net.v5("raw");
        net.send_bytes(wire, &bytes(text));
        assert_eq!(net.receive(wire), [Got::Disconnect(*reason)], "{what}: {text}");
        assert!(net.is_closed(wire), "{what}: {text}");
        assert_eq!(net.receive(witness), [], "{what}: {text} was published");
    }
}

#[test]
fn bytes_that_end_a_connection_of_3_1_1_end_it_without_a_word() {
    let mut net = Net::new(1);
    for text in ENDINGS_311 {
        let wire = net.connect("raw", &Options { version: Version::V311, ..Options::default() });
        net.send_bytes(wire, &bytes(text));
        assert_eq!(net.receive(wire), [], "{text}");
        assert!(net.is_closed(wire), "{text}");
    }
}

#[test]
fn bytes_that_nobody_has_to_like_are_answered_and_end_nothing() {
    let mut net = Net::new(1);
    let wire = net.connect("raw", &lasting());
    let lines: &[(&str, &[Got])] = &[
        ("40 02 0007", &[]),
        ("40 03 0007 00", &[]),
        ("40 04 0007 10 00", &[]),
        ("50 02 0007", &[ack(AckKind::PubRel, 7, NotFound)]),
        ("50 03 0007 80", &[]),
        ("62 02 0007", &[ack(AckKind::PubComp, 7, NotFound)]),
        ("62 03 0007 92", &[ack(AckKind::PubComp, 7, NotFound)]),
        ("70 02 0007", &[]),
        ("70 03 0007 92", &[]),
        ("32 06 0001 61 0001 00", &[ack(AckKind::PubAck, 1, Nobody)]),
        ("3a 06 0001 61 0001 00", &[ack(AckKind::PubAck, 1, Nobody)]),
        ("34 06 0001 61 0001 00", &[ack(AckKind::PubRec, 1, Nobody)]),
        ("3c 06 0001 61 0001 00", &[ack(AckKind::PubRec, 1, Success)]),
        ("62 02 0001", &[ack(AckKind::PubComp, 1, Success)]),
        ("30 07 0001 61 03 23 0001", &[]),
        ("30 06 0000 03 23 0001", &[]),
        ("32 0d 0001 61 0001 07 26 0001 6b 0001 76", &[ack(AckKind::PubAck, 1, Nobody)]),
        ("a2 06 0001 00 0001 61", &[Got::UnsubAck(vec![ReasonCode::NoSubscriptionExisted])]),
        ("c0 00", &[Got::Pong]),
    ];
    for (text, answers) in lines {
        net.send_bytes(wire, &bytes(text));
        assert_eq!(net.receive(wire), *answers, "{text}");
        assert!(!net.is_closed(wire), "{text}");
    }
    // Session expiry may be changed at the end if it was not 0 in the beginning.
    net.send_bytes(wire, &bytes("e0 07 00 05 11 00000001"));
    assert_eq!((net.receive(wire), net.is_closed(wire)), (vec![], true));
}

#[test]
fn more_than_our_receive_maximum_ends_the_connection_with_its_reason() {
    let mut net = Net::new(1);
    let wire = net.v5("raw");
    let max = 1024;
    for id in 1..=max {
        net.send_bytes(wire, &[&[0x34, 6, 0, 1, b'a'][..], &u16::to_be_bytes(id), &[0]].concat());
    }
    assert!(!net.is_closed(wire), "up to what was announced");
    assert_eq!(net.receive(wire).len(), usize::from(max));
    net.send_bytes(wire, &[&[0x34, 6, 0, 1, b'a'][..], &u16::to_be_bytes(max + 1), &[0]].concat());
    assert_eq!(net.receive(wire), [Got::Disconnect(ReasonCode::ReceiveMaximumExceeded)]);
}
