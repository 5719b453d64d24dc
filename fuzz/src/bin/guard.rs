//! A client and a broker behind a guard that say whatever they like, while time passes and the client takes what it takes. No
//! panic, nothing used that was not given, and what passes is what came.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_control::Timestamp;
use tidegate_core::access::{Identity, Open};
use tidegate_core::event::Why;
use tidegate_core::settings::Settings;
use tidegate_core::{ConnId, Portion, Shard, Then};
use tidegate_guard::{GuardHello, GuardShard, NextDown, Origins, first_answer, keep_alive_of};
use tidegate_wire_mqtt::{Connect, Properties, Version};

fn admit(shard: &mut Shard, how: u8, now: Timestamp) -> Option<ConnId> {
    let version = [Version::V31, Version::V311, Version::V5][usize::from(how % 3)];
    let connect = Connect {
        version,
        is_bridge: false,
        clean_start: true,
        keep_alive: 60,
        properties: Properties::EMPTY,
        client_id: "a",
        will: None,
        user_name: None,
        password: None,
    };
    shard.handle_admitted(&GuardHello { connect: &connect, bytes: 15, client_id: "a", identity: Identity::default() }, now)
}

fuzz_target!(|bytes: &[u8]| {
    let _ = first_answer(bytes);
    let _ = keep_alive_of(60, bytes, Version::V5);
    let mut shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
    let (mut now, origins) = (Timestamp::ZERO, Origins::new(7));
    let Some(conn) = admit(&mut shard, bytes.len() as u8, now) else { return };
    let (mut up, mut down, mut rest) = (Vec::new(), Vec::new(), bytes);
    while let [order, value, more @ ..] = rest {
        rest = more;
        let (taken, left) = rest.split_at(usize::from(*value).min(rest.len()));
        match order & 3 {
            0 => {
                up.extend_from_slice(taken);
                rest = left;
            }
            1 => {
                down.extend_from_slice(taken);
                rest = left;
            }
            2 => {
                shard.may_ping(conn);
            }
            _ => now = now + Duration::from_millis(u64::from(*value) * 50),
        }
        if shard.may_read(conn) {
            let portion = Portion { since: now, dry_at: now, units: u32::MAX };
            let (progress, passed) = shard.pass_portion(conn, &up, &portion, &origins, now);
            assert!(progress.consumed <= up.len() && passed <= progress.consumed);
            up.drain(..progress.consumed);
            if progress.then == Then::Close {
                return;
            }
        }
        let handed = shard.pass_down(conn, &down, &origins, now);
        assert!(handed.consumed <= down.len());
        down.drain(..handed.consumed);
        if handed.next == NextDown::Garbage {
            return;
        }
        shard.turn(now);
        for _ in 0..64 {
            let Some(conn) = shard.poll_write() else { break };
            let all: usize = shard.outbox(conn).iter().map(|slice| slice.len()).sum();
            shard.handle_written(conn, if order & 0x80 == 0 { all } else { all.min(usize::from(*value)) }, now);
        }
        while let Some(conn) = shard.poll_close() {
            shard.handle_closed(conn, Why::Lost, now);
        }
        while shard.poll_event().is_some() {}
    }
});
