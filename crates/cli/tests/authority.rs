//! Whose a session is, and what becomes of users whose file is gone: real processes, from outside.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).stdin(Stdio::null()).env_remove("TIDEGATE_CONFIG");
    command
}

/// A folder with users and a configuration.
struct Place(tempfile::TempDir);

impl Place {
    fn new(config: &str, users: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        std::fs::write(place.config(), config).expect("a configuration");
        for (name, role) in users {
            place.user(name, role, "secret");
        }
        place
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("tidegate.toml")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn users(&self) -> PathBuf {
        self.data().join("users")
    }

    fn user(&self, name: &str, role: &str, password: &str) {
        let mut child = tidegate(&["user", "add", name, "--roles", role, "--password-stdin", "--password-file"])
            .arg(self.users())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("user runs");
        let line = format!("{password}\n");
        child.stdin.take().expect("piped").write_all(line.as_bytes()).expect("it reads");
        assert!(child.wait().expect("it ends").success());
    }

    fn command(&self, command: &str) -> Command {
        let here = "127.0.0.1:0";
        let mut all = tidegate(&[command, "--mqtt", here, "--ws", "off", "--http", "off", "--ssap", "off"]);
        all.args(["--admin", here, "-c"]).arg(self.config()).arg("--data").arg(self.data());
        all
    }

    fn start(&self) -> Broker {
        let mut child = self.command("serve").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut banner = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut banner).expect("the broker speaks");
        let word = |door: &str| {
            let mut words = banner.split_whitespace().skip_while(|word| *word != door);
            words.nth(1).unwrap_or_else(|| panic!("no {door} in {banner:?}")).to_owned()
        };
        let port = word("mqtt").rsplit(':').next().unwrap_or_default().to_owned();
        Broker { child, port, admin: word("admin") }
    }
}

