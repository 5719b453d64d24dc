//! What only MQTT 5 has: properties, reason codes, options of subscriptions.

use ::rumqttc::v5::ConnectionError;
use ::rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, Filter, PubAckReason, PublishProperties, RetainForwardRule, SubscribeReasonCode,
};

use super::v5::{V5, quality};
use super::{Client, Hello, Message};
use crate::broker::Broker;

#[test]
fn the_broker_says_what_it_offers() {
    let broker = Broker::start_with("[limits]\nreceive_max = 10\ntopic_alias_max = 5\nkeep_alive_max = \"9s\"\n");
    let mut options = V5::options(&broker, &Hello::new(""));
    options.set_session_expiry_interval(Some(u32::MAX));
    let hello = V5::connect_with(options).hello;
    assert_eq!((hello.code, hello.session_present), (ConnectReturnCode::Success, false));
    let properties = hello.properties.expect("properties");
    assert_eq!(properties.receive_max, Some(10));
    assert_eq!(properties.topic_alias_max, Some(5));
    assert_eq!(properties.server_keep_alive, Some(9));
    assert_eq!(properties.max_packet_size, Some(1024 * 1024));
    assert_eq!(properties.session_expiry_interval, Some(7 * 86_400));
    assert!(properties.assigned_client_identifier.is_some_and(|id| !id.is_empty()));
    for not_limited in [
        properties.max_qos,
        properties.retain_available,
        properties.wildcard_subscription_available,
        properties.subscription_identifiers_available,
        properties.shared_subscription_available,
    ] {
        assert!(matches!(not_limited, None | Some(1)), "{not_limited:?}");
    }
}

#[test]
fn properties_of_a_message_travel_unchanged() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let mut subscriber = V5::open(&broker, "subscriber");
    subscriber.subscribe("p", 1);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let properties = PublishProperties {
        payload_format_indicator: Some(1),
        content_type: Some("text/plain".to_owned()),
        response_topic: Some("answers/1".to_owned()),
        correlation_data: Some(vec![0, 1, 255].into()),
        // The same name twice, in this order.
        user_properties: vec![pair("b", "1"), pair("a", "2"), pair("b", "3"), pair("", "")],
        ..PublishProperties::default()
    };
    let reason = publisher.publish_with(&Message::new("p", 1, "21 °C"), properties.clone());
    assert_eq!(reason, PubAckReason::Success);
    let arrived = subscriber.receive_whole();
    assert_eq!(arrived.payload, "21 °C".as_bytes());
    assert_eq!(arrived.properties, Some(properties));
}

#[test]
fn a_request_is_answered() {
    let broker = Broker::start();
    let mut server = V5::open(&broker, "server");
    let mut client = V5::open(&broker, "client");
    server.subscribe("double", 1);
    client.subscribe("answers/client", 1);
    for number in 0..20_u32 {
        let properties = PublishProperties {
            response_topic: Some("answers/client".to_owned()),
            correlation_data: Some(number.to_be_bytes().to_vec().into()),
            ..PublishProperties::default()
        };
        client.publish_with(&Message::new("double", 1, number.to_string()), properties);
        let request = server.receive_whole();
        let asked: u32 = String::from_utf8_lossy(&request.payload).parse().expect("a number");
        let properties = request.properties.expect("properties");
        let topic = properties.response_topic.expect("where to answer");
        let correlation_data = properties.correlation_data;
        let answer = PublishProperties { correlation_data, ..PublishProperties::default() };
        server.publish_with(&Message::new(&topic, 1, (2 * asked).to_string()), answer);
        let answer = client.receive_whole();
        assert_eq!(answer.payload, (2 * number).to_string());
        let data = answer.properties.and_then(|properties| properties.correlation_data);
        assert_eq!(data.as_deref(), Some(&number.to_be_bytes()[..]));
    }
}

#[test]
fn an_acknowledgement_says_that_nobody_listens() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let reason = publisher.publish_with(&Message::new("alone", 1, "x"), PublishProperties::default());
    assert_eq!(reason, PubAckReason::NoMatchingSubscribers);
}

