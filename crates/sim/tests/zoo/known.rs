//! What is known to break a rule, and why. Checked both ways: nothing is added in silence, and nothing stays when it is
//! mended.

use tidegate_sim::zoo::model::Rule;

/// Scenario, rule, reason.
pub(crate) const KNOWN: &[(&str, Rule, &str)] = &[("many-flows", Rule::NotWorse, LESS_ROOM)];

/// 2 993/s of 3 605/s are delivered; without control all, up to 5.1 s late (the rare: 146 ms with control, 5.2 s without).
const LESS_ROOM: &str = "without control a MiB (limits.outbox_bytes_max) waits in the outbox and 10 000 messages                          (limits.queue_messages_max) behind it; with control little is in the outbox, where nothing can be                          overtaken, and only the 10 000 wait: of 18 600 more than a receiver takes in six seconds 8 600 are                          dropped, from the longest flows";

/// Drawn scenarios, and the reason.
pub(crate) const DRAWN: &[(&str, &str)] = &[
    // The second cohort 987 ms instead of 864; the first 881 instead of 956, the third 419 instead of 755.
    ("drawn-6", ORDERED),
    // The first cohort 1 158 ms instead of 831; the second 403 instead of 789.
    ("drawn-16", ORDERED),
];

/// Nobody loses anything in these.
const ORDERED: &str = "several innocents come back with backlogs at the same moment before one receiver: who is served before                        others makes them later, and fair by network is not first come, first served";
