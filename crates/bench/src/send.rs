//! What the generator sends, and when: by window, by rate, or all that goes. Whether a publisher may is decided in
//! `publisher.rs`.

use std::time::Duration;

use super::beats::{Beat, Beats};
use super::cases::PublishPace;
use super::connection::ConnectState;
use super::engine::{ClientActivity, Engine};
use super::publisher::{Permission, RateSchedule};

/// Bytes that wait in a publisher's own buffer; beyond it the socket is full and more would only measure memory.
const BACKLOG_MAX: usize = 64 * 1024;
/// Messages of one publisher per turn, so that all get their turn.
const BATCH: usize = 64;

impl Engine {
    /// Lets publishers send; returns how long the loop may wait before it asks again.
    pub(super) fn send(&mut self) -> Duration {
        let mut wait = Duration::MAX;
        for number in 0..self.flows.len() {
            let pause = match self.flows[number].pace {
                PublishPace::Rate(rate) => self.send_due(number, rate),
                PublishPace::Each(beat) => self.send_each(number, beat),
                PublishPace::Window | PublishPace::OneByOne | PublishPace::Flood => self.send_all(number),
            };
            wait = wait.min(pause);
        }
        wait
    }

    fn send_all(&mut self, number: usize) -> Duration {
        let now = self.clock.now_ns();
        let mut wait = Duration::MAX;
        for index in 0..self.publishers[number].len() {
            let place = self.publishers[number][index];
            let (ClientActivity::Publisher(publisher), connection) =
                (&mut self.roles[place], &mut self.connections[place])
            else {
                continue;
            };
            let mut count = 0;
            while count < BATCH
                && connection.state == ConnectState::Ready
                && connection.backlog() < BACKLOG_MAX
                && publisher.permission(&self.flows[number], self.delivered[publisher.stream], now) == Permission::Send
            {
                publisher.emit(&mut connection.outbox, now);
                count += 1;
            }
            if count > 0 {
                self.flush(place);
            }
            if count == BATCH {
                wait = Duration::ZERO;
            }
        }
        wait
    }

    /// Open loop: messages carry the time at which they were due, so that a broker that holds us up cannot hide it.
    fn send_due(&mut self, number: usize, rate: f64) -> Duration {
        let count = self.publishers[number].len() as u64;
        if count == 0 {
            return Duration::MAX;
        }
        let now = self.clock.now_ns();
        let mut pacer = self.pacers[number].unwrap_or_else(|| RateSchedule::new(now, rate));
        while let Some((message, due)) = pacer.take(now) {
            self.send_one(number, (message % count) as usize, due, now);
        }
        self.pacers[number] = Some(pacer);
        Duration::from_nanos(pacer.due_ns().saturating_sub(self.clock.now_ns()))
    }

    /// The same for publishers that each have a rhythm.
    fn send_each(&mut self, number: usize, beat: Beat) -> Duration {
        let now = self.clock.now_ns();
        let count = self.publishers[number].len();
        let mut beats = self.beats[number].take().unwrap_or_else(|| Beats::new(count, beat, now, number as u64));
        while let Some(due) = beats.take(now) {
            self.send_one(number, due.publisher, due.at_ns, now);
        }
        let wait = beats.due_ns().map_or(Duration::MAX, |due| Duration::from_nanos(due.saturating_sub(now)));
        self.beats[number] = Some(beats);
        wait
    }

    /// One message of an open loop, or none if its publisher is stuck.
    fn send_one(&mut self, number: usize, index: usize, due: u64, now: u64) {
        let place = self.publishers[number][index];
        let (ClientActivity::Publisher(publisher), connection) = (&mut self.roles[place], &mut self.connections[place])
        else {
            return;
        };
        if self.is_measuring {
            self.tallies[number].late.record(now.saturating_sub(due));
        }
        let has_room = connection.state == ConnectState::Ready
            && connection.backlog() + publisher.template.len() <= BACKLOG_MAX
            && publisher.permission(&self.flows[number], 0, now) == Permission::Send;
        if has_room {
            publisher.emit(&mut connection.outbox, due);
            self.flush(place);
        } else {
            self.tallies[number].unsent += 1;
        }
    }
}
