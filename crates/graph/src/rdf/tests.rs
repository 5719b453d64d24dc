//! Documents at and beyond every limit; nothing here measures time.

#![allow(clippy::format_collect, reason = "documents are written once")]

use oxrdf::NamedNode;
use oxrdfio::{JsonLdProfileSet, RdfFormat};

use super::*;
use crate::error::TextPlace;

const JSON: RdfFormat = RdfFormat::JsonLd { profile: JsonLdProfileSet::empty() };

fn read(document: &str, format: RdfFormat) -> Result<RdfDocument, GraphError> {
    read_rdf(document.as_bytes(), format, None, None, &RdfLimits::default())
}

fn limit(document: &str, format: RdfFormat) -> Option<Limit> {
    read(document, format).err().and_then(|error| error.limit())
}

fn nested(open: &str, middle: &str, close: &str, depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn documents_of_every_format_are_read() {
    let graph = GraphName::from(NamedNode::new_unchecked("urn:g"));
    for (format, text) in [
        (RdfFormat::Turtle, "<urn:a> <urn:b> 'c' ."),
        (RdfFormat::TriG, "<urn:a> <urn:b> 'c' ."),
        (RdfFormat::NTriples, "<urn:a> <urn:b> \"c\" ."),
        (RdfFormat::NQuads, "<urn:a> <urn:b> \"c\" ."),
        (RdfFormat::N3, "<urn:a> <urn:b> 'c' ."),
        (JSON, r#"{"@id": "urn:a", "urn:b": "c"}"#),
        (
            RdfFormat::RdfXml,
            "<r:RDF xmlns:r='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>\
             <r:Description r:about='urn:a' xmlns:u='urn:'><u:b>c</u:b></r:Description></r:RDF>",
        ),
    ] {
        let document = read_rdf(text.as_bytes(), format, None, Some(&graph), &RdfLimits::default()).unwrap();
        assert_eq!(document.quads.len(), 1, "{format}");
        assert_eq!(document.quads[0].to_string(), "<urn:a> <urn:b> \"c\" <urn:g>", "{format}");
        assert!(document.bytes > size_of::<Quad>(), "{format}");
        let none = RdfLimits { memory_max: 10, ..RdfLimits::default() };
        let refused = read_rdf(text.as_bytes(), format, None, None, &none);
        assert_eq!(refused, Err(Limit::DocumentMemory.into()), "{format}");
        let none = RdfLimits { quads_max: 0, ..RdfLimits::default() };
        assert_eq!(read_rdf(text.as_bytes(), format, None, None, &none), Err(Limit::ChangeQuads.into()), "{format}");
        let cancelled = RdfLimits::default();
        cancelled.cancel.cancel();
        assert_eq!(read_rdf(text.as_bytes(), format, None, None, &cancelled), Err(GraphError::Cancelled), "{format}");
    }
}

#[test]
fn a_base_makes_relative_names_whole() {
    let read = |base| read_rdf(b"<a> <urn:b> 1 .", RdfFormat::Turtle, base, None, &RdfLimits::default());
    assert_eq!(read(Some("http://e/")).unwrap().quads[0].subject.to_string(), "<http://e/a>");
    assert!(
        matches!(read(None), Err(GraphError::NotRdf(_))) && matches!(read(Some("x y")), Err(GraphError::NotRdf(_)))
    );
}

#[test]
fn f096_nested_json_is_refused_before_it_is_understood() {
    let shapes = [
        (r#"{"urn:p":"#, "1", "}"),
        (r#"{"@id":"urn:a","urn:p":"#, "1", "}"),
        (r#"{"@set":["#, "1", "]}"),
        (r#"{"@list":["#, "1", "]}"),
        (r#"{"@reverse":{"urn:p":"#, r#"{"@id":"urn:a"}"#, "}}"),
        (r#"{"@graph":["#, "{}", "]}"),
        (r#"{"@included":["#, "{}", "]}"),
        (r#"{"@context":{"a":{"@id":"urn:a","@context":"#, "{}", "}}}"),
        ("[", "1", "]"),
    ];
    for (open, middle, close) in shapes {
        let levels = open.matches(['{', '[']).count();
        for depth in [json::DEPTH_MAX / levels + 1, 5000, 20_000] {
            let text = format!(r#"{{"urn:p":{}}}"#, nested(open, middle, close, depth));
            assert_eq!(limit(&text, JSON), Some(Limit::Depth), "{open} {depth}");
        }
        let text = nested(open, middle, close, (json::DEPTH_MAX - 1) / levels);
        let text = format!(r#"{{"urn:p":{text}}}"#);
        assert_eq!(limit(&text, JSON), None, "{open}");
    }
    let place = TextPlace { line: 2, column: json::DEPTH_MAX + 1 };
    assert_eq!(read(&format!("\n{}", "[".repeat(99)), JSON), Err(GraphError::LimitAt(Limit::Depth, place)));
}

#[test]
fn brackets_in_texts_of_json_are_no_levels() {
    let brackets = "[{".repeat(1000);
    assert_eq!(read(&format!(r#"{{"@id":"urn:a","urn:p":"\"{brackets}"}}"#), JSON).unwrap().quads.len(), 1);
}

#[test]
fn contexts_that_multiply_are_refused() {
    let terms = |count: usize| (0..count).map(|n| format!(r#""t{n}":"urn:{n}","#)).collect::<String>();
    let scoped = |count: usize, uses: usize| {
        let context = format!(r#"{{{}"s":{{"@id":"urn:s","@context":{{}}}}}}"#, terms(count));
        let used = vec![r#"{"s":{"t1":1}}"#; uses].join(",");
        format!(r#"{{"@context":{context},"@graph":[{used}]}}"#)
    };
    assert_eq!(limit(&scoped(400, 100), JSON), None);
    assert_eq!(limit(&scoped(400, 10_000), JSON), Some(Limit::Contexts));
    let list = |count: usize| vec![r#"{"a":"urn:a"}"#; count].join(",");
    assert_eq!(limit(&format!(r#"{{"@context":[{}]}}"#, list(100)), JSON), None);
    assert_eq!(limit(&format!(r#"{{"@context":[{}]}}"#, list(100_000)), JSON), Some(Limit::Contexts));
    let objects = (0..300).map(|n| format!(r#""t{n}":{{"@id":"urn:{n}","@type":"@id"}},"#)).collect::<String>();
    assert_eq!(limit(&format!(r#"{{"@context":{{{objects}"z":"urn:z"}},"z":[{}1]}}"#, "1,".repeat(9999)), JSON), None);
    let long = |bytes: usize, uses: usize| {
        let used = (0..uses).map(|n| format!(r#","a:{n}":1"#)).collect::<String>();
        format!(r#"{{"@context":{{"a":"urn:{}"}}{used}}}"#, "x".repeat(bytes))
    };
    assert_eq!(read(&long(100, 1000), JSON).unwrap().quads.len(), 1000);
    assert_eq!(limit(&long(100_000, 1000), JSON), Some(Limit::Expansion));
    // The same name, with a letter written as an escape.
    let escaped = long(100_000, 1000).replace("@context", "@conte\\u0078t");
    assert_eq!(limit(&escaped, JSON), Some(Limit::Expansion));
}

#[test]
fn names_that_are_defined_by_names_need_a_quarter_of_the_stack() {
    // Each is understood when the one before it is, so the first to be looked at needs all.
    let chain = |count: usize| {
        let terms = (0..count).rev().map(|n| format!(r#""t{}":"t{n}:x","#, n + 1)).collect::<String>();
        format!(r#"{{"@context":{{{terms}"t0":"urn:x"}},"t1":1}}"#)
    };
    let deepest = chain(json::NAMES_MAX - 1);
    let parse = move || assert_eq!(read(&deepest, JSON).map(|document| document.quads.len()), Ok(1));
    let thread = std::thread::Builder::new().stack_size(crate::limits::PARSE_STACK_BYTES / 4);
    thread.spawn(parse).unwrap().join().unwrap();
    assert_eq!(limit(&chain(5000), JSON), Some(Limit::Contexts));
}

#[test]
fn long_documents_of_json_are_refused() {
    let deep = nested("[", &"1,".repeat(1 << 19), "]", 20).replace(",]", "]");
    assert_eq!(limit(&deep, JSON), Some(Limit::DocumentBytes));

    let text = format!(r#"{{"urn:p":"{}"}}"#, "x".repeat(json::BYTES_MAX));
    assert_eq!(limit(&text, JSON), Some(Limit::DocumentBytes));
}

fn xml(attributes: &str, inside: &str) -> String {
    format!("<r:RDF xmlns:r='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:u='urn:'{attributes}>{inside}</r:RDF>")
}

#[test]
fn rustsec_2026_0194_attributes_are_few() {
    let element = |count: usize| {
        let attributes = (0..count).map(|n| format!(" u:a{n}='1'")).collect::<String>();
        xml("", &format!("<r:Description r:about='urn:a'{attributes}/>"))
    };
    assert_eq!(read(&element(100), RdfFormat::RdfXml).unwrap().quads.len(), 100);
    assert_eq!(limit(&element(128), RdfFormat::RdfXml), Some(Limit::Attributes));
    assert_eq!(limit(&element(100_000), RdfFormat::RdfXml), Some(Limit::Attributes));
}

#[test]
fn rustsec_2026_0195_namespaces_are_few() {
    let declared = |count: usize| (0..count).map(|n| format!(" xmlns:n{n}='urn:{n}'")).collect::<String>();
    assert_eq!(limit(&xml(&declared(100), ""), RdfFormat::RdfXml), None);
    assert_eq!(limit(&xml(&declared(100_000), ""), RdfFormat::RdfXml), Some(Limit::Attributes));
    let open = format!("<u:a{}><u:b>", declared(50));
    assert_eq!(limit(&xml("", &nested(&open, "", "</u:b></u:a>", 5)), RdfFormat::RdfXml), None);
    assert_eq!(limit(&xml("", &nested(&open, "", "</u:b></u:a>", 6)), RdfFormat::RdfXml), Some(Limit::Attributes));
    // They hold inside their element only.
    let beside = format!("{open}</u:b></u:a>").repeat(20);
    assert_eq!(limit(&xml("", &beside), RdfFormat::RdfXml), None);
    let long = format!(" xmlns:l='urn:{}'", "x".repeat(10_000));
    assert_eq!(limit(&xml(&long, ""), RdfFormat::RdfXml), Some(Limit::Attributes));
}

#[test]
fn nested_elements_are_refused() {
    let open = "<u:a><u:b>";
    assert_eq!(limit(&xml("", &nested(open, "", "</u:b></u:a>", 60)), RdfFormat::RdfXml), None);
    assert_eq!(limit(&xml("", &nested(open, "", "</u:b></u:a>", 50_000)), RdfFormat::RdfXml), Some(Limit::Depth));
}

#[test]
fn entities_of_ones_own_are_refused_in_every_spelling() {
    for entity in ["<!ENTITY a 'x'>", "<!entity a \"x\">"] {
        let text = format!("<!DOCTYPE r [{entity}]>{}", xml("", ""));
        assert!(matches!(read(&text, RdfFormat::RdfXml), Err(GraphError::NotRdf(_))), "{text}");
    }
    assert_eq!(read(&format!("<!DOCTYPE r SYSTEM 'file:///x'>{}", xml("", "")), RdfFormat::RdfXml).unwrap().bytes, 0);
}

#[test]
fn nested_brackets_of_turtle_are_refused() {
    for format in [RdfFormat::Turtle, RdfFormat::TriG, RdfFormat::N3] {
        for (open, close) in [("(", ")"), ("[ <urn:p> ", "]")] {
            let text = |depth| format!("<urn:a> <urn:p> {} .", nested(open, "1", close, depth));
            assert_eq!(limit(&text(DEPTH_MAX), format), None, "{format} {open}");
            assert_eq!(limit(&text(DEPTH_MAX + 1), format), Some(Limit::Depth), "{format} {open}");
            assert_eq!(limit(&text(1_000_000), format), Some(Limit::Depth), "{format} {open}");
        }
        for text in ["<< ".repeat(1000), "{".repeat(1000), "<urn:a> <urn:b> \"\\\"\" ((".repeat(1000)] {
            assert_eq!(limit(&text, format), Some(Limit::Depth), "{format} {}", &text[..20]);
        }
    }
}

#[test]
fn brackets_in_texts_of_turtle_are_no_levels() {
    let brackets = "([{<<".repeat(1000);
    for text in [
        format!("<urn:a> <urn:b> '{brackets}\\'((' ."),
        format!("<urn:a> <urn:b> '''{brackets}'\n''' ."),
        format!("# {brackets}\n<urn:a> <urn:b> \"\"\"\"x\"\"\" ."),
        format!("# {brackets}\r<urn:a> <urn:b> 1 ."),
        format!("<urn:a> <urn:b> <urn:{}> .", "(".repeat(1000)),
    ] {
        assert_eq!(read(&text, RdfFormat::Turtle).map(|document| document.quads.len()), Ok(1), "{}", &text[..40]);
    }
}

#[test]
fn a_prefix_that_makes_names_long_is_charged() {
    let text = format!("@prefix a: <urn:{}> . {}", "x".repeat(1 << 20), "a:a a:b a:c . ".repeat(1000));
    assert_eq!(limit(&text, RdfFormat::Turtle), Some(Limit::DocumentMemory));
}

#[test]
fn memory_is_asked_for_while_a_document_says_more_than_it_is_long() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let text = format!("@prefix a: <urn:{}> . {}", "x".repeat(50_000), "a:a a:b a:c . ".repeat(100));
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let own = Arc::clone(&left);
    let memory = MemorySource::new(move |bytes| {
        own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left: usize| left.checked_sub(bytes)).is_ok()
    });
    let limits = RdfLimits { memory, ..RdfLimits::default() };
    let read = || read_rdf(text.as_bytes(), RdfFormat::Turtle, None, None, &limits);
    let bytes = read().unwrap().bytes;
    let taken = usize::MAX - left.load(Ordering::Relaxed);
    assert!(taken + 4 * text.len() + 4096 >= bytes && bytes > 15_000_000, "{taken} of {bytes}");
    left.store(10 << 20, Ordering::Relaxed);
    assert_eq!(read(), Err(Limit::DocumentMemory.into()));
    let update = format!("PREFIX a: <urn:{}> INSERT DATA {{ {} }}", "x".repeat(50_000), "a:a a:b a:c . ".repeat(100));
    left.store(10 << 20, Ordering::Relaxed);
    let limits = crate::QueryLimits { memory: limits.memory.clone(), ..crate::QueryLimits::default() };
    assert!(crate::Update::parse(&update, &limits).is_err());
    left.store(32 << 20, Ordering::Relaxed);
    assert!(crate::Update::parse(&update, &limits).is_ok());
}
