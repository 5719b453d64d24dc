//! Whatever text comes: what the scanner lets through is parsed, planned, evaluated, subscribed to and dropped on a quarter
//! of the stack that a parser's thread has. An overflow ends the process, which is a finding. And the scanner agrees with
//! the parser: what the latter accepts the former has read to its end, and refuses for a reason that is in the text.
#![no_main]

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex};
use std::thread;

use libfuzzer_sys::fuzz_target;
use spargebra::SparqlParser;
use tidegate_graph::{GraphSpace, PARSE_STACK_BYTES, Query, QueryAnswer, QueryLimits, SpaceLimits, Update};

/// The scanner itself, which the crate does not show.
#[path = "../../../crates/graph/src"]
#[allow(dead_code, reason = "a part of a crate")]
mod graph {
    pub(crate) mod error;
    pub(crate) mod limits;
    pub(crate) mod rights;
    pub(crate) mod text;
}
use graph::{error, limits, rights};

/// A stack for a parser that nobody holds back.
const LARGE_STACK_BYTES: usize = 512 << 20;

/// A text, and who waits until it was dealt with.
type Job = (String, SyncSender<()>);

/// A thread that deals with one text after the other.
struct Worker(Mutex<SyncSender<Job>>);

impl Worker {
    fn new(stack_bytes: usize, deal_with: fn(&str)) -> Self {
        let (jobs, inbox) = sync_channel::<Job>(1);
        let worker = thread::Builder::new().stack_size(stack_bytes).spawn(move || {
            for (text, done) in inbox {
                deal_with(&text);
                let _ = done.send(());
            }
        });
        worker.expect("a thread");
        Self(Mutex::new(jobs))
    }

    fn wait_for(&self, text: &str) {
        let (done, wait) = sync_channel(1);
        let jobs = self.0.lock().expect("nobody panics with it");
        jobs.send((text.to_owned(), done)).expect("the worker lives");
        wait.recv().expect("the worker panicked");
    }
}

static CHAIN: LazyLock<Worker> = LazyLock::new(|| Worker::new(PARSE_STACK_BYTES / 4, whole_chain));
static PARSER: LazyLock<Worker> = LazyLock::new(|| Worker::new(LARGE_STACK_BYTES, agree));

fn whole_chain(text: &str) {
    let limits = QueryLimits { steps_max: 200, rows_max: 10, value_bytes_max: 1 << 12, ..QueryLimits::default() };
    let mut space = GraphSpace::new(1, SpaceLimits { standing: limits.clone(), ..SpaceLimits::default() });
    if let Ok(query) = Query::parse(text, &limits) {
        let _ = query.canonical();
        let snapshot = space.snapshot();
        match query.run(&snapshot, &limits) {
            Ok(QueryAnswer::Rows(rows)) => rows.for_each(drop),
            Ok(QueryAnswer::Triples(triples)) => triples.for_each(drop),
            _ => {}
        }
        let _ = space.subscribe(&query);
    }
    if let Ok(update) = Update::parse(text, &limits) {
        let _ = space.update(&update, &limits);
    }
}

fn agree(text: &str) {
    use graph::error::Limit;
    let generous = graph::limits::QueryLimits { depth_max: 10_000, chain_max: 1_000_000, ..Default::default() };
    let count = |signs: &[char]| text.matches(signs).count();
    match graph::text::check(text, None, &generous) {
        Ok(survey) if survey.is_whole => {}
        Ok(_) => {
            let parser = SparqlParser::new;
            let accepts = parser().parse_query(text).is_ok() || parser().parse_update(text).is_ok();
            assert!(!accepts, "the scanner gave up where the parser went on");
        }
        Err(error) => match error.limit().expect("nothing but a limit") {
            Limit::Depth => assert!(count(&['{']) > 32),
            Limit::Quoted => assert!(count(&['<']) > 16),
            // Each reading has second ones of its own: five signs make 31.
            Limit::Ambiguous => assert!(count(&['<']) > 4),
            Limit::WordBytes => assert!(text.len() > 1024),
            Limit::Reads => assert!(count(&['(', '{']) > 4),
            Limit::Patterns => assert!(text.len() > 1024),
            Limit::Variables => assert!(count(&['?', '$']) > 1000),
            limit => panic!("{limit:?} in a short text"),
        },
    }
}

fuzz_target!(|text: &str| {
    PARSER.wait_for(text);
    CHAIN.wait_for(text);
});
