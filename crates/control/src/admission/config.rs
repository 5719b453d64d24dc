//! Classes of requests, and what each of them is allowed.

use core::time::Duration;

use crate::config::{ConfigError, count, named, span};

named! {
    "request class";
    /// What a client can ask for. Each class waits in a queue of its own (Table I of the papers).
    pub enum Class {
        /// Keep-alive, acknowledgements, disconnects: never behind work.
        Control = "control",
        /// Publications and notifications.
        Publish = "publish",
        /// Changes of the knowledge base.
        Update = "update",
        /// Triple masks and cheap queries.
        #[default]
        Query = "query",
        /// Queries that may take long.
        AdvancedQuery = "advanced-query",
        /// New standing queries.
        Subscribe = "subscribe",
        /// "Has anything changed since version n?"
        Check = "check",
    }
}

impl Class {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`Class::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

named! {
    "drop policy";
    /// What happens to a request that its queue has no room for.
    pub enum Policy {
        /// It is refused with the time after which to come back.
        #[default]
        Deny = "deny",
        /// It is dropped without a word.
        TailDrop = "tail-drop",
        /// The oldest ones are dropped to make room: for data of which the newest matters.
        HeadDrop = "head-drop",
        /// It is parked and moves up when there is room, if its deadline allows; else it is denied.
        Postpone = "postpone",
    }
}

named! {
    "use of deadlines";
    /// Whether the pool looks at deadlines.
    pub enum Deadlines {
        /// A request that cannot be answered in time is denied at once, and one that is late is not executed.
        #[default]
        Enforce = "enforce",
        /// Work is done for the dead, as in the papers.
        Ignore = "ignore",
    }
}

/// What one class is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassConfig {
    /// Requests that may wait. 1 ..= 16 000 000.
    pub items_max: u32,
    /// Work that may wait, as time: the bound that matters. 1 ms ..= 1 day.
    pub delay_max: Duration,
    /// Requests that may wait or be parked, with those that joined another. 1 ..= 16 000 000.
    pub waiters_max: u32,
    /// Share of the server beside the other classes. 1 ..= 1000.
    pub weight: u32,
    /// What happens beyond.
    pub policy: Policy,
    /// Requests that may be parked (`postpone`). ..= 16 000 000.
    pub parked_max: u32,
    /// Service time assumed before any was measured. 1 µs ..= 1 h.
    pub cost_initial: Duration,
    /// What one more recipient of the same answer costs (coalesced queries). ..= 1 s.
    pub answer_cost: Duration,
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            items_max: 65_536,
            delay_max: Duration::from_millis(100),
            // Twice the items: memory for those that join, when the answers are cheap enough for the delay bound.
            waiters_max: 131_072,
            weight: 10,
            policy: Policy::default(),
            parked_max: 1024,
            cost_initial: Duration::from_millis(1),
            answer_cost: Duration::from_micros(20),
        }
    }
}

/// Configuration of the request pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolConfig {
    /// One entry per class, in the order of [`Class::ALL`].
    pub classes: [ClassConfig; Class::COUNT],
    /// Whether deadlines count.
    pub deadlines: Deadlines,
    /// The deadline of a request that names none. 1 ms ..= 1 day.
    pub deadline_default: Duration,
    /// Requests that are served at the same time; backlogs are divided by it. 1 ..= 1024.
    pub servers: u32,
    /// Recipients that may share one execution. 1 ..= 16 000 000.
    pub shared_max: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        let mut classes = [ClassConfig::default(); Class::COUNT];
        // Shedding notifications turns push load into more expensive poll load: they get 30 % (CONTROL §8.7).
        classes[Class::Publish.index()].weight = 18;
        classes[Class::AdvancedQuery.index()].weight = 2;
        Self {
            classes,
            deadlines: Deadlines::default(),
            deadline_default: Duration::from_millis(1800),
            servers: 1,
            shared_max: 65_536,
        }
    }
}

impl PoolConfig {
    /// What the papers say: several FIFO queues with fixed lengths, tail drop, nothing else.
    pub fn paper(items_max: u32) -> Self {
        let class = ClassConfig {
            items_max,
            delay_max: Duration::from_secs(86_400),
            weight: 1,
            policy: Policy::TailDrop,
            ..ClassConfig::default()
        };
        Self { classes: [class; Class::COUNT], deadlines: Deadlines::Ignore, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (ms, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
        span("deadline_default", self.deadline_default, ms, day)?;
        count("servers", self.servers.into(), 1, 1024)?;
        count("shared_max", self.shared_max.into(), 1, ITEMS_MAX)?;
        for class in &self.classes {
            count("items_max", class.items_max.into(), 1, ITEMS_MAX)?;
            span("delay_max", class.delay_max, ms, day)?;
            count("waiters_max", class.waiters_max.into(), 1, ITEMS_MAX)?;
            count("weight", class.weight.into(), 1, 1000)?;
            count("parked_max", class.parked_max.into(), 0, ITEMS_MAX)?;
            span("cost_initial", class.cost_initial, Duration::from_micros(1), Duration::from_secs(3600))?;
            span("answer_cost", class.answer_cost, Duration::ZERO, Duration::from_secs(1))?;
        }
        Ok(())
    }
}

const ITEMS_MAX: u64 = 16_000_000;
