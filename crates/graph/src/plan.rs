//! Can a standing query be followed change by change? If its pattern is made of triple patterns, `VALUES`, joins, unions,
//! named graphs, and filters and bindings whose variables are bound beside them, it is a sum of products:
//! a union of branches, each a join of leaves. Products have a difference rule (see `follow`); everything else
//! (`OPTIONAL`, `MINUS`, `EXISTS`, aggregates, paths, sub-selects, `FROM`) is evaluated again and compared.
//!
//! Here is the decision and the plan. Whatever is not clearly of this form has no plan; that is always right, only
//! slower.

use std::cell::Cell;

use oxrdf::{Term, Variable};
use spargebra::algebra::{Expression, Function, GraphPattern};
use spargebra::term::{GroundTerm, NamedNodePattern, TermPattern, TriplePattern};
use sparopt::algebra::{Expression as Evaluable, GraphPattern as EvaluablePattern};

use crate::algebra::{AlgebraVisitor, walk, walk_expression};
use crate::error::GraphError;
use crate::guard::PatternGuard;

/// A term that is known, or the place of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternSlot<T> {
    Known(T),
    Variable(usize),
}

/// A triple pattern. `graph`: `None` is the default graph.
#[derive(Clone, Debug)]
pub(crate) struct Leaf<T> {
    pub(crate) subject: PatternSlot<T>,
    pub(crate) predicate: PatternSlot<T>,
    pub(crate) object: PatternSlot<T>,
    pub(crate) graph: Option<PatternSlot<T>>,
}

impl<T> Leaf<T> {
    pub(crate) fn slots(&self) -> impl Iterator<Item = &PatternSlot<T>> {
        [Some(&self.subject), Some(&self.predicate), Some(&self.object), self.graph.as_ref()].into_iter().flatten()
    }
}

/// What is done with a joined row.
#[derive(Clone, Debug)]
pub(crate) enum RowStep {
    Filter { expression: Evaluable, uses: Vec<usize> },
    Bind { place: usize, expression: Evaluable, uses: Vec<usize> },
}

/// A join of leaves and tables, then filters and bindings.
#[derive(Clone, Debug)]
pub(crate) struct JoinBranch<T> {
    pub(crate) variables: Vec<Variable>,
    pub(crate) leaves: Vec<Leaf<T>>,
    pub(crate) tables: Vec<(Vec<usize>, Vec<Vec<T>>)>,
    pub(crate) steps: Vec<RowStep>,
    /// Leaves, fields of tables and pieces of expressions: what a copy costs.
    pub(crate) weight: usize,
}

impl<T> Default for JoinBranch<T> {
    fn default() -> Self {
        Self { variables: Vec::new(), leaves: Vec::new(), tables: Vec::new(), steps: Vec::new(), weight: 0 }
    }
}

/// More branches or leaves than this are evaluated again instead: the difference rule costs a term for each leaf.
const BRANCHES_MAX: usize = 16;
const LEAVES_MAX: usize = 32;
/// What planning may copy: every join copies both its sides, and a subscription is planned on the writer's thread, where
/// everybody waits. This much takes some ten milliseconds; who writes more by hand is patient.
const COPIES_MAX: usize = 1 << 16;

/// The branches of a pattern, or nothing if it cannot be followed.
pub(crate) fn branches(pattern: &GraphPattern, value_bytes_max: usize) -> Option<Vec<JoinBranch<Term>>> {
    let planner = Planner { value_bytes_max, copies: Cell::new(0) };
    let branches = planner.branches(pattern, None)?;
    let fits = branches.iter().all(|branch| !branch.leaves.is_empty());
    fits.then_some(branches)
}

struct Planner {
    value_bytes_max: usize,
    copies: Cell<usize>,
}

type Graph = Option<PatternSlot<Term>>;

impl Planner {
    /// Nothing if that is too much.
    fn copy(&self, weight: usize) -> Option<()> {
        self.copies.set(self.copies.get().saturating_add(weight));
        (self.copies.get() <= COPIES_MAX).then_some(())
    }

