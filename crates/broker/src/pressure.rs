//! What each shard measures of its own loop, and what all of them make of it together.
//!
//! A thread notes how long its turns take and how long those wait whom they read (`Meter`), and every tenth of a second gives that
//! to its gauge (`tidegate_control::pressure`), which decides. The level of the process is the highest of its shards';
//! the memory that counts is that of all. Everything shared is an atomic: no thread waits for another here.
//!
//! *Memory.* The budget is handed out in grants that never add up to more than it (`Budget::grant`), so that the shards
//! together cannot use more than there is, whatever each of them thinks of the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::order::ServiceOrder;
use tidegate_control::pressure::{Cause, Gauge, Level, PressureConfig, PressurePlan, Signal};

use crate::limits::SAMPLE_INTERVAL;

/// How hard the broker is pressed, for whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureReport {
    /// The level of the process.
    pub level: Level,
    /// What it is owed to; none at level 0.
    pub cause: Option<Cause>,
    /// For how long it has been so.
    pub age: Duration,
    /// Bytes that are charged to the memory budget.
    pub memory_used: u64,
    /// The budget.
    pub memory_max: u64,
}

/// What one thread has measured since its last sample.
#[derive(Debug)]
pub(crate) struct Meter {
    plan: Option<PressurePlan>,
    gauge: Gauge,
    window: Timestamp,
    busy: Duration,
    turns: u32,
    /// The longest that somebody waited for its turn who sends what is usual, or next to nothing.
    entitled: Duration,
    /// The longest that somebody who was read had not been read dry.
    unread: Duration,
    /// Mean turns and longest waits of the last samples.
    before: [(Duration, Duration); SAMPLES],
    samples: usize,
}

impl Meter {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            plan: PressureConfig::default().build().ok(),
            gauge: Gauge::default(),
            window: now,
            busy: Duration::ZERO,
            turns: 0,
            entitled: Duration::ZERO,
            unread: Duration::ZERO,
            before: [(Duration::ZERO, Duration::ZERO); SAMPLES],
            samples: 0,
        }
    }

    /// Somebody who waited for that long is read now, and has not been read dry for so long.
    #[inline]
    pub(crate) fn on_visit(&mut self, order: ServiceOrder, waited: Duration, unread: Duration) {
        if order < ServiceOrder::Excess {
            self.entitled = self.entitled.max(waited);
        }
        self.unread = self.unread.max(unread);
    }

    /// A turn has ended.
    pub(crate) fn on_turn(&mut self, took: Duration) {
        self.busy += took;
        self.turns = self.turns.saturating_add(1);
    }

    /// When the next sample is due: nothing is measured while nothing happens, but a level has to end.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        (self.gauge.level() > Level::Calm || self.unread > Duration::ZERO).then_some(self.window + SAMPLE_INTERVAL)
    }

    /// The gauge as it stands after this, if it is time.
    /// `store` is how long the disk has been with what it does now.
    pub(crate) fn sample(
        &mut self,
        memory_used: u64,
        memory_max: u64,
        store: Duration,
        now: Timestamp,
    ) -> Option<Gauge> {
        if now.since(self.window) < SAMPLE_INTERVAL {
            return None;
        }
        // The mean: a thread that loses its core for a while has one long turn, and nothing is wrong with the others.
        self.before[self.samples % SAMPLES] = (self.busy / self.turns.max(1), self.entitled);
        self.samples = self.samples.wrapping_add(1);
        // For a second: less happens whenever the machine has other things to do.
        let turn = self.before.iter().map(|(turn, _)| *turn).min().unwrap_or_default();
        let entitled = self.before.iter().map(|(_, entitled)| *entitled).min().unwrap_or_default();
        let signal = Signal { turn, entitled, unread: self.unread, store, memory_used, memory_max };
        self.gauge.on_sample(self.plan.as_ref()?, &signal, now);
        (self.window, self.busy, self.turns) = (now, Duration::ZERO, 0);
        (self.entitled, self.unread) = (Duration::ZERO, Duration::ZERO);
        Some(self.gauge)
    }
}

/// A second of them.
const SAMPLES: usize = 10;

/// What the shards show each other.
#[derive(Debug)]
pub(crate) struct PressureBoard {
    shards: Vec<ShardPressure>,
    /// How often the level became this.
    transitions: [AtomicU64; 5],
    pub(crate) budget: Budget,
}

