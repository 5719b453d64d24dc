//! MQTT over TCP, by bytes: what a client sees of the process.

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use support::{Client, Message, address, config, connect_packet, encode, id_on_shard, publish, start, tcp};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Packet, QoS, ReasonCode, Version};

const VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];

#[test]
fn connect_ping_subscribe_publish() {
    let broker = start(config());
    for version in VERSIONS {
        let mut client = Client::tcp(address(&broker, ListenerKind::Mqtt), version, "one");
        client.ping();
        client.subscribe("a/+", QoS::AtMostOnce);
        client.publish("a/b", b"hello");
        assert_eq!(client.message(), Message { topic: "a/b".into(), payload: b"hello".to_vec() });
        client.send_bytes(b"\xe0\x00");
        assert_eq!(client.rest(), b"");
    }
    broker.shutdown();
}

#[test]
fn a_message_crosses_from_every_shard_to_every_shard() {
    let broker = start(Config { shards: 3, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    for to in 0..3 {
        let mut subscriber = Client::tcp(address, Version::V5, &format!("{}-s", id_on_shard(to, 3)));
        for from in 0..3 {
            let mut publisher = Client::tcp(address, Version::V311, &id_on_shard(from, 3));
            // The SUBACK has been seen: from here on no message may be missed, whatever the shard.
            let topic = format!("t/{from}/{to}");
            subscriber.subscribe(&topic, QoS::AtMostOnce);
            publisher.publish(&topic, b"x");
            assert_eq!(subscriber.message().topic, topic);
        }
    }
    broker.shutdown();
}

#[test]
fn a_suback_is_never_seen_before_the_subscription() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut subscriber = Client::tcp(address, Version::V311, &id_on_shard(0, 2));
    let mut publisher = Client::tcp(address, Version::V311, &id_on_shard(1, 2));
    for number in 0..300 {
        let topic = format!("race/{number}");
        subscriber.subscribe(&topic, QoS::AtMostOnce);
        publisher.publish(&topic, b"");
        assert_eq!(subscriber.message().topic, topic);
    }
    broker.shutdown();
}

#[test]
fn another_connection_takes_over() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut first = Client::tcp(address, Version::V5, "same");
    let mut second = Client::tcp(address, Version::V5, "same");
    assert_eq!(first.disconnect_reason(), ReasonCode::SessionTakenOver);
    assert_eq!(first.rest(), b"");
    second.ping();
    broker.shutdown();
}

#[test]
fn packets_may_come_in_any_pieces() {
    let broker = start(config());
    let mut client = Client::new(tcp(address(&broker, ListenerKind::Mqtt)), Version::V311);
    let mut bytes = encode(&connect_packet(Version::V311, "slow"), Version::V311);
    bytes.extend_from_slice(b"\x82\x06\x00\x01\x00\x01a\x00");
    bytes.extend(encode(&publish("a", b"piecemeal"), Version::V311));
    for byte in &bytes {
        client.send_bytes(&[*byte]);
    }
    assert_eq!(client.connack(), ReasonCode::Success);
    client.next(|packet| assert!(matches!(packet, Packet::SubAck(_))));
    assert_eq!(client.message().payload, b"piecemeal");

    // And all in one.
    let mut client = Client::new(tcp(address(&broker, ListenerKind::Mqtt)), Version::V311);
    client.send_bytes(&bytes);
    assert_eq!(client.connack(), ReasonCode::Success);
    client.next(|packet| assert!(matches!(packet, Packet::SubAck(_))));
    assert_eq!(client.message().payload, b"piecemeal");
    broker.shutdown();
}

/// More than any turn reads: all of it is handled, and what each of them sent stays in its order.
#[test]
fn what_many_send_without_a_pause_is_read_in_turns_and_nothing_is_lost_or_out_of_order() {
    const SENDERS: usize = 12;
    const MESSAGES: usize = 4000;
    // Room for all of it: this is about reading.
    let settings = Settings { queue_messages_max: 2 * SENDERS * MESSAGES, ..Settings::default() };
    let broker = start(Config { settings, ..config() });
    let address = address(&broker, ListenerKind::Mqtt);
    let mut reader = Client::tcp(address, Version::V5, "reader");
    reader.subscribe("n/+", QoS::AtMostOnce);
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            std::thread::spawn(move || {
                let mut client = Client::tcp(address, Version::V5, &format!("sender-{sender}"));
                let topic = format!("n/{sender}");
                let one = |n: usize| encode(&publish(&topic, n.to_string().as_bytes()), Version::V5);
                client.send_bytes(&(0..MESSAGES).flat_map(one).collect::<Vec<u8>>());
                // Behind all of it.
                client.ping();
            })
        })
        .collect();
    let mut next = [0; SENDERS];
    while next.iter().any(|next| *next < MESSAGES) {
        let Message { topic, payload } = reader.message();
        let sender: usize = topic[2..].parse().unwrap();
        assert_eq!(payload, next[sender].to_string().as_bytes(), "of sender {sender}");
        next[sender] += 1;
    }
    for sender in senders {
        sender.join().unwrap();
    }
    broker.shutdown();
}

