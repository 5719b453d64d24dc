//! Products: joins of patterns that share no variable. The evaluator keeps one side in memory and multiplies without
//! reading anything, so neither a limit nor a cancellation would stop it. As nested loops the same rows come one by one,
//! each from a read.

use std::collections::BTreeSet;

use spargebra::algebra::{Expression, GraphPattern};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::algebra::{AlgebraVisitor, walk_expression};

/// Patterns that are joined by the evaluator's optimizer. It puts them into an order by looking at all that it has for each
/// that it might take next, and does so without a look at the meter; more than this are put into an order here.
const JOINED_MAX: usize = 24;

/// Turns products into loops, where reading again costs no more than the product has rows, and long joins as well.
pub(crate) struct Loops;

impl AlgebraVisitor for Loops {
    fn pattern(&mut self, pattern: &mut GraphPattern) {
        let nothing = || GraphPattern::Bgp { patterns: Vec::new() };
        match pattern {
            GraphPattern::Bgp { patterns } => {
                let parts = components(std::mem::take(patterns)).into_iter().flat_map(|part| {
                    let is_long = part.len() > JOINED_MAX;
                    if is_long { in_order(part).into_iter().map(|triple| vec![triple]).collect() } else { vec![part] }
                });
                let loops = parts.map(|patterns| GraphPattern::Bgp { patterns }).reduce(lateral);
                *pattern = loops.unwrap_or_else(nothing);
            }
            GraphPattern::Join { left, right } => {
                let (mut a, mut b) =
                    (std::mem::replace(&mut **left, nothing()), std::mem::replace(&mut **right, nothing()));
                let apart = variables(&a).is_disjoint(&variables(&b));
                if apart && !is_cheap(&b) && is_cheap(&a) {
                    std::mem::swap(&mut a, &mut b);
                }
                let is_long = is_leaf(&b) && leaves(&a) >= JOINED_MAX;
                *pattern = if (apart && is_cheap(&b)) || is_long {
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

/// True for what reads quads or rows and does nothing else. A loop shows it the variables of the other side, which changes
/// nothing but how many it reads.
fn is_leaf(pattern: &GraphPattern) -> bool {
    match pattern {
        GraphPattern::Bgp { .. } | GraphPattern::Path { .. } | GraphPattern::Values { .. } => true,
        GraphPattern::Graph { inner, .. } => is_leaf(inner),
        GraphPattern::Lateral { left, right } => is_leaf(left) && is_leaf(right),
        // The tick of a guard.
        GraphPattern::Filter { expr: Expression::FunctionCall(_, arguments), inner } => {
            arguments.is_empty() && is_leaf(inner)
        }
        _ => false,
    }
}

/// Triple patterns, paths and tables that are joined.
fn leaves(pattern: &GraphPattern) -> usize {
    match pattern {
        GraphPattern::Bgp { patterns } => patterns.len(),
        GraphPattern::Join { left, right } | GraphPattern::Lateral { left, right } => leaves(left) + leaves(right),
        GraphPattern::Graph { inner, .. } | GraphPattern::Filter { inner, .. } => leaves(inner),
        _ => 1,
    }
}

/// Triple patterns, each time the one with the most positions that are known, as the optimizer would take them.
fn in_order(mut rest: Vec<TriplePattern>) -> Vec<TriplePattern> {
    let (mut order, mut bound) = (Vec::with_capacity(rest.len()), BTreeSet::new());
    while !rest.is_empty() {
        // Three positions; what is no variable is known.
        let free = |triple: &TriplePattern| names_of(triple).filter(|name| !bound.contains(name)).count();
        let best = (0..rest.len()).min_by_key(|at| rest.get(*at).map(free)).unwrap_or(0);
        let triple = rest.remove(best);
        bound.extend(names_of(&triple));
        order.push(triple);
    }
    order
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

impl AlgebraVisitor for Mentions<'_> {
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

#[cfg(test)]
mod tests {
    use crate::limits::QueryLimits;
    use crate::query::{Query, QueryAnswer};
    use crate::space::{GraphSpace, SpaceLimits};
    use crate::update::Update;

    fn rows(space: &GraphSpace, text: &str) -> usize {
        let (limits, snapshot) = (QueryLimits::default(), space.snapshot());
        let query = Query::parse(text, &limits).unwrap();
        let Ok(QueryAnswer::Rows(rows)) = query.run(&snapshot, &limits) else { panic!("no rows") };
        rows.collect::<Result<Vec<_>, _>>().unwrap().len()
    }

    #[test]
    fn a_long_join_gives_what_a_short_one_does() {
        let (mut space, limits) = (GraphSpace::new(1, SpaceLimits::default()), QueryLimits::default());
        let data =
            "INSERT DATA { <urn:0> <urn:p> <urn:1>, <urn:2> . <urn:1> <urn:p> <urn:2> . <urn:2> <urn:p> <urn:0> }";
        space.update(&Update::parse(data, &limits).unwrap(), &limits).unwrap();
        // Walks of so many steps in a graph of three nodes, one of which has two ways on.
        let walks = |steps: usize| {
            let (mut ends, mut count) = ([1_usize; 3], 0);
            for _ in 0..steps {
                ends = [ends[2], ends[0], ends[0] + ends[1]];
                count = ends.iter().sum();
            }
            count
        };
        for steps in [2, 10, 24, 25, 30] {
            let chain = |piece: &dyn Fn(usize) -> String| (0..steps).map(piece).collect::<String>();
            let triples = chain(&|n| format!("?v{n} <urn:p> ?v{} . ", n + 1));
            assert_eq!(rows(&space, &format!("SELECT * {{ {triples} }}")), walks(steps), "{steps} triples");
            let blanks = chain(&|n| format!("_:v{n} <urn:p> _:v{} . ", n + 1));
            assert_eq!(rows(&space, &format!("SELECT * {{ {blanks} }}")), walks(steps), "{steps} blank nodes");
            let paths = chain(&|n| format!("?v{n} <urn:p>|<urn:q> ?v{} . ", n + 1));
            assert_eq!(rows(&space, &format!("SELECT * {{ {paths} }}")), walks(steps), "{steps} paths");
            let some = format!("SELECT * {{ {triples} VALUES ?v0 {{ <urn:3> }} }}");
            assert_eq!(rows(&space, &some), 0, "{steps} triples and a table");
            let all = format!("SELECT * {{ {triples} VALUES (?v0 ?v1) {{ (UNDEF UNDEF) }} }}");
            assert_eq!(rows(&space, &all), walks(steps), "{steps} triples and an open table");
        }
    }
}
