//! Whatever text comes: what the scanner lets through is parsed, planned, evaluated and dropped on a quarter of the stack
//! that a parser's thread has. An overflow ends the process, which is a finding.
#![no_main]

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex};
use std::thread;

use libfuzzer_sys::fuzz_target;
use tidegate_graph::{PARSE_STACK_BYTES, Query, QueryLimits, Results, Space, SpaceLimits, Update};

/// A text, and who waits until it was dealt with.
type Job = (String, SyncSender<()>);

static WORKER: LazyLock<Mutex<SyncSender<Job>>> = LazyLock::new(|| {
    let (jobs, inbox) = sync_channel::<Job>(1);
    let worker = thread::Builder::new().stack_size(PARSE_STACK_BYTES / 4).spawn(move || {
        for (text, done) in inbox {
            deal_with(&text);
            let _ = done.send(());
        }
    });
    worker.expect("a thread");
    Mutex::new(jobs)
});

fn deal_with(text: &str) {
    let limits = QueryLimits { steps_max: 200, rows_max: 10, value_bytes_max: 1 << 12, ..QueryLimits::default() };
    let mut space = Space::new(1, SpaceLimits::default());
    if let Ok(query) = Query::parse(text, &limits) {
        let _ = query.canonical();
        let snapshot = space.snapshot();
        match query.run(&snapshot, &limits) {
            Ok(Results::Rows(rows)) => rows.for_each(drop),
            Ok(Results::Triples(triples)) => triples.for_each(drop),
            _ => {}
        }
    }
    if let Ok(update) = Update::parse(text, &limits) {
        let _ = space.update(&update, &limits);
    }
}

fuzz_target!(|text: &str| {
    let (done, wait) = sync_channel(1);
    let jobs = WORKER.lock().expect("nobody panics with it");
    jobs.send((text.to_owned(), done)).expect("the worker lives");
    wait.recv().expect("the worker panicked");
});
