//! What a thread measures and tells: the length of its turns and the level that comes of it, events, counters, and the topics of the
//! system.

use std::time::Duration;

use mio::Events;
use tidegate_control::Timestamp;
use tidegate_core::event::Event;

use super::ShardThread;
use crate::limits::{HANDSHAKE_BYTES, STATS_INTERVAL};
use crate::store_link::ShardWriter;
use crate::system::{News, System};

impl ShardThread {
    /// What this turn was like; now and then, what that comes to.
    pub(super) fn measure(&mut self) {
        let end = self.shared.clock.now();
        self.took = self.shared.clock.took(self.now, end);
        self.shard.handle_turned(self.took);
        self.meter.on_turn(self.took);
        let pressure = &self.shared.pressure;
        let sessions = self.coaps.as_ref().map_or(0, |door| door.bytes());
        let handshakes = self.handshakes.len() * HANDSHAKE_BYTES + sessions;
        let behind = if self.shared.guard.is_some() { self.upstreams.bytes() } else { 0 };
        let outside = behind + self.connections.kept_bytes() + pressure.budget.inbox_bytes(self.index) + handshakes;
        let used = self.shard.memory_used() as u64;
        let max = pressure.budget.grant(self.index, used);
        self.shard.set_memory(usize::try_from(max).unwrap_or(usize::MAX), outside);
        let store = self.shard_writer.as_ref().map_or(Duration::ZERO, ShardWriter::lag);
        let (used, max) = pressure.budget.used_beside_data();
        let Some(gauge) = self.meter.sample(used, max, store, end) else { return };
        pressure.show(self.index, &gauge);
        let (before, level) = (self.shard.level(), pressure.level());
        self.shard.set_level(level);
        if before != level && self.index == 0 {
            pressure.count_transition(level);
            self.event_log.pressure_changed(&pressure.report(end), end);
        }
    }

    pub(super) fn system_due(&self) -> Option<Timestamp> {
        let never = self.rules.sys_interval.is_zero() || self.draining.is_some();
        self.system.as_ref().filter(|_| !never).map(System::due)
    }

    pub(super) fn publish_system(&mut self) {
        if self.system_due().is_some_and(|due| due <= self.now)
            && let Some(system) = &mut self.system
        {
            let (stats, shard, now) = (self.shared.stats(), &mut self.shard, self.now);
            let report = self.shared.pressure.report(now);
            let (store, extra) =
                (self.shared.store.as_ref().and_then(|store| store.report()), self.shared.extra_metrics.all());
            let alarms = &self.shared.watch.alarms_text();
            let news = News { stats: &stats, report: &report, store: store.as_ref(), extra: &extra, alarms };
            system.publish(&news, self.rules.sys_interval, now, |topic, value| {
                shard.handle_system(topic, value.as_bytes(), now);
            });
        }
    }

    /// Events to the log, and counters to whoever wants to see them.
    pub(super) fn tell(&mut self, events: &Events) {
        let mut something_happened = !events.is_empty();
        while let Some(event) = self.shard.poll_event() {
            self.event_log.tell(&event, self.now);
            self.departed.note(&event);
            if let Event::Outlawed { client_id, identity, time } = &event {
                self.ban(client_id, identity, *time);
            }
            something_happened = true;
        }
        // Not in every turn: showing them would be the reason for the next.
        if something_happened && self.stats_due.is_none() {
            self.stats_due = Some((self.stats_shown_at + STATS_INTERVAL).max(self.now));
        }
        if self.stats_due.is_some_and(|due| due <= self.now) {
            self.shared.show(self.index, &self.shard);
            self.stats_shown_at = self.now;
            self.stats_due = None;
        }
    }
}
