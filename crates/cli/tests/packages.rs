//! What is shipped beside the program: examples are sound, manual pages and completions are written, the Grafana panels
//! ask for metrics that exist, and what containers, packages and units name is there.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_test_support::skip::{Remedy, skip};
use tidegate_test_support::{Launch, add_user, exchange, tidegate};

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_example_configurations_are_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    add_user(&folder.path().join("users"), "me", "", "secret");
    let mut count = 0;
    for entry in std::fs::read_dir(dist().join("examples")).expect("examples").flatten() {
        let output = tidegate(&["check", "--data"]).arg(folder.path()).arg("-c").arg(entry.path()).output();
        let output = output.expect("check runs");
        assert!(output.status.success(), "{}: {}", entry.path().display(), said(&output));
        count += 1;
    }
    assert_eq!(count, 3);
    // What the service reads after an installation: for this machine only, so it needs no users.
    let mut check = tidegate(&["check", "--data"]);
    let output = check.arg(folder.path().join("none")).arg("-c").arg(dist().join("tidegate.toml")).output();
    let output = output.expect("check runs");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn manual_pages_and_completions_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tidegate(&["man"]).arg(folder.path().join("man")).output().expect("man runs");
    assert!(output.status.success(), "{}", said(&output));
    for command in commands() {
        let name = format!("tidegate-{command}.1");
        let page = std::fs::read_to_string(folder.path().join("man").join(&name)).expect(&name);
        assert!(page.contains(".TH"), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = tidegate(&["completions", shell]).output().expect("completions runs");
        let script = said(&output);
        assert!(commands().iter().all(|command| script.contains(command)), "{shell}");
    }
}

/// All commands, by the program's own help.
fn commands() -> Vec<String> {
    let help = said(&tidegate(&["--help"]).output().expect("help runs"));
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list").to_owned();
    let names = list.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    let names: Vec<String> = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 20, "{list}");
    names.into_iter().filter(|name| name != "help").collect()
}

#[test]
fn the_list_of_commands_is_complete() {
    let readme = dist().join("../crates/cli/README.md");
    let text = std::fs::read_to_string(readme).expect("the README");
    let table: String = text.lines().filter(|line| line.starts_with('|')).collect();
    for command in commands() {
        let is_named = table.contains(&format!("`tidegate {command}")) || table.contains(&format!("`{command}"));
        assert!(is_named, "{command} is not in the table of crates/cli/README.md");
    }
}

/// There is no Docker here to build it: what it copies, sets and calls is compared with what there is.
#[test]
fn the_container_names_what_there_is() {
    let text = std::fs::read_to_string(dist().join("Dockerfile")).expect("the Dockerfile").replace("\\\n", " ");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let of = |word: &'static str| lines.iter().filter_map(move |line| line.strip_prefix(word)).map(str::trim);
    for copy in of("COPY ") {
        let words: Vec<&str> = copy.split_whitespace().filter(|word| !word.starts_with("--")).collect();
        let (_, sources) = words.split_last().expect("a target");
        for source in sources {
            let is_made = text.contains(&format!("{source}usr/bin/tidegate"));
            let is_there = copy.contains("--from=build") && is_made || dist().join("..").join(source).exists();
            assert!(is_there, "COPY {copy}: {source} is neither in the project nor made before");
        }
    }
    let mut show = tidegate(&["config", "show", "--origin"]);
    let mut count = 0;
    for (name, value) in of("ENV ").flat_map(str::split_whitespace).filter_map(|pair| pair.split_once('=')) {
        show.env(name, value);
        count += 1;
    }
    let output = show.output().expect("show runs");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("# environment TIDEGATE_").count(), count);
    for (word, argument) in [("HEALTHCHECK ", "health"), ("CMD ", "serve")] {
        let line = of(word).next().expect("a command");
        assert!(line.contains(&format!("\"{argument}\"")) && commands().iter().any(|name| name == argument), "{line}");
    }
    assert!(lines.contains(&"ENTRYPOINT [\"/usr/bin/tidegate\"]"));
    assert!(of("USER ").next().is_some_and(|user| !user.starts_with("root") && !user.starts_with('0')), "not root");
    let ignored = std::fs::read_to_string(dist().join("../.dockerignore")).expect(".dockerignore");
    assert!(ignored.lines().any(|line| line == "target"), "gigabytes would be sent to the builder");
}

/// systemd itself reads the unit, where it is installed; the program has to be where the unit says.
#[test]
fn the_unit_is_sound() {
    let folder = tempfile::tempdir().expect("a folder");
    let unit = std::fs::read_to_string(dist().join("tidegate.service")).expect("the unit");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let mut words = start.split_whitespace();
    assert_eq!(words.next(), Some("/usr/bin/tidegate"), "where the packages put it");
    let output = tidegate(&words.collect::<Vec<_>>()).arg("--help").output().expect("it runs");
    assert!(output.status.success(), "{}", said(&output));
    // The real program need not be installed for that.
    let unit = unit.replace("/usr/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
    let path = folder.path().join("tidegate.service");
    std::fs::write(&path, unit).expect("a copy");
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() else {
        return skip("systemd-analyze", "it is not on the path", Remedy::Owner("apt-get install systemd"));
    };
    assert!(output.status.success() && said(&output).trim().is_empty(), "{}", said(&output));
}

/// What a broker with everything has to say.
fn scraped() -> String {
    let broker = Launch::new().door("http").door("ssap").door("admin").start();
    // One request to the smart space, so that it has something to count.
    let ask = |door: &str, path: &str| {
        exchange(broker.address(door), &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    };
    assert!(ask("sparql", "/query?query=ASK%20%7B%7D").contains(" 200 "));
    // Who is in trouble is there from the first look at all clients on.
    let mut scrapes = (0..200).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ask("admin", "/metrics")
    });
    scrapes.find(|text| text.contains("\ntidegate_alarms{")).expect("a look at all clients")
}

/// Words that an expression groups by.
fn labels_in(expression: &str) -> Vec<&str> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", ")).filter(|label| *label != "le").collect()
}

/// Words that look like metrics of ours.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tidegate_"))
}

#[test]
fn the_grafana_panels_ask_for_metrics_that_exist() {
    let text = std::fs::read_to_string(dist().join("grafana/tidegate.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let metrics = scraped();
    let samples: BTreeSet<&str> = metrics.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let mut count = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            for metric in metrics_in(expression) {
                assert!(samples.contains(metric), "{metric} of {} does not exist", panel["title"]);
                count += 1;
            }
            // What is grouped by is a label of what is asked for, and what is shown is what is grouped by.
            for label in labels_in(expression) {
                let has_it = |metric: &str| {
                    let mut lines = metrics.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
                    lines.any(|line| line.contains(&format!("{label}=\"")))
                };
                assert!(metrics_in(expression).all(has_it), "{label} in {expression}");
            }
        }
    }
    assert!(count >= 20, "{count}");
}
