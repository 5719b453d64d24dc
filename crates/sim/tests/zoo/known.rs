//! What is known to break a rule, and why. Checked both ways: nothing is added in silence, and nothing stays when it is
//! mended.

use tidegate_sim::zoo::model::Rule;

/// Scenario, rule, reason.
pub(crate) const KNOWN: &[(&str, Rule, &str)] =
    &[("rare-q1-chatty-q0", Rule::Rare, FIRST_REACH), ("rare-all-q0", Rule::Rare, FIRST_REACH)];

/// 3.1 to 3.4 s; 4.6 s without control. Where the chatty have QoS 1 or 2 their window bounds it: 50 to 116 ms.
const FIRST_REACH: &str = "a receiver that has taken everything may have 16 KiB before it when it becomes slow, where nothing can be \
                           overtaken: three seconds of small messages at 60 a second";

/// Drawn scenarios, and the reason.
pub(crate) const DRAWN: &[(&str, &str)] = &[];
