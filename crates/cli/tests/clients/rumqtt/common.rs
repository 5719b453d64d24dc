//! What holds in MQTT 3.1.1 and 5 alike. Each scenario is run with both clients.

use super::v4::V4;
use super::v5::V5;
use super::{Client, Door, Hello, Message};
use crate::broker::Broker;

/// Makes a test per version of each scenario.
macro_rules! scenarios {
    ($($name:ident)+) => {
        mod v4 {
            $(#[test] fn $name() { super::$name::<super::V4>(); })+
        }
        mod v5 {
            $(#[test] fn $name() { super::$name::<super::V5>(); })+
        }
    };
}

scenarios! {
    every_quality_of_service_is_the_lower_of_two
    a_thousand_messages_arrive_in_order
    large_payloads_arrive_whole
    every_door_is_open
    retained_messages_wait_and_can_be_deleted
    a_will_is_published_when_the_connection_breaks
    a_will_is_not_published_after_goodbye
    a_session_goes_on_with_what_it_missed
    a_clean_start_forgets
    a_broken_exchange_is_finished_after_the_return
    a_shared_subscription_divides
    an_end_of_a_subscription_is_an_end
    wildcards_match_and_leave_dollar_topics_alone
    overlapping_subscriptions_deliver_once
}

fn every_quality_of_service_is_the_lower_of_two<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    for subscribed in 0..=2 {
        let mut subscriber = C::open(&broker, "subscriber");
        assert_eq!(subscriber.subscribe("a/+", subscribed), subscribed);
        for published in 0..=2 {
            publisher.publish(&[Message::new("a/b", published, format!("{published}"))]);
            let expected = Message::new("a/b", published.min(subscribed), format!("{published}"));
            assert_eq!(subscriber.receive(), expected);
        }
        subscriber.disconnect();
    }
}

fn a_thousand_messages_arrive_in_order<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    for qos in 0..=2 {
        let mut subscriber = C::open(&broker, "subscriber");
        subscriber.subscribe("n/#", qos);
        let messages: Vec<_> = (0..1000).map(|number| Message::new("n/x", qos, format!("{number}"))).collect();
        publisher.publish(&messages);
        assert_eq!(subscriber.receive_many(1000), messages, "QoS {qos}");
        // Nothing came twice.
        let last = Message::new("n/end", qos, "end");
        publisher.publish(std::slice::from_ref(&last));
        assert_eq!(subscriber.receive(), last);
        subscriber.disconnect();
    }
}

fn large_payloads_arrive_whole<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let mut subscriber = C::open(&broker, "subscriber");
    subscriber.subscribe("large", 2);
    let payload: Vec<u8> = (0..200 * 1024_u32).map(|number| (number * 7 / 3) as u8).collect();
    for qos in 0..=2 {
        let messages = vec![Message::new("large", qos, payload.clone()); 4];
        publisher.publish(&messages);
        assert!(subscriber.receive_many(4) == messages, "QoS {qos}: the payload changed on its way");
    }
}

fn every_door_is_open<C: Client>() {
    let broker = Broker::start();
    let doors = [Door::Mqtt, Door::Mqtts, Door::Ws, Door::Wss];
    let payload = vec![7_u8; 100_000];
    for from in doors {
        let (mut publisher, _) = C::connect(&broker, &Hello::new("publisher").by(from));
        for to in doors {
            let (mut subscriber, _) = C::connect(&broker, &Hello::new("subscriber").by(to));
            subscriber.subscribe("door", 2);
            let messages = [0, 1, 2].map(|qos| Message::new("door", qos, payload.clone()));
            publisher.publish(&messages);
            assert!(subscriber.receive_many(3) == messages, "from {from:?} to {to:?}");
            subscriber.disconnect();
        }
        publisher.disconnect();
    }
}

