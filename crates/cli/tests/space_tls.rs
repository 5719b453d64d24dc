//! The smart space's doors with TLS, from settings to `tidegate kp`: certificates of files, a reload, certificates of
//! clients, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::process::{Command, Output};

use tidegate_test_support::{Broker, Launch};

struct Papers {
    cert: String,
    key: String,
}

fn papers() -> Papers {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    Papers { cert: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

fn start(papers: &Papers) -> Broker {
    let launch = Launch::new().door("http").door("https").door("ssaps");
    let folder = launch.folder().display().to_string();
    let config = format!(
        "[tls]\ncert = \"{folder}/cert.pem\"\nkey = \"{folder}/key.pem\"\n[listeners]\nmqtts = \"off\"\nwss = \"off\"\n"
    );
    launch.file("cert.pem", &papers.cert).file("key.pem", &papers.key).config(&config).start()
}

fn kp(url: &str, cafile: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["kp", "--space", url, "--cafile", cafile]).args(arguments).output().unwrap()
}

#[test]
fn kp_trusts_what_it_is_told_to_and_a_reload_renews_the_certificate() {
    let (old, new) = (papers(), papers());
    let broker = start(&old);
    let file = |name: &str| broker.folder().join(name).display().to_string();
    std::fs::write(file("new.pem"), &new.cert).unwrap();
    let urls = ["https", "ssaps"].map(|door| format!("{door}://localhost:{}", broker.port(door)));
    for url in &urls {
        let done = kp(url, &file("cert.pem"), &["insert", "urn:lamp", "urn:state", "on"]);
        assert!(done.status.success(), "{url}: {}", String::from_utf8_lossy(&done.stderr));
        let asked = kp(url, &file("cert.pem"), &["query", "SELECT ?o { <urn:lamp> ?p ?o }"]);
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "?o = \"on\"\n", "{url}");
        assert_eq!(kp(url, &file("new.pem"), &["query", "ASK {}"]).status.code(), Some(3), "{url}: not trusted");
    }
    let plain = format!("http://localhost:{}", broker.port("https"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let told = command.args(["kp", "--space", &plain, "query", "ASK {}"]).output().unwrap();
    assert!(!told.status.success());
    broker.await_log("came to https, which is for TLS");
    std::fs::write(file("cert.pem"), &new.cert).unwrap();
    std::fs::write(file("key.pem"), &new.key).unwrap();
    broker.signal("-HUP");
    broker.await_log("event=reloaded");
    for url in &urls {
        let asked = kp(url, &file("new.pem"), &["query", "SELECT ?o { <urn:lamp> ?p ?o }"]);
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "?o = \"on\"\n", "{url}: the new one");
    }
    // A key of another certificate changes nothing.
    std::fs::write(file("key.pem"), &old.key).unwrap();
    broker.signal("-HUP");
    broker.await_log("event=reload_failed");
    assert!(kp(&urls[0], &file("new.pem"), &["query", "ASK {}"]).status.success());
}

#[test]
fn a_door_with_tls_needs_a_certificate_and_one_beyond_this_machine_needs_users() {
    let check = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["serve", "-c", "/dev/null", "--data", "/nonexistent"]).args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = check(&["--https", "127.0.0.1:0"]);
    assert!(refused.contains("listeners.https needs a certificate and its private key; set tls.cert"), "{refused}");
    let refused = check(&["--ssaps", "127.0.0.1:0"]);
    assert!(refused.contains("listeners.ssaps needs a certificate"), "{refused}");
    let refused = check(&["--https", "nonsense"]);
    assert!(refused.contains("listeners.https") && refused.contains("nonsense"), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let Papers { cert, key } = papers();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).display().to_string()
    };
    let (cert, key) = (write("cert.pem", &cert), write("key.pem", &key));
    for (flag, door, why) in
        [("--https", "https", "but there are no users"), ("--ssaps", "ssaps", "but Smart-M3 knows no users")]
    {
        let refused = check(&["--cert", &cert, "--key", &key, flag, "0.0.0.0:7443"]);
        assert!(
            refused.contains(&format!("listeners.{door} = \"0.0.0.0:7443\" accepts other machines, {why}")),
            "{refused}"
        );
    }
}
