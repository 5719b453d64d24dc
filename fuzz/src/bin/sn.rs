//! Three addresses that send a shard whatever they like by MQTT-SN, one of them from elsewhere, while time passes. No panic, no
//! endless turn, no more than three times of what came to who has not proved its address, and every message is accounted for.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::access::{Identity, Open};
use tidegate_core::datagrams::{Admission, DatagramEndpoint, NotAdmitted};
use tidegate_core::settings::Settings;
use tidegate_face_sn::packet::Packet;
use tidegate_face_sn::{PredefinedTopics, SnEndpoint};

struct Everybody;

impl Admission for Everybody {
    fn admit(&mut self, from: SocketAddr, _: &str) -> Result<Identity, NotAdmitted> {
        Ok(Identity { peer: from.to_string().into(), listener: "sn", ..Identity::default() })
    }
}

/// UDP and IPv4.
const HEADERS: usize = 28;

fuzz_target!(|bytes: &[u8]| {
    let addresses: [SocketAddr; 3] =
        [([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into(), ([192, 0, 2, 1], 3).into()];
    let mut shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
    let topics = PredefinedTopics::parse(["1=a/b"]).unwrap_or_default();
    let mut endpoint = SnEndpoint::new([1, 2], Arc::new(topics), 1);
    let (mut now, mut came, mut went) = (Timestamp::from_secs_f64(1.0), 0, 0);
    let mut rest = bytes;
    while let [order, length, more @ ..] = rest {
        let (datagram, left) = more.split_at(usize::from(*length).min(more.len()));
        rest = left;
        if let Some(packet) = Packet::read(datagram) {
            let again = packet.bytes();
            assert_eq!(Packet::read(&again), Some(packet));
        }
        let from = addresses[usize::from(order & 3) % 3];
        came += if from == addresses[2] { datagram.len() + HEADERS } else { 0 };
        now = now + Duration::from_millis(1 << (order >> 4));
        endpoint.handle_datagram(&mut shard, (from, datagram), &mut Everybody, now, now);
        shard.turn(now);
        endpoint.turn(&mut shard, now);
        let mut hear = |to: SocketAddr, said: &[u8]| {
            assert!(said.len() <= 1280 && Packet::read(said).is_some());
            went += if to == addresses[2] { said.len() + HEADERS } else { 0 };
        };
        while let Some((to, said)) = endpoint.poll_reply() {
            hear(to, &said);
        }
        while let Some(conn) = shard.poll_write() {
            endpoint.write(&mut shard, conn, now, &mut hear);
        }
        while let Some(conn) = shard.poll_close() {
            endpoint.write(&mut shard, conn, now, &mut hear);
            endpoint.close(&mut shard, conn, now);
        }
        while endpoint.poll_left().is_some() {}
        while shard.poll_event().is_some() {}
        assert!(went <= 3 * came);
    }
    assert!(shard.audit().is_ok());
});
