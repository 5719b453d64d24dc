//! Python's paho-mqtt, in a virtual environment of its own. The scenarios are in `suite.py` and `version5.py`.

#[test]
fn scenarios() {
    crate::tool::python_suite("paho-mqtt", "paho-mqtt-2.1.0", "paho", 3 * 8 + 6 * 7 + 11);
}
