//! What is meant to be looked at: the demonstration, and `top` on a terminal.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use tidegate_test_support::{Launch, tidegate};

/// Both columns of a row of the table.
fn row(text: &str, name: &str) -> [u64; 2] {
    let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
    let mut numbers = line.split_whitespace().rev().map(|word| word.parse().expect("a number"));
    let (on, off) = (numbers.next().expect("on"), numbers.next().expect("off"));
    [off, on]
}

/// What `tidegate demo flood` prints, with the words that it always has.
fn demonstration(more: &[&str], control: &str) -> String {
    let output = tidegate(&[&["demo", "flood", "--flood", "2s"], more].concat()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let off = "backoff.mode = \"off\", priority.mode = \"off\"";
    for words in [
        off,
        control,
        "CONTROL OFF",
        "CONTROL ON",
        "what `tidegate why flooder` said",
        "there is nobody to ask any more",
    ] {
        assert!(text.contains(words), "{words} is missing: {text}");
    }
    text
}

#[test]
fn the_demonstration_runs_the_defaults_which_hold_nobody() {
    let text = demonstration(&[], "the defaults");
    let ([sent_off, sent_on], [passed_off, passed_on]) =
        (row(&text, "the flooder's messages: sent"), row(&text, "passed on"));
    assert!(sent_off > 0 && sent_on > 0 && passed_off > 0 && passed_on > 0, "{text}");
    assert_eq!(row(&text, "waiting at the end"), [0, 0], "{text}");
    assert!(text.contains("the culprit is \"flooder\""), "{text}");
}

#[test]
fn the_demonstration_of_enforced_rhythms_slows_the_flooder() {
    let text = demonstration(&["--always"], "backoff.enforce = \"always\"");
    let ([sent_off, sent_on], [passed_off, passed_on]) =
        (row(&text, "the flooder's messages: sent"), row(&text, "passed on"));
    let ([waiting_off, waiting_on], [refused_off, refused_on]) =
        (row(&text, "waiting at the end"), row(&text, "refused, and told"));
    assert_eq!((waiting_off, refused_off), (0, 0), "{text}");
    assert!(sent_off > 0 && passed_off > 0 && waiting_on + refused_on > 0 && passed_on < sent_on, "{text}");
}

/// Both ends of a terminal.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
    let theirs = File::options().read(true).write(true).open(name).expect("its other end");
    (File::from(ours), theirs)
}

/// Reads until these words have come.
fn read_until(terminal: &mut File, seen: &mut String, words: &str) {
    let mut bytes = [0; 4096];
    while !seen.contains(words) {
        let count = terminal.read(&mut bytes).expect("the terminal is open");
        assert!(count > 0, "{words:?} is missing: {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[test]
fn top_draws_a_frame_and_gives_the_terminal_back() {
    let broker = Launch::new().door("admin").arguments(["--shards", "1"]).start();
    for end in ["q", "Ctrl-C"] {
        let (mut ours, theirs) = terminal();
        let copy = || Stdio::from(theirs.try_clone().expect("a copy"));
        let mut top = tidegate(&["top", "--admin", &broker.admin()]);
        let mut top = top.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("top runs");
        let mut seen = String::new();
        read_until(&mut ours, &mut seen, "\u{1b}[?1049h");
        read_until(&mut ours, &mut seen, "CLIENT");
        assert!(!tcgetattr(&theirs).expect("modes").local_modes.contains(LocalModes::ICANON), "single keys are heard");
        if end == "q" {
            ours.write_all(b"q").expect("a key");
        } else {
            kill_process(Pid::from_child(&top), Signal::INT).expect("a signal");
        }
        read_until(&mut ours, &mut seen, "\u{1b}[?25h\u{1b}[?1049l");
        assert!(top.wait().expect("it ends").success(), "{end}");
        let modes = tcgetattr(&theirs).expect("modes").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{end}: as it was before");
    }
}
