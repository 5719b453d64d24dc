//! MQTT-SN over sockets: clients of several shards at one door, sleepers, a flooder, and rubbish.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use support::sn::{Message, SnClient};
use support::{Client, PATIENCE, address, config, id_on_shard, listener, start};
use tidegate_broker::Broker;
use tidegate_broker::ask::{Answer, Question};
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, ListenerKind, PredefinedTopics, SnAdvertising, SnConfig};
use tidegate_core::Whom;
use tidegate_core::access::Open;
use tidegate_core::settings::Rate;
use tidegate_face_sn::packet::{FilterRef, Packet, Publish, Quality, ReturnCode, TopicRef};
use tidegate_wire_mqtt::{QoS, Version};

const SHORT: TopicRef = TopicRef::Short(*b"tt");

fn broker(shards: usize) -> Broker {
    told_of(shards, None)
}

fn told_of(shards: usize, advertising: Option<SnAdvertising>) -> Broker {
    let listeners = vec![listener(ListenerKind::Mqtt), listener(ListenerKind::Sn)];
    let topics = Arc::new(PredefinedTopics::parse(["7=room/t"]).unwrap());
    start(Config { listeners, shards, sn: SnConfig { topics, gateway: 5, advertising }, ..config() })
}

/// A number of the door.
fn metric(broker: &Broker, family: &str, event: Option<&str>) -> u64 {
    let metrics = broker.handle().extra_metrics();
    let is_it = |labels: &[(&'static str, &'static str)]| labels.first().map(|(_, value)| *value) == event;
    metrics.iter().filter(|metric| metric.family == family && is_it(&metric.labels)).map(|metric| metric.value).sum()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn clients_of_every_shard_come_by_one_socket_and_an_address_goes_from_one_to_another() {
    let broker = broker(2);
    let (mqtt, sn) = (address(&broker, ListenerKind::Mqtt), address(&broker, ListenerKind::Sn));
    let ids = [0, 1].map(|shard| id_on_shard(shard, 2));
    let mut subscriber = Client::tcp(mqtt, Version::V5, "subscriber");
    subscriber.subscribe("#", QoS::AtMostOnce);
    for id in &ids {
        let client = SnClient::connect(sn, id);
        let topic = client.register("from/here");
        assert_eq!(client.publish(TopicRef::Id(topic), 1, id), ReturnCode::Accepted);
        assert_eq!(subscriber.message().payload, id.as_bytes());
        assert_eq!(client.publish(TopicRef::Predefined(7), 2, id), ReturnCode::Accepted);
        assert_eq!(subscriber.message().topic, "room/t");
        // The other client, at the same address: the one before is gone.
        let other = ids.iter().find(|other| *other != id).unwrap();
        client.say(Packet::Connect { will: false, clean: true, protocol: 1, seconds: 60, client_id: other });
        client.hear(|packet| assert_eq!(packet, Packet::ConnAck(ReturnCode::Accepted)));
        assert_eq!(client.publish(TopicRef::Id(topic), 3, "x"), ReturnCode::InvalidTopicId);
        assert_eq!(client.publish(SHORT, 4, other), ReturnCode::Accepted);
        assert_eq!(subscriber.message().payload, other.as_bytes());
        until("one is there", || metric(&broker, "sn_peers", None) == 1);
        client.say(Packet::Disconnect { seconds: None });
        client.hear(|packet| assert_eq!(packet, Packet::Disconnect { seconds: None }));
        until("nobody is there", || metric(&broker, "sn_peers", None) == 0);
    }
    let stranger = SnClient::open(sn);
    stranger.say(Packet::SearchGw { radius: 0 });
    stranger.hear(|packet| assert_eq!(packet, Packet::GwInfo { gateway: 5, address: &[] }));
    stranger.say(Packet::PingReq { client_id: "" });
    stranger.hear(|packet| assert_eq!(packet, Packet::Disconnect { seconds: None }));
    let quality = Quality::Unconnected;
    stranger.say(Packet::Publish(Publish {
        dup: false,
        quality,
        retain: false,
        topic: TopicRef::Predefined(7),
        message: 0,
        payload: b"unconnected",
    }));
    assert_eq!(subscriber.message().payload, b"unconnected");
    broker.shutdown();
}

#[test]
fn a_sleeper_has_what_waited_for_it_and_another_takes_its_name() {
    for shards in [1, 2] {
        let broker = broker(shards);
        let (mqtt, sn) = (address(&broker, ListenerKind::Mqtt), address(&broker, ListenerKind::Sn));
        let sleeper = SnClient::connect(sn, "sleeper");
        sleeper.subscribe(FilterRef::Name("room/+"), QoS::AtLeastOnce);
        sleeper.say(Packet::Disconnect { seconds: Some(600) });
        sleeper.hear(|packet| assert_eq!(packet, Packet::Disconnect { seconds: None }));
        until("it sleeps", || metric(&broker, "sn_asleep", None) == 1);
        let mut publisher = Client::tcp(mqtt, Version::V311, "publisher");
        for number in 0..20 {
            publisher.publish("room/t", number.to_string().as_bytes());
        }
        publisher.ping();
        sleeper.say(Packet::PingReq { client_id: "sleeper" });
        for number in 0..20 {
            let Message { payload, .. } = sleeper.message();
            assert_eq!(payload, number.to_string(), "{shards} shards");
        }
        sleeper.hear(|packet| assert_eq!(packet, Packet::PingResp));
        // A client of MQTT with the same name is the same client.
        let _other = Client::tcp(mqtt, Version::V5, "sleeper");
        sleeper.hear(|packet| assert_eq!(packet, Packet::Disconnect { seconds: None }));
        until("it is gone", || metric(&broker, "sn_peers", None) == 0);
        broker.shutdown();
    }
}

#[test]
fn a_flooder_hears_congestion_while_others_notice_nothing_and_why_names_it() {
    let broker = broker(2);
    let (mqtt, sn) = (address(&broker, ListenerKind::Mqtt), address(&broker, ListenerKind::Sn));
    let mut subscriber = Client::tcp(mqtt, Version::V5, "subscriber");
    subscriber.subscribe("room/t", QoS::AtMostOnce);
    let limit = Rate::new(1, Duration::from_secs(10), 1);
    assert!(broker.set_limit(&Whom::Client("flooder".into()), Some(limit)));
    let (flooder, other) = (SnClient::connect(sn, "flooder"), SnClient::connect(sn, "other"));
    let mut congested = 0;
    for message in 1..=60 {
        congested += u32::from(flooder.publish(SHORT, message, "flood") == ReturnCode::Congestion);
        assert_eq!(other.publish(TopicRef::Predefined(7), message, "on"), ReturnCode::Accepted);
        assert_eq!(subscriber.message().payload, b"on");
    }
    assert!(congested > 10, "{congested}");
    let handle = broker.handle();
    let (reply, answer) = sync_channel(1);
    let question = Question::Client { client_id: "flooder".into() };
    handle.ask(handle.shard_of("flooder"), question, move |answer| drop(reply.try_send(answer))).unwrap();
    let Answer::Client(Some(detail)) = answer.recv_timeout(PATIENCE).unwrap() else { panic!("it is there") };
    assert_eq!(detail.client.ledger.refused(), u64::from(congested));
    broker.shutdown();
}

#[test]
fn rubbish_is_counted_and_the_door_stays_open() {
    let broker = broker(2);
    let sn = address(&broker, ListenerKind::Sn);
    let rubbish = SnClient::open(sn);
    let client = SnClient::connect(sn, "client");
    for count in 0..200_u8 {
        rubbish.0.send(&vec![count; usize::from(count)]).unwrap();
        rubbish.0.send(&[4, count, 0, 1]).unwrap();
    }
    // Cut by us, and so none at all.
    rubbish.0.send(&[1; 4000]).unwrap();
    client.say(Packet::PingReq { client_id: "" });
    client.hear(|packet| assert_eq!(packet, Packet::PingResp));
    until("it is counted", || metric(&broker, "sn_datagrams", Some("malformed")) >= 300);
    assert_eq!(client.publish(SHORT, 1, "x"), ReturnCode::Accepted);
    broker.shutdown();
}

/// A node that hears what is said to everybody of this machine, or of a group on it; and where that is.
fn listening_node(everybody: Ipv4Addr) -> (UdpSocket, SocketAddrV4) {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from((everybody, 0)).into()).unwrap();
    if everybody.is_multicast() {
        socket.join_multicast_v4(&everybody, &Ipv4Addr::LOCALHOST).unwrap();
    }
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let SocketAddr::V4(at) = socket.local_addr().unwrap() else { panic!("of IPv4") };
    (socket, at)
}

