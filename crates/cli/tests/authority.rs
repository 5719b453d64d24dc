//! Whose a session is, and what becomes of users whose file is gone: real processes, from outside.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tidegate_test_support::{Broker, Launch, add_user, text, tidegate};

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
        add_user(&self.users(), name, role, password);
    }

    fn launch(&self) -> Launch {
        Launch::at(self.0.path()).door("admin").config_file("tidegate.toml")
    }

    fn command(&self, command: &str) -> Command {
        self.launch().command(command)
    }

    fn start(&self) -> Broker {
        self.launch().start()
    }
}

/// What a user of MQTT and an operator do.
trait Use {
    fn client(&self, arguments: &[&str]) -> Output;
    fn subscribe(&self, user: Option<(&str, &str)>, more: &[&str]) -> Result<(), String>;
    fn reload(&self) -> Output;
    fn status_for_nobody(&self) -> bool;
}

impl Use for Broker {
    fn client(&self, arguments: &[&str]) -> Output {
        self.tool(arguments[0], &arguments[1..]).output().expect("the client runs")
    }

    /// Subscribes as this user and leaves; the error, if it is not let in.
    fn subscribe(&self, user: Option<(&str, &str)>, more: &[&str]) -> Result<(), String> {
        let name = user.map(|(name, password)| vec!["-u", name, "-P", password]).unwrap_or_default();
        let done = self.client(&[&["sub", "-t", "mail", "-q", "1", "-E"], &name[..], more].concat());
        if done.status.success() { Ok(()) } else { Err(text(&done.stderr)) }
    }

    fn reload(&self) -> Output {
        let admin = ["--admin", &self.admin(), "-u", "ann", "-P", "secret"];
        tidegate(&["reload"]).args(admin).output().expect("reload runs")
    }

    /// The code of the operator's door for somebody without a password.
    fn status_for_nobody(&self) -> bool {
        tidegate(&["status", "--admin", &self.admin()]).output().expect("status runs").status.success()
    }
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
    let arguments = ["-t", "mail", "-W", "60", "-u", "bob", "-P", "secret", "-d", "-V", "5"];
    let mut bob = broker.tool("sub", &arguments);
    let mut bob = bob.args(KEPT).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("bob runs");
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
