//! Inserts, queries, memory and standing queries of `tidegate-graph`, beside oxigraph's store in memory where it has the
//! same. One run prints everything; ratios within a run count, not absolute figures.

use std::fs;
use std::time::Instant;

use oxigraph::sparql::{QueryResults, SparqlEvaluator};
use oxigraph::store::Store;
use oxrdf::{GraphName, Literal, NamedNode, Quad};
use tidegate_graph::{GraphSpace, Mask, Query, QueryAnswer, QueryLimits, SpaceLimits, Update};

const SENSORS_PER_ROOM: usize = 10;

fn iri(text: String) -> NamedNode {
    NamedNode::new_unchecked(text)
}

fn sensor(n: usize) -> NamedNode {
    iri(format!("http://example.org/sensor/{n}"))
}

/// Two triples a sensor: the room it is in and its value.
fn quads(triples: usize) -> impl Iterator<Item = Quad> {
    (0..triples / 2).flat_map(|n| {
        let room = iri(format!("http://example.org/room/{}", n / SENSORS_PER_ROOM));
        [
            Quad::new(room, iri("http://example.org/contains".into()), sensor(n), GraphName::DefaultGraph),
            Quad::new(
                sensor(n),
                iri("http://example.org/value".into()),
                Literal::from(n as u64),
                GraphName::DefaultGraph,
            ),
        ]
    })
}

fn point(n: usize) -> String {
    format!("SELECT ?v {{ <http://example.org/sensor/{n}> <http://example.org/value> ?v }}")
}

fn join(n: usize) -> String {
    format!(
        "SELECT ?s ?v {{ <http://example.org/room/{n}> <http://example.org/contains> ?s . ?s <http://example.org/value> ?v }}"
    )
}

fn replace(n: usize, value: usize) -> String {
    let sensor = sensor(n);
    format!(
        "DELETE {{ {sensor} <http://example.org/value> ?v }} INSERT {{ {sensor} <http://example.org/value> {value} }} WHERE {{ {sensor} <http://example.org/value> ?v }}"
    )
}

fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Microseconds for one of `count`.
fn each(count: usize, mut work: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..count).for_each(&mut work);
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn ask_ours(space: &GraphSpace, text: &str) -> usize {
    let limits = QueryLimits::default();
    let snapshot = space.snapshot();
    let query = Query::parse(text, &limits).expect("SPARQL");
    match query.run(&snapshot, &limits).expect("an answer") {
        QueryAnswer::Rows(rows) => rows.map(|row| row.expect("a row")).count(),
        _ => 0,
    }
}

fn ask_peer(store: &Store, text: &str) -> usize {
    let query = SparqlEvaluator::new().parse_query(text).expect("SPARQL");
    match query.on_store(store).execute().expect("an answer") {
        QueryResults::Solutions(rows) => rows.map(|row| row.expect("a row")).count(),
        _ => 0,
    }
}

fn update_ours(space: &mut GraphSpace, text: &str) {
    let limits = QueryLimits::default();
    space.update(&Update::parse(text, &limits).expect("SPARQL"), &limits).expect("done");
}

fn update_peer(store: &Store, text: &str) {
    SparqlEvaluator::new().parse_update(text).expect("SPARQL").on_store(store).execute().expect("done");
}

fn line(what: &str, ours: f64, peer: f64) {
    println!("{what:<44} {ours:>10.2} µs {peer:>10.2} µs   {:>5.2}×", peer / ours);
}

fn beside_the_peer(triples: usize) {
    println!("\n{triples} triples{:>46} {:>13}   peer/ours", "ours", "oxigraph");
    let before = resident();
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    let data: Vec<Quad> = quads(triples).collect();
    let with_data = resident();
    let ours = each(data.len(), |n| drop(space.edit(&[], std::slice::from_ref(&data[n])).expect("done")));
    let bytes = resident().saturating_sub(with_data) as f64 / data.len() as f64;
    let with_ours = resident();
    let store = Store::new().expect("a store");
    let peer = each(data.len(), |n| {
        store.insert(&data[n]).expect("done");
    });
    let peer_bytes = resident().saturating_sub(with_ours) as f64 / data.len() as f64;
    line("insert of one triple", ours, peer);
    let (sensors, rooms) = (triples / 2, triples / 2 / SENSORS_PER_ROOM);
    let count = 20_000;
    let place = |n: usize, of: usize| n.wrapping_mul(7919) % of;
    let ours = each(count, |n| assert_eq!(ask_ours(&space, &point(place(n, sensors))), 1));
    let peer = each(count, |n| assert_eq!(ask_peer(&store, &point(place(n, sensors))), 1));
    line("point query, parsing included", ours, peer);
    let ours = each(count / 4, |n| assert_eq!(ask_ours(&space, &join(place(n, rooms))), SENSORS_PER_ROOM));
    let peer = each(count / 4, |n| assert_eq!(ask_peer(&store, &join(place(n, rooms))), SENSORS_PER_ROOM));
    line("join of 10 rows, parsing included", ours, peer);
    let ours = each(count, |n| update_ours(&mut space, &replace(place(n, sensors), n)));
    let peer = each(count, |n| update_peer(&store, &replace(place(n, sensors), n)));
    line("DELETE/INSERT WHERE of one value", ours, peer);
    println!(
        "{:<44} {bytes:>10.0} B  {peer_bytes:>10.0} B    (resident; {} MB before)",
        "bytes a triple",
        before >> 20
    );
}