#[test]
fn large_packets_pass_and_are_not_mixed_up() {
    let broker = start(config());
    let mut client = Client::tcp(address(&broker, ListenerKind::Mqtt), Version::V5, "large");
    client.subscribe("big", QoS::AtMostOnce);
    for size in [31 * 1024, 33 * 1024, 65 * 1024, 500_000, 1_000_000, 3] {
        let payload: Vec<u8> = (0..size).map(|n: u32| (n % 251) as u8).collect();
        client.publish("big", &payload);
        assert_eq!(client.message().payload, payload, "{size}");
    }
    broker.shutdown();
}

#[test]
fn everything_before_the_end_counts() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut subscriber = Client::tcp(address, Version::V311, "listener");
    subscriber.subscribe("last/#", QoS::AtMostOnce);
    // More small packets than one call of the core takes, and the end of the stream right behind them.
    let mut bytes = encode(&connect_packet(Version::V311, "hasty"), Version::V311);
    for _ in 0..10_000 {
        bytes.extend(encode(&publish("last/one", b"x"), Version::V311));
    }
    bytes.extend_from_slice(b"\xe0\x00");
    let mut stream = tcp(address);
    let writer = std::thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream
    });
    for _ in 0..10_000 {
        assert_eq!(subscriber.message().topic, "last/one");
    }
    drop(writer.join().unwrap());
    broker.shutdown();
}

#[test]
fn f006_f028_a_wrong_first_packet_ends_it() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let cases: [(&[u8], &[u8]); 5] = [
        (b"\xc0\x00", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""),
        (b"\x10\x0c\x00\x04MQTT\x06\x02\x00\x3c\x00\x00", b"\x20\x03\x00\x84\x00"),
        (b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05", b"\x20\x03\x00\x95\x00"),
    ];
    for (bytes, answer) in cases {
        let mut stream = tcp(address);
        stream.write_all(bytes).unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert_eq!(received, answer, "{bytes:?}");
    }
    // Nobody else noticed.
    Client::tcp(address, Version::V5, "fine").ping();
    broker.shutdown();
}

#[test]
fn a_malformed_packet_is_told_and_ends_it() {
    let broker = start(config());
    let mut client = Client::tcp(address(&broker, ListenerKind::Mqtt), Version::V5, "broken");
    client.send_bytes(b"\xc0\x01\x00");
    // Much more behind it: the answer must not be lost in a reset.
    client.send_bytes(&vec![0; 20_000]);
    assert_eq!(client.disconnect_reason(), ReasonCode::MalformedPacket);
    assert_eq!(client.rest(), b"");
    broker.shutdown();
}

#[test]
fn f083_a_client_that_says_nothing_is_closed() {
    let broker = start(Config { handshake_timeout: Duration::from_millis(200), ..config() });
    let mut stream = tcp(address(&broker, ListenerKind::Mqtt));
    stream.write_all(b"\x10\x0c\x00").unwrap();
    let begin = Instant::now();
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());
    broker.shutdown();
}

#[test]
fn a_shutdown_says_so() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut clients: Vec<Client> =
        (0..10).map(|number| Client::tcp(address, Version::V5, &format!("drained{number}"))).collect();
    let mut old = Client::tcp(address, Version::V311, "old");
    let shutdown = std::thread::spawn(move || broker.shutdown());
    for client in &mut clients {
        assert_eq!(client.disconnect_reason(), ReasonCode::ServerShuttingDown);
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(old.rest(), b"");
    drop((clients, old));
    shutdown.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_client_without_a_name_gets_one() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut names = Vec::new();
    for _ in 0..4 {
        let mut client = Client::new(tcp(address), Version::V5);
        client.send(&connect_packet(Version::V5, ""));
        names.push(client.next(|packet| match packet {
            Packet::ConnAck(connack) => connack.properties.assigned_client_id().unwrap().to_owned(),
            other => panic!("{other:?}"),
        }));
        client.ping();
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 4);
    let mut client = Client::new(tcp(address), Version::V311).connected("");
    client.ping();
    broker.shutdown();
}

#[test]
fn a_subscriber_that_reads_slowly_gets_everything_that_fits() {
    let broker = start(config());
    let address = address(&broker, ListenerKind::Mqtt);
    let mut subscriber = Client::tcp(address, Version::V311, "slow reader");
    let mut publisher = Client::tcp(address, Version::V311, "fast writer");
    subscriber.subscribe("q", QoS::AtLeastOnce);
    let payload = vec![7; 100_000];
    for _ in 0..5 {
        publisher.publish("q", &payload);
    }
    // Everything is handled when the ping is answered.
    publisher.ping();
    for _ in 0..5 {
        assert_eq!(subscriber.message().payload, payload);
    }
    broker.shutdown();
}
