//! Two clients of one shard that say whatever they like, while time passes and their sockets take what they take. No
//! panic, no endless turn, and nothing used that was not given.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Shard, Then};
use tidegate_face_mqtt::{MqttHello, MqttShard};
use tidegate_wire_mqtt::{Connect, Properties, Property, Version};

const IDS: [&str; 2] = ["a", "b"];

struct Side {
    conn: Option<ConnId>,
    input: Vec<u8>,
}

fn connect(shard: &mut Shard, id: &str, how: u8, now: Timestamp) -> Option<ConnId> {
    let version = [Version::V31, Version::V311, Version::V5][usize::from(how % 3)];
    let lasting = [Property::SessionExpiry(60)];
    let properties = if version == Version::V5 { Properties::new(&lasting) } else { Properties::EMPTY };
    let (clean_start, keep_alive) = (how & 8 != 0, u16::from(how >> 4));
    let connect = Connect {
        version, is_bridge: false,
        clean_start,
        keep_alive,
        properties,
        client_id: id,
        will: None,
        user_name: None,
        password: None,
    };
    shard.handle_connect(&MqttHello { connect: &connect, client_id: id, identity: Identity::default() }, now)
}

fuzz_target!(|bytes: &[u8]| {
    let mut shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
    let mut now = Timestamp::ZERO;
    let mut sides = IDS.map(|_| Side { conn: None, input: Vec::new() });
    let mut rest = bytes;
    while let [order, value, more @ ..] = rest {
        rest = more;
        let place = usize::from(order & 1);
        let side = &mut sides[place];
        match order >> 1 & 3 {
            0 => {
                if let Some(conn) = side.conn.take() {
                    shard.handle_closed(conn, Why::Lost, now);
                }
                side.input.clear();
                side.conn = connect(&mut shard, IDS[place], *value, now);
            }
            1 | 2 => {
                let (taken, left) = rest.split_at(usize::from(*value).min(rest.len()));
                rest = left;
                side.input.extend_from_slice(taken);
            }
            _ => now = now + Duration::from_millis(u64::from(*value) * 50),
        }
        for side in &mut sides {
            let Some(conn) = side.conn.filter(|&conn| shard.may_read(conn)) else { continue };
            let progress = shard.handle_input(conn, &side.input, now);
            assert!(progress.consumed <= side.input.len());
            side.input.drain(..progress.consumed);
            if progress.then == Then::Close {
                side.input.clear();
            }
        }
        shard.turn(now);
        for _ in 0..64 {
            let Some(conn) = shard.poll_write() else { break };
            let all: usize = shard.outbox(conn).iter().map(|slice| slice.len()).sum();
            let taken = if order & 0x80 == 0 { all } else { all.min(usize::from(*value)) };
            shard.handle_written(conn, taken, now);
        }
        while let Some(conn) = shard.poll_close() {
            shard.handle_closed(conn, Why::Lost, now);
            for side in sides.iter_mut().filter(|side| side.conn == Some(conn)) {
                (side.conn, side.input) = (None, Vec::new());
            }
        }
        while shard.poll_event().is_some() {}
    }
});
