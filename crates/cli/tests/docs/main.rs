//! The documentation is true: its commands run, its configurations are sound, its links lead somewhere, and what is
//! generated from the code is what the code says.
//!
//! Blocks ```` ```sh ```` and ```` ```console ```` are run against the built program, with brokers on free ports in a folder of
//! their own. A block that cannot be run says so, with the reason, in a comment before it: `<!-- not run: needs root -->`.
//! Where a sample of output is shown, its words must still be printed, and after `<!-- exact: seeded -->` its lines to the letter.
//! Pages that are generated are written anew with `TIDEGATE_BLESS=1 cargo test -p tidegate-cli --test docs`.

#![allow(clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod generated;
mod page;
mod refer;
mod run;

use page::Page;

macro_rules! pages {
    ($($test:ident: $path:literal,)+) => {
        /// Pages whose blocks are run.
        const RUN: &[&str] = &[$($path),+];
        mod commands {
            $(#[test]
            fn $test() {
                let complaints = crate::run::run(&crate::Page::read($path));
                assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
            })+
        }
    };
}

pages! {
    readme: "README.md",
    contributing: "CONTRIBUTING.md",
    quick_start: "docs/quick-start.md",
    concepts: "docs/concepts.md",
    configuration: "docs/configuration.md",
    overload: "docs/overload.md",
    operations: "docs/operations.md",
    what_if: "docs/what-if.md",
    dashboard: "docs/dashboard.md",
    metrics: "docs/metrics.md",
    security: "docs/security.md",
    durability: "docs/durability.md",
    cluster: "docs/cluster.md",
    bridge: "docs/bridge.md",
    guard: "docs/guard.md",
    sinks: "docs/sinks.md",
    mosquitto: "docs/mosquitto.md",
    upgrading: "docs/upgrading.md",
    smart_space: "docs/smart-space.md",
    coap: "docs/coap.md",
    sn: "docs/sn.md",
    http: "docs/http.md",
    sdk: "docs/sdk.md",
    pace_hints: "docs/pace-hints.md",
    benchmarks: "docs/benchmarks.md",
    bench_figures: "docs/internals/bench-figures.md",
    evaluation: "docs/evaluation.md",
    testbed: "docs/testbed.md",
    own_algorithm: "docs/own-algorithm.md",
    papers: "docs/papers.md",
    architecture: "docs/ARCHITECTURE.md",
    packages: "dist/README.md",
    control: "docs/control/README.md",
    cli: "crates/cli/README.md",
    client: "crates/client/README.md",
    fuzz: "fuzz/README.md",
}

/// Pages that are not in the list above must have nothing to run.
#[test]
fn every_page_with_commands_is_run() {
    for name in refer::all_pages() {
        if RUN.contains(&name.as_str()) {
            continue;
        }
        for block in Page::read(&name).blocks() {
            let is_command = ["sh", "console", "bash", "shell"].contains(&block.language.as_str());
            assert!(!is_command, "{name}:{}: add the page to the list in tests/docs/main.rs", block.line);
        }
    }
}
