//! The dearest texts and documents that are accepted, one for each bound: `cargo bench -p tidegate-graph --bench bounds`.
//! Prints how long each takes from its first byte to its parse, its run and its subscription, in milliseconds. Words as
//! arguments choose the lines that contain them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::format_collect,
    reason = "a benchmark"
)]

use std::sync::LazyLock;
use std::time::Instant;

use oxrdfio::{JsonLdProfileSet, RdfFormat};
use tidegate_graph::{GraphSpace, Limit, Query, QueryAnswer, QueryLimits, RdfLimits, SpaceLimits, Update, read_rdf};

fn main() {
    println!("{:>8} {:>8} {:>8} {:>8}  what", "bytes", "parse", "run", "follow");
    reads();
    patterns();
    joins();
    nests();
    names_and_data();
    documents();
}

fn is_wanted(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// Milliseconds that this thread has computed, where the system says so; others may be busy beside.
fn now() -> u64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = spent.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    nanoseconds.unwrap_or_else(|| START.elapsed().as_nanos() as u64) / 1_000_000
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn time_document(name: &str, format: RdfFormat, text: &str) {
    let begin = now();
    let outcome = read_rdf(text.as_bytes(), format, None, None, &RdfLimits::default());
    let parse = now() - begin;
    let outcome = outcome.map_or_else(|error| short(&error.to_string()), |read| format!("{} quads", read.quads.len()));
    println!("{:>8} {parse:>8} {:>8} {:>8}  {name}: {outcome}", text.len(), "", "");
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

fn time_text(name: &str, text: &str) {
    let limits = QueryLimits { steps_max: 1000, ..QueryLimits::default() };
    let mut space = GraphSpace::new(1, SpaceLimits { standing: limits.clone(), ..SpaceLimits::default() });
    let data = "INSERT DATA { <urn:a> <urn:p> <urn:b>, 1 . <urn:b> <urn:p> <urn:a> }";
    space.update(&Update::parse(data, &limits).unwrap(), &limits).unwrap();
    let begin = now();
    if name.contains("update") {
        let update = Update::parse(text, &limits);
        let parse = now() - begin;
        let outcome = update.map_or_else(|error| short(&error.to_string()), |_| String::from("accepted"));
        println!("{:>8} {parse:>8} {:>8} {:>8}  {name}: {outcome}", text.len(), "", "");
        return;
    }
    let query = Query::parse(text, &limits);
    let parse = now() - begin;
    let query = match query {
        Ok(query) => query,
        Err(error) => {
            println!("{:>8} {parse:>8} {:>8} {:>8}  {name}: {}", text.len(), "", "", short(&error.to_string()));
            return;
        }
    };
    let begin = now();
    let outcome = match query.run(&space.snapshot(), &limits) {
        Ok(QueryAnswer::Rows(rows)) => format!("{} rows", rows.count()),
        Ok(QueryAnswer::Triples(triples)) => format!("{} triples", triples.count()),
        Ok(QueryAnswer::Boolean(answer)) => answer.to_string(),
        Err(error) => error.to_string(),
    };
    let run = now() - begin;
    let begin = now();
    let followed = space.subscribe(&query).map(|subscribed| space.is_followed(subscribed.subscriber));
    let follow = now() - begin;
    println!("{:>8} {parse:>8} {run:>8} {follow:>8}  {name}: {}, {followed:?}", text.len(), short(&outcome));
}

/// The largest number of repetitions that no limit of texts refuses, by halves.
fn most(upper: usize, text: impl Fn(usize) -> String) -> String {
    let limits = QueryLimits::default();
    let fits = |count: usize| !matches!(Query::parse(&text(count), &limits), Err(error) if error.limit().is_some());
    let (mut low, mut high) = (1, upper);
    while low < high {
        let middle = (low + high).div_ceil(2);
        (low, high) = if fits(middle) { (middle, high) } else { (low, middle - 1) };
    }
    text(low)
}

/// Times the longest text of a kind that is accepted, and the same with something wrong at its end.
fn add(name: &str, upper: usize, text: &dyn Fn(usize) -> String) {
    if is_wanted(name) {
        let whole = most(upper, text);
        time_text(name, &whole);
        time_text(&format!("{name} wrong"), &format!("{whole} §"));
    }
}

fn reads() {
    for depth in [0, 3, 6, 9, 12] {
        for (what, open, close) in [
            ("not", "!(", ")"),
            ("regex", "REGEX(", ",'a')"),
            ("sum", "SUM(", ")"),
            ("concat", "GROUP_CONCAT(", ")"),
            ("exists", "!EXISTS { FILTER(", ") }"),
        ] {
            for (inner, piece) in [("list", ",1"), ("sums", ",?a+1"), ("names", ",<urn:a>"), ("calls", ",STR(?a)")] {
                add(&format!("reads {what} {depth} {inner}"), 1 << 17, &|count| {
                    format!(
                        "SELECT * {{ ?a ?b ?c FILTER({}?a IN (1{}){}) }}",
                        open.repeat(depth),
                        piece.repeat(count),
                        close.repeat(depth)
                    )
                });
            }
        }
    }
}

fn patterns() {
    add("patterns objects", 1 << 13, &|count| format!("ASK {{ ?s <urn:p> 1{} }}", ",1".repeat(count)));
    add("patterns path objects", 1 << 13, &|count| format!("ASK {{ ?s <urn:p>* 1{} }}", ",1".repeat(count)));
    add("patterns list", 1 << 13, &|count| format!("ASK {{ ?s <urn:p> ({}) }}", " 1".repeat(count)));
    add("patterns group by", 1 << 13, &|count| format!("SELECT * {{}} GROUP BY {}", "STR(?a)".repeat(count)));
    add("patterns having", 1 << 13, &|count| format!("SELECT ?a {{}} GROUP BY ?a HAVING {}", "(1)".repeat(count)));
    add("patterns sums", 1 << 13, &|count| {
        let sums: String = (0..count).map(|n| format!("(SUM({n}) AS ?v{n}) ")).collect();
        format!("SELECT {sums} {{ ?s ?p ?o }}")
    });
    add("patterns having sums", 1 << 13, &|count| {
        let sums: String = (0..count).map(|n| format!("(SUM({n})) ")).collect();
        format!("SELECT ?a {{ ?a ?p ?o }} GROUP BY ?a HAVING {sums}")
    });
    add("patterns order sums", 1 << 13, &|count| {
        let sums: String = (0..count).map(|n| format!("(SUM({n})) ")).collect();
        format!("SELECT ?a {{ ?a ?p ?o }} GROUP BY ?a ORDER BY {sums}")
    });
    add("patterns template", 1 << 13, &|count| format!("CONSTRUCT {{ ?s ?p 1{} }} {{ ?s ?p ?o }}", ",1".repeat(count)));
    add("patterns template blank", 1 << 13, &|count| {
        format!("CONSTRUCT {{ {} }} {{ ?s ?p ?o }}", "[] <urn:p> [] .".repeat(count))
    });
    add("own names", 1 << 16, &|count| {
        let names: String = (0..count).map(|n| format!(",<urn:{n:020x}>")).collect();
        format!("ASK {{ ?s ?p ?o FILTER(?s IN (1{names})) }}")
    });
}

fn joins() {
    add("join same", 300, &|count| format!("SELECT * {{ {} }}", "?s ?p ?o .".repeat(count)));
    add("join star", 300, &|count| {
        let triples: String = (0..count).map(|n| format!("?s <urn:p> ?v{n} . ")).collect();
        format!("SELECT * {{ {triples} }}")
    });
    add("join chain", 300, &|count| {
        let triples: String = (0..count).map(|n| format!("?v{n} <urn:p> ?v{} . ", n + 1)).collect();
        format!("SELECT * {{ {triples} }}")
    });
    add("join apart", 300, &|count| {
        let triples: String = (0..count).map(|n| format!("?v{n} <urn:p> ?w{n} . ")).collect();
        format!("SELECT * {{ {triples} }}")
    });
    add("join predicates", 300, &|count| {
        let triples: String = (0..count).map(|n| format!("?v{n} ?p ?w{n} . ")).collect();
        format!("SELECT * {{ {triples} }}")
    });
    add("join paths", 300, &|count| {
        let triples: String = (0..count).map(|n| format!("?v{n} <urn:p>* ?v{} . ", n + 1)).collect();
        format!("SELECT * {{ {triples} }}")
    });
    add("join values", 300, &|count| {
        let triples: String = (0..count).map(|n| format!("VALUES (?s ?v{n}) {{ (1 2) }} ")).collect();
        format!("SELECT * {{ {triples} }}")
    });
    add("join wide values", 300, &|count| {
        let names: String = (0..900).map(|n| format!("?v{n} ")).collect();
        let row = "1 ".repeat(900);
        format!("SELECT * {{ {} }}", format!("VALUES ({names}) {{ ({row}) }} ").repeat(count))
    });
}

fn nests() {
    for (what, open, close) in [
        ("optional", "?s ?p ?o OPTIONAL { ", "}"),
        ("minus", "?s ?p ?o MINUS { ", "}"),
        ("group", "?s ?p ?o { ", "}"),
        ("union", "{ ?s ?p ?o } UNION { ", "}"),
        ("lateral", "?s ?p ?o LATERAL { ", "}"),
        ("exists", "?s ?p ?o FILTER EXISTS { ", "}"),
        ("select", "?s ?p ?o { SELECT * { ", "} }"),
        ("graph", "?s ?p ?o GRAPH ?g { ", "}"),
    ] {
        add(&format!("nest {what}"), 40, &|depth| {
            format!("SELECT * {{ {} ?s ?p ?o {} }}", open.repeat(depth), close.repeat(depth))
        });
        add(&format!("nest wide {what}"), 40, &|depth| {
            let open: String = (0..depth)
                .map(|n| open.replace("?s ?p ?o", &format!("?s ?p{n} ?o{n} . ?o{n} <urn:p> ?q{n} .")))
                .collect();
            format!("SELECT * {{ {open} ?s ?p ?o {} }}", close.repeat(depth))
        });
    }
    for (what, piece) in [
        ("optionals", "OPTIONAL { ?s ?p ?oN }"),
        ("filters", "FILTER(?s != N)"),
        ("unions", "{ ?s ?p ?oN } UNION "),
        ("binds", "BIND(?s + N AS ?vN)"),
        ("exists", "FILTER EXISTS { ?s ?p ?oN }"),
    ] {
        add(&format!("beside {what}"), 200, &|count| {
            let pieces: String = (0..count).map(|n| piece.replace('N', &n.to_string())).collect();
            format!("SELECT * {{ ?s ?p ?o {pieces} {{}} }}")
        });
    }
}

fn names_and_data() {
    add("names", 40_000, &|count| {
        let names = "a:b ".repeat(count);
        format!("PREFIX a: <urn:{}> SELECT * {{ VALUES ?a {{ {names} }} }}", "x".repeat(800))
    });
    let data = |piece: &str| format!("INSERT DATA {{ {} }}", piece.repeat(((1 << 20) - 100) / piece.len()));
    for (what, piece) in
        [("triples", "<urn:a> <urn:b> 1 ."), ("blank", "[] a [] ."), ("names", "a:b a 1 ."), ("lists", "[] a (1 1) .")]
    {
        let name = format!("update {what}");
        if is_wanted(&name) {
            time_text(&name, &format!("PREFIX a: <a:> {}", data(piece)));
            time_text(&format!("{name} wrong"), &format!("PREFIX a: <a:> {} §", data(piece)));
        }
    }
}

fn time_wanted(name: &str, format: RdfFormat, text: &str) {
    if is_wanted(name) {
        time_document(name, format, text);
    }
}

fn documents() {
    let json = RdfFormat::JsonLd { profile: JsonLdProfileSet::empty() };
    let fill = |before: &str, piece: &str, after: &str, bytes: usize| {
        let count = (bytes - before.len() - after.len()) / (piece.len() + 1);
        format!("{before}{}{after}", vec![piece; count].join(","))
    };
    let add = |name: String, open: &str, piece: &str, close: &str, depth: usize| {
        if !is_wanted(&format!("json {name}")) {
            return;
        }
        // The largest that is accepted, by eighths of its bytes.
        let text_of = |bytes: usize| fill(&open.repeat(depth), piece, &close.repeat(depth), bytes);
        let limits = RdfLimits { quads_max: 0, ..RdfLimits::default() };
        let refused = |bytes: usize| {
            // With no quad allowed this ends soon after the check.
            let read = read_rdf(text_of(bytes).as_bytes(), json, None, None, &limits);
            read.is_err_and(|error| error.limit().is_some_and(|limit| limit != Limit::ChangeQuads))
        };
        let mut bytes = 4 << 20;
        while bytes > 1 << 10 && refused(bytes) {
            bytes -= bytes / 8;
        }
        time_document(&format!("json {name} {depth}"), json, &text_of(bytes));
    };
    for (what, piece) in [
        ("numbers", "1"),
        ("texts", "\"a\""),
        ("objects", "{\"urn:p\":1}"),
        ("nodes", "{\"@id\":\"urn:a\",\"urn:p\":[1]}"),
        ("empty", "{}"),
        ("lists", "[]"),
    ] {
        for depth in [1, 8, 15, 30] {
            add(format!("plain {what}"), "{\"urn:p\":[", piece, "]}", depth / 2 + 1);
        }
        for depth in [8, 15, 30] {
            add(format!("late {what}"), "{\"urn:p\":[", piece, "],\"@context\":{\"a\":\"urn:a\"}}", depth / 2);
            add(format!("list {what}"), "{\"@list\":[", piece, "]}", depth / 2);
            add(format!("graph {what}"), "{\"@graph\":[", piece, "],\"@id\":\"urn:g\"}", depth / 2);
            add(format!("included {what}"), "{\"@included\":[", piece, "]}", depth / 2);
            add(format!("arrays {what}"), "[", piece, "]", depth);
        }
    }
    for (names, uses) in [(1000, 1000), (100, 10_000), (10, 100_000), (999, 1000)] {
        let terms: String = (0..names - 3).map(|n| format!(r#""t{n}":"urn:{n}","#)).collect();
        let used = vec![r#"{"s":{"t1":1}}"#; uses / 3].join(",");
        let context = format!(r#"{{{terms}"s":{{"@id":"urn:s","@context":{{"x":"urn:x"}}}}}}"#);
        time_wanted(
            &format!("json scoped {names} {uses}"),
            json,
            &format!(r#"{{"@context":{context},"@graph":[{used}]}}"#),
        );
        let used = vec![r#"{"@context":{},"t1":1}"#; uses].join(",");
        time_wanted(
            &format!("json contexts {names} {uses}"),
            json,
            &format!(r#"{{"@context":{{{terms}"z":"urn:z"}},"@graph":[{used}]}}"#),
        );
        let used = vec![r#"{"@context":{"q":"t1:q"},"t1":1}"#; uses / 2].join(",");
        time_wanted(
            &format!("json names {names} {uses}"),
            json,
            &format!(r#"{{"@context":{{{terms}"z":"urn:z"}},"@graph":[{used}]}}"#),
        );
    }
}
