//! What is said of whom, and what is proposed.

use std::time::Duration;

use super::remedy;
use super::*;
use tidegate_control::Timestamp;
use tidegate_core::PublisherReport;
use tidegate_core::report::{CrowdingFlow, LinkReport, ReceiverReport};

/// The words of the proposals.
fn next(client: &ClientReport, is_limited: bool, others: &Neighbours) -> Vec<String> {
    let around = Surroundings { limit: is_limited.then_some(1.0), ..Surroundings::default() };
    remedy::next(client, &around, others).into_iter().map(|proposal| proposal.text).collect()
}

#[test]
fn a_ban_says_how_long_why_and_what_ends_it() {
    let (left, reason) = (Duration::from_secs(90), "flooding".to_owned());
    let ban = |whom| Ban { whom, left, reason: reason.clone(), tries: 0, last_try: None };
    let text = banned(&ban(Banned::Client("a b".to_owned())));
    assert_eq!(text, "is banned for 90 s more (\"flooding\"); to let it in again:  tidegate ban remove 'a b'");
    let text = banned(&ban(Banned::ClientAt("x".to_owned(), [10, 0, 0, 0].into(), 24)));
    let tried = Ban { tries: 17, last_try: Some(Duration::from_secs(3)), ..ban(Banned::Client("pest".to_owned())) };
    assert!(
        banned(&tried)
            .contains("(\"flooding\"), and has tried to come in 17 times since, the last time 3.0 s ago; to let")
    );
    assert!(text.contains(", from 10.0.0.0/24 for") && text.ends_with("remove x --network 10.0.0.0/24"), "{text}");
}

