//! How requests wait, as an operator may choose it: what happens to those that would wait too long, and what too long is.

use std::time::Duration;

use tidegate_control::admission::{Class, ClassConfig, PoolConfig};
pub use tidegate_control::admission::{Policy, PoolRule};

use crate::limits::TIME_MAX;

/// How requests of one class wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassAdmission {
    /// What happens to a request that would have to wait longer.
    pub policy: Policy,
    /// Work that may wait before a request, as time. 1 ms ..= 1 day.
    pub delay_max: Duration,
}

/// Of every class, and the longest time of any request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceAdmission {
    /// The longest time of a request, which is that of one that says nothing about it. At most [`TIME_MAX`].
    pub time_max: Duration,
    /// Changes.
    pub update: ClassAdmission,
    /// Triple masks and cheap queries.
    pub query: ClassAdmission,
    /// Queries that may take long.
    pub advanced_query: ClassAdmission,
    /// New subscriptions.
    pub subscribe: ClassAdmission,
    /// Subscriptions that are gone on with: what was missed?
    pub check: ClassAdmission,
    /// Our pool, or that of the papers, in which queues have a length and neither delays nor whoever asks count.
    pub rule: PoolRule,
    /// The length of each queue of the papers' pool. 1 ..= 16 000 000.
    pub length: u32,
}

impl Default for SpaceAdmission {
    fn default() -> Self {
        let usual = PoolConfig::default();
        let line = |class: Class, policy| ClassAdmission { policy, delay_max: usual.classes[class.index()].delay_max };
        Self {
            time_max: TIME_MAX,
            update: line(Class::Update, Policy::Deny),
            query: line(Class::Query, Policy::Deny),
            // Few and dear: they are parked while their time allows, instead of coming again.
            advanced_query: line(Class::AdvancedQuery, Policy::Postpone),
            subscribe: line(Class::Subscribe, Policy::Postpone),
            check: line(Class::Check, Policy::Deny),
            rule: PoolRule::Practical,
            length: PoolConfig::from(PoolRule::Paper).classes[0].items_max,
        }
    }
}

impl SpaceAdmission {
    /// As the request queues take it, with servers that are worth so many processors.
    pub fn pool(&self, servers: u32) -> PoolConfig {
        let rule = match self.rule {
            PoolRule::Practical => PoolConfig::default(),
            PoolRule::Paper => PoolConfig::paper(self.length),
        };
        let mut config = PoolConfig { servers, ..rule };
        let lines = [
            (Class::Update, self.update, 50),
            (Class::Query, self.query, 100),
            (Class::AdvancedQuery, self.advanced_query, 1000),
            (Class::Subscribe, self.subscribe, 200),
            (Class::Check, self.check, 100),
        ];
        for (class, line, micros) in lines {
            let class = &mut config.classes[class.index()];
            class.policy = line.policy;
            match self.rule {
                PoolRule::Practical => class.delay_max = line.delay_max,
                PoolRule::Paper => class.parked_max = ClassConfig::default().parked_max,
            }
            class.cost_initial = Duration::from_micros(micros);
        }
        config
    }
}
