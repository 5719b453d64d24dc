//! ACL files of mosquitto: the same file means the same thing here.

#![allow(clippy::unwrap_used, reason = "a test whose files cannot be read has failed")]

use proptest::prelude::*;
use tidegate_auth::{Access, Acl, AclEffect, AclSubject, FileError, FileFault, Users};
use tidegate_core::access::Action::{Publish, Receive, Subscribe};
use tidegate_core::access::{Action, Identity, Policy};

/// After the example that mosquitto ships.
const EXAMPLE: &str = "\
# This affects access control for clients with no username.
topic read $SYS/#
topic read news/#

# This only affects clients with username \"roger\".
user roger
topic foo/bar
topic deny foo/bar/secret
topic write  out/with space

user  ada lovelace
topic readwrite engine/#
topic deny engine/private/#

# This affects all clients.
pattern write $SYS/broker/connection/%c/state
pattern readwrite home/%u/#
pattern deny engine/%u
";

fn access(text: &str) -> Access {
    Access::new(&Acl::parse_mosquitto(text).unwrap(), &Users::default())
}

fn asks(access: &Access, name: &str, action: Action, topic: &str) -> bool {
    let user = (!name.is_empty()).then(|| name.into());
    access.allows(
        &Identity { user, peer: "peer".into(), listener: "mqtt", roles: None, claims: None },
        "client",
        action,
        topic,
    )
}

fn faults(text: &str) -> Vec<(usize, FileFault)> {
    Acl::parse_mosquitto(text).unwrap_err().into_iter().map(|FileError { line, what }| (line, what)).collect()
}

#[test]
fn lines_before_the_first_user_are_for_anonymous_clients_only() {
    let access = access(EXAMPLE);
    assert!(asks(&access, "", Receive, "news/today") && !asks(&access, "", Publish, "news/today"));
    assert!(!asks(&access, "roger", Receive, "news/today"));
    assert!(asks(&access, "", Receive, "$SYS/broker/uptime") && !asks(&access, "roger", Receive, "$SYS/broker/uptime"));
}

#[test]
fn a_user_has_its_own_lines_and_everybody_the_patterns() {
    let access = access(EXAMPLE);
    assert!(asks(&access, "roger", Publish, "foo/bar") && asks(&access, "roger", Receive, "foo/bar"));
    assert!(!asks(&access, "roger", Publish, "foo/bar/secret") && !asks(&access, "", Publish, "foo/bar"));
    assert!(asks(&access, "roger", Publish, "out/with space") && !asks(&access, "roger", Receive, "out/with space"));
    assert!(
        asks(&access, "ada lovelace", Publish, "engine/1")
            && !asks(&access, "ada lovelace", Publish, "engine/private/1")
    );
    assert!(asks(&access, "roger", Publish, "home/roger/lamp") && !asks(&access, "roger", Publish, "home/ada/lamp"));
    assert!(asks(&access, "stranger", Publish, "home/stranger/lamp"));
}

#[test]
fn a_users_own_line_is_asked_before_a_pattern() {
    let access = access(EXAMPLE);
    assert!(asks(&access, "ada lovelace", Publish, "engine/ada lovelace"));
    let denied = self::access("user roger\ntopic deny home/roger/safe\npattern home/%u/#\n");
    assert!(asks(&denied, "roger", Publish, "home/roger/lamp") && !asks(&denied, "roger", Publish, "home/roger/safe"));
}

#[test]
fn sys_stays_unwritable_even_where_mosquitto_lets_bridges_write() {
    assert!(!asks(&access(EXAMPLE), "roger", Publish, "$SYS/broker/connection/client/state"));
}

#[test]
fn every_subscription_is_granted_and_only_what_is_allowed_is_delivered() {
    let access = access("user a\ntopic read x/+/y\ntopic deny x/1/y\n");
    for filter in ["#", "x/#", "x/2/y", "$share/g/x/#", "x/1/y", "z/#", "$SYS/#"] {
        assert!(asks(&access, "a", Subscribe, filter), "{filter}");
    }
    assert!(asks(&access, "a", Receive, "x/2/y") && !asks(&access, "a", Receive, "x/1/y"));
    assert!(!asks(&access, "a", Receive, "z/1") && !asks(&access, "a", Receive, "$SYS/broker/uptime"));
    assert!(!asks(&access, "a", Subscribe, "$share/g"), "a share of nothing");
    assert!(!asks(&access, "a", Subscribe, "$share/g/z/#"), "nobody takes from others what it may not read");
}

#[test]
fn names_are_text_in_topic_lines_and_names_in_patterns() {
    let access = access("user a\ntopic read t/%u\npattern read p/%u\n");
    assert!(asks(&access, "a", Receive, "t/%u") && !asks(&access, "a", Receive, "t/a"));
    assert!(asks(&access, "a", Receive, "p/a") && !asks(&access, "a", Receive, "p/%u"));
}

#[test]
fn f071_a_file_without_rules_denies_everything() {
    for text in ["", "\n\n", "# nothing\n", "user alice\n", "\u{feff}"] {
        let access = access(text);
        for name in ["", "alice"] {
            assert!(!asks(&access, name, Publish, "a") && !asks(&access, name, Receive, "a"), "{text:?}");
            assert!(asks(&access, name, Subscribe, "a"), "granted, and silent: as mosquitto does it");
        }
    }
}

#[test]
fn f071_all_errors_come_with_their_lines() {
    let text = "topic\nuser\ntopic rw a\nallow a\ntopic read a/#/b\npattern $share/g/a\npattern $%u/a\ntopic read ok\nuser x\u{1}y\n";
    let found = faults(text);
    let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 9]);
    assert_eq!(found[0].1, FileFault::FilterMissing);
    assert_eq!(found[1].1, FileFault::NameMissing);
    assert_eq!(found[2].1, FileFault::AccessUnknown("rw".into()));
    assert_eq!(found[3].1, FileFault::KeywordUnknown("allow".into()));
    assert_eq!(found[5].1, FileFault::FilterShared);
    assert_eq!(found[7].1, FileFault::ControlCharacter);
}

#[test]
fn f071_line_ends_of_other_systems_change_nothing() {
    let dos = EXAMPLE.replace('\n', "\r\n");
    assert_eq!(Acl::parse_mosquitto(&dos), Acl::parse_mosquitto(EXAMPLE));
    assert_eq!(Acl::parse_mosquitto(EXAMPLE).unwrap().rules().len(), 10);
}

#[test]
fn rules_can_be_looked_at() {
    let acl = Acl::parse_mosquitto("user roger\ntopic deny foo/#\n").unwrap();
    let rule = &acl.rules()[0];
    assert_eq!(
        (rule.subject(), rule.effect(), rule.filter()),
        (&AclSubject::User("roger".into()), AclEffect::Deny, "foo/#")
    );
}

proptest! {
    #[test]
    fn f071_no_text_makes_the_reader_panic(text in "((topic|pattern|user|#|read|deny|write|%u|%c|[a+#/$ \t\r\u{0}é])|\n){0,40}") {
        if let Ok(acl) = Acl::parse_mosquitto(&text) {
            let _ = asks(&Access::new(&acl, &Users::default()), "a", Publish, "a");
        }
    }
}