/// Ended with the test.
struct Broker {
    child: Child,
    port: String,
    admin: String,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Broker {
    fn client(&self, arguments: &[&str]) -> Output {
        tidegate(arguments).args(["-h", "127.0.0.1", "-p", &self.port]).output().expect("the client runs")
    }

    /// Subscribes as this user and leaves; the error, if it is not let in.
    fn subscribe(&self, user: Option<(&str, &str)>, more: &[&str]) -> Result<(), String> {
        let name = user.map(|(name, password)| vec!["-u", name, "-P", password]).unwrap_or_default();
        let done = self.client(&[&["sub", "-t", "mail", "-q", "1", "-E"], &name[..], more].concat());
        if done.status.success() { Ok(()) } else { Err(text(&done.stderr)) }
    }

    fn reload(&self) -> Output {
        let admin = ["--admin", &self.admin, "-u", "ann", "-P", "secret"];
        tidegate(&["reload"]).args(admin).output().expect("reload runs")
    }

    /// The code of the operator's door for somebody without a password.
    fn status_for_nobody(&self) -> bool {
        tidegate(&["status", "--admin", &self.admin]).output().expect("status runs").status.success()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const BOB: Option<(&str, &str)> = Some(("bob", "secret"));
const KEPT: [&str; 3] = ["-i", "bob-1", "-c"];

#[test]
fn f039_a_session_is_its_users_also_while_that_one_is_away_and_after_a_restart() {
    let place = Place::new("", &[("ann", "admin"), ("bob", "")]);
    let broker = place.start();
    broker.subscribe(BOB, &KEPT).expect("bob comes");
    let ann = Some(("ann", "secret"));
    let sent = broker.client(&["pub", "-t", "mail", "-m", "kept", "-q", "1", "-u", "ann", "-P", "secret"]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let is_refused = |broker: &Broker| {
        for more in [&["-V", "5"][..], &["-V", "311"], &["-V", "311", "-c"]] {
            let refused = broker.subscribe(ann, &[&["-i", "bob-1"], more].concat()).expect_err("not hers");
            assert!(refused.to_lowercase().contains("identifier"), "{refused}");
        }
    };
    is_refused(&broker);
    drop(broker);
    let broker = place.start();
    is_refused(&broker);
    // A new password is the same user.
    place.user("bob", "", "changed");
    assert!(broker.reload().status.success());
    let got = broker.client(
        &[&["sub", "-t", "mail", "-q", "1", "-C", "1", "-W", "20", "-u", "bob", "-P", "changed"], &KEPT[..]].concat(),
    );
    assert_eq!(text(&got.stdout), "kept\n", "{}", text(&got.stderr));
}

#[test]
fn f039_where_it_is_switched_off_check_says_what_that_means() {
    let place = Place::new("[security]\nbind_client_ids = false\n", &[("ann", "admin"), ("bob", "")]);
    let checked = place.command("check").output().expect("check runs");
    let warned = text(&checked.stderr);
    assert!(checked.status.success() && warned.contains("security.bind_client_ids = false"), "{warned}");
    let broker = place.start();
    broker.subscribe(BOB, &KEPT).expect("bob comes");
    broker.subscribe(Some(("ann", "secret")), &["-i", "bob-1"]).expect("bob is away");
}

#[test]
fn f152_a_user_that_is_deleted_has_to_go_and_its_session_is_nobody_elses() {
    let place = Place::new("", &[("ann", "admin"), ("bob", "")]);
    let broker = place.start();
    let arguments = ["sub", "-t", "mail", "-W", "60", "-u", "bob", "-P", "secret", "-h", "127.0.0.1", "-d", "-V", "5"];
    let mut bob = tidegate(&arguments);
    let mut bob = bob
        .args(KEPT)
        .args(["-p", &broker.port])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bob runs");
    let mut words = BufReader::new(bob.stderr.take().expect("piped")).lines();
    assert!(words.by_ref().any(|line| line.expect("a line").starts_with("subscribed")), "bob is in");
    let removed = tidegate(&["user", "remove", "bob", "--password-file"]).arg(place.users()).output();
    assert!(removed.expect("user runs").status.success());
    assert!(broker.reload().status.success());
    let is_told = words.by_ref().any(|line| line.expect("a line").contains("(0x87)"));
    assert!(is_told, "his connection ends, and he hears that he is not authorized");
    let _ = bob.kill();
    let _ = bob.wait();
    assert!(broker.subscribe(BOB, &KEPT).is_err(), "he is unknown");
    assert!(broker.subscribe(Some(("ann", "secret")), &["-i", "bob-1"]).is_err(), "it waits for him to be added again");
}

#[test]
fn f072_users_that_are_gone_at_a_reload_or_a_start_open_nothing() {
    let place = Place::new("", &[("ann", "admin")]);
    let (broker, away) = (place.start(), place.0.path().join("away"));
    let is_closed = |broker: &Broker| broker.subscribe(None, &[]).is_err() && !broker.status_for_nobody();
    assert!(is_closed(&broker));
    std::fs::rename(place.users(), &away).expect("moved");
    let refused = broker.reload();
    let said = text(&refused.stderr) + &text(&refused.stdout);
    assert!(!refused.status.success() && said.contains("the users of this broker are gone"), "{said}");
    assert!(is_closed(&broker), "the users from before stay in force");
    broker.subscribe(Some(("ann", "secret")), &[]).expect("and come in");
    drop(broker);
    for command in ["serve", "check"] {
        let refused = place.command(command).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(2), "{command}");
        assert!(text(&refused.stderr).contains("the users of this broker are gone"), "{}", text(&refused.stderr));
    }
    std::fs::rename(&away, place.users()).expect("moved back");
    assert!(is_closed(&place.start()));
}

#[test]
fn f072_files_that_the_configuration_names_are_missed_and_nothing_changes() {
    let rules = "user ann\ntopic readwrite #\n";
    let config = "[security]\npassword_file = \"people\"\nacl_file = \"rules\"\n";
    let place = Place::new(config, &[("ann", "admin")]);
    let (people, acl) = (place.0.path().join("people"), place.0.path().join("rules"));
    std::fs::rename(place.users(), &people).expect("moved");
    std::fs::write(&acl, rules).expect("rules");
    let broker = place.start();
    let gone = |path: &Path, config: Option<&str>, why: &str| {
        let before = std::fs::read(path).expect("it is there");
        match config {
            Some(other) => std::fs::write(path, other).expect("written"),
            None => std::fs::remove_file(path).expect("removed"),
        }
        let refused = broker.reload();
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{}: {said}", path.display());
        assert!(broker.subscribe(None, &[]).is_err() && !broker.status_for_nobody());
        std::fs::write(path, before).expect("put back");
    };
    gone(&people, None, "cannot be read");
    gone(&acl, None, "cannot be read");
    gone(&place.config(), None, "cannot be read");
    // The setting itself is gone, and with it the users: a reload does not open the broker.
    gone(&place.config(), Some(""), "there are no users any more");
    assert!(broker.reload().status.success());
}
