use tidegate_core::trace::{Arrival, TraceGroup};

use super::*;

/// Five sensors that send every second, of which the first sends twenty a second for five seconds; and a meter every ten.
fn day() -> Trace {
    let arrival = |publisher: u32, millis: u64, group: u8| Arrival {
        micros: millis * 1000,
        publisher,
        topic: publisher,
        topic_bytes: 10,
        payload_bytes: 20,
        qos: 1,
        retain: false,
        group,
    };
    let mut arrivals = Vec::new();
    for sensor in 0..5 {
        arrivals.extend((0..60).map(|second| arrival(sensor, second * 1000 + u64::from(sensor) * 37, 1)));
    }
    arrivals.extend((0..100).map(|number| arrival(0, 30_000 + number * 50, 1)));
    arrivals.extend((0..6).map(|number| arrival(5, number * 10_000, 0)));
    Trace::new(arrivals).with_groups(vec![TraceGroup::parse("sensors=sensor-*").unwrap()])
}

fn ask(devices: &[&str], limits: &[&str], set: &[&str], reader: Option<f64>) -> Result<WhatIf, String> {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let trace = day();
    let question = Question::read(&trace, &own(devices), &own(limits), &own(set), reader)?;
    answer(&trace, &question)
}

#[test]
fn three_times_the_devices_send_three_times_the_messages_each_at_its_own_times() {
    let answer = ask(&["x3"], &[], &[], None).unwrap();
    let names: Vec<&str> = answer.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["as recorded", "devices x3"]);
    let all = |place: usize| answer.columns[place].account.all();
    assert_eq!((all(0).ends.messages, all(1).ends.messages), (406, 3 * 406));
    assert_eq!((all(0).publishers, all(1).publishers), (6, 18));
    assert_eq!(all(1).ends.lost() + all(1).ends.waited, 0, "a reader that takes everything");
    assert!(answer.settings.is_empty());
    let only = ask(&["sensors=x1.5"], &[], &[], None).unwrap();
    let messages = only.columns[1].account.all().ends.messages;
    assert!((466..=706).contains(&messages), "{messages}: more sensors, and one meter as before");
    let fewer = ask(&["sensors=x0.2"], &[], &[], None).unwrap();
    assert!(fewer.columns[1].account.all().ends.messages < 406);
}

#[test]
fn a_limit_makes_those_wait_who_exceed_it_and_is_written_as_a_class() {
    let answer = ask(&["x3"], &["sensors=5/s"], &[], None).unwrap();
    let last = &answer.columns[2].account;
    let group = |name: &str| last.groups.iter().find(|group| group.name == name).unwrap();
    assert!(group("sensors").ends.waited > 100, "{:?}", group("sensors").ends);
    assert_eq!(group("others").ends.waited, 0);
    assert_eq!(last.affected, 3, "the sensor that floods, and its two copies");
    assert!(last.worst.iter().all(|it| it.group == "sensors" && it.ends.wait_max > 1.0), "{:?}", last.worst);
    assert_eq!(answer.settings, "[classes.sensors]\nclients = [\"sensor-*\"]\nrate = \"5/s\"\nweight = 2\n");
    assert_eq!(answer.unnoticed[0].0, "all");
    let said = text(&answer);
    for part in
        ["Who would wait", "By group", "Over time", "[classes.sensors]", "latency p99", "nobody would have waited"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(html("t", &answer).contains("<svg") && timeline_csv(&answer).lines().count() > 60);
    assert_eq!(json(&answer)["columns"][2]["groups"][1]["group"], "sensors");
}

#[test]
fn a_slow_reader_makes_queues_and_what_is_dropped_is_told() {
    let answer = ask(&["x3"], &[], &["limits.queue_messages_max=50", "priority.mode=off"], Some(8.0)).unwrap();
    let [before, more, set] = [0, 1, 2].map(|place| answer.columns[place].account.all());
    assert!(more.latency.quantile(0.99) > before.latency.quantile(0.99));
    assert!(set.ends.dropped > 0 && before.ends.dropped == 0, "{:?}", set.ends);
    assert_eq!(answer.settings, "[limits]\nqueue_messages_max = 50\n\n[priority]\nmode = \"off\"\n");
    // Every message is somewhere.
    assert_eq!(set.ends.messages, set.latency.count() + set.ends.lost() + set.ends.left);
}

#[test]
fn what_is_not_understood_is_said() {
    let said = |devices: &[&str], limits: &[&str], set: &[&str]| ask(devices, limits, set, None).unwrap_err();
    assert!(said(&["x0"], &[], &[]).contains("expected x3"));
    assert!(said(&["lamps=x2"], &[], &[]).contains("the trace knows sensors and all"));
    assert!(said(&[], &["sensors=5"], &[]).contains("expected GROUP=5/s"));
    assert!(said(&[], &["all=5/s", "all=6/s"], &[]).contains("already"));
    assert!(said(&[], &[], &["limits.keep_alive_max=5s"]).contains("what can be asked about is backoff.enforce"));
    assert!(said(&[], &[], &["backoff.mode=strict"]).contains("expected practical, paper, off"));
    assert!(said(&[], &[], &["limits.rate=x"]).contains("expected 5/s"));
}

#[test]
fn the_same_question_has_the_same_answer() {
    let once = || json(&ask(&["x2.5"], &["all=2/s"], &["backoff.enforce=always"], Some(20.0)).unwrap()).to_string();
    assert_eq!(once(), once());
}
