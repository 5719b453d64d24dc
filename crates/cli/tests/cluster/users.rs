//! Users that are added at the node that serves are there at the next one.

use std::io::Write;
use std::process::Stdio;
use std::time::Instant;

use super::nodes::{Node, Nodes, PATIENCE, tidegate};

fn add_user(node: &Node, name: &str) {
    let mut command = tidegate(&["user", "add", name, "-c"]);
    let mut child =
        command.arg(node.config()).arg("--password-stdin").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"secret").unwrap();
    assert!(child.wait().unwrap().success());
}

fn users(node: &Node) -> String {
    std::fs::read_to_string(node.data().join("users")).unwrap_or_default()
}

#[test]
fn users_of_the_node_that_serves_come_in_at_the_next_one() {
    let Some(mut nodes) = Nodes::start() else { return };
    let owner = nodes.owner_but(None);
    let other = (owner + 1) % nodes.list.len();
    add_user(&nodes.list[other], "mallory");
    add_user(&nodes.list[owner], "ann");
    let begun = Instant::now();
    while !nodes.list[owner].log().contains("access_copied") {
        assert!(begun.elapsed() < PATIENCE, "{}", nodes.logs());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let of_owner = users(&nodes.list[owner]);
    assert!(of_owner.contains("ann:"), "{of_owner}");
    nodes.list[owner].kill();
    let next = nodes.owner_but(Some(owner));
    assert_eq!(users(&nodes.list[next]), of_owner);
    if next == other {
        let before = std::fs::read_to_string(nodes.list[next].data().join("users.before")).unwrap();
        assert!(before.contains("mallory:"), "{before}");
    }
    let port = nodes.list[next].mqtt.to_string();
    let publish = |who: &[&str]| {
        let mut arguments = vec!["pub", "-p", &port, "-t", "x", "-m", "y", "-q", "1"];
        arguments.extend(who);
        tidegate(&arguments).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(publish(&["-u", "ann", "-P", "secret"]), "{}", nodes.logs());
    assert!(!publish(&["-u", "mallory", "-P", "secret"]));
}
