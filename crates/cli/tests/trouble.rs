//! A real flood over real sockets, as an operator sees it: a newcomer drowns a slow receiver. Every surface names both, an
//! alarm is raised, and all of it is over when the flood is.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_test_support::{Broker, Launch, text, tidegate};

/// Whatever the machine does besides: a look is taken every two seconds, and an alarm needs five to come and fifteen to go.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines of a subscriber in which something is looked for.
const LINES_MAX: usize = 30;

fn asked(broker: &Broker, arguments: &[&str]) -> (Option<i32>, String) {
    let output = tidegate(arguments).args(["--admin", &broker.admin()]).output().expect("the command runs");
    (output.status.code(), text(&output.stdout))
}

fn json(broker: &Broker, arguments: &[&str]) -> Value {
    serde_json::from_str(&asked(broker, &[arguments, &["--json"]].concat()).1).unwrap_or_default()
}

/// Asks until it is so.
fn until(what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let end = Instant::now() + PATIENCE;
    while let Err(seen) = look() {
        assert!(Instant::now() < end, "{what}: {seen}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn connected(broker: &Broker, client_id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address("mqtt")).expect("accepted");
    let mut hello = vec![0x10, 12 + client_id.len() as u8, 0, 4];
    hello.extend(b"MQTT\x04\x02\x00\x00\x00");
    hello.push(client_id.len() as u8);
    hello.extend(client_id.as_bytes());
    stream.write_all(&hello).expect("CONNECT");
    stream.read_exact(&mut [0; 4]).expect("CONNACK");
    stream
}

/// 4 KiB at QoS 0, as many as are taken.
fn flooder(broker: &Broker, is_on: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (mut stream, is_on) = (connected(broker, "flooder"), Arc::clone(is_on));
    let mut packet = vec![0x30, 0x83, 0x20, 0, 1, b't'];
    packet.resize(6 + 4096, b'x');
    std::thread::spawn(move || {
        while is_on.load(Ordering::Relaxed) {
            stream.write_all(&packet).expect("it is read, slower or faster");
        }
    })
}

/// Some 100 KB a second while the flood lasts, then as fast as it can.
fn reader(broker: &Broker, is_slow: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (mut stream, is_slow) = (connected(broker, "historian"), Arc::clone(is_slow));
    stream.write_all(b"\x82\x06\x00\x01\x00\x01t\x00").expect("SUBSCRIBE");
    stream.read_exact(&mut [0; 5]).expect("SUBACK");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    std::thread::spawn(move || {
        let (mut small, mut large) = ([0; 2048], vec![0; 1 << 20]);
        loop {
            if is_slow.load(Ordering::Relaxed) {
                if matches!(stream.read(&mut small), Ok(0)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            } else if matches!(stream.read(&mut large), Ok(0)) {
                return;
            }
        }
    })
}

#[test]
fn a_newcomer_that_drowns_a_receiver_is_named_everywhere_and_the_alarm_ends_with_it() {
    let broker = Launch::new().door("admin").config("[sys]\ninterval = \"1s\"\n").arguments(["--shards", "2"]).start();
    assert_eq!(json(&broker, &["status"])["now"]["mood"], "calm");
    assert_eq!(asked(&broker, &["alarms"]), (Some(0), "no alarms\n".to_owned()));
    let (is_on, is_slow) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let reader = reader(&broker, &is_slow);
    let flooder = flooder(&broker, &is_on);
    until("an alarm for the one who loses", || {
        let alarms = json(&broker, &["alarms"]);
        let is_there = |alarm: &Value| alarm["kind"] == "losing" && alarm["subject"] == "historian";
        let all = alarms["alarms"].as_array().cloned().unwrap_or_default();
        if all.iter().any(is_there) { Ok(()) } else { Err(alarms.to_string()) }
    });
    until("one sentence with both names", || {
        let status = asked(&broker, &["status"]).1;
        let first = status.lines().next().unwrap_or_default().to_owned();
        let is_told = first.contains("\"flooder\" sends") && first.contains("\"historian\" loses");
        if is_told && status.contains("next:  tidegate why flooder") { Ok(()) } else { Err(status) }
    });
    let status = json(&broker, &["status"]);
    assert_eq!((&status["now"]["mood"], &status["clients_losing"]), (&"trouble".into(), &1.into()), "{status}");
    let top = asked(&broker, &["top", "--once"]).1;
    assert!(top.starts_with("\"flooder\" sends") && top.contains("historian  losing"), "{top}");
    let why = asked(&broker, &["why", "historian"]).1;
    assert!(why.contains("loses messages") && why.contains("of \"flooder\", which sends"), "{why}");
    let why = asked(&broker, &["why", "flooder"]).1;
    assert!(why.contains("fill the queue of \"historian\""), "{why}");
    assert!(why.contains("new, has no usual rate yet") || why.contains("not known yet"), "{why}");
    // What the documentation says to be called for.
    let (losing, raised) =
        (broker.metric("tidegate_clients_losing"), broker.metric("tidegate_alarms{kind=\"losing\"}"));
    assert!(losing > 0.0 && raised > 0.0, "{losing} {raised}");
    broker.await_log("event=alarm_raised kind=losing");
    // The topics below $SYS are written once in their interval, so the first of these may be older than the alarm.
    let mut told = broker.subscriber(&["-t", "$SYS/broker/alarms", "-W", "60"]);
    let mut lines = (0..LINES_MAX).map(|_| told.line());
    assert!(lines.any(|line| line.contains("\"losing\"") && line.contains("historian")), "never told in $SYS");

    is_on.store(false, Ordering::Relaxed);
    is_slow.store(false, Ordering::Relaxed);
    flooder.join().expect("it ends");
    until("calm", || {
        let (code, alarms) = asked(&broker, &["alarms"]);
        let is_over = code == Some(0) && alarms.contains("AT ITS WORST") && alarms.contains("historian");
        if is_over { Ok(()) } else { Err(alarms) }
    });
    until("it is said", || {
        let now = json(&broker, &["status"])["now"].clone();
        if now["mood"] == "calm" { Ok(()) } else { Err(now.to_string()) }
    });
    broker.await_log("event=alarm_cleared kind=losing");
    drop(broker);
    reader.join().expect("it ends with the broker");
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let broker = Launch::new().door("admin").config("").start();
    let (admin, folder) = (broker.admin(), tempfile::tempdir().expect("a folder"));
    let asking = [&["top", "--once"][..], &["status"], &["clients"], &["drops"]];
    let asking = asking.into_iter().map(|words| [words, &["--admin", &admin]].concat());
    for words in asking.chain([vec!["config", "show"], vec!["init"]]) {
        let mut child = tidegate(&words)
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn the_admin_address_comes_from_the_environment_or_the_configuration() {
    let broker = Launch::new().door("admin").config("").start();
    let told = tidegate(&["health"]).env("TIDEGATE_ADMIN", broker.admin()).output().expect("it runs");
    assert!(told.status.success(), "{}", text(&told.stderr));
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[listeners]\nadmin = \"{}\"\n", broker.address("admin"));
    std::fs::write(folder.path().join("tidegate.toml"), config).expect("written");
    let told = tidegate(&["health"]).current_dir(folder.path()).output().expect("it runs");
    assert!(told.status.success(), "{}", text(&told.stderr));
}

#[test]
fn messages_and_the_smart_space_go_to_the_broker_of_the_configuration_too() {
    let broker = Launch::new().door("admin").door("http").config("").start();
    let folder = tempfile::tempdir().expect("a folder");
    let (mqtt, http) = (broker.address("mqtt"), broker.address("sparql"));
    let config = format!("[listeners]\nmqtt = \"{mqtt}\"\nhttp = \"{http}\"\n");
    std::fs::write(folder.path().join("tidegate.toml"), config).expect("written");
    for words in [
        &["pub", "-t", "a", "-m", "x", "-q", "1", "-r"][..],
        &["sub", "-t", "a", "-C", "1", "-W", "60"],
        &["kp", "insert", "urn:a", "urn:b", "c"],
        &["rdf", "query", "ASK { <urn:a> ?p ?o }"],
    ] {
        let told = tidegate(words).current_dir(folder.path()).output().expect("it runs");
        assert!(told.status.success(), "{words:?}: {}", text(&told.stderr));
    }
}

#[test]
fn what_can_be_listed_can_be_had_as_json() {
    let broker = Launch::new().door("admin").config("").start();
    let top = json(&broker, &["top"]);
    assert!(top["status"]["now"]["text"].is_string() && top["clients"].is_array(), "{top}");
    let printed = |words: &[&str]| -> Value {
        let output = tidegate(words).args(["--data"]).arg(broker.folder().join("data")).output().expect("it runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {}", text(&output.stderr)))
    };
    let settings = printed(&["config", "show", "--json", "-c", "/dev/null"]);
    assert!(settings["settings"].as_array().is_some_and(|all| all.len() > 50), "{settings}");
    assert!(printed(&["user", "list", "--json", "-c", "/dev/null"])["users"].is_array());
}

/// The bodies of what is posted to it.
fn webhook() -> (String, std::sync::mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/alarms", listener.local_addr().expect("bound"));
    let (sender, bodies) = std::sync::mpsc::sync_channel(100);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let body = loop {
                let mut part = [0; 4096];
                let len = stream.read(&mut part).expect("a request");
                request.extend_from_slice(&part[..len]);
                let end = request.windows(4).position(|it| it == b"\r\n\r\n").map(|at| at + 4);
                if let Some(Ok(body)) = end.map(|end| serde_json::from_slice(&request[end..])) {
                    break body;
                }
            };
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("an answer");
            if sender.send(body).is_err() {
                return;
            }
        }
    });
    (url, bodies)
}

