//! What the cases of the smart space should come to. Pure: figures in, verdict out.

use super::shown;
use crate::goals::{State, Verdict};
use crate::outcome::Outcome;
use crate::report::Entry;

/// A figure by its name, and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aim {
    /// At least so much.
    AtLeast(&'static str, f64),
    /// At most so much.
    AtMost(&'static str, f64),
}

impl Aim {
    /// Judges the entries of one case.
    pub(crate) fn judge(self, entries: &[Entry]) -> Verdict {
        let (name, bound, sign) = match self {
            Self::AtLeast(name, bound) => (name, bound, '≥'),
            Self::AtMost(name, bound) => (name, bound, '≤'),
        };
        let goal = format!("{name} {sign} {}", shown(bound));
        let figure = entries.iter().find_map(|entry| match entry.outcome.as_ref() {
            Ok(Outcome::Space(figures)) => figures.find(name),
            _ => None,
        });
        let Some(figure) = figure else {
            return Verdict { goal, figure: "not measured".to_owned(), state: State::Unknown };
        };
        let is_met = if sign == '≥' { figure >= bound } else { figure <= bound };
        Verdict { goal, figure: shown(figure), state: if is_met { State::Met } else { State::Missed } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Role;
    use crate::space::{Figure, Figures};

    #[test]
    fn a_bound_is_kept_or_not() {
        let figures = Figures(vec![Figure { name: "lost", value: 1.0 }]);
        let outcome = Ok(Outcome::Space(figures));
        let entries = [Entry { case: "c", broker: "tidegate".to_owned(), role: Role::Own, outcome }];
        assert_eq!(Aim::AtMost("lost", 0.0).judge(&entries).state, State::Missed);
        assert_eq!(Aim::AtLeast("lost", 1.0).judge(&entries).state, State::Met);
        assert_eq!(Aim::AtLeast("found", 1.0).judge(&entries).state, State::Unknown);
    }
}
