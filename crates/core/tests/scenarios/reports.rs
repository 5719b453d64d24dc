//! What an operator is told about clients: the numbers are the client's own, and add up.

use std::num::NonZeroU16;
use std::time::Duration;

use tidegate_core::Shard;
use tidegate_core::access::Open;
use tidegate_core::event::{Event, LedgerSide};
use tidegate_core::ledger::Loss;
use tidegate_core::report::{ClientReport, ClientState};
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{AckKind, Property, ReasonCode};

use crate::backoff::{SECOND, flood, learn, strict, v311};
use crate::net::{Got, Net, Options, lasting};

fn client(net: &Net, client_id: &str) -> ClientReport {
    net.shards[0].client(client_id, net.now).unwrap().client
}

fn all(shard: &Shard, net: &Net) -> Vec<ClientReport> {
    let (mut from, mut seen) = (Some(0), Vec::new());
    while let Some(place) = from {
        let (page, next) = shard.clients(place, net.now);
        seen.extend(page);
        from = next;
    }
    seen
}

#[test]
fn a_flooder_is_told_from_the_others_with_what_it_lost() {
    let mut net = strict();
    let (flooder, reader) = (net.v5("flooder"), net.v5("reader"));
    net.subscribe(reader, "t", 0);
    learn(&mut net, flooder);
    assert_eq!(client(&net, "flooder").state, ClientState::Ok);
    flood(&mut net, flooder, 30, 0);
    let report = client(&net, "flooder");
    assert_eq!(report.state, ClientState::Slowed);
    // Thirty messages at once are three a second in ten seconds.
    assert!(report.delay > Duration::ZERO && report.rate.unwrap() > 3.0, "{report:?}");
    assert!(report.publisher.unwrap().current_rate > 10.0, "{report:?}");
    flood(&mut net, flooder, 100, 0);
    assert_eq!(client(&net, "flooder").state, ClientState::Paused, "what has no room is left on the wire");
    net.live(Duration::from_secs(30));
    let report = client(&net, "flooder");
    assert_eq!(report.state, ClientState::BackedOff);
    let lost = report.ledger.lost(Loss::HeldFull) + report.ledger.lost(Loss::Rhythm);
    let publisher = report.publisher.unwrap();
    assert_eq!(lost, publisher.dropped);
    assert_eq!(report.ledger.received, 170);
    assert_eq!(report.ledger.received, report.ledger.passed + publisher.held as u64 + lost);
    let reader = client(&net, "reader");
    assert_eq!((reader.state, reader.subscriptions), (ClientState::Ok, 1));
    assert_eq!(reader.ledger.delivered, report.ledger.passed);
    net.live(Duration::from_secs(120));
    let calm = client(&net, "flooder");
    assert_eq!((calm.state, calm.delay), (ClientState::Ok, Duration::ZERO), "silence ends it");
    assert!(calm.rate.unwrap() < 0.01, "{calm:?}");
}

#[test]
fn a_publisher_without_words_is_paused() {
    let mut net = strict();
    let old = net.connect("old", &v311());
    learn(&mut net, old);
    flood(&mut net, old, 100, 1);
    assert_eq!(client(&net, "old").state, ClientState::Paused);
}

#[test]
fn a_client_that_is_away_keeps_its_ledger_and_its_queue_shows() {
    let mut net = Net::new(1);
    let (reader, writer) = (net.connect("reader", &lasting()), net.v5("writer"));
    net.subscribe(reader, "t", 1);
    net.publish(writer, "t", "one", 0, false, 0);
    net.cut(reader);
    net.publish(writer, "t", "two", 0, false, 0);
    net.publish(writer, "t", "three", 1, false, 7);
    let away = client(&net, "reader");
    assert_eq!((away.state, away.link), (ClientState::Away, None));
    assert_eq!((away.ledger.deliveries, away.ledger.delivered, away.queued.0), (3, 1, 1));
    assert_eq!((away.ledger.lost(Loss::Away), away.ledger.lost_on(LedgerSide::Out)), (1, 1));
    let parting = net.events.iter().find_map(|event| match event {
        Event::Disconnected { parting, .. } => Some(parting.clone()),
        _ => None,
    });
    assert_eq!(parting.unwrap().ledger.delivered, 1, "as it was when the connection ended");
}