/// Somebody with this rate over ten seconds, in its last messages, usually, and in batches.
fn client(state: ClientState, rate: f64, current_rate: f64, usual: Option<f64>, batch: u32) -> ClientReport {
    let publisher = PublisherReport {
        learned_interval: usual.map(|usual| Duration::from_secs_f64(1.0 / usual)),
        batch,
        rate,
        current_rate,
        asked: 0.0,
        served: 128.0,
        usual,
        unread_since: None,
        is_entitled: true,
        granted: None,
        parent: 7,
        held: 3,
        refused: 0,
        dropped: 0,
        slowed_until: None,
        slowed_since: None,
        refused_at: None,
        are_receivers_full: false,
    };
    ClientReport {
        client_id: "pump".into(),
        origin: 1,
        identity: Identity { user: None, peer: "10.0.0.1:5".into(), listener: "mqtt", roles: None, claims: None },
        link: None,
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

#[test]
fn only_what_is_more_than_usual_is_called_so() {
    let slowed = |rate, latest, usual, batch| cause(&client(ClientState::Slowed, rate, latest, usual, batch), None);
    assert_eq!(slowed(425.0, 900.0, Some(13.3), 1), "it sends 425/s, 32.0 times its usual 13.3/s");
    assert_eq!(
        slowed(40.0, 5000.0, Some(50.0), 12),
        "it sends 40.0/s, not more than its usual 50.0/s, but its latest came at 5000/s (batches of 12 are known)"
    );
    assert_eq!(
        slowed(2.0, 2.0, Some(5.0), 1),
        "it sends 2.00/s now, as usual (5.00/s); what it sent before still waits"
    );
    assert_eq!(slowed(900.0, 900.0, None, 1), "it sends 900/s, and what is usual for it is not known yet");
    let limited = |rate| cause(&client(ClientState::Slowed, rate, rate, Some(1.0), 1), Some(5.0));
    assert_eq!(limited(9.0), "it sends 9.00/s, over the limit of 5/s that an operator has set");
    assert!(limited(4.0).contains("within its limit of 5/s"), "{}", limited(4.0));
}

#[test]
fn the_first_lines_say_who_what_is_usual_and_what_it_does_now() {
    let flooder = client(ClientState::BackedOff, 425.0, 900.0, Some(40.0), 200);
    assert_eq!(
        headline(&flooder, &Surroundings::default()),
        "client \"pump\" (10.0.0.1:5, listener mqtt) is backed off: it sends 425/s, 10.6 times its usual 40.0/s [E0413]"
    );
    assert_eq!(
        rhythm(&flooder).unwrap(),
        "learned: a message every 25 ms, up to 200 at once; rates are those of the last 10 s"
    );
    let good = client(ClientState::Ok, 38.0, 900.0, Some(40.0), 200);
    assert!(
        headline(&good, &Surroundings::default())
            .ends_with("is not slowed: it sends 38.0/s, and 40.0/s is usual for it")
    );
    let left_alone = headline(&client(ClientState::Ok, 800.0, 900.0, Some(40.0), 1), &Surroundings::default());
    assert!(left_alone.contains("40.0/s is usual for it; who sends more comes after"), "{left_alone}");
}

#[test]
fn what_to_do_is_a_command_or_a_setting() {
    let slowed = |batch| client(ClientState::Slowed, 41.5, 900.0, Some(4.0), batch);
    let steps = next(&slowed(200), false, &Neighbours::default());
    assert!(steps[0].ends_with("tidegate limits set pump rate=4980/m"), "{steps:?}");
    assert!(steps[1].contains("backoff.burst") && steps[2].contains("tidegate ban add pump"), "{steps:?}");
    let steps = next(&slowed(1), false, &Neighbours::default());
    assert!(steps[0].ends_with("rate=83/s"), "{steps:?}");
    let steps = next(&slowed(1), true, &Neighbours::default());
    assert!(steps[1].ends_with("tidegate limits unset pump"), "{steps:?}");
    assert_eq!(next(&client(ClientState::Ok, 1.0, 1.0, None, 1), false, &Neighbours::default()), Vec::<String>::new());
    let steps = next(&client(ClientState::Ok, 800.0, 900.0, Some(40.0), 1), false, &Neighbours::default());
    assert!(steps[0].contains("tidegate limits set pump rate=40/s"), "{steps:?}");
}

#[test]
fn who_waits_behind_others_is_told_so_and_can_be_entitled() {
    let mut waiting = client(ClientState::Slowed, 120.0, 120.0, Some(5.0), 1);
    if let Some(publisher) = &mut waiting.publisher {
        publisher.unread_since = Some(tidegate_control::Timestamp::ZERO);
    }
    assert_eq!(
        cause(&waiting, None),
        "waits behind entitled traffic: it sends more than it is served, 5.00/s usual, served 128/s"
    );
    let steps = next(&waiting, false, &Neighbours::default());
    assert_eq!(steps[0], "if this is right, entitle it:  tidegate limits set pump entitled=256/s");
}

#[test]
fn without_a_gate_it_says_so_and_what_is_sent_all_the_same() {
    let off = Surroundings { gate: GateMode::Off, ..Surroundings::default() };
    let mut quiet = client(ClientState::Ok, 0.0, 0.0, None, 1);
    (quiet.publisher, quiet.rate) = (None, None);
    assert!(headline(&quiet, &Surroundings::default()).ends_with("is not slowed: it has not published"));
    assert!(headline(&quiet, &off).contains("backoff.mode = \"off\""), "{}", headline(&quiet, &off));
    let flooder = client(ClientState::Ok, 2000.0, 2000.0, Some(6.5), 1);
    assert_eq!(
        headline(&flooder, &off),
        "client \"pump\" (10.0.0.1:5, listener mqtt) is not slowed: it sends 2000/s (6.50/s is usual), and the gate is off \
         (backoff.mode = \"off\"): nobody is slowed for what it sends"
    );
    let filling = headline(&flooder, &Surroundings { fills: true, ..off });
    assert!(filling.contains("fill the queue of a receiver") && filling.contains("the gate is off"), "{filling}");
    let steps: Vec<String> =
        remedy::next(&flooder, &off, &Neighbours::default()).into_iter().map(|step| step.text).collect();
    assert!(steps[0].contains("tidegate limits set pump rate=7/s"), "{steps:?}");
    assert!(steps[1].contains("backoff.mode = \"practical\"") && steps[1].ends_with("tidegate reload"), "{steps:?}");
}

/// A flood of hours is usual: whoever asks about it is told what can be done all the same.
#[test]
fn who_sends_most_of_all_can_be_limited_though_that_is_usual_for_it() {
    let flooder = client(ClientState::Ok, 2000.0, 2000.0, Some(2000.0), 1);
    let mut others = Neighbours::of(&flooder);
    others.note(&flooder);
    others.note(&client(ClientState::Ok, 100.0, 100.0, Some(100.0), 1));
    let steps = next(&flooder, false, &others);
    assert!(steps[0].starts_with("95 % of all messages are its own; if that is too much"), "{steps:?}");
    assert!(steps[0].contains("tidegate limits set pump rate=N/s"), "{steps:?}");
    for _ in 0..30 {
        others.note(&client(ClientState::Ok, 100.0, 100.0, Some(100.0), 1));
    }
    assert_eq!(next(&flooder, false, &others), [""; 0], "one of many");
}

/// 370 a second are not nothing.
#[test]
fn who_reads_too_little_is_said_to_read_that() {
    let words = |takes, loss_rate| {
        let mut tablet = client(ClientState::Slow, 0.0, 0.0, None, 1);
        (tablet.link, tablet.queued, tablet.inflight) = (Some(link()), (60, 6000), 3);
        let is_losing = loss_rate > 0.0;
        tablet.receiver = ReceiverReport { takes, loss_rate, is_losing, is_slow: true, ..ReceiverReport::default() };
        let (filters, session_expiry, expires_at) = (Vec::new(), Duration::ZERO, None);
        receiver(&ClientDetail { client: tablet, filters, session_expiry, expires_at }).unwrap_or_default()
    };
    assert_eq!(words(370.0, 0.0), "it reads 370/s: 60 messages (6000 bytes) wait for it, 3 under way");
    assert_eq!(
        words(370.0, 1630.0),
        "it reads 370/s of some 2000/s: 60 messages (6000 bytes) wait for it, 3 under way"
    );
    assert_eq!(words(0.2, 10.0), "it takes nothing: 60 messages (6000 bytes) wait for it, 3 under way");
}

/// What is taken of somebody who is slowed falls; what it asked for does not.
#[test]
fn a_proposal_is_the_same_however_long_one_waits() {
    let slowed = |rate| {
        let mut client = client(ClientState::BackedOff, rate, rate, Some(4.0), 1);
        client.publisher = client.publisher.map(|publisher| PublisherReport { asked: 41.5, ..publisher });
        next(&client, false, &Neighbours::default()).swap_remove(0)
    };
    assert_eq!(slowed(41.5), slowed(3.0));
    assert!(slowed(3.0).ends_with("rate=83/s"), "{}", slowed(3.0));
}

/// Nobody reads for it: to read faster is no advice, and with nobody to name there is no "if not".
#[test]
fn a_session_that_is_away_and_loses_is_told_as_that_and_can_be_ended() {
    let mut bridge = client(ClientState::AwayLosing, 0.0, 0.0, None, 1);
    (bridge.client_id, bridge.publisher, bridge.rate, bridge.origin) = ("site bridge".into(), None, None, 2);
    let (is_losing, lost_of_late, loss_rate) = (true, 240, 24.0);
    bridge.receiver = ReceiverReport { lost_of_late, loss_rate, fill: 1.0, is_losing, ..ReceiverReport::default() };
    let words = headline(&bridge, &Surroundings::default());
    assert!(
        words
            .ends_with("is not connected and loses messages: its session is kept, 24.0/s of those for it find no room")
    );
    let end = "nobody reads for it: start it again, or end the session if it is not coming back, with what waits for it:  \
               tidegate kick --session 'site bridge'";
    assert_eq!(next(&bridge, false, &Neighbours::of(&bridge)), [end]);
    bridge.receiver.crowding = vec![CrowdingFlow { origin: 1, lost: 0, waiting: 10_000, is_newcomer: false }];
    let mut others = Neighbours::of(&bridge);
    others.note(&client(ClientState::Ok, 24.0, 24.0, Some(20.0), 1));
    assert_eq!(
        next(&bridge, false, &others),
        ["if that publisher sends too much:  tidegate why pump".to_owned(), format!("if not, {end}")]
    );
    bridge.receiver = ReceiverReport::default();
    assert_eq!(next(&bridge, false, &Neighbours::of(&bridge)), [""; 0], "nothing was lost");
    let mut reader = client(ClientState::Losing, 0.0, 0.0, Some(1.0), 1);
    (reader.receiver.is_losing, reader.link) = (true, Some(link()));
    let steps = next(&reader, false, &Neighbours::of(&reader));
    assert!(steps.iter().any(|step| step.starts_with("it reads more slowly")), "{steps:?}");
}

fn link() -> LinkReport {
    let at = Timestamp::from_secs_f64(1.0);
    LinkReport { protocol: "5", since: at, seen_at: at, outbox_bytes: 0, stalled_since: None }
}

/// A newcomer floods a receiver: both hear of each other.
#[test]
fn a_receiver_that_loses_names_who_fills_its_queue_and_who_does_is_told_so() {
    let mut historian = client(ClientState::Losing, 0.0, 0.0, None, 1);
    (historian.client_id, historian.publisher, historian.rate, historian.origin) = ("historian".into(), None, None, 2);
    let crowding = vec![CrowdingFlow { origin: 1, lost: 4800, waiting: 900, is_newcomer: false }];
    let (is_losing, lost_of_late, loss_rate) = (true, 5000, 480.0);
    let takes = 1600.0;
    historian.receiver =
        ReceiverReport { lost_of_late, loss_rate, takes, fill: 1.0, is_losing, is_slow: true, crowding };
    let flooder = client(ClientState::Ok, 2000.0, 2000.0, None, 1);
    let look = |at: &ClientReport| {
        let mut others = Neighbours::of(at);
        for other in [&historian, &flooder] {
            others.note(other);
        }
        others
    };
    let others = look(&historian);
    assert!(
        headline(&historian, &Surroundings::default()).contains("loses messages: 480/s of those for it find no room")
    );
    assert_eq!(
        others.crowding(&historian.receiver),
        [
            "of \"pump\", which sends 2000/s (new, has no usual rate yet): 4800 of 5000 lost of late, 900 messages waiting"
        ]
    );
    assert!(next(&historian, false, &others)[0].ends_with("tidegate why pump"));
    let others = look(&flooder);
    let words = headline(&flooder, &Surroundings { fills: !others.fills.is_empty(), ..Surroundings::default() });
    assert!(words.ends_with("fill the queue of a receiver: it sends 2000/s, new, has no usual rate yet"), "{words}");
    assert_eq!(
        others.filled(),
        ["its messages fill the queue of \"historian\": 4800 of 5000 lost there of late were its own"]
    );
    let steps = next(&flooder, false, &others);
    assert!(steps[0].contains("what \"historian\" can take:  tidegate limits set pump rate=1231/s"), "{steps:?}");
    // It leaves, and is no dead end: the receiver names it, and something can be done before it comes back.
    let mut others = Neighbours::of(&historian);
    others.note(&historian);
    assert!(others.misses_names());
    let pump: Arc<str> = "pump".into();
    assert!(!others.is_missed(&pump), "another of that number");
    let origin = tidegate_core::origin_of(&pump);
    historian.receiver.crowding[0].origin = origin;
    let mut others = Neighbours::of(&historian);
    assert!(others.is_missed(&pump));
    others.note_gone(&pump);
    assert!(others.crowding(&historian.receiver)[0].starts_with("of \"pump\", which has gone since: 4800 of 5000"));
    assert!(next(&historian, false, &others)[0].ends_with("tidegate why pump"));
    let mut others = Neighbours::of_gone(&pump);
    others.note(&historian);
    let step = remedy::for_stranger(&pump, 2000.0, &others).map(|proposal| proposal.text).unwrap_or_default();
    assert!(step.contains("tidegate limits set pump rate=1231/s"), "{step}");
}

/// What is taken of somebody who is not read is no measure of what it sends.
#[test]
fn a_paused_client_is_given_its_usual_rate_with_room_or_told_that_there_is_none() {
    let steps = next(&client(ClientState::Paused, 0.4, 0.4, Some(6.5), 1), false, &Neighbours::default());
    assert!(steps[0].ends_with("tidegate limits set pump rate=13/s"), "{steps:?}");
    let steps = next(&client(ClientState::Paused, 0.4, 0.4, None, 1), false, &Neighbours::default());
    assert!(steps[0].starts_with("it has no usual rate yet, and 0.40/s is what is taken of it"), "{steps:?}");
}

#[test]
fn a_click_does_what_the_command_says() {
    let slowed = client(ClientState::Slowed, 41.5, 900.0, Some(4.0), 200);
    let limited = Surroundings { limit: Some(1.0), ..Surroundings::default() };
    let proposals: Vec<_> =
        remedy::next(&slowed, &limited, &Neighbours::default()).iter().map(remedy::Proposal::json).collect();
    assert_eq!(proposals[0]["acts"], json!([{ "kind": "limit", "rate": "4980/m" }]));
    assert!(proposals[0]["text"].as_str().unwrap().ends_with("rate=4980/m"));
    assert_eq!(proposals[1]["acts"], json!([{ "kind": "unlimit" }]));
    assert_eq!(proposals[2]["acts"], json!([{ "kind": "ban" }, { "kind": "kick" }]));
}

#[test]
fn who_has_most_of_what_waits_somewhere_is_told_so_though_nothing_is_lost() {
    let pump = client(ClientState::Ok, 1000.0, 1000.0, None, 1);
    let mut others = Neighbours::of(&pump);
    let mut reader = ClientReport { client_id: "subscriber".into(), origin: 2, ..pump.clone() };
    reader.queued = (3726, 0);
    others.note(&reader);
    assert_eq!(others.longest_queue().map(|id| &**id), Some("subscriber"));
    let with = |waiting| {
        let crowding = vec![CrowdingFlow { origin: 1, lost: 0, waiting, is_newcomer: false }];
        ClientReport { receiver: ReceiverReport { crowding, ..ReceiverReport::default() }, ..reader.clone() }
    };
    let told = others.waiting(&with(3700));
    let expected = "its messages fill the queue of \"subscriber\": 3700 of the 3726 that wait there are its own";
    assert_eq!(told.as_deref(), Some(expected));
    assert_eq!(others.waiting(&with(200)), None, "little of it");
}
