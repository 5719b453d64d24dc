//! MQTT over WebSocket: handshake, frames, and what is refused.

mod support;

use std::io::{Read, Write};

use support::ws::{REQUEST, Ws, read_head};
use support::{Client, address, config, connect_packet, encode, listener, start, tcp};
use tidegate_broker::Broker;
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_wire_mqtt::{QoS, Version};

fn broker() -> Broker {
    start(Config { listeners: vec![listener(ListenerKind::Ws)], ..config() })
}

#[test]
fn packets_share_and_span_frames() {
    let broker = broker();
    for frame_bytes in [1, 7, 60_000] {
        let stream = tcp(address(&broker, ListenerKind::Ws));
        let mut client = Client::new(Ws::open(stream, frame_bytes), Version::V5).connected("browser");
        client.subscribe("t", QoS::AtMostOnce);
        for size in [0, 100, 3000] {
            let payload = vec![42; size];
            client.publish("t", &payload);
            assert_eq!(client.message().payload, payload);
        }
        client.ping();
    }
    broker.shutdown();
}

#[test]
fn large_messages_come_in_several_frames() {
    let broker = broker();
    let stream = tcp(address(&broker, ListenerKind::Ws));
    let mut client = Client::new(Ws::open(stream, 50_000), Version::V311).connected("browser");
    client.subscribe("t", QoS::AtMostOnce);
    let payload: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    client.publish("t", &payload);
    assert_eq!(client.message().payload, payload);
    broker.shutdown();
}

#[test]
fn a_fragmented_message_with_a_ping_inside() {
    let broker = broker();
    let mut ws = Ws::open(tcp(address(&broker, ListenerKind::Ws)), 1000);
    let connect = encode(&connect_packet(Version::V311, "fragments"), Version::V311);
    ws.send_frame(0x02, &connect[..5]).unwrap();
    ws.send_frame(0x89, b"are you there").unwrap();
    ws.send_frame(0x00, &connect[5..9]).unwrap();
    ws.send_frame(0x80, &connect[9..]).unwrap();
    let mut connack = [0; 4];
    ws.read_exact(&mut connack).unwrap();
    assert_eq!(connack, *b"\x20\x02\x00\x00");
    assert_eq!(ws.controls, [0xa]);
    // A ping to somebody that is connected, and the goodbye.
    ws.send_frame(0x89, b"").unwrap();
    assert!(ws.receive_frame().unwrap());
    ws.send_frame(0x88, &1000_u16.to_be_bytes()).unwrap();
    assert!(ws.receive_frame().unwrap());
    assert!(!ws.receive_frame().unwrap());
    assert_eq!(ws.controls, [0xa, 0xa, 0x8]);
    broker.shutdown();
}

#[test]
fn f084_text_frames_are_refused_before_and_after_connect() {
    let broker = broker();
    for is_connected in [false, true] {
        let mut ws = Ws::open(tcp(address(&broker, ListenerKind::Ws)), 1000);
        if is_connected {
            ws.write_all(&encode(&connect_packet(Version::V311, "text"), Version::V311)).unwrap();
            ws.read_exact(&mut [0; 4]).unwrap();
        }
        ws.send_frame(0x81, b"\xc0\x00").unwrap();
        assert!(ws.receive_frame().unwrap());
        assert_eq!(ws.controls, [0x8]);
        assert!(!ws.receive_frame().unwrap());
    }
    broker.shutdown();
}

#[test]
fn only_the_path_mqtt_and_the_subprotocol_mqtt() {
    let broker = broker();
    for (from, to, expected) in
        [("/mqtt", "/", "404"), ("/mqtt", "/other", "404"), ("mqtt\r\n\r\n", "chat\r\n\r\n", "400")]
    {
        let mut stream = tcp(address(&broker, ListenerKind::Ws));
        stream.write_all(REQUEST.replacen(from, to, 1).as_bytes()).unwrap();
        assert_eq!(&read_head(&mut stream)[9..12], expected);
        let mut body = Vec::new();
        stream.read_to_end(&mut body).unwrap();
        assert!(!body.is_empty());
    }
    broker.shutdown();
}
