//! Topic filters whose wildcards have names: `sensors/+room/+sensor/#rest`. Without a name a wildcard is as ever.

use tidegate_wire_mqtt::{Limits, TopicFilter};

use crate::fault::MapFault;

/// A filter, and the names of what its wildcards match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicPattern {
    levels: Vec<PatternLevel>,
    /// As MQTT has it.
    filter: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternLevel {
    Fixed(String),
    /// One level.
    One(Option<String>),
    /// All the rest.
    Rest(Option<String>),
}

/// What the named wildcards matched, in the order of [`TopicPattern::names`].
pub(crate) type Captures<'a> = Vec<&'a str>;

impl TopicPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, MapFault> {
        let fault = |message: String| MapFault::new("topic", message);
        let mut levels = Vec::new();
        for part in text.split('/') {
            let name = |name: &str| match name {
                "" => Ok(None),
                _ if is_name(name) => Ok(Some(name.to_owned())),
                _ => Err(fault(format!("{name:?} is no name: letters, digits and _"))
                    .with_hint("a wildcard is written +name or #name")),
            };
            levels.push(match part.split_at_checked(1) {
                Some(("+", rest)) => PatternLevel::One(name(rest)?),
                Some(("#", rest)) => PatternLevel::Rest(name(rest)?),
                _ => PatternLevel::Fixed(part.to_owned()),
            });
        }
        let plain = |level: &PatternLevel| match level {
            PatternLevel::Fixed(text) => text.clone(),
            PatternLevel::One(_) => "+".to_owned(),
            PatternLevel::Rest(_) => "#".to_owned(),
        };
        let filter = levels.iter().map(plain).collect::<Vec<_>>().join("/");
        let pattern = Self { levels, filter };
        match TopicFilter::parse(&pattern.filter, &Limits::default()) {
            Err(violation) => return Err(fault(format!("{text:?} is no topic filter: {}", violation.detail))),
            Ok(filter) if filter.group().is_some() => {
                return Err(fault("a rule takes every message of its topics: no $share/".to_owned()));
            }
            Ok(_) => {}
        }
        let names = pattern.names();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            return Err(fault(format!("two wildcards have the name {:?}", twice.1)));
        }
        if let Some(taken) = names.iter().find(|name| crate::text::BUILT_IN.contains(name)) {
            return Err(fault(format!("the name {taken:?} is taken")).with_hint("choose another for the wildcard"));
        }
        Ok(pattern)
    }

    /// As MQTT has it.
    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    /// The names, from left to right.
    pub(crate) fn names(&self) -> Vec<&str> {
        let name = |level: &'_ PatternLevel| match level {
            PatternLevel::One(name) | PatternLevel::Rest(name) => name.is_some(),
            PatternLevel::Fixed(_) => false,
        };
        let text = |level| match level {
            &PatternLevel::One(Some(ref name)) | &PatternLevel::Rest(Some(ref name)) => name.as_str(),
            _ => "",
        };
        self.levels.iter().filter(|level| name(level)).map(text).collect()
    }

    /// What the names stand for in this topic; none if it does not match.
    pub(crate) fn captures<'a>(&self, topic: &'a str) -> Option<Captures<'a>> {
        if topic.starts_with('$') && !matches!(self.levels.first(), Some(PatternLevel::Fixed(_))) {
            return None;
        }
        let (mut rest, mut captures) = (Some(topic), Vec::new());
        for level in &self.levels {
            if let PatternLevel::Rest(name) = level {
                if name.is_some() {
                    captures.push(rest.unwrap_or_default());
                }
                return Some(captures);
            }
            let text = rest?;
            let (part, after) = text.split_once('/').map_or((text, None), |(part, after)| (part, Some(after)));
            match level {
                PatternLevel::Fixed(wanted) if wanted != part => return None,
                PatternLevel::One(Some(_)) => captures.push(part),
                _ => {}
            }
            rest = after;
        }
        rest.is_none().then_some(captures)
    }
}

/// What may be a name: of a wildcard here, of a variable in SPARQL.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captures<'a>(pattern: &str, topic: &'a str) -> Option<Vec<&'a str>> {
        TopicPattern::parse(pattern).unwrap().captures(topic)
    }

    #[test]
    fn names_stand_for_what_their_wildcards_match() {
        assert_eq!(captures("s/+room/+/#rest", "s/kitchen/7/a/b"), Some(vec!["kitchen", "a/b"]));
        assert_eq!(captures("s/+room/#rest", "s/kitchen"), Some(vec!["kitchen", ""]));
        assert_eq!(captures("s/+room", "s/"), Some(vec![""]));
        for other in ["s", "s/a/b", "t/a", "S/a", ""] {
            assert_eq!(captures("s/+room", other), None, "{other}");
        }
        assert_eq!(captures("+all", "$SYS"), None);
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for bad in ["", "a/#x/b", "a/+x/+x", "a/+x-y", "$share/g/a", "a/b+", "+now", "a/x#"] {
            assert_eq!(TopicPattern::parse(bad).unwrap_err().field, "topic", "{bad}");
        }
        assert_eq!(TopicPattern::parse("a/+x/#").unwrap().filter(), "a/+/#");
    }

    proptest! {
        #[test]
        fn it_matches_what_mqtt_matches(pattern in "[a$+#/]{1,6}", topic in "[a$/]{1,6}") {
            if let Ok(pattern) = TopicPattern::parse(&pattern) {
                let expected = tidegate_wire_mqtt::topic::matches(pattern.filter(), &topic);
                prop_assert_eq!(pattern.captures(&topic).is_some(), expected);
            }
        }
    }
}
