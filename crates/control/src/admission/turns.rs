//! Whose turn it is: deficit round robin over estimated work, in the surplus form.
//!
//! ```text
//! turn of a class:   serve while deficit > 0:  deficit ← deficit − work       (the last request may leave a debt)
//! end of the turn:   deficit ← deficit + quantum · weight
//! nothing waits:     deficit ← min(0, deficit + quantum · weight)             (saves nothing up, pays its debt)
//! ```
//!
//! A request longer than a quantum works: its class sits out until its quanta have paid. The debt survives an empty
//! queue, or one long query at a time whose successor comes a moment later would never pay. So over any time in which
//! two classes both want service, it differs from their weights by at most one quantum and one request.
//!
//! Not [`schedule`](crate::schedule), which does the same for a million publishers: that one owns the items, must hear
//! of every queue that fills or empties, prefers flows that were idle, and counts in 32 bits. Here the queues belong to
//! the pool (entries grow while they wait, move up, expire), there are seven classes to look at, and an hour of work in
//! nanoseconds needs 42 bits.

use super::{Class, PoolConfig};

#[derive(Debug)]
pub(super) struct Turns {
    /// What a class gains per round, nanoseconds of work.
    quanta: [i64; Class::COUNT],
    /// What a class may still use, nanoseconds; negative is debt.
    deficits: [i64; Class::COUNT],
    current: usize,
}

impl Turns {
    pub(super) fn new(config: &PoolConfig) -> Self {
        let quanta = config.classes.map(|class| i64::from(class.weight) * QUANTUM_NANOS);
        Self { quanta, deficits: [0; Class::COUNT], current: 0 }
    }

    pub(super) fn on_started(&mut self, class: Class, work: u64) {
        let deficit = &mut self.deficits[class.index()];
        *deficit = deficit.saturating_sub_unsigned(work);
    }

    /// The class to serve next among those that wait; `None` if none does.
    pub(super) fn next(&mut self, waits: impl Fn(Class) -> bool) -> Option<Class> {
        self.skip_rounds(&waits)?;
        loop {
            let class = Class::ALL[self.current];
            if waits(class) && self.deficits[self.current] > 0 {
                return Some(class);
            }
            self.gain(class, 1, &waits);
            self.current = (self.current + 1) % Class::COUNT;
        }
    }

    /// Rounds in which everybody only pays debt are taken in one step; what remains is at most two rounds of `next`.
    fn skip_rounds(&mut self, waits: &impl Fn(Class) -> bool) -> Option<()> {
        let waiting = Class::ALL.iter().filter(|class| waits(**class)).map(|class| class.index());
        let rounds = waiting.map(|index| -self.deficits[index] / self.quanta[index]).min()?;
        if rounds > 0 {
            for class in Class::ALL {
                self.gain(*class, rounds, waits);
            }
        }
        Some(())
    }

    fn gain(&mut self, class: Class, rounds: i64, waits: &impl Fn(Class) -> bool) {
        let index = class.index();
        let deficit = self.deficits[index].saturating_add(self.quanta[index].saturating_mul(rounds));
        self.deficits[index] = if waits(class) { deficit } else { deficit.min(0) };
    }
}

/// Work that a weight of one buys per round: 100 µs.
const QUANTUM_NANOS: i64 = 100_000;
