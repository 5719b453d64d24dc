//! Python's aiocoap. The scenarios are in `suite.py`.

#[test]
fn scenarios() {
    crate::tool::python_suite("aiocoap", "aiocoap-0.4.17", "aiocoap", 7);
}
