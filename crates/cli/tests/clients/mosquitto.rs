//! Debian's mosquitto_pub and mosquitto_sub (package mosquitto-clients), if they are on the path.
//!
//! `mosquitto_sub -d` says when it is subscribed; messages are told from its other words by a mark in their format.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use tidegate_test_support::skip::{Remedy, skip};

use crate::broker::{Broker, HOST};
use crate::install::{Outcome, run};

const VERSIONS: [&str; 3] = ["31", "311", "5"];
/// Topic, quality of service, retain flag and payload, behind the mark.
const FORMAT: &str = "> %t %q %r %p";
/// Seconds after which a tool gives up by itself: a guard.
const PATIENCE: &str = "20";

/// The two tools and a broker; `None`, aloud, if they are not installed.
fn tools() -> Option<Tools> {
    for tool in ["mosquitto_pub", "mosquitto_sub", "stdbuf"] {
        if let Err(why) = run(Command::new(tool).arg("--help")) {
            skip("mosquitto_pub and mosquitto_sub", &why, Remedy::Owner("apt-get install mosquitto-clients coreutils"));
            return None;
        }
    }
    Some(Tools { broker: Broker::start() })
}

struct Tools {
    broker: Broker,
}

impl Tools {
    /// Arguments that say where the broker is.
    fn at(&self) -> [String; 4] {
        ["-h".to_owned(), HOST.to_owned(), "-p".to_owned(), self.broker.ports.mqtt.to_string()]
    }

    fn publish(&self, arguments: &[&str]) -> Outcome {
        run(Command::new("mosquitto_pub").args(self.at()).args(arguments)).expect("mosquitto_pub runs")
    }

    /// Publishes what must arrive.
    fn send(&self, arguments: &[&str]) {
        let outcome = self.publish(arguments);
        assert_eq!((outcome.code, outcome.text.as_str()), (Some(0), ""), "{arguments:?}");
    }

    /// Runs a subscriber to its end.
    fn collect(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new("mosquitto_sub");
        run(command.args(self.at()).args(["-W", PATIENCE]).args(arguments)).expect("mosquitto_sub runs")
    }

    /// A subscriber whose subscription the broker has confirmed.
    fn subscriber(&self, arguments: &[&str]) -> Subscriber {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "mosquitto_sub", "-d", "-F", FORMAT, "-W", PATIENCE]).args(self.at()).args(arguments);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut subscriber = Subscriber { child, output };
        while !subscriber.line().expect("it says when it is subscribed").starts_with("Subscribed") {}
        subscriber
    }
}

/// A running mosquitto_sub, ended with the test.
struct Subscriber {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Subscriber {
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.output.read_line(&mut line).expect("it prints text");
        (count > 0).then(|| line.trim_end_matches('\n').to_owned())
    }

