//! A sample of the topics that are published to, small however many there are.
//!
//! *Systematic sampling.* Of the messages of a window every n-th is taken, n = 1 at its beginning. When the sample is
//! full, every second one is let go and n doubles: the ones left stand for n messages each, wherever in the window they
//! came. Two windows are shown, the last whole one and the present one. For most messages it is a comparison and a
//! countdown.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_control::Timestamp;

use crate::limits::{SAMPLE_TOPICS_MAX, SAMPLE_WINDOW, SAMPLED_TOPIC_BYTES_MAX};
use crate::state::ShardState;

/// What was published to, by a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsReport {
    /// The time that it is about.
    pub span: Duration,
    /// Messages in that time.
    pub messages: u64,
    /// Topics, cut if they are long, and how many messages each entry stands for. A topic may be there several times.
    pub sample: Vec<(Box<str>, u32)>,
}

#[derive(Debug, Default)]
struct Window {
    from: Timestamp,
    /// Every so manieth message is taken.
    gap: u32,
    messages: u64,
    topics: Vec<Box<str>>,
}

/// Topics of late.
#[derive(Debug, Default)]
pub(crate) struct TopicSample {
    present: Window,
    before: Option<(Window, Duration)>,
    /// Messages to be let pass before the next one is taken.
    skip: u32,
}

impl TopicSample {
    #[inline]
    pub(crate) fn note(&mut self, topic: &str, now: Timestamp) {
        if now.since(self.present.from) >= SAMPLE_WINDOW {
            self.turn(now);
        }
        self.present.messages += 1;
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.take(topic);
    }

    fn take(&mut self, topic: &str) {
        let window = &mut self.present;
        if window.topics.len() >= SAMPLE_TOPICS_MAX {
            let mut is_odd = false;
            window.topics.retain(|_| {
                is_odd = !is_odd;
                is_odd
            });
            window.gap = window.gap.saturating_mul(2);
        }
        window.topics.push(cut(topic).into());
        self.skip = window.gap.max(1) - 1;
    }

    /// A new window begins.
    fn turn(&mut self, now: Timestamp) {
        let fresh = Window { from: now, gap: 1, ..Window::default() };
        let before = core::mem::replace(&mut self.present, fresh);
        // What was long ago is not what is going on.
        let span = now.since(before.from);
        self.before = (span < SAMPLE_WINDOW * 2).then_some((before, span));
        self.skip = 0;
    }

    fn report(&self, now: Timestamp) -> TopicsReport {
        let mut report = TopicsReport::default();
        let mut add = |window: &Window, span: Duration| {
            report.span += span;
            report.messages += window.messages;
            report.sample.extend(window.topics.iter().map(|topic| (topic.clone(), window.gap.max(1))));
        };
        let span = now.since(self.present.from);
        if span < SAMPLE_WINDOW * 2 {
            if let Some((window, span)) = &self.before {
                add(window, *span);
            }
            add(&self.present, span);
        }
        report
    }
}

/// The beginning of a long topic.
fn cut(topic: &str) -> &str {
    let mut end = topic.len().min(SAMPLED_TOPIC_BYTES_MAX);
    while !topic.is_char_boundary(end) {
        end -= 1;
    }
    topic.get(..end).unwrap_or_default()
}

impl ShardState {
    pub(crate) fn topics(&self, now: Timestamp) -> TopicsReport {
        self.sample.report(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    fn at(millis: u64) -> Timestamp {
        // Not at the beginning of time, which is where an empty window stands.
        Timestamp::ZERO + Duration::from_millis(1_000_000 + millis)
    }

    proptest! {
        #[test]
        fn a_sample_is_bounded_and_stands_for_all_messages(count in 1_u64..20_000, kinds in 1_u64..50) {
            let mut sample = TopicSample::default();
            for number in 0..count {
                sample.note(if number % kinds == 0 { "a" } else { "b" }, at(number * 9_000 / count));
            }
            let report = sample.report(at(9_000));
            prop_assert!(report.sample.len() <= SAMPLE_TOPICS_MAX);
            prop_assert_eq!(report.messages, count);
            let weight: u64 = report.sample.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let gap = u64::from(report.sample[0].1);
            prop_assert!(weight.abs_diff(count) <= gap, "{} for {}", weight, count);
        }
    }

    #[test]
    fn old_windows_are_forgotten_and_long_topics_cut() {
        let mut sample = TopicSample::default();
        let long: String = "é".repeat(SAMPLED_TOPIC_BYTES_MAX);
        sample.note(&long, at(0));
        assert!(sample.report(at(1)).sample[0].0.len() <= SAMPLED_TOPIC_BYTES_MAX);
        sample.note("later", at(11_000));
        let report = sample.report(at(12_000));
        assert_eq!((report.messages, report.span), (2, Duration::from_secs(12)));
        sample.note("much/later", at(100_000));
        let topics: Vec<_> = sample.report(at(100_000)).sample;
        assert_eq!(topics, [("much/later".into(), 1)]);
        assert_eq!(sample.report(at(900_000)), TopicsReport::default(), "nothing of late");
    }
}
