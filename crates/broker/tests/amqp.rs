//! AMQP 1.0 on real sockets: who comes in, TLS, and clients that mean harm.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::sync::Arc;
use std::time::Instant;

use support::amqp::{Amqp, Frame, PLAIN, SASL, symbol};
use support::tls::Authority;
use support::{Client, PATIENCE, address, config, listener, start, start_with, tcp};
use tidegate_broker::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use tidegate_broker::config::{Config, ListenerKind};
use tidegate_core::Whom;
use tidegate_core::settings::Rate;
use tidegate_wire_mqtt::{QoS, Version};

/// Ann has a password, and only identifiers that begin with her name.
#[derive(Debug)]
struct Ann;

impl Authenticator for Ann {
    fn is_slow(&self, credentials: &Credentials) -> bool {
        credentials.password.is_some()
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        if let Some(name) = &credentials.certificate_name {
            return Ok(Some(name.as_str().into()));
        }
        let is_ann = credentials.user_name.as_deref() == Some("ann");
        match credentials.password.as_deref() {
            Some(b"secret") if is_ann => Ok(Some("ann".into())),
            _ => Err(LoginRefusal::BadUserNameOrPassword),
        }
    }

    fn admits(&self, user: Option<&str>, client_id: &str) -> bool {
        user.is_some_and(|user| client_id.is_empty() || client_id.starts_with(user))
    }
}

fn amqp(shards: usize) -> Config {
    let listeners = vec![listener(ListenerKind::Mqtt), listener(ListenerKind::Amqp)];
    Config { listeners, shards, ..config() }
}

/// What SASL says to this, and what it offered.
fn login(client: &mut Amqp, mechanism: &str, response: &[u8]) -> (Frame, Frame) {
    assert_eq!(client.greet(SASL), SASL);
    let offer = client.frame();
    client.send(1, 0x41, &[symbol(mechanism), [&[0xa0, response.len() as u8], response].concat()]);
    (offer, client.frame())
}

/// Whether an outcome has this code.
fn is_outcome(frame: &Frame, code: u8) -> bool {
    frame.code == 0x44 && frame.has(&[0x50, code])
}

#[test]
fn who_it_is_is_asked_of_sasl() {
    let broker = start_with(amqp(2), Arc::new(Ann));
    let at = address(&broker, ListenerKind::Amqp);
    let mut right = Amqp::new(tcp(at));
    let (offer, outcome) = login(&mut right, "PLAIN", b"\0ann\0secret");
    assert!(offer.has(b"PLAIN") && !offer.has(b"ANONYMOUS") && is_outcome(&outcome, 0), "{offer:?} {outcome:?}");
    assert_eq!(right.greet(PLAIN), PLAIN);
    right.begin("ann-desk");
    assert!(right.attach_sender(0, "a") > 0);
    for (mechanism, response) in [("PLAIN", &b"\0ann\0wrong"[..]), ("ANONYMOUS", b""), ("EXTERNAL", b"ann")] {
        let mut wrong = Amqp::new(tcp(at));
        let (_, outcome) = login(&mut wrong, mechanism, response);
        assert!(is_outcome(&outcome, 1), "{mechanism}: {outcome:?}");
        assert!(wrong.try_frame().is_none());
    }
    // A name that is not hers, and nobody at all.
    let mut other = Amqp::new(tcp(at));
    login(&mut other, "PLAIN", b"\0ann\0secret");
    other.greet(PLAIN);
    other.send(0, 0x10, &[support::amqp::text("bob")]);
    other.frame();
    assert!(other.frame().has(b"amqp:unauthorized-access"));
    let mut nobody = Amqp::new(tcp(at));
    nobody.greet(PLAIN);
    nobody.send(0, 0x10, &[support::amqp::text("ann-desk")]);
    nobody.frame();
    assert!(nobody.frame().has(b"amqp:unauthorized-access"));
    right.publish(0, b"still there");
    broker.shutdown();
}

/// Somebody elsewhere, who lets in everybody but those that are called `thief`.
#[derive(Debug)]
struct Elsewhere;

impl Authenticator for Elsewhere {
    fn is_slow(&self, _: &Credentials) -> bool {
        true
    }

    fn asks_elsewhere(&self, _: &Credentials) -> bool {
        true
    }

    fn authenticate(&self, credentials: &Credentials) -> Result<Option<Arc<str>>, LoginRefusal> {
        self.login(credentials).map(|grant| grant.user)
    }

    fn login(&self, credentials: &Credentials) -> Result<LoginGrant, LoginRefusal> {
        if credentials.client_id == "thief" {
            return Err(LoginRefusal::NotAuthorized);
        }
        // Who decides elsewhere gives roles: so nobody remembers the answer.
        let user = credentials.user_name.as_deref().map(Arc::from);
        Ok(LoginGrant { user, roles: Some(Arc::new([])), ..LoginGrant::default() })
    }
}

#[test]
fn who_decides_elsewhere_hears_what_the_container_is_called() {
    let broker = start_with(amqp(1), Arc::new(Elsewhere));
    let at = address(&broker, ListenerKind::Amqp);
    for is_thief in [false, true] {
        let mut client = Amqp::new(tcp(at));
        let (_, outcome) = login(&mut client, "PLAIN", b"\0ann\0secret");
        assert!(is_outcome(&outcome, 0), "SASL does not know the name yet");
        client.greet(PLAIN);
        if is_thief {
            client.send(0, 0x10, &[support::amqp::text("thief")]);
            client.frame();
            assert!(client.frame().has(b"amqp:unauthorized-access"));
        } else {
            client.begin("ann-desk");
            assert!(client.attach_sender(0, "a") > 0);
        }
    }
    broker.shutdown();
}

