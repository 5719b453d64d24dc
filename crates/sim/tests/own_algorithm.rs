//! The page about algorithms of one's own has the code of the example, and the example does what the page says.

use std::fs;
use std::path::Path;

#[path = "../examples/own_algorithm.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod own_algorithm;

#[test]
fn the_page_has_the_whole_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = fs::read_to_string(root.join("examples/own_algorithm.rs")).expect("the example");
    let page = fs::read_to_string(root.join("../../docs/own-algorithm.md")).expect("the page");
    assert!(
        page.contains(code.trim()),
        "docs/own-algorithm.md has another code than crates/sim/examples/own_algorithm.rs"
    );
}

#[test]
fn the_comparison_runs_and_judges() {
    let experiment = own_algorithm::compare(3).expect("a comparison");
    assert_eq!((experiment.results.len(), experiment.replications()), (3, 3));
    let verdicts = experiment.verdicts();
    assert_eq!(verdicts.len(), 1);
    assert!(verdicts[0].holds, "who waits longer after a refusal asks less: {verdicts:?}");
    let again = own_algorithm::compare(3).expect("a comparison");
    assert_eq!(experiment.results[1].runs, again.results[1].runs, "a seed repeats a run");
}
