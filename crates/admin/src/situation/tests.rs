//! What is said when, word by word: these are the words of the page, the command line and the log.

mod reports;

use tidegate_core::report::ClientState;

use super::*;
use crate::alarms::AlarmKind;

fn publisher(client_id: &str, state: ClientState, rate: f64, usual: Option<f64>) -> TroubledPublisher {
    TroubledPublisher {
        client_id: client_id.into(),
        state,
        rate,
        usual,
        limit: None,
        is_for_rate: true,
        fills: None,
        part: None,
        is_newcomer: false,
    }
}

fn receiver(client_id: &str, loss_rate: f64, fill: f64) -> TroubledReceiver {
    let lost = (loss_rate * 10.0) as u64;
    let (client_id, is_losing) = (client_id.into(), loss_rate > 0.0);
    let crowding = vec![CrowdingFlow { origin: 7, lost, waiting: 0, is_newcomer: false }];
    let (is_away, takes, source, queued) = (false, 370.0, None, 0);
    TroubledReceiver { client_id, is_losing, is_away, loss_rate, lost, fill, takes, source, crowding, queued }
}

#[test]
fn nothing_wrong_is_calm() {
    let sentence = TroubleReport::default().sentence();
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Calm, ""));
    assert_eq!(sentence.text, "calm: nobody floods, nobody loses messages, nobody is banned");
}

#[test]
fn who_floods_who_loses_and_what_to_type() {
    let situation = TroubleReport {
        publishers: vec![publisher("meter-17", ClientState::BackedOff, 400.0, Some(6.5))],
        receivers: vec![receiver("historian", 37.0, 1.0)],
        bans: 1,
        ban_tries: 17,
        banned: vec![("pest".to_owned(), "\"pest\"".to_owned())],
        ..TroubleReport::default()
    };
    let sentence = situation.sentence();
    assert_eq!(
        sentence.text,
        "\"historian\" loses 37.0/s: it reads 370/s of some 407/s, and its queue is full; \
         \"meter-17\" sends 400/s, 61.5 × its usual 6.50/s, and is refused; \"pest\" is banned (17 tries to come in since)"
    );
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Trouble, "tidegate why historian"));
    // Who fills a queue needs somebody though it is refused.
    let harmful = TroubledPublisher { fills: Some("historian".into()), ..situation.publishers[0].clone() };
    let sentence = TroubleReport { publishers: vec![harmful], ..situation }.sentence();
    assert!(sentence.text.starts_with("\"meter-17\" sends 400/s"), "{}", sentence.text);
    assert_eq!(sentence.next, "tidegate why meter-17");
}

#[test]
fn a_newcomer_that_fills_a_queue_is_called_new_and_a_paused_one_stays_in_sight() {
    let mut new = publisher("flood 1", ClientState::Ok, 2000.0, None);
    new.fills = Some("historian".into());
    let paused = publisher("plc", ClientState::Paused, 1.0, Some(5.0));
    let situation = TroubleReport { publishers: vec![new, paused], ..TroubleReport::default() };
    let sentence = situation.sentence();
    assert_eq!(
        sentence.text,
        "\"flood 1\" sends 2000/s (new, has no usual rate yet), and fills the queue of \"historian\"; \
         \"plc\" sends more than is taken of it (1.00/s; 5.00/s is usual), and is not read for a while"
    );
    assert_eq!(sentence.next, "tidegate why 'flood 1'");
}

#[test]
fn who_is_paused_for_the_brokers_sake_or_new_and_modest_is_no_flooder() {
    let for_memory = TroubledPublisher { is_for_rate: false, ..publisher("plc", ClientState::Paused, 1.0, Some(5.0)) };
    let modest = publisher("new", ClientState::Slowed, 5.0, None);
    assert!(!for_memory.is_flooding() && !modest.is_flooding());
    assert!(publisher("new", ClientState::Slowed, 500.0, None).is_flooding());
    let sentence = TroubleReport { publishers: vec![for_memory, modest], ..TroubleReport::default() }.sentence();
    assert_eq!(sentence.mood, Mood::Notice, "{}", sentence.text);
}

#[test]
fn what_is_worth_a_look_is_not_called_trouble() {
    let slow = TroubleReport { receivers: vec![receiver("tablet", 0.0, 0.6)], ..TroubleReport::default() }.sentence();
    assert_eq!(
        (slow.mood, slow.text.as_str()),
        (Mood::Notice, "\"tablet\" is slow: it reads 370/s, and 60 % of its queue is used")
    );
    let gateway = publisher("gateway", ClientState::Slowed, 180.0, Some(200.0));
    let waits = TroubleReport { publishers: vec![gateway], ..TroubleReport::default() }.sentence();
    assert_eq!(waits.text, "\"gateway\" sends 180/s, about its usual 200/s, and has to wait");
    assert_eq!(waits.mood, Mood::Notice);
    let banned = TroubleReport { bans: 3, ..TroubleReport::default() }.sentence();
    assert_eq!((banned.text.as_str(), banned.next.as_str()), ("3 are banned", "tidegate ban list"));
}

