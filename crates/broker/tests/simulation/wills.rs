//! Wills of lasting sessions, through crashes: at QoS 2 never twice.

use std::collections::BTreeSet;

use tidegate_wire_mqtt::{QoS, Version};

use crate::client::Client;
use crate::world::World;
use crate::{SEEDS, run};

fn clients() -> Vec<Client> {
    let mut clients = vec![
        Client::new("heir", Version::V5, None, Some(("w/#", QoS::ExactlyOnce))),
        Client::new("other", Version::V311, None, Some(("w/+", QoS::ExactlyOnce))),
        Client::new("old", Version::V311, Some("t/old"), None),
        Client::new("new", Version::V5, Some("t/new"), None),
    ];
    for client in clients.iter_mut().filter(|client| client.publishes.is_some()) {
        client.leaves_wills = true;
    }
    clients
}

fn check(world: &mut World) {
    for heir in world.clients.iter().filter(|client| client.filter.is_some()) {
        let mut seen = BTreeSet::new();
        for (from, number) in &heir.got {
            assert!(seen.insert((from, number)), "{}: the will of connection {number} of {from} came twice", heir.id);
            let dials = world.clients.iter().find(|client| client.id == *from).map(|client| client.dials);
            assert!(dials.is_some_and(|dials| *number < dials), "{}: nobody has died of {from} {number}", heir.id);
        }
    }
}

#[test]
fn f109_a_will_at_qos_2_never_comes_twice() {
    run("f109_a_will", SEEDS, clients, check);
}
