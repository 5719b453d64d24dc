//! Python's qpid-proton, which is built here from its source. The scenarios are in `suite.py`.

#[test]
fn scenarios() {
    crate::tool::python_suite("python-qpid-proton", "python-qpid-proton-0.40.0", "proton", 8);
}
