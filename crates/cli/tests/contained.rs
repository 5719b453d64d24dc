//! A fault of the smart space costs a request, or the space, and never MQTT: panics are injected into every part of the
//! space while an MQTT client of the same process goes on exchanging messages.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set up has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_core::access::Open;
use tidegate_space::{
    BoundSockets, Condition, Everybody, Part, Probe, Service, ServiceOptions, SpaceAddresses, SpaceHandle,
    SpaceListeners, StoreConfig,
};
use tidegate_store::Durability;

/// A guard only: whoever waits so long waits for nothing.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    At(Part),
    Rendering,
}

/// Panics once for each time that it is armed; always, for a part that is doomed.
#[derive(Debug, Default)]
struct Saboteur {
    armed: Mutex<Option<Place>>,
    is_writer_doomed: AtomicBool,
}

impl Saboteur {
    fn arm(&self, place: Place) {
        *self.armed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(place);
    }

    fn meet(&self, place: Place) {
        let mut armed = self.armed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *armed == Some(place) {
            *armed = None;
            drop(armed);
            panic!("injected at {place:?}");
        }
    }
}

impl Probe for Saboteur {
    fn at(&self, part: Part) {
        let is_doomed = part == Part::Writer && self.is_writer_doomed.load(Ordering::Relaxed);
        assert!(!is_doomed, "injected, as always");
        self.meet(Place::At(part));
    }

    fn at_rendering(&self) {
        self.meet(Place::Rendering);
    }
}

/// An MQTT client that publishes to itself at QoS 1, one message after the other, until it is told to stop.
struct Mqtt {
    stop: Arc<AtomicBool>,
    exchanged: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let mut packet = head.to_vec();
    packet.resize(2 + usize::from(head[1]), 0);
    stream.read_exact(&mut packet[2..]).unwrap();
    packet
}

impl Mqtt {
    fn start(at: SocketAddr) -> Self {
        let mut stream = connect(at);
        stream.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a").unwrap();
        assert_eq!(packet(&mut stream), [0x20, 2, 0, 0]);
        stream.write_all(b"\x82\x06\x00\x01\x00\x01t\x00").unwrap();
        assert_eq!(packet(&mut stream), [0x90, 3, 0, 1, 0]);
        let (stop, exchanged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, count) = (Arc::clone(&stop), Arc::clone(&exchanged));
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                stream.write_all(b"\x32\x06\x00\x01t\x00\x07x").unwrap();
                let kinds = [packet(&mut stream)[0], packet(&mut stream)[0]];
                assert!(kinds.contains(&0x40) && kinds.contains(&0x30), "{kinds:x?}");
                count.fetch_add(1, Ordering::Relaxed);
                // Enough to be under way all the time, without taking a core.
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { stop, exchanged, thread }
    }

    /// Waits until more was exchanged: MQTT goes on.
    fn goes_on(&self) {
        let before = self.exchanged.load(Ordering::Relaxed);
        until("MQTT goes on", || self.exchanged.load(Ordering::Relaxed) > before + 2);
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

struct World {
    saboteur: Arc<Saboteur>,
    mqtt: Mqtt,
    http: SocketAddr,
    ssap: SocketAddr,
    space: SpaceHandle,
    _doors: SpaceListeners,
    _service: Service,
    _broker: Broker,
    _folder: tempfile::TempDir,
}

fn start() -> World {
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listeners = vec![Listener::new(ListenerKind::Mqtt, free)];
    let config = Config { listeners, shards: 1, ..Config::default() };
    let broker = Broker::start(config, Arc::new(Anonymous), Arc::new(Open)).unwrap();
    let mqtt = Mqtt::start(broker.addresses()[0].1);
    let (folder, saboteur) = (tempfile::tempdir().unwrap(), Arc::new(Saboteur::default()));
    let store =
        StoreConfig { dir: folder.path().join("space"), durability: Durability::Always, strict: false, size_max: None };
    let probe: Arc<dyn Probe> = Arc::clone(&saboteur) as Arc<dyn Probe>;
    let options =
        ServiceOptions { probe: Some(probe), restart_pause: Duration::from_millis(2), ..ServiceOptions::default() };
    let (service, _) = Service::open_by(&store, &options).unwrap();
    let bound =
        BoundSockets::open(SpaceAddresses { http: Some(free), ssap: Some(free), ..SpaceAddresses::default() }).unwrap();
    let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody)).unwrap();
    let at = doors.addresses();
    World {
        saboteur,
        mqtt,
        http: at.http.unwrap(),
        ssap: at.ssap.unwrap(),
        space: service.handle(),
        _doors: doors,
        _service: service,
        _broker: broker,
        _folder: folder,
    }
}

