//! Rights to graphs, from `[[security.rule]]` to what `tidegate kp` gets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::process::{Command, Output};

use tidegate_test_support::{Broker, Launch};

const RULES: &str = "[[security.rule]]\nrole = \"staff\"\nallow = \"readwrite\"\ngraph = \"*\"\n\
                     [[security.rule]]\nallow = \"readwrite\"\ngraph = \"urn:home/%u\"\n";

fn kp(broker: &Broker, user: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let url = format!("http://{user}:secret@{}", broker.address("sparql"));
    command.args(["kp", "--space", &url]).args(arguments).output().unwrap()
}

#[test]
fn rules_for_graphs_hold_for_users_and_roles_and_a_reload_changes_them() {
    let launch = Launch::new().door("http").user("ann", "staff").user("bob", "").config(RULES);
    let broker = launch.start();
    let insert = |user: &str, graph: &str| {
        let text = format!("INSERT DATA {{ GRAPH <{graph}> {{ <urn:x> <urn:p> \"{user}\" }} }}");
        kp(&broker, user, &["update", &text])
    };
    assert!(insert("ann", "urn:home/ann").status.success() && insert("bob", "urn:home/bob").status.success());
    let refused = insert("bob", "urn:home/ann");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("no right to write the graph <urn:home/ann>"), "{words}");
    let seen = |user: &str| {
        let asked = kp(&broker, user, &["query", "SELECT ?o { GRAPH ?g { ?s ?p ?o } } ORDER BY ?o"]);
        String::from_utf8(asked.stdout).unwrap()
    };
    assert_eq!(seen("ann"), "?o = \"ann\"\n?o = \"bob\"\n");
    assert_eq!(seen("bob"), "?o = \"bob\"\n");
    let all = format!("{RULES}[[security.rule]]\nuser = \"bob\"\nallow = \"read\"\ngraph = \"urn:home/*\"\n");
    std::fs::write(broker.folder().join("tidegate.toml"), all).unwrap();
    broker.signal("-HUP");
    broker.await_log("event=reloaded");
    assert_eq!(seen("bob"), "?o = \"ann\"\n?o = \"bob\"\n", "the next question has the new rights");
    assert!(!insert("bob", "urn:home/ann").status.success(), "to read is not to write");
}
