//! What well-known software says to a broker, said again: Home Assistant, Zigbee2MQTT, Node-RED, Sparkplug B, Homie.
//!
//! The dialogues in `dialogues` were written from the public documents that each of them names, not recorded. A line is
//! `CLIENT > PACKET` for what is said, `CLIENT < PACKET` for what must come; see [`dialogue`].

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a step that cannot be done has failed the test"
)]

mod client;
mod dialogue;

use dialogue::play;

#[test]
fn home_assistant_discovers_a_lamp() {
    play("home-assistant", include_str!("dialogues/home-assistant.txt"));
}

#[test]
fn zigbee2mqtt_says_what_it_is_and_what_its_devices_are() {
    play("zigbee2mqtt", include_str!("dialogues/zigbee2mqtt.txt"));
}

#[test]
fn a_flow_of_node_red_comes_and_goes() {
    play("node-red", include_str!("dialogues/node-red.txt"));
}

#[test]
fn sparkplug_b_nodes_are_born_and_die() {
    play("sparkplug-b", include_str!("dialogues/sparkplug-b.txt"));
}

#[test]
fn homie_devices_have_a_life() {
    play("homie", include_str!("dialogues/homie.txt"));
}
