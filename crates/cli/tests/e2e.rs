//! A real broker on free ports, and the tools beside it. Nothing sleeps: every step waits for what it needs, and `-W`
//! bounds all of it.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, Read, Write};
use std::process::Stdio;

use tidegate_test_support::{Broker, Launch, add_user, tidegate};

const SIGHUP: &str = "-HUP";
const SIGTERM: &str = "-TERM";

/// With two shards, so that most messages cross from one to the other.
fn launch() -> Launch {
    Launch::new().door("ws").config("").arguments(["--shards", "2"])
}

/// The second line that it prints, which is for a person.
fn next_step(broker: &mut Broker) -> String {
    let mut line = String::new();
    broker.output.read_line(&mut line).expect("the broker speaks");
    line
}

#[test]
fn the_first_five_minutes() {
    let mut broker = launch().start();
    let said = next_step(&mut broker);
    assert!(said.contains("tidegate user add"), "{said}");
    let subscriber = broker.subscriber(&["-t", "test/#", "-v", "-C", "1"]);
    assert!(broker.publish(&["-t", "test/a", "-m", "hello"]).status.success());
    assert_eq!(subscriber.finish(), (Some(0), "test/a hello\n".to_owned()));
}

#[test]
fn every_version_and_quality_of_service_gets_through() {
    let broker = launch().start();
    for version in ["31", "311", "5"] {
        for qos in ["0", "1", "2"] {
            let id = format!("s-{version}-{qos}");
            let format = ["-F", "%t %p %q"];
            let subscriber = broker
                .subscriber(&[&["-V", version, "-q", qos, "-t", "x/+", "-C", "1", "-i", &id], &format[..]].concat());
            let output = broker.publish(&["-V", version, "-q", qos, "-t", "x/y", "-m", "m", "-i", "p"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(subscriber.finish(), (Some(0), format!("x/y m {qos}\n")), "version {version}");
        }
    }
}

#[test]
fn properties_travel() {
    let broker = launch().start();
    let subscriber = broker.subscriber(&["-V", "5", "-t", "p", "-C", "1", "-F", "%P|%C|%p"]);
    let properties =
        ["-D", "publish", "user-property", "unit", "celsius", "-D", "publish", "content-type", "text/plain"];
    assert!(broker.publish(&[&["-V", "5", "-t", "p", "-m", "21"], &properties[..]].concat()).status.success());
    assert_eq!(subscriber.finish().1, "unit:celsius|text/plain|21\n");
}

#[test]
fn retained_messages_wait_and_can_be_deleted() {
    let broker = launch().start();
    assert!(broker.publish(&["-t", "r", "-m", "kept", "-r", "-q", "1"]).status.success());
    assert_eq!(broker.subscriber(&["-t", "r", "-C", "1", "--retained-only"]).finish(), (Some(0), "kept\n".to_owned()));
    assert!(broker.publish(&["-t", "r", "-n", "-r", "-q", "1"]).status.success());
    let nothing = broker.tool("sub", &["-t", "r", "-W", "0.5"]).output().expect("sub runs");
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(27), 0));
}

#[test]
fn lines_of_standard_input_become_messages_in_order() {
    let broker = launch().start();
    let subscriber = broker.subscriber(&["-t", "n", "-q", "1", "-C", "1000"]);
    let mut publisher =
        broker.tool("pub", &["-t", "n", "-l", "-q", "1"]).stdin(Stdio::piped()).spawn().expect("pub runs");
    let numbers: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let numbers = format!("{}\n", numbers.join("\n"));
    publisher.stdin.take().expect("piped").write_all(numbers.as_bytes()).expect("pub reads");
    assert!(publisher.wait().expect("pub ends").success());
    assert_eq!(subscriber.finish(), (Some(0), numbers));
}

#[test]
fn a_session_keeps_messages_for_its_client() {
    let broker = launch().start();
    let away = ["-t", "s", "-q", "1", "-c", "-i", "keeper"];
    let first = broker.tool("sub", &[&away[..], &["-E"]].concat()).status().expect("sub runs");
    assert!(first.success());
    assert!(broker.publish(&["-t", "s", "-m", "later", "-q", "1"]).status.success());
    let back = broker.tool("sub", &[&away[..], &["-C", "1", "-W", "20"]].concat()).output().expect("sub runs");
    assert_eq!(String::from_utf8_lossy(&back.stdout), "later\n");
}

