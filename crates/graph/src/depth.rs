//! How deep an algebra is: everything that walks it later recurses once or more for each level.
//!
//! The text bounds it roughly, because the parser makes levels of what no bracket encloses (`?s <p>* 1, 2, 3` is two
//! joins). This counts exactly, and without recursion.

use spargebra::algebra::{AggregateExpression, Expression, GraphPattern, OrderExpression, PropertyPathExpression};

/// Levels of an algebra. Evaluation needs some kilobytes of stack for each.
const DEPTH_MAX: usize = 384;
/// Repetitions (`*`, `+`, `?`) within repetitions of a path; the evaluation repeats what is inside for each.
const REPETITIONS_MAX: usize = 16;

/// True for an algebra that is not to be walked.
pub(crate) fn is_too_deep(pattern: &GraphPattern) -> bool {
    let (deepest, repetitions) = depths(pattern);
    deepest > DEPTH_MAX || repetitions > REPETITIONS_MAX
}

enum AlgebraNode<'a> {
    Pattern(&'a GraphPattern),
    Expression(&'a Expression),
    Path(&'a PropertyPathExpression),
}

/// Levels of a pattern, with the expressions, paths and patterns in it, and the most repetitions in each other.
pub(crate) fn depths(pattern: &GraphPattern) -> (usize, usize) {
    let (mut pending, mut deepest, mut most) = (vec![(AlgebraNode::Pattern(pattern), 1, 0)], 0, 0);
    while let Some((node, level, repetitions)) = pending.pop() {
        let repetitions = repetitions + usize::from(is_repetition(&node));
        (deepest, most) = (deepest.max(level), most.max(repetitions));
        let mut below = |node| pending.push((node, level + 1, repetitions));
        match node {
            AlgebraNode::Pattern(pattern) => under_pattern(pattern, &mut below),
            AlgebraNode::Expression(expression) => under_expression(expression, &mut below),
            AlgebraNode::Path(path) => under_path(path, &mut below),
        }
    }
    (deepest, most)
}

fn is_repetition(node: &AlgebraNode<'_>) -> bool {
    use PropertyPathExpression::{OneOrMore, ZeroOrMore, ZeroOrOne};
    matches!(node, AlgebraNode::Path(ZeroOrMore(_) | OneOrMore(_) | ZeroOrOne(_)))
}

fn under_pattern<'a>(pattern: &'a GraphPattern, below: &mut impl FnMut(AlgebraNode<'a>)) {
    match pattern {
        GraphPattern::Bgp { .. } | GraphPattern::Values { .. } => {}
        GraphPattern::Path { path, .. } => below(AlgebraNode::Path(path)),
        GraphPattern::Join { left, right }
        | GraphPattern::Union { left, right }
        | GraphPattern::Lateral { left, right }
        | GraphPattern::Minus { left, right } => {
            for side in [left, right] {
                below(AlgebraNode::Pattern(side));
            }
        }
        GraphPattern::LeftJoin { left, right, expression } => {
            for side in [left, right] {
                below(AlgebraNode::Pattern(side));
            }
            if let Some(expression) = expression {
                below(AlgebraNode::Expression(expression));
            }
        }
        GraphPattern::Filter { expr: expression, inner } | GraphPattern::Extend { inner, expression, .. } => {
            below(AlgebraNode::Pattern(inner));
            below(AlgebraNode::Expression(expression));
        }
        GraphPattern::OrderBy { inner, expression } => {
            below(AlgebraNode::Pattern(inner));
            for OrderExpression::Asc(expression) | OrderExpression::Desc(expression) in expression {
                below(AlgebraNode::Expression(expression));
            }
        }
        GraphPattern::Group { inner, aggregates, .. } => {
            below(AlgebraNode::Pattern(inner));
            for (_, aggregate) in aggregates {
                if let AggregateExpression::FunctionCall { expr, .. } = aggregate {
                    below(AlgebraNode::Expression(expr));
                }
            }
        }
        GraphPattern::Graph { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Slice { inner, .. }
        | GraphPattern::Service { inner, .. } => below(AlgebraNode::Pattern(inner)),
    }
}

fn under_expression<'a>(expression: &'a Expression, below: &mut impl FnMut(AlgebraNode<'a>)) {
    match expression {
        Expression::NamedNode(_) | Expression::Literal(_) | Expression::Variable(_) | Expression::Bound(_) => {}
        Expression::Or(a, b)
        | Expression::And(a, b)
        | Expression::Equal(a, b)
        | Expression::SameTerm(a, b)
        | Expression::Greater(a, b)
        | Expression::GreaterOrEqual(a, b)
        | Expression::Less(a, b)
        | Expression::LessOrEqual(a, b)
        | Expression::Add(a, b)
        | Expression::Subtract(a, b)
        | Expression::Multiply(a, b)
        | Expression::Divide(a, b) => {
            for side in [a, b] {
                below(AlgebraNode::Expression(side));
            }
        }
        Expression::In(a, list) => {
            below(AlgebraNode::Expression(a));
            for expression in list {
                below(AlgebraNode::Expression(expression));
            }
        }
        Expression::UnaryPlus(a) | Expression::UnaryMinus(a) | Expression::Not(a) => below(AlgebraNode::Expression(a)),
        Expression::Exists(pattern) => below(AlgebraNode::Pattern(pattern)),
        Expression::If(a, b, c) => {
            for part in [a, b, c] {
                below(AlgebraNode::Expression(part));
            }
        }
        Expression::Coalesce(list) | Expression::FunctionCall(_, list) => {
            for expression in list {
                below(AlgebraNode::Expression(expression));
            }
        }
    }
}

fn under_path<'a>(path: &'a PropertyPathExpression, below: &mut impl FnMut(AlgebraNode<'a>)) {
    match path {
        PropertyPathExpression::NamedNode(_) | PropertyPathExpression::NegatedPropertySet(_) => {}
        PropertyPathExpression::Reverse(a)
        | PropertyPathExpression::ZeroOrMore(a)
        | PropertyPathExpression::OneOrMore(a)
        | PropertyPathExpression::ZeroOrOne(a) => below(AlgebraNode::Path(a)),
        PropertyPathExpression::Sequence(a, b) | PropertyPathExpression::Alternative(a, b) => {
            for side in [a, b] {
                below(AlgebraNode::Path(side));
            }
        }
    }
}
