//! The bytes: what is written is read back, and what is not a message is none.

use std::num::NonZeroU16;

use proptest::prelude::*;
use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef, WillTopic};
use tidegate_wire_mqtt::QoS;

#[test]
fn messages_have_the_bytes_of_the_specification() {
    let cases: [(Packet<'_>, &[u8]); 8] = [
        (Packet::SearchGw { radius: 0 }, b"\x03\x01\x00"),
        (Packet::GwInfo { gateway: 9, address: &[] }, b"\x03\x02\x09"),
        (
            Packet::Connect { will: true, clean: true, protocol: 1, seconds: 60, client_id: "ab" },
            b"\x08\x04\x0c\x01\x00\x3cab",
        ),
        (
            Packet::Publish(Publish {
                dup: true,
                quality: Quality::Unconnected,
                retain: true,
                topic: TopicRef::Short(*b"tt"),
                message: 0,
                payload: b"x",
            }),
            b"\x08\x0c\xf2tt\x00\x00x",
        ),
        (
            Packet::Subscribe { dup: false, qos: QoS::AtLeastOnce, message: one(), topic: FilterRef::Name("a/#") },
            b"\x08\x12\x20\x00\x01a/#",
        ),
        (Packet::Disconnect { seconds: Some(30) }, b"\x04\x18\x00\x1e"),
        (Packet::Disconnect { seconds: None }, b"\x02\x18"),
        (Packet::WillTopicUpd(None), b"\x02\x1a"),
    ];
    for (packet, bytes) in cases {
        assert_eq!(packet.bytes(), bytes, "{packet:?}");
        assert_eq!(Packet::read(bytes), Some(packet));
    }
}

#[test]
fn a_long_message_has_three_bytes_of_length_and_a_short_one_may() {
    let payload = [7; 300];
    let packet = Packet::WillMsg(&payload);
    assert_eq!(packet.bytes()[..4], [1, 1, 48, 9]);
    assert_eq!(Packet::read(&packet.bytes()), Some(packet));
    assert_eq!(Packet::read(&[1, 0, 4, 0x17]), Some(Packet::PingResp));
    let packet = Packet::WillMsg(&payload[..253]);
    assert_eq!((packet.bytes().len(), packet.bytes()[0]), (255, 255));
}

#[test]
fn what_is_no_message_is_not_read() {
    let wrong: [&[u8]; 20] = [
        b"",
        b"\x00",
        b"\x01",
        b"\x01\x00",
        b"\x02",
        b"\x03\x17",
        b"\x02\x17\x00",
        b"\x03\x17\x00",
        b"\x02\x03",
        b"\x03\xfe\x00",
        b"\x05\x04\x04\x01\x00",
        b"\x07\x04\x04\x01\x00\x3c\xff",
        b"\x06\x0c\x00\x00\x01\x00",
        b"\x07\x0c\x20\x00\x01\x00\x00",
        b"\x07\x0c\x03\x00\x01\x00\x01",
        b"\x07\x0c\x60\x00\x01\x00\x00",
        b"\x06\x12\x60\x00\x01a",
        b"\x06\x12\x02\x00\x01a",
        b"\x06\x12\x00\x00\x00a",
        b"\x04\x10\x00\x00",
    ];
    for bytes in wrong {
        assert_eq!(Packet::read(bytes), None, "{bytes:?}");
    }
}

fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)]
}

fn topic() -> impl Strategy<Value = TopicRef> {
    let short = any::<[u8; 2]>().prop_map(TopicRef::Short);
    prop_oneof![any::<u16>().prop_map(TopicRef::Id), any::<u16>().prop_map(TopicRef::Predefined), short]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        (text, data) in ("[a-zé/+#]{1,300}", proptest::collection::vec(any::<u8>(), 0..600)),
        (word, code, flag) in (any::<u16>(), any::<u8>(), any::<bool>()),
        (message, qos, topic) in (1_u16.., qos(), topic()),
    ) {
        let (number, code) = (NonZeroU16::new(message).unwrap(), ReturnCode::of(code));
        let will = Some(WillTopic { name: &text, qos, retain: flag }).filter(|_| word % 2 == 0);
        let filter = match topic {
            TopicRef::Id(_) => FilterRef::Name(&text),
            TopicRef::Predefined(id) => FilterRef::Predefined(id),
            TopicRef::Short(name) => FilterRef::Short(name),
        };
        let quality = Quality::Connected(qos);
        let publish = Publish { dup: flag, quality, retain: !flag, topic, message, payload: &data };
        let packets = [
            Packet::Advertise { gateway: 1, seconds: word },
            Packet::SearchGw { radius: 3 },
            Packet::GwInfo { gateway: 1, address: &data },
            Packet::Connect { will: flag, clean: !flag, protocol: 1, seconds: word, client_id: &text },
            Packet::ConnAck(code),
            Packet::WillTopicReq,
            Packet::WillTopic(will),
            Packet::WillMsgReq,
            Packet::WillMsg(&data),
            Packet::Register { topic_id: word, message, name: &text },
            Packet::RegAck { topic_id: word, message, code },
            Packet::Publish(publish),
            Packet::PubAck { topic: word, message, code },
            Packet::PubRec(number),
            Packet::PubRel(number),
            Packet::PubComp(number),
            Packet::Subscribe { dup: flag, qos, message: number, topic: filter },
            Packet::SubAck { qos, topic_id: word, message, code },
            Packet::Unsubscribe { message: number, topic: filter },
            Packet::UnsubAck(message),
            Packet::PingReq { client_id: &text },
            Packet::PingResp,
            Packet::Disconnect { seconds: Some(word).filter(|_| flag) },
            Packet::WillTopicUpd(will),
            Packet::WillTopicResp(code),
            Packet::WillMsgUpd(&data),
            Packet::WillMsgResp(code),
        ];
        for packet in packets {
            let bytes = packet.bytes();
            prop_assert_eq!(Packet::read(&bytes), Some(packet));
            // Cut anywhere, it is none.
            prop_assert_eq!(Packet::read(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn whatever_is_read_is_written_as_a_message_that_says_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 0_u8..0x20,
    ) {
        let mut bytes = bytes;
        if bytes.len() >= 2 {
            (bytes[0], bytes[1]) = (bytes.len() as u8, kind);
        }
        if let Some(packet) = Packet::read(&bytes) {
            let written = packet.bytes();
            prop_assert_eq!(Packet::read(&written), Some(packet));
        }
    }
}
