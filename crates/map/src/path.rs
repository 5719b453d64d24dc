//! Where a value is in a JSON document: `$`, `$.a.b`, `$.list[0]`, `$['with blanks']`.

use serde_json::Value;

use crate::digits::enter;
use crate::limits::STEPS_MAX;

/// A path from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<PathStep>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    Member(String),
    Item(usize),
}

impl Path {
    /// Reads a path; the error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.strip_prefix('$').ok_or("a path begins with $")?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let step;
            (step, rest) = next(rest)?;
            steps.push(step);
            if steps.len() > STEPS_MAX {
                return Err(format!("a path has {STEPS_MAX} steps at most"));
            }
        }
        Ok(Self(steps))
    }

    pub(crate) fn find<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(document, |value, step| match step {
            PathStep::Member(name) => value.as_object()?.get(name),
            PathStep::Item(number) => value.as_array()?.get(*number),
        })
    }
}

impl Path {
    /// The text of the value, as it stands in the document.
    pub(crate) fn find_text<'a>(&self, document: &'a str) -> Option<&'a str> {
        self.0.iter().try_fold(document.trim(), |text, step| enter(text, step))
    }

    #[cfg(test)]
    pub(crate) fn of(steps: Vec<PathStep>) -> Self {
        Self(steps)
    }
}

fn next(text: &str) -> Result<(PathStep, &str), String> {
    if let Some(rest) = text.strip_prefix('.') {
        let (name, rest) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
        if name.is_empty() || name.contains(['*', ' ', ']']) {
            return Err(format!("{name:?} is no name of a member; others are written ['…']"));
        }
        return Ok((PathStep::Member(name.to_owned()), rest));
    }
    let rest = text.strip_prefix('[').ok_or_else(|| format!("{text:?}: a step is .name, [0] or ['name']"))?;
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let inside = &rest[1..];
        let end = inside.find([quote]).ok_or("a quote is not closed")?;
        let after = inside[end + 1..].strip_prefix(']').ok_or("a bracket is not closed")?;
        return Ok((PathStep::Member(inside[..end].to_owned()), after));
    }
    let (number, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
    let number = number.parse().map_err(|_| format!("[{number}]: a place in a list is a number, the first is 0"))?;
    Ok((PathStep::Item(number), after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_where_the_path_leads() {
        let document = json!({"a": {"b c": [1, {"d": true}]}, "": 5});
        let at = |path: &str| Path::parse(path).unwrap().find(&document).cloned();
        assert_eq!(at("$.a['b c'][1].d"), Some(json!(true)));
        assert_eq!(at("$['a'][\"b c\"][0]"), Some(json!(1)));
        assert_eq!(at("$"), Some(document.clone()));
        assert_eq!(at("$['']"), Some(json!(5)));
        for nowhere in ["$.b", "$.a.b", "$[0]", "$.a['b c'][2]", "$.a['b c'].x"] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let long = format!("${}", ".a".repeat(STEPS_MAX + 1));
        for bad in ["", "a", "$a", "$.", "$..a", "$[", "$[x]", "$['a", "$['a'", "$.*", "$[-1]", &long] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }
}