#[test]
fn two_clients_with_one_name_are_named_and_whoever_wants_to_be_called_is() {
    let (url, alarms) = webhook();
    let config = format!("[telemetry]\nalarms = \"{url}\"\n");
    let broker = Launch::new().door("admin").config(&config).start();
    let mut last = connected(&broker, "plc");
    for _ in 0..4 {
        let next = connected(&broker, "plc");
        assert_eq!(last.read(&mut [0; 16]).expect("closed"), 0, "MQTT 3.1.1 has no word for it");
        last = next;
    }
    until("status says it", || {
        let status = asked(&broker, &["status"]).1;
        let is_told = status.starts_with("two clients call themselves \"plc\"") && status.contains("tidegate why plc");
        if is_told { Ok(()) } else { Err(status) }
    });
    let why = asked(&broker, &["why", "plc"]).1;
    assert!(why.contains("give each its own client id"), "{why}");
    let alarm = alarms.recv_timeout(PATIENCE).expect("the receiver is told");
    assert_eq!((&alarm["kind"], &alarm["subject"]), (&"name_conflict".into(), &"plc".into()), "{alarm}");
    assert_eq!(alarm["cleared_at"], Value::Null);
    assert!(alarm["host"].as_str().is_some_and(|host| !host.is_empty()), "whose alarm it is: {alarm}");
}

