//! The scanner against the parser itself: token soups, mutations, and the W3C's own texts.

use proptest::prelude::*;
use spargebra::{GraphUpdateOperation, SparqlParser};

use super::*;
use crate::depth::depths;
use crate::query::pattern_of;

/// More than any text here needs.
fn generous() -> QueryLimits {
    QueryLimits { depth_max: 10_000, chain_max: 1_000_000, ..QueryLimits::default() }
}

fn update_depth(operation: &GraphUpdateOperation) -> usize {
    match operation {
        GraphUpdateOperation::DeleteInsert { pattern, .. } => depths(pattern).0,
        _ => 1,
    }
}

/// The depth of the algebra, if the parser accepts the text as a query or as an update.
fn parsed(text: &str) -> Option<usize> {
    let query = SparqlParser::new().parse_query(text).ok().map(|query| depths(pattern_of(&query)).0);
    let update = SparqlParser::new().parse_update(text).ok();
    let update = update.map(|update| update.operations.iter().map(update_depth).max().unwrap_or(0));
    query.max(update)
}

/// Levels of the algebra that one bracket may make: a sub-select has a slice, a projection, an order, a group and more.
const LEVELS_PER_BRACKET: usize = 12;

/// What the parser accepts the scanner has read to its end, and counted.
fn agrees(text: &str) -> Result<bool, String> {
    let Some(depth) = parsed(text) else { return Ok(false) };
    let survey = match check(text, None, &generous()) {
        Ok(survey) => survey,
        // These say that they are stricter than the parser.
        Err(error) if matches!(error.limit(), Some(Limit::Reads | Limit::Ambiguous)) => return Ok(true),
        Err(error) => return Err(format!("{error}: {text:?}")),
    };
    let counted = LEVELS_PER_BRACKET * (survey.depth + 1) + 3 * survey.links;
    match (survey.is_whole, depth <= counted) {
        (true, true) => Ok(true),
        (false, _) => Err(format!("the scanner gave up: {text:?}")),
        (true, false) => Err(format!("depth {depth}, {survey:?}: {text:?}")),
    }
}

const PIECES: [&str; 117] = [
    "SELECT",
    "ASK",
    "CONSTRUCT",
    "DESCRIBE",
    "WHERE",
    "{",
    "}",
    "{",
    "}",
    "(",
    ")",
    "(",
    ")",
    "[",
    "]",
    "*",
    "?s",
    "?p",
    "$o",
    "?o",
    "a",
    "<urn:a>",
    "<urn:b#c>",
    "<http://e/x'y>",
    "<a>",
    "<",
    ">",
    "<=",
    ">=",
    "<<",
    ">>",
    "<<(",
    ")>>",
    "{|",
    "|}",
    "a:b",
    ":b",
    "a:",
    ":",
    "a:x\\'y",
    "a:b.c",
    "a:%41",
    "b:(",
    "_:x",
    "[]",
    "()",
    "( )",
    "'x'",
    "\"x\"",
    "'''x'y'''",
    "''",
    "'''",
    "\"\"\"\"a\"\"\"",
    "'\\u0041'",
    "'\\''",
    "'x'@en",
    "'x'@en-gb",
    "'1'^^<urn:i>",
    "^^",
    "^",
    "1",
    "-1",
    "+1",
    "1.5",
    ".5",
    "1e5",
    "1.e-5",
    "1-1",
    "true",
    "false",
    "trueFILTER(1)",
    "true-1-a:b",
    "+",
    "-",
    "/",
    "|",
    "||",
    "&&",
    "!",
    "!=",
    "=",
    ",",
    ";",
    ".",
    "?",
    "FILTER",
    "BIND",
    "AS",
    "VALUES",
    "UNDEF",
    "OPTIONAL",
    "UNION",
    "MINUS",
    "GRAPH",
    "EXISTS",
    "NOT",
    "IN",
    "REGEX(",
    "SUBSTR(",
    "STR(",
    "COUNT(*)",
    "GROUP_CONCAT(",
    "DISTINCT",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT 1",
    "INSERT",
    "DATA",
    "DELETE",
    "WITH",
    "USING",
    "LATERAL",
    "#c\r",
    "#c\n",
    " ",
    "\t",
];

/// Texts that are accepted often: a frame with a hole.
const FRAMES: [(&str, &str); 12] = [
    ("ASK { FILTER(", ") }"),
    ("ASK { FILTER(1 ", ") }"),
    ("PREFIX a: <urn:a> PREFIX : <urn:b> ASK { ?s ?p ?o FILTER(", ") }"),
    ("PREFIX a: <urn:a> ASK { ", " }"),
    ("PREFIX a: <urn:a> ASK { ?s ?p ", " }"),
    ("PREFIX a: <urn:a> ASK { ?s ", " ?o }"),
    ("PREFIX a: <urn:a> ASK { ?s ?p (1 ", ") }"),
    ("PREFIX : <http://[::1]> ASK { ?s ?p (", ") }"),
    ("SELECT * { VALUES (?a ?b) { ", " } }"),
    ("SELECT ", " { ?s ?p ?o }"),
    ("INSERT DATA { ", " }"),
    ("SELECT * { ?s ?p ?o } ", ""),
];

fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        1 => "\\PC{1,3}",
        1 => "[<>'\"#\\\\(){}a:1 ]{1,6}",
    ];
    let space = prop::sample::select(&["", " ", " ", "\n"][..]);
    prop::collection::vec((piece, space), 0..14)
        .prop_map(|pieces| pieces.into_iter().flat_map(|(piece, space)| [piece, space.to_owned()]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_parser_accepts_was_counted(frame in prop::sample::select(&FRAMES[..]), soup in soup()) {
        let text = format!("{}{soup}{}", frame.0, frame.1);
        let agreed = agrees(&text);
        prop_assert!(agreed.is_ok(), "{}", agreed.unwrap_err());
    }

    #[test]
    fn soups_without_a_frame_agree_too(text in soup()) {
        let agreed = agrees(&text);
        prop_assert!(agreed.is_ok(), "{}", agreed.unwrap_err());
    }
}

/// The texts of the W3C's suites.
fn suite() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/w3c/data");
    let (mut folders, mut texts) = (vec![std::path::PathBuf::from(root)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rq" || extension == "ru") {
                texts.extend(std::fs::read_to_string(path));
            }
        }
    }
    assert!(!texts.is_empty(), "no texts in the suites");
    texts
}

#[test]
fn texts_of_the_w3c_and_their_mutations_agree() {
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    let mut chance = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut accepted, mut refused) = (0, 0);
    for text in suite() {
        let default = check(&text, None, &QueryLimits::default());
        assert!(default.is_ok(), "{default:?}: {text}");
        for round in 0..20 {
            let mut mutated: Vec<char> = text.chars().collect();
            for _ in 0..round.min(3) {
                let piece = PIECES[chance.next_u64() as usize % PIECES.len()];
                let at = chance.next_u64() as usize % (mutated.len() + 1);
                let until = (at + chance.next_u64() as usize % 3).min(mutated.len());
                mutated.splice(at..until, piece.chars());
            }
            match agrees(&mutated.into_iter().collect::<String>()) {
                Ok(true) => accepted += 1,
                Ok(false) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    println!("{accepted} accepted by the parser, {refused} refused");
}
