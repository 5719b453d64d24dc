//! The language of the dialogues. One line, one step:
//!
//! ```text
//! # a comment
//! lamp > CONNECT 4 clean                        version 4 or 5; clean or keep (the session)
//! lamp > CONNECT 4 clean will TOPIC QOS RETAIN PAYLOAD
//! lamp < CONNACK                                what must come: accepted, with a session or without
//! lamp < CONNACK session
//! lamp > SUBSCRIBE FILTER QOS [nl] [rap] [rh1|rh2]
//! lamp > PUBLISH TOPIC QOS RETAIN PAYLOAD       RETAIN is "retain" or "-"; a payload may be 0xHEX or EMPTY
//! lamp < PUBLISH TOPIC QOS RETAIN PAYLOAD
//! lamp < NOTHING                                nothing more, up to the answer to a PINGREQ
//! lamp > DISCONNECT
//! lamp ! CUT                                    the socket ends without a word
//! ```
//! Lines of what must come to one client, one after the other, may come in any order; those of one topic in theirs.

use std::collections::BTreeMap;

use tidegate_test_support::{Broker, Launch};
use tidegate_wire_mqtt::{QoS, RetainHandling, SubscriptionOptions, Version};

use crate::client::{DialogueClient, Said, WillWords};

/// Says it all to a broker, and hears what must come.
pub(crate) fn play(name: &str, text: &str) {
    let broker = Launch::new().start();
    let mut stage = Stage { broker, clients: BTreeMap::new(), awaited: None };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{name}.txt:{}: {line}", number + 1);
        let mut words = line.splitn(3, ' ');
        let (who, sign, rest) = (words.next().unwrap(), words.next().unwrap_or(""), words.next().unwrap_or(""));
        match (sign, rest) {
            ("<", rest) if rest.starts_with("PUBLISH ") => stage.await_message(who, said(rest, &place), &place),
            _ => {
                stage.settle();
                stage.step(who, sign, rest, &place);
            }
        }
    }
    stage.settle();
}

struct Stage {
    broker: Broker,
    clients: BTreeMap<String, DialogueClient>,
    /// What must come to whom, in any order.
    awaited: Option<(String, Vec<(Said, String)>)>,
}

impl Stage {
    fn await_message(&mut self, who: &str, said: Said, place: &str) {
        if self.awaited.as_ref().is_some_and(|(other, _)| other != who) {
            self.settle();
        }
        let awaited = self.awaited.get_or_insert_with(|| (who.to_owned(), Vec::new()));
        awaited.1.push((said, place.to_owned()));
    }

    fn settle(&mut self) {
        let Some((who, mut awaited)) = self.awaited.take() else { return };
        while !awaited.is_empty() {
            let came = self.client(&who).message(&awaited[0].1);
            let expected = awaited.iter().position(|(said, _)| said.topic == came.topic);
            let expected = expected.unwrap_or_else(|| panic!("{}: {came:?} came instead", awaited[0].1));
            let (said, place) = awaited.remove(expected);
            assert_eq!(came, said, "{place}");
        }
    }

    fn client(&mut self, who: &str) -> &mut DialogueClient {
        self.clients.get_mut(who).unwrap_or_else(|| panic!("{who} has not connected"))
    }

    fn step(&mut self, who: &str, sign: &str, rest: &str, place: &str) {
        let words: Vec<&str> = rest.split(' ').collect();
        match (sign, words[0]) {
            (">", "CONNECT") => {
                let version = if words[1] == "5" { Version::V5 } else { Version::V311 };
                let will = rest.split_once(" will ").map(|(_, words)| {
                    let Said { topic, qos, retain, payload } = said(&format!("PUBLISH {words}"), place);
                    WillWords { topic, qos, retain, payload }
                });
                let client =
                    DialogueClient::connect(self.broker.port("mqtt"), who, version, words[2] == "clean", will.as_ref());
                self.clients.insert(who.to_owned(), client);
            }
            ("<", "CONNACK") => {
                let is_kept = self.client(who).welcome(place);
                assert_eq!(is_kept, words.get(1) == Some(&"session"), "{place}");
            }
            (">", "SUBSCRIBE") => {
                let has = |word: &str| words[3..].contains(&word);
                let retain_handling = match (has("rh1"), has("rh2")) {
                    (true, _) => RetainHandling::SendIfNew,
                    (_, true) => RetainHandling::DoNotSend,
                    _ => RetainHandling::Send,
                };
                let (qos, no_local, retain_as_published) = (qos(words[2]), has("nl"), has("rap"));
                let options = SubscriptionOptions { qos, no_local, retain_as_published, retain_handling };
                self.client(who).subscribe(words[1], options, place);
            }
            (">", "PUBLISH") => self.client(who).publish(&said(rest, place), place),
            ("<", "NOTHING") => self.client(who).nothing(place),
            (">", "DISCONNECT") => self.clients.remove(who).unwrap().leave(),
            ("!", "CUT") => drop(self.clients.remove(who)),
            _ => panic!("{place}: no step"),
        }
    }
}

fn qos(word: &str) -> QoS {
    QoS::from_bits(word.parse().expect("0, 1 or 2")).expect("0, 1 or 2")
}

fn said(rest: &str, place: &str) -> Said {
    let words: Vec<&str> = rest.splitn(5, ' ').collect();
    let [_, topic, quality, retain, payload] = words[..] else { panic!("{place}: a message has four parts") };
    let payload = match (payload, payload.strip_prefix("0x")) {
        ("EMPTY", _) => Vec::new(),
        (_, Some(hex)) => {
            (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
        }
        (text, None) => text.as_bytes().to_vec(),
    };
    Said { topic: topic.to_owned(), qos: qos(quality), retain: retain == "retain", payload }
}