#[test]
fn a_topic_alias_stands_for_its_topic() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let mut subscriber = V5::open(&broker, "subscriber");
    subscriber.subscribe("alias/+", 1);
    let alias = |number| PublishProperties { topic_alias: Some(number), ..PublishProperties::default() };
    let steps = [(1, "alias/a"), (2, "alias/b"), (1, ""), (2, ""), (1, "alias/c"), (1, ""), (2, "")];
    for (number, topic) in steps {
        publisher.publish_with(&Message::new(topic, 1, number.to_string()), alias(number));
    }
    let topics = ["alias/a", "alias/b", "alias/a", "alias/b", "alias/c", "alias/c", "alias/b"];
    for ((number, _), topic) in steps.into_iter().zip(topics) {
        assert_eq!(subscriber.receive(), Message::new(topic, 1, number.to_string()));
    }
}

#[test]
fn the_broker_uses_the_aliases_that_a_client_offers() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let mut options = V5::options(&broker, &Hello::new("subscriber"));
    options.set_topic_alias_max(Some(2));
    let mut subscriber = V5::connect_with(options);
    subscriber.subscribe("long/#", 1);
    let topics = ["long/topic/a", "long/topic/b", "long/topic/c"];
    let mut known = std::collections::HashMap::new();
    let mut saved = 0;
    for round in 0..4 {
        for topic in topics {
            publisher.publish(&[Message::new(topic, 1, format!("{round}"))]);
            // rumqttc shows the topic as it came: empty if there was only an alias.
            let arrived = subscriber.receive_whole();
            let alias = arrived.properties.and_then(|properties| properties.topic_alias);
            let named = String::from_utf8(arrived.topic.to_vec()).expect("UTF-8");
            assert!(alias.is_none_or(|alias| (1..=2).contains(&alias)), "alias {alias:?} was not offered");
            if named.is_empty() {
                saved += 1;
                assert_eq!(known.get(&alias.expect("topic or alias")), Some(&topic));
            } else {
                assert_eq!(named, topic);
                alias.map(|alias| known.insert(alias, topic));
            }
        }
    }
    assert!(saved > 0, "aliases were never used");
}

#[test]
fn a_message_carries_the_identifiers_of_its_subscriptions() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let mut subscriber = V5::open(&broker, "subscriber");
    for (filter, id) in [("i/#", Some(7)), ("i/+", Some(268_435_455)), ("i/a", None), ("j", None)] {
        let code = subscriber.subscribe_with(Filter::new(filter, quality(1)), id);
        assert_eq!(code, SubscribeReasonCode::Success(quality(1)));
    }
    let mut identifiers = |topic| {
        publisher.publish(&[Message::new(topic, 1, "x")]);
        let arrived = subscriber.receive_whole();
        assert_eq!(arrived.topic, topic);
        let mut found = arrived.properties.map_or_else(Vec::new, |properties| properties.subscription_identifiers);
        found.sort_unstable();
        found
    };
    assert_eq!(identifiers("i/a"), [7, 268_435_455]);
    assert_eq!(identifiers("i/b/c"), [7]);
    assert_eq!(identifiers("j"), [0_usize; 0]);
}

#[test]
fn options_of_a_subscription_hold() {
    let broker = Broker::start();
    let mut client = V5::open(&broker, "client");
    client.publish(&[Message::new("o/kept", 1, "kept").retained()]);
    let filter = Filter {
        nolocal: true,
        preserve_retain: true,
        retain_forward_rule: RetainForwardRule::Never,
        ..Filter::new("o/#", quality(1))
    };
    client.subscribe_with(filter, None);
    // Its own message does not come back, nor does the retained one; somebody else's keeps its flag.
    client.publish(&[Message::new("o/own", 1, "own")]);
    let sent = Message::new("o/other", 1, "other").retained();
    V5::open(&broker, "other").publish(std::slice::from_ref(&sent));
    assert_eq!(client.receive(), sent);

    let if_new = || Filter { retain_forward_rule: RetainForwardRule::OnNewSubscribe, ..Filter::new("o/+", quality(1)) };
    client.unsubscribe("o/#");
    client.subscribe_with(if_new(), None);
    let mut payloads = [client.receive().payload, client.receive().payload];
    payloads.sort();
    assert_eq!(payloads, [b"kept".to_vec(), b"other".to_vec()]);
    client.subscribe_with(if_new(), None);
    client.publish(&[Message::new("o/end", 1, "end")]);
    assert_eq!(client.receive(), Message::new("o/end", 1, "end"));
}

