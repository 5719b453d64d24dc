//! Three addresses that send a shard whatever they like by CoAP, one of them from elsewhere, while time passes. No panic, no
//! endless turn, no large answer to who has not proved its address, and every message is accounted for.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tidegate_control::Timestamp;
use tidegate_core::Shard;
use tidegate_core::access::{Identity, Open};
use tidegate_core::settings::Settings;
use tidegate_core::datagrams::{Admission, DatagramEndpoint, NotAdmitted};
use tidegate_face_coap::CoapEndpoint;

struct Everybody;

impl Admission for Everybody {
    fn admit(&mut self, from: SocketAddr, _: &str) -> Result<Identity, NotAdmitted> {
        Ok(Identity { peer: from.to_string().into(), listener: "coap", ..Identity::default() })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let addresses: [SocketAddr; 3] =
        [([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into(), ([192, 0, 2, 1], 3).into()];
    let mut shard = Shard::new(0, 1, Arc::new(Settings::default()), Arc::new(Open), 7);
    let mut endpoint = CoapEndpoint::new([1, 2, 3, 4]);
    let mut now = Timestamp::from_secs_f64(1.0);
    let mut rest = bytes;
    while let [order, length, more @ ..] = rest {
        let (datagram, left) = more.split_at(usize::from(*length).min(more.len()));
        rest = left;
        let from = addresses[usize::from(order & 3) % 3];
        now = now + Duration::from_millis(1 << (order >> 4));
        endpoint.handle_datagram(&mut shard, (from, datagram), &mut Everybody, now, now);
        shard.turn(now);
        endpoint.turn(&mut shard, now);
        while let Some((to, said)) = endpoint.poll_reply() {
            assert!(to != addresses[2] || said.len() <= 3 * datagram.len());
        }
        while let Some(conn) = shard.poll_write() {
            endpoint.write(&mut shard, conn, now, &mut |_, said| assert!(said.len() <= 1280));
        }
        while let Some(conn) = shard.poll_close() {
            endpoint.close(&mut shard, conn, now);
        }
        while endpoint.poll_left().is_some() {}
        while shard.poll_event().is_some() {}
    }
    assert!(shard.audit().is_ok());
});