/// The next datagram of the gateway, whoever else speaks to everybody; from where.
fn of_gateway(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 64];
    loop {
        let (length, from) = socket.recv_from(&mut bytes).unwrap();
        if !matches!(Packet::read(&bytes[..length]), Some(Packet::SearchGw { .. })) {
            return (bytes[..length].to_vec(), from);
        }
    }
}

#[test]
fn a_gateway_is_found_by_who_knows_no_address() {
    for everybody in [Ipv4Addr::new(127, 255, 255, 255), Ipv4Addr::new(239, 255, 18, 85)] {
        let (node, at) = listening_node(everybody);
        let broker = told_of(2, Some(SnAdvertising { address: at, interval: Duration::from_secs(900) }));
        let sn = address(&broker, ListenerKind::Sn);
        let advertise = Packet::Advertise { gateway: 5, seconds: 900 }.bytes();
        assert_eq!(of_gateway(&node), (advertise, sn), "{everybody}: from where it is to be spoken to");
        let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
        asker.set_read_timeout(Some(PATIENCE)).unwrap();
        asker.set_broadcast(true).unwrap();
        // What is no question is nothing to everybody.
        for packet in [Packet::PingReq { client_id: "" }, Packet::SearchGw { radius: 1 }] {
            asker.send_to(&packet.bytes(), at).unwrap();
        }
        let info = Packet::GwInfo { gateway: 5, address: &[] }.bytes();
        assert_eq!(of_gateway(&asker), (info.clone(), sn), "{everybody}: who asks hears it");
        let ping = of_gateway(&node);
        assert_eq!(ping.0, Packet::PingReq { client_id: "" }.bytes());
        assert_eq!(of_gateway(&node), (info, sn), "{everybody}: and all who may wait for it");
        let client = SnClient::connect(sn, "found");
        assert_eq!(client.publish(SHORT, 1, "x"), ReturnCode::Accepted);
        until("it is counted", || metric(&broker, "sn_datagrams", Some("searched")) == 1);
        assert_eq!(metric(&broker, "sn_datagrams", Some("advertised")), 1);
        broker.shutdown();
    }
}

#[test]
fn a_place_where_nobody_can_be_told_is_said_at_the_start() {
    let (listeners, address) = (vec![listener(ListenerKind::Sn)], "192.0.2.7:1885".parse().unwrap());
    let advertising = Some(SnAdvertising { address, interval: Duration::from_secs(60) });
    let config = Config { listeners, sn: SnConfig { advertising, ..SnConfig::default() }, ..config() };
    let error = Broker::start(config, Arc::new(Anonymous), Arc::new(Open)).unwrap_err().to_string();
    assert!(error.contains("192.0.2.7:1885"), "{error}");
}
