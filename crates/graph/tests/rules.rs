//! Rules, and what a store needs to bring a space back.

#![allow(clippy::unwrap_used, reason = "tests")]

use tidegate_graph::{
    GraphError, GraphSpace, Limit, QuadDelta, Query, QueryAnswer, QueryLimits, QueryRefusal, RuleId, SpaceLimits,
    Update,
};

fn update(space: &mut GraphSpace, text: &str) -> tidegate_graph::UpdateOutcome {
    let limits = QueryLimits::default();
    space.update(&Update::parse(text, &limits).unwrap(), &limits).unwrap()
}

fn ask(space: &GraphSpace, text: &str) -> bool {
    let limits = QueryLimits::default();
    let snapshot = space.snapshot();
    matches!(Query::parse(text, &limits).unwrap().run(&snapshot, &limits), Ok(QueryAnswer::Boolean(true)))
}

fn rule(space: &mut GraphSpace, text: &str) -> RuleId {
    space.add_rule(text, &QueryLimits::default()).unwrap().0
}

#[test]
fn a_rule_runs_when_its_where_gains_solutions_and_only_then() {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    update(&mut space, "INSERT DATA { <e:x> <e:a> 1 }");
    let id = rule(&mut space, "INSERT { ?s <e:b> ?o } WHERE { ?s <e:a> ?o }");
    assert!(ask(&space, "ASK { <e:x> <e:b> 1 }"), "solutions that were there count");
    let outcome = update(&mut space, "INSERT DATA { <e:y> <e:a> 2 }");
    assert_eq!(outcome.deltas.len(), 2);
    assert_eq!((outcome.deltas[0].version, outcome.deltas[1].version), (3, 4));
    assert!(ask(&space, "ASK { <e:y> <e:b> 2 }"));
    assert_eq!(update(&mut space, "DELETE DATA { <e:y> <e:a> 2 }").deltas.len(), 1);
    assert_eq!(update(&mut space, "INSERT DATA { <e:y> <e:c> 2 }").deltas.len(), 1);
    space.remove_rule(id).unwrap();
    assert_eq!(update(&mut space, "INSERT DATA { <e:z> <e:a> 3 }").deltas.len(), 1);
    assert_eq!((space.remove_rule(id), space.standing_queries()), (Err(GraphError::Unknown), 0));
}

#[test]
fn rules_wake_each_other_and_come_to_rest() {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    rule(&mut space, "INSERT { ?s <e:c> ?o } WHERE { ?s <e:b> ?o }");
    rule(&mut space, "DELETE { ?s <e:a> ?o } INSERT { ?s <e:b> ?o } WHERE { ?s <e:a> ?o }");
    let outcome = update(&mut space, "INSERT DATA { <e:x> <e:a> 1 }");
    assert_eq!((outcome.deltas.len(), outcome.stopped.len()), (3, 0));
    assert!(ask(&space, "ASK { <e:x> <e:b> 1 ; <e:c> 1 FILTER NOT EXISTS { <e:x> <e:a> 1 } }"));
}

#[test]
fn a_rule_that_does_not_come_to_rest_is_removed_and_named() {
    let mut space = GraphSpace::new(1, SpaceLimits { rule_runs_max: 10, ..SpaceLimits::default() });
    let id = rule(&mut space, "DELETE { ?s <e:n> ?o } INSERT { ?s <e:n> ?m } WHERE { ?s <e:n> ?o BIND(?o + 1 AS ?m) }");
    let outcome = update(&mut space, "INSERT DATA { <e:x> <e:n> 0 }");
    assert_eq!(outcome.deltas.len(), 11);
    assert_eq!(outcome.stopped, [(id, Limit::RuleRuns.into())]);
    assert!(ask(&space, "ASK { <e:x> <e:n> 10 }"));
    assert_eq!((space.rules().count(), space.standing_queries()), (0, 0));
}

#[test]
fn a_rule_needs_something_to_wait_for() {
    let mut space = GraphSpace::new(1, SpaceLimits { rules_max: 1, ..SpaceLimits::default() });
    let limits = QueryLimits::default();
    let refused = space.add_rule("INSERT DATA { <e:x> <e:n> 0 }", &limits);
    assert_eq!(refused, Err(GraphError::Refused(QueryRefusal::RuleWithoutWhere)));
    rule(&mut space, "INSERT { ?s <e:b> ?o } WHERE { ?s <e:a> ?o }");
    let full = space.add_rule("INSERT { ?s <e:c> ?o } WHERE { ?s <e:a> ?o }", &limits);
    assert_eq!(full, Err(Limit::Rules.into()));
}

#[test]
fn a_space_comes_back_from_a_snapshot_its_rules_and_the_deltas_after_it() {
    let limits = QueryLimits::default();
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    update(&mut space, "INSERT DATA { _:a <e:a> 'ü'@de . GRAPH <e:g> { <e:x> <e:a> 1.5 } }");
    rule(&mut space, "INSERT { ?s <e:b> ?o } WHERE { ?s <e:a> ?o }");
    let stored: (u64, Vec<_>) = (space.version(), space.snapshot().quads().collect());
    let rules: Vec<_> = space.rules().map(|(id, text)| (id, text.to_owned())).collect();
    let mut log = Vec::new();
    for text in ["INSERT DATA { <e:y> <e:a> _:b }", "DELETE WHERE { ?s <e:a> 'ü'@de }", "CLEAR GRAPH <e:g>"] {
        log.extend(update(&mut space, text).deltas.iter().map(QuadDelta::encode));
    }

    let mut restored = GraphSpace::new(2, SpaceLimits::default());
    restored.restore(stored.0, stored.1).unwrap();
    for (id, text) in rules {
        restored.restore_rule(id, &text, &limits).unwrap();
    }
    for bytes in &log {
        restored.apply_delta(&QuadDelta::decode(bytes).unwrap()).unwrap();
    }
    let sorted = |space: &GraphSpace| {
        let mut quads: Vec<String> = space.snapshot().quads().map(|quad| quad.to_string()).collect();
        quads.sort_unstable();
        quads
    };
    assert_eq!((restored.version(), sorted(&restored)), (space.version(), sorted(&space)));
    assert!(restored.rules().eq(space.rules()));
    for space in [&mut space, &mut restored] {
        assert_eq!(update(space, "INSERT DATA { <e:z> <e:a> _:c }").deltas.len(), 2);
    }
    assert_eq!(sorted(&restored), sorted(&space), "new blank nodes have the same names");
}

#[test]
fn a_delta_that_does_not_fit_changes_nothing() {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    let delta = update(&mut space, "INSERT DATA { <e:x> <e:a> 1 , 2 }").deltas.remove(0);
    assert_eq!(space.apply_delta(&delta), Err(GraphError::OutOfStep));
    let again = QuadDelta { version: 2, ..delta.clone() };
    assert_eq!(space.apply_delta(&again), Err(GraphError::OutOfStep));
    let mut half = delta.inverse(2);
    half.removed.push(half.removed[0].clone());
    assert_eq!(space.apply_delta(&half), Err(GraphError::OutOfStep));
    assert_eq!((space.version(), space.snapshot().len()), (1, 2));
    assert_eq!(space.apply_delta(&delta.inverse(2)), Ok(()));
    assert_eq!((space.version(), space.snapshot().len(), space.terms()), (2, 0, (0, 0)));
}
