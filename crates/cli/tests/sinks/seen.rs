//! What goes to the only sink of a broker, and what an operator sees of it until it is what a test waits for.

use std::io::Write;
use std::ops::Range;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_test_support::{Broker, PATIENCE, text, tidegate};

/// What `tidegate sinks --json` says of it.
fn seen(broker: &Broker) -> Value {
    let output = tidegate(&["sinks", "--json", "--admin", &broker.admin()]).output().expect("sinks runs");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    answer["sinks"][0].clone()
}

pub(crate) fn await_seen(broker: &Broker, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let sink = seen(broker);
        if is_so(&sink) {
            return sink;
        }
        assert!(Instant::now() < end, "never {what}: {sink}\n{}", broker.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Publishes each line to `sensors/n` with QoS 1, by one client.
pub(crate) fn publish_lines(broker: &Broker, lines: &[String]) {
    let mut child = broker.tool("pub", &["-t", "sensors/n", "-q", "1", "-l"]);
    let mut child = child.stdin(Stdio::piped()).spawn().expect("pub runs");
    child.stdin.take().expect("piped").write_all((lines.join("\n") + "\n").as_bytes()).expect("it reads");
    assert!(child.wait().expect("pub ends").success());
}

/// The same with numbers.
pub(crate) fn publish_numbers(broker: &Broker, numbers: Range<u32>) {
    publish_lines(broker, &numbers.map(|number| number.to_string()).collect::<Vec<_>>());
}

/// Numbers that arrived begin with this one and leave none out; some may come again.
pub(crate) fn assert_in_order(arrived: impl IntoIterator<Item = u32>, numbers: Range<u32>) {
    let mut next = numbers.start;
    for number in arrived {
        assert!(number <= next, "{number} before {next}");
        next = next.max(number + 1);
    }
    assert_eq!(next, numbers.end, "all of them");
}
