//! The space on disk, on a disk that crashes and fails by seed: what was confirmed is there, whole and in order, and what
//! was not kept was seen by nobody.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set up has failed")]

use std::path::PathBuf;
use std::time::Duration;

use oxrdfio::RdfFormat;
use tidegate_graph::{GraphSpace, Mask, MaskGraph, Query, QueryLimits, SpaceLimits, Update};
use tidegate_space::{
    Form, Refused, RequestOrigin, ResponseBody, Service, SpaceAdmission, SpaceHandle, SpaceNotification, SpaceOpening,
    SpaceRequest, SpaceResponse, StoreConfig, Watched, outlet, restore_space,
};
use tidegate_store::disk::sim::{Crash, DiskFault, SimDisk};
use tidegate_store::{Durability, Health, LogOptions};

const RULE: &str = "INSERT { ?s <urn:copy> ?o } WHERE { ?s <urn:p> ?o FILTER(?o > 5) }";

fn config(durability: Durability) -> StoreConfig {
    StoreConfig { dir: PathBuf::from("sim"), durability, strict: false, size_max: None }
}

/// Segments so small that compactions come all the time.
fn small() -> LogOptions {
    LogOptions { segment_bytes: 2000, compact_bytes_min: 6000, ..LogOptions::default() }
}

fn open_as(disk: &SimDisk, durability: Durability) -> (Service, SpaceOpening) {
    Service::open_on(disk.boot(), &config(durability), small(), SpaceLimits::default()).unwrap()
}

