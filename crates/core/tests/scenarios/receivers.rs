//! Receivers that are slow, idle, stuck or away for a moment, and what that is to everybody else: with claims and an order
//! of service, and the same with control off.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::classes::Priority;
use tidegate_core::settings::{BackOff, Settings};
use tidegate_core::shard_of;
use tidegate_wire_mqtt::{AckKind, Property, ReasonCode};

use crate::net::{Got, Net, Options, Wire};
use crate::priority::SlowReader;

const TICK: Duration = Duration::from_millis(10);

fn off() -> Settings {
    let back_off = BackOff { rhythm: None, ..BackOff::default() };
    Settings { priority: Priority::off(), back_off, ..Settings::default() }
}

/// Acknowledges all that came; how many messages that were.
fn take_all(net: &mut Net, wire: Wire) -> usize {
    let mut count = 0;
    while let Some(got) = net.receive_one(wire) {
        if let Got::Message { id, .. } = got {
            count += 1;
            if let Some(id) = id {
                net.ack(wire, AckKind::PubAck, id);
            }
        }
    }
    count
}

/// Refusals among what a publisher was answered.
fn refused(net: &mut Net, wire: Wire) -> usize {
    net.receive(wire)
        .into_iter()
        .filter(|got| matches!(got, Got::Ack { reason: ReasonCode::QuotaExceeded, .. }))
        .count()
}

/// A gateway of 500 messages a second at QoS 1, its application, and whoever else is made by `beside`. Pauses are those of
/// the application. What the application got, and how many were refused.
fn gateway(settings: Settings, beside: impl Fn(&mut Net), pause: std::ops::Range<u32>) -> (usize, usize) {
    let mut net = Net::with(1, settings, Open);
    let (gateway, app) = (net.v5("gateway"), net.v5("app"));
    net.subscribe(app, "data/#", 1);
    beside(&mut net);
    let (mut got, mut refusals) = (0, 0);
    for tick in 0..1000 {
        for n in 0..5_u16 {
            net.publish(gateway, "data/x", "21.5", 1, false, 1 + n);
        }
        net.pass(TICK);
        net.stall(app, pause.contains(&tick));
        refusals += refused(&mut net, gateway);
        got += take_all(&mut net, app);
    }
    for _ in 0..200 {
        got += take_all(&mut net, app);
        net.pass(TICK);
    }
    (got, refusals)
}

#[test]
fn an_idle_reader_of_everything_changes_nothing_for_a_publisher() {
    let idle = |net: &mut Net| {
        let idle = net.v5("idle");
        net.subscribe(idle, "#", 1);
        net.stall(idle, true);
    };
    let alone = gateway(Settings::default(), |_| {}, 0..0);
    assert_eq!(alone, (5000, 0));
    assert_eq!(gateway(Settings::default(), idle, 0..0), alone);
    assert_eq!(gateway(off(), idle, 0..0), alone);
}

#[test]
fn a_receiver_that_pauses_loses_nothing_and_slows_nobody() {
    for pause in [100..120, 100..200] {
        assert_eq!(gateway(Settings::default(), |_| {}, pause.clone()), (5000, 0), "{pause:?}");
        assert_eq!(gateway(off(), |_| {}, pause).1, 0);
    }
}

#[test]
fn a_stuck_member_gets_nothing_while_others_are_idle_and_leaves_what_it_had_to_them() {
    let mut net = Net::with(1, Settings::default(), Open);
    let publisher = net.v5("publisher");
    let members: Vec<Wire> = (0..3).map(|n| net.v5(&format!("member-{n}"))).collect();
    for member in &members {
        net.subscribe(*member, "$share/g/t", 1);
    }
    let (mut got, mut to_stuck) = (0, 0);
    for tick in 0..300_u16 {
        net.publish(publisher, "t", &tick.to_string(), 1, false, 1 + tick);
        net.pass(TICK);
        got += take_all(&mut net, members[0]) + take_all(&mut net, members[1]);
        to_stuck += net.receive(members[2]).len();
    }
    assert_eq!(to_stuck, 1, "one is not acknowledged, the others are idle");
    assert_eq!(got, 299);
    net.cut(members[2]);
    net.pass(TICK);
    assert_eq!(take_all(&mut net, members[0]) + take_all(&mut net, members[1]), 1, "and now that one, too");
}

#[test]
fn what_waits_for_a_member_whose_session_ends_goes_to_the_others_but_for_qos_2_under_way() {
    let mut net = Net::with(1, Settings::default(), Open);
    let publisher = net.v5("publisher");
    let stuck = net.connect(
        "stuck",
        &Options { properties: vec![Property::ReceiveMaximum(NonZeroU16::MIN)], ..Options::default() },
    );
    net.subscribe(stuck, "$share/g/#", 2);
    for n in 0..5_u16 {
        net.publish(publisher, "one", &n.to_string(), 1, false, 1 + n);
    }
    let other = net.v5("other");
    net.subscribe(other, "$share/g/#", 2);
    net.cut(stuck);
    net.pass(TICK);
    assert_eq!(take_all(&mut net, other), 5, "one under way, four that waited");
    let stuck = net.connect("stuck", &Options::default());
    net.subscribe(stuck, "$share/g/#", 2);
    net.cut(other);
    net.publish(publisher, "two", "x", 2, false, 99);
    let last = net.v5("last");
    net.subscribe(last, "$share/g/#", 2);
    net.cut(stuck);
    net.pass(TICK);
    assert_eq!(net.payloads(last).len(), 0, "nobody else may have it [MQTT-4.8.2-5]");
}

