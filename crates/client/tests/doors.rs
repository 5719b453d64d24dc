//! The client against the doors of the broker's space, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::time::Duration;

use common::{Broker, Line, pattern, soon, triple};
use tidegate_client::{ChangeSource, Error, EventKind, Level, PersistentQuery, Row, Space, SpaceConfig};

const LAMP: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

fn texts<'r>(rows: impl IntoIterator<Item = &'r Row>, name: &str) -> Vec<String> {
    rows.into_iter().filter_map(|row| row.text(name).map(str::to_owned)).collect()
}

/// Takes changes until the view is this.
async fn until(query: &mut PersistentQuery, expected: &[&str]) {
    while texts(&query.view().await.unwrap(), "o") != expected {
        query.next().await.expect("the space is open");
    }
}

#[tokio::test]
async fn both_doors_do_the_same() {
    let broker = Broker::start();
    for url in broker.urls() {
        let space = soon(Space::connect(&url)).await.unwrap();
        space.insert(&[triple("urn:lamp", "o\"n"), triple("urn:door", "shut")]).await.unwrap();
        assert_eq!(texts(&space.query(LAMP).await.unwrap(), "o"), ["o\"n"], "{url}");
        space.edit(&[triple("urn:lamp", "off")], &[pattern("urn:lamp")]).await.unwrap();
        let found = space.matching(&[pattern("urn:lamp"), pattern("urn:door")]).await.unwrap();
        let mut found = texts(&found, "object");
        found.sort();
        assert_eq!(found, ["off", "shut"], "{url}");
        space.update("INSERT DATA { <urn:lamp> <urn:state> 'dim' }").await.unwrap();
        let ask = space.query("ASK { <urn:lamp> <urn:state> 'dim' }").await.unwrap();
        assert_eq!(ask[0].text("boolean"), Some("true"), "{url}");
        space.remove(&[pattern("urn:lamp"), pattern("urn:door")]).await.unwrap();
        assert!(space.query("SELECT * { ?s ?p ?o }").await.unwrap().is_empty(), "{url}");
        assert!(matches!(space.query("SELEC").await, Err(Error::Rejected(_))), "{url}");
        assert!(matches!(space.persistent_query("SELEC").open().await, Err(Error::Rejected(_))), "{url}");
        space.leave().await.unwrap();
    }
}

