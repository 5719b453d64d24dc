//! What the cases of the smart space should come to. Pure: figures in, verdict out.

use super::shown;
use crate::goals::{GoalState, GoalVerdict};
use crate::outcome::CaseOutcome;
use crate::report::ReportEntry;

/// A figure by its name, and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SpaceGoal {
    /// At least so much.
    AtLeast(&'static str, f64),
    /// At most so much.
    AtMost(&'static str, f64),
}

impl SpaceGoal {
    /// Judges the entries of one case.
    pub(crate) fn judge(self, entries: &[ReportEntry]) -> GoalVerdict {
        let (name, bound, sign) = match self {
            Self::AtLeast(name, bound) => (name, bound, '≥'),
            Self::AtMost(name, bound) => (name, bound, '≤'),
        };
        let goal = format!("{name} {sign} {}", shown(bound));
        let figure = entries.iter().find_map(|entry| match entry.outcome.as_ref() {
            Ok(CaseOutcome::Space(figures)) => figures.find(name),
            _ => None,
        });
        let Some(figure) = figure else {
            return GoalVerdict { goal, figure: "not measured".to_owned(), state: GoalState::Unknown };
        };
        let is_met = if sign == '≥' { figure >= bound } else { figure <= bound };
        GoalVerdict { goal, figure: shown(figure), state: if is_met { GoalState::Met } else { GoalState::Missed } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BrokerRole;
    use crate::space::{NamedFigure, SpaceFigures};

    #[test]
    fn a_bound_is_kept_or_not() {
        let figures = SpaceFigures(vec![NamedFigure { name: "lost", value: 1.0 }]);
        let outcome = Ok(CaseOutcome::Space(figures));
        let entries = [ReportEntry { case: "c", broker: "tidegate".to_owned(), role: BrokerRole::Own, outcome }];
        assert_eq!(SpaceGoal::AtMost("lost", 0.0).judge(&entries).state, GoalState::Missed);
        assert_eq!(SpaceGoal::AtLeast("lost", 1.0).judge(&entries).state, GoalState::Met);
        assert_eq!(SpaceGoal::AtLeast("found", 1.0).judge(&entries).state, GoalState::Unknown);
    }
}
