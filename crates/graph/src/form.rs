//! What a standing query's solutions become: rows of a `SELECT`, the truth of an `ASK`, triples of a `CONSTRUCT`.
//!
//! `SELECT` is a bag, `SELECT DISTINCT` and `REDUCED`, `ASK` and `CONSTRUCT` are sets. Order is not part of a result.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use oxrdf::{BlankNode, Literal, Term, Variable};
use spargebra::Query as Algebra;
use spargebra::algebra::GraphPattern;
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::delta::quad_of;
use crate::query::Row;
use crate::rows::{ResultDelta, RowCounts};
use crate::update::Solution;

/// The kind of result.
#[derive(Clone)]
pub(crate) enum ResultForm {
    Bag,
    Set,
    Ask,
    Construct { template: Vec<TriplePattern>, variables: Vec<Variable> },
}

impl ResultForm {
    /// The names of the columns of a result.
    pub(crate) fn names(&self, columns: &[Variable]) -> Vec<Variable> {
        let fixed = |names: &[&str]| names.iter().map(|name| Variable::new_unchecked(*name)).collect();
        match self {
            Self::Bag | Self::Set => columns.to_vec(),
            Self::Ask => fixed(&["boolean"]),
            Self::Construct { .. } => fixed(&["subject", "predicate", "object"]),
        }
    }

    /// The triples of one solution, as rows.
    pub(crate) fn triples(&self, row: &Row) -> Vec<Row> {
        let Self::Construct { template, variables } = self else { return vec![Row::clone(row)] };
        let solution = Solution { variables, row };
        // The same solution gives the same blank nodes each time, so that what entered can leave.
        let mut blank = |node: &BlankNode| {
            let hash = FixedState::default().hash_one((row, node.as_str()));
            BlankNode::new_unchecked(format!("c{hash:016x}"))
        };
        let triple = |pattern: &TriplePattern| {
            let (subject, object) =
                (solution.term(&pattern.subject, &mut blank)?, solution.term(&pattern.object, &mut blank)?);
            let quad = quad_of(subject, solution.named(&pattern.predicate)?, object, None)?;
            Some(Arc::from([Some(Term::from(quad.subject)), Some(quad.predicate.into()), Some(quad.object)]))
        };
        template.iter().filter_map(triple).collect()
    }

    /// The difference of the triples, given that of the solutions.
    pub(crate) fn through_template(&self, solutions: RowCounts) -> RowCounts {
        if !matches!(self, Self::Construct { .. }) {
            return solutions;
        }
        let mut counts = RowCounts::default();
        for (row, count) in solutions.into_ordered() {
            for triple in &self.triples(&row) {
                counts.add(triple, count);
            }
        }
        counts
    }

    /// `ASK` is told as the truth that came and the one that went.
    pub(crate) fn tell(&self, delta: ResultDelta) -> ResultDelta {
        if !matches!(self, Self::Ask) || delta.is_empty() {
            return delta;
        }
        let holds = !delta.added.is_empty();
        ResultDelta { added: vec![truth(holds)], removed: vec![truth(!holds)] }
    }
}

/// The one row of an `ASK`.
pub(crate) fn truth(holds: bool) -> Row {
    Arc::from([Some(Literal::from(holds).into())])
}

/// A query without what does not matter to its result as a bag or set: its pattern, columns and form. The flag says
/// whether the pattern is the whole query, so that it may be followed.
pub(crate) struct Peeled {
    pub(crate) form: ResultForm,
    pub(crate) columns: Vec<Variable>,
    pub(crate) pattern: GraphPattern,
    pub(crate) whole: bool,
}

/// `None` for `DESCRIBE`.
pub(crate) fn peel(algebra: &Algebra) -> Option<Peeled> {
    let (pattern, form) = match algebra {
        Algebra::Select { pattern, .. } => (pattern, ResultForm::Bag),
        Algebra::Ask { pattern, .. } => (pattern, ResultForm::Ask),
        Algebra::Construct { pattern, template, .. } => {
            let variables = template_variables(template);
            (pattern, ResultForm::Construct { template: template.clone(), variables })
        }
        Algebra::Describe { .. } => return None,
    };
    let mut columns = match &form {
        ResultForm::Construct { variables, .. } => variables.clone(),
        _ => Vec::new(),
    };
    let (mut inner, mut distinct, mut projected) = (pattern, false, false);
    loop {
        inner = match inner {
            GraphPattern::Distinct { inner: next } | GraphPattern::Reduced { inner: next } if !projected => {
                distinct = true;
                next
            }
            GraphPattern::OrderBy { inner: next, .. } => next,
            GraphPattern::Project { inner: next, variables } if !projected => {
                projected = true;
                if matches!(form, ResultForm::Bag) {
                    columns.clone_from(variables);
                }
                next
            }
            _ => break,
        };
    }
    let form = if distinct && matches!(form, ResultForm::Bag) { ResultForm::Set } else { form };
    // A limit makes the result depend on order, and a select without columns is none.
    let whole = !matches!(inner, GraphPattern::Slice { .. })
        && (projected || !matches!(form, ResultForm::Bag | ResultForm::Set));
    Some(Peeled { form, columns, pattern: inner.clone(), whole })
}

fn template_variables(template: &[TriplePattern]) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    let mut add = |variable: &Variable| {
        if !variables.contains(variable) {
            variables.push(variable.clone());
        }
    };
    for pattern in template {
        for term in [&pattern.subject, &pattern.object] {
            if let TermPattern::Variable(variable) = term {
                add(variable);
            }
        }
        if let NamedNodePattern::Variable(variable) = &pattern.predicate {
            add(variable);
        }
    }
    variables
}
