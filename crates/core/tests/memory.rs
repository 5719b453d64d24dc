//! What is charged is what is used: retained messages whose topics are far longer than what they say. A process of its
//! own, so that nobody else's memory is measured.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_test_support::skip::{Remedy, skip};

/// Resident bytes of this process, where the system tells.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

#[test]
fn deep_topics_are_charged_what_they_take() {
    let Some(before) = resident() else {
        return skip("/proc/self/statm", "this system does not have it", Remedy::Owner("use Linux"));
    };
    let settings = Settings { retained_bytes_max: usize::MAX, ..Settings::default() };
    let mut shard = Shard::new(0, 1, Arc::new(settings), Arc::new(Open), 1);
    let charged_before = shard.memory_used();
    let level = "x".repeat(110);
    let deep = [level.as_str(); 63].join("/");
    for number in 0..8000 {
        shard.handle_system(&format!("{deep}/{number}"), b"1", Timestamp::ZERO);
    }
    let (charged, taken) = (shard.memory_used() - charged_before, resident().unwrap() - before);
    println!("8000 topics of 64 levels: {charged} bytes charged, {taken} resident");
    assert!(shard.stats().retained_messages == 8000);
    assert!(taken <= charged + charged / 4, "{taken} bytes taken, {charged} charged");
}
