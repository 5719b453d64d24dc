//! Subscriptions: overlap, identifiers, no local, rules of access, aliases.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use tidegate_core::access::{Action, Identity, Open, Policy};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, QoS, ReasonCode, SubscriptionOptions, Version};

use crate::net::{Forbid, Got, Net, Options, options};

fn id(number: u32) -> [Property<'static>; 1] {
    [Property::SubscriptionId(NonZeroU32::new(number).unwrap())]
}

#[test]
fn overlapping_subscriptions_give_one_copy_with_the_best_qos_and_all_identifiers() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe_with(receiver, "a/+", options(QoS::AtMostOnce), &id(1));
    net.subscribe_with(receiver, "a/#", options(QoS::AtLeastOnce), &id(2));
    net.subscribe_with(receiver, "b", options(QoS::AtLeastOnce), &id(3));
    net.publish(sender, "a/x", "hi", 2, false, 1);
    let got = net.receive(receiver);
    let [Got::Message { qos: 1, ids, .. }] = &got[..] else { panic!("{got:?}") };
    let mut ids = ids.clone();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn no_local_keeps_ones_own_messages_away_and_no_others() {
    let mut net = Net::new(1);
    let (one, two) = (net.v5("one"), net.v5("two"));
    let no_local = SubscriptionOptions { no_local: true, ..options(QoS::AtMostOnce) };
    net.subscribe_with(one, "t/#", no_local, &id(1));
    net.publish(one, "t/a", "mine", 0, false, 0);
    net.publish(two, "t/a", "yours", 0, false, 0);
    assert_eq!(net.payloads(one), ["yours"]);
    net.subscribe_with(one, "t/a", options(QoS::AtMostOnce), &id(2));
    net.publish(one, "t/a", "mine", 0, false, 0);
    let got = net.receive(one);
    assert!(matches!(&got[..], [Got::Message { ids, .. }] if ids == &[2]), "{got:?}");
}

#[test]
fn a_subscription_ends_and_says_whether_it_was_there() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "t", 0);
    assert_eq!(net.unsubscribe(receiver, "t"), [ReasonCode::Success]);
    assert_eq!(net.unsubscribe(receiver, "t"), [ReasonCode::NoSubscriptionExisted]);
    net.publish(sender, "t", "x", 0, false, 0);
    assert_eq!(net.receive(receiver), []);
    assert_eq!(net.stats().subscriptions, 0);
}

#[test]
fn a_subscription_made_again_is_replaced() {
    let mut net = Net::new(1);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    assert_eq!(net.subscribe(receiver, "t", 0), ReasonCode::Success);
    assert_eq!(net.subscribe(receiver, "t", 2), ReasonCode::GrantedQos2);
    net.publish(sender, "t", "x", 2, false, 1);
    let got = net.receive(receiver);
    assert!(matches!(&got[..], [Got::Message { qos: 2, .. }]), "{got:?}");
    assert_eq!(net.stats().subscriptions, 1);
}

#[test]
fn rules_of_access_hold_for_publishing_subscribing_and_receiving() {
    let mut net = Net::with(1, Settings::default(), Forbid(Action::Subscribe, "secret"));
    let client = net.v5("c");
    assert_eq!(net.subscribe(client, "a/secret", 1), ReasonCode::NotAuthorized);
    assert_eq!(net.subscribe(client, "$share/g/a/secret", 1), ReasonCode::NotAuthorized);

    let mut net = Net::with(1, Settings::default(), Forbid(Action::Publish, "secret"));
    let (new, old) = (net.v5("new"), net.connect("old", &Options { version: Version::V311, ..Options::default() }));
    net.publish(new, "secret", "x", 1, false, 3);
    let reason = ReasonCode::NotAuthorized;
    assert_eq!(net.receive(new), [Got::Ack { kind: AckKind::PubAck, id: 3, reason }]);
    net.publish(old, "secret", "x", 0, false, 0);
    assert!(!net.is_closed(old), "QoS 0 is dropped and counted");
    net.publish(old, "secret", "x", 1, false, 3);
    assert_eq!(net.receive(old), [], "never acknowledged with success");
    assert!(net.is_closed(old));

    let mut net = Net::with(1, Settings::default(), Open);
    let (sender, receiver) = (net.v5("sender"), net.v5("receiver"));
    net.subscribe(receiver, "#", 0);
    net.shards[0].set_policy(Arc::new(Forbid(Action::Receive, "secret")));
    net.publish(sender, "a/secret", "no", 0, false, 0);
    net.publish(sender, "a/open", "yes", 0, false, 0);
    assert_eq!(net.payloads(receiver), ["yes"]);
    assert_eq!(net.stats().dropped_denied, 1);
}

