//! From reports of clients to the sentence: whoever floods or loses is in it, and it never says that nobody does.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_core::PublisherReport;
use tidegate_core::access::Identity;
use tidegate_core::ledger::Ledger;
use tidegate_core::report::{LinkReport, ReceiverReport};

use super::*;

/// Somebody who is connected and sends at this rate; `usual` is what it is used to.
fn client(number: u64, state: ClientState, rate: f64, usual: Option<f64>) -> ClientReport {
    let at = Timestamp::from_secs_f64(100.0);
    let publisher = PublisherReport {
        learned_interval: usual.map(|usual| Duration::from_secs_f64(1.0 / usual)),
        batch: 1,
        rate,
        current_rate: rate,
        asked: 0.0,
        served: rate,
        usual,
        unread_since: None,
        is_entitled: true,
        granted: None,
        parent: 7,
        held: 0,
        refused: 0,
        dropped: 0,
        slowed_until: None,
        slowed_since: None,
        refused_at: None,
        are_receivers_full: false,
    };
    ClientReport {
        client_id: format!("client-{number}").into(),
        origin: number,
        identity: Identity { user: None, peer: "10.0.0.1:5".into(), listener: "mqtt", roles: None, claims: None },
        link: Some(LinkReport { protocol: "5", since: at, seen_at: at, outbox_bytes: 0, stalled_since: None }),
        state,
        rate: Some(rate),
        delay: Duration::ZERO,
        publisher: Some(publisher),
        receiver: ReceiverReport::default(),
        takeovers: 0,
        class: None,
        queued: (0, 0),
        inflight: 0,
        subscriptions: 0,
        ledger: Ledger::default(),
    }
}

/// One that loses; away if it has no connection.
fn loser(number: u64, lost: u64, is_away: bool) -> ClientReport {
    let state = if is_away { ClientState::AwayLosing } else { ClientState::Losing };
    let mut loser = client(number, state, 0.0, None);
    let (lost_of_late, loss_rate) = (lost, lost as f64 / 10.0);
    loser.receiver =
        ReceiverReport { lost_of_late, loss_rate, fill: 1.0, is_losing: true, ..ReceiverReport::default() };
    (loser.queued, loser.publisher, loser.rate) = ((10_000, 100_000), None, None);
    if is_away {
        loser.link = None;
    }
    loser
}

/// What one look finds, as `watch` asks for it.
fn look(clients: &[ClientReport], limit_of: impl Fn(&ClientReport) -> Option<f64>) -> TroubleReport {
    let mut situation = TroubleReport::default();
    for client in clients {
        situation.note(client, &limit_of);
    }
    for receiver in situation.to_look_into() {
        clients.iter().filter(|it| it.client_id == receiver).for_each(|client| situation.note_waiting(client));
    }
    let blamed = situation.blamed();
    for client in clients {
        if let Some(blame) = blamed.get(&client.origin) {
            situation.note_blamed(client, limit_of(client), blame);
        }
    }
    situation.note_newcomer();
    situation
}

#[test]
fn who_sends_far_more_than_usual_is_named_though_nobody_suffers_and_that_is_no_alarm() {
    let pump = client(1, ClientState::Ok, 300.0, Some(4.0));
    let situation = look(&[pump.clone(), client(2, ClientState::Ok, 5.0, Some(5.0))], |_| None);
    let sentence = situation.sentence();
    assert_eq!(sentence.text, "\"client-1\" sends 300/s, 75.0 × its usual 4.00/s, and nobody suffers by it");
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Notice, "tidegate why client-1"));
    assert_eq!((situation.conditions(), situation.troubled()), (Vec::new(), 1));
    let card = &situation.cards()[0];
    assert_eq!((card.kind, card.text.as_str()), ("unusual", sentence.text.as_str()));

    let beside = look(&[pump.clone(), loser(3, 400, false)], |_| None).sentence();
    assert!(beside.text.contains("client-3") && beside.text.contains("client-1"), "{}", beside.text);
    assert!(!beside.text.contains("nobody suffers"), "somebody does: {}", beside.text);
    let allowed = look(&[pump], |_| Some(500.0)).sentence();
    assert_eq!(allowed.mood, Mood::Calm, "an operator allows it: {}", allowed.text);
}

