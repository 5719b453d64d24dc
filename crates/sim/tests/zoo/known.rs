//! What is known to break a rule, and why. Checked both ways: nothing is added in silence, and nothing stays when it is
//! mended.

use tidegate_sim::zoo::model::Rule;

/// Scenario, rule, reason.
pub(crate) const KNOWN: &[(&str, Rule, &str)] = &[];

/// Drawn scenarios, and the reason.
pub(crate) const DRAWN: &[(&str, &str)] = &[];
