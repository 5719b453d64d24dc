//! What a reload changes, and what only a restart does.

use super::*;
use crate::config::{ConfigEntry, load};

fn loaded(text: &str, listener: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    std::fs::write(&file, text).unwrap();
    let flags = vec![
        ConfigEntry::flag("--mqtt", "listeners.mqtt", listener),
        // Else beside the file, which is elsewhere each time.
        ConfigEntry::flag("--data", "server.data", "/nonexistent"),
    ];
    load(&Sources { file: Some(file), flags, ..Sources::default() }).unwrap()
}

#[test]
fn a_reload_says_what_became_of_rules() {
    let rule = |topic: &str| format!("[[security.rule]]\nallow = \"read\"\ntopic = \"{topic}\"\n");
    let (none, one, other) = (loaded("", "1884"), loaded(&rule("a"), "1884"), loaded(&rule("b"), "1884"));
    assert_eq!(changes(&one, &none, &none).changed, ["security.rules 0 → 1"]);
    assert_eq!(changes(&other, &one, &none).changed, ["security.rules (still 1)"]);
    let moved = loaded(&format!("# a line more\n{}", rule("a")), "1884");
    assert_eq!(changes(&moved, &one, &none), Reloaded::default(), "where it stands does not matter");
}

#[test]
fn what_needs_a_restart_is_what_differs_from_the_start() {
    let (started, moved) = (loaded("", "1884"), loaded("", "1885"));
    assert_eq!(changes(&moved, &started, &started).restart, ["listeners.mqtt"]);
    assert_eq!(changes(&moved, &moved, &started).restart, ["listeners.mqtt"], "still, at the next reload");
    assert_eq!(changes(&started, &moved, &started).restart, [""; 0], "changed back: nothing is left to do");
}
