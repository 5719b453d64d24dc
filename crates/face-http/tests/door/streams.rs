//! Streams of events: what comes, what is missing, and who comes back.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::settings::Settings;

use crate::world::{World, ask, data, last_id, statuses};

const EVENTS: &str = "Accept: text/event-stream\r\n";

fn back(target: &str, id: &str) -> String {
    ask(&format!("GET {target}"), &format!("{EVENTS}Last-Event-ID: {id}\r\n"))
}

#[test]
fn a_stream_has_the_state_first_and_then_what_comes_each_with_its_number() {
    let mut world = World::new();
    let (writer, reader) = (world.dial(), world.dial());
    world.say(
        writer,
        "PUT /topics/home/t HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n20",
    );
    let said = world.say(reader, ask("GET /topics/home/%23", EVENTS));
    assert!(said.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"), "{said}");
    assert!(said.contains("\r\n\r\nretry: 2000\nid: t2-0\n\n"), "{said}");
    let state = "{\"topic\":\"home/t\",\"payload\":\"20\",\"content_type\":\"text/plain\",\"retain\":true}";
    assert_eq!(data(&said), [state]);
    world.publish("home/door", "open \"wide\"\n");
    world.publish("other", "x");
    let said = world.hear(reader);
    assert_eq!(said, "id: t2-2\ndata: {\"topic\":\"home/door\",\"payload\":\"open \\\"wide\\\"\\n\"}\n\n");
}

#[test]
fn what_is_no_text_comes_as_base64() {
    let mut world = World::new();
    let (reader, writer) = (world.dial(), world.dial());
    world.say(reader, ask("GET /topics/a", EVENTS));
    let text = [&b"POST /topics/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"[..], &[0xff, 0]].concat();
    world.say(writer, text);
    assert_eq!(data(&world.hear(reader)), ["{\"topic\":\"a\",\"payload_base64\":\"/wA=\"}"]);
}

#[test]
fn several_filters_are_one_stream_and_a_bad_one_is_none() {
    let mut world = World::new();
    let (reader, bad, none) = (world.dial(), world.dial(), world.dial());
    world.say(reader, ask("GET /topics?filter=a/+&filter=b", EVENTS));
    for topic in ["a/1", "b", "c"] {
        world.publish(topic, "x");
    }
    assert_eq!(data(&world.hear(reader)).len(), 2);
    assert_eq!(statuses(&world.say(bad, ask("GET /topics/a/%23/b", EVENTS))), ["400"]);
    assert_eq!(statuses(&world.say(none, ask("GET /topics", EVENTS))), ["400"]);
    assert!(world.is_closed(bad) && world.is_closed(none));
}

#[test]
fn who_comes_back_gets_what_it_missed_and_each_once() {
    let mut world = World::new();
    let reader = world.dial();
    world.say(reader, ask("GET /topics/%23", EVENTS));
    world.publish("a", "1");
    let id = last_id(&world.hear(reader)).to_owned();
    world.publish("a", "2");
    world.lose(reader);
    world.publish("a", "3");
    let again = world.dial();
    let said = world.say(again, back("/topics/%23", &id));
    let payloads: Vec<&str> = data(&said).iter().map(|data| &data[24..25]).collect();
    assert_eq!(payloads, ["2", "3"], "{said}");
    assert!(!said.contains("missed"), "{said}");
    world.publish("a", "4");
    assert!(last_id(&world.hear(again)).ends_with("-4"));
    let stats = world.door.stats();
    assert_eq!((stats.resumed, stats.replayed, stats.missed, stats.forgotten), (1, 2, 0, 0));
    assert_eq!((stats.streams, stats.waiting), (1, 0));
}

#[test]
fn who_comes_back_before_its_old_connection_is_known_to_be_gone_takes_it_over() {
    let mut world = World::new();
    let (reader, again) = (world.dial(), world.dial());
    let said = world.say(reader, ask("GET /topics/%23", EVENTS));
    let id = last_id(&said).to_owned();
    world.block(reader, true);
    world.publish("a", "1");
    world.publish("a", "2");
    let said = world.say(again, back("/topics/%23", &id));
    assert_eq!(data(&said).len(), 2, "{said}");
    assert!(world.is_closed(reader));
    world.publish("a", "3");
    assert_eq!(data(&world.hear(again)).len(), 1);
}

#[test]
fn more_than_is_remembered_is_counted_exactly() {
    let mut world = World::new();
    let (reader, again) = (world.dial(), world.dial());
    let said = world.say(reader, ask("GET /topics/%23", EVENTS));
    let id = last_id(&said).to_owned();
    world.lose(reader);
    for number in 0..300 {
        world.publish("a", &number.to_string());
    }
    let said = world.say(again, back("/topics/%23", &id));
    assert_eq!(data(&said)[0], "{\"count\":44}", "{said}");
    assert!(said.contains("event: missed\ndata: {\"count\":44}\n\n"));
    assert_eq!(data(&said).len(), 1 + 256);
    assert_eq!((world.door.stats().missed, world.door.stats().replayed), (44, 256));
}

#[test]
fn large_events_are_remembered_by_their_bytes() {
    let mut world = World::new();
    let (reader, again) = (world.dial(), world.dial());
    let said = world.say(reader, ask("GET /topics/%23", EVENTS));
    let id = last_id(&said).to_owned();
    world.lose(reader);
    let large = "x".repeat(100_000);
    for _ in 0..5 {
        world.publish("a", &large);
    }
    let before = world.shard.memory_used();
    let said = world.say(again, back("/topics/%23", &id));
    assert_eq!(data(&said)[0], "{\"count\":3}");
    assert_eq!(data(&said).len(), 1 + 2);
    world.lose(again);
    world.wait(Duration::from_secs(61));
    assert!(world.shard.memory_used() + 200_000 < before, "what is remembered is charged, and given back");
}

#[test]
fn a_stream_that_is_forgotten_begins_anew_and_says_that_nobody_knows() {
    let mut world = World::new();
    let (reader, again, later) = (world.dial(), world.dial(), world.dial());
    world.say(reader, ask("GET /topics/%23", EVENTS));
    world.publish("a", "1");
    let id = last_id(&world.hear(reader)).to_owned();
    world.lose(reader);
    world.wait(Duration::from_secs(61));
    assert_eq!((world.door.stats().waiting, world.shard.stats().sessions), (0, 0), "and its session is gone");
    let said = world.say(again, back("/topics/%23", &id));
    assert_eq!(data(&said), ["{\"count\":null}"], "{said}");
    world.publish("a", "2");
    world.publish("a", "3");
    // Whoever shows the old number once more was never told.
    let said = world.say(later, back("/topics/%23", &id));
    assert_eq!(data(&said)[0], "{\"count\":null}", "{said}");
    assert_eq!(data(&said).len(), 3);
}

#[test]
fn ids_that_nobody_gave_are_answered_and_do_no_harm() {
    for id in ["42", "x", "t1-999", "../../-1", "t-18446744073709551615"] {
        let mut world = World::new();
        let reader = world.dial();
        let said = world.say(reader, back("/topics/a", id));
        assert_eq!(data(&said), ["{\"count\":null}"], "{id}");
        world.publish("a", "1");
        assert_eq!(data(&world.hear(reader)).len(), 1, "{id}");
    }
}

#[test]
fn a_stream_is_its_users_and_its_filters() {
    let mut world = World::new();
    let (ann, bob, other, again) = (
        world.dial_as(Some("ann")),
        world.dial_as(Some("bob")),
        world.dial_as(Some("ann")),
        world.dial_as(Some("ann")),
    );
    world.say(ann, ask("GET /topics/%23", EVENTS));
    world.publish("a", "1");
    let id = last_id(&world.hear(ann)).to_owned();
    assert_eq!(statuses(&world.say(bob, back("/topics/%23", &id))), ["403"]);
    assert!(!world.is_closed(ann), "and ann hears nothing of it");
    world.publish("a", "2");
    assert_eq!(data(&world.hear(ann)).len(), 1);
    let said = world.say(other, back("/topics/a", &id));
    assert_eq!(data(&said)[0], "{\"count\":null}", "something else is asked for");
    assert!(world.is_closed(ann));
    assert_eq!(statuses(&world.say(again, ask("GET /", ""))), ["200"]);
}

#[test]
fn a_silent_stream_says_that_it_is_there() {
    let mut world = World::new();
    let reader = world.dial();
    world.say(reader, ask("GET /topics/a", EVENTS));
    world.wait(Duration::from_secs(14));
    assert_eq!(world.hear(reader), "");
    world.wait(Duration::from_secs(2));
    assert_eq!(world.hear(reader), ":\n\n");
    world.wait(Duration::from_secs(3600));
    assert!(!world.is_closed(reader));
    assert_eq!(world.hear(reader), ":\n\n".repeat(240));
}

#[test]
fn a_reader_that_does_not_read_is_cut_and_told_when_it_comes_back() {
    let settings = Settings { queue_messages_max: 10, ..Settings::default() };
    let mut world = World::with(settings, Arc::new(Open));
    let (reader, again) = (world.dial(), world.dial());
    let said = world.say(reader, ask("GET /topics/%23", EVENTS));
    let id = last_id(&said).to_owned();
    world.block(reader, true);
    let large = "x".repeat(10_000);
    for _ in 0..200 {
        world.publish("a", &large);
    }
    world.wait(Duration::from_secs(3600));
    assert!(world.is_closed(reader), "nobody waits for ever");
    assert_eq!(world.shard.stats().sessions, 0);
    let said = world.say(again, back("/topics/%23", &id));
    assert_eq!(data(&said), ["{\"count\":null}"], "{said}");
}

#[test]
fn a_reader_that_is_slow_is_told_what_that_has_cost() {
    let settings = Settings { queue_messages_max: 10, write_timeout: Duration::from_secs(600), ..Settings::default() };
    let mut world = World::with(settings, Arc::new(Open));
    let reader = world.dial();
    world.say(reader, ask("GET /topics/%23", EVENTS));
    world.block(reader, true);
    let large = "x".repeat(10_000);
    for _ in 0..200 {
        world.publish("a", &large);
    }
    world.block(reader, false);
    world.wait(Duration::from_secs(31));
    let said = world.hear(reader);
    let missed: u64 = data(&said)
        .iter()
        .filter_map(|data| data.strip_prefix("{\"count\":")?.strip_suffix('}')?.parse::<u64>().ok())
        .sum();
    let events = data(&said).iter().filter(|data| data.starts_with("{\"topic\"")).count() as u64;
    assert!(missed > 0, "{events}");
    assert_eq!(events + missed, 200);
}

#[test]
fn streams_that_wait_are_bounded_and_the_oldest_goes_first() {
    let mut world = World::new();
    let mut ids = Vec::new();
    for _ in 0..1030 {
        let reader = world.dial();
        let said = world.say(reader, ask("GET /topics/a", EVENTS));
        ids.push(last_id(&said).to_owned());
        world.now = world.now + Duration::from_millis(1);
        world.lose(reader);
    }
    assert_eq!((world.door.stats().waiting, world.shard.stats().sessions), (1024, 1024));
    let (oldest, newest) = (world.dial(), world.dial());
    assert!(world.say(oldest, back("/topics/a", &ids[0])).contains("missed"));
    assert!(!world.say(newest, back("/topics/a", &ids[1029])).contains("missed"));
}

#[test]
fn a_connection_that_has_answered_requests_becomes_a_stream() {
    let mut world = World::new();
    let socket = world.dial();
    let said = world.say(socket, ask("GET /", "") + &ask("GET /topics/a", EVENTS));
    assert_eq!(statuses(&said), ["200", "200"]);
    assert!(said.contains("text/event-stream"), "{said}");
    world.publish("a", "1");
    assert_eq!(data(&world.hear(socket)).len(), 1);
    assert_eq!(world.say(socket, ask("GET /", "")), "", "what follows is not read");
}
