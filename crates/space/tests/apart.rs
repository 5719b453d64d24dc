//! Changes that are made apart from the commits, by the threads that do it in the field: who is answered first, and what
//! is there then. Nothing here is timed: what takes long is held back until the others were answered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use oxrdf::{GraphName, Literal, NamedNode, Quad};
use sparesults::QueryResultsFormat;
use tidegate_graph::{Mask, Query, QueryLimits, Update};
use tidegate_space::{
    Caller, Form, Part, Probe, RequestOrigin, ResponseBody, Service, ServiceOptions, SpaceHandle, SpaceRequest,
};

/// Holds back whoever evaluates something, until it is let go.
#[derive(Debug, Default)]
struct Barrier {
    is_closed: Mutex<bool>,
    opened: Condvar,
    arrived: AtomicUsize,
    is_watched: AtomicBool,
}

impl Barrier {
    fn close(&self) {
        *self.is_closed.lock().unwrap() = true;
        self.arrived.store(0, Ordering::SeqCst);
        self.is_watched.store(true, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.is_closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    async fn somebody_waits(&self) {
        while self.arrived.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Probe for Barrier {
    fn at(&self, part: Part) {
        if part == Part::Reader && self.is_watched.load(Ordering::SeqCst) {
            self.arrived.fetch_add(1, Ordering::SeqCst);
            let closed = self.is_closed.lock().unwrap();
            let _open = self.opened.wait_while(closed, |is_closed| *is_closed).unwrap();
        }
    }
}

fn by(client: u64) -> RequestOrigin {
    RequestOrigin::new(0, None).of(Caller { client, ..Caller::default() })
}

fn update(text: &str) -> SpaceRequest {
    SpaceRequest::Update(Box::new(Update::parse(text, &QueryLimits::default()).unwrap()))
}

fn load(count: u64) -> SpaceRequest {
    let node = |text: String| NamedNode::new_unchecked(text);
    let quad = |number: u64| {
        let property = node("urn:x".to_owned());
        Quad::new(node(format!("urn:s{number}")), property, Literal::from(number), GraphName::DefaultGraph)
    };
    SpaceRequest::Put { target: Box::new(Mask::default()), replaces: false, insert: (0..count).map(quad).collect() }
}

/// How many triples have this property.
async fn count(handle: &SpaceHandle, property: &str) -> String {
    let text = format!("SELECT (COUNT(*) AS ?n) {{ ?s <{property}> ?o }}");
    let query = Box::new(Query::parse(&text, &QueryLimits::default()).unwrap());
    let form = Form::Results(QueryResultsFormat::Csv);
    let answered = handle.ask(SpaceRequest::Query { query, form }, by(3)).await.unwrap();
    let ResponseBody::Bytes(bytes) = answered.answer else { panic!("no bytes") };
    String::from_utf8_lossy(&bytes).lines().nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn small_changes_go_between_the_pieces_of_a_load_and_nobody_sees_a_part_of_it() {
    let service = Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
    let handle = service.handle();
    let mut loading = handle.start(load(8_000), by(1));
    let (mut small, mut seen) = (0, 0);
    loop {
        small += 1;
        let change = handle.ask(update(&format!("INSERT DATA {{ <urn:a> <urn:p> {small} }}")), by(2));
        tokio::select! {
            biased;
            loaded = loading.wait() => {
                loaded.unwrap();
                break;
            }
            changed = change => drop(changed.unwrap()),
        }
        let loaded = count(&handle, "urn:x").await;
        assert!(loaded == "0" || loaded == "8000", "{loaded} of a load are seen");
        seen += usize::from(loaded == "0");
    }
    assert!(seen > 2, "{seen} small changes went between");
    assert_eq!(count(&handle, "urn:x").await, "8000");
}

#[tokio::test]
async fn nobody_waits_for_a_long_where_and_it_counts_what_is_there_when_it_is_done() {
    let barrier = Arc::new(Barrier::default());
    let probe: Arc<dyn Probe> = Arc::<Barrier>::clone(&barrier);
    let service = Service::start_by(&ServiceOptions { probe: Some(probe), ..ServiceOptions::default() }).unwrap();
    let handle = service.handle();
    handle.ask(load(150), by(1)).await.unwrap();
    let pairs = "INSERT { <urn:sum> <urn:of> ?n } WHERE { SELECT (COUNT(*) AS ?n) { ?a <urn:x> ?b . ?c <urn:x> ?d } }";
    // Nothing of what it reads changes: it is done as it was worked out.
    barrier.close();
    let long = handle.start(update(pairs), by(1));
    barrier.somebody_waits().await;
    for number in 0..20 {
        handle.ask(update(&format!("INSERT DATA {{ <urn:a> <urn:p> {number} }}")), by(2)).await.unwrap();
    }
    barrier.open();
    long.answer().await.unwrap();
    assert_eq!(barrier.arrived.load(Ordering::SeqCst), 1, "once is enough");
    assert_eq!(count(&handle, "urn:of").await, "1");
    // Something of it changes: it is worked out again.
    barrier.close();
    let long = handle.start(update(pairs), by(1));
    barrier.somebody_waits().await;
    handle.ask(update("INSERT DATA { <urn:late> <urn:x> 1 }"), by(2)).await.unwrap();
    barrier.open();
    long.answer().await.unwrap();
    assert_eq!(barrier.arrived.load(Ordering::SeqCst), 2);
    let sums = "SELECT ?n { <urn:sum> <urn:of> ?n } ORDER BY ?n";
    let query = Box::new(Query::parse(sums, &QueryLimits::default()).unwrap());
    let form = Form::Results(QueryResultsFormat::Csv);
    let answered = handle.ask(SpaceRequest::Query { query, form }, by(3)).await.unwrap();
    let ResponseBody::Bytes(bytes) = answered.answer else { panic!("no bytes") };
    assert_eq!(String::from_utf8_lossy(&bytes).lines().collect::<Vec<_>>(), ["n", "22500", "22801"]);
}
