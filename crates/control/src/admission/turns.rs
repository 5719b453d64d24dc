//! Whose turn it is: deficit round robin over estimated work, in the surplus form.
//!
//! A class is served while its deficit is positive and may go into debt by one request; then it sits out until its
//! quanta have paid the debt. So a request longer than a quantum works, and over any time in which two classes both wait
//! their service differs from their weights by at most one quantum and one request.

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

    pub(super) fn on_taken(&mut self, class: Class, work: u64) {
        let deficit = &mut self.deficits[class.index()];
        *deficit = deficit.saturating_sub_unsigned(work);
    }

    /// The class to serve next among those that wait; `None` if none does.
    pub(super) fn next(&mut self, waits: impl Fn(Class) -> bool) -> Option<Class> {
        self.skip_rounds(&waits)?;
        loop {
            let class = Class::ALL[self.current];
            if !waits(class) {
                // An idle class saves nothing up, and owes nothing.
                self.deficits[self.current] = 0;
            } else if self.deficits[self.current] > 0 {
                return Some(class);
            } else {
                self.deficits[self.current] += self.quanta[self.current];
            }
            self.current = (self.current + 1) % Class::COUNT;
        }
    }

    /// Rounds in which everybody only pays debt are taken in one step; what remains is at most two rounds of `next`.
    fn skip_rounds(&mut self, waits: &impl Fn(Class) -> bool) -> Option<()> {
        let waiting = || (0..Class::COUNT).filter(|index| waits(Class::ALL[*index]));
        let rounds = waiting().map(|index| -self.deficits[index] / self.quanta[index]).min()?;
        if rounds > 0 {
            for index in waiting() {
                self.deficits[index] += rounds * self.quanta[index];
            }
        }
        Some(())
    }
}

/// Work that a weight of one buys per round: 100 µs.
const QUANTUM_NANOS: i64 = 100_000;
