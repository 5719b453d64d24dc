//! Section H of the fault catalogue: abuse of the overload controller, continued (limits, notices, windows, reloads).

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::pressure::Level;
use tidegate_control::rhythm::RhythmConfig;
use tidegate_core::Whom;
use tidegate_core::access::{Action, Open};
use tidegate_core::classes::{Class, Classes, Priority};
use tidegate_core::event::Event;
use tidegate_core::glob::Glob;
use tidegate_core::settings::{BackOff, Rate, Settings};
use tidegate_wire_mqtt::ReasonCode;

use crate::backoff::{SECOND, flood, learn, strict, v311};
use crate::net::{Forbid, Got, Net, Options, lasting};

#[test]
fn f129_a_rhythm_that_is_led_astray_slowly_is_told() {
    let mut net = Net::new(1);
    let trainer = net.v5("trainer");
    learn(&mut net, trainer);
    let mut interval = 1.0_f64;
    let end = net.now + 5 * 3600 * SECOND;
    while net.now < end {
        net.publish(trainer, "t", "x", 0, false, 0);
        net.live(Duration::from_secs_f64(interval));
        // One per cent a minute.
        interval *= 0.99_f64.powf(interval / 60.0);
    }
    let drifted: Vec<_> = net.events.iter().filter(|event| matches!(event, Event::Drifted { .. })).collect();
    assert!(!drifted.is_empty() && drifted.len() <= 3, "{}", drifted.len());
}

#[test]
fn f130_bursts_just_below_the_window_do_not_raise_the_long_term_rate() {
    for (burst, pause) in [(9, 2), (32, 10), (64, 40)] {
        let mut net = strict();
        let sender = net.v5("sender");
        learn(&mut net, sender);
        let before = net.stats().publish_passed;
        let rounds = 1200 / pause;
        for _ in 0..rounds {
            flood(&mut net, sender, burst, 0);
            net.live(SECOND * pause);
            if net.is_closed(sender) {
                return;
            }
        }
        let passed = net.stats().publish_passed - before;
        // Twice the usual rate, what was learned on the way (a factor of two per hour), and a batch.
        assert!(passed <= 1200 * 3 + 200, "{burst} every {pause} s: {passed}");
    }
}

#[test]
fn f131_a_limit_that_was_set_holds_whatever_the_rhythm_was() {
    let mut net = Net::new(1);
    let sensor = net.v5("sensor");
    learn(&mut net, sensor);
    let whom = Whom::Client("sensor".into());
    net.shards[0].set_limit(&whom, Some(Rate::new(50, SECOND, 50)), net.now).unwrap();
    net.shards[0].set_level(Level::Busy);
    let before = net.stats().publish_passed;
    for _ in 0..500 {
        net.publish(sensor, "t", "x", 0, false, 0);
        net.live(Duration::from_millis(20));
    }
    assert_eq!(net.stats().publish_passed - before, 500, "fifty a second, where one was usual");
    net.shards[0].set_limit(&whom, None, net.now).unwrap();
    assert_eq!(net.shards[0].limits(), []);
    assert_eq!(net.shards[0].publisher("sensor", net.now).unwrap().learned_interval, None, "it learns again");
}

#[test]
fn f136_who_comes_back_again_and_again_is_outlawed_for_a_time() {
    let mut net = strict();
    let mut flooder = net.v5("flooder");
    learn(&mut net, flooder);
    let mut id = 0;
    for _ in 0..20_000 {
        id = id % 60_000 + 1;
        net.publish(flooder, "t", "x", 1, false, id);
        net.live(Duration::from_millis(50));
        if net.is_closed(flooder) {
            flooder = net.v5("flooder");
        }
        if net.events.iter().any(|event| matches!(event, Event::Outlawed { .. })) {
            break;
        }
    }
    let outlawed = net.events.iter().find_map(|event| match event {
        Event::Outlawed { client_id, time, .. } => Some((&**client_id, *time)),
        _ => None,
    });
    assert_eq!(outlawed, Some(("flooder", 60 * SECOND)));
}

