//! A real broker on free ports, and the tools beside it. Nothing sleeps: every step waits for what it needs, and `-W`
//! bounds all of it.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const SIGHUP: &str = "-HUP";
const SIGTERM: &str = "-TERM";

/// A broker that is ended with the test.
struct Broker {
    child: Child,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
    banner: String,
    mqtt_port: String,
    next_step: String,
}

fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The port of a door, from the line that the broker prints.
fn port_of(door: &str, banner: &str) -> String {
    let mut words = banner.split_whitespace().skip_while(|word| *word != door);
    let address = words.nth(1).unwrap_or_else(|| panic!("no {door} in {banner:?}"));
    address.rsplit(':').next().unwrap_or_default().to_owned()
}

impl Broker {
    fn start(config: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::start_in(folder, config, flags)
    }

    fn start_in(folder: tempfile::TempDir, config: &str, flags: &[&str]) -> Self {
        let file = folder.path().join("tidegate.toml");
        std::fs::write(&file, config).expect("the configuration is written");
        let data = folder.path().join("data");
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let mut child = binary(&[
            "serve",
            "--mqtt",
            "127.0.0.1:0",
            "--ws",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--http",
            "off",
            "--ssap",
            "off",
            "--shards",
            "2",
        ])
        .args(flags)
        .arg("-c")
        .arg(&file)
        .arg("--data")
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("the broker starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = || {
            let mut line = String::new();
            output.read_line(&mut line).expect("the broker speaks");
            line
        };
        let (banner, next_step) = (line(), line());
        let mqtt_port = port_of("mqtt", &banner);
        Self { child, output, folder, banner, mqtt_port, next_step }
    }

    fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = binary(&[tool, "-h", "127.0.0.1", "-p", &self.mqtt_port]);
        command.args(arguments);
        command
    }

    fn publish(&self, arguments: &[&str]) -> Output {
        self.command("pub", arguments).output().expect("pub runs")
    }

    /// A subscriber whose subscription the broker has confirmed.
    fn subscriber(&self, arguments: &[&str]) -> Child {
        let mut command = self.command("sub", arguments);
        let mut child =
            command.args(["-d", "-W", "20"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sub runs");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("subscribed") {
            line.clear();
            assert!(errors.read_line(&mut line).expect("sub speaks") > 0, "sub ended early");
        }
        // Somebody must read on, or the subscriber would block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        child
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the log is there")
    }

    /// Waits until the log contains this.
    fn await_log(&self, words: &str) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !self.log().contains(words) {
            assert!(std::time::Instant::now() < end, "{words:?} is not in:\n{}", self.log());
            std::thread::yield_now();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn finished(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("sub ends");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn add_user(broker_data: &std::path::Path, name: &str, password: &str) {
    let data = broker_data.display().to_string();
    let mut child = binary(&["user", "add", name, "--password-stdin", "--data", &data, "-c", "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("user runs");
    writeln!(child.stdin.take().expect("piped"), "{password}").expect("the password is read");
    assert!(child.wait().expect("user ends").success());
}

#[test]
fn the_first_five_minutes() {
    let broker = Broker::start("", &[]);
    assert!(broker.next_step.contains("tidegate user add"), "{}", broker.next_step);
    let subscriber = broker.subscriber(&["-t", "test/#", "-v", "-C", "1"]);
    assert!(broker.publish(&["-t", "test/a", "-m", "hello"]).status.success());
    assert_eq!(finished(subscriber), (Some(0), "test/a hello\n".to_owned()));
}

#[test]
fn every_version_and_quality_of_service_gets_through() {
    let broker = Broker::start("", &[]);
    for version in ["31", "311", "5"] {
        for qos in ["0", "1", "2"] {
            let id = format!("s-{version}-{qos}");
            let format = ["-F", "%t %p %q"];
            let subscriber = broker
                .subscriber(&[&["-V", version, "-q", qos, "-t", "x/+", "-C", "1", "-i", &id], &format[..]].concat());
            let output = broker.publish(&["-V", version, "-q", qos, "-t", "x/y", "-m", "m", "-i", "p"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(finished(subscriber), (Some(0), format!("x/y m {qos}\n")), "version {version}");
        }
    }
}

#[test]
fn properties_travel() {
    let broker = Broker::start("", &[]);
    let subscriber = broker.subscriber(&["-V", "5", "-t", "p", "-C", "1", "-F", "%P|%C|%p"]);
    let properties =
        ["-D", "publish", "user-property", "unit", "celsius", "-D", "publish", "content-type", "text/plain"];
    assert!(broker.publish(&[&["-V", "5", "-t", "p", "-m", "21"], &properties[..]].concat()).status.success());
    assert_eq!(finished(subscriber).1, "unit:celsius|text/plain|21\n");
}

#[test]
fn retained_messages_wait_and_can_be_deleted() {
    let broker = Broker::start("", &[]);
    assert!(broker.publish(&["-t", "r", "-m", "kept", "-r", "-q", "1"]).status.success());
    assert_eq!(finished(broker.subscriber(&["-t", "r", "-C", "1", "--retained-only"])), (Some(0), "kept\n".to_owned()));
    assert!(broker.publish(&["-t", "r", "-n", "-r", "-q", "1"]).status.success());
    let nothing = broker.command("sub", &["-t", "r", "-W", "0.5"]).output().expect("sub runs");
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(27), 0));
}

#[test]
fn lines_of_standard_input_become_messages_in_order() {
    let broker = Broker::start("", &[]);
    let subscriber = broker.subscriber(&["-t", "n", "-q", "1", "-C", "1000"]);
    let mut publisher =
        broker.command("pub", &["-t", "n", "-l", "-q", "1"]).stdin(Stdio::piped()).spawn().expect("pub runs");
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let numbers = format!("{}\n", numbers.join("\n"));
    publisher.stdin.take().expect("piped").write_all(numbers.as_bytes()).expect("pub reads");
    assert!(publisher.wait().expect("pub ends").success());
    assert_eq!(finished(subscriber), (Some(0), numbers));
}

#[test]
fn a_session_keeps_messages_for_its_client() {
    let broker = Broker::start("", &[]);
    let away = ["-t", "s", "-q", "1", "-c", "-i", "keeper"];
    let first = broker.command("sub", &[&away[..], &["-E"]].concat()).status().expect("sub runs");
    assert!(first.success());
    assert!(broker.publish(&["-t", "s", "-m", "later", "-q", "1"]).status.success());
    let back = broker.command("sub", &[&away[..], &["-C", "1", "-W", "20"]].concat()).output().expect("sub runs");
    assert_eq!(String::from_utf8_lossy(&back.stdout), "later\n");
}

#[test]
fn users_are_asked_for_their_password() {
    let folder = tempfile::tempdir().expect("a folder");
    add_user(&folder.path().join("data"), "alice", "secret");
    let broker = Broker::start_in(folder, "", &[]);
    let message = ["-t", "a", "-m", "x"];
    let code = |more: &[&str]| broker.publish(&[&message[..], more].concat()).status.code();
    assert_eq!(code(&["-u", "alice", "-P", "secret"]), Some(0));
    assert_eq!(code(&["-u", "alice", "-P", "wrong"]), Some(4));
    assert_eq!(code(&[]), Some(5));
    assert_eq!(code(&["-V", "5", "-u", "alice", "-P", "wrong"]), Some(0x86));
    assert_eq!(code(&["-V", "5"]), Some(0x87));
}

#[test]
fn a_reload_takes_new_users_and_keeps_the_connected() {
    let folder = tempfile::tempdir().expect("a folder");
    add_user(&folder.path().join("data"), "alice", "secret");
    let broker = Broker::start_in(folder, "", &[]);
    let subscriber = broker.subscriber(&["-t", "a", "-C", "1", "-u", "alice", "-P", "secret"]);
    add_user(&broker.folder.path().join("data"), "bob", "builder");
    broker.signal(SIGHUP);
    broker.await_log("event=reloaded");
    assert!(broker.publish(&["-t", "a", "-m", "x", "-u", "bob", "-P", "builder"]).status.success());
    assert_eq!(finished(subscriber), (Some(0), "x\n".to_owned()));
}

#[test]
fn f146_a_bad_file_at_reload_changes_nothing() {
    let broker = Broker::start("", &[]);
    std::fs::write(broker.folder.path().join("tidegate.toml"), "[limits]\nrecieve_max = 5\n").expect("written");
    broker.signal(SIGHUP);
    broker.await_log("the configuration from before stays in force");
    assert!(broker.log().contains("did you mean"), "{}", broker.log());
    assert!(broker.publish(&["-t", "a", "-m", "x", "-q", "1"]).status.success());
}

#[test]
fn a_drain_tells_clients_and_ends_with_code_0() {
    let mut broker = Broker::start("", &[]);
    // A client of MQTT 5 is told; `sub` would come back, so it is given a time.
    let subscriber = broker.subscriber(&["-V", "5", "-t", "a"]);
    broker.signal(SIGTERM);
    let status = broker.child.wait().expect("the broker ends");
    assert_eq!(status.code(), Some(0), "{}", broker.log());
    let mut subscriber = subscriber;
    subscriber.kill().expect("sub is ended");
    subscriber.wait().expect("sub ends");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut broker.output, &mut rest).expect("the output ends");
    assert!(rest.starts_with("config /") && rest.lines().count() == 1, "three lines are all that is printed: {rest}");
}

#[test]
fn tls_is_trusted_by_its_certificate_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (cert, key) = (write("cert.pem", made.cert.pem()), write("key.pem", made.signing_key.serialize_pem()));
    let flags = ["--cert", &cert, "--key", &key, "--mqtts", "127.0.0.1:0", "--wss", "off"];
    let broker = Broker::start_in(folder, "", &flags);
    let port = port_of("mqtts", &broker.banner);
    let publish = |more: &[&str]| {
        let all = [&["pub", "-h", "localhost", "-p", &port, "-t", "a", "-m", "x", "-q", "1"], more].concat();
        binary(&all).output().expect("pub runs").status.code()
    };
    assert_eq!(publish(&["--cafile", &cert]), Some(0));
    assert_eq!(publish(&["--insecure", "--tls-use-os-certs"]), Some(0));
    assert_eq!(publish(&["--insecure"]), Some(2), "it does not switch TLS on");
    assert_eq!(publish(&["--tls-use-os-certs"]), Some(8));
}

#[test]
fn what_is_not_allowed_is_said_on_both_sides() {
    let folder = tempfile::tempdir().expect("a folder");
    add_user(&folder.path().join("data"), "alice", "secret");
    let rule = "[limits]\npacket_bytes_max = \"1KiB\"\n\
                [[security.rule]]\nuser = \"alice\"\nallow = \"readwrite\"\ntopic = \"home/#\"\n";
    let broker = Broker::start_in(folder, rule, &[]);
    assert!(broker.next_step.contains("on this machine only; to listen for others"), "{}", broker.next_step);
    let alice = ["-u", "alice", "-P", "secret", "-i", "lamp"];
    let said = |tool: &str, arguments: &[&str]| {
        let output = broker.command(tool, &[&alice[..], arguments].concat()).output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = said("pub", &["-t", "else", "-m", "x", "-q", "1"]);
    assert!(code == Some(7) && text.contains("-V 5 would say why"), "{code:?} {text}");
    let (code, text) = said("pub", &["-t", "else", "-m", "x", "-q", "1", "-V", "5"]);
    assert!(code == Some(0x87) && text.contains("Not authorized"), "{code:?} {text}");
    let (code, text) = said("sub", &["-t", "else", "-W", "20"]);
    assert!(code == Some(0x80) && text.contains("version 3.1.1 does not say why"), "{code:?} {text}");
    let large = "x".repeat(2000);
    let (code, text) = said("pub", &["-t", "home/a", "-m", &large, "-V", "5"]);
    assert!(code == Some(25) && text.contains("at most 1024 (its limits.packet_bytes_max)"), "{code:?} {text}");
    let (code, text) = said("pub", &["-t", "home/a", "-m", &large, "-q", "1"]);
    assert!(code == Some(7) && text.contains("the message is too large"), "{code:?} {text}");
    let (code, text) = said("pub", &["-t", "home/a", "-m", "x", "--tls-use-os-certs", "--insecure"]);
    assert!(code == Some(8) && text.contains("does not speak TLS"), "{code:?} {text}");

    broker.await_log("event=denied client=\"lamp\" topic=\"else\"");
    broker.await_log("setting=limits.packet_bytes_max");
    broker.await_log("at most 1024 bytes are accepted");
    broker.await_log("why=\"message refused: not authorized\"");
    let log = broker.log();
    let connected = log.lines().find(|line| line.contains("event=connected")).expect("a connection");
    for field in ["user=\"alice\"", "peer=127.0.0.1:", "listener=mqtt", "protocol=3.1.1", "keep_alive=60"] {
        assert!(connected.contains(field), "{field} is not in {connected}");
    }
    assert!(!log.contains("suppressed="), "{log}");
    let broken: Vec<&str> = log.lines().filter(|line| line.contains("broke the protocol")).collect();
    assert_eq!(broken.len(), 1, "only the packet that is too large: {broken:#?}");
}

#[test]
fn users_do_not_close_what_allow_anonymous_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    add_user(&folder.path().join("data"), "alice", "secret");
    let broker = Broker::start_in(folder, "", &["--allow-anonymous"]);
    assert!(broker.next_step.starts_with("OPEN: anybody on this machine may come in"), "{}", broker.next_step);
    assert!(broker.next_step.contains("start without --allow-anonymous"), "{}", broker.next_step);
    broker.await_log("may come in without a name (allow_anonymous)");
    assert!(broker.publish(&["-t", "a", "-m", "x"]).status.success());
    let wrong = broker.publish(&["-t", "a", "-m", "x", "-u", "alice", "-P", "wrong", "-i", "lamp"]);
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(text.contains("does not know this user with this password"), "{text}");
    broker.await_log("client=\"lamp\" user=\"alice\" why=\"Bad User Name or Password\"");
}
