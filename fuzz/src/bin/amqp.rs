//! Three sockets that send a shard whatever they like by AMQP, and break now and then, while time passes. No panic, no endless
//! turn, and every message is accounted for.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Shard, Then};
use tidegate_face_amqp::{AmqpDoor, Arrival, First, Greeting, Offers};

#[derive(Default)]
struct Socket {
    greeting: Greeting,
    conn: Option<ConnId>,
    kept: Vec<u8>,
}

struct World {
    shard: Shard,
    door: AmqpDoor,
    now: Timestamp,
    sockets: [Socket; 3],
}

impl World {
    fn read(&mut self, index: usize) {
        for _ in 0..64 {
            let bytes = self.sockets[index].kept.clone();
            let Some(conn) = self.sockets[index].conn else {
                if !self.greet(index, &bytes) {
                    return;
                }
                continue;
            };
            let portion = Portion { since: self.now, dry_at: self.now, units: u32::MAX };
            let progress = self.door.handle_portion(&mut self.shard, conn, &bytes, &portion, self.now);
            self.sockets[index].kept.drain(..progress.consumed.min(bytes.len()));
            self.turn();
            if progress.consumed == 0 || progress.then == Then::Close {
                return;
            }
        }
    }

    /// True while there is more to hear.
    fn greet(&mut self, index: usize, bytes: &[u8]) -> bool {
        let socket = &mut self.sockets[index];
        match socket.greeting.advance(bytes, Offers { anonymous: true, external: true }) {
            First::Incomplete => false,
            First::Answer { consumed, .. } => {
                socket.kept.drain(..consumed);
                true
            }
            First::Login { consumed, .. } => {
                socket.kept.drain(..consumed);
                assert!(!socket.greeting.admit().is_empty());
                true
            }
            First::Refuse { .. } => {
                *socket = Socket::default();
                false
            }
            First::Hello { consumed, hello } => {
                socket.kept.drain(..consumed);
                let client_id = if hello.container_id.is_empty() { "x" } else { hello.container_id.as_str() };
                let arrival = Arrival { client_id, identity: Identity::default(), hello: &hello };
                socket.conn = self.door.enter(&mut self.shard, arrival, self.now);
                self.turn();
                self.sockets[index].conn.is_some()
            }
        }
    }

    fn end(&mut self, index: usize) {
        if let Some(conn) = self.sockets[index].conn.take() {
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
        }
        self.sockets[index] = Socket::default();
    }

    fn turn(&mut self) {
        self.shard.turn(self.now);
        self.door.turn(&mut self.shard, self.now);
        while let Some(conn) = self.shard.poll_write() {
            let bytes: usize = self.shard.outbox(conn).iter().map(|slice| slice.len()).sum();
            self.shard.handle_written(conn, bytes, self.now);
        }
        while let Some(conn) = self.shard.poll_close() {
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
            for socket in self.sockets.iter_mut().filter(|socket| socket.conn == Some(conn)) {
                *socket = Socket::default();
            }
        }
        while self.shard.poll_event().is_some() {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    let shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
    let now = Timestamp::from_secs_f64(1.0);
    let mut world = World { shard, door: AmqpDoor::default(), now, sockets: Default::default() };
    let mut rest = bytes;
    while let [order, length, more @ ..] = rest {
        let (piece, left) = more.split_at(usize::from(*length).min(more.len()));
        rest = left;
        let index = usize::from(order & 3) % 3;
        world.now = world.now + Duration::from_millis(1 << (order >> 4));
        if order & 8 != 0 {
            world.end(index);
        }
        world.sockets[index].kept.extend_from_slice(piece);
        world.read(index);
        world.turn();
    }
    assert!(world.shard.audit().is_ok());
});
