//! Packets that must be refused, each with the reason code and the statement that it breaks (FAULTS.md, section A).

use tidegate_wire_mqtt::ReasonCode::{self, *};
use tidegate_wire_mqtt::Version::{self, V5, V311};
use tidegate_wire_mqtt::{Decoded, Limits, PeerError, Sender, decode, version_of_connect};

/// Version, bytes, expected reason, expected statement, and in a word what is wrong.
pub(crate) type Row = (Version, &'static [u8], ReasonCode, &'static str, &'static str);

#[rustfmt::skip] // a table
const FIXED_HEADER: &[Row] = &[
    (V5, b"\x00\x00", MalformedPacket, "2.1.2", "reserved type 0"),
    (V311, b"\xf0\x00", MalformedPacket, "2.1.2", "AUTH before MQTT 5"),
    (V5, b"\x1f\x0d\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00",
        MalformedPacket, "MQTT-2.1.3-1", "f007 flags on CONNECT"),
    (V5, b"\x21\x03\x00\x00\x00", MalformedPacket, "MQTT-2.1.3-1", "flags on CONNACK"),
    (V5, b"\x42\x02\x00\x01", MalformedPacket, "MQTT-2.1.3-1", "flags on PUBACK"),
    (V5, b"\x60\x02\x00\x01", MalformedPacket, "MQTT-2.1.3-1", "PUBREL without its flag"),
    (V5, b"\x80\x06\x00\x01\x00\x00\x01a\x00", MalformedPacket, "MQTT-2.1.3-1", "SUBSCRIBE without its flag"),
    (V311, b"\x83\x06\x00\x01\x00\x01a\x00", MalformedPacket, "MQTT-2.1.3-1", "SUBSCRIBE with one flag more"),
    (V311, b"\xa0\x05\x00\x01\x00\x01a", MalformedPacket, "MQTT-2.1.3-1", "UNSUBSCRIBE without its flag"),
    (V5, b"\xc1\x00", MalformedPacket, "MQTT-2.1.3-1", "flags on PINGREQ"),
    (V5, b"\xe8\x00", MalformedPacket, "MQTT-2.1.3-1", "flags on DISCONNECT"),
    (V5, b"\xc0\x80\x00", MalformedPacket, "MQTT-1.5.5-1", "f003 length 0 in two bytes"),
    (V311, b"\x30\x83\x80\x00\x00\x01a", MalformedPacket, "MQTT-1.5.5-1", "f003 length 3 in three bytes"),
    (V5, b"\x30\xff\xff\xff\xff\x7f", MalformedPacket, "1.5.5", "f002 length of five bytes"),
    (V311, b"\x30\x80\x80\x80\x80\x01", MalformedPacket, "1.5.5", "f002 length of five bytes"),
    (V5, b"\x30\xff\xff\xff\x7f", PacketTooLarge, "MQTT-3.2.2-15", "f001 256 MiB announced"),
    (V5, b"\xc0\x01\x00", MalformedPacket, "4.13.1", "body on PINGREQ"),
    (V311, b"\xd0\x02\x00\x00", MalformedPacket, "4.13.1", "body on PINGRESP"),
    (V311, b"\xe0\x01\x00", MalformedPacket, "4.13.1", "body on DISCONNECT before MQTT 5"),
    (V311, b"\x40\x03\x00\x01\x00", MalformedPacket, "4.13.1", "reason code in PUBACK before MQTT 5"),
    (V5, b"\x40\x01\x00", MalformedPacket, "4.13.1", "half a packet identifier"),
    (V311, b"\x20\x03\x00\x00\x00", MalformedPacket, "4.13.1", "properties in CONNACK before MQTT 5"),
    (V5, b"\x20\x02\x00\x00", MalformedPacket, "4.13.1", "CONNACK without properties"),
    (V5, b"\x10\x04\x00\x04MQ", MalformedPacket, "4.13.1", "CONNECT too short for anything"),
];

#[rustfmt::skip] // a table
const PUBLISH: &[Row] = &[
    (V5, b"\x36\x06\x00\x01a\x00\x01\x00", MalformedPacket, "MQTT-3.3.1-4", "f015 QoS 3"),
    (V311, b"\x38\x03\x00\x01a", MalformedPacket, "MQTT-3.3.1-2", "f015 DUP at QoS 0"),
    (V5, b"\x32\x06\x00\x01a\x00\x00\x00", ProtocolError, "MQTT-2.2.1-3", "f015 packet identifier 0"),
    (V311, b"\x32\x03\x00\x01a", MalformedPacket, "4.13.1", "f014 no packet identifier"),
    (V311, b"\x32\x04\x00\x01a\x00", MalformedPacket, "4.13.1", "f014 half a packet identifier"),
    (V5, b"\x30\x03\x00\x01a", MalformedPacket, "4.13.1", "no property length"),
    (V311, b"\x30\x02\x00\x05", MalformedPacket, "4.13.1", "topic cut off"),
    (V311, b"\x30\x05\x00\x03a/+", TopicNameInvalid, "MQTT-3.3.2-2", "f013 wildcard + in the topic"),
    (V5, b"\x30\x06\x00\x03a/#\x00", TopicNameInvalid, "MQTT-3.3.2-2", "f013 wildcard # in the topic"),
    (V5, b"\x30\x06\x00\x03a#b\x00", TopicNameInvalid, "MQTT-3.3.2-2", "f013 # inside a level"),
    (V5, b"\x30\x06\x00\x03a\0b\x00", MalformedPacket, "MQTT-1.5.4-2", "f012 NUL in the topic"),
    (V311, b"\x30\x04\x00\x02\xc0\x80", MalformedPacket, "MQTT-1.5.4-1", "f012 NUL written overlong"),
    (V311, b"\x30\x05\x00\x03\xed\xa0\x80", MalformedPacket, "MQTT-1.5.4-1", "f012 surrogate in the topic"),
    (V311, b"\x30\x03\x00\x01\xe2", MalformedPacket, "MQTT-1.5.4-1", "f012 character cut at the end of the field"),
    (V5, b"\x30\x03\x00\x00\x00", ProtocolError, "3.3.2.3.4", "f013 no topic and no alias"),
    (V311, b"\x30\x02\x00\x00", TopicNameInvalid, "MQTT-4.7.3-1", "f013 no topic"),
    (V5, b"\x30\x07\x00\x01a\x03\x23\x00\x00", TopicAliasInvalid, "MQTT-3.3.2-8", "f024 topic alias 0"),
    (V5, b"\x30\x06\x00\x01a\x02\x01\x02", ProtocolError, "3.1.2.11, 3.2.2.3, 3.3.2.3", "f022 payload format 2"),
    (V5, b"\x30\x06\x00\x01a\x02\x0b\x00", ProtocolError, "3.8.2.1.2", "f022 subscription identifier 0"),
    (V5, b"\x30\x08\x00\x01a\x04\x01\x00\x01\x00", ProtocolError, "2.2.2.2", "f022 payload format twice"),
    (V5, b"\x30\x0a\x00\x01a\x06\x23\x00\x01\x23\x00\x02", ProtocolError, "2.2.2.2", "f022 topic alias twice"),
    (V5, b"\x30\x08\x00\x01a\x04\x08\x00\x01+", ProtocolError, "MQTT-3.3.2-14", "wildcard in the response topic"),
    (V5, b"\x30\x07\x00\x01a\x03\x08\x00\x00", ProtocolError, "MQTT-4.7.3-1", "empty response topic"),
    (V5, b"\x30\x09\x00\x01a\x05\x11\x00\x00\x00\x01", MalformedPacket, "2.2.2.2", "f022 session expiry in PUBLISH"),
    (V5, b"\x30\x08\x00\x01a\x04\x1f\x00\x01x", MalformedPacket, "2.2.2.2", "f022 reason string in PUBLISH"),
    (V5, b"\x30\x06\x00\x01a\x02\x04\x00", MalformedPacket, "2.2.2.2", "f022 unknown property 4"),
    (V5, b"\x30\x06\x00\x01a\x02\x7f\x00", MalformedPacket, "2.2.2.2", "f022 unknown property 127"),
    (V5, b"\x30\x07\x00\x01a\x03\x81\x00\x00", MalformedPacket, "2.2.2.2", "property identifier in two bytes"),
    (V5, b"\x30\x05\x00\x01a\x80\x00", MalformedPacket, "MQTT-1.5.5-1", "f003 property length in two bytes"),
    (V5, b"\x30\x05\x00\x01a\x05\x01", MalformedPacket, "4.13.1", "property length beyond the packet"),
    (V5, b"\x30\x06\x00\x01a\x02\x02\x00", MalformedPacket, "4.13.1", "property cut off by the property length"),
    (V5, b"\x30\x09\x00\x01a\x05\x0b\xff\xff\xff\xff", MalformedPacket, "1.5.5", "subscription identifier too long"),
    (V5, b"\x30\x0a\x00\x01a\x06\x26\x00\x01\0\x00\x00", MalformedPacket, "MQTT-1.5.4-2", "NUL in a user property"),
    (V5, b"\x30\x07\x00\x01a\x03\x26\x00\x00", MalformedPacket, "4.13.1", "user property without a value"),
    (V5, b"\x30\x08\x00\x01a\x04\x03\x00\x01\xff", MalformedPacket, "MQTT-1.5.4-1", "content type is not UTF-8"),
];

#[rustfmt::skip] // a table
const CONNECT: &[Row] = &[
    (V5, b"\x10\x0c\x00\x04MQTT\x06\x02\x00\x00\x00\x00", UnsupportedProtocolVersion, "MQTT-3.1.2-2", "f008 level 6"),
    (V5, b"\x10\x0c\x00\x04MQTX\x04\x02\x00\x00\x00\x00", UnsupportedProtocolVersion, "MQTT-3.1.2-2", "f008 name"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x03\x00\x00\x00\x02id", MalformedPacket, "MQTT-3.1.2-3", "f009 reserved flag"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x42\x00\x00\x00\x02id", MalformedPacket, "MQTT-3.1.2-22 (3.1.1)", "f009 password"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x1e\x00\x00\x00\x02id", MalformedPacket, "MQTT-3.1.2-12", "f009 will QoS 3"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x0a\x00\x00\x00\x02id", MalformedPacket, "MQTT-3.1.2-11", "f009 will QoS, no will"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x22\x00\x00\x00\x02id",
        MalformedPacket, "MQTT-3.1.2-13", "f009 will retain, no will"),
    (V5, b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00", ClientIdentifierNotValid, "MQTT-3.1.3-8 (3.1.1)", "f011"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x03id", MalformedPacket, "4.13.1", "client identifier cut off"),
    (V5, b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x00\x00\x02id\x00", MalformedPacket, "4.13.1", "bytes left over"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x82\x00\x00\x00\x02id",
        MalformedPacket, "4.13.1", "user name announced, not there"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x06\x00\x00\x00\x02id", MalformedPacket, "4.13.1", "will announced, not there"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02i\0", MalformedPacket, "MQTT-1.5.4-2", "f011 NUL in client id"),
    (V5, b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02\xc3(", MalformedPacket, "MQTT-1.5.4-1", "f012 client id"),
    (V5, b"\x10\x13\x00\x04MQTT\x04\x06\x00\x00\x00\x02id\x00\x01#\x00\x00",
        TopicNameInvalid, "MQTT-3.3.2-2", "will topic"),
    (V5, b"\x10\x12\x00\x04MQTT\x04\x06\x00\x00\x00\x02id\x00\x00\x00\x00",
        TopicNameInvalid, "MQTT-4.7.3-1", "no will topic"),
    (V5, b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x00",
        ProtocolError, "3.1.2.11.3", "f022 receive maximum 0"),
    (V5, b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x05\x27\x00\x00\x00\x00\x00\x00",
        ProtocolError, "3.1.2.11.4", "f022 packet size 0"),
    (V5, b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x00\x02\x19\x02\x00\x00",
        ProtocolError, "3.1.2.11, 3.2.2.3, 3.3.2.3", "f022 flag 2"),
    (V5, b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x00\x02\x17\xff\x00\x00",
        ProtocolError, "3.1.2.11, 3.2.2.3, 3.3.2.3", "f022 flag 255"),
    (V5, b"\x10\x13\x00\x04MQTT\x05\x02\x00\x00\x06\x21\x00\x01\x21\x00\x01\x00\x00",
        ProtocolError, "2.2.2.2", "f022 twice"),
    (V5, b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x03\x16\x00\x00\x00\x00",
        ProtocolError, "3.1.2.11.10", "data without method"),
    (V5, b"\x10\x10\x00\x04MQTT\x05\x02\x00\x00\x03\x23\x00\x01\x00\x00",
        MalformedPacket, "2.2.2.2", "f022 alias in CONNECT"),
    (V5, b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x05\x18\x00\x00\x00\x00\x00\x00",
        MalformedPacket, "2.2.2.2", "will delay outside"),
    (V5, b"\x10\x16\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x00\x03\x21\x00\x01\x00\x01t\x00\x00",
        MalformedPacket, "2.2.2.2", "f023 will"),
    (V5, b"\x10\x15\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x00\x02\x01\x02\x00\x01t\x00\x00",
        ProtocolError, "3.1.2.11, 3.2.2.3, 3.3.2.3", "f023"),
];

#[rustfmt::skip] // a table
const SUBSCRIBE: &[Row] = &[
    (V5, b"\x82\x03\x00\x01\x00", ProtocolError, "MQTT-3.8.3-2", "f016 no filter"),
    (V311, b"\x82\x02\x00\x01", ProtocolError, "MQTT-3.8.3-2", "f016 no filter"),
    (V311, b"\x82\x06\x00\x00\x00\x01a\x00", ProtocolError, "MQTT-2.2.1-3", "packet identifier 0"),
    (V311, b"\x82\x06\x00\x01\x00\x01a\x03", MalformedPacket, "MQTT-3.8.3-4 (3.1.1)", "QoS 3"),
    (V311, b"\x82\x06\x00\x01\x00\x01a\x04", MalformedPacket, "MQTT-3.8.3-4 (3.1.1)", "options before MQTT 5"),
    (V5, b"\x82\x07\x00\x01\x00\x00\x01a\x03", ProtocolError, "3.8.3.1", "QoS 3"),
    (V5, b"\x82\x07\x00\x01\x00\x00\x01a\x40", MalformedPacket, "MQTT-3.8.3-5", "f016 reserved bit 6"),
    (V5, b"\x82\x07\x00\x01\x00\x00\x01a\x80", MalformedPacket, "MQTT-3.8.3-5", "f016 reserved bit 7"),
    (V5, b"\x82\x07\x00\x01\x00\x00\x01a\x30", ProtocolError, "3.8.3.1", "f016 retain handling 3"),
    (V311, b"\x82\x05\x00\x01\x00\x01a", MalformedPacket, "4.13.1", "filter without options"),
    (V311, b"\x82\x06\x00\x01\x00\x05a\x00", MalformedPacket, "4.13.1", "filter cut off"),
    (V311, b"\x82\x0a\x00\x01\x00\x05a/#/b\x00", TopicFilterInvalid, "MQTT-4.7.1-1", "# not last"),
    (V311, b"\x82\x07\x00\x01\x00\x02a#\x00", TopicFilterInvalid, "MQTT-4.7.1-1", "# not alone"),
    (V311, b"\x82\x07\x00\x01\x00\x02a+\x00", TopicFilterInvalid, "MQTT-4.7.1-2", "+ not alone"),
    (V311, b"\x82\x09\x00\x01\x00\x04+a/b\x00", TopicFilterInvalid, "MQTT-4.7.1-2", "+ not alone"),
    (V311, b"\x82\x05\x00\x01\x00\x00\x00", TopicFilterInvalid, "MQTT-4.7.3-1", "empty filter"),
    (V311, b"\x82\x07\x00\x01\x00\x02a\0\x00", MalformedPacket, "MQTT-1.5.4-2", "NUL in the filter"),
    (V5, b"\x82\x0f\x00\x01\x00\x00\x09$share//x\x00", TopicFilterInvalid, "MQTT-4.8.2-1", "f020 empty group"),
    (V5, b"\x82\x0e\x00\x01\x00\x00\x08$share/g\x00",
        TopicFilterInvalid, "MQTT-4.7.3-1", "f020 group without a filter"),
    (V5, b"\x82\x0f\x00\x01\x00\x00\x09$share/g/\x00", TopicFilterInvalid, "MQTT-4.7.3-1", "f020 group, empty filter"),
    (V5, b"\x82\x10\x00\x01\x00\x00\x0a$share/+/x\x00",
        TopicFilterInvalid, "MQTT-4.8.2-2", "f020 wildcard in the group"),
    (V5, b"\x82\x11\x00\x01\x00\x00\x0b$share/g/x+\x00",
        TopicFilterInvalid, "MQTT-4.7.1-2", "f020 bad filter in a group"),
    (V5, b"\x82\x10\x00\x01\x00\x00\x0a$share/g/x\x04", ProtocolError, "MQTT-3.8.3-4", "f020 no local on shared"),
    (V5, b"\x82\x09\x00\x01\x02\x0b\x00\x00\x01a\x00", ProtocolError, "3.8.2.1.2", "f022 subscription identifier 0"),
    (V5, b"\x82\x0b\x00\x01\x04\x0b\x01\x0b\x02\x00\x01a\x00",
        ProtocolError, "2.2.2.2", "f022 subscription identifier twice"),
    (V5, b"\xa2\x03\x00\x01\x00", ProtocolError, "MQTT-3.10.3-2", "UNSUBSCRIBE without a filter"),
    (V311, b"\xa2\x05\x00\x00\x00\x01a", ProtocolError, "MQTT-2.2.1-3", "UNSUBSCRIBE identifier 0"),
    (V311, b"\xa2\x06\x00\x01\x00\x03a/", MalformedPacket, "4.13.1", "UNSUBSCRIBE filter cut off"),
    (V311, b"\xa2\x06\x00\x01\x00\x02#a", TopicFilterInvalid, "MQTT-4.7.1-1", "UNSUBSCRIBE # not alone"),
    (V5, b"\xa2\x0e\x00\x01\x00\x00\x09$share//x", TopicFilterInvalid, "MQTT-4.8.2-1", "f020 UNSUBSCRIBE empty group"),
    (V5, b"\xa2\x08\x00\x01\x02\x0b\x01\x00\x01a",
        MalformedPacket, "2.2.2.2", "subscription identifier in UNSUBSCRIBE"),
];

#[rustfmt::skip] // a table
const ANSWERS: &[Row] = &[
    (V5, b"\x20\x03\x02\x00\x00", MalformedPacket, "MQTT-3.2.2-1", "reserved acknowledge flags"),
    (V311, b"\x20\x02\x01\x05", ProtocolError, "MQTT-3.2.2-6", "session present in a refusal"),
    (V311, b"\x20\x02\x00\x06", ProtocolError, "3.2.2.3", "reserved return code"),
    (V5, b"\x20\x03\x00\x01\x00", ProtocolError, "MQTT-3.2.2-8", "reason code of SUBACK in CONNACK"),
    (V5, b"\x20\x05\x00\x00\x02\x24\x02", ProtocolError, "3.1.2.11, 3.2.2.3, 3.3.2.3", "maximum QoS 2"),
    (V5, b"\x20\x04\x00\x00\x00\x00", MalformedPacket, "4.13.1", "bytes left over in CONNACK"),
    (V311, b"\x40\x02\x00\x00", ProtocolError, "MQTT-2.2.1-3", "PUBACK identifier 0"),
    (V5, b"\x40\x03\x00\x01\x92", ProtocolError, "MQTT-3.4.2-1", "reason code of PUBREL in PUBACK"),
    (V5, b"\x40\x03\x00\x01\x03", ProtocolError, "MQTT-3.4.2-1", "reason code that does not exist"),
    (V5, b"\x50\x03\x00\x01\x82", ProtocolError, "MQTT-3.5.2-1", "reason code of DISCONNECT in PUBREC"),
    (V5, b"\x62\x03\x00\x01\x10", ProtocolError, "MQTT-3.6.2-1", "reason code of PUBREC in PUBREL"),
    (V5, b"\x70\x03\x00\x01\x80", ProtocolError, "MQTT-3.7.2-1", "reason code of PUBACK in PUBCOMP"),
    (V5, b"\x40\x05\x00\x01\x00\x00\x00", MalformedPacket, "4.13.1", "bytes left over in PUBACK"),
    (V5, b"\x40\x07\x00\x01\x00\x03\x23\x00\x01", MalformedPacket, "2.2.2.2", "topic alias in PUBACK"),
    (V5, b"\x40\x0a\x00\x01\x00\x06\x1f\x00\x00\x1f\x00\x00", ProtocolError, "2.2.2.2", "reason string twice"),
    (V311, b"\x90\x03\x00\x01\x03", ProtocolError, "MQTT-3.9.3-2 (3.1.1)", "reserved return code in SUBACK"),
    (V5, b"\x90\x04\x00\x01\x00\x11", ProtocolError, "MQTT-3.9.3-2", "reason code of UNSUBACK in SUBACK"),
    (V5, b"\x90\x03\x00\x01\x00", ProtocolError, "MQTT-3.8.4-6", "SUBACK without reason codes"),
    (V311, b"\x90\x02\x00\x01", ProtocolError, "MQTT-3.8.4-5 (3.1.1)", "SUBACK without return codes"),
    (V5, b"\xb0\x03\x00\x01\x00", ProtocolError, "MQTT-3.11.3-1", "UNSUBACK without reason codes"),
    (V311, b"\xb0\x03\x00\x01\x00", MalformedPacket, "4.13.1", "reason codes in UNSUBACK before MQTT 5"),
    (V5, b"\xb0\x04\x00\x01\x00\x01", ProtocolError, "MQTT-3.11.3-2", "reason code of SUBACK in UNSUBACK"),
    (V5, b"\xe0\x01\x01", ProtocolError, "MQTT-3.14.2-1", "reason code of SUBACK in DISCONNECT"),
    (V5, b"\xe0\x03\x00\x00\x00", MalformedPacket, "4.13.1", "bytes left over in DISCONNECT"),
    (V5, b"\xe0\x05\x00\x03\x21\x00\x01", MalformedPacket, "2.2.2.2", "receive maximum in DISCONNECT"),
    (V5, b"\xf0\x01\x18", MalformedPacket, "4.13.1", "AUTH without property length"),
    (V5, b"\xf0\x02\x18\x00", ProtocolError, "3.15.2.2.2", "AUTH without a method"),
    (V5, b"\xf0\x06\x87\x04\x15\x00\x01m", ProtocolError, "MQTT-3.15.2-1", "reason code of CONNACK in AUTH"),
];

pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [FIXED_HEADER, PUBLISH, CONNECT, SUBSCRIBE, ANSWERS].into_iter().flatten()
}

fn refusal(bytes: &[u8], version: Version, limits: &Limits) -> Option<PeerError> {
    decode(bytes, version, limits).err()
}

#[test]
fn each_bad_packet_is_refused_with_its_reason_and_statement() {
    let limits = Limits::default();
    for &(version, bytes, reason, section, what) in rows() {
        let error = refusal(bytes, version, &limits).unwrap_or_else(|| panic!("accepted: {what}, {bytes:x?}"));
        assert_eq!((error.reason, error.section), (reason, section), "{what}: {error}, {bytes:x?}");
    }
    assert!(rows().count() >= 130, "{}", rows().count());
}

#[test]
fn a_bad_packet_is_refused_the_same_byte_by_byte() {
    let limits = Limits::default();
    for &(version, bytes, _, _, what) in rows() {
        let whole = refusal(bytes, version, &limits);
        let first = (0..=bytes.len()).find_map(|len| refusal(&bytes[..len], version, &limits));
        assert_eq!(first, whole, "{what}");
    }
}

#[test]
fn what_follows_a_bad_packet_does_not_save_it() {
    let limits = Limits::default();
    for &(version, bytes, _, _, what) in rows() {
        let followed = [bytes, &[0; 64]].concat();
        assert_eq!(refusal(&followed, version, &limits), refusal(bytes, version, &limits), "{what}");
    }
}

#[test]
fn f021_properties_are_capped_in_number_and_bytes() {
    let limits = Limits { property_count_max: 3, property_bytes_max: 40, ..Limits::default() };
    let publish = |properties: &[u8]| {
        let mut bytes = vec![0x30, 4 + properties.len() as u8, 0, 1, b'a', properties.len() as u8];
        bytes.extend_from_slice(properties);
        refusal(&bytes, V5, &limits).map(|error| error.reason)
    };
    let small = b"\x26\x00\x00\x00\x00";
    assert_eq!(publish(&small.repeat(3)), None);
    assert_eq!(publish(&small.repeat(4)), Some(QuotaExceeded));
    let large = [&b"\x26\x00\x00\x00\x24"[..], &[b'x'; 36]].concat();
    assert_eq!(publish(&large), Some(QuotaExceeded));
}

#[test]
fn f018_sixty_five_thousand_levels_are_refused() {
    let mut publish = vec![0x30, 0x81, 0x80, 0x04, 0xff, 0xff];
    publish.extend_from_slice("/".repeat(65_535).as_bytes());
    let error = refusal(&publish, V311, &Limits::default()).unwrap();
    assert_eq!((error.reason, error.detail), (TopicNameInvalid, "topic name has too many levels"));
    let mut subscribe = vec![0x82, 0x84, 0x80, 0x04, 0x00, 0x01, 0xff, 0xff];
    subscribe.extend_from_slice("/".repeat(65_535).as_bytes());
    subscribe.push(0);
    let error = refusal(&subscribe, V311, &Limits::default()).unwrap();
    assert_eq!((error.reason, error.detail), (TopicFilterInvalid, "topic filter has too many levels"));
}

#[test]
fn a_client_may_not_send_subscription_identifiers_with_a_message() {
    // [MQTT-3.3.4-6]
    let bytes = b"\x30\x06\x00\x01a\x02\x0b\x01";
    let clients = Limits::default().with_sender(Sender::Client);
    assert_eq!(refusal(bytes, V5, &clients).unwrap().section, "MQTT-3.3.4-6");
    assert!(refusal(bytes, V5, &Limits::default().with_sender(Sender::Server)).is_none());
}

#[test]
fn unusual_but_legal_packets_are_accepted() {
    let legal: [(Version, &[u8]); 12] = [
        (V5, b"\x30\x07\x00\x03\xef\xbb\xbf\x00x"),
        (V311, b"\x30\x04\x00\x02a\x01"),
        (V311, b"\x30\x03\x00\x01/"),
        (V311, b"\x30\x06\x00\x04$SYS"),
        (V5, b"\x30\x08\x00\x01a\x04\x0b\x01\x0b\x01"),
        (V5, b"\x30\x0e\x00\x01a\x0a\x26\x00\x00\x00\x00\x26\x00\x00\x00\x00"),
        (V5, b"\x30\x06\x00\x01a\x02\x01\x01"),
        (V5, b"\x10\x0d\x00\x04MQTT\x05\x00\x00\x00\x00\x00\x00"),
        (V5, b"\x10\x0f\x00\x04MQTT\x05\x42\x00\x00\x00\x00\x00\x00\x00"),
        (V311, b"\x82\x06\x00\x01\x00\x01#\x02"),
        (V5, b"\x40\x04\x00\x01\x00\x00"),
        (V5, b"\xe0\x02\x00\x00"),
    ];
    for (version, bytes) in legal {
        let decoded = decode(bytes, version, &Limits::default());
        assert!(
            matches!(decoded, Ok(Decoded::Packet { consumed, .. }) if consumed == bytes.len()),
            "{bytes:x?}: {decoded:?}"
        );
    }
}

/// Why the codec is our own: see the README for the count of this run, `cargo test peers -- --nocapture`.
#[test]
fn peers_accept_more_than_a_third_of_the_table() {
    let accepted = rows().filter(|&&(version, bytes, ..)| accepted_by_peer(bytes, version)).count();
    println!("{accepted} of {} bad packets are accepted by peers", rows().count());
    assert!(accepted * 3 > rows().count());
}

fn accepted_by_peer(bytes: &[u8], version: Version) -> bool {
    let mut buffer = bytes::BytesMut::from(bytes);
    // A CONNECT is for the codec of the version that it names.
    if version_of_connect(bytes).unwrap_or(version) == V5 {
        mqtt_bytes_v5::Packet::read(&mut buffer, Some(1 << 20)).is_ok()
    } else {
        mqttbytes::v4::read(&mut buffer, 1 << 20).is_ok()
    }
}
