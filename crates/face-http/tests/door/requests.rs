//! Bytes, connections and pages.

use std::time::Duration;

use proptest::prelude::*;

use crate::world::{World, ask, statuses};

#[test]
fn requests_are_answered_in_their_order_however_their_bytes_come() {
    let text = [
        ask("GET /", ""),
        "PUT /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n21".to_owned(),
        ask("GET /topics/a", ""),
        ask("DELETE /topics/a", ""),
        ask("GET /topics/a", ""),
        ask("GET /nothing", ""),
    ]
    .concat();
    let (mut at_once, mut apart) = (World::new(), World::new());
    let (one, other) = (at_once.dial(), apart.dial());
    let said = at_once.say(one, &text);
    assert_eq!(statuses(&said), ["200", "201", "200", "204", "404", "404"]);
    for byte in text.as_bytes() {
        apart.send(other, [*byte]);
    }
    assert_eq!(apart.hear(other), said);
    assert!(!apart.is_closed(other));
}

#[test]
fn a_body_in_chunks_is_a_body() {
    let mut world = World::new();
    let socket = world.dial();
    let head = "PUT /topics/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let said =
        world.say(socket, format!("{head}3\r\n21.\r\n1;x=y\r\n5\r\n0\r\nX: y\r\n\r\n{}", ask("GET /topics/a", "")));
    assert_eq!(statuses(&said), ["201", "200"]);
    assert!(said.ends_with("\r\n\r\n21.5"), "{said}");
}

#[test]
fn who_waits_for_a_word_before_it_sends_its_body_gets_one() {
    let mut world = World::new();
    let socket = world.dial();
    let head = "PUT /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(world.say(socket, head), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(world.say(socket, "2"), "", "once");
    assert_eq!(statuses(&world.say(socket, "1")), ["201"]);
    let large = "PUT /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(statuses(&world.say(socket, large)), ["413"], "no word for what is not taken");
    assert!(world.is_closed(socket));
}

#[test]
fn connections_go_on_or_end_as_they_are_asked_to() {
    let mut world = World::new();
    let (stay, go, old) = (world.dial(), world.dial(), world.dial());
    world.say(stay, ask("GET /", ""));
    let said = world.say(go, ask("GET /", "Connection: close\r\n"));
    let said_old = world.say(old, "GET / HTTP/1.0\r\n\r\n");
    assert!(said.contains("connection: close") && said_old.contains("connection: close"));
    assert_eq!([stay, go, old].map(|socket| world.is_closed(socket)), [false, true, true]);
    world.wait(Duration::from_secs(89));
    assert!(!world.is_closed(stay));
    world.wait(Duration::from_secs(2));
    assert!(world.is_closed(stay), "nobody keeps a connection for nothing");
    assert_eq!(world.hear(stay), "");
}