impl World {
    /// Status and all of the answer.
    fn request(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
        let mut stream = connect(self.http);
        let (host, length) = (self.http, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
    }

    fn query(&self, text: &str) -> (u16, String) {
        self.request("POST", "/query", "application/sparql-query", text)
    }

    fn update(&self, text: &str) -> (u16, String) {
        self.request("POST", "/update", "application/sparql-update", text)
    }

    fn message(&self, kind: &str, parameters: &str) -> String {
        let mut stream = connect(self.ssap);
        let message = format!(
            "<SSAP_message><node_id>kp</node_id><space_id>X</space_id><transaction_type>{kind}</transaction_type>\
             <message_type>REQUEST</message_type><transaction_id>1</transaction_id>{parameters}</SSAP_message>"
        );
        stream.write_all(message.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn panics(&self, part: &str) -> u64 {
        self.space.panics().into_iter().find(|(name, _)| *name == part).unwrap().1
    }
}

#[test]
fn f126_a_panic_of_a_parser_a_reader_or_a_door_ends_one_request() {
    let world = start();
    let places = [
        (Place::At(Part::Parser), "parser"),
        (Place::At(Part::Reader), "reader"),
        (Place::Rendering, "reader"),
        (Place::At(Part::Http), "http"),
    ];
    for (number, (place, part)) in places.into_iter().enumerate() {
        let before = world.panics(part);
        world.saboteur.arm(place);
        // Another question each time: an answer that is remembered is not worked out.
        let (status, answer) = world.query(&format!("ASK {{ <urn:{number}> ?p ?o }}"));
        assert_eq!(status, 500, "{place:?}: {answer}");
        assert_eq!(world.panics(part), before + 1, "{place:?}");
        let (status, answer) = world.query(&format!("ASK {{ <urn:{number}> ?p ?o }}"));
        assert_eq!(status, 200, "{place:?}: {answer}");
        world.mqtt.goes_on();
    }
    let sparql = "<parameter name=\"type\">sparql</parameter><parameter name=\"query\">ASK { ?a ?b ?c }</parameter>";
    for (place, part, kind, parameters) in
        [(Place::At(Part::Ssap), "ssap", "JOIN", ""), (Place::At(Part::Parser), "parser", "QUERY", sparql)]
    {
        let before = world.panics(part);
        world.saboteur.arm(place);
        let answer = world.message(kind, parameters);
        assert!(answer.contains("m3:SIB.Error") || answer.contains("Error"), "{place:?}: {answer}");
        assert_eq!(world.panics(part), before + 1, "{place:?}");
        let answer = world.message(kind, parameters);
        assert!(answer.contains("m3:Success"), "{place:?}: {answer}");
        world.mqtt.goes_on();
    }
    assert_eq!((world.space.condition(), world.space.restarts().0), (Condition::Serving, 0));
    world.mqtt.end();
}

#[test]
fn f126_a_watcher_that_panics_is_replaced_and_goes_on_ending_what_takes_too_long() {
    let world = start();
    let values: Vec<String> = (0..400).map(|n| format!("<urn:{n}> <urn:p> {n} .")).collect();
    assert_eq!(world.update(&format!("INSERT DATA {{ {} }}", values.join(" "))).0, 200);
    world.saboteur.arm(Place::At(Part::Watcher));
    assert_eq!(world.query("ASK {}").0, 200);
    until("the watcher panics", || world.panics("watcher") == 1);
    let dear = "SELECT (COUNT(*) AS ?n) { ?a <urn:p> ?b . ?c <urn:p> ?d . ?e <urn:p> ?f . ?g <urn:p> ?h FILTER(?b + ?d + ?f + ?h = 1) }";
    let (status, answer) = world.request("POST", "/query?timeout=100ms", "application/sparql-query", dear);
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("not done in time, nothing was changed"), "{answer}");
    world.mqtt.goes_on();
    world.mqtt.end();
}

#[test]
fn f126_a_panic_of_the_owner_begins_the_space_anew_from_its_log() {
    let world = start();
    assert_eq!(world.update("INSERT DATA { <urn:a> <urn:p> 1 }").0, 200);
    let kept = world.space.version();
    world.saboteur.arm(Place::At(Part::Writer));
    let (status, answer) = world.update("INSERT DATA { <urn:b> <urn:p> 2 }");
    assert_eq!(status, 500, "{answer}");
    assert!(answer.contains("nothing was changed"), "{answer}");
    world.mqtt.goes_on();
    until("it serves again", || world.space.restarts().0 == 1 && world.space.condition() == Condition::Serving);
    let (status, answer) = world.query("SELECT ?s { ?s <urn:p> ?o }");
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("urn:a") && !answer.contains("urn:b"), "{answer}");
    assert!(world.space.version() >= kept, "versions only grow");
    assert_eq!(world.update("INSERT DATA { <urn:c> <urn:p> 3 }").0, 200);
    assert_eq!(world.panics("writer"), 1);
    world.mqtt.goes_on();
    world.mqtt.end();
}

#[test]
fn a_subscriber_of_a_space_that_begins_anew_is_told_so_and_gets_a_fresh_baseline() {
    let world = start();
    assert_eq!(world.update("INSERT DATA { <urn:a> <urn:p> 1 }").0, 200);
    let (mut socket, _) = tungstenite::connect(format!("ws://{}/subscribe", world.http)).unwrap();
    let subscribe = r#"{"subscribe":{"sparql":"SELECT ?s { ?s <urn:p> ?o }","alias":"it"}}"#;
    let hear = |socket: &mut tungstenite::WebSocket<_>| loop {
        if let tungstenite::Message::Text(text) = socket.read().unwrap() {
            return text.to_string();
        }
    };
    socket.send(subscribe.into()).unwrap();
    assert!(hear(&mut socket).contains("urn:a"));
    world.saboteur.arm(Place::At(Part::Writer));
    assert_eq!(world.update("INSERT DATA { <urn:b> <urn:p> 2 }").0, 500);
    let told = [hear(&mut socket), hear(&mut socket)].concat();
    assert!(told.contains("subscription_ended") && told.contains("unsubscribed"), "{told}");
    until("it serves again", || world.space.restarts().0 == 1);
    socket.send(subscribe.into()).unwrap();
    let baseline = hear(&mut socket);
    assert!(baseline.contains("urn:a") && !baseline.contains("urn:b"), "{baseline}");
    assert_eq!(world.update("INSERT DATA { <urn:c> <urn:p> 3 }").0, 200);
    assert!(hear(&mut socket).contains("urn:c"));
    world.mqtt.goes_on();
    world.mqtt.end();
}

#[test]
fn f126_an_owner_that_panics_again_and_again_is_given_up_and_mqtt_goes_on() {
    let world = start();
    world.saboteur.is_writer_doomed.store(true, Ordering::Relaxed);
    until("it is given up", || {
        let (status, answer) = world.update("INSERT DATA { <urn:a> <urn:p> 1 }");
        assert!(matches!(status, 500 | 503), "{answer}");
        world.space.condition() == Condition::Down
    });
    for (status, answer) in [world.update("INSERT DATA {}"), world.query("ASK {}")] {
        assert_eq!(status, 503, "{answer}");
        assert!(answer.to_ascii_lowercase().contains("retry-after: 60"), "{answer}");
    }
    assert!(world.message("JOIN", "").contains("m3:Success"), "the door itself is well");
    world.mqtt.goes_on();
    world.mqtt.end();
}
