//! Which conditions a situation has: strong enough to raise an alarm, or weak and enough to keep one.

use super::{ALARMS_MAX, AlarmKind};
use crate::bridges::TroubledBridge;
use crate::situation::{TroubleReport, name_conflict};
use crate::why::words::per_second;

/// Parts of a queue: from the first on an alarm is raised, below the second it may be cleared. The same for memory.
const QUEUE: (f64, f64) = (0.95, 0.5);
const MEMORY: (f64, f64) = (0.9, 0.8);
/// Levels of pressure: at 2 somebody has to wait for it; at 1 it is not over yet.
const LEVEL: (u8, u8) = (2, 1);

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: AlarmKind,
    pub(crate) subject: String,
    pub(crate) text: String,
    /// How bad it is, beside others of its kind.
    pub(crate) weight: f64,
    /// Enough to raise an alarm.
    pub(crate) is_strong: bool,
}

impl TroubleReport {
    /// What of it alarms are about.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let strong = |kind, subject: &str, weight: f64, text: String| {
            let subject = subject.to_owned();
            Condition { kind, subject, text, weight, is_strong: true }
        };
        let mut all: Vec<Condition> =
            self.flooders().map(|it| strong(AlarmKind::Flooding, &it.client_id, it.rate, it.in_words())).collect();
        let limited = self.publishers.iter().filter(|publisher| publisher.loses_by_limit());
        all.extend(limited.map(|it| strong(AlarmKind::Limited, &it.client_id, it.rate, it.in_words())));
        for receiver in &self.receivers {
            let id = &receiver.client_id;
            if receiver.is_losing {
                let away = if receiver.is_away { ", and is away" } else { "" };
                let text = format!("{id:?} loses {} of the messages for it{away}", per_second(receiver.loss_rate));
                all.push(strong(AlarmKind::Losing, id, receiver.loss_rate, text));
            }
            if receiver.fill >= QUEUE.1 {
                let text = format!("{:.0} % of the queue of {id:?} is used", receiver.fill * 100.0);
                let is_strong = receiver.fill >= QUEUE.0;
                all.push(Condition { is_strong, ..strong(AlarmKind::QueueFull, id, receiver.fill, text) });
            }
        }
        if self.memory >= MEMORY.1 {
            let text = format!("{:.0} % of the memory budget is used", self.memory * 100.0);
            let is_strong = self.memory >= MEMORY.0;
            all.push(Condition { is_strong, ..strong(AlarmKind::MemoryFull, "broker", self.memory, text) });
        }
        all.extend(self.disk.iter().map(|words| strong(AlarmKind::Disk, "store", 1.0, words.clone())));
        let (level, name) = self.level;
        if level >= LEVEL.1 {
            let cause = self.cause.map(|cause| format!(" because of {cause}")).unwrap_or_default();
            let text = format!("the broker is at level {level} ({name}){cause}");
            all.push(Condition {
                is_strong: level >= LEVEL.0,
                ..strong(AlarmKind::Level, "broker", level.into(), text)
            });
        }
        all.extend(self.conflicts.iter().map(|(client_id, takeovers)| {
            let text = name_conflict(client_id, *takeovers);
            strong(AlarmKind::NameConflict, client_id, (*takeovers).into(), text)
        }));
        let bridge = |it: &TroubledBridge| strong(AlarmKind::Bridge, &it.name, it.queued as f64, it.text.clone());
        all.extend(self.bridges.iter().map(bridge));
        let upstream = |(at, text): &(String, String)| strong(AlarmKind::Upstream, at, 1.0, text.clone());
        all.extend(self.upstream.iter().map(upstream));
        let ban = |(name, who): &(String, String)| strong(AlarmKind::Ban, name, 1.0, format!("{who} is banned"));
        all.extend(self.banned.iter().map(ban));
        all
    }

    /// Kinds of which there are more than the lists have: what is not among the conditions may last all the same.
    pub(crate) fn cut_kinds(&self) -> Vec<AlarmKind> {
        let is_losing_cut = self.losing > ALARMS_MAX;
        // Who fills the queue of a receiver that is not in the list is not known.
        let is_flooding_cut = self.flooding > ALARMS_MAX || is_losing_cut || self.is_blame_missing;
        let kinds = [
            (AlarmKind::Flooding, is_flooding_cut),
            (AlarmKind::Limited, self.flooding + self.waiting > ALARMS_MAX),
            (AlarmKind::Losing, is_losing_cut),
            (AlarmKind::QueueFull, self.losing + self.slow > ALARMS_MAX),
            (AlarmKind::NameConflict, self.conflicting > ALARMS_MAX),
            (AlarmKind::Bridge, self.bridges_down > ALARMS_MAX),
            (AlarmKind::Ban, self.bans > ALARMS_MAX),
        ];
        kinds.into_iter().filter_map(|(kind, is_cut)| is_cut.then_some(kind)).collect()
    }
}
