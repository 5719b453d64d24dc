//! Users of a file made by mosquitto_passwd, rules of a file in mosquitto's format, and what a refused client is told.

use ::rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode as CodeV5, Filter, PubAckReason, PublishProperties, SubscribeReasonCode,
};
use ::rumqttc::{ConnectReturnCode as CodeV4, ConnectionError, MqttOptions};

use super::v5::{V5, quality};
use super::{Client, Hello, Message};
use crate::broker::{Broker, HOST};

/// `mosquitto_passwd -b` of version 2.0.11 with the password "secret".
const USERS: &str = "alice:$7$101$eLhXy/Kg5xLBeDhn$QezQUR7aH8yNZVIv+HlrkvxLUdxRLfiLQ8BnjrR4s6JBeq7M9+Fx4GXogxYTl9/f\
                     hQNCTPjS10Ic8Y4hKxkuoQ==\n";
const RULES: &str = "user alice\ntopic readwrite home/#\ntopic read news/#\npattern write status/%c\n";
const CONFIG: &str = "[security]\npassword_file = \"users.txt\"\nacl_file = \"rules.txt\"\n";

fn broker() -> Broker {
    Broker::start_with_files(CONFIG, &[("users.txt", USERS), ("rules.txt", RULES)])
}

fn alice(broker: &Broker) -> V5 {
    let mut options = V5::options(broker, &Hello::new("alice-1"));
    options.set_credentials("alice", "secret");
    V5::connect_with(options)
}

#[test]
fn a_refused_client_is_told_why() {
    let broker = broker();
    let cases = [
        (Some(("alice", "wrong")), CodeV4::BadUserNamePassword, CodeV5::BadUserNamePassword),
        (Some(("nobody", "secret")), CodeV4::BadUserNamePassword, CodeV5::BadUserNamePassword),
        (None, CodeV4::NotAuthorized, CodeV5::NotAuthorized),
    ];
    for (credentials, v4, v5) in cases {
        let mut options = MqttOptions::new("c", HOST, broker.ports.mqtt);
        credentials.map(|(user, password)| options.set_credentials(user, password));
        let (_handle, mut connection) = ::rumqttc::Client::new(options, 1);
        let error = connection.recv().expect("an answer").expect_err("refused");
        assert!(matches!(error, ConnectionError::ConnectionRefused(code) if code == v4), "{error}");

        let mut options = V5::options(&broker, &Hello::new("c"));
        credentials.map(|(user, password)| options.set_credentials(user, password));
        let (_handle, mut connection) = ::rumqttc::v5::Client::new(options, 1);
        let error = connection.recv().expect("an answer").expect_err("refused");
        assert!(matches!(error, ::rumqttc::v5::ConnectionError::ConnectionRefused(code) if code == v5), "{error}");
    }
}

#[test]
fn rules_hold_in_both_directions() {
    let broker = broker();
    let mut client = alice(&broker);
    let mut publish = |topic| client.publish_with(&Message::new(topic, 1, "x"), PublishProperties::default());
    assert_eq!(publish("home/lamp"), PubAckReason::NoMatchingSubscribers);
    assert_eq!(publish("status/alice-1"), PubAckReason::NoMatchingSubscribers);
    assert_eq!(publish("status/bob-1"), PubAckReason::NotAuthorized);
    assert_eq!(publish("news/today"), PubAckReason::NotAuthorized);
    assert_eq!(publish("homes"), PubAckReason::NotAuthorized);

    let mut subscribe = |filter| client.subscribe_with(Filter::new(filter, quality(1)), None);
    // mosquitto's file: every subscription is granted, and what may not be read is not delivered.
    for filter in ["news/+", "status/alice-1", "home/lamp"] {
        assert_eq!(subscribe(filter), SubscribeReasonCode::Success(quality(1)), "{filter}");
    }
    assert_eq!(subscribe("$share/group/secret"), SubscribeReasonCode::NotAuthorized, "others share it");
    client.publish(&[Message::new("status/alice-1", 1, "here"), Message::new("home/lamp", 1, "on")]);
    assert_eq!(client.receive(), Message::new("home/lamp", 1, "on"));
}
