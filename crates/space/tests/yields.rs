//! What was taken for short and takes long gives its reader to others, goes on later, and is answered once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a step that cannot be done has failed the test")]

mod common;

use std::time::Instant;

/// All of four that nobody has asked before take long: three had all readers but the one for what is known to be short.
#[test]
fn what_nobody_knows_is_answered_while_others_that_nobody_knew_take_long() {
    let broker = common::start();
    let values: Vec<String> = (0..300).map(|n| format!("<urn:{n}> <urn:p> {n} .")).collect();
    assert_eq!(broker.update(&format!("INSERT DATA {{ {} }}", values.join(" "))).status, 200);
    let kind = [("Content-Type", "application/sparql-query")];
    // Products of three hundred to the fourth: none of them comes to an end.
    let endless = |sum: u32| {
        let text = format!(
            "SELECT (COUNT(*) AS ?n) {{ ?a <urn:p> ?b . ?c <urn:p> ?d . ?e <urn:p> ?f . ?g <urn:p> ?h \
             FILTER(?b + ?d + ?f + ?h = {sum}) }}"
        );
        broker.request("POST", "/query?timeout=5s", &kind, text.as_bytes())
    };
    let yielded = || broker.handle().cancelled().iter().any(|(why, count)| *why == "yielded" && *count >= 2);
    std::thread::scope(|scope| {
        let long: Vec<_> = (0..4)
            .map(|sum| {
                scope.spawn({
                    let endless = &endless;
                    move || endless(sum)
                })
            })
            .collect();
        let began = Instant::now();
        while !yielded() {
            assert!(began.elapsed() < common::PATIENCE, "nobody yields");
            std::thread::yield_now();
        }
        let short = broker.query("SELECT ?x { <urn:7> <urn:p> ?x }", "text/csv");
        assert_eq!((short.status, short.body.contains('7')), (200, true), "{}", short.body);
        assert!(long.iter().all(|long| !long.is_finished()), "it did not wait for them");
        for long in long {
            let answer = long.join().unwrap();
            assert_eq!(answer.status, 503, "{}", answer.body);
            assert!(answer.body.contains("not done in time"), "{}", answer.body);
        }
    });
    assert_eq!(broker.handle().watch().running().len(), 0);
}