#[test]
fn anonymous_is_offered_where_nobody_has_to_have_a_name() {
    let broker = start(amqp(1));
    let mut client = Amqp::new(tcp(address(&broker, ListenerKind::Amqp)));
    let (offer, outcome) = login(&mut client, "ANONYMOUS", b"");
    assert!(offer.has(b"ANONYMOUS") && is_outcome(&outcome, 0));
    assert_eq!(client.greet(PLAIN), PLAIN);
    client.begin("");
    client.attach_sender(0, "a");
    client.publish(0, b"x");
    broker.shutdown();
}

#[test]
fn over_tls_a_certificate_says_who_it_is() {
    let authority = Authority::new();
    let listeners = vec![authority.listener(ListenerKind::Amqps, true)];
    let broker = start_with(Config { listeners, ..config() }, Arc::new(Ann));
    let at = address(&broker, ListenerKind::Amqps);
    let identity = authority.identity("ann");
    let mut client = Amqp::new(authority.connect(at, Some(identity), rustls::ALL_VERSIONS));
    let (offer, outcome) = login(&mut client, "EXTERNAL", b"");
    assert!(offer.has(b"EXTERNAL") && is_outcome(&outcome, 0), "{outcome:?}");
    assert_eq!(client.greet(PLAIN), PLAIN);
    client.begin("ann-1");
    client.attach_receiver(0, "a", 10);
    client.attach_sender(1, "a");
    client.transfer(1, true, b"secure");
    assert_eq!(client.message(), b"secure");
    broker.shutdown();
}

#[test]
fn a_flooder_is_slowed_by_its_credit_while_others_notice_nothing() {
    let broker = start(amqp(2));
    let at = address(&broker, ListenerKind::Amqp);
    let rate = Rate::new(20, std::time::Duration::from_secs(1), 1);
    assert!(broker.set_limit(&Whom::Client("flood".into()), Some(rate)));
    let mut flood = Amqp::open(at, "flood");
    let first = flood.attach_sender(0, "a");
    let (mut left, mut sent, mut most_of_later, mut accepted) = (first, 0_u32, 0, 0);
    while accepted < 100 {
        while left > 0 {
            flood.transfer(0, false, b"x");
            (left, sent) = (left - 1, sent + 1);
        }
        let frame = flood.frame();
        match frame.code {
            0x15 => accepted += usize::from(frame.has(&[0, 0x53, 0x24])),
            0x13 => {
                let Some((seen, credit)) = support::amqp::counts_of(&frame) else { continue };
                left = (seen + credit).saturating_sub(sent);
                most_of_later = most_of_later.max(credit);
            }
            other => panic!("{other:#x}: {frame:?}"),
        }
    }
    assert!(most_of_later < first, "{most_of_later} of {first}");
    let mut other = Amqp::open(at, "other");
    other.attach_sender(0, "b");
    for _ in 0..100 {
        other.publish(0, b"y");
    }
    broker.shutdown();
}

#[test]
fn bad_frames_end_their_connection_and_no_other() {
    let broker = start(amqp(2));
    let at = address(&broker, ListenerKind::Amqp);
    let mut subscriber = Client::tcp(address(&broker, ListenerKind::Mqtt), Version::V5, "subscriber");
    subscriber.subscribe("a", QoS::AtMostOnce);
    let nested = [&[0, 0, 0x40, 0, 2, 0, 0, 0][..], &vec![0; 0x3ff8]].concat();
    let cases: [(&[u8], &[u8]); 4] = [
        (&[0x80, 0, 0, 0, 2, 0, 0, 0], b"amqp:connection:framing-error"),
        (&nested, b"amqp:decode-error"),
        (&[0, 0, 0, 16, 2, 0, 0, 0, 0, 0x53, 0x14, 0xf0, 0x7f, 0xff, 0xff, 0xff], b"amqp:decode-error"),
        (&[0, 0, 0, 12, 2, 0, 0, 9, 0, 0x53, 0x17, 0x45], b"amqp:illegal-state"),
    ];
    for (bytes, condition) in cases {
        let mut bad = Amqp::open(at, "bad");
        bad.send_bytes(bytes);
        let last = bad.await_frame(0x18);
        assert!(last.has(condition), "{last:?}");
        assert!(bad.try_frame().is_none());
        let mut good = Amqp::open(at, "good");
        good.attach_sender(0, "a");
        good.publish(0, b"fine");
        assert_eq!(subscriber.message().payload, b"fine");
    }
    // Sockets that say nothing good from the beginning.
    for bytes in [&b"\x16\x03\x01"[..], b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\x01", b"AMQP"] {
        let mut bad = Amqp::new(tcp(at));
        bad.send_bytes(bytes);
    }
    let patience = Instant::now();
    while broker.sockets() > 1 {
        assert!(patience.elapsed() < PATIENCE, "{} sockets", broker.sockets());
        std::thread::yield_now();
    }
    broker.shutdown();
}
