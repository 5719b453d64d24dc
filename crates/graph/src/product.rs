//! Products: joins of patterns that share no variable. The evaluator keeps one side in memory and multiplies without
//! reading anything, so neither a limit nor a cancellation would stop it. As nested loops the same rows come one by one,
//! each from a read.

use std::collections::BTreeSet;

use spargebra::algebra::{Expression, GraphPattern};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::algebra::{Visitor, walk_expression};

/// Turns products into loops, where reading again costs no more than the product has rows.
pub(crate) struct Loops;

impl Visitor for Loops {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        let nothing = || GraphPattern::Bgp { patterns: Vec::new() };
        match pattern {
            GraphPattern::Bgp { patterns } => {
                let parts = components(std::mem::take(patterns));
                let loops = parts.into_iter().map(|patterns| GraphPattern::Bgp { patterns }).reduce(lateral);
                *pattern = loops.unwrap_or_else(nothing);
            }
            GraphPattern::Join { left, right } => {
                let (mut a, mut b) =
                    (std::mem::replace(&mut **left, nothing()), std::mem::replace(&mut **right, nothing()));
                let apart = variables(&a).is_disjoint(&variables(&b));
                if apart && !is_cheap(&b) && is_cheap(&a) {
                    std::mem::swap(&mut a, &mut b);
                }
                *pattern = if apart && is_cheap(&b) {
                    lateral(a, b)
                } else {
                    GraphPattern::Join { left: Box::new(a), right: Box::new(b) }
                };
            }
            _ => {}
        }
    }
}

fn lateral(left: GraphPattern, right: GraphPattern) -> GraphPattern {
    GraphPattern::Lateral { left: Box::new(left), right: Box::new(right) }
}

/// True for what is read row by row: to start it again costs nothing but its rows.
fn is_cheap(pattern: &GraphPattern) -> bool {
    match pattern {
        GraphPattern::Bgp { .. } | GraphPattern::Values { .. } | GraphPattern::Path { .. } => true,
        GraphPattern::Lateral { left, right } | GraphPattern::Union { left, right } => {
            is_cheap(left) && is_cheap(right)
        }
        GraphPattern::Filter { inner, .. }
        | GraphPattern::Extend { inner, .. }
        | GraphPattern::Graph { inner, .. }
        | GraphPattern::Project { inner, .. } => is_cheap(inner),
        _ => false,
    }
}

/// The names of all variables (and blank nodes, which are variables here) in a pattern.
fn variables(pattern: &GraphPattern) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(pattern, &mut names);
    names
}

fn collect(pattern: &GraphPattern, names: &mut BTreeSet<String>) {
    match pattern {
        GraphPattern::Bgp { patterns } => patterns.iter().for_each(|triple| names.extend(names_of(triple))),
        GraphPattern::Path { subject, object, .. } => names.extend([subject, object].into_iter().filter_map(term_name)),
        GraphPattern::Values { variables, .. } => names.extend(variables.iter().map(|name| name.as_str().to_owned())),
        GraphPattern::Join { left, right }
        | GraphPattern::Lateral { left, right }
        | GraphPattern::LeftJoin { left, right, .. }
        | GraphPattern::Union { left, right }
        | GraphPattern::Minus { left, right } => {
            collect(left, names);
            collect(right, names);
        }
        GraphPattern::Graph { name, inner } | GraphPattern::Service { name, inner, .. } => {
            names.extend(named_name(name));
            collect(inner, names);
        }
        GraphPattern::Extend { inner, variable, expression } => {
            names.insert(variable.as_str().to_owned());
            mentions(expression, names);
            collect(inner, names);
        }
        GraphPattern::Filter { inner, expr } => {
            mentions(expr, names);
            collect(inner, names);
        }
        GraphPattern::Group { inner, variables, aggregates } => {
            names.extend(
                variables.iter().chain(aggregates.iter().map(|(name, _)| name)).map(|name| name.as_str().to_owned()),
            );
            collect(inner, names);
        }
        GraphPattern::OrderBy { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Slice { inner, .. } => collect(inner, names),
    }
}

/// A loop would show a filter the variables of the other side, which it must not see: mentioning one is sharing it.
fn mentions(expression: &Expression, names: &mut BTreeSet<String>) {
    walk_expression(&mut expression.clone(), &mut Mentions(names));
}

struct Mentions<'a>(&'a mut BTreeSet<String>);

impl Visitor for Mentions<'_> {
    fn expression(&mut self, expression: &mut Expression) {
        if let Expression::Variable(variable) | Expression::Bound(variable) = expression {
            self.0.insert(variable.as_str().to_owned());
        }
    }

    fn pattern(&mut self, pattern: &mut GraphPattern) {
        collect(pattern, self.0);
    }
}

fn term_name(term: &TermPattern) -> Option<String> {
    match term {
        TermPattern::Variable(variable) => Some(variable.as_str().to_owned()),
        TermPattern::BlankNode(node) => Some(format!("blank {}", node.as_str())),
        _ => None,
    }
}

fn named_name(term: &NamedNodePattern) -> Option<String> {
    match term {
        NamedNodePattern::Variable(variable) => Some(variable.as_str().to_owned()),
        NamedNodePattern::NamedNode(_) => None,
    }
}

fn names_of(triple: &TriplePattern) -> impl Iterator<Item = String> {
    let names = [term_name(&triple.subject), named_name(&triple.predicate), term_name(&triple.object)];
    names.into_iter().flatten()
}

/// Triple patterns that are connected by variables, together.
fn components(patterns: Vec<TriplePattern>) -> Vec<Vec<TriplePattern>> {
    let mut parts: Vec<(BTreeSet<String>, Vec<TriplePattern>)> = Vec::new();
    for pattern in patterns {
        let names: BTreeSet<String> = names_of(&pattern).collect();
        let (touching, mut apart): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(known, _)| !known.is_disjoint(&names));
        let mut part = (names, Vec::new());
        for (known, patterns) in touching {
            part.0.extend(known);
            part.1.extend(patterns);
        }
        part.1.push(pattern);
        apart.push(part);
        parts = apart;
    }
    parts.into_iter().map(|(_, patterns)| patterns).collect()
}

/// The most rows that a pattern makes without reading a quad; a pattern that reads counts as one row.
pub(crate) fn rows_without_reading(pattern: &GraphPattern) -> u64 {
    match pattern {
        GraphPattern::Values { bindings, .. } => bindings.len() as u64,
        GraphPattern::Bgp { .. } | GraphPattern::Path { .. } => 1,
        GraphPattern::Union { left, right } => rows_without_reading(left).saturating_add(rows_without_reading(right)),
        GraphPattern::Join { left, right }
        | GraphPattern::Lateral { left, right }
        | GraphPattern::LeftJoin { left, right, .. } => {
            rows_without_reading(left).max(1).saturating_mul(rows_without_reading(right).max(1))
        }
        GraphPattern::Minus { left: inner, .. }
        | GraphPattern::Graph { inner, .. }
        | GraphPattern::Service { inner, .. }
        | GraphPattern::Extend { inner, .. }
        | GraphPattern::Group { inner, .. }
        | GraphPattern::Filter { inner, .. }
        | GraphPattern::OrderBy { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Slice { inner, .. } => rows_without_reading(inner),
    }
}