fn open(disk: &SimDisk) -> (Service, SpaceOpening) {
    open_as(disk, Durability::Always)
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn asker() -> RequestOrigin {
    RequestOrigin::new(0, None)
}

fn update(text: &str) -> SpaceRequest {
    SpaceRequest::Update(Box::new(Update::parse(text, &QueryLimits::default()).unwrap()))
}

fn ask(handle: &SpaceHandle, ask: SpaceRequest) -> Result<SpaceResponse, Refused> {
    wait(handle.ask(ask, asker()))
}

/// Everything that readers see, in order.
fn quads(handle: &SpaceHandle) -> Vec<String> {
    let masks = vec![Mask { graph: MaskGraph::Any, ..Mask::default() }];
    let answered = ask(handle, SpaceRequest::Match { masks, form: Form::Graph(RdfFormat::NQuads) }).unwrap();
    let ResponseBody::Bytes(bytes) = answered.answer else { panic!("{answered:?}") };
    let mut lines: Vec<String> = std::str::from_utf8(&bytes).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The same of a space in hand.
fn quads_of(space: &GraphSpace) -> Vec<String> {
    let mut lines: Vec<String> = space.snapshot().quads().map(|quad| format!("{quad} .")).collect();
    lines.sort_unstable();
    lines
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The naive model: a space in memory that is told the same.
struct Model {
    space: GraphSpace,
    rules: Vec<String>,
    /// The version with which it began.
    first: u64,
    /// What it looked like after each request: version, quads, names of rules.
    states: Vec<(u64, Vec<String>, Vec<String>)>,
}

impl Model {
    fn new(first: u64) -> Self {
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        space.replay_version(first);
        Self { space, rules: Vec::new(), first, states: vec![(first, Vec::new(), Vec::new())] }
    }

    fn next(&mut self, dice: &mut Dice) -> SpaceRequest {
        let limits = QueryLimits::default();
        let (s, o) = (dice.below(6), dice.below(9));
        let ask = match dice.below(12) {
            0 if self.rules.len() < 3 => {
                let name = format!("rule-{}", self.states.len());
                self.space.add_rule(RULE, &limits).unwrap();
                self.rules.push(name.clone());
                SpaceRequest::AddRule { name, text: RULE.to_owned() }
            }
            1 if !self.rules.is_empty() => {
                let (id, _) = self.space.rules().next().map(|(id, text)| (id, text.to_owned())).unwrap();
                self.space.remove_rule(id).unwrap();
                SpaceRequest::RemoveRule(self.rules.remove(0))
            }
            2..5 => self.update(&format!("DELETE WHERE {{ <urn:s{s}> ?p ?o }}")),
            5 => self.update(&format!("INSERT DATA {{ GRAPH <urn:g> {{ _:b <urn:p> 'long {}' }} }}", "x".repeat(300))),
            _ => self.update(&format!("INSERT DATA {{ <urn:s{s}> <urn:p> {o} }}")),
        };
        self.states.push((self.space.version(), quads_of(&self.space), self.rules.clone()));
        ask
    }

    fn update(&mut self, text: &str) -> SpaceRequest {
        let limits = QueryLimits::default();
        self.space.update(&Update::parse(text, &limits).unwrap(), &limits).unwrap();
        update(text)
    }

    /// After a restart: the model forgets what was not kept.
    fn go_back_to(&mut self, state: usize, dice: &mut Dice, seed: u64) {
        *dice = Dice(seed);
        let steps = state;
        *self = Self::new(self.first);
        for _ in 0..steps {
            self.next(dice);
        }
    }
}

#[test]
fn what_was_confirmed_survives_a_power_cut_at_any_moment() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (mut dice, mut other) = (Dice(seed), Dice(seed ^ 0xabcd));
        let (mut model, mut confirmed) = (Model::new(0), 0);
        for round in 0..4 {
            let (service, opening) = open(&disk);
            if opening.report.records == 0 {
                // Nothing was kept yet: the folder is as good as new, and its versions begin at the time of now.
                assert!(confirmed == 0 && opening.version > model.first, "seed {seed} round {round}: {opening:?}");
                model = Model::new(opening.version);
            }
            assert!(!opening.report.is_damaged() && opening.holes == 0, "seed {seed}: {opening:?}");
            let handle = service.handle();
            // Where does the restart stand? At a state that the model went through, and not before what was confirmed.
            let found = (opening.version, quads(&handle), opening.rules);
            let state = model.states.iter().rposition(|state| *state == found);
            let state = state.unwrap_or_else(|| panic!("seed {seed} round {round}: {found:?} was never"));
            assert!(state >= confirmed, "seed {seed} round {round}: something confirmed is gone");
            model.go_back_to(state, &mut dice, seed);
            confirmed = state;
            let mut waiting: std::collections::VecDeque<_> =
                (0..5 + other.below(40)).map(|_| handle.start(model.next(&mut dice), asker())).collect();
            // All but the last few are waited for.
            while waiting.len() > CUT.min(other.below(CUT as u64 + 1) as usize) {
                let answered = wait(waiting.pop_front().unwrap().answer());
                assert!(answered.is_ok(), "seed {seed}: {answered:?}");
                confirmed += 1;
            }
            disk.crash([Crash::Tear, Crash::LoseUnsynced, Crash::Process][other.below(3) as usize]);
        }
    }
}

/// Requests that may be under way when the power goes.
const CUT: usize = 8;

#[test]
fn a_disk_that_fails_confirms_nothing_shows_nothing_and_goes_on() {
    let disk = SimDisk::new(3);
    let (service, SpaceOpening { version: first, .. }) = open(&disk);
    let handle = service.handle();
    ask(&handle, update("INSERT DATA { <urn:a> <urn:p> 1 }")).unwrap();
    let (out, mut inlet) = outlet(&handle);
    let query = Query::parse("SELECT ?o { ?s <urn:p> ?o }", &QueryLimits::default()).unwrap();
    let what = || Watched::Query(Box::new(query.clone()));
    ask(&handle, SpaceRequest::Subscribe { what: what(), name: "s".into(), seen: None, outlet: Some(out.clone()) })
        .unwrap();

    disk.set_broken(Some(DiskFault::Device));
    let refused = ask(&handle, update("INSERT DATA { <urn:a> <urn:p> 2 }")).unwrap_err();
    assert_eq!(refused, Refused::Unconfirmed);
    // Known to fail by now: the next ones are not even begun.
    for request in [
        update("INSERT DATA { <urn:a> <urn:p> 3 }"),
        SpaceRequest::AddRule { name: "r".into(), text: RULE.into() },
        SpaceRequest::Subscribe { what: what(), name: "s".into(), seen: None, outlet: Some(out.clone()) },
    ] {
        assert_eq!(ask(&handle, request).unwrap_err(), Refused::Unwritable);
    }
    let before = quads(&handle);
    assert_eq!(
        (before.len(), handle.version() - first),
        (1, 1),
        "questions are answered, from what is kept: {before:?}"
    );
    let health = service.store().unwrap().report().unwrap().health;
    assert!(matches!(health, Health::Failed { .. }));

    disk.set_broken(None);
    let (sequence, delta) = wait(async {
        match inlet.next().await.unwrap().1 {
            SpaceNotification::Changed { sequence, delta, .. } => (sequence, delta),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!((sequence, delta.added.len(), delta.removed.len()), (1, 1, 0), "the one that waited, and only it");
    assert_eq!((quads(&handle).len(), handle.version() - first), (2, 2));
    let answered = ask(&handle, update("INSERT DATA { <urn:a> <urn:p> 3 }")).unwrap();
    assert_eq!(answered.version - first, 3);
    drop(service);
    let (service, opening) = open(&disk);
    assert_eq!((opening.version - first, quads(&service.handle()).len()), (3, 3));
    assert!(opening.report.is_closed);
}

/// F114: a space that fills its disk refuses what would make it grow, takes what makes it smaller, and goes on.
#[test]
fn f114_a_full_disk_refuses_what_grows_takes_what_removes_and_heals() {
    let disk = SimDisk::new(3);
    disk.set_capacity(Some(60_000));
    let (service, _) = open(&disk);
    let handle = service.handle();
    let insert = |number: u32| update(&format!("INSERT DATA {{ <urn:a> <urn:p> \"{number} {}\" }}", "x".repeat(200)));
    let mut kept = 0;
    let refused = loop {
        match ask(&handle, insert(kept)) {
            Ok(_) => kept += 1,
            Err(refused) => break refused,
        }
        assert!(kept < 1000, "the disk is never full");
    };
    assert!(refused == Refused::Unwritable && kept > 20, "{refused:?} after {kept}");
    let store = service.store().unwrap();
    let health = || store.report().unwrap().health;
    assert!(matches!(health(), Health::Full { .. }), "{:?}", health());
    ask(&handle, update("DELETE WHERE { ?s ?p ?o }")).unwrap();
    while health() != Health::Fine {
        std::thread::yield_now();
    }
    ask(&handle, insert(kept)).unwrap();
    drop(service);
    let (service, opening) = open(&disk);
    assert!(!opening.report.is_damaged() && quads(&service.handle()).len() == 1, "{}", opening.report);
}

#[test]
fn a_failed_sync_under_a_group_costs_nothing_that_was_confirmed() {
    for call in 0..40 {
        let disk = SimDisk::new(call);
        let (service, _) = open(&disk);
        let handle = service.handle();
        disk.fail_call(call, DiskFault::Full);
        let mut confirmed = Vec::new();
        for n in 0..20 {
            let answered = ask(&handle, update(&format!("INSERT DATA {{ <urn:a> <urn:p> {n} }}")));
            match answered {
                Ok(_) => confirmed.push(n),
                Err(Refused::Unconfirmed | Refused::Unwritable) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        disk.crash(Crash::LoseUnsynced);
        let (service, _) = open(&disk);
        let there = quads(&service.handle()).join("\n");
        for n in confirmed {
            assert!(there.contains(&format!("\"{n}\"^^")), "call {call}: {n} is gone\n{there}");
        }
    }
}

#[test]
fn rules_keep_their_names_and_names_are_not_given_twice() {
    let disk = SimDisk::new(1);
    let (service, _) = open(&disk);
    let handle = service.handle();
    for name in ["first", "second"] {
        ask(&handle, SpaceRequest::AddRule { name: name.into(), text: RULE.into() }).unwrap();
    }
    ask(&handle, SpaceRequest::RemoveRule("second".into())).unwrap();
    drop((handle, service));
    let (service, opening) = open(&disk);
    let handle = service.handle();
    assert_eq!(opening.rules, ["first"]);
    ask(&handle, update("INSERT DATA { <urn:a> <urn:p> 7 }")).unwrap();
    assert_eq!(quads(&handle).len(), 2, "it is in force");
    assert!(matches!(ask(&handle, SpaceRequest::RemoveRule("second".into())), Err(Refused::Failed(_))));
    ask(&handle, SpaceRequest::RemoveRule("first".into())).unwrap();
    ask(&handle, update("INSERT DATA { <urn:b> <urn:p> 8 }")).unwrap();
    assert_eq!(quads(&handle).len(), 3);
}

#[test]
fn versions_do_not_come_back_with_another_meaning() {
    let disk = SimDisk::new(1);
    let interval = Durability::Interval(Duration::from_secs(60));
    let (service, _) = open_as(&disk, interval);
    let seen = ask(&service.handle(), update("INSERT DATA { <urn:a> <urn:p> 1 }")).unwrap().version;
    let kept = ask(&service.handle(), update("INSERT DATA { <urn:a> <urn:p> 2 }")).unwrap().version;
    disk.crash(Crash::Process);
    drop(service);
    // The process ended in the middle: as far as it knows, the last versions may be lost.
    let (service, opening) = open_as(&disk, interval);
    assert!(opening.version > kept && kept > seen, "{opening:?}");
    let next = ask(&service.handle(), update("INSERT DATA { <urn:a> <urn:p> 3 }")).unwrap().version;
    assert_eq!(next, opening.version + 1);
    drop(service);
    let (_, opening) = open_as(&disk, interval);
    assert_eq!(
        (opening.version, opening.holes, opening.quads),
        (next, 0, 3),
        "ended in good order: nothing is left out"
    );
}

/// A client keeps the version that it has seen over whatever an operator does: a copy that is put back, and a folder that is
/// begun anew, must not say of another answer that it is this one.
#[test]
fn a_copy_that_is_put_back_and_a_new_folder_have_versions_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| StoreConfig { dir: folder.path().join(name), ..config(Durability::Always) };
    let open =
        |config: &StoreConfig| Service::open(config, SpaceLimits::default(), &SpaceAdmission::default()).unwrap();
    let insert = |service: &Service, value: u32| {
        let text = format!("INSERT DATA {{ <urn:a> <urn:p> {value} }}");
        ask(&service.handle(), update(&text)).unwrap().version
    };
    let (service, _) = open(&at("space"));
    insert(&service, 1);
    service.store().unwrap().backup(&folder.path().join("copy")).unwrap();
    let seen: Vec<u64> = (2..6).map(|value| insert(&service, value)).collect();
    drop(service);
    for name in ["restored", "again"] {
        restore_space(&folder.path().join("copy"), &folder.path().join(name)).unwrap();
        let (service, opening) = open(&at(name));
        assert_eq!((opening.quads, opening.holes), (1, 0));
        let versions: Vec<u64> = (12..16).map(|value| insert(&service, value)).collect();
        assert!(versions.iter().all(|version| !seen.contains(version)), "{name}: {versions:?} of {seen:?}");
        drop(service);
        // Over a restart that is nothing but one, versions go on.
        let (_, opening) = open(&at(name));
        assert_eq!((Some(&opening.version), opening.holes, opening.quads), (versions.last(), 0, 5));
    }
    let (service, opening) = open(&at("new"));
    assert!(opening.version > *seen.last().unwrap(), "{opening:?} after {seen:?}");
    drop(service);
    assert_eq!(open(&at("new")).1.version, opening.version, "nothing has changed in it");
}

#[test]
fn names_that_are_no_iris_come_back() {
    let disk = SimDisk::new(1);
    let (service, _) = open(&disk);
    let node = |text: &str| oxrdf::NamedNode::new_unchecked(text);
    let odd = oxrdf::Literal::new_typed_literal("\u{0}\n\"", node("no iri"));
    let quad = oxrdf::Quad::new(node("Agent_X"), node("has"), odd, oxrdf::GraphName::DefaultGraph);
    ask(&service.handle(), SpaceRequest::Edit { remove: vec![], insert: vec![quad] }).unwrap();
    let before = quads(&service.handle());
    drop(service);
    let (service, _) = open(&disk);
    assert_eq!(quads(&service.handle()), before);
}

#[test]
fn two_cannot_have_one_directory() {
    let folder = tempfile::tempdir().unwrap();
    let config = StoreConfig { dir: folder.path().join("space"), ..config(Durability::Off) };
    let first = Service::open(&config, SpaceLimits::default(), &SpaceAdmission::default()).unwrap();
    let error = Service::open(&config, SpaceLimits::default(), &SpaceAdmission::default()).unwrap_err().to_string();
    assert!(error.contains("is in use by process"), "{error}");
    let to = folder.path().join("copy");
    ask(&first.0.handle(), update("INSERT DATA { <urn:a> <urn:p> 1 }")).unwrap();
    first.0.store().unwrap().backup(&to).unwrap();
    drop(first);
    let (service, opening) =
        Service::open(&StoreConfig { dir: to, ..config }, SpaceLimits::default(), &SpaceAdmission::default()).unwrap();
    assert_eq!((opening.quads, quads(&service.handle()).len()), (1, 1));
}

#[test]
fn a_copy_is_refused_while_the_disk_fails_instead_of_waiting_for_it() {
    let disk = SimDisk::new(3);
    let (service, _) = open(&disk);
    let (handle, store) = (service.handle(), service.store().unwrap());
    disk.set_broken(Some(DiskFault::Full));
    let refused = ask(&handle, update("INSERT DATA { <urn:a> <urn:p> 1 }")).unwrap_err();
    assert!(matches!(refused, Refused::Unconfirmed), "{refused:?}");
    // The store has a group in hand that it tries again and again.
    let dir = tempfile::tempdir().unwrap();
    assert!(store.backup(&dir.path().join("copy")).is_err());
    assert!(store.report().is_some_and(|report| report.health != Health::Fine));
    disk.set_broken(None);
    // Kept when there is room, and then seen.
    while quads(&handle).is_empty() {
        std::thread::yield_now();
    }
}
