//! Texts are read inside the time of their request, only while somebody waits, and within the memory of the process; what
//! is not done in time has changed nothing and says so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

mod common;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_control::admission::Class;
use tidegate_graph::{Query, QueryLimits, Update};
use tidegate_space::{
    BoundSockets, Everybody, MemoryBudget, Part, Probe, Refused, RequestOrigin, Service, ServiceOptions,
    SpaceAddresses, SpaceListeners, SpaceRequest,
};

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < common::PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A parser that never comes to an end by itself.
fn endless(limits: &QueryLimits) -> ((), Result<SpaceRequest, Refused>) {
    while !limits.cancel.is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
    }
    ((), Err(Refused::Late))
}

#[test]
fn reading_a_text_ends_with_the_time_of_its_request() {
    let service = Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
    let asker = RequestOrigin::new(0, Some(Duration::from_millis(50)));
    let (outcome, _) = wait(service.handle().read(10, Class::Query, asker, endless).answer());
    assert!(matches!(outcome, Err(Refused::Late)), "{outcome:?}");
    assert!(service.handle().cancelled().contains(&("time", 1)));
}

#[test]
fn reading_a_text_ends_when_nobody_waits_for_it() {
    let service = Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
    let reading = service.handle().read(10, Class::Query, RequestOrigin::new(0, None), endless);
    until("it is read", || service.handle().load().0 == 1);
    drop(reading);
    until("it ends", || service.handle().load().0 == 0);
    assert!(service.handle().cancelled().contains(&("abandoned", 1)));
}

fn insert(service: &Service) -> Result<tidegate_space::SpaceResponse, Refused> {
    let read = service.handle().read(10, Class::Update, RequestOrigin::new(0, None), |limits| {
        let update = Update::parse("INSERT DATA { <urn:a> <urn:b> 1 }", limits);
        ((), update.map(|it| SpaceRequest::Update(Box::new(it))).map_err(Refused::Failed))
    });
    wait(read.answer()).0
}

/// Two that do not end do not keep others from being read, even if they are not to be stopped; nor do they keep the
/// service from ending.
#[test]
fn what_does_not_end_is_given_up_and_others_are_read() {
    let service = Service::start(tidegate_graph::SpaceLimits::default()).unwrap();
    let (asker, is_over) = (RequestOrigin::new(0, Some(Duration::from_millis(10))), Arc::new(AtomicUsize::new(0)));
    let stuck: Vec<_> = (0..2)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            service.handle().read(10, Class::Query, asker, move |_| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                ((), Err(Refused::Late))
            })
        })
        .collect();
    until("they are given up", || service.handle().restarts().1 >= 2);
    for _ in 0..5 {
        let outcome = insert(&service);
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    drop(service);
    is_over.store(1, Ordering::Relaxed);
    drop(stuck);
}

/// Holds the first so many readers, whatever they are told.
#[derive(Debug)]
struct Stuck {
    left: AtomicUsize,
    is_over: Arc<AtomicUsize>,
}