    fn join(&self, left: &JoinBranch<Term>, right: &JoinBranch<Term>) -> Option<JoinBranch<Term>> {
        self.copy(left.weight + right.weight)?;
        if left.leaves.len() + right.leaves.len() > LEAVES_MAX { None } else { left.join(right) }
    }

    fn branches(&self, pattern: &GraphPattern, graph: Option<&NamedNodePattern>) -> Option<Vec<JoinBranch<Term>>> {
        match pattern {
            GraphPattern::Bgp { patterns } if patterns.len() <= LEAVES_MAX => {
                let mut branch = JoinBranch { weight: patterns.len(), ..JoinBranch::default() };
                for pattern in patterns {
                    branch.leaf(pattern, graph);
                }
                // An empty group within GRAPH asks whether the graph exists; no leaf could tell.
                (graph.is_none() || !patterns.is_empty()).then(|| vec![branch])
            }
            GraphPattern::Join { left, right } => {
                let (left, right) = (self.branches(left, graph)?, self.branches(right, graph)?);
                let pairs = left.iter().flat_map(|a| right.iter().map(move |b| self.join(a, b)));
                (left.len() * right.len() <= BRANCHES_MAX).then(|| pairs.collect::<Option<Vec<_>>>())?
            }
            GraphPattern::Union { left, right } => {
                let mut branches = self.branches(left, graph)?;
                branches.extend(self.branches(right, graph)?);
                (branches.len() <= BRANCHES_MAX).then_some(branches)
            }
            GraphPattern::Graph { name, inner } => {
                // A graph within a graph is rare and its scope is subtle.
                if graph.is_some() { None } else { self.branches(inner, Some(name)) }
            }
            GraphPattern::Values { variables, bindings } => {
                let weight = variables.len().saturating_mul(bindings.len());
                self.copy(weight)?;
                let mut branch = JoinBranch { weight, ..JoinBranch::default() };
                let places = variables.iter().map(|variable| branch.place(variable)).collect();
                let ground = |term: &Option<GroundTerm>| match term.as_ref()? {
                    GroundTerm::NamedNode(node) => Some(Term::from(node.clone())),
                    GroundTerm::Literal(literal) => Some(literal.clone().into()),
                };
                let rows = bindings.iter().map(|row| row.iter().map(ground).collect()).collect::<Option<_>>()?;
                branch.tables.push((places, rows));
                Some(vec![branch])
            }
            GraphPattern::Filter { expr, inner } => {
                let mut branches = self.branches(inner, graph)?;
                for branch in &mut branches {
                    let (expression, uses) = self.expression(expr, branch)?;
                    branch.steps.push(RowStep::Filter { expression, uses });
                }
                Some(branches)
            }
            GraphPattern::Extend { inner, variable, expression } => {
                let mut branches = self.branches(inner, graph)?;
                for branch in &mut branches {
                    let (expression, uses) = self.expression(expression, branch)?;
                    let place = branch.place(variable);
                    branch.steps.push(RowStep::Bind { place, expression, uses });
                }
                Some(branches)
            }
            _ => None,
        }
    }

    /// The expression, if all its variables are bound by the branch and it gives the same answer every time.
    fn expression(&self, expression: &Expression, branch: &mut JoinBranch<Term>) -> Option<(Evaluable, Vec<usize>)> {
        let mut survey = PlanSurvey { variables: Vec::new(), steady: true, pieces: 0 };
        walk_expression(&mut expression.clone(), &mut survey);
        self.copy(survey.pieces)?;
        branch.weight += survey.pieces;
        if !survey.steady {
            return None;
        }
        let place = |variable: &Variable| branch.variables.iter().position(|known| known == variable);
        let mut uses = survey.variables.iter().map(place).collect::<Option<Vec<_>>>()?;
        uses.sort_unstable();
        uses.dedup();
        Some((evaluable(expression, self.value_bytes_max).ok()?, uses))
    }
}