    /// The next message, formatted.
    fn receive(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.line()?.strip_prefix("> ") {
                return Some(message.to_owned());
            }
        }
    }

    /// All messages until it ends, and its exit code.
    fn finish(mut self) -> (Vec<String>, Option<i32>) {
        let messages = std::iter::from_fn(|| self.receive()).collect();
        (messages, self.child.wait().expect("it ends").code())
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn end(messages: &[&str]) -> (Vec<String>, Option<i32>) {
    (messages.iter().map(|message| (*message).to_owned()).collect(), Some(0))
}

#[test]
fn every_version_and_quality_of_service() {
    let Some(tools) = tools() else { return };
    for version in VERSIONS {
        for qos in ["0", "1", "2"] {
            let subscriber = tools.subscriber(&["-V", version, "-q", "2", "-t", "a/+", "-C", "2"]);
            tools.send(&["-V", version, "-q", qos, "-t", "a/b", "-m", "hello"]);
            tools.send(&["-V", version, "-q", qos, "-t", "a/c", "-n"]);
            let expected = [format!("a/b {qos} 0 hello"), format!("a/c {qos} 0 ")];
            assert_eq!(subscriber.finish(), end(&[&expected[0], &expected[1]]), "version {version}");
        }
    }
}

#[test]
fn versions_mix() {
    let Some(tools) = tools() else { return };
    for from in VERSIONS {
        for to in VERSIONS {
            let subscriber = tools.subscriber(&["-V", to, "-q", "1", "-t", "mix", "-C", "1"]);
            tools.send(&["-V", from, "-q", "2", "-t", "mix", "-m", from]);
            assert_eq!(subscriber.finish(), end(&[&format!("mix 1 0 {from}")]), "from {from} to {to}");
        }
    }
}

#[test]
fn retained_messages() {
    let Some(tools) = tools() else { return };
    for version in VERSIONS {
        tools.send(&["-V", version, "-t", "r/a", "-m", "kept", "-r", "-q", "1"]);
        let seen = tools.subscriber(&["-V", version, "-t", "r/#", "-q", "2", "-C", "1"]).finish();
        assert_eq!(seen, end(&["r/a 1 1 kept"]));
        let only = tools.collect(&["-V", version, "-t", "r/#", "--retained-only", "-C", "1"]);
        assert_eq!((only.code, only.text.as_str()), (Some(0), "kept\n"));
        tools.send(&["-V", version, "-t", "r/a", "-n", "-r", "-q", "1"]);
        let mut late = tools.subscriber(&["-V", version, "-t", "r/#"]);
        tools.send(&["-t", "r/end", "-m", "end"]);
        assert_eq!(late.receive().as_deref(), Some("r/end 0 0 end"));
    }
}

#[test]
fn wills() {
    let Some(tools) = tools() else { return };
    for version in VERSIONS {
        let topic = format!("will/{version}");
        let mut watcher = tools.subscriber(&["-V", version, "-t", &topic, "-t", "end", "-q", "2"]);
        let will = ["--will-topic", &topic, "--will-payload", "gone", "--will-qos", "2", "--will-retain"];
        // One that says goodbye leaves no will.
        tools.send(&[&["-V", version, "-t", "end", "-m", "x"], &will[..]].concat());
        tools.send(&["-V", version, "-t", "end", "-m", "y"]);
        assert_eq!(watcher.receive().as_deref(), Some("end 0 0 x"));
        assert_eq!(watcher.receive().as_deref(), Some("end 0 0 y"));
        drop(tools.subscriber(&[&["-V", version, "-t", "other"], &will[..]].concat()));
        assert_eq!(watcher.receive(), Some(format!("{topic} 2 0 gone")));
        let late = tools.subscriber(&["-V", version, "-t", &topic, "-q", "1", "-C", "1"]);
        assert_eq!(late.finish(), end(&[&format!("{topic} 1 1 gone")]));
    }
}

#[test]
fn queued_messages() {
    let Some(tools) = tools() else { return };
    for version in ["311", "5"] {
        let away = ["-V", version, "-c", "-i", "keeper", "-q", "2", "-t", "q/#"];
        assert_eq!(tools.collect(&[&away[..], &["-E"]].concat()).code, Some(0));
        for (qos, payload) in [("1", "one"), ("0", "zero"), ("1", "two"), ("2", "three")] {
            tools.send(&["-q", qos, "-t", "q/x", "-m", payload]);
        }
        let back = tools.collect(&[&away[..], &["-C", "3", "-F", FORMAT]].concat());
        assert_eq!((back.code, back.text.as_str()), (Some(0), "> q/x 1 0 one\n> q/x 1 0 two\n> q/x 2 0 three\n"));
        // A clean session ends the kept one.
        assert_eq!(tools.collect(&["-V", version, "-i", "keeper", "-t", "x", "-E"]).code, Some(0));
    }
}

#[test]
fn shared_subscriptions() {
    let Some(tools) = tools() else { return };
    for version in ["311", "5"] {
        let filters = ["-V", version, "-q", "1", "-t", "$share/group/job", "-t", "end"];
        let members = [tools.subscriber(&filters), tools.subscriber(&filters)];
        for number in 0..10 {
            tools.send(&["-q", "1", "-t", "job", "-m", &number.to_string()]);
        }
        tools.send(&["-q", "1", "-t", "end", "-m", "end"]);
        let mut all = Vec::new();
        for mut member in members {
            let mine: Vec<_> = std::iter::from_fn(|| member.receive().filter(|line| line != "end 1 0 end")).collect();
            assert!(!mine.is_empty(), "a member got nothing");
            all.extend(mine);
        }
        all.sort_unstable();
        assert_eq!(all, (0..10).map(|number| format!("job 1 0 {number}")).collect::<Vec<_>>());
    }
}

#[test]
fn properties() {
    let Some(tools) = tools() else { return };
    let mut command = Command::new("mosquitto_sub");
    let filter = ["-V", "5", "-c", "-i", "keeper", "-q", "1", "-t", "p"];
    let run_it = |command: &mut Command| run(command.args(tools.at()).args(filter).args(["-W", PATIENCE]));
    let subscribed = run_it(command.args(["-E", "-D", "subscribe", "subscription-identifier", "42"]));
    assert_eq!(subscribed.expect("it runs").code, Some(0));
    let user = ["-D", "publish", "user-property"];
    let sent = ["-V", "5", "-q", "1", "-t", "p", "-m", "21"];
    let more = [
        &user[..],
        &["unit", "celsius"],
        &user[..],
        &["unit", "twice"],
        &["-D", "publish", "content-type", "text/plain"],
        &["-D", "publish", "response-topic", "answers"],
        &["-D", "publish", "correlation-data", "abc"],
        &["-D", "publish", "payload-format-indicator", "1"],
    ];
    tools.send(&[&sent[..], &more.concat()].concat());
    let format = "%P|%C|%R|%D|%F|%S|%p";
    let seen = run_it(Command::new("mosquitto_sub").args(["-C", "1", "-F", format])).expect("it runs");
    assert_eq!(seen.code, Some(0), "{}", seen.text);
    assert_eq!(seen.text, "unit:celsius unit:twice|text/plain|answers|abc|1|42|21\n");
}

#[test]
fn a_message_as_json_and_a_wait_that_ends() {
    let Some(tools) = tools() else { return };
    tools.send(&["-t", "j", "-m", "{\"a\":1}", "-r", "-q", "1"]);
    let seen = tools.collect(&["-t", "j", "-C", "1", "-q", "1", "-F", "%J"]);
    assert_eq!(seen.code, Some(0), "{}", seen.text);
    for part in ["\"topic\":\"j\"", "\"qos\":1", "\"retain\":1", "\"payload\":{\"a\":1}"] {
        assert!(seen.text.contains(part), "{part} is not in {}", seen.text);
    }
    // Nobody publishes here: the tool's own code for a wait that is over.
    assert_eq!(tools.collect(&["-t", "silent", "-W", "1"]).code, Some(27));
}

#[test]
fn encrypted() {
    let Some(tools) = tools() else { return };
    let ca = tools.broker.ca_file().display().to_string();
    let port = tools.broker.ports.mqtts.to_string();
    let secure = ["-h", HOST, "-p", &port, "--cafile", &ca];
    for (version, tls) in [("311", "tlsv1.2"), ("5", "tlsv1.3")] {
        let retained = ["-V", version, "-q", "2", "-t", "tls", "-m", "secret", "-r", "--tls-version", tls];
        let sent = run(Command::new("mosquitto_pub").args(secure).args(retained)).expect("it runs");
        assert_eq!((sent.code, sent.text.as_str()), (Some(0), ""));
        let filter = ["-V", version, "-q", "2", "-t", "tls", "-C", "1", "-W", PATIENCE, "--tls-alpn", "mqtt"];
        let seen = run(Command::new("mosquitto_sub").args(secure).args(filter)).expect("it runs");
        assert_eq!((seen.code, seen.text.as_str()), (Some(0), "secret\n"));
    }
    // An authority that did not sign the broker's certificate is not believed.
    let stranger = Broker::start();
    let other = stranger.ca_file().display().to_string();
    let refused = ["-h", HOST, "-p", &port, "--cafile", &other, "-t", "tls", "-m", "x"];
    assert_ne!(run(Command::new("mosquitto_pub").args(refused)).expect("it runs").code, Some(0));
}

#[test]
fn a_thousand_lines_and_a_large_file() {
    let Some(tools) = tools() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large");
    let text = "0123456789abcdef".repeat(200 * 1024 / 16);
    std::fs::write(&path, &text).expect("written");
    let file = path.display().to_string();
    for qos in ["0", "1", "2"] {
        let subscriber = tools.subscriber(&["-q", qos, "-t", "many", "-C", "1001"]);
        let mut many = Command::new("mosquitto_pub");
        many.args(tools.at()).args(["-q", qos, "-t", "many", "-m", "x", "--repeat", "1000"]);
        assert_eq!(run(&mut many).expect("it runs").code, Some(0));
        tools.send(&["-q", qos, "-t", "many", "-f", &file]);
        let (mut messages, code) = subscriber.finish();
        assert_eq!((messages.len(), code), (1001, Some(0)));
        // It came from another client, and may overtake what waits of the first one.
        let large = format!("many {qos} 0 {text}");
        let place = messages.iter().position(|message| *message == large).expect("as it was sent");
        messages.remove(place);
        assert!(messages.iter().all(|message| *message == format!("many {qos} 0 x")));
    }
}

/// Runs both subscribers with the same arguments.
fn both(tools: &Tools, arguments: &[&str]) -> [(Option<i32>, String); 2] {
    let theirs = Command::new("mosquitto_sub");
    let mut ours = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    ours.arg("sub");
    [theirs, ours].map(|mut command| {
        let outcome = run(command.args(tools.at()).args(["-W", PATIENCE]).args(arguments)).expect("it runs");
        (outcome.code, outcome.text)
    })
}

#[test]
fn our_subscriber_prints_what_theirs_prints() {
    let Some(tools) = tools() else { return };
    for (topic, payload) in [("s/a", "21.5"), ("s/b", "{\"v\":1}"), ("s/c", "two words")] {
        tools.send(&["-t", topic, "-m", payload, "-r", "-q", "1"]);
    }
    for arguments in [
        &["-C", "3"][..],
        &["-C", "3", "-v"],
        &["-C", "3", "-N"],
        &["-C", "2", "-T", "s/b"],
        &["-C", "3", "-q", "1", "-F", "%t|%q|%r|%l|%p"],
        &["-C", "3", "-F", "%x %X %% \\t."],
        &["-C", "3", "--retained-only", "-I", "prefix", "-k", "30", "--nodelay"],
        &["-E"],
        &["-W", "1", "-R"],
    ] {
        let [theirs, ours] = both(&tools, &[&["-t", "s/+"], arguments].concat());
        assert_eq!(ours, theirs, "{arguments:?}");
    }
}

#[test]
fn our_subscriber_deletes_what_is_retained_as_theirs_does() {
    let Some(tools) = tools() else { return };
    let ours = env!("CARGO_BIN_EXE_tidegate");
    // With -C theirs (2.0.11) waits for its time to be over all the same.
    let (time, count) = (&["-W", "1"][..], &["-C", "2", "-W", PATIENCE][..]);
    let seen =
        [("mosquitto_sub", &[][..], time), (ours, &["sub"], time), (ours, &["sub"], count)].map(|(tool, verb, end)| {
            for topic in ["d/a", "d/b", "d/keep"] {
                tools.send(&["-t", topic, "-m", "x", "-r", "-q", "1"]);
            }
            let mut command = Command::new(tool);
            let remove = ["-t", "d/+", "--remove-retained", "-T", "d/keep", "-v"];
            let removed = run(command.args(verb).args(tools.at()).args(remove).args(end)).expect("it runs");
            let left = tools.collect(&["-t", "d/+", "-C", "1", "-v"]);
            assert_eq!(left.text, "d/keep x\n");
            (removed.code, removed.text)
        });
    let all = (Some(27), "d/a x\nd/b x\nd/a (null)\nd/b (null)\nTimed out\n".to_owned());
    assert_eq!(seen, [all.clone(), all, (Some(0), "d/a x\nd/b x\n".to_owned())]);
}

#[test]
fn options_from_a_file_and_an_address_of_our_own() {
    let Some(tools) = tools() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("options");
    std::fs::write(&path, format!("# where\n-h 127.0.0.1\n-p {}\n-t o\n-q 0\n", tools.broker.ports.mqtt))
        .expect("written");
    let subscriber = tools.subscriber(&["-t", "o", "-q", "1", "-C", "1"]);
    let mut ours = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let file = path.display().to_string();
    let sent =
        run(ours.args(["pub", "-o", &file, "-A", "127.0.0.2", "-m", "x", "-q", "1", "-M", "1"])).expect("it runs");
    assert_eq!((sent.code, sent.text.as_str()), (Some(0), ""));
    assert_eq!(subscriber.finish(), end(&["o 1 0 x"]), "the command line wins over the file");
}