#[test]
fn f138_a_slowed_client_before_mqtt_5_is_told_on_its_own_topic_and_nobody_else_is() {
    let settings = Settings { back_off: strict_back_off(), ..Settings::default() };
    // No rule is needed for one's own notices, and none helps to read those of others.
    let mut net = Net::with(1, settings, Forbid(Action::Subscribe, "$SYS/broker/pace/slow"));
    let (slow, spy, monitor) = (net.connect("slow", &v311()), net.connect("spy", &v311()), net.v5("monitor"));
    assert_eq!(net.subscribe(slow, "$SYS/broker/pace/slow", 0), ReasonCode::Success);
    net.subscribe(spy, "$SYS/broker/pace/+", 0);
    net.subscribe(monitor, "$SYS/#", 0);
    learn(&mut net, slow);
    flood(&mut net, slow, 40, 1);
    let got = net.receive(slow);
    let notices: Vec<_> = got.iter().filter(|got| matches!(got, Got::Message { .. })).collect();
    let [Got::Message { topic, payload, retain: false, .. }] = notices[..] else { panic!("{notices:?}") };
    assert_eq!(topic, "$SYS/broker/pace/slow");
    assert!(payload.starts_with("{\"reason\":\"publishing too fast\",\"pace-interval-ms\":"), "{payload}");
    assert!(payload.contains("\"pace-retry-after-ms\":") && payload.ends_with('}'), "{payload}");
    assert!(net.receive(spy).is_empty() && net.receive(monitor).is_empty());
}

fn strict_back_off() -> BackOff {
    let enforcement = tidegate_control::rhythm::Enforcement::Always;
    BackOff { rhythm: Some(RhythmConfig { enforcement, ..RhythmConfig::default() }), ..BackOff::default() }
}

#[test]
fn b19_a_refreshed_retained_message_is_no_arrival_but_a_flood_of_them_is() {
    let mut net = strict();
    let sensor = net.v5("sensor");
    learn(&mut net, sensor);
    net.publish(sensor, "state", "on", 0, true, 0);
    let before = net.stats().publish_passed;
    for _ in 0..60 {
        // Its usual message, and with it the state again.
        net.publish(sensor, "t", "x", 0, false, 0);
        net.publish(sensor, "state", "on", 0, true, 0);
        net.publish(sensor, "t", "x", 0, false, 0);
        net.live(SECOND);
    }
    assert_eq!(net.stats().publish_passed - before, 180, "two a second are within the headroom");
    for _ in 0..100 {
        net.publish(sensor, "state", "on", 0, true, 0);
    }
    assert!(net.stats().held_messages > 0);
}

#[test]
fn f142_a_budget_below_what_is_used_loses_nothing_that_was_acknowledged() {
    let settings = Settings { queue_memory_max: usize::MAX, ..Settings::default() };
    let mut net = Net::with(1, settings, Open);
    let sender = net.v5("sender");
    let away = net.connect("away", &lasting());
    net.subscribe(away, "#", 1);
    net.cut(away);
    let payload = "x".repeat(10_000);
    (1..=100).for_each(|n| net.publish(sender, "t", &payload, 1, false, n));
    net.receive(sender);
    net.shards[0].set_memory(500_000, 0);
    assert!(net.shards[0].memory_used() > 1_000_000);
    net.publish(sender, "t", &payload, 1, false, 101);
    assert!(matches!(net.receive(sender)[..], [Got::Ack { reason: ReasonCode::QuotaExceeded, .. }]));
    let away = net.connect_quietly("away", &lasting());
    let mut got = 0;
    loop {
        let messages = net.receive(away);
        if messages.is_empty() {
            break;
        }
        for message in messages {
            if let Got::Message { id: Some(id), .. } = message {
                got += 1;
                net.ack(away, tidegate_wire_mqtt::AckKind::PubAck, id);
            }
        }
    }
    assert_eq!(got, 100);
    net.publish(sender, "t", &payload, 1, false, 102);
    assert!(matches!(net.receive(sender)[..], [Got::Ack { reason: ReasonCode::Success, .. }]), "there is room again");
}

