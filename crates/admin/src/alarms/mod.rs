//! Alarms: conditions that have lasted, until they have been gone for a while. Pure: what is wrong and what time it is are
//! arguments; `watch` asks once or twice in a few seconds and tells everybody what changed.
//!
//! Hysteresis is in value and in time: a strong condition raises an alarm when it has lasted; a weak one is enough to keep it;
//! it is cleared when neither was seen for a while. So a receiver at the edge is one alarm, and not a hundred.

mod conditions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate_control::Timestamp;

pub(crate) use conditions::Condition;

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AlarmKind {
    /// A publisher sends too much.
    Flooding,
    /// Messages of a publisher are refused, dropped or not read for a limit that an operator has set.
    Limited,
    /// A receiver loses messages.
    Losing,
    /// The queue of a receiver is nearly full.
    QueueFull,
    /// The memory budget is nearly used up.
    MemoryFull,
    /// The disk fails, or is full.
    Disk,
    /// The level of pressure is raised.
    Level,
    /// Two clients have one name.
    NameConflict,
    /// A bridge to another broker is down.
    Bridge,
    /// The broker behind a guard cannot be reached.
    Upstream,
    /// Somebody is kept out.
    Ban,
}

impl AlarmKind {
    pub(crate) const ALL: [Self; 11] = [
        Self::Flooding,
        Self::Limited,
        Self::Losing,
        Self::QueueFull,
        Self::MemoryFull,
        Self::Disk,
        Self::Level,
        Self::NameConflict,
        Self::Bridge,
        Self::Upstream,
        Self::Ban,
    ];

    /// For machines; the same in the API, `$SYS` and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flooding => "flooding",
            Self::Limited => "limited",
            Self::Losing => "losing",
            Self::QueueFull => "queue_full",
            Self::MemoryFull => "memory_full",
            Self::Disk => "disk",
            Self::Level => "level",
            Self::NameConflict => "name_conflict",
            Self::Bridge => "bridge",
            Self::Upstream => "upstream",
            Self::Ban => "ban",
        }
    }

    /// How long it has to last before somebody is called. What is certain at once is told at once.
    fn raise_after(self) -> Duration {
        match self {
            Self::Flooding | Self::Limited | Self::Losing | Self::QueueFull | Self::Level | Self::Bridge => {
                Duration::from_secs(5)
            }
            Self::MemoryFull | Self::Disk | Self::NameConflict | Self::Upstream | Self::Ban => Duration::ZERO,
        }
    }

    /// How long it has to be gone. A ban that has ended has ended.
    fn clear_after(self) -> Duration {
        if self == Self::Ban { Duration::ZERO } else { Duration::from_secs(15) }
    }
}

/// A condition that was not seen for so long begins anew: longer than the longest time between two looks in trouble.
const GAP: Duration = Duration::from_secs(12);
/// Conditions of a kind that are followed at the same time. Who has more of them has one problem, not a thousand. By kind: a
/// crowd of receivers does not hide a disk that fails.
pub(crate) const ALARMS_MAX: usize = 64;
/// Alarms that are remembered after their end.
pub(crate) const CLEARED_MAX: usize = 100;

/// An alarm, raised or about to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alarm {
    pub(crate) kind: AlarmKind,
    /// The client, or what else it is about.
    pub(crate) subject: String,
    /// In words, as they were last true.
    pub(crate) text: String,
    /// How bad it was at its worst, and in words; numbers of one kind can be compared.
    pub(crate) worst: f64,
    pub(crate) worst_text: String,
    /// Since when the condition holds.
    pub(crate) since: Timestamp,
    pub(crate) seen_at: Timestamp,
    pub(crate) raised_at: Option<Timestamp>,
    pub(crate) cleared_at: Option<Timestamp>,
}

impl Alarm {
    /// Of one that is raised and was not seen at the last look: for how long it has to stay so until it is over.
    pub(crate) fn fading(&self, looked_at: Timestamp) -> Option<Duration> {
        let is_gone = self.raised_at.is_some() && self.seen_at < looked_at;
        is_gone.then(|| self.kind.clear_after())
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct AlarmBoard {
    followed: BTreeMap<(AlarmKind, String), Alarm>,
    cleared: VecDeque<Alarm>,
}

impl AlarmBoard {
    /// What is wrong now; of the kinds that are `cut` there is more than that, and none of them is over for not being seen.
    /// The answer is what has been raised or cleared by that.
    pub(crate) fn observe(&mut self, conditions: Vec<Condition>, cut: &[AlarmKind], now: Timestamp) -> Vec<Alarm> {
        for condition in conditions {
            self.follow(condition, now);
        }
        let mut changed = Vec::new();
        let is_cut = |kind: AlarmKind| cut.contains(&kind);
        self.followed.retain(|_, alarm| {
            let lasts = alarm.seen_at.since(alarm.since);
            if alarm.raised_at.is_none() && alarm.seen_at == now && lasts >= alarm.kind.raise_after() {
                alarm.raised_at = Some(now);
                changed.push(alarm.clone());
            }
            let absent = now.since(alarm.seen_at);
            match alarm.raised_at {
                None => absent < GAP,
                Some(_) if alarm.seen_at == now || absent < alarm.kind.clear_after() || is_cut(alarm.kind) => true,
                Some(_) => {
                    alarm.cleared_at = Some(now);
                    changed.push(alarm.clone());
                    false
                }
            }
        });
        for alarm in changed.iter().filter(|alarm| alarm.cleared_at.is_some()) {
            if self.cleared.len() >= CLEARED_MAX {
                self.cleared.pop_back();
            }
            self.cleared.push_front(alarm.clone());
        }
        changed
    }

    fn follow(&mut self, condition: Condition, now: Timestamp) {
        let Condition { kind, subject, text, weight, is_strong } = condition;
        let key = (kind, subject);
        if let Some(alarm) = self.followed.get_mut(&key) {
            // What is weak keeps an alarm, and does not raise one.
            if is_strong || alarm.raised_at.is_some() {
                if weight > alarm.worst {
                    (alarm.worst, alarm.worst_text) = (weight, text.clone());
                }
                (alarm.seen_at, alarm.text) = (now, text);
            }
        } else if is_strong && self.followed.keys().filter(|(other, _)| *other == kind).count() < ALARMS_MAX {
            let (subject, worst_text) = (key.1.clone(), text.clone());
            let (worst, since, seen_at) = (weight, now, now);
            let (raised_at, cleared_at) = (None, None);
            let alarm = Alarm { kind, subject, text, worst, worst_text, since, seen_at, raised_at, cleared_at };
            self.followed.insert(key, alarm);
        }
    }

    /// Those that are raised, by kind.
    pub(crate) fn raised(&self) -> impl Iterator<Item = &Alarm> {
        self.followed.values().filter(|alarm| alarm.raised_at.is_some())
    }

    /// Those that are not raised yet, and after how long each is if it lasts; by kind.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (&Alarm, Duration)> {
        let pending = self.followed.values().filter(|alarm| alarm.raised_at.is_none());
        pending.map(|alarm| (alarm, alarm.kind.raise_after()))
    }

    /// Those that have ended, the latest first.
    pub(crate) fn cleared(&self) -> impl Iterator<Item = &Alarm> {
        self.cleared.iter()
    }

    /// Whether anything is being followed: worth looking often.
    pub(crate) fn is_busy(&self) -> bool {
        self.followed.values().any(|alarm| alarm.kind != AlarmKind::Ban)
    }
}
