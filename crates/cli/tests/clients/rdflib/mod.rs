//! Another SPARQL engine, Python's `rdflib`, in a virtual environment of its own: it does every update that the smart space does,
//! and answers every question beside it. The scenarios are in `suite.py`.

#[test]
fn scenarios() {
    crate::tool::python_suite("rdflib", "rdflib-7.6.0", "rdflib", 2);
}