#[test]
fn f143_a_limit_of_n_lets_n_through_and_not_one_more() {
    for (count, per) in [(1, 1), (2, 1), (5, 10), (100, 1), (1, 86_400)] {
        for shards in [1, 3] {
            let mut net = Net::new(shards);
            let wires: Vec<_> = (0..4).map(|n| net.v5(&format!("client-{n}"))).collect();
            for n in 0..4 {
                let whom = Whom::Client(format!("client-{n}").into());
                for shard in &mut net.shards {
                    shard.set_limit(&whom, Some(Rate::new(count, SECOND * per, count)), net.now).unwrap();
                }
            }
            for wire in &wires {
                // Nobody knows its rhythm, the broker is idle: a limit is a limit.
                (0..=count).for_each(|_| net.publish(*wire, "t", "x", 0, false, 0));
            }
            let stats = net.stats();
            assert_eq!(stats.publish_passed, u64::from(count) * 4, "{count}/{per} s on {shards} shards");
            assert_eq!(stats.held_messages + stats.dropped_rhythm, 4);
        }
    }
}

#[test]
fn f143_f152_a_limit_of_a_client_is_not_undone_by_another_and_ends_when_it_is_deleted() {
    let mut net = Net::new(1);
    let fleet = Options { user: Some("fleet"), ..Options::default() };
    let limited = net.connect("x", &fleet);
    net.publish(limited, "t", "x", 0, false, 0);
    let whom = Whom::Client("x".into());
    net.shards[0].set_limit(&whom, Some(Rate::new(1, SECOND, 1)), net.now).unwrap();
    // One that comes later, and one whose looser limit is set later.
    let sibling = net.connect("y", &fleet);
    net.publish(sibling, "t", "y", 0, false, 0);
    net.shards[0].set_limit(&Whom::Client("y".into()), Some(Rate::new(50, SECOND, 50)), net.now).unwrap();
    let before = net.stats().publish_passed;
    flood(&mut net, limited, 100, 0);
    assert!(net.stats().publish_passed <= before + 1, "{}", net.stats().publish_passed - before);
    // What the operator takes back does not hold any more.
    net.shards[0].set_limit(&whom, None, net.now).unwrap();
    net.live(200 * SECOND);
    let before = net.stats().publish_passed;
    flood(&mut net, sibling, 50, 0);
    assert_eq!(net.stats().publish_passed, before + 50);
}

#[test]
fn f143_a_limit_for_everybody_holds_without_a_mode_and_changes_with_a_reload() {
    let rate = Some(Rate::new(10, SECOND, 10));
    let limited = Settings { back_off: BackOff { rhythm: None, rate, ..BackOff::default() }, ..Settings::default() };
    let mut net = Net::with(1, limited, Open);
    let client = net.v5("client");
    flood(&mut net, client, 12, 0);
    assert_eq!((net.stats().publish_passed, net.stats().held_messages), (10, 2));
    // One's own limit goes before that of one's user, and both before everybody's.
    let ann = net.connect("ann-1", &Options { user: Some("ann"), ..Options::default() });
    net.shards[0].set_limit(&Whom::User("ann".into()), Some(Rate::new(3, SECOND, 3)), net.now).unwrap();
    flood(&mut net, ann, 5, 0);
    assert_eq!(net.stats().publish_passed, 13);
    net.live(2 * SECOND);
    let unlimited = Settings { back_off: BackOff { rhythm: None, ..BackOff::default() }, ..Settings::default() };
    net.shards[0].set_settings(Arc::new(unlimited));
    net.live(SECOND);
    let before = net.stats().publish_passed;
    flood(&mut net, client, 50, 0);
    assert_eq!(net.stats().publish_passed - before, 50);
}

