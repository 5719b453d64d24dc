//! curl at the door for topics over HTTP, if it is on the path, beside an MQTT client: as `docs/http.md` shows it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch};

use crate::install::{Outcome, run};

fn is_here() -> bool {
    let found = run(Command::new("curl").arg("--version")).is_ok();
    if !found {
        skip("curl", "no such program", Remedy::Owner("apt-get install curl"));
    }
    found
}

fn launch() -> Launch {
    Launch::new().door("http-topics").door("admin")
}

fn url(broker: &Broker, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", broker.port("topics"))
}

fn curl(broker: &Broker, arguments: &[&str], path: &str) -> Outcome {
    run(Command::new("curl").args(["-sS", "--max-time", "30"]).args(arguments).arg(url(broker, path))).expect("it runs")
}

/// The status of what curl asks.
fn status(broker: &Broker, arguments: &[&str], path: &str) -> String {
    curl(broker, &[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat(), path).text
}

/// A stream that curl reads.
struct Events {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Events {
    fn open(broker: &Broker, arguments: &[&str], path: &str) -> Self {
        let mut command = Command::new("curl");
        command.args(["-sSN", "-H", "Accept: text/event-stream"]).args(arguments).arg(url(broker, path));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("curl starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut events = Self { child, lines };
        // It is there when it has said where it stands.
        events.line("id: ");
        events
    }

    /// The next line that begins so, without the beginning.
    fn line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("it reads") > 0, "the stream ended");
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_message_goes_in_and_out_at_both_doors_once() {
    if !is_here() {
        return;
    }
    for shards in ["1", "2"] {
        let broker = launch().arguments(["--shards", shards]).start();
        let subscriber = broker.subscriber(&["-t", "home/#", "-v", "-C", "3", "-q", "1"]);
        let mut events = Events::open(&broker, &[], "/topics/home/%23");
        let chunks = ["-H", "Transfer-Encoding: chunked", "-d", "in chunks"];
        assert_eq!(status(&broker, &chunks, "/topics/home/chunks"), "204");
        assert_eq!(status(&broker, &["-X", "PUT", "-d", "21.5"], "/topics/home/t"), "201");
        let large = "0123456789abcdef".repeat(10_000);
        let file = broker.folder().join("large");
        std::fs::write(&file, &large).expect("a file");
        assert_eq!(status(&broker, &["-T", &file.display().to_string()], "/topics/home/large"), "201");
        let expected = format!("home/chunks in chunks\nhome/t 21.5\nhome/large {large}\n");
        assert_eq!(subscriber.finish(), (Some(0), expected), "{shards} shards");
        assert_eq!(events.line("data: "), "{\"topic\":\"home/chunks\",\"payload\":\"in chunks\"}");
        assert_eq!(events.line("data: "), "{\"topic\":\"home/t\",\"payload\":\"21.5\"}");
        assert_eq!(events.line("data: ").len(), large.len() + "{\"topic\":\"home/large\",\"payload\":\"\"}".len());
        assert_eq!(curl(&broker, &[], "/topics/home/t").text, "21.5");
        broker.send(&["-t", "home/t", "-m", "from MQTT", "-r", "-q", "1"]);
        assert_eq!(events.line("data: "), "{\"topic\":\"home/t\",\"payload\":\"from MQTT\"}");
        assert_eq!(curl(&broker, &[], "/topics/home/t").text, "from MQTT");
        assert_eq!(status(&broker, &["-X", "DELETE"], "/topics/home/t"), "204");
        assert_eq!(status(&broker, &[], "/topics/home/t"), "404");
        assert_eq!(status(&broker, &["-d", "x"], "/topics/home/t?qos=0"), "202");
        assert!(broker.metric("tidegate_topics_http_total{event=\"requests\"}") >= 8.0);
        assert!(broker.metric("tidegate_topics_streams") >= 1.0);
    }
}

#[test]
fn curl_that_was_away_is_told_what_it_missed() {
    if !is_here() {
        return;
    }
    let broker = launch().start();
    let mut events = Events::open(&broker, &[], "/topics/%23");
    broker.send(&["-t", "a", "-m", "1"]);
    let id = events.line("id: ");
    drop(events);
    broker.send(&["-t", "a", "-m", "2", "-q", "1"]);
    let mut back = Events::open(&broker, &["-H", &format!("Last-Event-ID: {id}")], "/topics/%23");
    assert_eq!(back.line("data: "), "{\"topic\":\"a\",\"payload\":\"2\"}");
    let mut unknown = Events::open(&broker, &["-H", "Last-Event-ID: nobody-1"], "/topics/%23");
    assert_eq!(unknown.line("event: "), "missed");
    assert_eq!(unknown.line("data: "), "{\"count\":null}");
}

#[test]
fn users_and_rules_are_those_of_all_doors() {
    if !is_here() {
        return;
    }
    let rule = "[[security.rule]]\nuser = \"ann\"\nallow = \"readwrite\"\ntopic = \"home/#\"\n";
    let broker = launch().config(rule).user("ann", "").start();
    assert_eq!(status(&broker, &["-d", "x"], "/topics/home/t"), "401");
    assert_eq!(status(&broker, &["-u", "ann:wrong", "-d", "x"], "/topics/home/t"), "401");
    assert_eq!(status(&broker, &["-u", "ann:secret", "-d", "x"], "/topics/home/t"), "204");
    assert_eq!(status(&broker, &["-u", "ann:secret", "-d", "x"], "/topics/other"), "403");
    assert_eq!(status(&broker, &["-u", "ann:secret", "-H", "Accept: text/event-stream"], "/topics/other"), "403");
}

#[test]
fn a_flooder_is_slowed_in_the_words_of_http() {
    if !is_here() {
        return;
    }
    let broker = launch().config("[limits]\nrate = \"5/s\"\n").start();
    let (mut taken, mut refused) = (0, 0);
    // One connection, as fast as curl can.
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--max-time",
        "30",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %header{retry-after}\n",
        "-d",
        "x",
    ]);
    let path = url(&broker, "/topics/flood?qos=0");
    command.args(vec![path; 200]);
    let outcome = run(&mut command).expect("it runs");
    for line in outcome.text.lines() {
        match line.split_once(' ') {
            Some(("202", _)) => taken += 1,
            Some(("429", after)) if after.parse::<u32>().is_ok_and(|after| after > 0) => refused += 1,
            _ => {}
        }
    }
    assert!(taken > 0 && refused > 0, "{}", outcome.text);
}
