//! What is counted, and what is not. Whether the parser agrees is a matter of `against`.

use super::*;

fn verdict(text: &str) -> Result<(), Limit> {
    let limits = QueryLimits { depth_max: 3, chain_max: 4, text_bytes_max: 300, ..QueryLimits::default() };
    check(text, None, &limits).map(drop).map_err(|error| error.limit().expect("a limit"))
}

fn default(text: &str) -> Result<(), Limit> {
    check(text, None, &QueryLimits::default()).map(drop).map_err(|error| error.limit().expect("a limit"))
}

#[test]
fn brackets_and_chains_are_counted_exactly() {
    assert_eq!(verdict("(((1)))"), Ok(()));
    assert_eq!(verdict("((((1))))"), Err(Limit::Depth));
    assert_eq!(verdict("1-1-1-1-1"), Ok(()));
    assert_eq!(verdict("?a-?b-?c-?d-?e-?f"), Err(Limit::Chain));
    assert_eq!(verdict("{} union {} UNION"), Ok(()));
    assert_eq!(verdict("{} union {} UNION {}"), Err(Limit::Chain));
    assert_eq!(verdict("!!!!!a"), Err(Limit::Chain));
    assert_eq!(verdict("?a||?b||?c||?d||?e"), Ok(()));
    assert_eq!(verdict(&" ".repeat(301)), Err(Limit::TextBytes));
}

