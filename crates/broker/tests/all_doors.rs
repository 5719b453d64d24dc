//! One topic through all doors: a message that is put in at one comes out at each, once, and every client's ledger has one
//! line for it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use support::amqp::Amqp;
use support::sn::{Message, SnClient};
use support::{Client, PATIENCE, address, config, ledger, listener, start, tcp};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_face_sn::packet::{FilterRef, Packet, ReturnCode, TopicRef};
use tidegate_wire_mqtt::{QoS, Version};

/// A client of CoAP, as far as this test needs one.
struct Coap(UdpSocket);

impl Coap {
    fn open(to: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(to).unwrap();
        Self(socket)
    }

    fn name(&self) -> String {
        format!("$coap/{}", self.0.local_addr().unwrap())
    }

    /// A confirmable PUT of an event to `/ps/one?retain=0`; 2.04 is the answer.
    fn put(&self, payload: &str) {
        let head = b"\x41\x03\x00\x01\x07\xb2ps\x03one\x48retain=0\xff";
        self.0.send(&[head, payload.as_bytes()].concat()).unwrap();
        let mut answer = [0; 64];
        let length = self.0.recv(&mut answer).unwrap();
        assert_eq!(answer[..5], *b"\x61\x44\x00\x01\x07", "{:?}", &answer[..length]);
    }

    /// Observes `/ps/one`, which says nothing yet.
    fn observe(&self) {
        self.0.send(b"\x41\x01\x00\x02\x08\x60\x52ps\x03one").unwrap();
        let mut answer = [0; 64];
        self.0.recv(&mut answer).unwrap();
        assert_eq!(answer[..5], *b"\x61\x45\x00\x02\x08");
    }

    /// The payload of the next notification, which is acknowledged if it has to be.
    fn notification(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.0.recv(&mut bytes).unwrap();
        if bytes[0] & 0x30 == 0 {
            self.0.send(&[0x60, 0, bytes[2], bytes[3]]).unwrap();
        }
        let marker = bytes[..length].iter().position(|byte| *byte == 0xff).unwrap();
        String::from_utf8(bytes[marker + 1..length].to_vec()).unwrap()
    }
}

fn post(to: SocketAddr, payload: &str) -> (TcpStream, String) {
    let mut stream = tcp(to);
    let name = format!("$http/{}", stream.local_addr().unwrap());
    let length = payload.len();
    write!(stream, "POST /topics/one HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{payload}")
        .unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 204 "), "{line}");
    (stream, name)
}

/// The next payload of a stream.
fn event(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: {\"topic\":\"one\",\"payload\":\"") {
            return data.trim_end().trim_end_matches("\"}").to_owned();
        }
    }
}

#[test]
fn a_message_put_in_at_each_door_comes_out_at_every_other_once() {
    let kinds =
        [ListenerKind::Mqtt, ListenerKind::HttpTopics, ListenerKind::Coap, ListenerKind::Sn, ListenerKind::Amqp];
    for shards in [1, 2] {
        let broker = start(Config { listeners: kinds.map(listener).into(), shards, ..config() });
        let [mqtt, http, coap, sn, amqp] = kinds.map(|kind| address(&broker, kind));

        let mut subscriber = Client::tcp(mqtt, Version::V5, "subscriber");
        subscriber.subscribe("one", QoS::AtMostOnce);
        let mut stream = BufReader::new(tcp(http));
        let asked = b"GET /topics/one HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        stream.get_mut().write_all(asked).unwrap();
        let mut line = String::new();
        while !line.starts_with("id: ") {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0);
        }
        let reader = format!("$http/{}", line.trim_end().trim_start_matches("id: ").trim_end_matches("-0"));
        let observer = Coap::open(coap);
        observer.observe();
        let node = SnClient::connect(sn, "node");
        let topic = TopicRef::Id(node.subscribe(FilterRef::Name("one"), QoS::AtMostOnce));
        let mut receiver = Amqp::open(amqp, "receiver");
        receiver.attach_receiver(0, "one", 100);

        let mut hear = |expected: &str| {
            assert_eq!(String::from_utf8(subscriber.message().payload).unwrap(), expected, "MQTT, {shards} shards");
            assert_eq!(event(&mut stream), expected, "HTTP, {shards} shards");
            assert_eq!(observer.notification(), expected, "CoAP, {shards} shards");
            assert_eq!(node.message(), Message { topic, payload: expected.into() }, "MQTT-SN, {shards} shards");
            assert_eq!(String::from_utf8(receiver.message()).unwrap(), expected, "AMQP, {shards} shards");
        };
        let mut publisher = Client::tcp(mqtt, Version::V311, "publisher");
        publisher.publish("one", b"from MQTT");
        hear("from MQTT");
        let (_socket, poster) = post(http, "from HTTP");
        hear("from HTTP");
        let putter = Coap::open(coap);
        putter.put("from CoAP");
        hear("from CoAP");
        let sensor = SnClient::connect(sn, "sensor");
        let called = sensor.register("one");
        assert_eq!(sensor.publish(TopicRef::Id(called), 1, "from MQTT-SN"), ReturnCode::Accepted);
        hear("from MQTT-SN");
        let mut sender = Amqp::open(amqp, "sender");
        sender.attach_sender(0, "one");
        sender.publish(0, b"from AMQP");
        hear("from AMQP");
        // Nothing else came there: the next word is the answer to this one.
        node.say(Packet::PingReq { client_id: "" });
        node.hear(|packet| assert_eq!(packet, Packet::PingResp));
        receiver.sync();

        for name in ["publisher".to_owned(), poster, putter.name(), "sensor".to_owned(), "sender".to_owned()] {
            let ledger = ledger(&broker, &name);
            assert_eq!((ledger.received, ledger.passed, ledger.deliveries), (1, 1, 0), "{name}");
        }
        for name in ["subscriber".to_owned(), reader, observer.name(), "node".to_owned(), "receiver".to_owned()] {
            let ledger = ledger(&broker, &name);
            assert_eq!((ledger.received, ledger.deliveries, ledger.delivered), (0, 5, 5), "{name}: {ledger:?}");
        }
        broker.shutdown();
    }
}