#[test]
fn users_are_asked_for_their_password() {
    let broker = launch().user("alice", "").start();
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
    let broker = launch().user("alice", "").start();
    let subscriber = broker.subscriber(&["-t", "a", "-C", "1", "-u", "alice", "-P", "secret"]);
    add_user(&broker.folder().join("data/users"), "bob", "", "builder");
    broker.signal(SIGHUP);
    broker.await_log("event=reloaded");
    assert!(broker.publish(&["-t", "a", "-m", "x", "-u", "bob", "-P", "builder"]).status.success());
    assert_eq!(subscriber.finish(), (Some(0), "x\n".to_owned()));
}

#[test]
fn f146_a_bad_file_at_reload_changes_nothing() {
    let broker = launch().start();
    std::fs::write(broker.folder().join("tidegate.toml"), "[limits]\nrecieve_max = 5\n").expect("written");
    broker.signal(SIGHUP);
    broker.await_log("the configuration from before stays in force");
    assert!(broker.log().contains("did you mean"), "{}", broker.log());
    assert!(broker.publish(&["-t", "a", "-m", "x", "-q", "1"]).status.success());
}

#[test]
fn a_drain_tells_clients_and_ends_with_code_0() {
    let mut broker = launch().start();
    // A client of MQTT 5 is told; `sub` would come back, so it is given a time.
    let subscriber = broker.subscriber(&["-V", "5", "-t", "a"]);
    broker.signal(SIGTERM);
    let status = broker.child.wait().expect("the broker ends");
    assert_eq!(status.code(), Some(0), "{}", broker.log());
    drop(subscriber);
    next_step(&mut broker);
    let mut rest = String::new();
    broker.output.read_to_string(&mut rest).expect("the output ends");
    assert!(rest.starts_with("config /") && rest.lines().count() == 1, "three lines are all that is printed: {rest}");
}

#[test]
fn tls_is_trusted_by_its_certificate_only() {
    let launch = launch();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = launch.folder().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (cert, key) = (write("cert.pem", made.cert.pem()), write("key.pem", made.signing_key.serialize_pem()));
    let flags = ["--cert", &cert, "--key", &key, "--mqtts", "127.0.0.1:0", "--wss", "off"];
    let broker = launch.arguments(flags).start();
    let port = broker.port("mqtts").to_string();
    let publish = |more: &[&str]| {
        let all = [&["pub", "-h", "localhost", "-p", &port, "-t", "a", "-m", "x", "-q", "1"], more].concat();
        tidegate(&all).output().expect("pub runs").status.code()
    };
    assert_eq!(publish(&["--cafile", &cert]), Some(0));
    let plain = tidegate(&["pub", "-h", "127.0.0.1", "-p", &port, "-t", "a", "-m", "x"]).output().expect("runs");
    let said = String::from_utf8_lossy(&plain.stderr);
    assert!(plain.status.code() == Some(8) && said.contains("this port speaks TLS"), "{said}");
    assert_eq!(publish(&["--insecure", "--tls-use-os-certs"]), Some(0));
    assert_eq!(publish(&["--insecure"]), Some(2), "it does not switch TLS on");
    assert_eq!(publish(&["--tls-use-os-certs"]), Some(8));
}

#[test]
fn what_is_not_allowed_is_said_on_both_sides() {
    let rule = "[limits]\npacket_bytes_max = \"1KiB\"\n\
                [[security.rule]]\nuser = \"alice\"\nallow = \"readwrite\"\ntopic = \"home/#\"\n";
    let mut broker = launch().config(rule).user("alice", "").start();
    let said = next_step(&mut broker);
    assert!(said.contains("on this machine only; to listen for others"), "{said}");
    let alice = ["-u", "alice", "-P", "secret", "-i", "lamp"];
    let said = |tool: &str, arguments: &[&str]| {
        let output = broker.tool(tool, &[&alice[..], arguments].concat()).output().expect("runs");
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
    let mut broker = launch().user("alice", "").arguments(["--allow-anonymous"]).start();
    let said = next_step(&mut broker);
    assert!(said.starts_with("OPEN: anybody on this machine may come in"), "{said}");
    assert!(said.contains("start without --allow-anonymous"), "{said}");
    broker.await_log("may come in without a name (allow_anonymous)");
    assert!(broker.publish(&["-t", "a", "-m", "x"]).status.success());
    let wrong = broker.publish(&["-t", "a", "-m", "x", "-u", "alice", "-P", "wrong", "-i", "lamp"]);
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(text.contains("does not know this user with this password"), "{text}");
    broker.await_log("client=\"lamp\" user=\"alice\" why=\"Bad User Name or Password\"");
}
