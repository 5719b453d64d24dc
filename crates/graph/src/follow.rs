//! The difference of a join after a change, without evaluating the join.
//!
//! With leaves 1…k over the data D before and D′ after, and Δ = D′ − D with removed quads counted −1:
//!
//! ```text
//! Q(D′) − Q(D) = Σᵢ  L₁(D′) ⋈ … ⋈ Lᵢ₋₁(D′) ⋈ Lᵢ(Δ) ⋈ Lᵢ₊₁(D) ⋈ … ⋈ Lₖ(D)
//! ```
//!
//! The sum telescopes, so it is exact for bags, for any number of changed quads at once, and for patterns that match the
//! same quad. Each term starts from a changed quad and finds the rest by index.

use std::rc::Rc;

use oxrdf::{Term, Variable};
use spareval::QueryEvaluator;

use crate::dataset::{QuadChange, Snapshot};
use crate::dictionary::{Dictionary, Holding, Id};
use crate::error::{GraphError, Limit};
use crate::guard::PatternGuard;
use crate::index::{IdPattern, InGraph, Quad};
use crate::limits::{EvaluationMeter, QueryLimits};
use crate::plan::{JoinBranch, Leaf, PatternSlot, RowStep};
use crate::query::Row;
use crate::rows::RowCounts;

/// A branch in numbers, with the order in which the other leaves are joined when one of them changed.
pub(crate) struct Follower {
    branch: JoinBranch<Id>,
    orders: Vec<Vec<usize>>,
    /// For each column of the result, the place of its variable, if this branch has it.
    columns: Vec<Option<usize>>,
}

impl Follower {
    /// Holds the terms of a branch; [`Follower::release`] lets them go when they were kept.
    pub(crate) fn new(
        branch: &JoinBranch<Term>,
        columns: &[Variable],
        holding: &mut Holding<'_>,
    ) -> Result<Self, Limit> {
        let mut id = |term: &Term| holding.hold(term);
        let mut leaves = Vec::new();
        for leaf in &branch.leaves {
            leaves.push(leaf_in_numbers(leaf, &mut id)?);
        }
        let mut tables = Vec::new();
        for (places, rows) in &branch.tables {
            let rows = rows.iter().map(|row| row.iter().map(&mut id).collect()).collect::<Result<_, Limit>>()?;
            tables.push((places.clone(), rows));
        }
        let orders = (0..leaves.len()).map(|first| join_order(&leaves, branch.variables.len(), first)).collect();
        let place = |variable: &Variable| branch.variables.iter().position(|known| known == variable);
        let columns = columns.iter().map(place).collect();
        let (variables, steps, weight) = (branch.variables.clone(), branch.steps.clone(), branch.weight);
        let branch = JoinBranch { variables, leaves, tables, steps, weight };
        Ok(Self { branch, orders, columns })
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = IdPattern> + '_ {
        self.branch.leaves.iter().map(|leaf| pattern(leaf, &[]))
    }

    pub(crate) fn release(&self, dictionary: &mut Dictionary) {
        let ids = self.branch.leaves.iter().flat_map(Leaf::slots).filter_map(|slot| match slot {
            PatternSlot::Known(id) => Some(*id),
            PatternSlot::Variable(_) => None,
        });
        let tables = self.branch.tables.iter().flat_map(|(_, rows)| rows.iter().flatten().copied());
        for id in ids.chain(tables) {
            dictionary.release(id);
        }
    }

