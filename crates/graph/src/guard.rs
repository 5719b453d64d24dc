//! Changes to the algebra that keep its meaning and make its cost visible to the meter.
//!
//! - `CONCAT`, `REPLACE` and `GROUP_CONCAT` get a cap on what they may build, because the meter sees a value only when
//!   it is finished.
//! - Patterns that share no variable become nested loops (`product`), because a product in memory would not come past
//!   it either.
//! - Leaves that read no quads (`VALUES`, empty groups within `UNION`) get a filter that asks the meter, because a
//!   product of them would never come past it.
//!
//! `SERVICE` is refused here.

use std::sync::Arc;

use oxrdf::vocab::xsd;
use oxrdf::{Literal, NamedNode, Term};
use spareval::{AggregateFunctionAccumulator, QueryEvaluator};
use spargebra::algebra::{AggregateExpression, AggregateFunction, Expression, Function, GraphPattern};

use crate::algebra::{AlgebraVisitor, walk};
use crate::error::{GraphError, Limit, QueryRefusal};
use crate::limits::{CancelToken, EvaluationMeter, LimitTrip};
use crate::product;

/// Passes its first argument on if it is no longer than the second says.
const CAP: &str = "urn:tidegate:cap";
/// True while the evaluation may go on.
const TICK: &str = "urn:tidegate:tick";
/// `GROUP_CONCAT` with the separator of this number.
const CONCAT: &str = "urn:tidegate:group-concat:";

/// Rows that `VALUES` and `UNION` alone may make: their product is built without a single read.
const ROWS_WITHOUT_READING_MAX: u64 = 1_000_000;

/// Triple patterns, paths and `VALUES` of one query. The optimizer puts those of one join into an order in time that grows
/// with the fourth power of their number, without a look at the meter: 128 took it 1.9 s. `product` has it order 24 at
/// most; this bounds what else it does for each.
const TRIPLE_PATTERNS_MAX: usize = 128;

/// What the evaluator must be told about a guarded pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatternGuard {
    /// Functions of ours are in the pattern; most patterns have none, and need not pay for them.
    functions: bool,
    separators: Vec<Option<String>>,
}

impl PatternGuard {
    /// Guards a pattern, or says why it is not evaluated at all.
    pub(crate) fn pattern(pattern: &mut GraphPattern, value_bytes_max: usize) -> Result<Self, GraphError> {
        let mut survey = QuerySurvey::default();
        walk(pattern, &mut survey);
        if survey.service {
            return Err(GraphError::Refused(QueryRefusal::Service));
        }
        let too_wide = survey.triple_patterns > TRIPLE_PATTERNS_MAX;
        if too_wide || product::rows_without_reading(pattern) > ROWS_WITHOUT_READING_MAX {
            return Err(Limit::Chain.into());
        }
        let mut rewrite =
            Rewrite { guard: Self::default(), value_bytes_max, with_union: survey.union, wrap: Vec::new() };
        walk(pattern, &mut rewrite);
        walk(pattern, &mut product::Loops);
        Ok(rewrite.guard)
    }

    /// For expressions that were guarded one by one.
    pub(crate) fn of_expressions() -> Self {
        Self { functions: true, separators: Vec::new() }
    }

    /// An evaluator that knows the guards' functions.
    pub(crate) fn evaluator(&self, meter: &EvaluationMeter, value_bytes_max: usize) -> QueryEvaluator {
        if !self.functions {
            return QueryEvaluator::new();
        }
        let (trip, cancel) = (Arc::clone(&meter.trip), meter.cancel.clone());
        let cap_trip = Arc::clone(&meter.trip);
        let mut evaluator = QueryEvaluator::new()
            .with_custom_function(NamedNode::new_unchecked(CAP), move |arguments| cap(arguments, &cap_trip))
            .with_custom_function(NamedNode::new_unchecked(TICK), move |_| tick(&trip, &cancel));
        for (number, separator) in self.separators.iter().enumerate() {
            let trip = Arc::clone(&meter.trip);
            let separator: Arc<str> = separator.as_deref().unwrap_or(" ").into();
            evaluator = evaluator.with_custom_aggregate_function(concat_name(number), move || {
                Box::new(Concat {
                    text: Some(String::new()),
                    is_first: true,
                    separator: Arc::clone(&separator),
                    bytes_max: value_bytes_max,
                    trip: Arc::clone(&trip),
                })
            });
        }
        evaluator
    }
}

fn concat_name(number: usize) -> NamedNode {
    NamedNode::new_unchecked(format!("{CONCAT}{number}"))
}

fn cap(arguments: &[Term], trip: &LimitTrip) -> Option<Term> {
    let [term, Term::Literal(bytes_max)] = arguments else { return None };
    let bytes_max: usize = bytes_max.value().parse().ok()?;
    if let Term::Literal(literal) = term
        && literal.value().len() > bytes_max
    {
        trip.set(Limit::ValueBytes);
        return None;
    }
    Some(term.clone())
}