fn retained_messages_wait_and_can_be_deleted<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let mut live = C::open(&broker, "live");
    live.subscribe("r/#", 1);
    let kept = Message::new("r/a", 1, "old").retained();
    publisher.publish(std::slice::from_ref(&kept));
    // Without "retain as published" it is an ordinary message for those who are there already.
    assert_eq!(live.receive(), Message { retain: false, ..kept.clone() });
    publisher.publish(&[Message { payload: b"new".to_vec(), ..kept.clone() }]);
    assert_eq!(live.receive().payload, b"new");

    let mut late = C::open(&broker, "late");
    late.subscribe("r/+", 2);
    assert_eq!(late.receive(), Message { payload: b"new".to_vec(), ..kept.clone() });
    // A second subscription gets it again.
    late.subscribe("r/+", 0);
    assert_eq!(late.receive(), Message { payload: b"new".to_vec(), qos: 0, ..kept.clone() });

    publisher.publish(&[Message { payload: Vec::new(), ..kept }]);
    let mut later = C::open(&broker, "later");
    later.subscribe("r/#", 1);
    let end = Message::new("r/end", 1, "end");
    publisher.publish(std::slice::from_ref(&end));
    assert_eq!(later.receive(), end);
}

fn a_will_is_published_when_the_connection_breaks<C: Client>() {
    let broker = Broker::start();
    let mut watcher = C::open(&broker, "watcher");
    watcher.subscribe("will/#", 2);
    for qos in 0..=2 {
        let will = Message::new("will/x", qos, format!("gone {qos}")).retained();
        let (mortal, _) = C::connect(&broker, &Hello::new("mortal").with_will(will.clone()));
        drop(mortal);
        assert_eq!(watcher.receive(), Message { retain: false, ..will.clone() });
        let mut late = C::open(&broker, "late");
        late.subscribe("will/x", 2);
        assert_eq!(late.receive(), will);
    }
}

fn a_will_is_not_published_after_goodbye<C: Client>() {
    let broker = Broker::start();
    let mut watcher = C::open(&broker, "watcher");
    watcher.subscribe("will/#", 2);
    let will = Message::new("will/x", 1, "gone");
    let (polite, _) = C::connect(&broker, &Hello::new("polite").with_will(will));
    polite.disconnect();
    let end = Message::new("will/end", 1, "end");
    C::open(&broker, "publisher").publish(std::slice::from_ref(&end));
    assert_eq!(watcher.receive(), end);
}

fn a_session_goes_on_with_what_it_missed<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let hello = Hello::new("keeper").keeping();
    let (mut keeper, present) = C::connect(&broker, &hello);
    assert!(!present);
    keeper.subscribe("one", 1);
    keeper.subscribe("two", 2);
    keeper.disconnect();

    let missed: Vec<_> = (0..200)
        .map(|number| if number % 2 == 0 { ("one", 1) } else { ("two", 2) })
        .enumerate()
        .map(|(number, (topic, qos))| Message::new(topic, qos, format!("{number}")))
        .collect();
    publisher.publish(&missed);
    publisher.publish(&[Message::new("one", 0, "not kept")]);

    let (mut keeper, present) = C::connect(&broker, &hello);
    assert!(present);
    assert_eq!(keeper.receive_many(200), missed);
    let end = Message::new("two", 2, "end");
    publisher.publish(std::slice::from_ref(&end));
    assert_eq!(keeper.receive(), end);
}

fn a_clean_start_forgets<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let (mut keeper, _) = C::connect(&broker, &Hello::new("keeper").keeping());
    keeper.subscribe("a", 1);
    keeper.disconnect();
    publisher.publish(&[Message::new("a", 1, "forgotten")]);

    let (mut keeper, present) = C::connect(&broker, &Hello::new("keeper"));
    assert!(!present);
    keeper.subscribe("b", 1);
    publisher.publish(&[Message::new("a", 1, "nobody listens"), Message::new("b", 1, "end")]);
    assert_eq!(keeper.receive(), Message::new("b", 1, "end"));
    keeper.disconnect();
    // And it left nothing behind.
    assert!(!C::connect(&broker, &Hello::new("keeper").keeping()).1);
}