#[tokio::test]
async fn changes_come_in_order_and_add_up() {
    let broker = Broker::start();
    for url in broker.urls() {
        let space = soon(Space::connect(&url)).await.unwrap();
        space.insert(&[triple("urn:lamp", "0")]).await.unwrap();
        let mut query = soon(space.persistent_query(LAMP).control(Level::Active).open()).await.unwrap();
        let first = soon(query.next()).await.unwrap();
        assert_eq!((first.source, texts(&first.added, "o")), (ChangeSource::Baseline, vec!["0".to_owned()]), "{url}");
        for round in 1..=20 {
            let next = round.to_string();
            space.edit(&[triple("urn:lamp", &next)], &[pattern("urn:lamp")]).await.unwrap();
        }
        soon(until(&mut query, &["20"])).await;
        let stats = query.stats().await.unwrap();
        assert!(stats.is_live && stats.counts.notifications > 0 && stats.counts.gaps == 0, "{url}: {stats:?}");
        // A check that finds nothing is not a loss.
        query.check().await.unwrap();
        soon(async {
            while query.stats().await.unwrap().counts.answered == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(query.stats().await.unwrap().counts.losses, 0, "{url}");
        space.remove(&[pattern("urn:lamp")]).await.unwrap();
        soon(until(&mut query, &[])).await;
    }
}

#[tokio::test]
async fn patterns_are_followed_and_polling_works_without_notifications() {
    let broker = Broker::start();
    for url in broker.urls() {
        let space = soon(Space::connect(&url)).await.unwrap();
        let mut pushed = soon(space.persistent_match(&[pattern("urn:lamp")]).open()).await.unwrap();
        let polled = space.persistent_query(LAMP).poll().control(Level::Fixed).interval(Duration::from_millis(20));
        let mut polled = soon(polled.open()).await.unwrap();
        assert!(soon(pushed.next()).await.unwrap().added.is_empty(), "{url}");
        space.insert(&[triple("urn:lamp", "on")]).await.unwrap();
        assert_eq!(texts(&soon(pushed.next()).await.unwrap().added, "object"), ["on"], "{url}");
        soon(until(&mut polled, &["on"])).await;
        assert!(!polled.stats().await.unwrap().is_live);
        space.remove(&[pattern("urn:lamp")]).await.unwrap();
        soon(until(&mut polled, &[])).await;
    }
}

#[tokio::test]
async fn a_restart_of_the_broker_is_survived_and_its_changes_are_told() {
    for door in 0..2 {
        let mut broker = Broker::start();
        let url = broker.urls()[door].clone();
        let space = soon(Space::connect(&url)).await.unwrap();
        let mut query = soon(space.persistent_query(LAMP).open()).await.unwrap();
        space.insert(&[triple("urn:lamp", "before")]).await.unwrap();
        soon(until(&mut query, &["before"])).await;
        for round in 0..2 {
            broker.stop();
            assert!(space.insert(&[triple("urn:lamp", "never")]).await.unwrap_err().is_passing(), "{url}");
            broker.go_on();
            let text = format!("after {round}");
            soon(async { while space.insert(&[triple("urn:lamp", &text)]).await.is_err() {} }).await;
            // What was in memory is gone, and said to be.
            soon(until(&mut query, &[&text])).await;
            // A check may have been faster than the subscription; that comes back, too, before the next restart.
            let is_back = async {
                loop {
                    let stats = query.stats().await.unwrap();
                    if stats.is_live && stats.counts.subscribed >= round + 2 {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            soon(is_back).await;
        }
    }
}

#[tokio::test]
async fn a_cut_is_bridged_and_only_what_was_missed_is_told() {
    let broker = Broker::start();
    for url in broker.urls() {
        let (scheme, door) = url.split_once("://").unwrap();
        let line = Line::to(door).await;
        let direct = soon(Space::connect(&url)).await.unwrap();
        let space = soon(Space::connect(&format!("{scheme}://{}", line.address))).await.unwrap();
        direct.insert(&[triple("urn:lamp", "stays"), triple("urn:lamp", "goes")]).await.unwrap();
        // Without checks: whatever is learnt is learnt by the subscription.
        let mut query = soon(space.persistent_query(LAMP).control(Level::None).open()).await.unwrap();
        soon(until(&mut query, &["goes", "stays"])).await;
        while query.try_next().is_some() {}
        for round in 1..=2_u64 {
            line.is_open.send_replace(false);
            soon(async {
                while query.stats().await.unwrap().is_live {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let (gone, come) = if round == 1 { ("goes", "comes") } else { ("comes", "goes") };
            direct.edit(&[triple("urn:lamp", come)], &[triple("urn:lamp", gone)]).await.unwrap();
            line.is_open.send_replace(true);
            let change = soon(query.next()).await.unwrap();
            let told = (texts(&change.added, "o"), texts(&change.removed, "o"));
            assert_eq!(told, (vec![come.to_owned()], vec![gone.to_owned()]), "{url}");
            let counts = query.stats().await.unwrap().counts;
            assert_eq!((counts.subscribed, counts.resumed, counts.gaps), (round + 1, round, 0), "{url}: {counts:?}");
        }
        // And it goes on.
        direct.remove(&[pattern("urn:lamp")]).await.unwrap();
        soon(until(&mut query, &[])).await;
    }
}

#[tokio::test]
async fn many_queries_share_their_sockets() {
    let broker = Broker::start();
    let space = soon(Space::connect(&broker.urls()[1])).await.unwrap();
    let mut queries = Vec::new();
    for number in 0..600 {
        let text = format!("SELECT ?o {{ <urn:lamp{number}> <urn:state> ?o }}");
        queries.push(soon(space.persistent_query(&text).open()).await.unwrap());
    }
    let lit: Vec<_> = (0..600).map(|number| triple(&format!("urn:lamp{number}"), "on")).collect();
    space.insert(&lit).await.unwrap();
    for query in &mut queries {
        soon(until(query, &["on"])).await;
    }
}

#[tokio::test]
async fn nobody_there_is_an_error_at_once() {
    for url in ["ssap://127.0.0.1:1", "http://127.0.0.1:1"] {
        assert!(matches!(soon(Space::connect(url)).await, Err(Error::Unreachable { .. })), "{url}");
    }
}

#[tokio::test]
async fn tidegate_is_recognised_over_ssap_and_then_asked_only_what_was_missed() {
    let broker = Broker::start();
    let space = soon(Space::connect(&broker.urls()[0])).await.unwrap();
    let many: Vec<_> = (0..50).map(|number| triple("urn:lamp", &format!("{number:02}"))).collect();
    space.insert(&many).await.unwrap();
    let mut events = space.events();
    let mut query = soon(space.persistent_query(LAMP).control(Level::Active).open()).await.unwrap();
    let mut answers = Vec::new();
    for round in 0..5 {
        space.insert(&[triple("urn:lamp", &format!("x{round}"))]).await.unwrap();
        query.check().await.unwrap();
        answers.push(loop {
            if let EventKind::CheckAnswered { is_short } = soon(events.next()).await.unwrap().kind {
                break is_short;
            }
        });
    }
    assert_eq!(answers, [false, true, true, true, true], "by the first answer it is known who is there");
    space.remove(&[pattern("urn:lamp")]).await.unwrap();
    soon(until(&mut query, &[])).await;
    let stats = query.stats().await.unwrap();
    let counts = stats.counts;
    assert_eq!((counts.subscribed, counts.gaps, counts.losses), (1, 0, 0), "what is on its way is not lost: {stats:?}");
}

#[tokio::test]
async fn what_happens_is_told_to_whoever_asks() {
    let mut broker = Broker::start();
    for door in 0..2 {
        let space = soon(Space::connect(&broker.urls()[door])).await.unwrap();
        let mut events = space.events();
        let query = soon(space.persistent_query(LAMP).control(Level::Active).open()).await.unwrap();
        query.check().await.unwrap();
        let mut seen = Vec::new();
        let mut wait_for = async |wanted: fn(&EventKind) -> bool| {
            soon(async {
                loop {
                    let event = events.next().await.unwrap();
                    assert!(event.query.is_none_or(|id| id == query.id()));
                    seen.push(event.kind);
                    if seen.last().is_some_and(wanted) {
                        return;
                    }
                }
            })
            .await;
        };
        wait_for(|kind| *kind == EventKind::BaselineRenewed { rows: 0 }).await;
        wait_for(|kind| *kind == EventKind::CheckSent).await;
        wait_for(|kind| matches!(kind, EventKind::CheckAnswered { .. })).await;
        wait_for(|kind| matches!(kind, EventKind::AdviceTaken { stretch: Some(_), .. })).await;
        broker.stop();
        wait_for(|kind| *kind == EventKind::Cut).await;
        wait_for(|kind| matches!(kind, EventKind::Returning { .. })).await;
        broker.go_on();
        wait_for(|kind| matches!(kind, EventKind::BaselineRenewed { .. })).await;
    }
}

#[tokio::test]
async fn a_class_is_asked_for_at_each_door() {
    let broker = Broker::start();
    for url in broker.urls() {
        let before = broker.handle().class_claims_ignored();
        let config = SpaceConfig { class: Some("agents".to_owned()), ..SpaceConfig::default() };
        let space = Space::connect_with(&url, config).await.unwrap();
        space.edit(&[triple("urn:lamp", "on")], &[]).await.unwrap();
        let mut lamp = soon(space.persistent_query(LAMP).open()).await.unwrap();
        soon(lamp.next()).await.unwrap();
        // There are no classes here: each claim is counted, and nothing else comes of it.
        let claims = broker.handle().class_claims_ignored() - before;
        assert!(claims > 0, "{url}");
    }
}
