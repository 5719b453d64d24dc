//! The MQTT client against the broker, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::soon;
use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_client::{Error, Mqtt, MqttConfig, MqttMessage, PublishError, QoS};
use tidegate_core::access::Open;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn start(kind: ListenerKind, at: SocketAddr) -> (Broker, SocketAddr) {
    let config = Config {
        listeners: vec![Listener::new(kind, at)],
        shards: 1,
        drain_timeout: std::time::Duration::ZERO,
        ..Config::default()
    };
    let broker = Broker::start(config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    let address = broker.addresses()[0].1;
    (broker, address)
}

fn free() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn what_is_published_is_acknowledged_and_arrives() {
    for (kind, scheme) in [(ListenerKind::Mqtt, "mqtt"), (ListenerKind::Ws, "ws")] {
        let (_broker, at) = start(kind, free());
        let mqtt = soon(Mqtt::connect(&format!("{scheme}://{at}"))).await.unwrap();
        soon(mqtt.subscribe("room/#", QoS::ExactlyOnce)).await.unwrap();
        for (number, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().enumerate() {
            let payload = number.to_string().into_bytes();
            let sent = MqttMessage { topic: "room/a".into(), payload, qos, retain: false };
            soon(mqtt.publish_message(sent.clone())).await.unwrap();
            assert_eq!(soon(mqtt.next()).await.unwrap(), sent, "{scheme}");
        }
        // Longer than what is written at once.
        let payload: Vec<u8> = (0..100_000_u32).map(|place| (place % 251) as u8).collect();
        let sent = MqttMessage { topic: "room/a".into(), payload, qos: QoS::AtLeastOnce, retain: false };
        soon(mqtt.publish_message(sent.clone())).await.unwrap();
        assert!(soon(mqtt.next()).await.unwrap() == sent, "{scheme}");
        assert!(matches!(mqtt.publish("a/#", "x").await, Err(PublishError::Topic(_))));
        assert!(matches!(soon(mqtt.subscribe("a/#/b", QoS::AtMostOnce)).await, Err(Error::Rejected(_))));
    }
}

#[tokio::test]
async fn a_restart_of_the_broker_loses_nothing_that_was_not_acknowledged() {
    let (broker, at) = start(ListenerKind::Mqtt, free());
    let config = MqttConfig { client_id: "publisher".into(), ..MqttConfig::default() };
    let mqtt = soon(Mqtt::connect_with(&format!("mqtt://{at}"), config)).await.unwrap();
    soon(mqtt.publish("a", "1")).await.unwrap();
    drop(broker);
    let waiting = tokio::spawn({
        let mqtt = mqtt.clone();
        async move { mqtt.publish("a", "2").await }
    });
    let (_broker, _) = start(ListenerKind::Mqtt, at);
    assert!(soon(waiting).await.unwrap().is_ok(), "it waited for the broker to come back");
    assert_eq!(mqtt.stats().await.unwrap().connects, 2);
}

#[tokio::test]
async fn a_broker_that_is_none_is_an_error_and_never_a_busy_loop() {
    let listener = tokio::net::TcpListener::bind(free()).await.unwrap();
    let at = listener.local_addr().unwrap();
    let liar = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 64];
        let _ = stream.read(&mut bytes).await;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    assert!(matches!(soon(Mqtt::connect(&format!("mqtt://{at}"))).await, Err(Error::Nonsense(_))));
    soon(liar).await.unwrap();
    assert!(matches!(soon(Mqtt::connect("mqtt://127.0.0.1:1")).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_refusal_of_the_broker_is_typed_and_says_when_to_come_back() {
    use tidegate_wire_mqtt::{
        Ack, AckKind, ConnAck, Decoded, Encode, Limits, Packet, Peer, Properties, Property, ReasonCode, Version, decode,
    };
    let listener = tokio::net::TcpListener::bind(free()).await.unwrap();
    let at = listener.local_addr().unwrap();
    let broker = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        loop {
            if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                return;
            }
            let mut out = Vec::new();
            let mut read = 0;
            while let Ok(Decoded::Packet { packet, consumed }) = decode(&bytes[read..], Version::V5, &Limits::default())
            {
                read += consumed;
                let peer = Peer::new(Version::V5);
                if let Packet::Connect(_) = packet {
                    let (reason, properties) = (ReasonCode::Success, Properties::EMPTY);
                    let _ = ConnAck { session_present: false, reason, properties }.encode(peer, &mut out);
                } else if let Packet::Publish(publish) = packet {
                    let list = [Property::UserProperty("pace-retry-after-ms", "1500")];
                    let (kind, packet_id) = (AckKind::PubAck, publish.delivery.packet_id().unwrap());
                    let (reason, properties) = (ReasonCode::QuotaExceeded, Properties::new(&list));
                    let _ = Ack { kind, packet_id, reason, properties }.encode(peer, &mut out);
                }
            }
            bytes.drain(..read);
            stream.write_all(&out).await.unwrap();
        }
    });
    let mqtt = soon(Mqtt::connect(&format!("mqtt://{at}"))).await.unwrap();
    let refused = soon(mqtt.publish("a", "x")).await.unwrap_err();
    let PublishError::Rejected { reason, retry_after, .. } = &refused else { panic!("{refused}") };
    assert_eq!((*reason, retry_after.map(|after| after.as_millis())), (ReasonCode::QuotaExceeded, Some(1500)));
    assert_eq!(refused.to_string(), "rejected: Quota exceeded (0x97); come back in 1500 ms");
    drop(mqtt);
    soon(broker).await.unwrap();
}
