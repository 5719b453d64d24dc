//! A flooder over AMQP beside innocents at MQTT and AMQP, as an operator sees it: it has no credit, `why` and `status` name it, and
//! nobody else notices anything.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_test_support::{Broker, Launch, text, tidegate};

#[path = "../../broker/tests/support/amqp.rs"]
#[allow(dead_code, reason = "the tests of the broker use the rest of it")]
mod amqp;

/// Whatever the machine does besides.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("accepted");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn asked(broker: &Broker, arguments: &[&str]) -> String {
    let output = tidegate(arguments).args(["--admin", &broker.admin()]).output().expect("the command runs");
    text(&output.stdout)
}

fn at(broker: &Broker, door: &str) -> SocketAddr {
    broker.address(door).parse().expect("an address")
}

/// A client of MQTT 3.1.1 that may have subscribed to something.
fn connected(broker: &Broker, client_id: &str, filter: Option<&str>) -> TcpStream {
    let mut stream = tcp(at(broker, "mqtt"));
    let name = |name: &str| [&[0, name.len() as u8][..], name.as_bytes()].concat();
    let hello = [&b"\x00\x04MQTT\x04\x02\x00\x00"[..], &name(client_id)].concat();
    stream.write_all(&[&[0x10, hello.len() as u8][..], &hello].concat()).expect("CONNECT");
    stream.read_exact(&mut [0; 4]).expect("CONNACK");
    if let Some(filter) = filter {
        let wish = [&[0, 1][..], &name(filter), &[0]].concat();
        stream.write_all(&[&[0x82, wish.len() as u8][..], &wish].concat()).expect("SUBSCRIBE");
        stream.read_exact(&mut [0; 5]).expect("SUBACK");
    }
    stream
}

/// Sends 4 KiB whenever it has credit, until the broker ends; how often it was told that it has none.
fn flooder(broker: &Broker, told_none: &Arc<AtomicU32>) -> JoinHandle<()> {
    let mut container = amqp::Amqp::open(at(broker, "amqp"), "flooder");
    let mut left = container.attach_sender(0, "t");
    let told_none = Arc::clone(told_none);
    std::thread::spawn(move || {
        let mut sent = 0;
        loop {
            for _ in 0..left {
                container.transfer(0, false, &[b'x'; 4096]);
                sent += 1;
            }
            left = 0;
            let Some(frame) = container.try_frame() else { return };
            if let Some((seen, credit)) = Some(&frame).filter(|frame| frame.code == 0x13).and_then(amqp::counts_of) {
                told_none.fetch_add(u32::from(credit == 0), Ordering::Relaxed);
                left = (seen + credit).saturating_sub(sent);
            }
        }
    })
}

/// Some 100 KB a second of everything.
fn historian(broker: &Broker) -> JoinHandle<()> {
    let mut stream = connected(broker, "historian", Some("#"));
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while matches!(stream.read(&mut bytes), Ok(1..)) {
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

struct Innocents {
    mqtt: TcpStream,
    amqp: amqp::Amqp,
    hearer: TcpStream,
}

impl Innocents {
    fn open(broker: &Broker) -> Self {
        let mut container = amqp::Amqp::open(at(broker, "amqp"), "calm-amqp");
        assert!(container.attach_sender(0, "calm") > 0);
        let mqtt = connected(broker, "calm-mqtt", None);
        Self { mqtt, amqp: container, hearer: connected(broker, "hearer", Some("calm")) }
    }

    /// Each says something, which is acknowledged and heard.
    fn go_on(&mut self) {
        self.mqtt.write_all(b"\x32\x0a\x00\x04calm\x00\x01by").expect("PUBLISH");
        let mut ack = [0; 4];
        self.mqtt.read_exact(&mut ack).expect("PUBACK");
        assert_eq!(ack, [0x40, 2, 0, 1]);
        self.amqp.publish(0, b"by");
        for _ in 0..2 {
            let mut heard = [0; 10];
            self.hearer.read_exact(&mut heard).expect("a message");
            assert_eq!(&heard, b"\x30\x08\x00\x04calmby");
        }
    }
}

#[test]
fn a_flooder_over_amqp_has_no_credit_and_is_named_and_nobody_else_notices() {
    let broker = Launch::new().door("admin").door("amqp").config("").arguments(["--shards", "2"]).start();
    let mut innocents = Innocents::open(&broker);
    let (reader, told_none) = (historian(&broker), Arc::new(AtomicU32::new(0)));
    let flooder = flooder(&broker, &told_none);
    let (end, mut rounds) = (Instant::now() + PATIENCE, 0_u32);
    loop {
        innocents.go_on();
        rounds += 1;
        let (why, status) = (asked(&broker, &["why", "flooder"]), asked(&broker, &["status"]));
        let is_named = why.contains("all its receivers are full") || why.contains("fill the queue of \"historian\"");
        let first = status.lines().next().unwrap_or_default();
        let is_over = is_named && first.contains("\"flooder\" sends") && told_none.load(Ordering::Relaxed) > 0;
        if is_over && rounds > 20 {
            break;
        }
        assert!(Instant::now() < end, "{why}\n{status}\nno credit {told_none:?} times");
    }
    let why = asked(&broker, &["why", "historian"]);
    assert!(why.contains("of \"flooder\", which sends"), "{why}");
    let of_innocents = |line: &&str| line.contains("of \"calm-");
    assert!(why.lines().filter(of_innocents).all(|line| !line.contains("lost of late")), "{why}");
    for name in ["calm-mqtt", "calm-amqp"] {
        let why = asked(&broker, &["why", name]);
        let words = format!("0 messages lost or refused: {rounds} received, {rounds} passed");
        assert!(why.contains("is not slowed") && why.contains(&words), "{why}");
    }
    drop(broker);
    // It may have been about to send.
    let _ = flooder.join();
    reader.join().expect("it ends with the broker");
}