#[test]
fn a_newcomer_that_is_nearly_all_that_is_sent_is_named_though_nobody_suffers_and_that_is_no_alarm() {
    let mut clients: Vec<ClientReport> =
        (1..=5).map(|number| client(number, ClientState::Ok, 2.0, Some(2.0))).collect();
    clients.push(client(9, ClientState::Ok, 4800.0, None));
    let situation = look(&clients, |_| None);
    let sentence = situation.sentence();
    assert_eq!(sentence.text, "\"client-9\" sends 4800/s (new, 99 % of all messages), and nobody suffers by it");
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Notice, "tidegate why client-9"));
    assert_eq!((situation.conditions(), situation.troubled()), (Vec::new(), 1));
    assert_eq!(situation.cards()[0].kind, "unusual");

    assert_eq!(look(&clients, |_| Some(9000.0)).sentence().mood, Mood::Calm, "an operator allows it");
    assert_eq!(look(&clients[5..], |_| None).sentence().mood, Mood::Calm, "nobody else sends");
    clients[0].rate = Some(1000.0);
    clients[0].publisher = clients[0].publisher.map(|it| PublisherReport { usual: Some(1000.0), ..it });
    assert_eq!(look(&clients, |_| None).sentence().mood, Mood::Calm, "one of two that send much");
}

#[test]
fn a_few_messages_a_known_batch_a_grant_and_one_that_has_gone_are_not_unusual() {
    let with = |change: fn(&mut ClientReport, &mut PublisherReport)| {
        let mut client = client(1, ClientState::Ok, 300.0, Some(4.0));
        let mut publisher = client.publisher.take().expect("it has one");
        change(&mut client, &mut publisher);
        client.publisher = Some(publisher);
        look(&[client], |_| None).sentence().mood
    };
    assert_eq!(with(|_, _| ()), Mood::Notice);
    assert_eq!(with(|client, _| client.rate = Some(9.0)), Mood::Calm);
    assert_eq!(with(|_, publisher| publisher.batch = 3000), Mood::Calm);
    assert_eq!(with(|_, publisher| publisher.granted = Some(200.0)), Mood::Calm);
    assert_eq!(with(|client, _| client.link = None), Mood::Calm);
}

#[test]
fn a_session_that_is_away_and_loses_is_trouble_and_an_alarm_and_its_publisher_is_found_by_what_waits() {
    let (mut away, pump) = (loser(1, 240, true), client(2, ClientState::Ok, 24.0, Some(20.0)));
    away.receiver.crowding = vec![CrowdingFlow { origin: 2, lost: 0, waiting: 10_000, is_newcomer: false }];
    let situation = look(&[away, pump], |_| None);
    let sentence = situation.sentence();
    assert_eq!(
        sentence.text,
        "\"client-1\" is away and loses 24.0/s: what may be kept for it is full, mostly by \"client-2\", which sends 24.0/s, \
         about as usual"
    );
    assert_eq!((sentence.mood, sentence.next.as_str()), (Mood::Trouble, "tidegate why client-1"));
    let losing = situation.conditions().into_iter().find(|it| it.kind == AlarmKind::Losing).expect("an alarm");
    assert_eq!(losing.text, "\"client-1\" loses 24.0/s of the messages for it, and is away");
}

/// Of a full queue the longest flow pays by its bytes: the flooder of small messages has the places, and loses nothing.
#[test]
fn who_has_all_the_places_of_a_losing_queue_floods_though_it_loses_nothing_itself() {
    let mut slow = loser(1, 1000, false);
    let flow = |origin, lost, waiting| CrowdingFlow { origin, lost, waiting, is_newcomer: false };
    slow.receiver.crowding = vec![flow(2, 990, 400), flow(4, 10, 0), flow(3, 0, 9131)];
    let senders = [(2, 94.0), (3, 94.0), (4, 1.0)];
    let clients: Vec<ClientReport> =
        senders.map(|(number, factor)| client(number, ClientState::Ok, factor * 20.0, Some(20.0))).into();
    let situation = look(&[clients, vec![slow]].concat(), |_| None);
    let flooders: Vec<&str> = situation.flooders().map(|it| &*it.client_id).collect();
    assert_eq!((flooders, situation.flooding), (vec!["client-2", "client-3"], 2));
    assert_eq!((situation.unusual.len(), situation.sending_unusually), (0, 0), "they are more than unusual");
    assert_eq!(situation.receivers[0].source, None, "who sends as usual and has little of it is not named");
}

/// Twenty meters that have just come send little: it is the reader that is slow.
#[test]
fn newcomers_that_send_little_are_not_blamed_for_a_slow_reader() {
    let mut reader = loser(100, 1000, false);
    reader.receiver.takes = 4.0;
    reader.receiver.crowding =
        (1..=5).map(|origin| CrowdingFlow { origin, lost: 200, waiting: 2000, is_newcomer: false }).collect();
    let meter = |number| client(number, ClientState::Ok, 20.0, None);
    let mut clients: Vec<ClientReport> = (1..=20).map(meter).collect();
    clients.push(reader.clone());
    let situation = look(&clients, |_| None);
    let sentence = situation.sentence();
    assert_eq!((situation.flooders().count(), situation.flooding), (0, 0), "{}", sentence.text);
    assert_eq!(
        sentence.text,
        "\"client-100\" loses 100/s: it reads 4.00/s of some 104/s, and its queue is full, mostly by \"client-1\", which sends \
         20.0/s (new, has no usual rate yet)"
    );
    assert_eq!(sentence.next, "tidegate why client-100");
    // One that sends very much is another matter, unless the reader takes nothing from anybody.
    clients[0].rate = Some(2000.0);
    assert_eq!(look(&clients, |_| None).flooding, 1);
    reader.receiver.takes = 0.0;
    *clients.last_mut().expect("the reader") = reader;
    let sentence = look(&clients, |_| None).sentence();
    assert!(sentence.text.starts_with("\"client-100\" loses 100/s: it takes nothing"), "{}", sentence.text);
    assert!(sentence.text.contains("mostly by \"client-1\", which sends 2000/s"), "{}", sentence.text);
}