#[test]
fn f143_a_limit_of_a_class_is_for_each_of_its_clients_and_changes_with_a_reload() {
    let with = |rate: Option<Rate>| {
        let class = Class { clients: vec![Glob::new("sensor-*")], rate, ..Class::new("sensors", 2) };
        let priority = Priority { classes: Classes::new(vec![class]).unwrap(), ..Priority::off() };
        Settings { back_off: BackOff { rhythm: None, ..BackOff::default() }, priority, ..Settings::default() }
    };
    let mut net = Net::with(1, with(Some(Rate::new(5, SECOND, 5))), Open);
    let (one, two, other) = (net.v5("sensor-1"), net.v5("sensor-2"), net.v5("meter"));
    for client in [one, two, other] {
        flood(&mut net, client, 8, 0);
    }
    assert_eq!((net.stats().publish_passed, net.stats().held_messages), (5 + 5 + 8, 6));
    // What was said of the client itself goes before.
    net.live(10 * SECOND);
    net.shards[0].set_limit(&Whom::Client("sensor-1".into()), Some(Rate::new(50, SECOND, 50)), net.now).unwrap();
    let before = net.stats().publish_passed;
    flood(&mut net, one, 50, 0);
    assert_eq!(net.stats().publish_passed - before, 50);
    net.shards[0].set_settings(Arc::new(with(None)));
    net.live(SECOND);
    let before = net.stats().publish_passed;
    flood(&mut net, two, 50, 0);
    assert_eq!(net.stats().publish_passed - before, 50);
}

#[test]
fn f144_overloaded_reloaded_and_drained_at_once() {
    for seed in 0_u32..20 {
        let mut net = strict();
        net.shards[0].set_memory(2 << 20, 0);
        let (flooder, old, away) = (net.v5("flooder"), net.connect("old", &v311()), net.connect("away", &lasting()));
        net.subscribe(away, "#", 1);
        learn(&mut net, flooder);
        net.cut(away);
        let (mut success, mut id) = (0_u64, 0);
        for step in 0..60_u32 {
            // The ledger is checked after each step.
            id += 1;
            let payload = "x".repeat((seed.wrapping_mul(7919).wrapping_add(step * 104_729) % 60_000) as usize);
            net.publish(flooder, "t", &payload, (step % 3) as u8, step % 7 == 0, id);
            net.publish(old, "t", &payload, 1, false, id);
            match (step + seed) % 6 {
                0 => net.shards[0].set_level(Level::from_number((step % 5) as u8)),
                1 => net.shards[0].set_settings(Arc::new(Settings::default())),
                2 => net.shards[0].set_memory(((step as usize % 4) + 1) << 19, 0),
                3 => net.live(SECOND),
                _ => {}
            }
            let taken = |got: &&Got| matches!(got, Got::Ack { reason: ReasonCode::Success, .. });
            success += net.receive(flooder).iter().filter(taken).count() as u64;
            success += net.receive(old).iter().filter(taken).count() as u64;
        }
        net.shards[0].handle_shutdown(ReasonCode::ServerShuttingDown, net.now);
        net.live(60 * SECOND);
        let stats = net.stats();
        assert!(success <= stats.publish_passed, "never a success that is none");
        assert_eq!(stats.held_messages + stats.connections, 0);
    }
}

#[test]
fn f145_what_is_held_is_charged_to_the_budget() {
    let mut net = strict();
    let flooder = net.v5("flooder");
    learn(&mut net, flooder);
    let before = net.shards[0].memory_used();
    (0..20).for_each(|_| net.publish(flooder, "t", &"x".repeat(5000), 0, false, 0));
    let (stats, used) = (net.stats(), net.shards[0].memory_used());
    assert!(stats.held_messages > 3 && used - before >= stats.held_bytes as usize, "{used} {before}");
    net.live(60 * SECOND);
    assert_eq!(net.shards[0].memory_used(), before);
}