#[test]
fn a_ban_is_in_the_sentence_at_once() {
    let broker = Launch::new().door("admin").start();
    assert_eq!(json(&broker, &["status"])["now"]["mood"], "calm");
    assert_eq!(asked(&broker, &["ban", "add", "pest", "--for", "1h"]).0, Some(0));
    let now = &json(&broker, &["status"])["now"];
    assert_eq!((&now["mood"], &now["text"]), (&"notice".into(), &"\"pest\" is banned".into()));
}

/// Off is no blindfold: what is sent is seen, and `why` says what can be done.
#[test]
fn with_the_gate_off_rates_are_shown_and_who_sends_the_most_is_named() {
    let broker = Launch::new().door("admin").config("[backoff]\nmode = \"off\"\n[priority]\nmode = \"off\"\n").start();
    let mut stream = connected(&broker, "talker");
    let is_on = Arc::new(AtomicBool::new(true));
    let talker = std::thread::spawn({
        let is_on = Arc::clone(&is_on);
        move || {
            while is_on.load(Ordering::Relaxed) {
                stream.write_all(&b"\x30\x04\x00\x01tx".repeat(40)).expect("it is read");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    until("the sentence names it", || {
        let status = asked(&broker, &["status"]).1;
        let is_told = status.contains("\"talker\" sends the most") && status.contains("the gate is off");
        if is_told && status.contains("next:  tidegate why talker") { Ok(()) } else { Err(status) }
    });
    until("its rate is told", || {
        let row = json(&broker, &["clients"])["clients"][0].clone();
        if row["rate"].as_f64().is_some_and(|rate| rate > 100.0) { Ok(()) } else { Err(row.to_string()) }
    });
    let why = asked(&broker, &["why", "talker"]).1;
    assert!(why.contains("it sends") && why.contains("the gate is off"), "{why}");
    assert!(why.contains("tidegate limits set talker") && why.contains("tidegate reload"), "{why}");
    is_on.store(false, Ordering::Relaxed);
    talker.join().expect("it ends");
}
