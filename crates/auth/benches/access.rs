//! What one question of access costs: `cargo bench -p tidegate-auth`. Typical users have fewer than 20 rules; the broker
//! asks once per publication and once per delivery, so this stands beside every message.

#![allow(clippy::unwrap_used, reason = "a wrong rule is a bug of the benchmark")]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use tidegate_auth::{Access, Acl, AclEffect, AclRule, AclSubject, Actions, Users};
use tidegate_core::access::{Action, Identity, Policy};

fn main() {
    divan::main();
}

/// Questions per sample, so that the timer's own cost does not show.
const BATCH: usize = 1000;

const HASH: &str =
    "$6$8RFzANNkUWT62fin$Nf3fG9LGsfghMMgW0x56EDZ095JBVSIebWIKaCmGtKqQpwA3jyyGNfDl5alxQUwO9u7D7wviZzMly6BqYi1Zuw==";

/// 10 000 users with one role each.
fn users() -> Users {
    let lines: Vec<String> = (0..10_000).map(|n| format!("user{n}:{HASH}:roles=device")).collect();
    Users::parse(&lines.join("\n")).unwrap()
}

fn rule(subject: AclSubject, effect: AclEffect, actions: Actions, filter: &str) -> AclRule {
    AclRule::new(subject, effect, actions, filter).unwrap()
}

/// Eighteen rules that concern every device: ten for all, six for the role (two with names), two denials.
fn typical() -> Access {
    let role = || AclSubject::Role("device".into());
    let mut rules: Vec<AclRule> = (0..10)
        .map(|n| rule(AclSubject::Everyone, AclEffect::Allow, Actions::READ, &format!("public/area{n}/+/status")))
        .collect();
    rules.extend((0..4).map(|n| rule(role(), AclEffect::Allow, Actions::WRITE, &format!("fleet/{n}/+/telemetry/#"))));
    rules.push(rule(role(), AclEffect::Deny, Actions::READWRITE, "devices/+/secret/#"));
    rules.push(rule(AclSubject::Everyone, AclEffect::Deny, Actions::WRITE, "public/#"));
    rules.push(rule(role(), AclEffect::Allow, Actions::READWRITE, "devices/%u/#"));
    rules.push(rule(role(), AclEffect::Allow, Actions::READ, "groups/%c/commands"));
    Access::new(&Acl::new(rules).unwrap(), &users())
}

fn ask(bencher: Bencher, access: &Access, user: Option<&str>, action: Action, topic: &str, expected: bool) {
    let identity = Identity {
        user: user.map(Into::into),
        peer: "127.0.0.1:50312".into(),
        listener: "mqtt",
        roles: None,
        claims: None,
    };
    assert_eq!(access.allows(&identity, "user77-1", action, topic), expected);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let mut allowed = 0;
        for _ in 0..BATCH {
            let topic = black_box(topic);
            allowed += usize::from(access.allows(black_box(&identity), "user77-1", action, topic));
        }
        allowed
    });
}

/// No access list: one rule that allows everything.
#[divan::bench]
fn open(bencher: Bencher) {
    ask(
        bencher,
        &Access::new(&Acl::open(), &users()),
        Some("user77"),
        Action::Receive,
        "devices/user77/temperature",
        true,
    );
}

#[divan::bench]
fn typical_publish_own_topic(bencher: Bencher) {
    ask(bencher, &typical(), Some("user77"), Action::Publish, "devices/user77/temperature", true);
}

#[divan::bench]
fn typical_receive_public(bencher: Bencher) {
    ask(bencher, &typical(), Some("user77"), Action::Receive, "public/area9/pump/status", true);
}

/// Every rule is looked at.
#[divan::bench]
fn typical_refused(bencher: Bencher) {
    ask(bencher, &typical(), Some("user77"), Action::Receive, "devices/user78/temperature", false);
}

#[divan::bench]
fn typical_subscribe(bencher: Bencher) {
    ask(bencher, &typical(), Some("user77"), Action::Subscribe, "devices/user77/#", true);
}

/// One argon2id verification: what a thread of the password pool is busy with.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn verify_password(bencher: Bencher) {
    let mut users = Users::default();
    users.add("alice", b"wonderland", &[7; 16]).unwrap();
    bencher.bench_local(|| users.verify(black_box("alice"), black_box(b"wonderland")));
}