fn churn() {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    let data: Vec<Quad> = quads(12_000).collect();
    space.edit(&[], &data).expect("done");
    let before = resident();
    let store = Store::new().expect("a store");
    data.iter().for_each(|quad| drop(store.insert(quad).expect("done")));
    let before_peer = resident();
    each(200_000, |n| update_ours(&mut space, &replace(n % 6000, n)));
    let ours = resident().saturating_sub(before_peer);
    let start = resident();
    each(200_000, |n| update_peer(&store, &replace(n % 6000, n)));
    let peer = resident().saturating_sub(start);
    println!(
        "\n200 000 replaces of 6 000 values: resident grows by {} kB, oxigraph {} kB ({} kB before)",
        ours >> 10,
        peer >> 10,
        before >> 10
    );
}

fn standing() {
    println!("\nupdate of one value under subscriptions that do not match");
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    space.edit(&[], &quads(20_000).collect::<Vec<_>>()).expect("done");
    let limits = QueryLimits::default();
    let mut made = 0;
    let first = Query::parse(&point(1_000_000_000), &limits).expect("SPARQL");
    for subscriptions in [0, 1_000, 10_000, 100_000] {
        while made < subscriptions {
            if made % 2 == 0 {
                space.subscribe(&Query::parse(&point(1_000_000 + made), &limits).expect("SPARQL")).expect("room");
            } else {
                let mask = Mask { subject: Some(sensor(1_000_000 + made).into()), ..Mask::default() };
                space.subscribe_masks(&[mask]).expect("room");
            }
            made += 1;
        }
        if subscriptions == 0 {
            // One standing query from the start: with none at all the writer does not even keep the data before.
            space.subscribe(&first).expect("room");
        }
        let mut runs: Vec<f64> =
            (0..5).map(|_| each(10_000, |n| update_ours(&mut space, &replace(n % 10_000, n)))).collect();
        runs.sort_by(f64::total_cmp);
        println!("{subscriptions:>9} {:>10.2} µs", runs[2]);
    }
    for subscribers in [1, 100, 10_000] {
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        space.edit(&[], &quads(20_000).collect::<Vec<_>>()).expect("done");
        let query = Query::parse(&point(7), &limits).expect("SPARQL");
        let all: Vec<_> = (0..subscribers).map(|_| space.subscribe(&query).expect("room").subscriber).collect();
        let count = 2_000_000 / (subscribers + 1000);
        let one = each(count, |n| {
            update_ours(&mut space, &replace(7, 1_000_000 + n));
            assert_eq!(space.ready().len(), subscribers);
            all.iter().for_each(|subscriber| assert!(space.poll(*subscriber).expect("known").is_some()));
        });
        println!(
            "update seen and polled by {subscribers:>6} subscribers {one:>10.2} µs, {:.0} notifications/s",
            subscribers as f64 * 1e6 / one
        );
    }
}

/// Only our updates by `WHERE`, for a profiler.
fn updates() {
    let mut space = GraphSpace::new(1, SpaceLimits::default());
    space.edit(&[], &quads(10_000).collect::<Vec<_>>()).expect("done");
    let one = each(500_000, |n| update_ours(&mut space, &replace(n % 5000, n)));
    println!("DELETE/INSERT WHERE of one value {one:.2} µs");
}

/// Everything, or the one part that is named: `updates`, `standing`.
fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("updates") => updates(),
        Some("standing") => standing(),
        _ => {
            beside_the_peer(10_000);
            beside_the_peer(1_000_000);
            churn();
            standing();
        }
    }
}
