//! A walk over SPARQL's algebra, patterns within expressions included, from the leaves to the root.
//!
//! One walk serves those who change the algebra and those who only look (at a copy). Its recursion is as deep as the
//! algebra, which `text` bounded before there was one.

use spargebra::algebra::{AggregateExpression, Expression, GraphPattern, OrderExpression};

/// What a walk calls at every node, after the nodes below it.
pub(crate) trait AlgebraVisitor {
    fn pattern(&mut self, _pattern: &mut GraphPattern) {}
    fn expression(&mut self, _expression: &mut Expression) {}
    fn aggregate(&mut self, _aggregate: &mut AggregateExpression) {}
}

pub(crate) fn walk(pattern: &mut GraphPattern, visitor: &mut dyn AlgebraVisitor) {
    match pattern {
        GraphPattern::Bgp { .. } | GraphPattern::Path { .. } | GraphPattern::Values { .. } => {}
        GraphPattern::Join { left, right }
        | GraphPattern::Union { left, right }
        | GraphPattern::Lateral { left, right }
        | GraphPattern::Minus { left, right } => {
            walk(left, visitor);
            walk(right, visitor);
        }
        GraphPattern::LeftJoin { left, right, expression } => {
            walk(left, visitor);
            walk(right, visitor);
            if let Some(expression) = expression {
                walk_expression(expression, visitor);
            }
        }
        GraphPattern::Filter { expr, inner } => {
            walk(inner, visitor);
            walk_expression(expr, visitor);
        }
        GraphPattern::Extend { inner, expression, .. } => {
            walk(inner, visitor);
            walk_expression(expression, visitor);
        }
        GraphPattern::OrderBy { inner, expression } => {
            walk(inner, visitor);
            for order in expression {
                let (OrderExpression::Asc(expression) | OrderExpression::Desc(expression)) = order;
                walk_expression(expression, visitor);
            }
        }
        GraphPattern::Group { inner, aggregates, .. } => {
            walk(inner, visitor);
            for (_, aggregate) in aggregates {
                if let AggregateExpression::FunctionCall { expr, .. } = aggregate {
                    walk_expression(expr, visitor);
                }
                visitor.aggregate(aggregate);
            }
        }
        GraphPattern::Graph { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Slice { inner, .. }
        | GraphPattern::Service { inner, .. } => walk(inner, visitor),
    }
    visitor.pattern(pattern);
}

pub(crate) fn walk_expression(expression: &mut Expression, visitor: &mut dyn AlgebraVisitor) {
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
            walk_expression(a, visitor);
            walk_expression(b, visitor);
        }
        Expression::In(a, list) => {
            walk_expression(a, visitor);
            for expression in list {
                walk_expression(expression, visitor);
            }
        }
        Expression::UnaryPlus(a) | Expression::UnaryMinus(a) | Expression::Not(a) => walk_expression(a, visitor),
        Expression::Exists(pattern) => walk(pattern, visitor),
        Expression::If(a, b, c) => {
            walk_expression(a, visitor);
            walk_expression(b, visitor);
            walk_expression(c, visitor);
        }
        Expression::Coalesce(list) | Expression::FunctionCall(_, list) => {
            for expression in list {
                walk_expression(expression, visitor);
            }
        }
    }
    visitor.expression(expression);
}
