//! Updates, their notifications, and what clients know.

use std::time::Duration;

use super::client::{Client, NEVER};
use super::front::Asker;
use super::{Event, World};
use crate::polling::config::Link;

impl World<'_> {
    pub(super) fn plan_update(&mut self, client: u32) {
        let state = &mut self.clients[client as usize];
        let wait = state.updates.exponential(1.0 / f64::from(state.rate).max(1e-9));
        self.after_secs(wait, Event::Update { client });
    }

    /// The item of one client changes.
    pub(super) fn update(&mut self, client: u32) {
        let state = &mut self.clients[client as usize];
        state.version += 1;
        let is_lost = state.loses_notification(&self.config.link);
        self.count_notification(client);
        match self.notify(is_lost) {
            Notified::Received if self.notify_session(client) => {
                let state = &mut self.clients[client as usize];
                state.known = state.version;
                if !self.config.updates.events {
                    // The newest value is there: what was lost before it no longer matters.
                    state.lost = 0;
                    state.lost_at_sum = 0.0;
                }
                self.set_stale(client, false);
            }
            // Or it came to a session without a subscription.
            Notified::Received | Notified::Lost => {
                self.lose(client);
                self.set_stale(client, true);
            }
        }
        self.plan_update(client);
    }

    /// The one item of all clients changes; a notification says so, and the client has to fetch it.
    pub(super) fn next_slide(&mut self) {
        self.slide += 1;
        let spread = self.config.broker.spread.then(|| {
            // W = subscribers · w̄ / ρ (CONTROL §4.2).
            Duration::from_secs_f64(self.clients.len() as f64 / self.config.host.capacity / SPREAD_UTILISATION)
        });
        for client in 0..self.clients.len() as u32 {
            self.set_stale(client, true);
            let is_lost = self.clients[client as usize].loses_notification(&self.config.link);
            match self.notify(is_lost) {
                Notified::Lost => self.lose(client),
                Notified::Received => {
                    let state = &mut self.clients[client as usize];
                    let attempt = state.attempt;
                    if let Some(delay) = state.on_push_hint(spread) {
                        let travel = Duration::from_secs_f64(self.config.link.rtt / 2.0);
                        self.after(delay + travel, Event::Due(Asker { client, attempt }));
                    }
                }
            }
        }
        if let Some(period) = self.config.updates.slides {
            self.after_secs(period, Event::Slide);
        }
    }

    fn notify(&mut self, is_lost: bool) -> Notified {
        let measured = u64::from(self.is_measured());
        let is_shed =
            self.config.broker.shed_above.is_finite() && self.front.backlog(self.now) > self.config.broker.shed_above;
        self.ledger.updates += 1;
        self.tally.updates += measured;
        let second = self.tally.second(self.at);
        second.updates += 1;
        second.shed += u32::from(is_shed);
        if is_shed {
            self.ledger.shed += 1;
            self.tally.shed += measured;
            return Notified::Lost;
        }
        self.news += self.config.host.notification_cost / self.config.host.capacity;
        if is_lost {
            self.ledger.radio_lost += 1;
            self.tally.lost += measured;
            return Notified::Lost;
        }
        self.ledger.notified += 1;
        Notified::Received
    }

    fn lose(&mut self, client: u32) {
        let state = &mut self.clients[client as usize];
        state.lost += 1;
        state.lost_at_sum += self.at;
    }

    /// An answer shows these losses and this version.
    pub(super) fn learn(&mut self, client: u32, losses: u32, lost_at_sum: f64, version: u32) {
        let measured = self.is_measured();
        let slides = self.config.updates.slides.is_some();
        let state = &mut self.clients[client as usize];
        if losses > 0 {
            if measured {
                self.tally.detected += u64::from(losses);
                self.tally.detection_sum += f64::from(losses) * self.at - lost_at_sum;
            }
            state.lost -= losses;
            // What was lost after the answer was made stays.
            state.lost_at_sum = if state.lost == 0 { 0.0 } else { (state.lost_at_sum - lost_at_sum).max(0.0) };
        }
        state.known = state.known.max(version);
        let newest = if slides { self.slide } else { state.version };
        if state.known == newest {
            self.set_stale(client, false);
        }
    }

    pub(super) fn set_stale(&mut self, client: u32, stale: bool) {
        let state = &mut self.clients[client as usize];
        if (state.stale_since != NEVER) == stale {
            return;
        }
        let measured = self.at >= self.config.warm_up;
        let group = &mut self.tally.stale[usize::from(state.group)];
        if measured {
            group.count(self.at);
        }
        if stale {
            group.clients += 1;
            state.stale_since = self.now.as_nanos();
        } else {
            group.clients -= 1;
            let since = std::mem::replace(&mut state.stale_since, NEVER);
            if measured {
                self.tally.outdated.add((self.now.as_nanos() - since) as f64 * 1e-9);
            }
        }
    }
}

enum Notified {
    Received,
    Lost,
}

impl Client {
    /// Whether the radio loses a notification: always one draw, so that every algorithm meets the same radio.
    fn loses_notification(&mut self, link: &Link) -> bool {
        let draw = self.updates.unit();
        if link.loss_burst <= 1.0 {
            return draw < link.loss;
        }
        // Gilbert and Elliott: bursts of geometric length, so rare that the mean loss is kept.
        let leave = 1.0 / link.loss_burst;
        let enter = link.loss * leave / (1.0 - link.loss).max(1e-9);
        self.fading = if self.fading { draw >= leave } else { draw < enter };
        self.fading
    }
}

/// ρ of the spread.
const SPREAD_UTILISATION: f64 = 0.97;
