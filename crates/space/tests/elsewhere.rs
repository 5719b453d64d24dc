//! A space that is kept elsewhere, too: nothing is confirmed or seen before it is kept there, and while another may have the
//! space in its place nobody is served.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set up has failed")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oxrdfio::RdfFormat;
use tidegate_graph::{Mask, MaskGraph, QueryLimits, Update};
use tidegate_space::{
    Condition, Form, Refused, RequestOrigin, ResponseBody, Service, ServiceOptions, SpaceHandle, SpaceRequest,
    SpaceResponse, StoreConfig,
};
use tidegate_store::Durability;
use tidegate_store::disk::{Mirror, MirrorChange};

/// Keeps what it is given, and is certain of its owner, as long as it is told to.
#[derive(Debug)]
struct Elsewhere {
    keeps: AtomicBool,
    is_certain: AtomicBool,
}

impl Mirror for Elsewhere {
    fn push(&self, _: MirrorChange<'_>, _: bool) -> io::Result<u64> {
        Ok(0)
    }

    fn wait(&self, _: u64) -> io::Result<()> {
        if self.keeps.load(Ordering::SeqCst) { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    fn holds(&self) -> bool {
        self.is_certain.load(Ordering::SeqCst)
    }
}

fn open(folder: &Path) -> (Service, Arc<Elsewhere>) {
    let elsewhere = Arc::new(Elsewhere { keeps: AtomicBool::new(true), is_certain: AtomicBool::new(true) });
    let mirror = Some(Arc::clone(&elsewhere) as Arc<dyn Mirror>);
    let dir = folder.join("space");
    let config = StoreConfig { dir, durability: Durability::Always, strict: false, size_max: None };
    let options = ServiceOptions { mirror, ..ServiceOptions::default() };
    (Service::open_by(&config, &options).unwrap().0, elsewhere)
}

fn ask(handle: &SpaceHandle, ask: SpaceRequest) -> Result<SpaceResponse, Refused> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(handle.ask(ask, RequestOrigin::new(0, None)))
}

fn insert(handle: &SpaceHandle, number: u32) -> Result<SpaceResponse, Refused> {
    let text = format!("INSERT DATA {{ <urn:a> <urn:p> {number} }}");
    ask(handle, SpaceRequest::Update(Box::new(Update::parse(&text, &QueryLimits::default()).unwrap())))
}

fn count(handle: &SpaceHandle) -> Result<usize, Refused> {
    let masks = vec![Mask { graph: MaskGraph::Any, ..Mask::default() }];
    let answered = ask(handle, SpaceRequest::Match { masks, form: Form::Graph(RdfFormat::NQuads) })?;
    let ResponseBody::Bytes(bytes) = answered.answer else { panic!("{answered:?}") };
    Ok(std::str::from_utf8(&bytes).unwrap().lines().count())
}

#[test]
fn what_is_not_kept_elsewhere_is_not_confirmed_and_seen_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (service, elsewhere) = open(folder.path());
    let handle = service.handle();
    // A new space begins at the time of its making, so that its versions are nobody else's.
    let empty = handle.version();
    assert_eq!(insert(&handle, 1).unwrap().version, empty + 1);
    elsewhere.keeps.store(false, Ordering::SeqCst);
    assert_eq!(insert(&handle, 2).unwrap_err(), Refused::Unconfirmed);
    assert_eq!(insert(&handle, 3).unwrap_err(), Refused::Unwritable, "known to fail by now: not even begun");
    assert_eq!((count(&handle), handle.version()), (Ok(1), empty + 1));
    elsewhere.keeps.store(true, Ordering::SeqCst);
    while handle.version() < empty + 2 {
        std::thread::yield_now();
    }
    assert_eq!((count(&handle), insert(&handle, 3).unwrap().version), (Ok(2), empty + 3));
}

#[test]
fn who_may_have_been_overtaken_serves_nobody_and_goes_on_when_it_is_certain_again() {
    let folder = tempfile::tempdir().unwrap();
    let (service, elsewhere) = open(folder.path());
    let handle = service.handle();
    let empty = handle.version();
    insert(&handle, 1).unwrap();
    assert_eq!(count(&handle), Ok(1));
    elsewhere.is_certain.store(false, Ordering::SeqCst);
    let unsure = Refused::Unavailable(Condition::Unsure);
    assert_eq!(insert(&handle, 2).unwrap_err(), unsure);
    assert_eq!(count(&handle), Err(unsure), "not even what is remembered");
    assert_eq!(handle.condition(), Condition::Unsure);
    elsewhere.is_certain.store(true, Ordering::SeqCst);
    assert_eq!((count(&handle), insert(&handle, 3).unwrap().version), (Ok(1), empty + 2));
}
