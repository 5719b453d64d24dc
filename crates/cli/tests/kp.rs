//! `tidegate kp` as a script sees it: lines in, lines out, exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use tidegate_graph::SpaceLimits;
use tidegate_space::{BoundSockets, Everybody, Service, SpaceAddresses, SpaceListeners};

fn start() -> (Service, SpaceListeners, [String; 2]) {
    let free = Some("127.0.0.1:0".parse().unwrap());
    let service = Service::start(SpaceLimits::default()).unwrap();
    let bound = BoundSockets::open(SpaceAddresses { http: free, ssap: free, ..SpaceAddresses::default() }).unwrap();
    let doors = SpaceListeners::start(bound, &service.handle(), Arc::new(Everybody)).unwrap();
    let at = doors.addresses();
    let urls = [format!("http://{}", at.http.unwrap()), format!("ssap://{}", at.ssap.unwrap())];
    (service, doors, urls)
}

fn kp(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["kp", "--at", url]).args(arguments);
    command
}

fn run(url: &str, arguments: &[&str]) -> Output {
    kp(url, arguments).output().unwrap()
}

fn lines(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

const LAMP: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

#[test]
fn lines_in_and_lines_out() {
    let (_service, _doors, urls) = start();
    for url in &urls {
        lines(&run(url, &["insert", "urn:lamp", "urn:state", "on"]));
        assert_eq!(lines(&run(url, &["query", LAMP])), "?o = \"on\"\n");
        assert_eq!(lines(&run(url, &["query", LAMP, "--json"])), "{\"o\":{\"type\":\"literal\",\"value\":\"on\"}}\n");
        let mut many = kp(url, &["insert"]).stdin(Stdio::piped()).spawn().unwrap();
        many.stdin.take().unwrap().write_all(b"urn:a urn:p one two\nurn:b urn:p <urn:c>\n").unwrap();
        assert!(many.wait().unwrap().success());
        let all = lines(&run(url, &["query", "SELECT ?o { ?s <urn:p> ?o } ORDER BY ?s"]));
        assert_eq!(all, "?o = \"one two\"\n?o = <urn:c>\n");
        lines(&run(url, &["update", "DELETE WHERE { ?s <urn:p> ?o }"]));
        lines(&run(url, &["remove", "urn:lamp", "*", "*"]));
        assert_eq!(lines(&run(url, &["query", "SELECT * { ?s ?p ?o }"])), "");
    }
}

#[test]
fn a_subscriber_is_told_line_by_line_and_ends_when_it_has_enough() {
    let (_service, _doors, urls) = start();
    for url in &urls {
        lines(&run(url, &["insert", "urn:lamp", "urn:state", "off"]));
        let how = ["subscribe", LAMP, "--json", "--control", "adaptive", "-C", "2"];
        let mut child = kp(url, &how).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = told.next().unwrap().unwrap();
        assert!(first.contains("\"source\":\"baseline\"") && first.contains("off"), "{first}");
        lines(&run(url, &["remove", "urn:lamp", "*", "*"]));
        let next = told.next().unwrap().unwrap();
        assert!(next.contains("\"source\":\"notification\"") && next.contains("\"lost\":0"), "{next}");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn exit_codes_say_what_is_wrong() {
    let (_service, _doors, urls) = start();
    assert_eq!(run("http://127.0.0.1:1", &["query", LAMP]).status.code(), Some(3));
    assert_eq!(run("nonsense", &["query", LAMP]).status.code(), Some(2));
    assert_eq!(run(&urls[0], &["query", "SELEC"]).status.code(), Some(1));
    assert_eq!(run(&urls[0], &["insert", "a", "b"]).status.code(), Some(2));
    let wrong = run(&urls[0], &["update", LAMP]);
    let words = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        wrong.status.code() == Some(2) && words.contains("this is a query") && words.contains("kp query"),
        "{words}"
    );
    assert_eq!(run(&urls[0], &["subscribe", LAMP, "--control", "wild"]).status.code(), Some(2));
    let graph = run(&urls[0], &["query", "CONSTRUCT WHERE { ?s ?p ?o }"]);
    let words = String::from_utf8_lossy(&graph.stderr).into_owned();
    assert!(graph.status.code() == Some(2) && words.contains("tidegate rdf query"), "{words}");
}

#[test]
fn the_papers_controls_are_known_by_name_and_what_is_out_of_range_is_refused() {
    let (_service, _doors, [url, _]) = start();
    lines(&run(&url, &["insert", "urn:lamp", "urn:state", "on"]));
    for control in [
        "adaptive-equation3",
        "adaptive-algorithm2",
        "active-p18",
        "active-p19",
        "active-s19",
        "algorithm1-p18",
        "algorithm1-p19",
    ] {
        let told = lines(&run(&url, &["subscribe", LAMP, "-C", "1", "--control", control, "--set", "delta=500ms"]));
        assert_eq!(told, "+ ?o = \"on\"\n", "{control}");
    }
    for (arguments, told) in [
        (["--set", "alpha=9"], "alpha = 9 is not allowed: expected a number in 1.1..=8"),
        (["--set", "t_min=2m"], "t_min = 120s is not allowed: expected at most t_max = 60s"),
        (["--set", "gamma=x"], "gamma = x is not allowed: expected a number"),
        (["--set", "zeta=1"], "unknown parameter \"zeta\": expected one of alpha, delta"),
        (["--control", "active-p99"], "unknown pacer \"active-p99\": expected one of none, fixed"),
    ] {
        let output = run(&url, &[&["watch", LAMP][..], &arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.contains(told)), (Some(2), true), "{arguments:?}: {said}");
    }
    for (arguments, told) in [
        (
            ["active-p18", "theta=0.5"],
            "warning: theta makes no difference with --control active-p18: only the detectors",
        ),
        (["fixed", "alpha=3"], "warning: alpha makes no difference with --control fixed: only the levels adaptive and"),
        (["active-p18", "alpha=3"], ""),
    ] {
        let output = run(&url, &["subscribe", LAMP, "-C", "1", "--control", arguments[0], "--set", arguments[1]]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(told) && said.is_empty() == told.is_empty(), "{arguments:?}: {said}");
    }
    let help = lines(&run(&url, &["watch", "--help"]));
    assert!(help.contains("algorithm1-p19") && help.contains("t_proc"), "{help}");
}

/// The lines of the pacer, which come once a second.
fn glances(url: &str, how: &[&str], count: usize) -> Vec<String> {
    let arguments = [&["watch", LAMP], how].concat();
    let mut child = kp(url, &arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let told = told.filter(|line| line.starts_with("# ") || line.starts_with("{\"pacer\"")).take(count).collect();
    let _ = (child.kill(), child.wait());
    told
}

#[test]
fn a_level_shows_what_it_has_and_nothing_else() {
    let (_service, _doors, [url, _]) = start();
    lines(&run(&url, &["insert", "urn:lamp", "urn:state", "on"]));
    for (how, begins) in [
        (
            &["--control", "adaptive-equation3", "--interval", "1s", "--set", "delta=10ms"][..],
            "# adaptive live  AST 1.0",
        ),
        (&["--control", "fixed", "--interval", "300ms"], "# fixed live  t 0.30 s  AST –  RBT –  stretch –  losses"),
        (&["--control", "none", "--poll"], "# none polling  AST –  RBT –  stretch –  losses"),
        (&["--control", "active-p18", "--interval", "1s"], "# active live  AST "),
    ] {
        for line in glances(&url, how, 2) {
            assert!(line.starts_with(begins), "{how:?}: {line}");
            let has_rbt = how[1] == "active-p18";
            assert!(has_rbt || (line.contains("RBT –") && !line.contains("congested")), "{how:?}: {line}");
        }
    }
    for (control, ast, rbt) in [("fixed", true, true), ("adaptive-equation3", false, true), ("active", false, false)] {
        let line = glances(&url, &["--control", control, "--json"], 1).remove(0);
        let is_null = |name: &str| line.contains(&format!("\"{name}\":null"));
        assert_eq!((is_null("ast_ms"), is_null("rbt_ms"), is_null("congested")), (ast, rbt, rbt), "{line}");
        assert!(!is_null("t_ms") && line.contains("\"t_ms\":"), "{line}");
    }
}