#[test]
fn what_is_no_request_is_answered_and_ends_the_connection() {
    for (text, status) in [
        ("\x01\x02\x03\r\n\r\n", "400"),
        ("GET /topics/% HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET /topics/a?x=y HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET / HTTP/2.0\r\n\r\n", "505"),
        ("POST /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
        ("POST /topics/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"),
    ] {
        let mut world = World::new();
        let (first, second) = (world.dial(), world.dial());
        assert_eq!(statuses(&world.say(first, text)), [status], "{text:?}");
        assert!(world.is_closed(first), "{text:?}");
        // And behind a good one.
        assert_eq!(statuses(&world.say(second, ask("GET /", "") + text)), ["200", status], "{text:?}");
        assert!(world.is_closed(second), "{text:?}");
    }
}

#[test]
fn a_request_that_does_not_come_in_time_is_told_so() {
    let mut world = World::new();
    let socket = world.dial();
    world.say(socket, ask("GET /", ""));
    world.send(socket, "POST /topics/a HTTP/1.1\r\nHost");
    world.wait(Duration::from_secs(60));
    assert_eq!(statuses(&world.hear(socket)), ["408"]);
    assert!(world.is_closed(socket));
}

#[test]
fn a_browser_is_shown_the_page_of_the_documentation() {
    let mut world = World::new();
    let socket = world.dial();
    let said = world.say(socket, ask("GET /", "Accept: text/html,*/*;q=0.8\r\n"));
    let page = said.split("\r\n\r\n").nth(1).unwrap();
    assert!(said.contains("content-type: text/html") && page.lines().count() == 10, "{said}");
    assert!(include_str!("../../../../docs/http.md").contains(page), "docs/http.md shows another page");
}

#[test]
fn who_does_not_take_its_answers_is_not_asked_for_more() {
    let mut world = World::new();
    let (writer, greedy) = (world.dial(), world.dial());
    let large = "x".repeat(500_000);
    world.say(writer, format!("PUT /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n{large}"));
    world.say(greedy, ask("GET /", ""));
    world.block(greedy, true);
    let before = world.shard.memory_used();
    world.send(greedy, ask("GET /topics/a", "").repeat(500));
    let most = world.shard.settings().outbox_bytes_max + 2 * large.len();
    assert!(world.shard.memory_used() - before < most, "{}", world.shard.memory_used() - before);
}

#[test]
fn methods_and_places_that_there_are_not_are_named() {
    let mut world = World::new();
    let socket = world.dial();
    for (line, status) in [
        ("BREW /topics/a", "501"),
        ("PATCH /topics/a", "501"),
        ("POST /topics", "405"),
        ("DELETE /", "405"),
        ("GET /topics", "400"),
        ("GET /topics/a/%23", "400"),
        ("POST /topics/a/+/b", "400"),
        ("GET /other", "404"),
        ("HEAD /", "200"),
    ] {
        let said = world.say(socket, ask(line, ""));
        assert_eq!(statuses(&said), [status], "{line}");
        assert_eq!(said.contains("allow: GET"), status == "405", "{line}");
    }
    assert!(!world.is_closed(socket));
}

#[test]
fn pages_that_may_ask_may_read_the_answer_and_others_neither() {
    let mut world = World::new();
    let socket = world.dial();
    let asked = "Origin: http://page\r\nAccess-Control-Request-Method: PUT\r\n";
    for _ in 0..2 {
        let said = world.say(socket, ask("OPTIONS /topics/a", asked));
        assert!(
            said.starts_with("HTTP/1.1 204 ") && said.contains("access-control-allow-methods: GET, HEAD, POST"),
            "{said}"
        );
        let said = world.say(socket, ask("GET /", "Origin: http://page\r\n"));
        assert!(said.contains("access-control-allow-origin: http://page") && said.contains("vary: origin"), "{said}");
    }
    let said = world.say(socket, ask("DELETE /topics/a", "Origin: http://evil\r\n"));
    assert!(said.starts_with("HTTP/1.1 403 ") && !said.contains("access-control"), "{said}");
    assert!(world.is_closed(socket));
}

#[test]
fn another_who_asks_on_the_same_connection_is_another_client() {
    let mut world = World::new();
    let socket = world.dial();
    let said = world.say(socket, ask("GET /", "") + &ask("GET /", "Authorization: Basic YW5uOmE=\r\n"));
    assert_eq!(statuses(&said), ["200", "200"]);
    assert_eq!(world.shard.stats().connects, 2, "two clients");
    world.say(socket, ask("GET /", "Authorization: Basic YW5uOmE=\r\n"));
    assert_eq!(world.shard.stats().connects, 2, "the same as before");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_bytes_do_harm(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                Just(b"GET /topics/a HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
                Just(b"PUT /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n".to_vec()),
                Just(b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec()),
                Just(b"GET /topics/%23 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".to_vec()),
            ],
            0..12,
        ),
    ) {
        let mut world = World::new();
        let socket = world.dial();
        for piece in pieces {
            world.send(socket, piece);
        }
        world.wait(Duration::from_secs(200));
        // Another is served as if nothing had been.
        let other = world.dial();
        let said = world.say(other, ask("GET /", ""));
        prop_assert_eq!(statuses(&said), vec!["200"]);
    }
}
