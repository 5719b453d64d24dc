//! The binary from outside, without a broker: help, checks, settings, users, exit codes.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::Write;
use std::process::{Output, Stdio};

use tidegate_test_support::{text, tidegate};

fn run(arguments: &[&str]) -> Output {
    tidegate(arguments).output().expect("the binary runs")
}

fn written(config: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.toml");
    std::fs::write(&path, config).expect("the file is written");
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn help_lists_all_commands() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    for command in [
        "serve",
        "pub",
        "sub",
        "init",
        "user",
        "check",
        "config",
        "bench",
        "completions",
        "top",
        "why",
        "clients",
        "kps",
        "drops",
        "limits",
        "ban",
        "kick",
        "health",
        "reload",
        "drain",
        "demo",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command} is not in:\n{help}");
    }
    for word in ["--mqtt", "--admin", "TIDEGATE_", "Exit codes", "Examples"] {
        assert!(help.contains(word), "{word} is not in:\n{help}");
    }
}

#[test]
fn help_of_pub_and_sub_is_not_taken_by_the_host() {
    for command in ["pub", "sub"] {
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("-h, --host"));
    }
}

#[test]
fn version_is_printed() {
    assert!(text(&run(&["--version"]).stdout).starts_with("tidegate "));
}

#[test]
fn wrong_usage_is_code_2() {
    for arguments in [&["--nonsense"][..], &["pub", "-t", "a"], &["pub", "-t", "a/#", "-m", "x"], &["sub"]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn nobody_listens_is_code_1() {
    let output = run(&["pub", "-h", "127.0.0.1", "-p", "1", "-t", "a", "-m", "x"]);
    assert_eq!(output.status.code(), Some(1));
    let problem = text(&output.stderr);
    assert!(problem.contains("cannot connect to 127.0.0.1:1"), "{problem}");
    assert!(problem.contains("is the broker running? Start it with `tidegate`"), "{problem}");
}

#[test]
fn check_says_ok_or_everything_that_is_wrong() {
    let (_folder, path) = written("[limits]\nreceive_max = 5\n");
    let output = run(&["check", "-c", &path]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), format!("ok: {path}\n")));

    let (_folder, path) =
        written("[[bridge]]\nname = \"hub\"\naddress = \"localhost\"\n[[bridge.topic]]\nfilter = \"#\"\n");
    let said = text(&run(&["check", "-c", &path]).stderr);
    assert!(said.contains("the bridge \"hub\" leads to this broker itself (localhost:1883"), "{said}");

    let (_folder, path) = written("[limits]\nrecieve_max = 5\nqos_max = 7\n");
    let output = run(&["check", "-c", &path]);
    assert_eq!(output.status.code(), Some(2), "the same as serve");
    let problems = text(&output.stderr);
    assert!(problems.contains(&format!("{path}:2:1: limits.recieve_max: unknown key; did you mean \"receive_max\"?")));
    assert!(problems.contains("limits.qos_max: 7 does not fit"), "{problems}");
    assert!(problems.ends_with("2 problems\n"), "{problems}");
}

#[test]
fn check_speaks_json() {
    let (_folder, path) = written("[limits]\nqos_max = 7\n");
    let output = run(&["check", "--json", "-c", &path]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["ok"], false);
    assert_eq!(
        (report["problems"][0]["line"].as_u64(), report["problems"][0]["key"].as_str()),
        (Some(2), Some("limits.qos_max"))
    );
}

#[test]
fn a_bad_configuration_stops_serve_with_code_2() {
    let (_folder, path) = written("[limits]\nqos_max = 7\n");
    assert_eq!(run(&["serve", "-c", &path]).status.code(), Some(2));
    let output = run(&["serve", "-c", "/dev/null", "--http", "everywhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("flag --http: listeners.http: \"everywhere\" does not fit: expected"));
}

#[test]
fn an_open_broker_stays_on_this_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().display().to_string();
    let output = run(&["-c", "/dev/null", "--data", &data, "--mqtt", "0.0.0.0:0", "--ws", "off"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("tidegate user add NAME"));
}

#[test]
fn a_taken_port_names_listener_and_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = run(&["-c", "/dev/null", "--mqtt", &address, "--ws", "off"]);
    assert_eq!(output.status.code(), Some(1));
    let problem = text(&output.stderr);
    assert!(
        problem.contains(&format!("cannot listen for mqtt on {address}")) && problem.contains("--mqtt ADDR"),
        "{problem}"
    );
}

