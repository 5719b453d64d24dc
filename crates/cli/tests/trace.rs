//! `trace record` and `what-if`: what a running broker did with messages, and what the same code does with them in virtual
//! time.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_test_support::{Broker, Launch, ensure, tidegate};

fn what_if() -> Command {
    ensure("tidegate-lab");
    tidegate(&["what-if"])
}

/// A process that is ended with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ledger(broker: &Broker) -> Value {
    let output = tidegate(&["drops", "--json", "--admin", &broker.admin()]).output().expect("drops runs");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    answer["ledger"]["in"].clone()
}

/// A device that speaks MQTT 5: connects, publishes at QoS 1, and reads what it is told without a thought.
struct Device {
    stream: TcpStream,
    packet_id: u16,
}

impl Device {
    fn connect(broker: &Broker, name: &str) -> Self {
        let mut stream = TcpStream::connect(broker.address("mqtt")).expect("the broker listens");
        let head = [0x10, 13 + name.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, name.len() as u8];
        stream.write_all(&[&head[..], name.as_bytes()].concat()).expect("sent");
        let mut connack = [0; 4];
        stream.read_exact(&mut connack).expect("a CONNACK");
        assert_eq!((connack[0], connack[3]), (0x20, 0), "let in");
        let mut answers = stream.try_clone().expect("two ends");
        std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        Self { stream, packet_id: 0 }
    }

    fn publish(&mut self) {
        self.packet_id = self.packet_id % 60_000 + 1;
        let [high, low] = self.packet_id.to_be_bytes();
        let head = [0x32, 14, 0, 3, b't', b'/', b'a', high, low, 0];
        self.stream.write_all(&[&head[..], b"12.3 C"].concat()).expect("sent");
    }
}

fn output_of(command: &mut Command) -> Output {
    command.output().expect("the command runs")
}

#[test]
fn the_broker_in_virtual_time_does_what_the_real_one_did() {
    let config = "[backoff]\nenforce = \"always\"\n";
    let broker = Launch::new().door("admin").config(config).arguments(["--shards", "1"]).start();
    let folder = broker.folder();
    let file = folder.join("trace.csv");
    let groups = ["--group", "devices=d*"];
    let mut recorder =
        tidegate(&["trace", "record", "--for", "8s", "--admin", &broker.admin(), groups[0], groups[1], "--out"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map(Ends)
            .expect("the recorder runs");
    let mut line = String::new();
    BufReader::new(recorder.0.stderr.take().expect("piped")).read_line(&mut line).expect("it speaks");
    assert!(line.starts_with("recording"), "{line}");
    // A second recording is refused, and says why.
    let second = output_of(tidegate(&["trace", "record", "--admin", &broker.admin(), "--out"]).arg(folder.join("2")));
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("a recording is under way"));

    let mut devices: Vec<Device> = (0..4).map(|number| Device::connect(&broker, &format!("d{number}"))).collect();
    let start = Instant::now();
    let mut sent = 0_u64;
    while start.elapsed() < Duration::from_secs(6) {
        devices.iter_mut().for_each(Device::publish);
        sent += 4;
        // The first one loses its rhythm half-way.
        if start.elapsed() > Duration::from_secs(3) {
            (0..20).for_each(|_| devices[0].publish());
            sent += 20;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(recorder.0.wait().expect("it ends").success());
    let mut said = String::new();
    recorder.0.stdout.take().expect("piped").read_to_string(&mut said).expect("it speaks");
    assert!(said.contains("4 publishers, 0 missed"), "{said}");
    let text = std::fs::read_to_string(&file).expect("a trace");
    assert!(!text.contains("d0") && !text.contains("t/a"), "a trace has no names");
    assert!(text.contains("\n# group 1 devices d*\n"), "but what its owner calls them");
    let recorded = text.lines().skip(3).count() as u64;
    assert!(text.lines().skip(3).all(|line| line.ends_with(",1")), "everybody is in the group");
    assert!(recorded > sent / 2 && recorded <= sent, "{recorded} of {sent}");

    let deadline = Instant::now() + Duration::from_secs(60);
    let mut entries = ledger(&broker);
    while entries["held"] != 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        entries = ledger(&broker);
    }
    let passed = entries["passed"].as_u64().expect("a number") as f64 / entries["received"].as_f64().expect("a number");
    assert!(passed < 0.9, "the flooder was slowed: {entries}");

    let out = folder.join("what-if");
    let asked = |more: &[&str]| {
        let output = output_of(what_if().arg(&file).args(more).arg("--json").arg("--out").arg(&out));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let answer = asked(&["--set", "backoff.enforce=always"]);
    let shares: Vec<f64> = answer["columns"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| {
            let of = |name: &str| column["groups"][0]["ends"][name].as_f64().expect("a number");
            1.0 - (of("refused") + of("shed") + of("unsent") + of("left")) / of("messages")
        })
        .collect();
    // As shipped nobody is slowed on an idle broker; as set, what the real one did: within a tenth.
    assert!((shares[0] - 1.0).abs() < 1e-9, "{shares:?}");
    assert!((shares[1] - passed).abs() < 0.1 * passed, "{shares:?} against {passed}: {entries}");

    // A limit is written as settings that a broker takes, and holds there.
    let answer = asked(&["--devices", "x3", "--limit", "devices=5/s"]);
    assert_eq!(answer["columns"].as_array().map(Vec::len), Some(3));
    assert!(answer["columns"][2]["groups"][1]["ends"]["waited"].as_u64() > Some(0), "{answer}");
    let written = out.join("settings.toml");
    let checked = output_of(tidegate(&["check", "-c"]).arg(&written));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let limited = Launch::new().door("admin").config(&std::fs::read_to_string(&written).expect("settings")).start();
    let mut device = Device::connect(&limited, "d9");
    (0..20).for_each(|_| device.publish());
    let deadline = Instant::now() + Duration::from_secs(60);
    let held = || ledger(&limited)["held"].as_u64().unwrap_or(0);
    while held() == 0 {
        assert!(Instant::now() < deadline, "nothing is held: {}", ledger(&limited));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_question_about_a_trace_refuses_what_it_does_not_know() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.csv");
    let ask = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).expect("written");
        let out = folder.path().join("lab");
        let output = output_of(what_if().arg(&file).arg("--out").arg(out).args(more));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = ask("no trace", &[]);
    assert_eq!((code, said.contains("line 1: this is no trace")), (Some(2), true), "{said}");
    let good = "# tidegate trace 1\n0,0,0,3,6,0,0\n";
    let (code, said) = ask(good, &["--set", "host.capacity=3/s"]);
    assert_eq!((code, said.contains("what can be asked about is backoff.enforce")), (Some(2), true), "{said}");
    let (code, said) = ask(good, &["--limit", "sensors=5/s"]);
    assert_eq!((code, said.contains("record it with --group sensors=PATTERN")), (Some(2), true), "{said}");
    let (code, said) = ask(good, &["--devices", "x3"]);
    assert_eq!(code, Some(0), "{said}");
}
