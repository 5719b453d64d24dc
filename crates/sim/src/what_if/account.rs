//! What became of the messages of a run: by group, by publisher and over time.

use tidegate_core::trace::Trace;

use crate::broker::{Fate, MessageEnd};
use crate::histogram::SecondsHistogram;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Account {
    /// Everybody first, then the groups, then who is in none.
    pub groups: Vec<GroupAccount>,
    /// Those who waited most or lost something, the worst first; `WORST` at most.
    pub worst: Vec<PublisherAccount>,
    /// Of how many publishers this could be said.
    pub affected: usize,
    /// Evenly divided; `BUCKETS` at most.
    pub timeline: Vec<Bucket>,
    /// Messages of the busiest second.
    pub busiest: u64,
}

/// Publishers that are listed.
const WORST: usize = 10;
/// Parts of the time.
const BUCKETS: usize = 240;
/// Whoever waited for less than this at the gate did not wait, seconds.
const NOTICED: f64 = 0.001;

/// Of a group.
#[derive(Clone, Debug, Default)]
pub struct GroupAccount {
    pub name: String,
    pub publishers: u64,
    pub ends: Ends,
    /// From the publisher to the reader, of what was read.
    pub latency: SecondsHistogram,
}

/// Of a publisher.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublisherAccount {
    /// Its number in the trace; copies come behind those that were recorded.
    pub publisher: u32,
    pub group: String,
    pub ends: Ends,
}

/// How messages ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ends {
    pub messages: u64,
    /// Held at the gate for a while, whatever became of them then.
    pub waited: u64,
    /// Sum and longest, seconds.
    pub wait_sum: f64,
    /// The longest of them.
    pub wait_max: f64,
    pub refused: u64,
    /// At the gate, without a word; in the queue of the reader.
    pub shed: u64,
    pub dropped: u64,
    pub unsent: u64,
    /// Still at the gate, or in the queue, at the end.
    pub left: u64,
}

/// A part of the time.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// When it begins, seconds.
    pub from: f64,
    pub ends: Ends,
    /// From the publisher to the reader, of what was sent in this time.
    pub latency: SecondsHistogram,
}

impl Ends {
    fn add(&mut self, fate: &Fate) {
        self.messages += 1;
        if fate.gate >= NOTICED || fate.end == MessageEnd::Held {
            self.waited += 1;
            self.wait_sum += fate.gate;
            self.wait_max = self.wait_max.max(fate.gate);
        }
        match fate.end {
            MessageEnd::Read => {}
            MessageEnd::Queued | MessageEnd::Held => self.left += 1,
            MessageEnd::Refused => self.refused += 1,
            MessageEnd::Shed => self.shed += 1,
            MessageEnd::Dropped => self.dropped += 1,
            MessageEnd::Unsent => self.unsent += 1,
        }
    }

    /// What its publisher never gets through.
    pub fn lost(&self) -> u64 {
        self.refused + self.shed + self.dropped + self.unsent
    }

    /// Mean time at the gate of those that waited there, seconds.
    pub fn wait_mean(&self) -> f64 {
        self.wait_sum / self.waited.max(1) as f64
    }
}

impl Account {
    pub(super) fn of(trace: &Trace, fates: &[Fate]) -> Self {
        let of_publishers = trace.group_of_publishers();
        let mut groups = vec![GroupAccount { name: "all".to_owned(), ..GroupAccount::default() }];
        let named = !trace.groups().is_empty();
        if named {
            let numbers = (1..=trace.groups().len() as u8).chain([0]);
            groups.extend(numbers.map(|group| GroupAccount {
                name: super::name_of(trace, group).to_owned(),
                ..GroupAccount::default()
            }));
        }
        let last = groups.len() - 1;
        let place_of = |group: u8| if group == 0 { last } else { usize::from(group) };
        for group in &of_publishers {
            groups[0].publishers += 1;
            if named {
                groups[place_of(*group)].publishers += 1;
            }
        }
        let seconds = trace.seconds().max(1.0);
        let step = (seconds / BUCKETS as f64).max(1.0);
        let count = ((seconds / step).ceil() as usize).clamp(1, BUCKETS);
        let bucket = |place: usize| Bucket { from: place as f64 * step, ..Bucket::default() };
        let mut timeline: Vec<Bucket> = (0..count).map(bucket).collect();
        let mut publishers = vec![Ends::default(); of_publishers.len()];
        let mut by_second = vec![0_u64; seconds.ceil() as usize + 1];
        for fate in fates {
            let total = fate.gate + fate.queue;
            let add = |ends: &mut Ends, latency: &mut SecondsHistogram| {
                ends.add(fate);
                if fate.end == MessageEnd::Read {
                    latency.add(total);
                }
            };
            let GroupAccount { ends, latency, .. } = &mut groups[0];
            add(ends, latency);
            if named {
                let GroupAccount { ends, latency, .. } = &mut groups[place_of(of_publishers[fate.publisher as usize])];
                add(ends, latency);
            }
            let Bucket { ends, latency, .. } = &mut timeline[((fate.at / step) as usize).min(count - 1)];
            add(ends, latency);
            publishers[fate.publisher as usize].add(fate);
            if let Some(second) = by_second.get_mut(fate.at as usize) {
                *second += 1;
            }
        }
        let mut worst: Vec<(usize, &Ends)> =
            publishers.iter().enumerate().filter(|(_, ends)| ends.waited + ends.lost() > 0).collect();
        worst.sort_by(|(_, left), (_, right)| {
            (right.lost(), right.wait_sum)
                .partial_cmp(&(left.lost(), left.wait_sum))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let affected = worst.len();
        let named_worst = worst.into_iter().take(WORST).map(|(publisher, ends)| PublisherAccount {
            publisher: publisher as u32,
            group: super::name_of(trace, of_publishers[publisher]).to_owned(),
            ends: *ends,
        });
        let worst = named_worst.collect();
        // Nobody is in none.
        groups.retain(|group| group.publishers > 0);
        Self { groups, worst, affected, timeline, busiest: by_second.into_iter().max().unwrap_or(0) }
    }

    /// Of everybody.
    pub fn all(&self) -> &GroupAccount {
        &self.groups[0]
    }
}
