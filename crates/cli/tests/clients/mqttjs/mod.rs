//! npm's `mqtt` (MQTT.js) with its dependencies as `package-lock.json` has them. The scenarios are in `suite.cjs` and
//! `version5.cjs`.

#[test]
fn scenarios() {
    crate::tool::node_suite("MQTT.js", "mqtt-5.16.0", "mqttjs", (4 * 2 + 2) * 9 + 12);
}
