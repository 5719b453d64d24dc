//! The text of a value inside a JSON document, as its sender wrote it.
//!
//! A number with more digits than a machine's is read as the nearest double, and its digits are gone. Where they matter
//! the document, which is known to be JSON by then, is looked through once more. Iterative: depth costs nothing.

use crate::path::PathStep;

/// The value that one step leads to; of a member that comes twice the last, as everywhere.
pub(crate) fn enter<'a>(document: &'a str, step: &PathStep) -> Option<&'a str> {
    let document = document.trim();
    let mut rest = match step {
        PathStep::Member(_) => document.strip_prefix('{')?,
        PathStep::Item(_) => document.strip_prefix('[')?,
    };
    let (mut found, mut place) = (None, 0);
    loop {
        rest = rest.trim_start();
        let is_here = match step {
            PathStep::Item(wanted) => *wanted == place,
            PathStep::Member(wanted) => {
                let end = end_of(rest);
                let name = serde_json::from_str::<String>(rest.get(..end)?.trim_end()).ok();
                rest = rest.get(end..)?.strip_prefix(':')?;
                name.as_ref() == Some(wanted)
            }
        };
        let end = end_of(rest);
        if is_here {
            found = Some(rest.get(..end)?.trim());
        }
        match rest.get(end..).and_then(|rest| rest.strip_prefix(',')) {
            Some(more) => rest = more,
            None => return found,
        }
        place += 1;
    }
}

/// Where the value or name at the start of a text ends: at the comma, colon or bracket behind it.
fn end_of(text: &str) -> usize {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b',' | b':' | b'}' | b']' if depth == 0 => return at,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

/// Whether this is how a whole number is written.
pub(crate) fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::path::Path;

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c\\\\\"{}\\[\\],: ]{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let object = prop::collection::hash_map("[a-c\\\\\"{}:, ]{0,2}", inner, 0..4);
            prop_oneof![list, object.prop_map(|members| members.into_iter().collect::<Value>())]
        })
    }

    proptest! {
        #[test]
        fn what_is_found_in_the_text_is_what_the_document_has(document in documents(), is_pretty in any::<bool>()) {
            let text = if is_pretty { format!("{document:#}") } else { document.to_string() };
            let steps: Vec<PathStep> = match &document {
                Value::Object(members) => members.keys().cloned().map(PathStep::Member).collect(),
                Value::Array(items) => (0..items.len()).map(PathStep::Item).collect(),
                _ => Vec::new(),
            };
            for step in steps.into_iter().chain([PathStep::Item(9), PathStep::Member("z".to_owned())]) {
                let expected = Path::of(vec![step.clone()]).find(&document).cloned();
                let found = enter(&text, &step).map(|text| serde_json::from_str::<Value>(text).unwrap());
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a\\\\\"{}\\[\\],: 1]{0,20}") {
            let _ = enter(&text, &PathStep::Member("a".to_owned()));
            let _ = enter(&text, &PathStep::Item(1));
        }
    }
}
