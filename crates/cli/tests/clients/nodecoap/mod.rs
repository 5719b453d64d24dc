//! npm's `coap` with its dependencies as `package-lock.json` has them. The scenarios are in `suite.cjs`.

#[test]
fn scenarios() {
    crate::tool::node_suite("coap (npm)", "coap-1.5.0", "nodecoap", 3);
}
