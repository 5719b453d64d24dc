//! A broker that has too much to do hands subscriptions over to their clients and takes them back, over real sockets and at
//! both doors: a reader notices nothing but delay, and who does not speak of delegation is notified all the time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{pattern, soon, triple};
use tidegate_client::{ChangeSource, EventKind, Events, PersistentQuery, Preset, Space};
use tidegate_space::{
    BoundSockets, DelegationConfig, Everybody, Part, Probe, Service, ServiceOptions, SpaceAddresses, SpaceHandle,
    SpaceListeners,
};

/// Says that everything has to wait, or does not.
#[derive(Debug, Default)]
struct Busy(AtomicBool);

impl Probe for Busy {
    fn at(&self, _: Part) {}

    fn wait(&self) -> Option<Duration> {
        Some(Duration::from_millis(if self.0.load(Ordering::SeqCst) { 90 } else { 0 }))
    }
}

struct LoadedBroker {
    busy: Arc<Busy>,
    handle: SpaceHandle,
    urls: [String; 2],
    _running: (SpaceListeners, Service),
}

fn start(delegation: DelegationConfig) -> LoadedBroker {
    let busy = Arc::new(Busy::default());
    let probe: Arc<dyn Probe> = Arc::<Busy>::clone(&busy);
    let options = ServiceOptions { probe: Some(probe), delegation, ..ServiceOptions::default() };
    let service = Service::start_by(&options).unwrap();
    let free = Some("127.0.0.1:0".parse().unwrap());
    let binds = SpaceAddresses { http: free, ssap: free, ..SpaceAddresses::default() };
    let handle = service.handle();
    let doors = SpaceListeners::start(BoundSockets::open(binds).unwrap(), &handle, Arc::new(Everybody)).unwrap();
    let at = doors.addresses();
    let urls = [format!("ssap://{}", at.ssap.unwrap()), format!("http://{}", at.http.unwrap())];
    LoadedBroker { busy, handle, urls, _running: (doors, service) }
}

/// Changes the lamp for ever, some hundred times a second at most.
async fn flicker(url: String) {
    let space = Space::connect(&url).await.unwrap();
    for round in 0_u64.. {
        space.edit(&[triple("urn:lamp", &round.to_string())], &[pattern("urn:lamp")]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the broker has handed over, or has taken back.
async fn until_delegated(events: &mut Events, is_wanted: bool) -> Option<Duration> {
    loop {
        if let EventKind::Delegated { every } = events.next().await.expect("the space is open").kind
            && every.is_some() == is_wanted
        {
            return every;
        }
    }
}

/// Takes changes until the lamp is this; how the last one came.
async fn until(query: &mut PersistentQuery, expected: &str) -> ChangeSource {
    loop {
        let change = query.next().await.expect("the space is open");
        assert_eq!(change.lost, 0, "nothing is lost by it");
        if change.added.iter().any(|row| row.text("o") == Some(expected)) {
            return change.source;
        }
    }
}

async fn set(url: &str, value: &str) {
    let space = Space::connect(url).await.unwrap();
    space.edit(&[triple("urn:lamp", value)], &[pattern("urn:lamp")]).await.unwrap();
}

const LAMP: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

#[tokio::test]
async fn under_load_subscriptions_are_handed_over_and_taken_back_at_both_doors() {
    // What a machine in a test pushes is never much.
    let broker = start(DelegationConfig { load_min: 0.0, ..DelegationConfig::default() });
    set(&broker.urls[0], "start").await;
    let mut followed = Vec::new();
    for url in &broker.urls {
        let space = soon(Space::connect(url)).await.unwrap();
        let events = space.events();
        let mut query = soon(space.persistent_query(LAMP).open()).await.unwrap();
        // Exactly as a paper has it: it does not say that it could be delegated.
        let old = space.persistent_query(LAMP).preset(Preset::AdaptiveEquation3).open();
        let mut old = soon(old).await.unwrap();
        for query in [&mut query, &mut old] {
            assert_eq!(soon(query.next()).await.unwrap().source, ChangeSource::Baseline);
        }
        followed.push((space, events, query, old));
    }
    let flickering = tokio::spawn(flicker(broker.urls[0].clone()));
    broker.busy.0.store(true, Ordering::SeqCst);
    for (_, events, ..) in &mut followed {
        let every = soon(until_delegated(events, true)).await.unwrap();
        assert!((Duration::from_secs(1)..=Duration::from_secs(60)).contains(&every), "{every:?}");
    }
    assert_eq!(broker.handle.watch().delegated().delegated, 2);
    flickering.abort();
    let _ = flickering.await;
    set(&broker.urls[0], "while delegated").await;
    for (_, _, query, old) in &mut followed {
        assert_eq!(soon(until(query, "while delegated")).await, ChangeSource::Check);
        assert_eq!(soon(until(old, "while delegated")).await, ChangeSource::Notification);
        assert!(query.stats().await.unwrap().delegated.is_some());
    }
    broker.busy.0.store(false, Ordering::SeqCst);
    for (_, events, query, _) in &mut followed {
        soon(until_delegated(events, false)).await;
        while query.stats().await.unwrap().delegated.is_some() {
            tokio::task::yield_now().await;
        }
    }
    set(&broker.urls[1], "afterwards").await;
    for (_, _, query, old) in &mut followed {
        assert_eq!(soon(until(query, "afterwards")).await, ChangeSource::Notification);
        assert_eq!(soon(until(old, "afterwards")).await, ChangeSource::Notification);
        let counts = query.stats().await.unwrap().counts;
        assert_eq!((counts.gaps, counts.losses, counts.subscribed), (0, 0, 1), "{counts:?}");
        assert!(counts.delegations >= 1);
        assert_eq!(old.stats().await.unwrap().counts.delegations, 0);
    }
    let counts = broker.handle.watch().delegated();
    assert!(counts.delegated == 0 && counts.handed_over == counts.taken_back, "{counts:?}");
}

#[tokio::test]
async fn switched_off_nobody_is_handed_over() {
    let broker = start(DelegationConfig { share_max: 0.0, load_min: 0.0, ..DelegationConfig::default() });
    broker.busy.0.store(true, Ordering::SeqCst);
    let space = soon(Space::connect(&broker.urls[1])).await.unwrap();
    let mut query = soon(space.persistent_query(LAMP).open()).await.unwrap();
    for round in 0..200 {
        let value = round.to_string();
        space.edit(&[triple("urn:lamp", &value)], &[pattern("urn:lamp")]).await.unwrap();
        soon(until(&mut query, &value)).await;
    }
    let counts = broker.handle.watch().delegated();
    assert_eq!((counts.accepting, counts.handed_over), (0, 0));
}
