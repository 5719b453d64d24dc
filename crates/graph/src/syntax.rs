//! Words for a text that is no SPARQL, and what a text says that its algebra does not.
//!
//! The parser names the place it could not pass and every alternative it tried there, down to classes of characters. Of
//! these, whoever wrote the text is told what can be read.

use std::collections::BTreeMap;

use crate::text::{Tokens, variable};

/// Alternatives that are named; more would be a list of all functions.
const NAMED_MAX: usize = 8;
/// Characters of the text that are shown.
const SHOWN_MAX: usize = 24;

/// The parser's error about a text, in words: line, column, what is there, and what was expected.
pub(crate) fn words(error: &str, text: &str) -> String {
    let Some((line, column, expected)) = place(error) else { return error.to_owned() };
    let there = there(text, line, column);
    let expected = expected.strip_prefix("one of ").unwrap_or(expected);
    let alternatives: Vec<&str> = expected.split(", ").filter_map(readable).collect();
    let reason = alternatives.iter().find(|words| words.contains(' '));
    if let Some(word) = waits_for_number(text, line, column) {
        return format!("line {line}, column {column}, at {there}: {word} needs a number");
    }
    let expected = match (reason, &alternatives[..]) {
        (Some(reason), _) => lowercase(reason),
        (None, []) if !has_beginning(text) => format!("expected {BEGINNINGS}"),
        (None, []) => "the text cannot go on like this".to_owned(),
        (None, all) => format!("expected {}", listed(all)),
    };
    format!("line {line}, column {column}, at {there}: {expected}")
}

/// With which words everything begins, beside PREFIX and BASE.
const BEGINNINGS: &str = "SELECT, ASK, CONSTRUCT or DESCRIBE, or an update such as INSERT or DELETE";

fn has_beginning(text: &str) -> bool {
    let words = ["SELECT", "ASK", "CONSTRUCT", "DESCRIBE", "INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE"];
    let more = ["ADD", "MOVE", "COPY", "WITH"];
    Tokens::new(text).any(|token| words.iter().chain(&more).any(|word| token.eq_ignore_ascii_case(word)))
}

/// `error at 1:6: expected …`
fn place(error: &str) -> Option<(usize, usize, &str)> {
    let (place, expected) = error.strip_prefix("error at ")?.split_once(": expected ")?;
    let (line, column) = place.split_once(':')?;
    Some((line.parse().ok()?, column.parse().ok()?, expected))
}

/// `LIMIT` or `OFFSET`, if it is the last before a place: of what may follow the parser names the digits, one by one.
fn waits_for_number(text: &str, line: usize, column: usize) -> Option<&'static str> {
    let lines = text.split('\n').enumerate().take(line);
    let ahead = |(number, text): (usize, &str)| {
        let most = if number + 1 == line { column.saturating_sub(1) } else { usize::MAX };
        text.chars().take(most).chain([' ']).collect::<String>()
    };
    let before: String = lines.map(ahead).collect();
    let last = before.split_whitespace().next_back()?;
    let word = last.rsplit(|c: char| !c.is_alphanumeric() && !"?$:_".contains(c)).next()?;
    ["LIMIT", "OFFSET"].into_iter().find(|known| word.eq_ignore_ascii_case(known))
}

/// The word at a place, in quotation marks.
fn there(text: &str, line: usize, column: usize) -> String {
    let line = text.split('\n').skip(line.saturating_sub(1));
    let mut rest = line.flat_map(|line| line.chars().chain(['\n'])).skip(column.saturating_sub(1)).peekable();
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
    let first = rest.next_if(|c| !c.is_alphanumeric());
    let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-');
    let word = rest.take_while(is_name).take(SHOWN_MAX);
    let word: String = first.into_iter().chain(word).collect();
    if word.is_empty() { "the end of the text".to_owned() } else { format!("{word:?}") }
}

/// Classes of characters and "anything" are for parsers.
fn readable(alternative: &str) -> Option<&str> {
    match alternative.strip_prefix("['").and_then(|rest| rest.strip_suffix("']")) {
        Some(one) if one.chars().count() == 1 => Some(one),
        _ if alternative.contains(['[', ']', '\n', '\\']) => None,
        _ => Some(alternative.trim_matches('"')).filter(|words| !words.is_empty()),
    }
}

fn listed(all: &[&str]) -> String {
    let shown = &all[..all.len().min(NAMED_MAX)];
    let more = if all.len() > shown.len() { ", …" } else { "" };
    match shown {
        [front @ .., last] if !front.is_empty() && more.is_empty() => format!("{} or {last}", front.join(", ")),
        _ => format!("{}{more}", shown.join(", ")),
    }
}

fn lowercase(words: &str) -> String {
    // An abbreviation, such as IRI, stays as it is.
    let mut characters = words.chars();
    match (characters.next(), characters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(characters).collect(),
        _ => words.to_owned(),
    }
}