#[test]
fn rare_qos_0_is_not_what_is_lost_beside_chatty_qos_1() {
    let mut net = Net::with(1, Settings { queue_messages_max: 500, ..Settings::default() }, Open);
    let (rare, chatty) = (net.v5("rare"), net.v5("chatty"));
    let mut reader = SlowReader::new(&mut net, "#", 1);
    let (mut sent, mut got) = (0, 0);
    for tick in 0..2000_u32 {
        net.publish(chatty, "chatty", &"x".repeat(100), 1, false, 1 + (tick % 60_000) as u16);
        net.receive(chatty);
        if tick.is_multiple_of(50) {
            net.publish(rare, "rare", "21.5", 0, false, 0);
            sent += 1;
        }
        net.pass(TICK);
        // A fifth of what comes.
        for (topic, _) in reader.look_and_ack(&mut net, 30) {
            got += u32::from(topic == "rare");
        }
    }
    assert!(got + 1 >= sent, "{got} of {sent}");
}

#[test]
fn seven_of_twenty_seven_that_flood_a_receiver_harm_only_themselves() {
    let settings = Settings { queue_messages_max: 1000, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let devices: Vec<Wire> = (0..27).map(|n| net.v5(&format!("device-{n}"))).collect();
    let mut reader = SlowReader::new(&mut net, "#", 0);
    let (mut sent, mut got) = (0, 0);
    for tick in 0..3000_u32 {
        for (n, device) in devices.iter().enumerate() {
            // 5 a second; from the tenth second on seven of them send 400.
            let is_flooding = n < 7 && tick >= 1000;
            let burst = if is_flooding { 4 } else { u32::from((tick + n as u32).is_multiple_of(20)) };
            for _ in 0..burst {
                net.publish(*device, &format!("t/{n}"), &"x".repeat(40), 0, false, 0);
                sent += u32::from(n >= 7);
            }
        }
        net.pass(TICK);
        // 500 a second.
        for (topic, _) in reader.look(&mut net, 5 * 50) {
            got += u32::from(topic[2..].parse::<usize>().unwrap() >= 7);
        }
    }
    assert!(got * 100 >= sent * 99, "{got} of {sent}");
}

#[test]
fn who_fills_the_only_receiver_is_told_when_there_will_be_room_and_nobody_else_is() {
    let back_off = BackOff { rhythm: None, ..BackOff::default() };
    let settings = Settings { queue_messages_max: 200, back_off, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let (flooder, rare) = (net.v5("flooder"), net.v5("rare"));
    let mut reader = SlowReader::new(&mut net, "#", 1);
    let (mut at_first, mut later, mut of_rare) = (0, 0, 0);
    for tick in 0..500_u16 {
        for n in 0..5 {
            net.publish(flooder, "t", &"x".repeat(100), 1, false, 1 + n);
        }
        if tick.is_multiple_of(50) {
            net.publish(rare, "r", "x", 1, false, 1);
        }
        net.pass(TICK);
        let refusals = refused(&mut net, flooder);
        *if tick < 100 { &mut at_first } else { &mut later } += refusals;
        of_rare += refused(&mut net, rare);
        reader.look_and_ack(&mut net, 130);
    }
    assert_eq!((at_first, of_rare), (0, 0), "not within the first second, and never who has little there");
    assert!(later > 800, "{later} of 2000");
}

#[test]
fn a_stuck_member_alone_on_another_shard_gets_nothing_while_one_here_is_idle() {
    let mut net = Net::with(2, Settings::default(), Open);
    let name_on = |shard: usize, word: &str| {
        (0..10_000).map(|n| format!("{word}-{n}")).find(|name| shard_of(name, 2) == shard).unwrap_or_default()
    };
    let publisher = net.v5(&name_on(0, "publisher"));
    let (idle, stuck) = (net.v5(&name_on(0, "idle")), net.v5(&name_on(1, "stuck")));
    net.subscribe(idle, "$share/g/t", 1);
    net.subscribe(stuck, "$share/g/t", 1);
    let mut got = 0;
    for tick in 0..100_u16 {
        net.publish(publisher, "t", &tick.to_string(), 1, false, 1 + tick);
        net.pass(TICK);
        got += take_all(&mut net, idle);
    }
    assert_eq!((got, net.receive(stuck).len()), (100, 0));
}

#[test]
fn what_is_handed_over_keeps_its_order_goes_to_each_group_once_and_not_when_it_has_expired() {
    let mut net = Net::with(1, Settings::default(), Open);
    let (one, two) = (net.v5("one"), net.v5("two"));
    let few = Options { properties: vec![Property::ReceiveMaximum(NonZeroU16::MIN)], ..Options::default() };
    let stuck = net.connect("stuck", &few);
    net.subscribe(stuck, "$share/g/#", 1);
    net.subscribe(stuck, "$share/h/t/#", 1);
    for n in 0..6_u16 {
        let sender = if n % 2 == 0 { one } else { two };
        net.publish(sender, "t/x", &n.to_string(), 1, false, 1 + n);
        net.pass(TICK);
    }
    net.publish_with(one, "t/y", "late", 1, false, 99, &[Property::MessageExpiry(1)]);
    net.pass(Duration::from_secs(2));
    let mut others = Vec::new();
    for group in ["$share/g/#", "$share/h/t/#"] {
        let other = net.v5(group.split('/').nth(1).unwrap());
        net.subscribe(other, group, 1);
        others.push(other);
    }
    net.cut(stuck);
    net.pass(TICK);
    for other in others {
        assert_eq!(net.payloads(other), ["0", "1", "2", "3", "4", "5"]);
    }
}