#[test]
fn messages_expire() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let hello = Hello::new("keeper").keeping();
    let (mut keeper, _) = V5::connect(&broker, &hello);
    keeper.subscribe("e/queued", 1);
    keeper.disconnect();
    let expiry = |seconds| PublishProperties { message_expiry_interval: Some(seconds), ..PublishProperties::default() };
    publisher.publish_with(&Message::new("e/queued", 1, "short"), expiry(1));
    publisher.publish_with(&Message::new("e/queued", 1, "long"), expiry(1000));
    // The retained one is the last to be published, so when it is gone the queued one is over as well.
    publisher.publish_with(&Message::new("e/retained", 1, "short").retained(), expiry(1));
    let mut clock = V5::open(&broker, "clock");
    clock.subscribe("e/tick", 1);
    loop {
        clock.subscribe("e/retained", 1);
        publisher.publish(&[Message::new("e/tick", 1, "")]);
        if clock.receive().topic == "e/tick" {
            break;
        }
        assert_eq!(clock.receive().topic, "e/tick");
    }
    let (mut keeper, present) = V5::connect(&broker, &hello);
    assert!(present);
    let arrived = keeper.receive_whole();
    assert_eq!(arrived.payload, "long");
    let left = arrived.properties.and_then(|properties| properties.message_expiry_interval);
    // [MQTT-3.3.2-6] What is left, not what it was.
    assert!(left.is_some_and(|left| (900..1000).contains(&left)), "{left:?}");
}

#[test]
fn a_second_client_of_the_same_name_takes_over() {
    let broker = Broker::start();
    let mut first = V5::open(&broker, "twin");
    let _second = V5::open(&broker, "twin");
    let why = loop {
        if let Err(why) = first.event() {
            break why;
        }
    };
    assert!(why.contains("SessionTakenOver"), "{why}");
}

#[test]
fn what_was_not_acknowledged_comes_again_marked_as_such() {
    let broker = Broker::start();
    let mut publisher = V5::open(&broker, "publisher");
    let connect = || {
        let mut options = V5::options(&broker, &Hello::new("keeper").keeping());
        options.set_manual_acks(true).set_receive_maximum(Some(10));
        V5::connect_with(options)
    };
    let mut keeper = connect();
    keeper.subscribe("again", 2);
    let messages: Vec<_> = (0..20).map(|number| Message::new("again", 1 + number % 2, number.to_string())).collect();
    publisher.publish(&messages);
    let first: Vec<_> = (0..10).map(|_| keeper.receive_whole()).collect();
    assert!(first.iter().all(|publish| !publish.dup));
    drop(keeper);

    let mut keeper = connect();
    assert!(keeper.hello.session_present);
    for before in first {
        let again = keeper.receive_whole();
        assert!(again.dup, "{again:?}");
        // [MQTT-4.4.0-1] With the packet identifier that it had.
        assert_eq!((again.pkid, again.qos, &again.payload), (before.pkid, before.qos, &before.payload));
        keeper.handle.ack(&again).expect("taken");
    }
    for message in &messages[10..] {
        let publish = keeper.receive_whole();
        assert!(!publish.dup);
        assert_eq!((publish.qos, &publish.payload[..]), (quality(message.qos), &message.payload[..]));
        keeper.handle.ack(&publish).expect("taken");
    }
}

#[test]
fn an_authentication_method_is_refused() {
    let broker = Broker::start();
    let mut options = V5::options(&broker, &Hello::new("x"));
    options.set_authentication_method(Some("SCRAM".to_owned()));
    let (_handle, mut connection) = ::rumqttc::v5::Client::new(options, 1);
    let error = connection.recv().expect("an answer").expect_err("refused");
    let ConnectionError::ConnectionRefused(code) = error else { panic!("{error}") };
    assert_eq!(code, ConnectReturnCode::BadAuthenticationMethod);
}
