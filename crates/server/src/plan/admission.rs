//! How requests to the smart space wait, and what of that contradicts itself.

use tidegate_space::{ClassAdmission, DelegationConfig, LongAnswerConfig, SpaceAdmission};

use crate::config::keys::{Options, SpaceSection};
use crate::config::setting::{Setting, Span};
use crate::config::words::PolicyWord;
use crate::config::{ConfigProblem, Loaded, Origin};

type Delay = Span<1, 60_000>;

pub fn admission(options: &Options) -> SpaceAdmission {
    let it = &options.space;
    let line = |policy: PolicyWord, delay_max: Delay| ClassAdmission { policy: policy.0, delay_max: delay_max.0 };
    SpaceAdmission {
        time_max: it.time_max.0,
        update: line(it.update_policy, it.update_delay_max),
        query: line(it.query_policy, it.query_delay_max),
        advanced_query: line(it.advanced_query_policy, it.advanced_query_delay_max),
        subscribe: line(it.subscribe_policy, it.subscribe_delay_max),
        check: line(it.check_policy, it.check_delay_max),
        rule: options.pool.rule.0,
        length: options.pool.length.0 as u32,
    }
}

/// How answers are sent that are too long to be held.
pub fn long_answers(options: &Options) -> LongAnswerConfig {
    let (places, stall) = (options.space.long_answers.0 as usize, options.space.long_answer_stall.0);
    let bytes_max = options.space.long_answer_bytes_max.0;
    LongAnswerConfig { places, stall, bytes_max, ..LongAnswerConfig::default() }
}

/// How many subscriptions may be handed over to their clients, and when.
pub fn delegation(options: &Options) -> DelegationConfig {
    let (usual, wait) = (DelegationConfig::default(), options.space.delegation_wait.0);
    // Whoever wants it always wants it for few, too.
    let load_min = if wait.is_zero() { 0.0 } else { usual.load_min };
    DelegationConfig { share_max: options.space.delegation_max.0 as f64 / 100.0, load_min, wait }
}

fn delays(it: &SpaceSection) -> [(&'static str, Delay); 5] {
    [
        ("space.update_delay_max", it.update_delay_max),
        ("space.query_delay_max", it.query_delay_max),
        ("space.advanced_query_delay_max", it.advanced_query_delay_max),
        ("space.subscribe_delay_max", it.subscribe_delay_max),
        ("space.check_delay_max", it.check_delay_max),
    ]
}

/// Nobody waits longer than a request may take. A delay that nobody wrote is no contradiction: the time ends it.
pub(super) fn pointless_delays(loaded: &Loaded) -> Vec<ConfigProblem> {
    let time_max = loaded.options.space.time_max;
    let problem = |(key, delay): (&'static str, Delay)| {
        let origin = loaded.origin(key);
        let is_pointless = delay.0 > time_max.0 && *origin != Origin::Default;
        let message = format!("{} is more than space.time_max ({}), which comes first", delay.show(), time_max.show());
        is_pointless.then(|| ConfigProblem::of_key(origin, key, message))
    };
    delays(&loaded.options.space).into_iter().filter_map(problem).collect()
}
