//! Three sockets that send a shard whatever they like by HTTP, and break now and then, while time passes. No panic, no endless
//! turn, no stream without a name, and every message is accounted for.
#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Shard, Then};
use tidegate_face_http::{Arrival, First, HttpDoor, Pages, Waits, first};

struct Everybody;

impl Pages for Everybody {
    fn judge(&self, _: IpAddr, _: &str, _: Option<&str>) -> Result<(), &'static str> {
        Ok(())
    }
}

#[derive(Default)]
struct Socket {
    conn: Option<ConnId>,
    kept: Vec<u8>,
}

struct World {
    shard: Shard,
    door: HttpDoor,
    now: Timestamp,
    sockets: [Socket; 3],
    tokens: u32,
}

impl World {
    fn read(&mut self, index: usize) {
        let peer: SocketAddr = ([127, 0, 0, 1], 1 + index as u16).into();
        for _ in 0..64 {
            let bytes = self.sockets[index].kept.clone();
            let Some(conn) = self.sockets[index].conn else {
                match first(&bytes, peer.ip(), &Everybody) {
                    First::Incomplete => return,
                    First::Answer { consumed, .. } => drop(self.sockets[index].kept.drain(..consumed)),
                    First::Refuse { answer, .. } => {
                        assert!(answer.starts_with(b"HTTP/1.1 "));
                        self.sockets[index].kept.clear();
                    }
                    First::Hello(hello) => {
                        self.tokens += 1;
                        let client_id = hello.client_id(&peer.to_string(), || format!("t{}", self.tokens));
                        assert!(client_id.starts_with("$http/"));
                        let identity = Identity { peer: peer.to_string().into(), ..Identity::default() };
                        let arrival = Arrival { client_id: &client_id, identity, peer, hello: &hello };
                        let Some(entered) = self.door.enter(&mut self.shard, arrival, self.now) else { return };
                        for other in self.sockets.iter_mut().filter(|other| other.conn == Some(entered.conn)) {
                            other.conn = None;
                        }
                        self.sockets[index].conn = Some(entered.conn);
                    }
                }
                continue;
            };
            let portion = Portion { since: self.now, dry_at: self.now, units: u32::MAX };
            let progress =
                self.door.handle_portion(&mut self.shard, conn, &bytes, &portion, (&Everybody, self.now));
            self.sockets[index].kept.drain(..progress.consumed.min(bytes.len()));
            self.turn();
            if progress.consumed == 0 && self.sockets[index].conn.is_some() || progress.then == Then::Close {
                return;
            }
        }
    }

    fn end(&mut self, index: usize) {
        let Some(conn) = self.sockets[index].conn.take() else { return };
        if !self.door.handle_lost(&mut self.shard, conn, self.now) {
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
        }
        self.sockets[index].kept.clear();
    }

    fn turn(&mut self) {
        self.shard.turn(self.now);
        self.door.turn(&mut self.shard, self.now);
        while let Some(conn) = self.shard.poll_write() {
            let bytes: usize = self.shard.outbox(conn).iter().map(|slice| slice.len()).sum();
            if bytes > 0 && !self.door.write_nowhere(&mut self.shard, conn, self.now) {
                self.shard.handle_written(conn, bytes, self.now);
            }
        }
        while let Some(conn) = self.shard.poll_close() {
            self.shard.handle_closed(conn, Why::Lost, self.now);
            self.door.forget(conn);
            self.sockets.iter_mut().filter(|socket| socket.conn == Some(conn)).for_each(|socket| socket.conn = None);
        }
        for socket in &mut self.sockets {
            let Some(conn) = socket.conn else { continue };
            match self.door.waits(&mut self.shard, conn) {
                None | Some(Waits::Nothing) => continue,
                Some(Waits::Close) => socket.kept.clear(),
                Some(Waits::Switch) => {}
            }
            self.shard.handle_closed(conn, Why::Goodbye, self.now);
            self.door.forget(conn);
            socket.conn = None;
        }
        while self.shard.poll_event().is_some() {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    let shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
    let now = Timestamp::from_secs_f64(1.0);
    let mut world =
        World { shard, door: HttpDoor::default(), now, sockets: Default::default(), tokens: 0 };
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