#[derive(Debug, Default)]
struct ShardPressure {
    /// Level and cause.
    level: AtomicU64,
    since: AtomicU64,
}

impl PressureBoard {
    pub(crate) fn new(shards: usize, memory_max: u64) -> Self {
        let budget = Budget::new(shards, memory_max);
        Self {
            shards: (0..shards).map(|_| ShardPressure::default()).collect(),
            transitions: Default::default(),
            budget,
        }
    }

    pub(crate) fn show(&self, shard: usize, gauge: &Gauge) {
        if let Some(shown) = self.shards.get(shard) {
            let cause = gauge.cause().unwrap_or_default() as u64;
            shown.level.store(u64::from(gauge.level().number()) << 8 | cause, Ordering::Relaxed);
            shown.since.store(gauge.since().as_nanos(), Ordering::Relaxed);
        }
    }

    /// The level of the process has changed; told by one thread.
    pub(crate) fn count_transition(&self, to: Level) {
        if let Some(count) = self.transitions.get(usize::from(to.number())) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn transitions(&self) -> [u64; 5] {
        self.transitions.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The highest level of all shards.
    pub(crate) fn level(&self) -> Level {
        let highest = self.shards.iter().map(|shown| shown.level.load(Ordering::Relaxed)).max().unwrap_or(0);
        Level::from_number((highest >> 8) as u8)
    }

    pub(crate) fn report(&self, now: Timestamp) -> PressureReport {
        let shown = |shown: &ShardPressure| (shown.level.load(Ordering::Relaxed), shown.since.load(Ordering::Relaxed));
        // Of equal ones the one that has been there longest.
        let all = self.shards.iter().map(shown);
        let (highest, since) = all.max_by_key(|(level, since)| (*level, u64::MAX - since)).unwrap_or_default();
        let level = Level::from_number((highest >> 8) as u8);
        let cause = Cause::ALL.get((highest & 0xff) as usize).copied();
        PressureReport {
            level,
            cause: cause.filter(|_| level > Level::Calm),
            age: now.since(Timestamp::from_nanos(since)),
            memory_used: self.budget.used(),
            memory_max: self.budget.max(),
        }
    }
}

/// The memory of all shards.
#[derive(Debug)]
pub(crate) struct Budget {
    max: AtomicU64,
    /// What is handed out, all together.
    granted: AtomicU64,
    /// What others than the shards use: texts that the smart space reads, and its answers.
    beside: AtomicU64,
    /// The data of the smart space: they stay.
    data: AtomicU64,
    /// By shard: what it uses, what it was granted, and bytes in its inbox.
    shards: Vec<[AtomicU64; 3]>,
}

impl Budget {
    fn new(shards: usize, max: u64) -> Self {
        let (max, granted) = (AtomicU64::new(max), AtomicU64::new(0));
        let (beside, data) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { max, granted, beside, data, shards: (0..shards).map(|_| Default::default()).collect() }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// A reload. What is used beyond a smaller budget stays; nothing new is granted until it is used no more.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Bytes in use by all shards, and beside them.
    pub(crate) fn used(&self) -> u64 {
        self.data_counted() + self.used_without_data()
    }

    fn used_without_data(&self) -> u64 {
        self.beside_counted() + self.shards.iter().map(|[used, ..]| used.load(Ordering::Relaxed)).sum::<u64>()
    }

    /// What is used of what the data leave: by that it is told how hard the broker is pressed. Data that stay are no reason to
    /// turn clients away, but there is less for these.
    pub(crate) fn used_beside_data(&self) -> (u64, u64) {
        (self.used_without_data(), self.max().saturating_sub(self.data_counted()))
    }

    /// Data that were there before, and are more than their part, take nothing of what is for others.
    fn data_counted(&self) -> u64 {
        self.data.load(Ordering::Relaxed).min(self.part(DATA_SHARE))
    }

    /// What is beyond its part is there for a moment, and takes nothing of what is for the shards.
    fn beside_counted(&self) -> u64 {
        self.beside().min(self.part(BESIDE_SHARE))
    }

    fn part(&self, thousandths: u64) -> u64 {
        (self.max() / 1000).saturating_mul(thousandths)
    }

    /// Charges data that are to stay; false if that would be more than their part, or if the budget is all but used up.
    pub(crate) fn take_data(&self, bytes: u64) -> bool {
        let may = self.part(DATA_SHARE).min(self.part(DATA_UNTIL).saturating_sub(self.used_without_data()));
        let more = |data: u64| data.checked_add(bytes).filter(|sum| *sum <= may);
        self.data.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Charges data that are there already.
    pub(crate) fn charge_data(&self, bytes: u64) {
        self.data.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_data(&self, bytes: u64) {
        let less = |data: u64| Some(data.saturating_sub(bytes));
        let _ = self.data.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn beside(&self) -> u64 {
        self.beside.load(Ordering::Relaxed)
    }

    /// Charges what is no shard's; false if that would be more than its part, or than is left. A shard that was granted all
    /// of the budget learns of it at its next turn.
    pub(crate) fn take_beside(&self, bytes: u64) -> bool {
        let left = self.max().saturating_sub(self.used()).saturating_add(self.beside_counted());
        let may = self.part(BESIDE_SHARE).min(left);
        let more = |beside: u64| beside.checked_add(bytes).filter(|sum| *sum <= may);
        self.beside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Charges what is there already, and leaves soon.
    pub(crate) fn charge_beside(&self, bytes: u64) {
        self.beside.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_beside(&self, bytes: u64) {
        let less = |beside: u64| Some(beside.saturating_sub(bytes));
        let _ = self.beside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// A batch was put into the inbox of a shard, or taken out.
    pub(crate) fn batch_sent(&self, to: usize, bytes: usize) {
        self.shards[to][2].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn batch_taken(&self, by: usize, bytes: usize) {
        self.shards[by][2].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn inbox_bytes(&self, shard: usize) -> usize {
        self.shards[shard][2].load(Ordering::Relaxed) as usize
    }

    /// A shard uses so much; the answer is how much it may use: that, and what a turn may take, if nobody else has it. Not
    /// more: a shard that sleeps keeps its grant, and others may need it.
    pub(crate) fn grant(&self, shard: usize, used: u64) -> u64 {
        let [shown, own, _] = &self.shards[shard];
        shown.store(used, Ordering::Relaxed);
        let max = self.max().saturating_sub(self.beside_counted()).saturating_sub(self.data_counted());
        let before = own.load(Ordering::Relaxed);
        let shards = self.shards.len() as u64;
        let turn = if shards == 1 { max } else { (max / (16 * shards)).max(TURN_BYTES) };
        let wanted = used.saturating_add(turn.min(self.max().saturating_sub(self.used()) / shards));
        // The own grant is changed by its own thread only.
        if wanted <= before {
            self.granted.fetch_sub(before - wanted, Ordering::Relaxed);
            own.store(wanted, Ordering::Relaxed);
            return wanted;
        }
        let mut more = 0;
        let _ = self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
            more = (wanted - before).min(max.saturating_sub(granted));
            Some(granted + more)
        });
        own.store(before + more, Ordering::Relaxed);
        before + more
    }
}

/// What others than the shards may have of the budget, in thousandths: MQTT comes first, and has a quarter at least.
const BESIDE_SHARE: u64 = 250;
/// The same for the data of the smart space.
const DATA_SHARE: u64 = 500;
/// Data may grow until so much of the budget is used by all together: as with retained messages, which stay, too.
const DATA_UNTIL: u64 = 850;

/// What one turn may need at least, copies for many receivers included.
const TURN_BYTES: u64 = 2 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A second and a half in which somebody waits like this.
    fn wait(order: ServiceOrder, waited: Duration, unread: Duration) -> (Meter, Timestamp) {
        let mut meter = Meter::new(Timestamp::ZERO);
        let mut now = Timestamp::ZERO;
        for _ in 0..1500 {
            now = now + MS;
            meter.on_visit(order, waited, unread);
            meter.on_turn(MS);
            meter.sample(0, 1, Duration::ZERO, now);
        }
        (meter, now)
    }

    #[test]
    fn whoever_leaves_somebody_unread_for_a_second_is_busy_and_calms_down() {
        let (mut meter, mut now) = wait(ServiceOrder::Excess, 40 * MS, 1200 * MS);
        assert_eq!((meter.gauge.level(), meter.gauge.cause()), (Level::Busy, Some(Cause::Backlog)));
        for _ in 0..60 {
            assert!(meter.due().is_some_and(|due| due <= now + SAMPLE_INTERVAL) || meter.gauge.level() == Level::Calm);
            now = now + SAMPLE_INTERVAL;
            meter.sample(0, 1, Duration::ZERO, now);
        }
        assert_eq!((meter.gauge.level(), meter.due()), (Level::Calm, None));
        assert_eq!(
            wait(ServiceOrder::Excess, 900 * MS, 900 * MS).0.gauge.level(),
            Level::Calm,
            "read dry within a second"
        );
    }

    #[test]
    fn f056_those_who_send_what_is_usual_and_wait_raise_the_level() {
        assert_eq!(wait(ServiceOrder::Entitled, 40 * MS, 40 * MS).0.gauge.level(), Level::Calm);
        assert_eq!(wait(ServiceOrder::Entitled, 60 * MS, 60 * MS).0.gauge.level(), Level::Strained);
        assert_eq!(wait(ServiceOrder::Sparse, 1100 * MS, 1100 * MS).0.gauge.level(), Level::Overloaded);
        let mut meter = Meter::new(Timestamp::ZERO);
        for tick in 1..100 {
            // Late, but not all the time.
            if tick % 10 != 0 {
                meter.on_visit(ServiceOrder::Entitled, 200 * MS, 200 * MS);
            }
            meter.sample(0, 1, Duration::ZERO, Timestamp::ZERO + SAMPLE_INTERVAL * tick);
        }
        assert_eq!(meter.gauge.level(), Level::Calm);
    }

    #[test]
    fn the_highest_level_is_everybodys() {
        let pressure = PressureBoard::new(3, 1000);
        let mut meter = Meter::new(Timestamp::ZERO);
        let now = Timestamp::ZERO + SAMPLE_INTERVAL;
        pressure.show(1, &meter.sample(960, 1000, Duration::ZERO, now).unwrap());
        assert_eq!(pressure.level(), Level::Emergency);
        let report = pressure.report(now + MS);
        assert_eq!((report.level, report.cause, report.age), (Level::Emergency, Some(Cause::Memory), MS));
    }

    #[test]
    fn f066_what_is_used_beside_the_shards_is_theirs_no_more_and_has_an_end() {
        let budget = Budget::new(1, 1_000_000);
        assert_eq!(budget.grant(0, 0), 1_000_000);
        assert!(budget.take_beside(200_000) && !budget.take_beside(60_000), "a quarter is the most");
        assert_eq!((budget.grant(0, 100_000), budget.used()), (800_000, 300_000));
        assert_eq!(budget.grant(0, 790_000), 800_000);
        assert!(!budget.take_beside(20_000), "there is no room left");
        budget.give_beside(200_000);
        assert_eq!((budget.grant(0, 790_000), budget.used()), (1_000_000, 790_000));
    }

    #[test]
    fn f066_data_have_half_of_the_budget_and_are_no_pressure() {
        let budget = Budget::new(1, 1_000_000);
        assert!(budget.take_data(500_000) && !budget.take_data(1), "not below its part, and no more");
        assert_eq!((budget.used(), budget.used_beside_data()), (500_000, (0, 500_000)));
        assert_eq!(budget.grant(0, 0), 500_000);
        assert!(budget.take_beside(250_000) && !budget.take_beside(1));
        assert_eq!(budget.grant(0, 0), 250_000, "a quarter is left to the shards");
        budget.give_data(500_000);
        assert_eq!(budget.grant(0, 550_000), 750_000);
        assert!(budget.take_data(50_000) && !budget.take_data(1), "a part of the budget is for what passes");
        budget.charge_data(2_000_000);
        assert_eq!(budget.used_beside_data(), (800_000, 500_000), "what was there before takes no more than its part");
        budget.give_data(5_000_000);
        assert_eq!((budget.used(), budget.take_data(10_000)), (800_000, true));
    }

    #[test]
    fn f066_grants_never_add_up_to_more_than_the_budget() {
        let budget = Budget::new(4, 1_000_000);
        let mut used = [0_u64; 4];
        let mut seed = 7_u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let shard = (seed >> 60) as usize % 4;
            let grant = budget.grant(shard, used[shard]);
            assert!(grant >= used[shard], "nothing that is used is taken back");
            // Anything up to the grant.
            used[shard] = (seed >> 20) % (grant + 1);
            assert!(budget.granted.load(Ordering::Relaxed) <= 1_000_000);
            assert!(used.iter().sum::<u64>() <= 1_000_000);
        }
    }
}
