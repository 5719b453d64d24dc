//! SEPA's Python client `sepy`, in a virtual environment of its own. The scenarios are in `suite.py`.

#[test]
fn scenarios() {
    crate::tool::python_suite("sepy", "sepy-0.43.2.1", "sepy", 3);
}
