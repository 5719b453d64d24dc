//! What well-known software says to a broker, said again: Home Assistant, Zigbee2MQTT, Node-RED, Sparkplug B, Homie.
//!
//! Those in `dialogues` were written from the public documents that each of them names: a line is `CLIENT > PACKET` for what is
//! said, `CLIENT < PACKET` for what must come; see [`dialogue`]. Those in `recorded` are the bytes of the software itself, with
//! mosquitto's answers; see [`recorded`]. `record.py` records others.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a step that cannot be done has failed the test"
)]

mod client;
mod dialogue;
mod recorded;

use dialogue::play;
use recorded::replay;

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

#[test]
fn what_home_assistant_said_to_mosquitto_it_can_say_here() {
    replay("home-assistant", include_str!("recorded/home-assistant.txt"));
}

#[test]
fn what_zigbee2mqtt_said_to_mosquitto_it_can_say_here() {
    replay("zigbee2mqtt", include_str!("recorded/zigbee2mqtt.txt"));
}

#[test]
fn what_node_red_said_to_mosquitto_it_can_say_here() {
    replay("node-red", include_str!("recorded/node-red.txt"));
}

#[test]
fn what_a_sparkplug_node_said_to_mosquitto_it_can_say_here() {
    replay("sparkplug-b", include_str!("recorded/sparkplug-b.txt"));
}

#[test]
fn what_a_homie_device_said_to_mosquitto_it_can_say_here() {
    replay("homie", include_str!("recorded/homie.txt"));
}
