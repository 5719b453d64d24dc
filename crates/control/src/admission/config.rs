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
    /// The number of classes.
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

named! {
    "pool rule";
    /// Which pool: the two starting points of a [`PoolConfig`].
    pub enum PoolRule {
        /// Delay bounds, deadlines, weights, denials with a time to come back.
        #[default]
        Practical = "practical",
        /// The pool of the papers, see [`PoolConfig::paper`].
        Paper = "paper",
    }
}

/// What one class is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassConfig {
    /// Requests that may wait. 1 ..= 16 000 000.
    pub items_max: u32,
    /// Work that may wait, as time: the bound that matters. 1 ms ..= 1 day, or [`DELAY_UNBOUNDED`].
    pub delay_max: Duration,
    /// Requests that may wait or be parked, with those that joined another. 1 ..= 16 000 000.
    pub waiters_max: u32,
    /// Share of the server beside the other classes. 1 ..= 1000.
    pub weight: u32,
    /// What happens to a request that finds the queue full.
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
            weight: 16,
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
        classes[Class::Publish.index()].weight = 30;
        // The lowest share is 6 %, and a query that takes long may wait longer than one that does not.
        classes[Class::AdvancedQuery.index()].weight = 6;
        classes[Class::AdvancedQuery.index()].delay_max = Duration::from_secs(1);
        Self {
            classes,
            deadlines: Deadlines::default(),
            deadline_default: Duration::from_millis(1800),
            servers: 1,
            shared_max: 65_536,
        }
    }
}

impl From<PoolRule> for PoolConfig {
    fn from(rule: PoolRule) -> Self {
        match rule {
            PoolRule::Practical => Self::default(),
            PoolRule::Paper => Self::paper(PAPER_ITEMS),
        }
    }
}

impl PoolConfig {
    /// What the papers say: several FIFO queues with fixed lengths, tail drop, round robin with equal weights. Neither
    /// delays nor deadlines count. Equal queries that wait together are still executed once: Table I has it as "caching
    /// the same queries", and a request with `key: None` stays out of it.
    pub fn paper(items_max: u32) -> Self {
        let class = ClassConfig {
            items_max,
            delay_max: DELAY_UNBOUNDED,
            waiters_max: ITEMS_MAX as u32,
            weight: 1,
            policy: Policy::TailDrop,
            parked_max: 0,
            ..ClassConfig::default()
        };
        let classes = [class; Class::COUNT];
        Self { classes, deadlines: Deadlines::Ignore, shared_max: ITEMS_MAX as u32, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (ms, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
        span("deadline_default", self.deadline_default, ms, day)?;
        count("servers", self.servers.into(), 1, 1024)?;
        count("shared_max", self.shared_max.into(), 1, ITEMS_MAX)?;
        for (class, fields) in self.classes.iter().zip(&FIELDS) {
            count(fields.items_max, class.items_max.into(), 1, ITEMS_MAX)?;
            if class.delay_max != DELAY_UNBOUNDED {
                span(fields.delay_max, class.delay_max, ms, day)?;
            }
            count(fields.waiters_max, class.waiters_max.into(), 1, ITEMS_MAX)?;
            count(fields.weight, class.weight.into(), 1, 1000)?;
            count(fields.parked_max, class.parked_max.into(), 0, ITEMS_MAX)?;
            span(fields.cost_initial, class.cost_initial, Duration::from_micros(1), Duration::from_secs(3600))?;
            span(fields.answer_cost, class.answer_cost, Duration::ZERO, Duration::from_secs(1))?;
        }
        Ok(())
    }
}

/// Names of a class's fields for errors: an error that says `weight` and not whose sends its reader to seven places.
struct ClassFields {
    items_max: &'static str,
    delay_max: &'static str,
    waiters_max: &'static str,
    weight: &'static str,
    parked_max: &'static str,
    cost_initial: &'static str,
    answer_cost: &'static str,
}

macro_rules! fields {
    ($($class:literal),+) => {
        [$(ClassFields {
            items_max: concat!($class, ".items_max"),
            delay_max: concat!($class, ".delay_max"),
            waiters_max: concat!($class, ".waiters_max"),
            weight: concat!($class, ".weight"),
            parked_max: concat!($class, ".parked_max"),
            cost_initial: concat!($class, ".cost_initial"),
            answer_cost: concat!($class, ".answer_cost"),
        }),+]
    };
}

/// In the order of [`Class::ALL`].
const FIELDS: [ClassFields; Class::COUNT] =
    fields!["control", "publish", "update", "query", "advanced-query", "subscribe", "check"];

/// No bound on the delay, as in the papers.
pub const DELAY_UNBOUNDED: Duration = Duration::MAX;

/// The papers give no length. With requests of 5 ms, as in the curves of the manual, this is 5 s of work.
const PAPER_ITEMS: u32 = 1000;

const ITEMS_MAX: u64 = 16_000_000;
