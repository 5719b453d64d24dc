//! Bridges between real brokers: two of ours, and ours with Debian's mosquitto, over a way that can be cut.

#![cfg(unix)]
#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod mosquitto;
#[expect(dead_code, reason = "bridge_kill9 makes the way narrow, too")]
mod proxy;

use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_test_support::{Broker, Launch, PATIENCE, text, tidegate};

use proxy::Proxy;

/// A bridge of this name to this port, with these topics.
pub(crate) fn bridge(name: &str, port: u16, more: &str) -> String {
    format!("[[bridge]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\n{more}")
}

const OUT: &str = "[[bridge.topic]]\nfilter = \"sensors/#\"\nqos = 1\nremote_prefix = \"site7/\"\n";
const IN: &str = "[[bridge.topic]]\nfilter = \"cmd/#\"\ndirection = \"in\"\nqos = 2\nlocal_prefix = \"hub/\"\n";

/// What `tidegate bridges --json` says of the only one.
pub(crate) fn seen(broker: &Broker) -> Value {
    let output = tidegate(&["bridges", "--json", "--admin", &broker.admin()]).output().expect("bridges runs");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    answer["bridges"][0].clone()
}

pub(crate) fn await_seen(broker: &Broker, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let bridge = seen(broker);
        if is_so(&bridge) {
            return bridge;
        }
        assert!(Instant::now() < end, "never {what}: {bridge}\n{}", broker.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn await_up(broker: &Broker) -> Value {
    await_seen(broker, "up", |bridge| bridge["state"] == "up")
}

#[test]
fn two_brokers_share_topics_both_ways_with_prefixes_and_without_echoes() {
    let there = Launch::new().start();
    let here = Launch::new().door("admin").config(&bridge("hub", there.port("mqtt"), &format!("{OUT}{IN}"))).start();
    await_up(&here);
    let mut state = there.subscriber(&["-t", "$SYS/broker/connection/+/state", "-v", "-C", "1"]);
    assert!(state.line().ends_with(".hub/state 1"), "the other broker is told");
    assert_eq!(here.subscriber(&["-t", "$SYS/broker/connection/hub/state", "-C", "1"]).line(), "1");

    let mut hub = there.subscriber(&["-t", "#", "-q", "2", "-V", "5", "-F", "%t %p %P"]);
    here.send(&["-t", "sensors/hall", "-m", "21", "-q", "1"]);
    assert_eq!(hub.line(), "site7/sensors/hall 21 bridge-hops:1");
    let mut site = here.subscriber(&["-t", "hub/#", "-v", "-q", "2"]);
    there.send(&["-t", "cmd/lamp", "-m", "on", "-q", "2"]);
    assert_eq!(hub.line(), "cmd/lamp on");
    assert_eq!(site.line(), "hub/cmd/lamp on");
    here.send(&["-t", "sensors/hall", "-m", "22", "-q", "0"]);
    assert_eq!(hub.line(), "site7/sensors/hall 22 bridge-hops:1", "QoS 0, and no echo of anything before");

    let counted = await_seen(&here, "counted", |bridge| bridge["sent"] == 2 && bridge["received"] == 1);
    assert_eq!((&counted["refused"], &counted["looped"], &counted["trouble"]), (&0.into(), &0.into(), &Value::Null));
    assert!((here.metric("tidegate_bridge_up{bridge=\"hub\"}") - 1.0).abs() < 0.1);
    let why = tidegate(&["why", "bridge", "hub", "--admin", &here.admin()]).output().expect("why runs");
    assert!(text(&why.stdout).starts_with("bridge \"hub\" stands, to 127.0.0.1:"), "{}", text(&why.stdout));

    there.kill();
    await_seen(&here, "down", |bridge| bridge["state"] != "up");
    let status = tidegate(&["status", "--admin", &here.admin()]).output().expect("status runs");
    assert!(text(&status.stdout).contains("\nbridge   hub is down for "), "{}", text(&status.stdout));
}

#[test]
fn what_is_published_during_an_outage_arrives_afterwards_once_and_in_order() {
    let proxy = Proxy::new();
    let folder = tempfile::tempdir().expect("a folder");
    let config = bridge("hub", proxy.port, OUT);
    let launch = || Launch::at(folder.path()).door("admin").config(&config).start();
    let here = launch();
    // The other broker was never there.
    await_seen(&here, "tried", |bridge| bridge["failures"].as_u64() > Some(0));
    let lines: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let publish = |broker: &Broker, lines: &[String]| {
        let mut child = broker.tool("pub", &["-t", "sensors/n", "-q", "1", "-l"]);
        child.stdin(std::process::Stdio::piped());
        let mut child = child.spawn().expect("pub runs");
        let mut input = child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, (lines.join("\n") + "\n").as_bytes()).expect("it reads");
        drop(input);
        assert!(child.wait().expect("pub ends").success());
    };
    publish(&here, &lines[..100]);
    await_seen(&here, "spooled", |bridge| bridge["queued"] == 100);
    // What waits outlives the process.
    here.kill();
    let here = launch();
    publish(&here, &lines[100..200]);
    await_seen(&here, "spooled", |bridge| bridge["queued"] == 200);

    let there = Launch::new().start();
    let mut hub = there.subscriber(&["-t", "site7/#", "-q", "1"]);
    proxy.lead_to(there.port("mqtt"), Duration::from_millis(2));
    for number in 0..200 {
        assert_eq!(hub.line(), number.to_string());
    }
    // And over a cut in the middle: at least once, in order of first arrival.
    proxy.cut();
    publish(&here, &lines[200..]);
    proxy.lead_to(there.port("mqtt"), Duration::ZERO);
    let mut next = 200;
    while next < 300 {
        let number: u32 = hub.line().parse().expect("a number");
        assert!(number <= next, "{number} before {next}");
        next = next.max(number + 1);
    }
    let done = await_seen(&here, "drained", |bridge| bridge["queued"] == 0);
    assert!(done["connects"].as_u64() >= Some(2), "{done}");
}

#[test]
fn nobody_else_can_be_a_bridge() {
    let there = Launch::new().start();
    let here = Launch::new().door("admin").config(&bridge("hub", there.port("mqtt"), OUT)).start();
    await_up(&here);
    let output = here.tool("sub", &["-i", "$bridge/hub", "-t", "x", "-V", "5", "-W", "5"]).output().expect("sub runs");
    assert!(text(&output.stderr).contains("Client Identifier not valid (0x85)"), "{}", text(&output.stderr));
    await_up(&here);
}

#[test]
fn f047_a_ring_of_three_brokers_ends_by_the_count_of_hops() {
    let (first, second, third) = (Proxy::new(), Proxy::new(), Proxy::new());
    let topic = "[[bridge.topic]]\nfilter = \"ring\"\n";
    let node = |to: &Proxy| Launch::new().door("admin").config(&bridge("next", to.port, topic)).start();
    let nodes = [node(&second), node(&third), node(&first)];
    for (proxy, node) in [&first, &second, &third].into_iter().zip(&nodes) {
        proxy.lead_to(node.port("mqtt"), Duration::ZERO);
    }
    for node in &nodes {
        await_up(node);
    }
    let mut seen_here = nodes[0].subscriber(&["-t", "ring", "-V", "5", "-F", "%P"]);
    nodes[0].send(&["-t", "ring", "-m", "x", "-q", "1"]);
    assert_eq!([seen_here.line(), seen_here.line(), seen_here.line()], ["", "bridge-hops:3", "bridge-hops:6"]);
    // Eight bridges in all, and the ninth, which is the third one's, does not pass it on.
    let looped = |node: &Broker| seen(node)["looped"].as_u64().unwrap_or(0);
    let end = Instant::now() + PATIENCE;
    while nodes.iter().map(looped).sum::<u64>() == 0 {
        assert!(Instant::now() < end, "the ring does not end");
    }
}

#[test]
fn a_bridge_speaks_tls_and_says_whom_it_does_not_trust() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let launch = Launch::new().door("mqtts");
    let folder = launch.folder().display().to_string();
    let config = format!("[tls]\ncert = \"{folder}/cert.pem\"\nkey = \"{folder}/key.pem\"\n");
    let there = launch.file("cert.pem", &cert).file("key.pem", &key).config(&config).start();
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate").cert.pem();
    let start = |trusted: &str| {
        let port = there.port("mqtts");
        let text =
            format!("[[bridge]]\nname = \"hub\"\naddress = \"localhost:{port}\"\n[bridge.tls]\nca = \"ca.pem\"\n{OUT}");
        Launch::new().door("admin").file("ca.pem", trusted).config(&text).start()
    };
    let suspicious = start(&stranger);
    let bridge = await_seen(&suspicious, "refused", |bridge| !bridge["trouble"].is_null());
    assert!(bridge["trouble"].as_str().expect("words").contains("invalid peer certificate"), "{bridge}");
    let here = start(&cert);
    await_up(&here);
    let mut hub = there.subscriber(&["-t", "site7/#", "-v"]);
    here.send(&["-t", "sensors/hall", "-m", "21", "-q", "1"]);
    assert_eq!(hub.line(), "site7/sensors/hall 21");
}

#[test]
fn a_topic_that_was_taken_out_of_the_file_is_given_up() {
    let there = Launch::new().start();
    let folder = tempfile::tempdir().expect("a folder");
    let topic = |filter: &str| format!("[[bridge.topic]]\nfilter = \"{filter}\"\n");
    let start = |topics: &str| {
        Launch::at(folder.path()).door("admin").config(&bridge("hub", there.port("mqtt"), topics)).start()
    };
    let here = start(&format!("{}{}", topic("old/#"), topic("kept/#")));
    await_up(&here);
    here.kill();
    let here = start(&topic("kept/#"));
    await_up(&here);
    let mut hub = there.subscriber(&["-t", "#", "-v"]);
    here.send(&["-t", "old/x", "-m", "1", "-q", "1"]);
    here.send(&["-t", "kept/x", "-m", "2", "-q", "1"]);
    assert_eq!(hub.line(), "kept/x 2");
    assert_eq!(await_seen(&here, "counted", |bridge| bridge["sent"] == 1)["unmapped"], 0);
}
