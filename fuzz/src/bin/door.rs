//! Whatever four sockets say from their first byte on, two of them WebSockets, through everything that a door does with
//! bytes before the core and in it, while time passes, memory is short and sockets take what they take. No panic, no
//! endless turn, no count that goes below nothing.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_broker::doorway::{AllowedPages, Decoder, First, Upgrade, connect_limits, first_packet, upgrade};
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Shard, Then};
use tidegate_face_mqtt::{MqttHello, MqttShard};

const SIDES: usize = 4;
const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
/// Beginnings that a mutation would take long to find: a CONNECT of each version, with and without a will.
const GREETINGS: [&[u8]; 4] = [
    b"\x10\x10\x00\x06MQIsdp\x03\x02\x00\x0a\x00\x02id",
    b"\x10\x0e\x00\x04MQTT\x04\x00\x00\x02\x00\x02id",
    b"\x10\x14\x00\x04MQTT\x05\x00\x00\x02\x05\x11\x00\x00\x00\x3c\x00\x02id",
    b"\x10\x1b\x00\x04MQTT\x05\x2e\x00\x01\x00\x00\x02jd\x05\x18\x00\x00\x00\x02\x00\x01t\x00\x02xy",
];

enum Stage {
    Upgrade,
    Connect,
    Core(ConnId),
    Gone,
}

struct Side {
    is_websocket: bool,
    stage: Stage,
    decoder: Decoder,
    input: Vec<u8>,
}

impl Side {
    fn new(place: usize) -> Self {
        let is_websocket = place >= SIDES / 2;
        let stage = if is_websocket { Stage::Upgrade } else { Stage::Connect };
        Self { is_websocket, stage, decoder: Decoder::default(), input: Vec::new() }
    }

    /// Bytes from the socket.
    fn receive(&mut self, bytes: &[u8]) {
        if !self.is_websocket || matches!(self.stage, Stage::Upgrade) {
            self.input.extend_from_slice(bytes);
        } else {
            self.unwrap_frames(bytes.to_vec());
        }
    }

    fn unwrap_frames(&mut self, mut bytes: Vec<u8>) {
        match self.decoder.decode(&mut bytes, |_| {}) {
            Ok(len) => self.input.extend_from_slice(&bytes[..len]),
            Err(_) => self.stage = Stage::Gone,
        }
    }

    /// As far as it goes before the core.
    fn advance(&mut self, place: usize, shard: &mut Shard, settings: &Settings, now: Timestamp) {
        if matches!(self.stage, Stage::Upgrade) {
            match upgrade(&self.input, IpAddr::V4(Ipv4Addr::LOCALHOST), AllowedPages::OfThisMachine) {
                Upgrade::Incomplete => return,
                Upgrade::Refuse { .. } => self.stage = Stage::Gone,
                Upgrade::Accept { consumed, .. } => {
                    self.stage = Stage::Connect;
                    let rest = std::mem::take(&mut self.input).split_off(consumed);
                    self.unwrap_frames(rest);
                }
            }
        }
        if !matches!(self.stage, Stage::Connect) {
            return;
        }
        match first_packet(&self.input, &connect_limits(settings)) {
            First::Incomplete => {}
            First::Refuse { .. } => self.stage = Stage::Gone,
            First::Connect { connect, consumed } => {
                let made_up = format!("auto-{place}");
                let client_id = if connect.client_id.is_empty() { &made_up } else { connect.client_id };
                let hello = MqttHello { connect: &connect, client_id, identity: Identity::default() };
                self.stage = shard.handle_connect(&hello, now).map_or(Stage::Gone, Stage::Core);
                self.input.drain(..consumed);
            }
        }
    }

    fn read(&mut self, shard: &mut Shard, now: Timestamp) {
        let Stage::Core(conn) = self.stage else { return };
        if self.input.is_empty() || !shard.may_read(conn) {
            return;
        }
        let progress = shard.handle_input(conn, &self.input, now);
        assert!(progress.consumed <= self.input.len());
        self.input.drain(..progress.consumed);
        if progress.then == Then::Close {
            self.input.clear();
        }
    }
}

/// A frame with a mask of zeroes.
fn frame(payload: &[u8]) -> Vec<u8> {
    let head = [0x82, 0xfe, (payload.len() >> 8) as u8, payload.len() as u8, 0, 0, 0, 0];
    [&head[..], payload].concat()
}

fn write_and_close(shard: &mut Shard, sides: &mut [Side], (order, value): (u8, u8), now: Timestamp) {
    for _ in 0..64 {
        let Some(conn) = shard.poll_write() else { break };
        let all: usize = shard.outbox(conn).iter().map(|slice| slice.len()).sum();
        let taken = if order & 0x80 == 0 { all } else { all.min(usize::from(value)) };
        shard.handle_written(conn, taken, now);
    }
    while let Some(conn) = shard.poll_close() {
        shard.handle_closed(conn, Why::Lost, now);
        for side in sides.iter_mut().filter(|side| matches!(side.stage, Stage::Core(other) if other == conn)) {
            side.stage = Stage::Gone;
        }
    }
    while shard.poll_event().is_some() {}
    assert!(shard.memory_used() < 1 << 40, "a charge was taken back twice");
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, mut rest)) = bytes.split_first() else { return };
    let settings = Arc::new(Settings::default());
    let mut shard = Shard::new(0, 1, Arc::clone(&settings), Arc::new(Open), 7);
    let mut now = Timestamp::ZERO;
    let mut sides: Vec<Side> = (0..SIDES).map(Side::new).collect();
    while let [order, value, more @ ..] = rest {
        rest = more;
        let place = usize::from(order & 3);
        let side = &mut sides[place];
        match order >> 2 & 7 {
            0 => {
                if let Stage::Core(conn) = side.stage {
                    shard.handle_closed(conn, Why::Lost, now);
                }
                *side = Side::new(place);
                if side.is_websocket && value & 1 != 0 {
                    side.receive(REQUEST);
                }
            }
            1 => {
                let greeting = GREETINGS[usize::from(value % 4)];
                side.receive(&if side.is_websocket { frame(greeting) } else { greeting.to_vec() });
            }
            2 => now = now + Duration::from_millis(u64::from(*value) * 50),
            kind => {
                let (taken, left) = rest.split_at(usize::from(*value).min(rest.len()));
                rest = left;
                side.receive(&if side.is_websocket && kind > 3 { frame(taken) } else { taken.to_vec() });
            }
        }
        // Some runs have memory for very little.
        let budget = if first & 1 == 0 { usize::MAX } else { usize::from(first) << 12 };
        shard.set_memory(budget, sides.iter().map(|side| side.input.len()).sum());
        for (place, side) in sides.iter_mut().enumerate() {
            side.advance(place, &mut shard, &settings, now);
            side.read(&mut shard, now);
        }
        shard.turn(now);
        write_and_close(&mut shard, &mut sides, (*order, *value), now);
    }
});
