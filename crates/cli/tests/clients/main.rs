//! The real broker with clients that nobody here wrote: `rumqttc`, Python's paho-mqtt, npm's mqtt and mosquitto's tools;
//! and SEPA's clients in Python (sepy) and JavaScript (sepa-js) with the smart space.
//!
//! `rumqttc` is linked in and always runs. The others are installed under `target/clients/` at their pinned versions, or
//! taken from the path; what is missing is said in one line, and is a failure if `TIDEGATE_REQUIRE_CLIENTS=1`.
//! Nothing sleeps: a step waits for what it needs, and that nothing else arrived is shown by a last message that did.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod broker;
mod mosquitto;
mod mqttjs;
mod paho;
mod rumqtt;
mod sepajs;
mod sepy;
mod tool;
