//! A running broker and clients of it, ended with the test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::http::{body, code, exchange};
use crate::program::{text, tidegate};

/// A guard only: whoever waits so long waits for nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A broker of its own process.
#[derive(Debug)]
pub struct Broker {
    /// Its process.
    pub child: Child,
    /// What it prints after its first line.
    pub output: BufReader<ChildStdout>,
    banner: String,
    log: PathBuf,
    /// Where its part of the log begins: others may have been in the same folder before.
    log_begins: usize,
    _folder: Option<tempfile::TempDir>,
}

impl Broker {
    /// Runs a command whose first line says where a broker listens; what it logs is added to `log`. The error is what it
    /// has said instead.
    pub fn start(command: Command, log: &Path, folder: Option<tempfile::TempDir>) -> Result<Self, String> {
        Self::start_within(PATIENCE, command, log, folder)
    }

    fn start_within(
        patience: Duration,
        mut command: Command,
        log: &Path,
        folder: Option<tempfile::TempDir>,
    ) -> Result<Self, String> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log");
        let log_begins = file.metadata().map_or(0, |about| about.len() as usize);
        let mut child = command.stdout(Stdio::piped()).stderr(file).spawn().map_err(|error| error.to_string())?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let Some((banner, output)) = first_line(output, patience) else {
            let _ = child.kill();
            let _ = child.wait();
            let logged = std::fs::read_to_string(log).expect("a log").split_off(log_begins);
            return Err(format!("nothing for {} s; its log: {logged}", patience.as_secs_f32()));
        };
        let mut broker = Self { child, output, banner, log: log.to_owned(), log_begins, _folder: folder };
        if broker.find("mqtt").is_none() {
            let _ = broker.child.kill();
            let _ = broker.child.wait();
            return Err(broker.log());
        }
        Ok(broker)
    }

    /// Address and port of a door as the first line has it: `mqtt`, `mqtts`, `ws`, `wss`, `admin`, `sparql`, `https`,
    /// `coap`, `coaps`, `sn`, `topics`, `ssap`, `ssaps`, `sepa-http`, `sepa-ws`.
    #[must_use]
    pub fn address(&self, door: &str) -> &str {
        self.find(door).unwrap_or_else(|| panic!("no {door} in {:?}", self.banner))
    }

    fn find(&self, door: &str) -> Option<&str> {
        // `mqtt 127.0.0.1:1883  ws://127.0.0.1:8083/mqtt  admin http://127.0.0.1:18830`
        let part = self.banner.split("  ").find_map(|part| part.strip_prefix(door)?.strip_prefix([' ', ':']))?;
        part.trim_start_matches("http:").trim_start_matches("//").split(['/', ' ', '\n']).next()
    }

    /// The port of a door.
    #[must_use]
    pub fn port(&self, door: &str) -> u16 {
        let port = self.address(door).rsplit(':').next().and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("{door} has no port in {:?}", self.banner))
    }

    /// The operator's door, as commands and browsers want it.
    #[must_use]
    pub fn admin(&self) -> String {
        format!("http://{}", self.address("admin"))
    }

    /// Ends it at once.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Sends a signal, as `kill` spells it: `-HUP`.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.log.parent().expect("a log lies in a folder")
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log").split_off(self.log_begins)
    }

    /// How many lines of the log have this.
    #[must_use]
    pub fn logged(&self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    /// Waits until a line of the log has this.
    pub fn await_log(&self, words: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.log().lines().find(|line| line.contains(words)) {
                return line.to_owned();
            }
            assert!(Instant::now() < end, "{words:?} is not in:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A sample of the metrics page, by its name and labels as the page writes them.
    #[must_use]
    pub fn metric(&self, sample: &str) -> f64 {
        let host = self.address("admin");
        let page = exchange(host, &format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n"));
        let line = body(&page).lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {sample} in {page}"))
    }

    /// SPARQL that changes something.
    pub fn update(&self, sparql: &str) {
        let answer = self.post("/update", "application/sparql-update", sparql);
        assert_eq!(code(&answer), 200, "{answer}");
    }

    /// A request to the smart space; the answer.
    #[must_use]
    pub fn post(&self, path: &str, kind: &str, body: &str) -> String {
        let (host, length) = (self.address("sparql"), body.len());
        let head = format!("POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: {kind}\r\n");
        exchange(host, &format!("{head}Content-Length: {length}\r\n\r\n{body}"))
    }

    /// `pub` or `sub`, with the broker's address.
    #[must_use]
    pub fn tool(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = tidegate(&[name, "-h", "127.0.0.1", "-p", &self.port("mqtt").to_string()]);
        command.args(arguments);
        command
    }

    /// Runs `pub` to its end.
    #[must_use]
    pub fn publish(&self, arguments: &[&str]) -> Output {
        self.tool("pub", arguments).output().expect("pub runs")
    }

    /// Publishes what must be taken.
    pub fn send(&self, arguments: &[&str]) {
        let done = self.publish(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    }

    /// A subscriber whose subscription the broker has confirmed. It gives up by itself in the end.
    #[must_use]
    pub fn subscriber(&self, arguments: &[&str]) -> Client {
        let mut command = self.tool("sub", arguments);
        command.args(["-d", "-W", &PATIENCE.as_secs().to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("sub runs");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("subscribed") {
            line.clear();
            assert!(errors.read_line(&mut line).expect("sub speaks") > 0, "sub ended early");
        }
        // Somebody must read on, or the subscriber would block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Client { child, output }
    }
}

/// The first line that a program prints, if it comes in time, and what follows it. The thread that waits for the line ends
/// with the program.
fn first_line(mut output: BufReader<ChildStdout>, patience: Duration) -> Option<(String, BufReader<ChildStdout>)> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        output.read_line(&mut line).expect("what a program prints is text");
        let _ = sender.send((line, output));
    });
    receiver.recv_timeout(patience).ok()
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the broker's log:\n{}", self.log());
        }
    }
}

/// A running `tidegate sub`.
#[derive(Debug)]
pub struct Client {
    /// Its process.
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("sub speaks");
        line.trim_end().to_owned()
    }

    /// Its exit code, and all that it printed until then.
    #[must_use]
    pub fn finish(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).expect("sub speaks");
        (self.child.wait().expect("sub ends").code(), printed)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::Broker;

    fn start(script: &str, patience: Duration) -> Result<Broker, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, mut shell) = (folder.path().join("log"), Command::new("sh"));
        shell.args(["-c", script]);
        Broker::start_within(patience, shell, &log, Some(folder))
    }

    #[test]
    fn a_program_that_says_nothing_is_given_up_with_its_log() {
        let said = start("echo stuck >&2; exec sleep 600", Duration::from_millis(200)).expect_err("it says nothing");
        assert!(said.starts_with("nothing for 0.2 s") && said.ends_with("stuck\n"), "{said}");
    }

    #[test]
    fn what_follows_the_first_line_can_be_read() {
        let script = "echo 'mqtt 127.0.0.1:1'; echo more; exec sleep 600";
        let mut broker = start(script, super::PATIENCE).expect("it listens");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut broker.output, &mut line).expect("it speaks");
        assert_eq!((broker.port("mqtt"), line.as_str()), (1, "more\n"));
    }
}
