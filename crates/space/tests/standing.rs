//! Standing queries that are dear: nobody waits for them but those who subscribed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use tidegate_graph::{Query, QueryLimits, Update};
use tidegate_space::{
    Begun, Part, Probe, Refused, RequestOrigin, ResponseBody, ResumePoint, Service, ServiceOptions, SpaceNotification,
    SpaceRequest, SpaceResponse, Watched, outlet,
};

/// The evaluator says that it begins, and goes on when it is told to.
#[derive(Debug)]
struct Held {
    begins: Mutex<Sender<()>>,
    goes_on: Mutex<Receiver<()>>,
}

impl Probe for Held {
    fn at(&self, part: Part) {
        if part == Part::Evaluator {
            self.begins.lock().unwrap().send(()).unwrap();
            // At the end of the test nobody holds it any more.
            let _ = self.goes_on.lock().unwrap().recv();
        }
    }
}

struct Bed {
    service: Service,
    begins: Receiver<()>,
    go_on: Sender<()>,
    runtime: tokio::runtime::Runtime,
}

impl Bed {
    fn new() -> Self {
        let (begun, begins) = channel();
        let (go_on, goes_on) = channel();
        let probe = Held { begins: Mutex::new(begun), goes_on: Mutex::new(goes_on) };
        let service =
            Service::start_by(&ServiceOptions { probe: Some(Arc::new(probe)), ..ServiceOptions::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { service, begins, go_on, runtime }
    }

    fn update(&self, text: &str) {
        let update = SpaceRequest::Update(Box::new(Update::parse(text, &QueryLimits::default()).unwrap()));
        self.runtime.block_on(self.service.handle().ask(update, RequestOrigin::new(0, None))).unwrap();
    }

    /// Waits for an evaluation to begin, and lets it go on.
    fn evaluate(&self) {
        self.begins.recv().unwrap();
        self.go_on.send(()).unwrap();
    }
}

/// Every subject of more than one thing: cannot be followed, and reads all there is.
const DEAR: &str = "SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s HAVING (COUNT(*) > 1)";

fn subscribe(
    name: &str,
    seen: Option<ResumePoint>,
    outlet: Option<Arc<tidegate_space::NotificationOutlet>>,
) -> SpaceRequest {
    let query = Box::new(Query::parse(DEAR, &QueryLimits::default()).unwrap());
    SpaceRequest::Subscribe { what: Watched::Query(query), name: name.to_owned(), seen, outlet }
}

fn begun(answered: Result<SpaceResponse, Refused>) -> Begun {
    let ResponseBody::Subscribed(subscribed) = answered.unwrap().answer else { panic!("not subscribed") };
    subscribed.begun
}

fn many(bed: &Bed) {
    let triples: Vec<String> = (0..3000).map(|n| format!("<urn:s{n}> <urn:p> {n} .")).collect();
    bed.update(&format!("INSERT DATA {{ {} }}", triples.join(" ")));
}

#[test]
fn nobody_waits_for_a_dear_standing_query_but_its_subscriber() {
    let bed = Bed::new();
    many(&bed);
    let (out, mut inlet) = outlet(&bed.service.handle());
    let handle = bed.service.handle();
    let waiting = handle.start(subscribe("dear", None, Some(out)), RequestOrigin::new(0, None));
    bed.begins.recv().unwrap();
    // The evaluation stands still, and changes are done all the same.
    bed.update("INSERT DATA { <urn:s1> <urn:q> 1 }");
    bed.go_on.send(()).unwrap();
    let Begun::Whole(baseline) = begun(bed.runtime.block_on(waiting.answer())) else { panic!("not whole") };
    assert_eq!(baseline.rows.len(), 0, "as it was when the evaluation began");
    assert!(baseline.version < handle.version());
    // What came meanwhile is one change, however many changes it was.
    bed.begins.recv().unwrap();
    bed.update("INSERT DATA { <urn:s2> <urn:q> 1 }");
    bed.update("INSERT DATA { <urn:s3> <urn:q> 1 }");
    bed.go_on.send(()).unwrap();
    bed.evaluate();
    let mut numbers = Vec::new();
    let mut rows = 0;
    while rows < 3 {
        let (_, told) = bed.runtime.block_on(inlet.next()).unwrap();
        let SpaceNotification::Changed { sequence, delta, .. } = told else { panic!("{told:?}") };
        numbers.push(sequence);
        rows += delta.added.len();
    }
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn who_asks_what_it_missed_of_a_dear_query_gets_what_was_there_when_it_asked() {
    let bed = Bed::new();
    many(&bed);
    let handle = bed.service.handle();
    let waiting = handle.start(subscribe("dear", None, None), RequestOrigin::new(0, None));
    bed.evaluate();
    begun(bed.runtime.block_on(waiting.answer()));
    // Nobody listens: nothing is evaluated until somebody asks.
    bed.update("INSERT DATA { <urn:s1> <urn:q> 1 }");
    bed.update("INSERT DATA { <urn:s2> <urn:q> 1 }");
    let seen = ResumePoint { name: "dear".to_owned(), sequence: 0, round: None };
    let waiting = handle.start(subscribe("dear", Some(seen), None), RequestOrigin::new(0, None));
    bed.evaluate();
    let Begun::Missed { sequence, delta, .. } = begun(bed.runtime.block_on(waiting.answer())) else { panic!("whole") };
    assert_eq!((sequence, delta.added.len(), delta.removed.len()), (1, 2, 0));
}

/// The owner panics at its next step, once.
#[derive(Debug, Default)]
struct Fall(std::sync::atomic::AtomicBool);

impl Probe for Fall {
    fn at(&self, part: Part) {
        let is_armed = part == Part::Writer && self.0.swap(false, std::sync::atomic::Ordering::SeqCst);
        assert!(!is_armed, "injected");
    }
}

/// Connections outlive the space: what one still says about an old subscription must not be said of a new one.
#[test]
fn the_number_of_a_subscriber_is_not_given_again_when_the_space_begins_anew() {
    let fall = Arc::new(Fall::default());
    let probe: Arc<dyn Probe> = Arc::clone(&fall) as Arc<dyn Probe>;
    let restart_pause = std::time::Duration::from_millis(1);
    let service =
        Service::start_by(&ServiceOptions { probe: Some(probe), restart_pause, ..ServiceOptions::default() }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (handle, asker) = (service.handle(), RequestOrigin::new(0, None));
    let (out, mut inlet) = outlet(&handle);
    let subscribe = |name: &str| {
        let query = Box::new(Query::parse("SELECT ?o { <urn:s> <urn:p> ?o }", &QueryLimits::default()).unwrap());
        let outlet = Some(Arc::clone(&out));
        let ask = SpaceRequest::Subscribe { what: Watched::Query(query), name: name.to_owned(), seen: None, outlet };
        let answered = runtime.block_on(handle.ask(ask, asker)).unwrap();
        let ResponseBody::Subscribed(subscribed) = answered.answer else { panic!("not subscribed") };
        subscribed.id
    };
    let update = || {
        let update = Update::parse("INSERT DATA { <urn:s> <urn:p> 1 }", &QueryLimits::default()).unwrap();
        runtime.block_on(handle.ask(SpaceRequest::Update(Box::new(update)), asker))
    };
    let before = subscribe("before");
    fall.0.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(update(), Err(Refused::Panicked)));
    while handle.restarts().0 == 0 {
        std::thread::yield_now();
    }
    let after = subscribe("after");
    assert_ne!(before, after);
    // The connection has not heard of the end yet, and wants it itself.
    handle.unsubscribe(before, &out);
    update().unwrap();
    let (id, told) = runtime.block_on(inlet.next()).unwrap();
    assert!(id == before && matches!(told, SpaceNotification::Restarting { spread: None }), "{told:?}");
    let (id, told) = runtime.block_on(inlet.next()).unwrap();
    assert!(id == after && matches!(told, SpaceNotification::Changed { .. }), "{told:?}");
}
