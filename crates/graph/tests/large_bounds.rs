//! Bounds of changes that are made apart from the commits: what one step looks at, what others add to them, and whose
//! drafts are taken.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

use std::collections::BTreeSet;

use oxrdf::Quad;
use tidegate_graph::{
    CancelToken, DatasetLimits, GraphError, GraphSpace, LargeChange, Limit, Mask, QueryLimits, SpaceLimits, Update,
};

fn update(text: &str) -> Update {
    Update::parse(text, &QueryLimits::default()).unwrap()
}

fn space() -> GraphSpace {
    GraphSpace::new(1, SpaceLimits::default())
}

fn data(space: &GraphSpace) -> BTreeSet<String> {
    space.snapshot().quads().map(|quad| quad.to_string()).collect()
}

fn change(space: &mut GraphSpace, text: &str) {
    space.update(&update(text), &QueryLimits::default()).unwrap();
}

/// A mask of the default graph that says all terms.
fn exact(quad: &Quad) -> Mask {
    let (subject, predicate) = (Some(quad.subject.clone()), Some(quad.predicate.clone()));
    Mask { subject, predicate, object: Some(quad.object.clone()), ..Mask::default() }
}

/// Each step looks at one mask, and each mask is looked at once more than it matches: what a piece takes does not grow with
/// the number of masks.
#[test]
fn a_step_looks_at_one_mask_however_many_there_are() {
    const MASKS: usize = 5_000;
    let node = |text: String| oxrdf::NamedNode::new_unchecked(text);
    let quad = |n: usize| {
        let object = oxrdf::Literal::from(n as u64);
        Quad::new(node(format!("urn:s{n}")), node("urn:p".to_owned()), object, oxrdf::GraphName::DefaultGraph)
    };
    let quads: Vec<Quad> = (0..MASKS).map(quad).collect();
    let masks: Vec<Mask> = quads.iter().map(exact).collect();
    for there in [0, MASKS / 2, MASKS] {
        let mut space = space();
        space.edit(&[], &quads[..there]).unwrap();
        space.begin_large(LargeChange::edit(masks.clone(), Vec::new()), false).unwrap();
        let mut steps = 1;
        while !space.stage(1).unwrap() {
            steps += 1;
        }
        // The end of the masks, of the steps, and of what is to be written.
        assert_eq!(steps, MASKS + there + 3);
        // What comes now is under a mask, too.
        space.edit(&[], &quads[MASKS - 1..]).unwrap();
        space.commit_large().unwrap();
        assert!(space.snapshot().is_empty());
    }
}

#[test]
fn what_others_add_under_a_mask_counts_as_a_part_of_the_large_change() {
    let dataset = DatasetLimits { change_quads_max: 3, ..DatasetLimits::default() };
    let mut space = GraphSpace::new(1, SpaceLimits { dataset, ..SpaceLimits::default() });
    change(&mut space, "INSERT DATA { <urn:a> <urn:p> 1 }");
    for (others, is_ready) in [(2, false), (2, true), (3, false), (3, true)] {
        let (terms, before) = (space.terms(), data(&space));
        space.begin_large(LargeChange::edit(vec![Mask::default()], Vec::new()), true).unwrap();
        assert!(!space.stage(1).unwrap());
        while is_ready && !space.stage(1).unwrap() {}
        for other in 0..others {
            change(&mut space, &format!("INSERT DATA {{ <urn:b> <urn:q> {other} }}"));
        }
        let staged = if is_ready { Ok(true) } else { space.stage(100) };
        let outcome = staged.and_then(|_| space.commit_large());
        if others == 2 {
            assert_eq!(outcome.unwrap().deltas[0].removed.len(), 3);
            change(&mut space, "INSERT DATA { <urn:a> <urn:p> 1 }");
        } else {
            assert_eq!(outcome.unwrap_err(), GraphError::Limit(Limit::ChangeQuads));
            for other in 0..others {
                change(&mut space, &format!("DELETE DATA {{ <urn:b> <urn:q> {other} }}"));
            }
        }
        while space.is_untidy() {
            space.tidy(1);
        }
        assert_eq!((space.terms(), data(&space)), (terms, before));
    }
}

#[test]
fn a_draft_of_an_earlier_life_is_not_taken_for_one_of_this() {
    let moved = update("DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }");
    let other = update("DELETE { ?s <urn:r> ?o } WHERE { ?s <urn:r> ?o }");
    let mut lives: Vec<GraphSpace> = (0..3).map(|_| space()).collect();
    let mut late = Vec::new();
    for (lives_before, space) in lives.iter_mut().enumerate() {
        space.replay_lives(lives_before as u64);
        change(space, "INSERT DATA { <urn:a> <urn:p> 1 . <urn:a> <urn:r> 1 }");
        let before = data(space);
        let draft = space.begin_draft(&other).unwrap();
        for drafted in late.drain(..) {
            assert_eq!(space.commit_drafted(drafted), Err(GraphError::OutOfStep));
        }
        assert_eq!(data(space), before);
        assert!(!space.is_overtaken(draft.number()));
        // It comes when this life is over.
        late.push(space.begin_draft(&moved).unwrap().run(&QueryLimits::default(), CancelToken::default()));
        late.push(draft.run(&QueryLimits::default(), CancelToken::default()));
    }
}
