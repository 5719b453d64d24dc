//! Words for clients without an answer to carry them: a message on `$SYS/broker/pace/<client>`.
//!
//! At QoS 0 nothing is answered, and before MQTT 5 an answer has no words. Who wants to know more subscribes to the topic
//! with its own name in it, and gets one message when its messages begin to be held, and one a second while it is read
//! more slowly than it sends: not retained, QoS 0, the words of MQTT 5's user properties as JSON. The message goes to that
//! client's session and to nobody else's, whatever others have subscribed to; and no rule of access is needed for one's
//! own.

use alloc::format;
use core::fmt::Write;
use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{Properties, QoS};

use crate::access::Action;
use crate::face::Frames;
use crate::message::{Publication, Shareable};
use crate::shard::ConnId;
use crate::state::ShardState;

const PREFIX: &str = "$SYS/broker/pace/";

/// Whether this is about a client's own notices, which nobody else gets.
pub(crate) fn is_own_notice(client_id: &str, action: Action, topic: &str) -> bool {
    action != Action::Publish && topic.strip_prefix(PREFIX) == Some(client_id)
}

impl ShardState {
    /// A message of a client without a word for it was delivered and not retained. Said once on a connection.
    #[cold]
    pub(crate) fn note_not_retained(&mut self, conn: ConnId, index: u32, now: Timestamp) {
        self.stats.retained_memory_budget += 1;
        let Some(connection) = self.connection_mut(conn) else { return };
        if connection.take_word_on_room() {
            self.publish_notice(index, "delivered, but not retained: there is no room", &Hints::default(), now);
        }
    }

    #[cold]
    pub(super) fn send_notice(&mut self, index: u32, retry_after: Duration, now: Timestamp) {
        let hints =
            Hints { interval: self.learned_interval(index), retry_after: Some(retry_after), ..Hints::default() };
        self.publish_notice(index, "publishing too fast", &hints, now);
    }

    pub(super) fn publish_notice(&mut self, index: u32, reason: &str, hints: &Hints, now: Timestamp) {
        // Who listens to nothing does not listen to this.
        let Some(session) = self.sessions.get(index).filter(|session| session.subscriptions().len() > 0) else {
            return;
        };
        let topic = format!("{PREFIX}{}", session.client_id());
        let mut payload = format!("{{\"reason\":\"{reason}\"");
        // Writing into a string cannot fail; all the words are numbers.
        hints.write(|name, text| {
            let _ = write!(payload, ",\"{name}\":{text}");
        });
        payload.push('}');
        let publication = Publication {
            topic: &topic,
            payload: payload.as_bytes(),
            properties: Properties::EMPTY,
            qos: QoS::AtMostOnce,
            retain: false,
            expires: None,
            origin: 0,
            standing: crate::message::Precedence::UNKNOWN,
        };
        let route = self.find_route(&topic);
        for target in route.targets.iter().filter(|target| target.session == index) {
            self.deliver(target, &Shareable::new(publication), &mut Frames::for_receivers(1), now);
        }
    }
}