#[test]
fn f151_shown_settings_are_a_configuration_and_say_where_they_come_from() {
    let (folder, path) = written("[limits]\nreceive_max = 5\n");
    let mut command = tidegate(&["config", "show", "--origin", "-c", &path, "--mqtt", "127.0.0.1:1884"]);
    let output = command.env("TIDEGATE_LIMITS__QOS_MAX", "1").output().expect("the binary runs");
    let shown = text(&output.stdout);
    let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert!(line("receive_max = 5").ends_with(&format!("# {path}:2")), "{shown}");
    assert!(line("qos_max = 1").ends_with("# environment TIDEGATE_LIMITS__QOS_MAX"), "{shown}");
    assert!(line("mqtt = \"127.0.0.1:1884\"").ends_with("# flag --mqtt"), "{shown}");
    assert!(line("inflight_max = ").ends_with("# default"), "{shown}");

    let again = folder.path().join("again.toml");
    std::fs::write(&again, &shown).expect("the file is written");
    let output = run(&["check", "-c", &again.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn users_are_added_listed_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let user = |arguments: &[&str], input: &str| {
        let all = [&["user"], arguments, &["--data", &data, "-c", "/dev/null"]].concat();
        let mut child =
            tidegate(&all).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        // Commands that ask for nothing may be gone before they are told.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("ends")
    };
    let gone = text(&user(&["remove", "nobody"], "").stderr);
    assert!(gone.starts_with("error: there are no users: /"), "{gone}");
    let bad = user(&["add", "bad:name"], "");
    assert!(text(&bad.stderr).starts_with("error: \"bad:name\": "), "{}", text(&bad.stderr));
    let added = user(&["add", "alice", "--roles", "monitor,ops", "--password-stdin"], "secret\n");
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert_eq!(text(&user(&["list"], "").stdout), "alice\tmonitor,ops\n");
    let gone = user(&["remove", "bob"], "");
    assert_eq!((gone.status.code(), text(&gone.stderr)), (Some(1), "error: \"bob\": no such user\n".to_owned()));
    assert!(user(&["remove", "alice"], "").status.success());
    let nobody = user(&["list"], "");
    assert_eq!(text(&nobody.stdout), "");
    assert!(text(&nobody.stderr).starts_with("no users in /"), "{}", text(&nobody.stderr));
    // A file with a password is none with users, and by either name the flag is for the latter.
    let secret = folder.path().join("pw").display().to_string();
    std::fs::write(&secret, "correct horse\n").expect("written");
    for flag in ["--users-file", "--password-file"] {
        let wrong = user(&["add", "alice", flag, &secret, "--password-stdin"], "x\n");
        assert!(text(&wrong.stderr).contains("a password comes by --password-stdin"), "{}", text(&wrong.stderr));
        assert_eq!(std::fs::read_to_string(&secret).expect("there"), "correct horse\n");
    }
    let other = folder.path().join("users").display().to_string();
    assert!(user(&["add", "bob", "--users-file", &other, "--password-stdin"], "x\n").status.success());
    assert!(std::fs::read_to_string(&other).expect("there").starts_with("bob:"));
    let empty = user(&["add", "alice", "--password-stdin"], "\n");
    assert!(text(&empty.stderr).contains("a password has 1 to"), "{}", text(&empty.stderr));
}

#[test]
fn completions_exist_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("completions"), "{shell}");
    }
}

#[test]
fn arguments_of_other_servers_are_answered_with_ours() {
    for (arguments, ours) in [(&["-p", "1884"][..], "--mqtt 1884"), (&["serve", "-v"], "--log-level debug")] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(ours), "{}", text(&output.stderr));
    }
}

#[test]
fn the_configuration_of_mosquitto_is_recognised() {
    let (_folder, path) = written("listener 1883\nallow_anonymous true\n");
    let output = run(&["check", "-c", &path]);
    assert_eq!(output.status.code(), Some(2));
    let problems = text(&output.stderr);
    assert!(problems.contains("looks like a mosquitto.conf, and Tidegate reads TOML"), "{problems}");
    assert!(problems.ends_with("1 problem\n"), "{problems}");
}

#[test]
fn forms_of_an_address_are_named() {
    let output = run(&["check", "-c", "/dev/null", "--mqtt", ":19005"]);
    let problem = text(&output.stderr);
    for form in ["\"PORT\"", "\"HOST:PORT\"", "\"[V6]:PORT\"", "\"off\""] {
        assert!(problem.contains(form), "{problem}");
    }
}
