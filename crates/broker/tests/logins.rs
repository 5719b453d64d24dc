//! Logins that end, and those that nobody can judge for now.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Client, address, config, connect_packet, start_with, tcp};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use tidegate_broker::config::ListenerKind;
use tidegate_core::access::{Action, Identity, Open, Policy};
use tidegate_wire_mqtt::{Connect, ReasonCode, Version};

/// Passwords are seconds, and what is no number is no token.
#[derive(Debug)]
struct Seconds;

impl Authenticator for Seconds {
    fn is_slow(&self, _: &Credentials) -> bool {
        true
    }

    fn is_guessable(&self, _: &Credentials) -> bool {
        false
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.login(credentials).map(|grant| grant.user)
    }

    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        let text = String::from_utf8(credentials.password.clone().unwrap_or_default()).unwrap();
        if text == "nobody knows" {
            return Err(LoginRefusal::Unavailable);
        }
        let seconds: u64 = text.parse().map_err(|_| LoginRefusal::BadToken)?;
        let roles: Arc<[Arc<str>]> = ["sensor".into()].into();
        let valid_for = Some(Duration::from_secs(seconds));
        Ok(LoginGrant { user: Some("ann".into()), roles: Some(roles), claims: None, valid_for })
    }

    /// Nobody is in a file.
    fn admits(&self, _: Option<&str>, _: &str) -> bool {
        false
    }

    fn admits_identity(&self, identity: &Identity, _: &str) -> bool {
        identity.roles.is_some()
    }
}

fn hello<'a>(version: Version, id: &'a str, password: &'a str) -> Connect<'a> {
    Connect { user_name: Some(""), password: Some(password.as_bytes()), ..connect_packet(version, id) }
}

fn came(broker: &Broker, version: Version, id: &str, password: &str) -> (Client, ReasonCode) {
    let mut client = Client::new(tcp(address(broker, ListenerKind::Mqtt)), version);
    client.send(&hello(version, id, password));
    let reason = client.connack();
    (client, reason)
}

#[test]
fn a_connection_ends_with_its_login_and_others_do_not() {
    let broker = Broker::start_by_hand(config(), Arc::new(Seconds), Arc::new(Open)).unwrap();
    let (mut short, _) = came(&broker, Version::V5, "short", "10");
    let (mut old, _) = came(&broker, Version::V311, "old", "10");
    let (mut long, reason) = came(&broker, Version::V5, "long", "1000");
    assert_eq!(reason, ReasonCode::Success);
    broker.advance(Duration::from_secs(9));
    short.ping();
    old.ping();
    broker.advance(Duration::from_secs(2));
    assert_eq!(short.disconnect_reason(), ReasonCode::MaximumConnectTime);
    assert_eq!(old.rest(), b"", "3.1.1 has no words for it");
    long.ping();
    let (_, again) = came(&broker, Version::V5, "short", "10");
    assert_eq!(again, ReasonCode::Success, "with a new one it comes back");
}

#[test]
fn a_token_is_never_remembered_and_wrong_ones_lock_out_nobody() {
    let broker = start_with(config(), Arc::new(Seconds));
    for _ in 0..20 {
        assert_eq!(came(&broker, Version::V5, "c", "no token").1, ReasonCode::BadUserNameOrPassword);
    }
    assert_eq!(came(&broker, Version::V5, "c", "100").1, ReasonCode::Success);
    assert_eq!(came(&broker, Version::V5, "c", "nobody knows").1, ReasonCode::ServerUnavailable);
    let refused = broker.handle().listeners()[0].refused.clone();
    let count = |reason| refused.iter().find(|(name, _)| *name == reason).unwrap().1;
    assert_eq!((count("password"), count("unavailable"), count("paused")), (20, 1, 0));
    broker.shutdown();
}

/// Only for sensors.
#[derive(Debug)]
struct ForSensors;

impl Policy for ForSensors {
    fn allows(&self, identity: &Identity, _: &str, _: Action, _: &str) -> bool {
        identity.roles.as_deref().unwrap_or_default().iter().any(|role| &**role == "sensor")
    }
}

#[test]
fn roles_of_a_token_reach_the_rules_and_a_reload_keeps_its_client() {
    let broker = Broker::start(config(), Arc::new(Seconds), Arc::new(ForSensors)).unwrap();
    let (mut client, _) = came(&broker, Version::V5, "c", "1000");
    client.subscribe("t", tidegate_wire_mqtt::QoS::AtMostOnce);
    client.publish("t", b"x");
    assert_eq!(client.message().payload, b"x");
    broker.reload(&config(), Arc::new(Seconds), Arc::new(ForSensors)).unwrap();
    client.ping();
    broker.shutdown();
}
