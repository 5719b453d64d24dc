#![no_std]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod aliases;
mod connect;
mod link;
mod pace;
mod read;
mod reply;
mod write;

pub use connect::MqttHello;
pub use reply::{goodbye, unwelcome};
use tidegate_control::Timestamp;
use tidegate_core::{ConnId, Portion, Progress, Shard};

/// A shard whose clients speak MQTT.
pub trait MqttShard {
    /// A client says hello. Its CONNACK (or refusal) is in the outbox when this returns, and a refused connection is named
    /// by `poll_close`. `None`: the table of connections is full.
    fn handle_connect(&mut self, hello: &MqttHello<'_>, now: Timestamp) -> Option<ConnId>;

    /// Bytes of a connected client that are read in portions, because others wait, too: as many whole packets as there are
    /// (bounded) are handled.
    fn handle_portion(&mut self, conn: ConnId, bytes: &[u8], portion: &Portion, now: Timestamp) -> Progress;

    /// The same without a portion, for bytes that may have come at any time since `since`, and could not be read before.
    fn handle_input_since(&mut self, conn: ConnId, bytes: &[u8], since: Timestamp, now: Timestamp) -> Progress {
        self.handle_portion(conn, bytes, &Portion { since, dry_at: now, units: u32::MAX }, now)
    }

    /// The same for bytes that have just come.
    fn handle_input(&mut self, conn: ConnId, bytes: &[u8], now: Timestamp) -> Progress {
        self.handle_input_since(conn, bytes, now, now)
    }
}

impl MqttShard for Shard {
    fn handle_connect(&mut self, hello: &MqttHello<'_>, now: Timestamp) -> Option<ConnId> {
        let hello = connect::hello(self, hello);
        self.connect(hello, now)
    }

    fn handle_portion(&mut self, conn: ConnId, bytes: &[u8], portion: &Portion, now: Timestamp) -> Progress {
        let version = read::version_of(self, conn);
        self.handle_portion_by(conn, bytes, portion, now, |shard, rest, moment| {
            read::packet(shard, conn, version, rest, moment)
        })
    }
}
