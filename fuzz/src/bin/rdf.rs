//! Whatever document comes, in every format: no panic, no more quads or bytes than allowed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oxrdfio::{JsonLdProfileSet, RdfFormat};
use tidegate_graph::{RdfLimits, read_rdf};

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let format = match choice % 7 {
        0 => RdfFormat::Turtle,
        1 => RdfFormat::TriG,
        2 => RdfFormat::NTriples,
        3 => RdfFormat::NQuads,
        4 => RdfFormat::N3,
        5 => RdfFormat::RdfXml,
        _ => RdfFormat::JsonLd { profile: JsonLdProfileSet::empty() },
    };
    let limits = RdfLimits { quads_max: 1000, memory_max: 1 << 20, ..RdfLimits::default() };
    let base = (choice >= 128).then_some("http://base.test/");
    if let Ok(document) = read_rdf(bytes, format, base, None, &limits) {
        assert!(document.quads.len() <= 1000 && document.bytes <= 1 << 20);
    }
});
