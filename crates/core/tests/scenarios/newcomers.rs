//! Who is new and floods from its first message on, at a receiver that has not had room for it since it came: what it is used to
//! is no reason to come before others who are new, there.

use std::time::Duration;

use tidegate_core::access::Open;
use tidegate_core::report::ClientReport;
use tidegate_core::settings::Settings;
use tidegate_wire_mqtt::{Delivery, Encode, Peer, Properties, Publish, Version};

use crate::net::{Net, Wire};
use crate::priority::SlowReader;

const TICK: Duration = Duration::from_millis(100);
/// Bytes of each message on the wire.
const EACH: usize = 40;
/// Messages that the slow reader takes in a tick, a fifth of what the flooder sends; devices send a quarter of them.
const TAKES: usize = 20;
const FLOOD: usize = 100;
const DEVICES: usize = 10;
const LATE: usize = 5;

struct Scene {
    net: Net,
    devices: Vec<Wire>,
    flooder: Option<Wire>,
    late: Vec<Wire>,
    fast: Option<Wire>,
    slow: SlowReader,
    tick: usize,
}

fn message(topic: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload = [b'x'; EACH - 8];
    let publish = Publish {
        delivery: Delivery::AtMostOnce,
        retain: false,
        topic,
        properties: Properties::EMPTY,
        payload: &payload,
    };
    let _ = publish.encode(Peer::new(Version::V5), &mut bytes);
    assert_eq!(bytes.len(), EACH);
    bytes
}

impl Scene {
    /// Devices of five messages a second that are known; everybody on one shard or on two.
    fn new(shards: usize, has_fast: bool) -> Self {
        let mut net = Net::with(shards, Settings::default(), Open);
        let slow = SlowReader::new(&mut net, "#", 0);
        let fast = has_fast.then(|| {
            let fast = net.v5("fast");
            net.subscribe(fast, "#", 0);
            fast
        });
        let devices = (0..DEVICES).map(|n| net.v5(&format!("device-{n}"))).collect();
        let mut scene = Self { net, devices, flooder: None, late: Vec::new(), fast, slow, tick: 0 };
        scene.live(75);
        scene
    }

    /// So many seconds; how many messages of devices, of the flooder and of those who came late the slow reader has got.
    fn live(&mut self, secs: usize) -> [usize; 3] {
        let mut got = [0; 3];
        for _ in 0..secs * 10 {
            self.tick += 1;
            let is_due = |n: usize| (self.tick + n).is_multiple_of(2);
            for (n, wire) in self.devices.iter().enumerate().filter(|(n, _)| is_due(*n)) {
                self.net.send_bytes(*wire, &message(&format!("d/{n}")));
            }
            for (n, wire) in self.late.iter().enumerate().filter(|(n, _)| is_due(*n)) {
                self.net.send_bytes(*wire, &message(&format!("n/{n}")));
            }
            if let Some(flooder) = self.flooder {
                self.net.send_bytes(flooder, &message("f/0").repeat(FLOOD));
            }
            for (topic, _) in self.slow.look(&mut self.net, TAKES * EACH) {
                got[match &topic[..1] {
                    "d" => 0,
                    "f" => 1,
                    _ => 2,
                }] += 1;
            }
            if let Some(fast) = self.fast {
                self.net.raw(fast);
            }
            self.net.pass(TICK);
        }
        got
    }

    fn flood(&mut self) {
        self.flooder = Some(self.net.v5("flooder"));
    }

    fn come_late(&mut self) {
        self.late = (0..LATE).map(|n| self.net.v5(&format!("late-{n}"))).collect();
    }

    fn report(&self, client_id: &str) -> ClientReport {
        let now = self.net.now;
        self.net.shards.iter().find_map(|shard| shard.client(client_id, now)).unwrap().client
    }

    fn usual(&self, client_id: &str) -> Option<f64> {
        self.report(client_id).publisher.and_then(|publisher| publisher.usual)
    }
}

#[test]
fn nothing_is_learned_of_a_flood_that_reaches_nobody_else() {
    let mut scene = Scene::new(1, false);
    scene.flood();
    scene.live(90);
    assert_eq!(scene.usual("flooder"), None);
    let [devices, _, _] = scene.live(10);
    assert!(devices >= DEVICES * 50 - 10, "{devices}");
}

#[test]
fn a_claim_that_was_learned_while_a_receiver_had_no_room_is_none_there() {
    for shards in [1, 2] {
        let mut scene = Scene::new(shards, true);
        scene.flood();
        scene.live(90);
        println!("{shards} shards, usual: {:?}", scene.usual("flooder"));
        scene.come_late();
        scene.live(5);
        let [devices, flooder, late] = scene.live(20);
        println!("devices {devices} of {}, flooder {flooder}, late {late} of {}", DEVICES * 100, LATE * 100);
        assert!(scene.usual("flooder").is_some_and(|usual| usual > 900.0), "somebody takes it all");
        assert!(devices >= DEVICES * 100 - 10, "{devices}");
        assert!(late >= LATE * 100 - 10, "{late} of those who came after it");
    }
}