#[test]
fn many_are_counted_and_the_losing_come_before_the_slow() {
    let mut situation = TroubleReport::default();
    for n in 0..1000 {
        let trouble = receiver(&format!("r{n}"), if n % 2 == 0 { f64::from(n) + 1.0 } else { 0.0 }, 0.7);
        situation.note_receiver(trouble);
    }
    assert_eq!((situation.receivers.len(), situation.losing, situation.slow), (ALARMS_MAX, 500, 500));
    assert!(situation.receivers.iter().all(|receiver| receiver.is_losing));
    let text = situation.sentence().text;
    assert!(text.ends_with("; 498 more receivers lose messages"), "{text}");
    assert_eq!(situation.blamed().len(), 1, "one publisher fills all of them");
}

#[test]
fn publishers_beyond_the_list_are_counted_too() {
    let mut situation = TroubleReport::default();
    for n in 0..300 {
        situation.note_publisher(publisher(&format!("p{n}"), ClientState::BackedOff, 400.0, Some(6.5)));
        situation.note_publisher(publisher(&format!("w{n}"), ClientState::Slowed, 180.0, Some(200.0)));
    }
    assert_eq!(situation.publishers.len(), ALARMS_MAX);
    assert_eq!(situation.flooders().count(), ALARMS_MAX, "who floods comes before who waits");
    let text = situation.sentence().text;
    assert!(text.contains("; 298 more publishers send too much; 300 more publishers have to wait"), "{text}");
}

#[test]
fn who_is_held_to_an_operators_limit_is_measured_by_that_and_is_no_flooder() {
    let limited = TroubledPublisher { limit: Some(5.0), ..publisher("pump", ClientState::Slowed, 5.0, Some(5.0)) };
    let sentence = TroubleReport { publishers: vec![limited], ..TroubleReport::default() }.sentence();
    assert_eq!(sentence.text, "\"pump\" sends more than its limit of 5/s, which an operator has set, and has to wait");
    assert_eq!(sentence.mood, Mood::Notice);
}

#[test]
fn two_clients_with_one_name_are_trouble() {
    let conflicts = vec![("plc".into(), 41)];
    let sentence = TroubleReport { conflicts, conflicting: 1, ..TroubleReport::default() }.sentence();
    assert_eq!(
        sentence.text,
        "two clients call themselves \"plc\" and throw each other out (41 times in the last minute or two)"
    );
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Trouble, "tidegate why plc"));
}

#[test]
fn cards_have_what_needs_somebody_before_what_is_dealt_with_and_are_as_many_as_a_screen_has_room_for() {
    let flooder = |n: u32| publisher(&format!("pump-{n}"), ClientState::BackedOff, 400.0, Some(6.5));
    let modest = publisher("modest", ClientState::Slowed, 5.0, None);
    let fills = Some("historian".into());
    let harmful = TroubledPublisher { fills, ..publisher("harmful", ClientState::Ok, 400.0, Some(6.5)) };
    let situation = TroubleReport {
        publishers: [modest, harmful].into_iter().chain((0..9).map(flooder)).collect(),
        receivers: vec![receiver("historian", 37.0, 1.0), receiver("slow", 0.0, 0.9)],
        conflicts: vec![("twin".into(), 7)],
        ..TroubleReport::default()
    };
    let cards = situation.cards();
    let kinds: Vec<&str> = cards.iter().map(|card| card.kind).collect();
    let expected = ["floods", "loses", "name used twice", "slow", "floods", "floods", "floods", "floods", "waits"];
    assert_eq!(kinds, expected);
    assert_eq!(cards[0].subject, CardSubject::Client("harmful".into()));
    assert_eq!(cards[1].subject, CardSubject::Client("historian".into()));
    assert_eq!(cards[1].text, "\"historian\" loses 37.0/s: it reads 370/s of some 407/s, and its queue is full");
    assert_eq!(cards[4].subject, CardSubject::Client("pump-0".into()));
}

