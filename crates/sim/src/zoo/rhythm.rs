//! When a publisher wants to send: its usual rhythm, what it does during the trouble, and its usual rhythm again.
//!
//! Times are those at which messages are *due*, whatever the broker makes of them: who is held up does not thereby want
//! to send less.

use super::model::{Cohort, During, Phases, Style};
use crate::chance::Stream;

/// Intervals differ by this share, or full queues would favour whoever meets them in step.
const JITTER: f64 = 0.1;

/// The dues of one publisher, in order.
#[derive(Clone, Debug)]
pub(super) struct DueTimes {
    usual: f64,
    style: Style,
    during: During,
    phases: Phases,
    chance: Stream,
    /// Seconds.
    next: f64,
    /// Messages that are due at the same time.
    left: u32,
    is_backlog_due: bool,
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NextDue {
    /// A message is due then, in nanoseconds.
    At(u64),
    /// As much as goes.
    Full {
        /// From then on.
        from_ns: u64,
        /// Until then.
        until_ns: u64,
    },
    /// Nothing before then.
    Silent(u64),
}

impl DueTimes {
    /// The rhythm of one publisher of a cohort; rates are `scale` times the cohort's.
    pub(super) fn new(cohort: &Cohort, phases: Phases, scale: f64, chance: Stream) -> Self {
        let during = match cohort.during {
            During::PerSecond(rate) => During::PerSecond(rate * scale),
            During::RampTo(rate) => During::RampTo(rate * scale),
            other => other,
        };
        let mut rhythm = Self {
            usual: cohort.per_s * scale,
            style: cohort.style,
            during,
            phases,
            chance,
            next: 0.0,
            left: 1,
            is_backlog_due: matches!(during, During::Backlog(_)),
        };
        rhythm.next = rhythm.chance.unit() * rhythm.mean(0.0);
        rhythm.left = rhythm.batch();
        rhythm.cross(0.0);
        rhythm
    }

    /// What is due next.
    pub(super) fn next(&self) -> NextDue {
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        if self.is_trouble(self.next) {
            let end = nanos(self.phases.trouble_end());
            match self.during {
                During::Full => return NextDue::Full { from_ns: nanos(self.next), until_ns: end },
                During::Silent => return NextDue::Silent(end),
                _ => {}
            }
        }
        NextDue::At(nanos(self.next))
    }

    /// The message that was due is under way, or the time of silence or of the flood is over.
    pub(super) fn advance(&mut self) {
        if self.is_trouble(self.next) && matches!(self.during, During::Full | During::Silent) {
            self.next = self.phases.trouble_end() + self.chance.unit() * self.mean(self.phases.end());
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return;
        }
        let (from, mean) = (self.next, self.mean(self.next));
        let step = match self.style {
            Style::Even => mean * (1.0 + JITTER * (2.0 * self.chance.unit() - 1.0)),
            Style::Poisson => self.chance.exponential(mean),
            Style::Batches(_) => mean,
        };
        self.next = from + step.max(1e-9);
        self.left = self.batch();
        self.cross(from);
    }

    /// Whoever changes its rhythm does not finish the interval of the old one first.
    fn cross(&mut self, from: f64) {
        let (begin, end) = (self.phases.lead, self.phases.trouble_end());
        if from < begin && self.next >= begin {
            match self.during {
                During::Backlog(count) if self.is_backlog_due => {
                    (self.next, self.left, self.is_backlog_due) = (begin, count.max(1), false);
                }
                During::Same | During::Backlog(_) => {}
                During::Full | During::Silent => self.next = begin,
                During::PerSecond(_) | During::RampTo(_) => self.next = begin + self.chance.unit() * self.mean(begin),
            }
        } else if from < end && self.next >= end && matches!(self.during, During::PerSecond(_) | During::RampTo(_)) {
            self.next = end + self.chance.unit() * self.mean(end);
        }
    }

    fn is_trouble(&self, at: f64) -> bool {
        (self.phases.lead..self.phases.trouble_end()).contains(&at)
    }

    fn batch(&self) -> u32 {
        if let Style::Batches(size) = self.style { size.max(1) } else { 1 }
    }

    /// The mean interval, at this time.
    fn mean(&self, at: f64) -> f64 {
        let rate = match self.during {
            During::PerSecond(rate) if self.is_trouble(at) => rate,
            During::RampTo(rate) if self.is_trouble(at) => {
                let share = (at - self.phases.lead) / self.phases.trouble.max(1e-9);
                self.usual + share * (rate - self.usual)
            }
            _ => self.usual,
        };
        f64::from(self.batch()) / rate.max(1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::model::DEVICE;

    const PHASES: Phases = Phases { lead: 10.0, trouble: 10.0, after: 10.0 };

    fn dues(cohort: Cohort) -> [usize; 3] {
        let mut rhythm = DueTimes::new(&cohort, PHASES, 1.0, Stream::of(3, "test"));
        let mut counts = [0; 3];
        loop {
            match rhythm.next() {
                NextDue::At(at) if at >= 30_000_000_000 => return counts,
                NextDue::At(at) => counts[(at / 10_000_000_000) as usize] += 1,
                NextDue::Full { until_ns: end, .. } | NextDue::Silent(end) => assert_eq!(end, 20_000_000_000),
            }
            rhythm.advance();
        }
    }

    fn is_near(counts: [usize; 3], expected: [usize; 3]) {
        let near = |(count, wanted): (&usize, &usize)| count.abs_diff(*wanted) <= 2 + wanted / 4;
        assert!(counts.iter().zip(&expected).all(near), "{counts:?} instead of {expected:?}");
    }

    #[test]
    fn everybody_sends_at_its_rate_in_each_part() {
        let cohort = |during| Cohort { per_s: 5.0, during, ..DEVICE };
        is_near(dues(cohort(During::Same)), [50, 50, 50]);
        is_near(dues(cohort(During::PerSecond(100.0))), [50, 1000, 50]);
        is_near(dues(cohort(During::RampTo(25.0))), [50, 150, 50]);
        is_near(dues(cohort(During::Backlog(400))), [50, 450, 50]);
        is_near(dues(cohort(During::Silent)), [50, 0, 50]);
        is_near(dues(cohort(During::Full)), [50, 0, 50]);
        is_near(dues(Cohort { style: Style::Poisson, per_s: 50.0, ..DEVICE }), [500, 500, 500]);
        is_near(dues(Cohort { style: Style::Batches(50), per_s: 25.0, ..DEVICE }), [250, 250, 250]);
    }

    #[test]
    fn a_flood_begins_with_the_trouble_and_not_before() {
        let cohort = Cohort { per_s: 0.01, during: During::Full, ..DEVICE };
        let mut rhythm = DueTimes::new(&cohort, PHASES, 1.0, Stream::of(3, "test"));
        while matches!(rhythm.next(), NextDue::At(_)) {
            rhythm.advance();
        }
        assert_eq!(rhythm.next(), NextDue::Full { from_ns: 10_000_000_000, until_ns: 20_000_000_000 });
    }

    #[test]
    fn who_is_rare_and_then_floods_begins_at_once() {
        let mut rhythm = DueTimes::new(
            &Cohort { per_s: 0.1, during: During::PerSecond(100.0), ..DEVICE },
            PHASES,
            1.0,
            Stream::of(1, "test"),
        );
        while matches!(rhythm.next(), NextDue::At(at) if at < 10_000_000_000) {
            rhythm.advance();
        }
        assert!(matches!(rhythm.next(), NextDue::At(at) if at < 10_020_000_000));
    }
}