/// The evaluator's form of an expression, guarded. The crates convert whole patterns only, so it travels in one.
fn evaluable(expression: &Expression, value_bytes_max: usize) -> Result<Evaluable, GraphError> {
    let mut wrapped = GraphPattern::Extend {
        inner: Box::new(GraphPattern::Bgp { patterns: Vec::new() }),
        variable: Variable::new_unchecked("x"),
        expression: expression.clone(),
    };
    PatternGuard::pattern(&mut wrapped, value_bytes_max)?;
    match EvaluablePattern::from(&wrapped) {
        EvaluablePattern::Extend { expression, .. } => Ok(expression),
        _ => Err(GraphError::Unknown),
    }
}

struct PlanSurvey {
    variables: Vec<Variable>,
    steady: bool,
    pieces: usize,
}

impl AlgebraVisitor for PlanSurvey {
    fn expression(&mut self, expression: &mut Expression) {
        self.pieces += 1;
        match expression {
            Expression::Variable(variable) | Expression::Bound(variable) => self.variables.push(variable.clone()),
            Expression::Exists(_) => self.steady = false,
            Expression::FunctionCall(function, _) => {
                // Chance and time change answers without a change of data; IRI depends on the base of the query.
                use Function::{BNode, Iri, Now, Rand, StrUuid, Uuid};
                self.steady &= !matches!(function, Rand | Now | Uuid | StrUuid | BNode | Iri);
            }
            _ => {}
        }
    }
}

impl JoinBranch<Term> {
    fn place(&mut self, variable: &Variable) -> usize {
        self.variables.iter().position(|known| known == variable).unwrap_or_else(|| {
            self.variables.push(variable.clone());
            self.variables.len() - 1
        })
    }

    fn leaf(&mut self, pattern: &TriplePattern, graph: Option<&NamedNodePattern>) {
        let (subject, predicate) = (self.term(&pattern.subject), self.named(&pattern.predicate));
        let (object, graph): (_, Graph) = (self.term(&pattern.object), graph.map(|graph| self.named(graph)));
        self.leaves.push(Leaf { subject, predicate, object, graph });
    }

    fn named(&mut self, pattern: &NamedNodePattern) -> PatternSlot<Term> {
        match pattern {
            NamedNodePattern::NamedNode(node) => PatternSlot::Known(node.clone().into()),
            NamedNodePattern::Variable(variable) => PatternSlot::Variable(self.place(variable)),
        }
    }

    fn term(&mut self, pattern: &TermPattern) -> PatternSlot<Term> {
        match pattern {
            TermPattern::NamedNode(node) => PatternSlot::Known(node.clone().into()),
            TermPattern::Literal(literal) => PatternSlot::Known(literal.clone().into()),
            TermPattern::Variable(variable) => PatternSlot::Variable(self.place(variable)),
            // A blank node in a pattern is a variable that cannot be named; no variable has a space.
            TermPattern::BlankNode(node) => {
                PatternSlot::Variable(self.place(&Variable::new_unchecked(format!("blank {}", node.as_str()))))
            }
        }
    }

