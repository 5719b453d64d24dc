//! A sink to a Kafka cluster: the mock inside of librdkafka, which speaks the protocol on sockets (`kafka/cluster.py`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Broker, Launch};

use crate::install::{pip, python};
use crate::seen::{assert_in_order, await_seen, publish_numbers};

/// Of the topic `iot`.
const PARTITIONS: usize = 3;
/// "The request included a message larger than the max message size the server will accept."
const MESSAGE_TOO_LARGE: u16 = 10;

/// A record, as a reader of Kafka has it: partition, key and value.
type Record = (usize, String, String);

/// The cluster, ended with the test.
struct Cluster {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    addresses: String,
}

impl Cluster {
    fn start() -> Option<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sinks/kafka");
        let environment = match pip("confluent-kafka-2.16.1", &here) {
            Ok(environment) => environment,
            Err(why) => {
                skip("confluent-kafka", &why, Remedy::TestCommand("python3 with venv and pip, and a way to PyPI"));
                return None;
            }
        };
        let mut command = python(&environment);
        command.arg(here.join("cluster.py")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut cluster = Self { child, input, output, addresses: String::new() };
        cluster.addresses = cluster.line();
        cluster.order(&format!("create iot {PARTITIONS}"));
        Some(cluster)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        assert!(!line.is_empty(), "the cluster has ended");
        line.trim().to_owned()
    }

    fn order(&mut self, words: &str) -> String {
        writeln!(self.input, "{words}").expect("it listens");
        self.line()
    }

    fn records(&mut self) -> Vec<Record> {
        let answer = self.order(&format!("read iot {PARTITIONS}"));
        serde_json::from_str(&answer).expect("a list of records")
    }

    /// What came with this key, in order.
    fn values(&mut self, key: &str) -> Vec<String> {
        self.records().into_iter().filter(|(_, known, _)| known == key).map(|(_, _, value)| value).collect()
    }

    fn sink(&self, topic: &str) -> Broker {
        let config = format!(
            "[[sink]]\nname = \"stream\"\ntype = \"kafka\"\nurl = \"kafka://{}/{topic}\"\ntimeout = \"2s\"\n\
             [[sink.topic]]\nfilter = \"sensors/#\"\n[sink.batch]\nwait = \"20ms\"\n",
            self.addresses
        );
        Launch::new().door("admin").config(&config).start()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn records_have_their_topic_as_key_and_what_waits_comes_when_the_cluster_is_back() {
    let Some(mut cluster) = Cluster::start() else { return };
    let here = cluster.sink("iot");
    for number in 0..20 {
        here.send(&["-t", &format!("sensors/{number}"), "-m", "21.5", "-q", "1"]);
    }
    await_seen(&here, "taken", |sink| sink["sent"] == 20 && sink["queued"] == 0);
    let records = cluster.records();
    assert_eq!(records.len(), 20, "{records:?}");
    let used = (0..PARTITIONS).filter(|place| records.iter().any(|(partition, ..)| partition == place)).count();
    assert!(used > 1, "{records:?}");
    cluster.order("down");
    publish_numbers(&here, 0..200);
    await_seen(&here, "down", |sink| sink["state"] == "down" && sink["queued"] == 200);
    cluster.order("up");
    await_seen(&here, "drained", |sink| sink["queued"] == 0 && sink["state"] == "up");
    let numbers = cluster.values("sensors/n");
    assert_in_order(numbers.iter().map(|number| number.parse().expect("a number")), 0..200);
}

#[test]
fn a_lost_answer_makes_records_come_twice_and_a_refused_one_is_given_up() {
    let Some(mut cluster) = Cluster::start() else { return };
    let here = cluster.sink("iot");
    here.send(&["-t", "sensors/first", "-m", "x", "-q", "1"]);
    await_seen(&here, "taken", |sink| sink["sent"] == 1);
    cluster.order("stall 5000");
    here.send(&["-t", "sensors/late", "-m", "x", "-q", "1"]);
    await_seen(&here, "taken", |sink| sink["sent"] == 2 && sink["queued"] == 0 && sink["failures"].as_u64() > Some(0));
    assert!(cluster.values("sensors/late").len() > 1, "once without an answer, once with");
    // The partition is the one of the late record, so its broker has no other answer in store.
    cluster.order(&format!("refuse {MESSAGE_TOO_LARGE}"));
    here.send(&["-t", "sensors/late", "-m", "large", "-q", "1"]);
    let refused = await_seen(&here, "refused", |sink| sink["refused"] == 1 && sink["queued"] == 0);
    assert!(refused["refusal"].as_str().expect("words").contains("MessageTooLarge"), "{refused}");
    here.send(&["-t", "sensors/late", "-m", "after", "-q", "1"]);
    await_seen(&here, "taken", |sink| sink["sent"] == 3 && sink["queued"] == 0);
    let values = cluster.values("sensors/late");
    assert!(!values.contains(&"large".to_owned()) && values.last().is_some_and(|value| value == "after"), "{values:?}");
}

#[test]
fn a_topic_that_is_not_there_loses_nothing() {
    let Some(mut cluster) = Cluster::start() else { return };
    let here = cluster.sink("later");
    here.send(&["-t", "sensors/n", "-m", "0", "-q", "1"]);
    let down = await_seen(&here, "down", |sink| sink["state"] == "down");
    assert!(down["trouble"].as_str().expect("words").contains("there is no topic \"later\""), "{down}");
    cluster.order(&format!("create later {PARTITIONS}"));
    await_seen(&here, "drained", |sink| sink["sent"] == 1 && sink["queued"] == 0);
}
