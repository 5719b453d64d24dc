//! npm's `rhea` with its dependencies as `package-lock.json` has them. The scenarios are in `suite.cjs`.

#[test]
fn scenarios() {
    crate::tool::node_suite("rhea (npm)", "rhea-3.0.4", "rhea", 4);
}