fn tick(trip: &LimitTrip, cancel: &CancelToken) -> Option<Term> {
    let go_on = !trip.is_set() && !cancel.is_cancelled();
    go_on.then(|| Literal::from(true).into())
}

/// What is in the query, before it is changed.
#[derive(Default)]
struct QuerySurvey {
    service: bool,
    union: bool,
    triple_patterns: usize,
}

impl AlgebraVisitor for QuerySurvey {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        self.service |= matches!(pattern, GraphPattern::Service { .. });
        self.union |= matches!(pattern, GraphPattern::Union { .. });
        self.triple_patterns += match pattern {
            GraphPattern::Bgp { patterns } => patterns.len(),
            GraphPattern::Path { .. } | GraphPattern::Values { .. } => 1,
            _ => 0,
        };
    }
}

struct Rewrite {
    guard: PatternGuard,
    value_bytes_max: usize,
    with_union: bool,
    wrap: Vec<Expression>,
}

impl AlgebraVisitor for Rewrite {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        let reads_nothing = match pattern {
            GraphPattern::Values { bindings, .. } => bindings.len() > 1,
            GraphPattern::Bgp { patterns } => self.with_union && patterns.is_empty(),
            _ => false,
        };
        if reads_nothing {
            self.guard.functions = true;
            let leaf = std::mem::replace(pattern, GraphPattern::Bgp { patterns: Vec::new() });
            let tick = Function::Custom(NamedNode::new_unchecked(TICK));
            *pattern = GraphPattern::Filter { expr: Expression::FunctionCall(tick, Vec::new()), inner: Box::new(leaf) };
        }
    }

    fn expression(&mut self, expression: &mut Expression) {
        let Expression::FunctionCall(function, arguments) = expression else { return };
        self.guard.functions |= matches!(function, Function::Concat | Function::Replace);
        match function {
            Function::Concat => {
                let each = self.value_bytes_max / arguments.len().max(1);
                self.wrap.append(arguments);
                arguments.extend(self.wrap.drain(..).map(|argument| capped(argument, each)));
            }
            // A replacement may repeat the whole subject for every two bytes of its template. These two caps bound what
            // is built to sixty-four times the largest value before the result is judged.
            Function::Replace => {
                let caps = [self.value_bytes_max / 16, usize::MAX, self.value_bytes_max / 1024];
                self.wrap.append(arguments);
                for (place, argument) in self.wrap.drain(..).enumerate() {
                    arguments.push(match caps.get(place) {
                        Some(&bytes_max) if bytes_max != usize::MAX => capped(argument, bytes_max),
                        _ => argument,
                    });
                }
            }
            _ => {}
        }
    }

    fn aggregate(&mut self, aggregate: &mut AggregateExpression) {
        let AggregateExpression::FunctionCall { name, .. } = aggregate else { return };
        if let AggregateFunction::GroupConcat { separator } = name {
            self.guard.functions = true;
            let separator = separator.take();
            let number = self.guard.separators.iter().position(|known| *known == separator).unwrap_or_else(|| {
                self.guard.separators.push(separator);
                self.guard.separators.len() - 1
            });
            *name = AggregateFunction::Custom(concat_name(number));
        }
    }
}

fn capped(argument: Expression, bytes_max: usize) -> Expression {
    let bytes_max = Literal::new_typed_literal(bytes_max.to_string(), xsd::INTEGER);
    let cap = Function::Custom(NamedNode::new_unchecked(CAP));
    Expression::FunctionCall(cap, vec![argument, Expression::Literal(bytes_max)])
}

/// `GROUP_CONCAT` that stops at a maximal length. Languages are dropped, as the specification says and the evaluator's
/// own does not.
struct Concat {
    /// `None` after an error.
    text: Option<String>,
    is_first: bool,
    separator: Arc<str>,
    bytes_max: usize,
    trip: Arc<LimitTrip>,
}

impl AggregateFunctionAccumulator for Concat {
    fn accumulate(&mut self, element: Term) {
        let Some(text) = &mut self.text else { return };
        let Term::Literal(literal) = &element else { return self.text = None };
        if literal.language().is_none() && literal.datatype() != xsd::STRING {
            return self.text = None;
        }
        if !std::mem::take(&mut self.is_first) {
            text.push_str(&self.separator);
        }
        if text.len() + literal.value().len() > self.bytes_max {
            self.trip.set(Limit::ValueBytes);
            return self.text = None;
        }
        text.push_str(literal.value());
    }

    fn finish(&mut self) -> Option<Term> {
        self.text.take().map(|text| Literal::new_simple_literal(text).into())
    }
}
