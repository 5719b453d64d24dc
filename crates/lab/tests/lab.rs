//! The laboratory from outside: what it writes, what it refuses, and how it ends.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Two loads for a minute of virtual time: a moment of ours.
const SMALL: &str = "title = \"Small\"\nquestion = \"Is it small?\"\nreplications = 3\n\
    [run]\nduration = \"40s\"\nwarm_up = \"20s\"\n[clients]\ninterval = \"5s\"\n[host]\ncapacity = \"50/s\"\n\
    [[vary]]\nkey = \"clients.load\"\nvalues = [0.5, 2]\n";
const IMPOSSIBLE: &str = "[[assert]]\nsays = \"nobody is ever stale\"\nmetric = \"stale\"\nmax = 0\n";

fn lab(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary runs")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-lab"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whoever reads has seen enough (`| head -1`): that is no panic and no error.
#[test]
fn a_reader_that_leaves_is_no_panic() {
    let overload = ["overload", "--clients", "1000", "--interval", "10s", "--limit", "120"];
    let (folder, file, out) = scenario(SMALL);
    let run = ["run", &file, "--out", &out];
    for words in [&["list"][..], &["list", "--json"], &overload, &run, &["compare", &out, &out]] {
        let mut child = command(words).current_dir(folder.path()).spawn().expect("it runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(0) && !said.contains("panic") && !said.contains("error"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn what_is_data_is_there_as_json() {
    let json = |words: &[&str]| -> Value { serde_json::from_slice(&lab(words).stdout).expect("JSON") };
    let list = json(&["list", "--json"]);
    assert!(list["experiments"].as_array().expect("a list").iter().any(|it| it["name"] == "e1-overload"), "{list}");
    let overload =
        json(&["overload", "--clients", "1000", "--interval", "10s", "--limit", "120", "--risk", "0.01", "--json"]);
    let exceeded = overload["advised"]["exceeded"].as_f64().expect("a share");
    assert!((0.009..=0.0101).contains(&exceeded), "{overload}");
}

/// A folder with a scenario, and their paths as arguments.
fn scenario(scenario: &str) -> (TempDir, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    fs::write(&file, scenario).expect("a scenario");
    let path = |path: PathBuf| path.to_str().expect("a name").to_owned();
    let (file, out) = (path(file), path(folder.path().join("out")));
    (folder, file, out)
}

fn summary(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("summary.json")).expect("a summary")).expect("JSON")
}

/// Every file below a folder with its text, but for what the clock has a part in.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        if entry.file_type().expect("a kind").is_dir() {
            list.extend(files(&entry.path()));
        } else {
            let name = entry.file_name().to_string_lossy().into_owned();
            list.push((name, fs::read_to_string(entry.path()).expect("a text")));
        }
    }
    list.sort();
    list
}

#[test]
fn the_list_has_every_experiment_with_a_title() {
    let output = lab(&["list"]);
    let list = text(&output.stdout);
    assert!(output.status.success() && list.lines().count() >= 30, "{list}");
    for name in ["goals-200", "e7-loss", "e8-detectors", "e10-cooperation", "shedding", "denial-cost", "theory"] {
        assert!(list.lines().any(|line| line.starts_with(name) && line.len() > 30), "{name} is not in:\n{list}");
    }
}

#[test]
fn the_same_seed_writes_the_same_bytes_whatever_the_threads() {
    let (folder, file, out) = scenario(SMALL);
    let other = folder.path().join("other");
    let other = other.to_str().expect("a name");
    assert!(lab(&["run", &file, "--out", &out, "--threads", "1"]).status.success());
    assert!(lab(&["run", &file, "--out", other, "--threads", "3"]).status.success());
    let (first, again) = (files(Path::new(&out)), files(Path::new(other)));
    let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["cases.csv", "mine-stale.svg", "report.html", "summary.json", "timeline.csv"]);
    assert!(first == again, "the files differ");
    assert!(lab(&["run", &file, "--out", other, "--seed", "2"]).status.success());
    let changed = files(Path::new(other));
    assert!(first.iter().zip(&changed).all(|(one, two)| one.1 != two.1), "another seed, the same text");
}

