//! The real broker with clients that nobody here wrote: `rumqttc`, Python's paho-mqtt, npm's mqtt and mosquitto's tools;
//! SEPA's clients in Python (sepy) and JavaScript (sepa-js) with the smart space, and Python's rdflib beside it as another
//! engine; for CoAP libcoap's coap-client, Python's aiocoap and npm's coap; for MQTT-SN Python's mqttsn; for AMQP Python's
//! qpid-proton and npm's rhea.
//!
//! `rumqttc` is linked in and always runs. The others are installed under `target/clients/` at their pinned versions, or
//! taken from the path; a test that misses its client is skipped and counted (`tidegate_test_support::skip`).
//! Nothing sleeps: a step waits for what it needs, and that nothing else arrived is shown by a last message that did.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod aiocoap;
mod broker;
mod curl;
mod install;
mod libcoap;
mod libcoap_dtls;
mod mosquitto;
mod mosquitto_bridge;
mod mqttjs;
mod mqttsn;
mod nodecoap;
mod paho;
mod proton;
mod rdflib;
mod rhea;
mod rumqtt;
mod sepajs;
mod sepy;
mod tool;