/// Nobody reads for it, and what comes for it is lost: it is not just away.
#[test]
fn a_session_that_is_away_and_full_is_called_losing_until_it_is_back_or_nothing_is_lost() {
    let mut net = Net::with(1, Settings { queue_messages_max: 10, ..Settings::default() }, Open);
    let (reader, writer) = (net.connect("reader", &lasting()), net.v5("writer"));
    net.subscribe(reader, "t", 1);
    net.cut(reader);
    let publish = |net: &mut Net, count: u16| {
        for n in 0..count {
            net.publish(writer, "t", "x", 1, false, n + 1);
            net.receive(writer);
        }
    };
    publish(&mut net, 10);
    assert_eq!(client(&net, "reader").state, ClientState::Away, "all of them wait");
    publish(&mut net, 25);
    let away = client(&net, "reader");
    assert_eq!((away.state, away.receiver.is_losing, away.receiver.is_slow), (ClientState::AwayLosing, true, false));
    assert_eq!((away.receiver.lost_of_late, away.receiver.fill), (25, 1.0));
    assert_eq!(away.ledger.lost_on(LedgerSide::Out), 25);
    let waiting = away.receiver.crowding.iter().map(|flow| (flow.origin, flow.lost, flow.waiting));
    assert_eq!(waiting.collect::<Vec<_>>(), [(client(&net, "writer").origin, 0, 10)], "whose they are, by what waits");
    net.live(Duration::from_secs(11));
    assert_eq!(client(&net, "reader").state, ClientState::Away, "nothing is lost any more");
    publish(&mut net, 1);
    assert_eq!(client(&net, "reader").state, ClientState::AwayLosing);
    net.dial("reader", &lasting());
    assert_eq!(client(&net, "reader").state, ClientState::Ok, "it takes what comes");
}

#[test]
fn what_is_lost_because_all_who_are_away_have_too_much_is_a_loss_of_its_session() {
    let mut net = Net::new(1);
    let (reader, writer) = (net.connect("reader", &lasting()), net.v5("writer"));
    net.shards[0].set_memory(1 << 20, 0);
    net.subscribe(reader, "t", 1);
    net.cut(reader);
    for n in 0..500 {
        net.publish(writer, "t", &"x".repeat(4000), 1, false, n + 1);
        net.receive(writer);
    }
    let away = client(&net, "reader");
    assert!(away.ledger.lost(Loss::AbsentBudget) > 0 && away.receiver.lost_of_late > 0, "{away:?}");
    assert_eq!(away.state, ClientState::AwayLosing);
}

#[test]
fn an_operator_ends_a_session_that_is_away_and_one_that_is_connected() {
    let mut net = Net::new(1);
    let (away, here, writer) = (net.connect("away", &lasting()), net.connect("here", &lasting()), net.v5("writer"));
    for reader in [away, here] {
        net.subscribe(reader, "t", 1);
    }
    net.cut(away);
    net.publish(writer, "t", "x", 1, false, 1);
    for name in ["away", "here", "nobody"] {
        net.shards[0].handle_session_end(name, ReasonCode::AdministrativeAction, net.now);
        assert!(net.shards[0].client(name, net.now).is_none(), "{name}");
    }
    net.live(SECOND);
    net.publish(writer, "t", "y", 1, false, 2);
    assert_eq!((net.stats().sessions, net.stats().dropped_session_ended), (1, 2), "what waited for them is lost");
}

#[test]
fn what_a_session_loses_as_it_ends_is_in_its_last_account() {
    let mut net = strict();
    let flooder = net.v5("flooder");
    learn(&mut net, flooder);
    flood(&mut net, flooder, 20, 1);
    net.cut(flooder);
    let ended = net.stats().dropped_held_ended;
    let ledger = net.events.iter().find_map(|event| match event {
        Event::Disconnected { parting, .. } => Some(parting.ledger.clone()),
        _ => None,
    });
    let ledger = ledger.unwrap();
    assert!(ended > 0, "some had to wait");
    assert_eq!(ledger.lost(Loss::HeldEnded), ended);
    assert_eq!(ledger.received, ledger.passed + ledger.lost_on(LedgerSide::In), "nothing is left to wait");
    let told = |event: &&Event| matches!(event, Event::Disconnected { .. } | Event::SessionEnded { .. });
    let last = net.events.iter().rfind(told);
    assert!(matches!(last, Some(Event::SessionEnded { .. })), "in the order of what happened: {last:?}");
}

#[test]
fn pages_lead_through_all_clients_and_a_kick_ends_one() {
    let mut net = Net::new(1);
    for n in 0..1300 {
        net.v5(&format!("c{n}"));
    }
    let seen = all(&net.shards[0], &net);
    assert_eq!(seen.len(), 1300);
    let now = net.now;
    net.shards[0].handle_kick("c7", ReasonCode::AdministrativeAction, now);
    net.live(SECOND);
    assert!(net.shards[0].client("c7", net.now).is_none());
    assert_eq!(all(&net.shards[0], &net).len(), 1299);
}

#[test]
fn a_receiver_that_acknowledges_nothing_while_messages_wait_is_slow() {
    let mut net = Net::new(1);
    let few = vec![Property::ReceiveMaximum(NonZeroU16::new(2).unwrap())];
    let (sender, reader) =
        (net.v5("sender"), net.connect("reader", &Options { properties: few, ..Options::default() }));
    net.subscribe(reader, "t", 1);
    for n in 1..=5 {
        net.publish(sender, "t", "x", 1, false, n);
    }
    assert_eq!(client(&net, "reader").state, ClientState::Ok);
    net.pass(6 * SECOND);
    assert_eq!(client(&net, "reader").state, ClientState::Slow);
    for got in net.receive(reader) {
        if let Got::Message { id: Some(id), .. } = got {
            net.ack(reader, AckKind::PubAck, id);
        }
    }
    assert_eq!(client(&net, "reader").state, ClientState::Ok);
}