fn a_broken_exchange_is_finished_after_the_return<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let hello = Hello::new("keeper").keeping();
    let (mut keeper, _) = C::connect(&broker, &hello);
    keeper.subscribe("x", 1);
    let messages: Vec<_> = (0..300).map(|number| Message::new("x", 1, format!("{number}"))).collect();
    publisher.publish(&messages);
    // It has seen some when its connection breaks; whatever it had not acknowledged comes again, in order.
    let seen = keeper.receive_many(100);
    assert_eq!(seen, messages[..100]);
    drop(keeper);
    let (mut keeper, present) = C::connect(&broker, &hello);
    assert!(present);
    let first = keeper.receive();
    let from = messages.iter().position(|message| *message == first).expect("one of them");
    assert!(from <= 100 + 64, "number {from} comes after a gap");
    assert_eq!(keeper.receive_many(299 - from), messages[from + 1..]);
}

fn a_shared_subscription_divides<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let mut members: Vec<C> = ["one", "two", "three"].map(|id| C::open(&broker, id)).into();
    for member in &mut members {
        assert_eq!(member.subscribe("$share/group/job/+", 1), 1);
        member.subscribe("end", 1);
    }
    let jobs: Vec<_> = (0..90).map(|number| Message::new("job/x", 1, format!("{number}"))).collect();
    publisher.publish(&jobs);
    let end = Message::new("end", 1, "end");
    publisher.publish(std::slice::from_ref(&end));
    let mut done: Vec<u32> = Vec::new();
    for member in &mut members {
        let mut mine = Vec::new();
        loop {
            let message = member.receive();
            if message == end {
                break;
            }
            let number: u32 = String::from_utf8_lossy(&message.payload).parse().expect("a number");
            assert_eq!(message, jobs[number as usize]);
            mine.push(number);
        }
        assert!(mine.is_sorted(), "{mine:?}");
        assert!(!mine.is_empty(), "a member got nothing");
        done.extend(mine);
    }
    done.sort_unstable();
    assert!(done.into_iter().eq(0..90));
}

fn an_end_of_a_subscription_is_an_end<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let mut subscriber = C::open(&broker, "subscriber");
    subscriber.subscribe("a", 1);
    subscriber.subscribe("b", 1);
    publisher.publish(&[Message::new("a", 1, "first")]);
    assert_eq!(subscriber.receive().payload, b"first");
    subscriber.unsubscribe("a");
    publisher.publish(&[Message::new("a", 1, "unheard"), Message::new("b", 1, "heard")]);
    assert_eq!(subscriber.receive(), Message::new("b", 1, "heard"));
}

fn wildcards_match_and_leave_dollar_topics_alone<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    for (filter, heard) in [
        ("#", vec!["a", "a/b", "a/b/c", "/a", "a/", "a//c"]),
        ("a/#", vec!["a", "a/b", "a/b/c", "a/", "a//c"]),
        ("+/+", vec!["a/b", "/a", "a/"]),
        ("a/+/c", vec!["a/b/c", "a//c"]),
        ("+", vec!["a"]),
        ("$app/#", vec!["$app/a"]),
    ] {
        let mut subscriber = C::open(&broker, "subscriber");
        subscriber.subscribe(filter, 1);
        subscriber.subscribe("$end", 1);
        let topics = ["a", "a/b", "a/b/c", "/a", "a/", "a//c", "$app/a", "$end"];
        publisher.publish(&topics.map(|topic| Message::new(topic, 1, "")));
        let expected: Vec<_> = heard.iter().chain(&["$end"]).map(|topic| Message::new(topic, 1, "")).collect();
        assert_eq!(subscriber.receive_many(expected.len()), expected, "{filter}");
        subscriber.disconnect();
    }
}

fn overlapping_subscriptions_deliver_once<C: Client>() {
    let broker = Broker::start();
    let mut publisher = C::open(&broker, "publisher");
    let mut subscriber = C::open(&broker, "subscriber");
    subscriber.subscribe("a/#", 1);
    subscriber.subscribe("a/+", 2);
    subscriber.subscribe("a/b", 0);
    publisher.publish(&[Message::new("a/b", 2, "x"), Message::new("a/end", 2, "end")]);
    // [MQTT-3.3.5-1] The highest quality of service of all of them.
    assert_eq!(subscriber.receive_many(2), [Message::new("a/b", 2, "x"), Message::new("a/end", 2, "end")]);
}
