//! A host slowed on purpose: how long the broker may run, and how long it rests. Pure: times are arguments.
//!
//! The broker runs for a moment and is stopped for (slow − 1) times as long as it ran. A moment is never as long as planned, so
//! what it was is measured, and what was too much is owed: over time the broker has one part in `slow` of the processors.
//! That is what a quota of the system does (`cpu.max` of a control group), and needs no rights.

use std::time::Duration;

/// A whole turn of running and resting should last so long: what waits for the broker to go on waits no longer.
const TURN: f64 = 0.02;
/// The shortest moment to run: below it starting and stopping would be most of it.
const RUN_MIN: f64 = 0.0003;
/// What is owed is paid in rests no longer than this.
const REST_MAX: f64 = 0.1;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Duty {
    slow: f64,
    /// Seconds of rest that are owed; negative if it has rested too long.
    owed: f64,
}

impl Duty {
    pub(super) fn new(slow: f64) -> Self {
        Self { slow: slow.max(1.0), owed: 0.0 }
    }

    /// Whether there is anything to do.
    pub(super) fn is_needed(&self) -> bool {
        self.slow > 1.0
    }

    /// How long it may run now.
    pub(super) fn run(&self) -> Duration {
        Duration::from_secs_f64((TURN / self.slow).max(RUN_MIN))
    }

    /// It ran so long: how long it rests now.
    pub(super) fn ran(&mut self, time: Duration) -> Duration {
        self.owed += time.as_secs_f64() * (self.slow - 1.0);
        Duration::from_secs_f64(self.owed.clamp(0.0, REST_MAX))
    }

    /// It rested so long.
    pub(super) fn rested(&mut self, time: Duration) {
        self.owed -= time.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_sim::chance::Stream;

    use super::*;

    #[test]
    fn the_share_is_exact_however_late_everybody_wakes() {
        for slow in [1.0, 2.0, 4.0, 20.0, 80.0] {
            let (mut duty, mut chance) = (Duty::new(slow), Stream::of(1, "duty"));
            let (mut ran, mut all) = (0.0, 0.0);
            for _ in 0..20_000 {
                let mut late = || chance.exponential(0.0005);
                let run = duty.run().as_secs_f64() + late();
                let rest = duty.ran(Duration::from_secs_f64(run)).as_secs_f64();
                let rest = if rest > 0.0 { rest + late() } else { 0.0 };
                duty.rested(Duration::from_secs_f64(rest));
                assert!(rest < REST_MAX + 0.02, "{rest}");
                ran += run;
                all += run + rest;
            }
            assert!((ran / all * slow - 1.0).abs() < 0.03, "{slow}: {} of the time", ran / all);
        }
        assert!(!Duty::new(1.0).is_needed() && !Duty::new(0.3).is_needed() && Duty::new(4.0).is_needed());
    }
}
