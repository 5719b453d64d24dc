//! Pages, or parts of them, that the program itself writes.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::page::root;

/// Asks for writing instead of comparing.
const BLESS: &str = "TIDEGATE_BLESS";

fn compare(name: &str, fresh: &str) {
    let path = root().join(name);
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, fresh).expect("the page is written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((number, (old, new))) =
        there.lines().chain([""]).zip(fresh.lines().chain([""])).enumerate().find(|(_, (old, new))| old != new)
    {
        panic!(
            "{name}:{} is out of date:\n  {old}\n  {new}\nwrite it anew: {BLESS}=1 cargo test -p tidegate-cli --test docs",
            number + 1
        );
    }
    assert_eq!(there.lines().count(), fresh.lines().count(), "{name} is out of date: {BLESS}=1 writes it anew");
}

fn tidegate(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_configuration_page_is_what_the_program_prints() {
    compare("docs/configuration.md", &tidegate(&["config", "reference"]));
}

const BEGIN: &str = "<!-- from here on by the program: what a broker answers to /metrics -->";

#[test]
fn the_metrics_page_has_what_a_broker_says() {
    let name = "docs/metrics.md";
    let text = std::fs::read_to_string(root().join(name)).expect("the page");
    let head = text.split(BEGIN).next().unwrap_or_default();
    compare(name, &format!("{head}{BEGIN}\n\n{}", metrics_table(&metrics())));
}

/// What `/metrics` says of a broker that has a bit of everything: a certificate, maps, a bridge, a sink, a request to the smart space;
/// and what a guard has besides.
fn metrics() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    tidegate(&["init", "--tls", "--folder", &path("made")]);
    let example = std::fs::read_to_string(root().join("examples/sosa.toml")).expect("an example");
    let bridge = "[[bridge]]\nname = \"hub\"\naddress = [\"127.0.0.1:9\"]\n[[bridge.topic]]\nfilter = \"#\"\ndirection = \"out\"\n";
    let sink =
        "[[sink]]\nname = \"log\"\ntype = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\n[[sink.topic]]\nfilter = \"#\"\n";
    std::fs::write(folder.path().join("tidegate.toml"), format!("{example}\n{bridge}{sink}")).expect("a configuration");
    let doors = [
        "--mqtt",
        "--mqtts",
        "--ws",
        "--wss",
        "--http",
        "--ssap",
        "--coap",
        "--coaps",
        "--sn",
        "--http-topics",
        "--amqp",
        "--admin",
    ];
    let certificate = [path("made/tidegate-data/cert.pem"), path("made/tidegate-data/key.pem")];
    let (config, data) = (path("tidegate.toml"), path("data"));
    let files = ["--cert", &certificate[0], "--key", &certificate[1], "--config", &config, "--data", &data];
    let broker = Started::with(&doors, &files);
    tidegate(&["rdf", "query", "ASK {}", "--url", &broker.door("sparql")]);
    // Who is in trouble is there from the first look at all clients on.
    let mut answers = (0..200).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        broker.metrics()
    });
    let answer = answers.find(|text| text.contains("\ntidegate_alarms{")).expect("a look at all clients");
    let guard = Started::with(
        &["--mqtt", "--ws", "--admin"],
        &["--set", "guard.upstream=127.0.0.1:9", "--data", &path("guard")],
    );
    let of_guard = guard.metrics();
    let of_guard: Vec<&str> = of_guard.lines().filter(|line| line.contains("tidegate_guard_")).collect();
    format!("{}\n{}\n", answer.trim_end(), of_guard.join("\n"))
}

/// A process that serves, until it is dropped.
struct Started {
    process: Child,
    banner: String,
    /// Kept open: what it says later is to go somewhere.
    _said: BufReader<ChildStdout>,
}

impl Started {
    fn with(doors: &[&str], arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        for door in doors {
            command.args([door, "127.0.0.1:0"]);
        }
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("the broker starts");
        let mut banner = String::new();
        let mut said = BufReader::new(process.stdout.take().expect("piped"));
        said.read_line(&mut banner).expect("the broker speaks");
        Self { process, banner, _said: said }
    }

    fn door(&self, name: &str) -> String {
        let word = self.banner.split_whitespace().skip_while(|word| *word != name).nth(1);
        word.unwrap_or_else(|| panic!("no {name} in {:?}", self.banner)).to_owned()
    }

    fn metrics(&self) -> String {
        ask(self.door("admin").trim_start_matches("http://"), "/metrics")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}

fn ask(host: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(host).expect("the door is open");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// One row for each family: name, kind, labels, meaning.
fn metrics_table(text: &str) -> String {
    let mut table = "| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (family, kind) = line.split_once(' ').expect("a name and a kind");
        let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {family} "))).unwrap_or("");
        let sample = |suffix: &str| format!("{family}{suffix}");
        let name = match kind {
            "counter" => sample("_total"),
            "info" => sample("_info"),
            _ => sample(""),
        };
        let found = text.lines().find(|line| {
            line.strip_prefix(name.as_str())
                .or_else(|| line.strip_prefix(&sample("_bucket")))
                .is_some_and(|rest| rest.starts_with('{'))
        });
        let labels = found.and_then(|line| line.split_once('{')?.1.split_once('}')).map(|(labels, _)| labels);
        let labels = labels.unwrap_or_default().split("\",").filter_map(|pair| pair.split_once('='));
        let labels: Vec<String> =
            labels.map(|(label, _)| format!("`{label}`")).filter(|label| label != "`le`").collect();
        let _ = writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    table
}
