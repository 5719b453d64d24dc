//! Python's mqttsn, which descends from the client that the authors of MQTT-SN wrote. The scenarios are in `suite.py`.

#[test]
fn scenarios() {
    crate::tool::python_suite("mqttsn", "mqttsn-0.0.4", "mqttsn", 7);
}