    /// Adds the difference that a change makes.
    pub(crate) fn follow(
        &self,
        change: &QuadChange,
        data: &BeforeAfter<'_>,
        counts: &mut RowCounts,
    ) -> Result<(), GraphError> {
        let mut join = Join {
            follower: self,
            data,
            evaluator: OnDemand::default(),
            bound: vec![0; self.branch.variables.len()],
            first: 0,
            sign: 1,
            counts,
        };
        for (sign, quads) in [(1, &change.added), (-1, &change.removed)] {
            for quad in quads {
                for (first, leaf) in self.branch.leaves.iter().enumerate() {
                    (join.first, join.sign) = (first, sign);
                    if pattern(leaf, &[]).matches(*quad) {
                        join.with(leaf, *quad, 0)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The data on both sides of a change. The terms of `after` still have the removed ones.
pub(crate) struct BeforeAfter<'a> {
    pub(crate) before: &'a Snapshot,
    pub(crate) after: &'a Snapshot,
    pub(crate) meter: Rc<EvaluationMeter>,
    pub(crate) limits: &'a QueryLimits,
}

struct Join<'a> {
    follower: &'a Follower,
    data: &'a BeforeAfter<'a>,
    evaluator: OnDemand,
    /// Numbers of the variables; 0 is unbound.
    bound: Vec<Id>,
    first: usize,
    sign: i64,
    counts: &'a mut RowCounts,
}

impl Join<'_> {
    /// Binds a leaf to a quad, goes on, and unbinds what this bound.
    fn with(&mut self, leaf: &Leaf<Id>, quad: Quad, depth: usize) -> Result<(), GraphError> {
        let pairs = [
            (Some(&leaf.subject), quad.subject),
            (Some(&leaf.predicate), quad.predicate),
            (Some(&leaf.object), quad.object),
            (leaf.graph.as_ref(), quad.graph),
        ];
        let mut new = [usize::MAX; 4];
        let mut fits = true;
        for ((slot, id), new) in pairs.into_iter().zip(&mut new) {
            let Some(PatternSlot::Variable(place)) = slot else { continue };
            let Some(bound) = self.bound.get_mut(*place) else { continue };
            if *bound == 0 {
                (*bound, *new) = (id, *place);
            } else if *bound != id {
                // The same variable twice in one pattern, with two terms.
                fits = false;
                break;
            }
        }
        let outcome = if fits { self.next(depth) } else { Ok(()) };
        for place in new {
            if let Some(bound) = self.bound.get_mut(place) {
                *bound = 0;
            }
        }
        outcome
    }

    fn next(&mut self, depth: usize) -> Result<(), GraphError> {
        let follower = self.follower;
        let order = follower.orders.get(self.first).map_or(&[][..], Vec::as_slice);
        let Some(&place) = order.get(depth) else { return self.table(0) };
        let Some(leaf) = follower.branch.leaves.get(place) else { return Ok(()) };
        let side = if place < self.first { self.data.after } else { self.data.before };
        for quad in side.scan(pattern(leaf, &self.bound)) {
            self.data.meter.step()?;
            self.with(leaf, quad, depth + 1)?;
        }
        Ok(())
    }

    /// Joins the tables of `VALUES`, which are few and short.
    fn table(&mut self, number: usize) -> Result<(), GraphError> {
        let follower = self.follower;
        let Some((places, rows)) = follower.branch.tables.get(number) else { return self.finish() };
        for row in rows {
            self.data.meter.step()?;
            let saved = self.bound.clone();
            let fits = places.iter().zip(row).all(|(place, id)| match self.bound.get_mut(*place) {
                Some(bound) if *bound == 0 => {
                    *bound = *id;
                    true
                }
                Some(bound) => bound == id,
                None => false,
            });
            let outcome = if fits { self.table(number + 1) } else { Ok(()) };
            self.bound = saved;
            outcome?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), GraphError> {
        let follower = self.follower;
        let terms = &self.data.after.terms;
        let mut computed: Vec<Option<Term>> = Vec::new();
        let value = |place: usize, computed: &[Option<Term>], bound: &[Id]| {
            let stored = bound.get(place).filter(|id| **id != 0).and_then(|id| terms.term(*id));
            stored.or_else(|| computed.get(place).cloned().flatten())
        };
        for step in &follower.branch.steps {
            let (RowStep::Filter { expression, uses } | RowStep::Bind { expression, uses, .. }) = step;
            let given = uses.iter().filter_map(|place| {
                let term = value(*place, &computed, &self.bound)?;
                Some((follower.branch.variables.get(*place)?, term))
            });
            let given: Vec<_> = given.collect();
            let evaluator = self.evaluator.get(self.data);
            match step {
                RowStep::Filter { .. } => {
                    let passes = evaluator.evaluate_effective_boolean_value_expression(expression, given);
                    self.data.meter.verdict()?;
                    if passes != Some(true) {
                        return Ok(());
                    }
                }
                RowStep::Bind { place, .. } => {
                    computed.resize(follower.branch.variables.len(), None);
                    let result = evaluator.evaluate_expression(expression, given);
                    self.data.meter.verdict()?;
                    if let Some(computed) = computed.get_mut(*place) {
                        *computed = result;
                    }
                }
            }
        }
        let column = |place: &Option<usize>| place.and_then(|place| value(place, &computed, &self.bound));
        let row: Row = follower.columns.iter().map(column).collect();
        self.counts.add(&row, self.sign);
        Ok(())
    }
}

/// An evaluator for expressions, made when the first is met.
#[derive(Default)]
struct OnDemand(Option<QueryEvaluator>);

impl OnDemand {
    fn get(&mut self, data: &BeforeAfter<'_>) -> &QueryEvaluator {
        self.0.get_or_insert_with(|| PatternGuard::of_expressions().evaluator(&data.meter, data.limits.value_bytes_max))
    }
}

fn leaf_in_numbers(leaf: &Leaf<Term>, id: &mut impl FnMut(&Term) -> Result<Id, Limit>) -> Result<Leaf<Id>, Limit> {
    let mut slot = |slot: &PatternSlot<Term>| {
        Ok(match slot {
            PatternSlot::Known(term) => PatternSlot::Known(id(term)?),
            PatternSlot::Variable(place) => PatternSlot::Variable(*place),
        })
    };
    let (subject, predicate, object) = (slot(&leaf.subject)?, slot(&leaf.predicate)?, slot(&leaf.object)?);
    Ok(Leaf { subject, predicate, object, graph: leaf.graph.as_ref().map(slot).transpose()? })
}

/// What the leaf looks for when these variables are bound.
fn pattern(leaf: &Leaf<Id>, bound: &[Id]) -> IdPattern {
    let value = |slot: &PatternSlot<Id>| match slot {
        PatternSlot::Known(id) => Some(*id),
        PatternSlot::Variable(place) => bound.get(*place).copied().filter(|id| *id != 0),
    };
    let graph = match &leaf.graph {
        None => InGraph::One(0),
        Some(slot) => value(slot).map_or(InGraph::AnyNamed, InGraph::One),
    };
    let (subject, predicate, object) = (value(&leaf.subject), value(&leaf.predicate), value(&leaf.object));
    IdPattern { graph, subject, predicate, object }
}

/// The other leaves, each time the one with the most bound positions.
fn join_order(leaves: &[Leaf<Id>], variables: usize, first: usize) -> Vec<usize> {
    let mut is_bound = vec![false; variables];
    let bind = |is_bound: &mut [bool], place: usize| {
        for slot in leaves.get(place).into_iter().flat_map(Leaf::slots) {
            if let PatternSlot::Variable(place) = slot
                && let Some(is_bound) = is_bound.get_mut(*place)
            {
                *is_bound = true;
            }
        }
    };
    bind(&mut is_bound, first);
    let mut rest: Vec<usize> = (0..leaves.len()).filter(|place| *place != first).collect();
    let mut order = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let known = |place: &usize| {
            let slots = leaves.get(*place).into_iter().flat_map(Leaf::slots);
            let known = slots.filter(|slot| match slot {
                PatternSlot::Known(_) => true,
                PatternSlot::Variable(place) => is_bound.get(*place) == Some(&true),
            });
            known.count()
        };
        let best = (0..rest.len()).max_by_key(|at| (rest.get(*at).map(known), usize::MAX - at)).unwrap_or(0);
        let place = rest.remove(best);
        bind(&mut is_bound, place);
        order.push(place);
    }
    order
}