impl Probe for Stuck {
    fn at(&self, part: Part) {
        let fewer = |left: usize| left.checked_sub(1);
        if part == Part::Reader && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            while self.is_over.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn readers_that_were_given_up_leave_their_places_to_others() {
    let is_over = Arc::new(AtomicUsize::new(0));
    let left = AtomicUsize::new(3);
    let probe: Arc<dyn Probe> = Arc::new(Stuck { left, is_over: Arc::clone(&is_over) });
    let service = Service::start_by(&ServiceOptions { probe: Some(probe), ..ServiceOptions::default() }).unwrap();
    let ask = |number: usize, patience| {
        let query = Query::parse(&format!("SELECT * {{ ?s <urn:{number}> ?o }}"), &QueryLimits::default()).unwrap();
        let form = tidegate_space::Form::Ssap;
        service.handle().start(SpaceRequest::Query { query: Box::new(query), form }, RequestOrigin::new(0, patience))
    };
    let stuck: Vec<_> = (0..3)
        .map(|number| {
            let waiting = ask(number, Some(Duration::from_secs(1)));
            until("it is stuck", || service.handle().load().0 == number + 1);
            waiting
        })
        .collect();
    until("they are given up", || service.handle().restarts().1 >= 3);
    for number in 3..8 {
        let outcome = wait(ask(number, None).answer());
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    drop(service);
    is_over.store(1, Ordering::SeqCst);
    drop(stuck);
}

#[derive(Debug, Default)]
struct Small {
    used: AtomicUsize,
    most: AtomicUsize,
    data: AtomicUsize,
}

const SMALL: usize = 1 << 20;

impl MemoryBudget for Small {
    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= SMALL);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if let Ok(before) = taken {
            self.most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn charge(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn take_data(&self, bytes: usize) -> bool {
        let more = |data: usize| data.checked_add(bytes).filter(|sum| *sum <= SMALL);
        self.data.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn charge_data(&self, bytes: usize) {
        self.data.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_data(&self, bytes: usize) {
        self.data.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A space with doors whose memory is charged there.
fn charged(budget: &Arc<Small>) -> common::Broker {
    let budget = Some(Arc::clone(budget) as Arc<dyn MemoryBudget>);
    let service = Service::start_by(&ServiceOptions { budget, ..ServiceOptions::default() }).unwrap();
    let free = Some("127.0.0.1:0".parse().unwrap());
    let bound = BoundSockets::open(SpaceAddresses { http: free, ssap: free, ..SpaceAddresses::default() }).unwrap();
    let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody)).unwrap();
    common::Broker { doors, service }
}

#[test]
fn f066_data_are_charged_to_the_budget_and_only_growth_is_refused_at_its_end() {
    let budget = Arc::new(Small::default());
    let broker = charged(&budget);
    let insert = |first: usize| {
        let triples: Vec<String> = (first..first + 100).map(|n| format!("<urn:s{n}> <urn:p> \"{n}\" .")).collect();
        broker.update(&format!("INSERT DATA {{ {} }}", triples.join(" ")))
    };
    let (first, refused) =
        (0..).step_by(100).map(|first| (first, insert(first))).find(|(_, answer)| answer.status != 200).unwrap();
    assert_eq!(refused.status, 507, "{}", refused.body);
    assert!(refused.body.contains("memory-full") && refused.body.contains("limits.memory"), "{}", refused.body);
    let (charged, count) = broker.handle().data_memory();
    assert!(charged > SMALL - 100_000 && charged <= SMALL && count > 0, "{charged} bytes at the first refusal");
    assert!(first > 3_000, "{first} triples in a megabyte");
    let answer = broker.update("DELETE { <urn:s1> ?p ?o } INSERT { <urn:s1> ?p 'other' } WHERE { <urn:s1> ?p ?o }");
    assert_eq!(answer.status, 200, "another value: {}", answer.body);
    assert_eq!(broker.request("GET", "/query?query=ASK%7B%7D", &[], b"").status, 200, "questions go on");
    assert_eq!(broker.update("DELETE WHERE { ?s ?p ?o }").status, 200);
    assert_eq!(insert(first).status, 200, "there is room again");
    drop(broker);
    until("everything is given back", || {
        (budget.data.load(Ordering::Relaxed), budget.used.load(Ordering::Relaxed)) == (0, 0)
    });
}

#[test]
fn f066_texts_are_charged_to_the_budget_of_the_process_and_refused_beyond_it() {
    let budget = Arc::new(Small::default());
    let broker = charged(&budget);
    let turtle = [("Content-Type", "text/turtle")];
    let long = "<urn:a> <urn:b> \"x\" .\n".repeat(50_000);
    let refused = broker.request("PUT", "/store?default", &turtle, long.as_bytes());
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.body);
    assert!(broker.handle().texts().1 > 0, "and counted");
    let wordy = format!("@prefix a: <urn:{}> . {}", "x".repeat(50_000), "a:a a:b a:c . ".repeat(700));
    let refused = broker.request("PUT", "/store?default", &turtle, wordy.as_bytes());
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.body);
    let short = broker.request("PUT", "/store?default", &turtle, b"<urn:a> <urn:b> 1 .");
    assert_eq!(short.status, 204, "{}", short.body);
    until("everything is given back", || budget.used.load(Ordering::Relaxed) == 0);
    assert!(budget.most.load(Ordering::Relaxed) > 0 && broker.handle().texts().0 == 0);
}

#[test]
fn an_update_that_is_not_done_in_time_has_changed_nothing_and_says_so() {
    let broker = common::start();
    let values: Vec<String> = (0..300).map(|n| format!("<urn:{n}> <urn:p> {n} .")).collect();
    assert_eq!(broker.update(&format!("INSERT DATA {{ {} }}", values.join(" "))).status, 200);
    let version = broker.handle().version();
    let dear = "INSERT { ?a <urn:q> ?h } WHERE { ?a <urn:p> ?b . ?c <urn:p> ?d . ?e <urn:p> ?f . ?g <urn:p> ?h FILTER(?b + ?d + ?f + ?h = 1) }";
    let kind = [("Content-Type", "application/sparql-update")];
    let first = broker.request("POST", "/update?timeout=300ms", &kind, dear.as_bytes());
    assert_eq!(first.status, 503, "{}", first.body);
    assert!(first.body.contains("not done in time, nothing was changed"), "{}", first.body);
    assert_eq!(broker.handle().version(), version);
}

#[test]
fn what_was_never_begun_is_withdrawn_when_its_time_is_over() {
    let held = Arc::new(common::HeldWriter::default());
    let probe: Arc<dyn Probe> = Arc::<common::HeldWriter>::clone(&held);
    let options = ServiceOptions { probe: Some(probe), ..ServiceOptions::default() };
    let broker = common::start_by(&options, Arc::new(Everybody));
    let kind = [("Content-Type", "application/sparql-update")];
    held.hold();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| broker.request("POST", "/update", &kind, b"INSERT DATA { <urn:w> <urn:y> 1 }"));
        until("the writer is busy", || held.is_waiting());
        // This one waits behind it until its time is over, and is never begun.
        let behind = broker.request("POST", "/update?timeout=20ms", &kind, b"INSERT DATA { <urn:x> <urn:y> 1 }");
        assert_eq!(behind.status, 503, "{}", behind.body);
        assert!(!behind.body.contains("unconfirmed"), "{}", behind.body);
        held.let_go();
        assert_eq!(first.join().unwrap().status, 200);
    });
    let query = Query::parse("ASK { <urn:x> ?p ?o }", &QueryLimits::default()).unwrap();
    let form = tidegate_space::Form::Ssap;
    let answered =
        wait(broker.handle().ask(SpaceRequest::Query { query: Box::new(query), form }, RequestOrigin::new(0, None)))
            .unwrap();
    let tidegate_space::ResponseBody::Bytes(bytes) = answered.answer else { panic!("{answered:?}") };
    assert!(String::from_utf8_lossy(&bytes).contains("false"), "what was withdrawn is not done later");
}

#[test]
fn an_ssap_message_beyond_the_maximum_is_answered_before_the_connection_ends() {
    let broker = common::start();
    let mut peer = common::Peer::new(broker.ssap());
    let long = "x".repeat(5 << 20);
    let insert = common::message("INSERT", 7, &common::graph("insert_graph", &common::triple("urn:a", "urn:b", &long)));
    // The broker may end before all of it is sent.
    let _ = peer.stream.write_all(insert.as_bytes());
    let answer = peer.rest();
    assert!(answer.contains("<transaction_id>7</transaction_id>"), "{answer}");
    assert!(answer.contains("m3:KP.Error") || answer.contains("a message of more than"), "{answer}");
    let mut other = common::Peer::new(broker.ssap());
    other.send(&common::message("JOIN", 1, ""));
    assert!(other.next().contains("m3:Success"));
}