/// One client may not receive anything.
#[derive(Debug)]
struct Deaf(&'static str);

impl Policy for Deaf {
    fn allows(&self, _: &Identity, client_id: &str, action: Action, _: &str) -> bool {
        action != Action::Receive || client_id != self.0
    }
}

#[test]
fn a_member_that_may_not_receive_takes_nothing_from_its_group() {
    for shards in [1, 2] {
        let mut net = Net::with(shards, Settings::default(), Deaf("stranger"));
        let (sender, stranger, member) = (net.v5("sender"), net.v5("stranger"), net.v5("member"));
        net.subscribe(stranger, "$share/g/t", 1);
        net.subscribe(member, "$share/g/t", 1);
        for n in 0..20 {
            net.publish(sender, "t", &n.to_string(), 1, false, n + 1);
            net.receive(sender);
            let got = net.receive(member);
            assert!(matches!(&got[..], [Got::Message { .. }]), "{n} on {shards}: {got:?}");
            if let [Got::Message { id: Some(id), .. }] = &got[..] {
                net.ack(member, AckKind::PubAck, *id);
            }
        }
        assert_eq!(net.receive(stranger), []);
    }
}

#[test]
fn a_bridge_says_its_state_under_its_own_name_and_nobody_says_more() {
    let mut net = Net::new(1);
    let (bridge, reader) = (net.v5("bridge"), net.v5("reader"));
    net.subscribe(reader, "$SYS/broker/connection/#", 0);
    net.publish(bridge, "$SYS/broker/connection/bridge/state", "1", 1, true, 1);
    net.publish(bridge, "$SYS/broker/connection/bridge/state", "long", 1, true, 2);
    net.publish(bridge, "$SYS/broker/connection/other/state", "1", 1, true, 3);
    net.publish(bridge, "$SYS/broker/uptime", "1", 1, true, 4);
    assert_eq!(net.payloads(reader), ["1"]);
}

#[test]
fn nobody_writes_to_sys_and_wildcards_do_not_see_it() {
    let mut net = Net::new(1);
    let (all, sys) = (net.v5("all"), net.v5("sys"));
    net.subscribe(all, "#", 0);
    net.subscribe(sys, "$SYS/#", 0);
    net.publish(all, "$SYS/broker/version", "fake", 1, false, 1);
    let reason = ReasonCode::NotAuthorized;
    assert_eq!(net.receive(all), [Got::Ack { kind: AckKind::PubAck, id: 1, reason }]);
    net.shards[0].handle_system("$SYS/broker/version", b"1", net.now);
    net.settle();
    assert_eq!((net.payloads(all), net.payloads(sys)), (vec![], vec!["1".to_owned()]));
}

#[test]
fn topic_aliases_work_in_both_directions() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let properties = vec![Property::TopicAliasMaximum(5)];
    let receiver = net.connect("receiver", &Options { properties, ..Options::default() });
    net.subscribe(receiver, "long/topic/#", 0);
    let alias = [Property::TopicAlias(NonZeroU16::new(3).unwrap())];
    net.publish_with(sender, "long/topic/name", "1", 0, false, 0, &alias);
    net.publish_with(sender, "", "2", 0, false, 0, &alias);
    let topics: Vec<_> = net
        .receive(receiver)
        .into_iter()
        .map(|got| if let Got::Message { topic, payload, .. } = got { (topic, payload) } else { panic!("{got:?}") })
        .collect();
    assert_eq!(topics[0], ("long/topic/name".to_owned(), "1".to_owned()));
    assert_eq!(topics[1], (String::new(), "2".to_owned()), "the second time the alias stands for it");
    let unknown = [Property::TopicAlias(NonZeroU16::new(4).unwrap())];
    net.publish_with(sender, "", "3", 0, false, 0, &unknown);
    assert!(net.is_closed(sender));
}

#[test]
fn properties_of_a_message_arrive_and_those_of_a_connection_do_not() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    let receiver = net.v5("receiver");
    net.subscribe(receiver, "t", 0);
    let list = [
        Property::TopicAlias(NonZeroU16::new(1).unwrap()),
        Property::UserProperty("k", "v"),
        Property::ContentType("text/plain"),
        Property::ResponseTopic("answer"),
        Property::CorrelationData(b"7"),
    ];
    net.publish_with(sender, "t", "x", 0, false, 0, &list);
    let bytes = net.raw(receiver);
    let text = String::from_utf8_lossy(&bytes);
    for part in ["k", "v", "text/plain", "answer", "7"] {
        assert!(text.contains(part), "{part} in {text:?}");
    }
}

#[test]
fn f025_a_payload_that_lies_about_its_format_is_refused() {
    let mut net = Net::new(1);
    let sender = net.v5("sender");
    // PUBLISH QoS 1, topic t, identifier 1, payload format 1, payload 0xff.
    net.send_bytes(sender, b"\x32\x09\x00\x01t\x00\x01\x02\x01\x01\xff");
    let reason = ReasonCode::PayloadFormatInvalid;
    assert_eq!(net.receive(sender), [Got::Ack { kind: AckKind::PubAck, id: 1, reason }]);
}