#[test]
fn a_bridge_that_is_down_is_trouble_and_has_a_card_and_an_alarm() {
    let hub = TroubledBridge { name: "hub".to_owned(), queued: 7, text: "the bridge \"hub\" is down".to_owned() };
    let situation = TroubleReport { bridges: vec![hub], bridges_down: 3, ..TroubleReport::default() };
    let sentence = situation.sentence();
    assert_eq!(sentence.text, "the bridge \"hub\" is down; 2 more bridges are down");
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Trouble, "tidegate why bridge hub"));
    assert_eq!(situation.cards()[0].subject, CardSubject::Bridge("hub".to_owned()));
    let conditions = situation.conditions();
    assert_eq!((conditions[0].kind, conditions[0].subject.as_str()), (AlarmKind::Bridge, "hub"));
}

#[test]
fn a_broker_behind_that_is_gone_is_trouble_and_an_alarm() {
    let words = "the broker behind, 127.0.0.1:1884, cannot be reached".to_owned();
    let situation =
        TroubleReport { upstream: Some(("127.0.0.1:1884".to_owned(), words.clone())), ..TroubleReport::default() };
    let sentence = situation.sentence();
    assert_eq!((sentence.mood, sentence.text, sentence.next.as_str()), (Mood::Trouble, words, "tidegate alarms"));
    let conditions = situation.conditions();
    assert_eq!((conditions[0].kind, conditions[0].subject.as_str()), (AlarmKind::Upstream, "127.0.0.1:1884"));
}

#[test]
fn a_gate_that_is_off_is_said_and_is_no_trouble_by_itself() {
    let off = TroubleReport { is_gate_off: true, ..TroubleReport::default() };
    let sentence = off.sentence();
    assert_eq!(sentence.mood, Mood::Calm);
    assert!(sentence.text.ends_with("the gate is off (backoff.mode = \"off\"): nobody is slowed for what it sends"));
    assert!(!sentence.text.contains("nobody floods"), "nobody knows");
    let flood = TroubleReport { receivers: vec![receiver("historian", 37.0, 1.0)], losing: 1, ..off };
    assert!(flood.sentence().text.ends_with("nobody is slowed for what it sends"), "{}", flood.sentence().text);
}

#[test]
fn who_fills_a_queue_as_usual_is_named_without_being_called_a_flooder() {
    let mut situation =
        TroubleReport { receivers: vec![receiver("historian", 37.0, 1.0)], losing: 1, ..TroubleReport::default() };
    let historian: Arc<str> = "historian".into();
    for (name, rate) in [("camera", 400.0), ("pump", 20.0)] {
        situation.note_source(&historian, &publisher(name, ClientState::Ok, rate, Some(rate)));
    }
    let words = "\"historian\" loses 37.0/s: it reads 370/s of some 407/s, and its queue is full, mostly by \"camera\", which sends \
         400/s, about as usual";
    assert_eq!(situation.sentence().text, words);
    assert_eq!(situation.flooders().count(), 0);
}

/// A limit that only delays is what its operator wanted; one that loses messages may have been forgotten.
#[test]
fn a_limit_that_refuses_drops_or_does_not_read_raises_an_alarm_of_its_own() {
    use crate::alarms::AlarmKind;
    let kinds = |state| {
        let limited = TroubledPublisher { limit: Some(2.0), ..publisher("pump", state, 40.0, Some(40.0)) };
        let situation = TroubleReport { publishers: vec![limited], waiting: 1, ..TroubleReport::default() };
        situation.conditions().into_iter().map(|it| (it.kind, it.subject, it.text)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(ClientState::Slowed), []);
    for (state, done) in [(ClientState::BackedOff, "is refused"), (ClientState::Paused, "is not read for a while")] {
        let text = format!("\"pump\" sends more than its limit of 2/s, which an operator has set, and {done}");
        assert_eq!(kinds(state), [(AlarmKind::Limited, "pump".to_owned(), text)]);
    }
}

#[test]
fn with_the_gate_off_who_sends_the_most_is_named_with_what_to_type() {
    let busiest = Some(publisher("pump", ClientState::Ok, 2000.0, Some(6.5)));
    let off = TroubleReport { is_gate_off: true, busiest, ..TroubleReport::default() };
    let sentence = off.sentence();
    assert_eq!(
        sentence.text,
        "calm: nobody loses messages, nobody is banned; \"pump\" sends the most, 2000/s (6.50/s is usual for it); the gate is off \
         (backoff.mode = \"off\"): nobody is slowed for what it sends"
    );
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Calm, "tidegate why pump"));
    let named = TroubleReport { unusual: off.busiest.iter().cloned().collect(), sending_unusually: 1, ..off.clone() };
    assert_eq!(named.sentence().text.matches("\"pump\"").count(), 1, "{}", named.sentence().text);
    let on = TroubleReport { is_gate_off: false, ..off };
    assert!(!on.sentence().text.contains("pump"), "the gate was switched on since");
}