    /// Both branches as one. `None` if a variable that one of them computes occurs in the other: the values would have
    /// to be compared, which leaves do and steps do not.
    fn join(&self, other: &Self) -> Option<Self> {
        let computed = |branch: &Self| -> Vec<Variable> {
            let places = branch.steps.iter().filter_map(|step| match step {
                RowStep::Bind { place, .. } => Some(*place),
                RowStep::Filter { .. } => None,
            });
            places.filter_map(|place| branch.variables.get(place).cloned()).collect()
        };
        let clash = computed(self).iter().any(|variable| other.variables.contains(variable))
            || computed(other).iter().any(|variable| self.variables.contains(variable));
        if clash {
            return None;
        }
        let mut joined = self.clone();
        joined.weight += other.weight;
        let places: Vec<usize> = other.variables.iter().map(|variable| joined.place(variable)).collect();
        let slot = |slot: &PatternSlot<Term>| match slot {
            PatternSlot::Known(term) => PatternSlot::Known(term.clone()),
            PatternSlot::Variable(place) => PatternSlot::Variable(places.get(*place).copied().unwrap_or(*place)),
        };
        let all = |uses: &[usize]| uses.iter().filter_map(|place| places.get(*place).copied()).collect::<Vec<_>>();
        joined.leaves.extend(other.leaves.iter().map(|leaf| Leaf {
            subject: slot(&leaf.subject),
            predicate: slot(&leaf.predicate),
            object: slot(&leaf.object),
            graph: leaf.graph.as_ref().map(slot),
        }));
        joined.tables.extend(other.tables.iter().map(|(columns, rows)| (all(columns), rows.clone())));
        joined.steps.extend(other.steps.iter().map(|step| match step {
            RowStep::Filter { expression, uses } => RowStep::Filter { expression: expression.clone(), uses: all(uses) },
            RowStep::Bind { place, expression, uses } => RowStep::Bind {
                place: places.get(*place).copied().unwrap_or(*place),
                expression: expression.clone(),
                uses: all(uses),
            },
        }));
        Some(joined)
    }
}

/// Every pattern in a query whose quads may change its answer, `EXISTS` and the rest included, and whether they count in
/// every graph. `None` if any quad at all may change it.
pub(crate) fn interests(pattern: &GraphPattern) -> Option<(Vec<Leaf<Term>>, bool)> {
    let mut collector = LeafCollector::default();
    walk(&mut pattern.clone(), &mut collector);
    // A path visits nodes that its own triples do not name; an empty group in GRAPH asks whether the graph exists.
    let any = collector.path || collector.graph && collector.empty;
    (!any).then_some((collector.leaves, collector.graph))
}

#[derive(Default)]
struct LeafCollector {
    leaves: Vec<Leaf<Term>>,
    path: bool,
    graph: bool,
    empty: bool,
}

impl AlgebraVisitor for LeafCollector {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        match pattern {
            GraphPattern::Bgp { patterns } => {
                self.empty |= patterns.is_empty();
                let mut branch = JoinBranch::default();
                for pattern in patterns {
                    branch.leaf(pattern, None);
                }
                self.leaves.extend(branch.leaves);
            }
            GraphPattern::Path { .. } => self.path = true,
            GraphPattern::Graph { .. } => self.graph = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::peel;
    use crate::limits::QueryLimits;
    use crate::query::Query;

    fn is_followed(text: &str) -> bool {
        let query = Query::parse(text, &QueryLimits::default()).unwrap();
        branches(&peel(&query.algebra).unwrap().pattern, 1 << 20).is_some()
    }

    #[test]
    fn what_would_be_dear_to_plan_is_evaluated_again() {
        let triples = |count: usize| {
            let triples = (0..count).fold(String::new(), |text, n| text + &format!("?s <urn:p> ?v{n} . "));
            format!("SELECT * {{ {triples} }}")
        };
        assert_eq!((is_followed(&triples(32)), is_followed(&triples(33))), (true, false));
        let rows = |count: usize| format!("SELECT * {{ ?s ?p ?o VALUES ?s {{ {} }} }}", "1 ".repeat(count));
        assert_eq!((is_followed(&rows(1000)), is_followed(&rows(70_000))), (true, false));
        // Each union doubles what is copied.
        let unions = |count: usize| {
            let unions = "{ ?s <urn:p> ?o } UNION { ?s <urn:q> ?o } ".repeat(count);
            format!("SELECT * {{ {{ ?s ?p ?o FILTER(?o IN (1{})) }} {unions} }}", ",1".repeat(10_000))
        };
        assert_eq!((is_followed(&unions(1)), is_followed(&unions(3))), (true, false));
    }
}
