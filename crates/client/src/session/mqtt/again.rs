//! What was under way when a connection broke, on the next one: in the order of its first sending, and no more at once
//! than the broker now takes.

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::PacketId;

use super::{MqttEvent, MqttSession};
use crate::prelude::*;

impl MqttSession {
    /// Begins it. Subscriptions were asked for before, if they had to be.
    pub(super) fn resume(&mut self, session_present: bool, now: Timestamp) {
        if !session_present {
            // The broker had it, and has forgotten only that it had to be released.
            let released: Vec<PacketId> =
                self.flights.iter().filter(|(_, flight)| flight.is_released).map(|(id, _)| *id).collect();
            for flight in released.iter().filter_map(|id| self.flights.remove(id)) {
                self.events.push_back(MqttEvent::Published { token: flight.token, after: now.since(flight.sent) });
            }
        }
        let mut again: Vec<PacketId> = self.flights.keys().copied().collect();
        again.sort_by_key(|id| self.flights.get(id).map(|flight| flight.token));
        (self.again, self.is_again_known) = (again.into(), session_present);
        self.connection.note_sent(now);
        self.send_again(now);
    }

    /// Goes on with it as far as the window allows.
    pub(super) fn send_again(&mut self, now: Timestamp) {
        while self.in_air() < self.connection.window() {
            let Some(id) = self.again.pop_front() else { return };
            let Some(flight) = self.flights.remove(&id) else { continue };
            let is_written = if flight.is_released {
                self.connection.release(id);
                true
            } else {
                self.write_publish(&flight.message, Some(id), self.is_again_known)
            };
            if is_written {
                self.flights.insert(id, flight);
                self.connection.note_sent(now);
            } else {
                // The broker takes smaller packets than before.
                self.events.push_back(MqttEvent::TooLarge { token: flight.token });
            }
        }
    }

    /// Messages that were sent on this connection and have no answer.
    pub(super) fn in_air(&self) -> usize {
        self.flights.len().saturating_sub(self.again.len())
    }
}