#[test]
fn figures_and_page_say_where_they_come_from_and_need_nothing_else() {
    let (_folder, file, out) = scenario(SMALL);
    let output = lab(&["run", &file, "--out", &out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| fs::read_to_string(Path::new(&out).join(name)).expect("a file");
    let svg = read("mine-stale.svg");
    for wanted in
        ["seeds 1–3", "3 replications", env!("CARGO_PKG_VERSION"), "stale, share", "prefers-color-scheme:dark"]
    {
        assert!(svg.contains(wanted), "{wanted}");
    }
    let page = read("report.html");
    assert!(page.contains("<svg") && page.contains("Is it small?") && page.ends_with("</html>\n"));
    assert!(
        !page.contains("src=") && !page.contains("@import") && !page.contains("href=\"http"),
        "it fetches something"
    );
    assert!(read("cases.csv").starts_with("clients.load,replications,goodput,goodput_half_width_95,"));
}

#[test]
fn a_missed_threshold_is_told_by_the_exit_code() {
    let (_folder, file, out) = scenario(&format!("{SMALL}{IMPOSSIBLE}"));
    let output = lab(&["run", &file, "--out", &out]);
    assert_eq!(output.status.code(), Some(99), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("0 of 1 expectations hold; missed: nobody is ever stale."));
    let summary = summary(Path::new(&out));
    assert_eq!(summary["expectations"][0]["holds"], Value::Bool(false));
}

#[test]
fn mistakes_are_refused_with_line_and_suggestion_before_anything_runs() {
    for (wrong, said) in [
        (
            "[clients]\nintervall = \"5s\"\n",
            "line 2: clients.intervall: unknown key; did you mean \"clients.interval\"?",
        ),
        (
            "[clients]\ninterval = 5\n",
            "line 2: clients.interval: expected a time with a unit, such as \"10s\" or \"250ms\"; did you mean \"5s\"?",
        ),
        ("[link]\nloss = \"120%\"\n", "line 2: link.loss: 1.2 is not within 0 and 0.99"),
        ("[broker]\npreset = \"produkt\"\n", "did you mean \"product\"?"),
        (
            "[run]\nduration = \"10s\"\nwarm_up = \"20s\"\n",
            "run.warm_up: 20 s is not before the end of the run at 10 s",
        ),
        ("primary = \"stail\"\n", "did you mean \"stale\"?"),
        ("version = 9\n", "line 1: version"),
    ] {
        let (_folder, file, out) = scenario(wrong);
        let output = lab(&["run", &file, "--out", &out]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {error}");
        assert!(error.contains(said), "{wrong}: {error}");
        assert!(!Path::new(&out).exists(), "{wrong}: something was written");
    }
    for (wrong, said) in [
        (["run", "e1-overlod", "--seed", "1"], "e1-overload"),
        (["run", "e5-flapping", "--set", "host.capacity=200"], "did you mean \"200/s\"?"),
        (["run", "e5-flapping", "--set", "host.capasity=200/s"], "did you mean \"host.capacity\"?"),
        (["sweep", "e5-flapping", "--vary", "clients.betta=1,2"], "did you mean \"clients.beta\"?"),
        (["all", "--only", "nothing-like-it", "--quick"], "no experiment has such a name"),
    ] {
        let output = lab(&wrong);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {error}");
        assert!(error.contains(said), "{wrong:?}: {error}");
    }
}

#[test]
fn what_does_not_fit_into_memory_is_refused_before_it_starts() {
    let (_folder, file, out) = scenario(SMALL);
    let many = ["--set", "clients.count=10000000", "--threads", "1000", "--replications", "1000"];
    let output = lab(&[&["run", &file, "--out", &out][..], &many].concat());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("needs about") && error.contains("MiB are free"), "{error}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_sweep_of_two_numbers_is_a_heat_map() {
    let (_folder, file, out) = scenario(SMALL);
    let vary = ["--vary", "clients.beta=1.5,2", "--vary", "clients.load=1,2,3"];
    let arguments = [&["sweep", &file, "--out", &out, "--metric", "goodput"][..], &vary].concat();
    let output = lab(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let svg = fs::read_to_string(Path::new(&out).join("mine-sweep-goodput.svg")).expect("a figure");
    assert_eq!(svg.matches("opacity=").count(), 6, "{svg}");
    assert!(svg.contains("beta ↓, load →"), "{svg}");
    assert_eq!(summary(Path::new(&out))["cases"].as_array().map(Vec::len), Some(6));
    let unknown = lab(&["sweep", &file, "--vary", "clients.load=1", "--metric", "goodputt"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn a_comparison_flags_what_became_worse() {
    let (folder, file, out) = scenario(SMALL);
    let worse = folder.path().join("worse");
    let worse = worse.to_str().expect("a name");
    assert!(lab(&["run", &file, "--out", &out]).status.success());
    assert!(lab(&["run", &file, "--out", worse, "--set", "link.loss=60%"]).status.success());
    let output = lab(&["compare", &out, worse]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(99), "{told}");
    assert!(told.contains("paired by seed") && told.contains("WORSE"), "{told}");
    assert!(told.ends_with("2 cases compared; 2 worse in stale\n"), "{told}");
    let back = lab(&["compare", worse, &out]);
    assert_eq!(back.status.code(), Some(0), "{}", text(&back.stdout));
    assert!(text(&back.stdout).contains("better"));
    let same = lab(&["compare", &out, &out]);
    assert!(same.status.success() && text(&same.stdout).ends_with("0 worse in stale\n"));
    // One replication says nothing of chance, and is not called "0 worse".
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let (one, other) = (one.to_str().expect("a name"), other.to_str().expect("a name"));
    lab(&["run", &file, "--out", one, "--replications", "1"]);
    lab(&["run", &file, "--out", other, "--replications", "1", "--set", "link.loss=60%"]);
    let told = text(&lab(&["compare", one, other]).stdout);
    assert!(told.contains("1 common seed") && told.contains("2 differ and were not judged"), "{told}");
    let none = lab(&["compare", &out, &file]);
    assert_eq!(none.status.code(), Some(1), "{}", text(&none.stdout));
}

#[test]
fn tuning_prints_what_to_paste() {
    let arguments = ["tune", "--replications", "2", "--set", "run.duration=20s", "--set", "run.warm_up=10s"];
    let deployment = ["--set", "host.capacity=20/s", "--set", "clients.interval=2s"];
    let output = lab(&[&arguments[..], &deployment].concat());
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    assert!(
        told.starts_with("// stale copies: ") && told.contains("let mut pacer = PacerConfig::default();"),
        "{told}"
    );
}

#[test]
fn an_interrupted_experiment_leaves_a_valid_partial_report() {
    let (_folder, file, out) = scenario(&SMALL.replace("replications = 3", "replications = 10000"));
    let mut child = command(&["run", &file, "--out", &out, "--threads", "1"]).spawn().expect("it starts");
    let mut stderr = child.stderr.take().expect("its words");
    // It says when it has a whole replication.
    let mut heard = String::new();
    let mut buffer = [0; 256];
    while !heard.contains(": 1 of 10000 replications") {
        let read = std::io::Read::read(&mut stderr, &mut buffer).expect("progress");
        assert!(read > 0, "it ended by itself: {heard}");
        heard.push_str(&text(&buffer[..read]));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("fewer replications than planned"), "{}", text(&output.stdout));
    let summary = summary(Path::new(&out));
    assert_eq!(summary["complete"], Value::Bool(false));
    let replications = summary["replications"].as_u64().expect("a count");
    assert!((1..10_000).contains(&replications));
    for case in summary["cases"].as_array().expect("cases") {
        assert_eq!(case["metrics"]["stale"]["runs"].as_array().map(Vec::len), Some(replications as usize));
    }
    let page = fs::read_to_string(Path::new(&out).join("report.html")).expect("a page");
    assert!(page.ends_with("</html>\n") && page.contains("fewer than planned"));
}

/// The book of three small experiments: template, goals, figures, and what it says about its own extent.
#[test]
fn a_quick_book_says_that_it_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let (out, manual) = (path("out"), path("docs"));
    fs::create_dir_all(folder.path().join("docs/evaluation")).expect("a folder");
    fs::write(folder.path().join("docs/evaluation/old.svg"), "<svg/>").expect("a figure of before");
    let output = lab(&["all", "--quick", "--only", "p5", "--out", &out, "--manual", &manual]);
    let told = text(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 99)), "{told}{}", text(&output.stderr));
    let book = fs::read_to_string(folder.path().join("docs/evaluation.md")).expect("a book");
    assert!(!book.contains("{{"), "something was not filled in");
    for wanted in ["# Evaluation", "| G8 |", "| G9 |", "This is a quick look", "evaluation/p5-jitter.md", "(not run)"] {
        assert!(book.contains(wanted), "{wanted} is not in the book");
    }
    let pages = files(&folder.path().join("docs/evaluation"));
    let text_of = |wanted: &str| pages.iter().find(|(name, _)| name == wanted).map(|(_, text)| text.as_str());
    assert!(text_of("old.svg").is_none(), "a figure of another run");
    let answers = text_of("answers.md").expect("all answers");
    assert!(answers.contains("## What it cost") && !answers.contains("{{"), "{answers}");
    let page = text_of("p5-jitter.md").expect("a page for each experiment");
    assert!(page.contains("QUICK LOOK") && page.contains("p5-jitter.csv") && page.contains("| case |"), "{page}");
    assert!(text_of("p5-jitter.csv").is_some_and(|csv| csv.lines().count() > 1));
    let mut figures = pages.iter().filter(|(name, _)| Path::new(name).extension().is_some_and(|it| it == "svg"));
    assert!(figures.all(|(_, svg)| svg.contains("QUICK LOOK")), "figures of another run");
    for line in book.lines().filter(|line| line.starts_with("![")) {
        let file = line.split_once("](").and_then(|(_, rest)| rest.strip_suffix(')')).expect("a figure");
        assert!(folder.path().join("docs").join(file).exists(), "{file} is missing");
    }
}

/// What is complete is not run again, and the book has the same bytes.
#[test]
fn a_book_goes_on_where_it_was_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").to_str().expect("a name").to_owned();
    let once = lab(&["all", "--quick", "--only", "p5", "--out", &out]);
    assert!(text(&once.stderr).contains("runs in"), "{}", text(&once.stderr));
    let before = files(&folder.path().join("out"));
    let again = lab(&["all", "--quick", "--only", "p5", "--out", &out, "--resume"]);
    assert_eq!(again.status.code(), once.status.code());
    assert_eq!(text(&again.stderr), "", "it was run again");
    assert_eq!(files(&folder.path().join("out")), before);
    // Pages of a part of a book leave those of the rest alone.
    let manual = folder.path().join("docs");
    fs::create_dir_all(manual.join("evaluation")).expect("a folder");
    fs::write(manual.join("evaluation/other.svg"), "<svg/>").expect("a figure of another experiment");
    let pages = manual.to_str().expect("a name");
    lab(&["all", "--quick", "--only", "p5", "--out", &out, "--resume", "--pages", pages]);
    let written: Vec<String> = files(&manual.join("evaluation")).into_iter().map(|(name, _)| name).collect();
    assert!(["other.svg", "p5-jitter.md", "p5-jitter.csv"].iter().all(|it| written.iter().any(|name| name == it)));
    assert!(!manual.join("evaluation.md").exists(), "the first page is of the whole book");
    // Other settings are another experiment.
    let other = lab(&["all", "--quick", "--only", "p5", "--out", &out, "--resume", "--seed", "7"]);
    assert!(text(&other.stderr).contains("runs in"), "{}", text(&other.stderr));
}