#[test]
fn with_the_gate_off_the_busiest_is_found_and_small_talk_is_none() {
    let mut situation = TroubleReport { is_gate_off: true, ..TroubleReport::default() };
    for client in [client(1, ClientState::Ok, 2000.0, None), client(2, ClientState::Ok, 5.0, None)] {
        situation.note(&client, |_| None);
    }
    let busiest = situation.busiest.as_ref().map(|it| (&*it.client_id, it.rate));
    assert_eq!(busiest, Some(("client-1", 2000.0)));
    let mut quiet = TroubleReport { is_gate_off: true, ..TroubleReport::default() };
    quiet.note(&client(2, ClientState::Ok, 5.0, None), |_| None);
    assert_eq!((quiet.busiest.is_none(), quiet.sentence().next.as_str()), (true, ""));
}

fn any_client(number: u64) -> impl Strategy<Value = (ClientReport, Option<f64>)> {
    let states = prop::sample::select(vec![
        ClientState::Ok,
        ClientState::Ok,
        ClientState::Ok,
        ClientState::Slowed,
        ClientState::BackedOff,
        ClientState::Paused,
    ]);
    let rates = (0.0..3.0_f64, prop::option::weighted(0.8, 0.01..300.0_f64));
    let receiver = prop::option::weighted(0.2, (1..1000_u64, any::<bool>(), 0..30_u64, 0..1000_u64, 0..10_000_u64));
    let limit = prop::option::weighted(0.1, 1.0..100.0_f64);
    (states, rates, receiver, limit).prop_map(move |(state, (magnitude, usual), receiver, limit)| {
        let mut it = client(number, state, 10_f64.powf(magnitude), usual);
        if let Some((lost, is_away, origin, of_it, waiting)) = receiver {
            let (publisher, rate, link) = (it.publisher, it.rate, it.link);
            it = loser(number, lost, is_away);
            it.receiver.crowding = vec![CrowdingFlow { origin, lost: of_it.min(lost), waiting, is_newcomer: false }];
            if !is_away {
                (it.publisher, it.rate, it.link) = (publisher, rate, link);
            }
        }
        (it, limit)
    })
}

proptest! {
    #[test]
    fn nobody_is_said_to_flood_or_lose_only_if_nobody_does(
        clients in (0..30_u64).prop_flat_map(|count| (0..count).map(any_client).collect::<Vec<_>>()),
    ) {
        let limits: HashMap<Arc<str>, Option<f64>> =
            clients.iter().map(|(client, limit)| (Arc::clone(&client.client_id), *limit)).collect();
        let clients: Vec<ClientReport> = clients.into_iter().map(|(client, _)| client).collect();
        let sentence = look(&clients, |client| limits[&client.client_id]).sentence();
        let text = &sentence.text;
        let is_above = |it: &&ClientReport| {
            let (rate, usual) = (it.rate.unwrap_or(0.0), it.publisher.and_then(|publisher| publisher.usual));
            limits[&it.client_id].is_none() && rate >= 10.0 && usual.is_some_and(|usual| rate > 2.0 * usual)
        };
        let names = |it: &ClientReport| text.contains(&format!("{:?}", it.client_id));
        let mut above = clients.iter().filter(is_above).peekable();
        if above.peek().is_some() {
            prop_assert!(sentence.mood != Mood::Calm && !text.contains("nobody floods"), "{text}");
            prop_assert!(above.any(names) || text.contains("more publishers"), "{text}");
        }
        let mut losing = clients.iter().filter(|client| client.receiver.lost_of_late > 0).peekable();
        if losing.peek().is_some() {
            prop_assert!(sentence.mood == Mood::Trouble && !text.contains("nobody loses"), "{text}");
            prop_assert!(!text.contains("nobody suffers") && losing.any(names), "{text}");
        }
        if sentence.mood == Mood::Calm {
            let is_well = |it: &ClientReport| !it.receiver.is_losing && !it.state.is_held_back();
            prop_assert!(clients.iter().all(is_well), "{text}");
        }
    }
}
