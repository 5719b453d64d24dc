//! The first bytes of a client.

use std::time::Duration;

use crate::first::{First, Greeting, GreetingStep, Offers, OutcomeCode, Shown, outcome};
use crate::frame::{AMQP_HEADER, SASL_HEADER};
use crate::write::{binary, composite, frame, map, sasl_frame, symbol, text, uint};

const ALL: Offers = Offers { anonymous: true, external: true };

fn init(mechanism: &str, response: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    sasl_frame(&mut out, |out| {
        composite(0x41, out, |fields| {
            fields.put(|out| symbol(mechanism, out)).some(response, binary);
        });
    });
    out
}

fn login(offers: Offers, mechanism: &str, response: Option<&[u8]>) -> First {
    let mut greeting = Greeting::default();
    let First::Answer { consumed: 8, answer } = greeting.advance(SASL_HEADER, offers) else { panic!() };
    assert!(answer.starts_with(SASL_HEADER));
    greeting.advance(&init(mechanism, response), offers)
}

#[test]
fn a_name_and_a_password_are_read_or_nobody_is_let_in() {
    let First::Login { shown, .. } = login(ALL, "PLAIN", Some(b"\0ann\0a\xffb")) else { panic!() };
    assert_eq!((shown.user_name.as_deref(), shown.password.as_deref()), (Some("ann"), Some(&b"a\xffb"[..])));
    assert!(matches!(login(ALL, "PLAIN", Some(b"ann\0ann\0x")), First::Login { .. }));
    for bad in [&b"\0\0x"[..], b"bob\0ann\0x", b"\0ann", b"", b"\0\xff\0x", b"\0ann\0x\0"] {
        let First::Refuse { answer, .. } = login(ALL, "PLAIN", Some(bad)) else { panic!("{bad:?}") };
        assert_eq!(answer, outcome(OutcomeCode::Auth));
    }
    assert!(matches!(login(ALL, "ANONYMOUS", None), First::Login { shown, .. } if shown == Shown::default()));
    assert!(matches!(login(Offers::default(), "ANONYMOUS", None), First::Refuse { .. }));
    assert!(matches!(login(Offers::default(), "EXTERNAL", Some(b"")), First::Refuse { .. }));
    assert!(matches!(login(ALL, "SCRAM-SHA-1", None), First::Refuse { .. }));
}

#[test]
fn after_sasl_and_without_it_open_says_what_a_client_is_called() {
    let mut open = Vec::new();
    frame(0, &mut open, |out| {
        composite(0x10, out, |fields| {
            fields.text("desk").null().uint(4096).null().uint(1000).null().null().null().null().put(|out| {
                map(1, out, |out| {
                    symbol("session-expiry-interval", out);
                    uint(60, out);
                });
            });
        });
    });
    let mut greeting = Greeting::default();
    let whole = [&AMQP_HEADER[..], &open].concat();
    let First::Answer { consumed, answer } = greeting.advance(&whole, ALL) else { panic!() };
    assert_eq!(answer, AMQP_HEADER);
    let First::Hello { hello, .. } = greeting.advance(&whole[consumed..], ALL) else { panic!() };
    assert_eq!((hello.container_id.as_str(), hello.max_frame_size, hello.channel_max), ("desk", 4096, u16::MAX));
    assert_eq!((hello.idle, hello.session_expiry), (Some(Duration::from_secs(1)), Duration::from_secs(60)));
    let mut greeting = Greeting { step: GreetingStep::Login, shown: Shown::default() };
    assert_eq!(greeting.admit(), outcome(OutcomeCode::Ok));
    assert!(matches!(greeting.advance(AMQP_HEADER, ALL), First::Answer { consumed: 8, .. }));
    let mut begin = Vec::new();
    frame(0, &mut begin, |out| {
        composite(0x11, out, |fields| {
            fields.null().uint(0).uint(1).uint(1);
        });
    });
    let First::Refuse { answer, .. } = greeting.advance(&begin, ALL) else { panic!() };
    assert!(String::from_utf8_lossy(&answer).contains("amqp:illegal-state"));
}

#[test]
fn strangers_are_told_what_is_spoken_here() {
    for (bytes, is_answered) in [
        (&b"AMQP\x00\x00\x09\x01"[..], true),
        (b"AMQP\x02\x01\x00\x00", true),
        (b"GET / HTTP/1.1\r\n", false),
        (b"\x16\x03\x01", false),
        (b"\x10\x0c\0\x04MQTT", false),
    ] {
        let First::Refuse { answer, .. } = Greeting::default().advance(bytes, ALL) else { panic!("{bytes:?}") };
        assert_eq!(answer == SASL_HEADER, is_answered, "{bytes:?}");
    }
    assert_eq!(Greeting::default().advance(b"AMQ", ALL), First::Incomplete);
    let mut too_long = text_of_open();
    too_long[0] = 0x7f;
    let mut greeting = Greeting { step: GreetingStep::Open, shown: Shown::default() };
    let First::Refuse { answer, .. } = greeting.advance(&too_long, ALL) else { panic!() };
    assert!(String::from_utf8_lossy(&answer).contains("amqp:connection:framing-error"));
}

#[test]
fn a_client_that_asks_for_the_impossible_is_told_so() {
    for (frame_size, idle) in [(511, 0), (512, 100)] {
        let mut open = Vec::new();
        frame(0, &mut open, |out| {
            composite(0x10, out, |fields| {
                fields.text("x").null().uint(frame_size).null().uint(idle);
            });
        });
        let First::Refuse { answer, .. } = Greeting::opened().advance(&open, ALL) else { panic!() };
        assert!(String::from_utf8_lossy(&answer).contains("amqp:invalid-field"));
    }
}

fn text_of_open() -> Vec<u8> {
    let mut out = Vec::new();
    frame(0, &mut out, |out| {
        composite(0x10, out, |fields| {
            fields.put(|out| text("x", out));
        });
    });
    out
}