#[test]
fn what_is_no_operator_is_not_counted() {
    assert_eq!(verdict("'((((' \"{{{{\" <http://e/a/b/c/d/e/f> # (((( \n ex:a-b-c-d-e-f-g 'x'@de-de-de-de"), Ok(()));
    assert_eq!(verdict("'''it's (((('''"), Ok(()));
    assert_eq!(verdict(r#""a\"((((" 'x\\' "#), Ok(()));
    assert_eq!(verdict("'1'^^a:b '1'^^a:b '1'^^a:b '1'^^a:b '1'^^a:b"), Ok(()));
    assert_eq!(verdict("a;{b};{c};{d};{e};{f}"), Ok(()));
    assert_eq!(verdict("?a < 1 && ?b > 2 && ?c != 3"), Ok(()));
    assert_eq!(verdict("{ ?s ?p -1, -2, -3, -4, -5, -6 }"), Ok(()));
    assert_eq!(verdict("VALUES (?a ?b) { (<http://e/a-b> <urn:c-d>) (-1 -2) (-3 -4) (<urn:a/b/c/d/e/f> 1) }"), Ok(()));
    assert_eq!(
        verdict("INSERT DATA { <a> <b> -1 } ; insert data { graph <a/b/c/d/e/f> { <a> <b> +1, +2, +3, +4 } }"),
        Ok(())
    );
}

#[test]
fn c1_what_blinded_the_first_scanner_is_seen() {
    for (open, close) in [("{", "}"), ("(", ")"), ("[", "]")] {
        let nested = format!("{}1{}", open.repeat(3000), close.repeat(3000));
        // A comment ends with either kind of line end.
        assert_eq!(default(&format!("ASK {{ #\r{nested} }}")), Err(Limit::Depth), "{open}");
        // This is a comparison, not an IRI.
        assert_eq!(default(&format!("ASK {{ FILTER(1<{nested}>2) }}")), Err(Limit::Depth), "{open}");
        // An escaped quote belongs to the name.
        assert_eq!(
            default(&format!("PREFIX a: <urn:> ASK {{ FILTER(a:x\\' = {nested}) }}")),
            Err(Limit::Depth),
            "{open}"
        );
    }
    for quoted in ["<<", "<< ", "<<(", "<<:a:b"] {
        let text = format!("ASK {{ {}", quoted.repeat(3000));
        assert!(matches!(default(&text), Err(Limit::Quoted | Limit::Depth)), "{quoted}");
        let text = format!("ASK {{ FILTER(1 {}", quoted.repeat(3000));
        assert!(matches!(default(&text), Err(Limit::Quoted | Limit::Depth)), "{quoted}");
    }
}

#[test]
fn both_readings_of_a_bracket_are_counted() {
    let nested = format!("{}1{}", "(".repeat(200), ")".repeat(200));
    for text in [
        // A string that begins in what could be an IRI, and hides what comes then from one of the readings.
        format!("ASK {{ FILTER(1<'>'&& {nested} = '2' ) }}"),
        format!("ASK {{ ?s ?p (1<a'>{nested}'b') }}"),
        format!("ASK {{ ?s ?p (1<a#>{nested}\n'b') }}"),
        format!("ASK {{ FILTER(?a<a:b#>\n && {nested}) }}"),
        format!("ASK {{ FILTER(1<={nested}>2) }}"),
        format!("ASK {{ ?s ?p (1 <<'x>' a {} ) }}", "<<'x>'a".repeat(3000)),
    ] {
        assert!(default(&text).is_err(), "{}", &text[..40]);
    }
    assert_eq!(default("ASK { FILTER(?a<<urn:x> && ?b<<http://e/x#y>) }"), Ok(()));
    assert_eq!(default(&format!("ASK {{ ?s ?p ({}) }}", "<http://e/#x> <urn:a-b> ".repeat(500))), Ok(()));
    assert_eq!(default(&format!("ASK {{ FILTER({}) }}", "?a<(1)&&?b>2 && ".repeat(17))), Err(Limit::Ambiguous));
    assert_eq!(default(&format!("ASK {{ FILTER({}) }}", "?a < (1)&&?b>2 && ".repeat(17))), Ok(()));
}

#[test]
fn what_the_algebra_nests_without_brackets_is_bounded() {
    let many = |piece: &str| piece.repeat(5000);
    for text in [
        format!("ASK {{ ?s <urn:p>* 1{} }}", many(",1")),
        format!("DELETE WHERE {{ GRAPH <urn:g> {{ <urn:s> <urn:p> 1{} }} }}", many(",1")),
        format!("DELETE WHERE {{ GRAPH <urn:g> {{ <urn:s> <urn:p> ({}) }} }}", many(" 1")),
        format!("ASK {{ ?s <urn:p>* ?o {} }}", many("; ?p ?o")),
        format!("SELECT * {{}} GROUP BY {}", many("STR(?a)")),
        format!("SELECT * {{}} HAVING {}", many("(1)")),
    ] {
        assert_eq!(default(&text), Err(Limit::Patterns), "{}", &text[..40]);
    }
    assert_eq!(default(&format!("ASK {{ {} }}", many("?s <urn:p>* ?o ."))), Err(Limit::Chain));
    assert_eq!(default(&format!("ASK {{ ?s ?p true{} }}", many("FILTER(1)"))), Err(Limit::Chain));
    assert_eq!(default(&format!("DESCRIBE {}", many("<urn:a> "))), Err(Limit::Chain));
    assert_eq!(default(&format!("ASK {{ FILTER({}a:b) }}", "true-".repeat(150))), Err(Limit::Chain));
    assert_eq!(default(&format!("INSERT DATA {{ <urn:s> <urn:p> 1{} , ( {} ) }}", many(",1"), many(" 1"))), Ok(()));
    assert_eq!(default(&format!("ASK {{ VALUES ?x {{ {} }} }}", many(" <urn:a-b>"))), Ok(()));
    assert_eq!(default(&format!("ASK {{ FILTER(?x IN (1{})) }}", many(", <urn:a-b>"))), Ok(()));
}

#[test]
fn what_is_read_twice_is_bounded_by_how_often() {
    let nested = |open: &str, close: &str, depth: usize| format!("{}?a{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in [
        ("!(", ")"),
        ("! STR(", ")"),
        ("REGEX(", ", 'a')"),
        ("SUBSTR(", ", 1)"),
        ("REPLACE(", ", 'a', 'b')"),
        ("GROUP_CONCAT(", ")"),
        ("!EXISTS { FILTER(", ") }"),
    ] {
        assert_eq!(default(&format!("ASK {{ FILTER({}) }}", nested(open, close, 6))), Ok(()), "{open}");
        let deep = default(&format!("ASK {{ FILTER({}) }}", nested(open, close, 30)));
        assert_eq!(deep, Err(Limit::Reads), "{open}");
    }
    let conditions = nested("<urn:f>(EXISTS { SELECT * {} GROUP BY ", "})", 30);
    assert_eq!(default(&format!("SELECT * {{}} GROUP BY {conditions}")), Err(Limit::Reads));
    let services = format!("ASK {{ {}", "SERVICE SILENTa:b { ".repeat(30));
    assert_eq!(default(&services), Err(Limit::Reads));
}

#[test]
fn groups_and_words_have_limits_of_their_own() {
    let groups = |depth: usize| format!("ASK {}{}", "{".repeat(depth), "}".repeat(depth));
    assert_eq!((default(&groups(32)), default(&groups(33))), (Ok(()), Err(Limit::Depth)));
    for text in ["true-", "a.", "a"] {
        assert_eq!(default(&format!("ASK {{ {} }}", text.repeat(100_000))), Err(Limit::WordBytes), "{text}");
        assert_eq!(default(&format!("ASK {{ {}a:b }}", text.repeat(100_000))), Err(Limit::WordBytes), "{text}");
    }
}

#[test]
fn a_long_prefix_or_base_may_not_be_used_often() {
    let long = "x".repeat(100_000);
    for text in [
        format!("PREFIX a: <urn:{long}> INSERT DATA {{ {} }}", "a:a a:b a:c . ".repeat(1000)),
        format!("BASE <http://e/{long}/> INSERT DATA {{ {} }}", "<a> <b> <c> . ".repeat(1000)),
    ] {
        assert_eq!(default(&text), Err(Limit::Expansion), "{}", &text[..40]);
    }
    let text = format!("INSERT DATA {{ {} }}", "<a> <b> <c> . ".repeat(1000));
    let refused = check(&text, Some(&long), &QueryLimits::default()).map(drop).map_err(|error| error.limit());
    assert_eq!(refused, Err(Some(Limit::Expansion)));
}

#[test]
fn different_variables_are_counted_in_each_operation() {
    let limits = QueryLimits { variables_max: 2, ..QueryLimits::default() };
    let verdict = |text: &str| check(text, None, &limits).map(drop).map_err(|error| error.limit());
    assert_eq!(verdict("?a $b ?a $a <urn:?c> '?c' # ?c"), Ok(()));
    assert_eq!(verdict("?a ?b ?c"), Err(Some(Limit::Variables)));
    assert_eq!(verdict("{ ?a ?b } ; { ?c ?d }"), Ok(()));
    assert_eq!(verdict("{ ?a ?b ; ?c ?d }"), Err(Some(Limit::Variables)));
}

#[test]
fn a_refusal_says_where() {
    let text = format!("ASK {{\n  ?s ?p ?o\n  FILTER {} }}", "(".repeat(200));
    let error = check(&text, None, &QueryLimits::default()).unwrap_err();
    assert_eq!(error.to_string(), "line 3, column 137: brackets are nested too deeply");
}

#[test]
fn whatever_is_cut_off_ends() {
    for text in [
        "'", "\"\\", "'''", "<", "@", "?", "\\", "'''\\", "é", "#", "<é", "_", "_:", "1e", "1e+", ".", ":", ":\\",
        ":%4", "a:", "'\\u12", "'a'@", "'a'@a-", "'a'@a--", "<<", "$", "\u{B7}",
    ] {
        assert_eq!(verdict(text), Ok(()), "{text}");
        assert_eq!(verdict(&format!("({text}")), Ok(()), "{text}");
        assert_eq!(verdict(&format!("(1 {text}")), Ok(()), "{text}");
        assert!(Tokens::new(text).all(|token| !token.is_empty()), "{text}");
    }
}