/// At which place each variable of a `SELECT *` appears first; none if columns are named.
pub(crate) fn star_order(text: &str) -> Option<BTreeMap<&str, usize>> {
    let mut tokens = Tokens::new(text);
    tokens.find(|token| token.eq_ignore_ascii_case("SELECT"))?;
    let is_modifier = |token: &&str| token.eq_ignore_ascii_case("DISTINCT") || token.eq_ignore_ascii_case("REDUCED");
    if tokens.find(|token| !is_modifier(token))? != "*" {
        return None;
    }
    let mut places = BTreeMap::new();
    for (place, name) in tokens.filter_map(variable).enumerate() {
        places.entry(name).or_insert(place);
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use crate::error::GraphError;
    use crate::limits::QueryLimits;
    use crate::query::Query;
    use crate::update::Update;

    fn query(text: &str) -> String {
        match Query::parse(text, &QueryLimits::default()) {
            Err(GraphError::Syntax(words)) => words,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_say_where_what_is_there_and_what_was_expected() {
        let words = query("SELEC");
        assert!(words.starts_with("line 1, column 6, at the end of the text: expected SELECT, ASK, "), "{words}");
        let words = query("SELECT *\nWHERE {\n  ?s foaf:name ?o }");
        assert_eq!(words, "line 3, column 15, at \"?o\": prefix not found");
        let words = query("SELECT ?s { ?s <a b> ?o }");
        assert!(words.starts_with("line 1, column ") && words.ends_with(": IRI parsing failed"), "{words}");
        let words = query("SELECT ?s { ?s ?p ?o FILTER(?o > ) }");
        assert!(words.contains("expected ABS, AVG, ") && words.ends_with(", …"), "{words}");
        let words = query("SELECT * { ?s ?p ?o }\nLIMIT x");
        assert!(words.starts_with("line 2, column ") && words.ends_with(", at \"x\": LIMIT needs a number"), "{words}");
        let words = query("SELECT * { ?s ?p ?o } OFFSET");
        assert!(words.ends_with(", at the end of the text: OFFSET needs a number"), "{words}");
        let words = query("SELECT * { ?s ?limit }");
        assert!(!words.contains("number"), "{words}");
        let words = match Update::parse("INSERT DATA { ?s <urn:p> 1 }", &QueryLimits::default()) {
            Err(GraphError::Syntax(words)) => words,
            other => panic!("{other:?}"),
        };
        assert!(words.ends_with(": variables are not allowed in INSERT DATA"), "{words}");
    }

    #[test]
    fn no_word_of_the_parser_is_left_that_nobody_can_read() {
        let pieces = ["SELECT", "?s", "{", "}", "(", "<urn:a>", "foaf:x", "\"a", "1", "é", "FILTER", "\n", ";", "@"];
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let text = format!("{first} {second} {third}");
                    if let Err(GraphError::Syntax(words)) = Query::parse(&text, &QueryLimits::default()) {
                        assert!(!words.contains(['[', ']', '\n']) && words.starts_with("line "), "{text:?}: {words}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_star_may_stand_for_many_variables_and_not_for_any_number() {
        // 7919 is prime, so the names come once each and in no order.
        let names = |count: usize| (0..count).map(move |n| format!("v{}", n * 7919 % count)).collect::<Vec<_>>();
        let text = |names: &[String]| format!("SELECT * {{ VALUES (?{}) {{}} }}", names.join(" ?"));
        let limits = QueryLimits::default();
        let most = names(limits.variables_max);
        let snapshot = crate::space::GraphSpace::new(1, crate::space::SpaceLimits::default()).snapshot();
        let query = Query::parse(&text(&most), &limits).unwrap();
        let crate::query::QueryAnswer::Rows(rows) = query.run(&snapshot, &limits).unwrap() else { panic!("no rows") };
        assert!(rows.variables().iter().map(oxrdf::Variable::as_str).eq(&most));
        for count in [limits.variables_max + 1, 100_000] {
            let refused = Query::parse(&text(&names(count)), &limits);
            let limit = refused.map(drop).map_err(|error| error.limit());
            assert_eq!(limit, Err(Some(crate::error::Limit::Variables)), "{count}");
        }
    }

    #[test]
    fn columns_of_a_star_come_as_they_appear() {
        for (text, expected) in [
            ("SELECT * { ?z ?b ?a }", &["z", "b", "a"][..]),
            ("PREFIX select: <urn:?x> SELECT  DISTINCT # ?c\n * { ?z ?b '?y' . $a ?b ?z }", &["z", "b", "a"]),
            ("select*{ { SELECT ?q { ?q ?b ?a } } ?z ?y ?q } LIMIT 3", &["q", "z", "y"]),
            ("SELECT ?b ?a { ?z ?b ?a }", &["b", "a"]),
        ] {
            let mut space = crate::space::GraphSpace::new(1, crate::space::SpaceLimits::default());
            let snapshot = space.snapshot();
            let query = Query::parse(text, &QueryLimits::default()).unwrap();
            let crate::query::QueryAnswer::Rows(rows) = query.run(&snapshot, &QueryLimits::default()).unwrap() else {
                panic!("no rows");
            };
            let names: Vec<&str> = rows.variables().iter().map(oxrdf::Variable::as_str).collect();
            assert_eq!(names, expected, "{text}");
            let standing = space.subscribe(&query).unwrap().baseline.variables;
            assert_eq!(standing, rows.variables(), "{text}");
        }
    }
}
