//! npm's `@arces-wot/sepa-js` with its dependencies as `package-lock.json` has them. The scenarios are in `suite.cjs`.

#[test]
fn scenarios() {
    crate::tool::node_suite("sepa-js", "sepa-js-0.13.2", "sepajs", 3);
}
