//! Filters of rules against brute force over all topics of a small alphabet.

use proptest::prelude::*;

use super::*;

const NOBODY: RequesterNames<'_> = RequesterNames { user: None, client: "client", claims: &[] };

fn filter(text: &str) -> Filter {
    Filter::parse(text, Names::Substituted).unwrap()
}

/// All topics of up to five levels. Filters below have up to four and never say `z`: whatever a wildcard reaches and a
/// text does not, `z` or a fifth level shows.
fn topics() -> Vec<String> {
    let mut topics = sequences(&["", "a", "b", "z", "$a", "$z"], &["", "a", "b", "z"], 5);
    topics.retain(|topic| !topic.is_empty());
    topics
}

/// All filters of up to three levels, alone and with `/#` behind them, and `#`.
fn filters() -> Vec<String> {
    let plain = sequences(&["", "a", "b", "+", "$a"], &["", "a", "b", "+"], 3);
    let mut filters: Vec<String> = plain.iter().map(|filter| format!("{filter}/#")).collect();
    filters.extend(plain.into_iter().filter(|filter| !filter.is_empty()));
    filters.push("#".into());
    filters
}

fn sequences(first: &[&str], others: &[&str], levels_max: usize) -> Vec<String> {
    let mut last: Vec<String> = first.iter().map(|&level| level.to_owned()).collect();
    let mut all = last.clone();
    for _ in 1..levels_max {
        last = last.iter().flat_map(|text| others.iter().map(move |level| format!("{text}/{level}"))).collect();
        all.extend_from_slice(&last);
    }
    all
}

/// All pairs of filters, each with the topics that it matches.
fn compare_all(topics: &[String], check: impl Fn(&str, &str, &[bool], &[bool])) {
    let found: Vec<(String, Vec<bool>)> = filters()
        .into_iter()
        .map(|filter| (filter.clone(), topics.iter().map(|topic| matches(&filter, topic)).collect()))
        .collect();
    assert!(found.len() > 200 && topics.len() > 2000);
    for (rule, of_rule) in &found {
        for (requested, of_requested) in &found {
            check(rule, requested, of_rule, of_requested);
        }
    }
}

/// The definition, by the codec's matcher, which looks level by level without any shortcut.
fn matches(pattern: &str, topic: &str) -> bool {
    TopicFilter::parse(pattern, &Limits::default()).unwrap().matches(topic)
}

#[test]
fn covering_is_being_a_superset() {
    compare_all(&topics(), |rule, requested, of_rule, of_requested| {
        let expected = of_rule.iter().zip(of_requested).all(|(in_rule, in_requested)| *in_rule || !in_requested);
        let found = filter(rule).covers(requested, NOBODY, AclEffect::Allow);
        assert_eq!(found, expected, "{rule} covers {requested}");
    });
    assert!(covers("a/#", "a/+") && !covers("a/+", "a/#") && !covers("a/#", "a#") && !covers("#", "$share/g/a"));
}

#[test]
fn overlapping_is_sharing_a_topic() {
    // Level by level there is an empty topic too, which `+` and `/#` share. Nobody can publish to it: harmless.
    let mut topics = topics();
    topics.push(String::new());
    compare_all(&topics, |rule, requested, of_rule, of_requested| {
        let expected = of_rule.iter().zip(of_requested).any(|(in_rule, in_requested)| *in_rule && *in_requested);
        assert_eq!(filter(rule).overlaps(requested, NOBODY), expected, "{rule} overlaps {requested}");
    });
}

#[test]
fn matching_is_what_the_codec_says() {
    let topics = topics();
    for rule in filters() {
        let compiled = filter(&rule);
        for topic in &topics {
            let found = compiled.matches(Topic::new(topic), NOBODY, AclEffect::Allow);
            assert_eq!(found, matches(&rule, topic), "{rule} matches {topic}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Where a name can be used, comparing it in place is the same as writing it into the filter.
    #[test]
    fn a_usable_name_acts_as_its_text(user in "[ab]{1,2}", client in "[ab$]{1,2}", topic in "[ab$]{1,3}(/[ab$]{0,3}){0,2}") {
        let who = RequesterNames { user: Some(&user), client: &client, claims: &[] };
        for pattern in ["x/%u", "a/%u/#", "+/%u", "b/%c%u/+", "a/a%u", "%c%c", "%u/b", "a/%%u", "%x/%u"] {
            let text = pattern.replace("%u", &user).replace("%c", &client);
            // Names do not reach `$` topics, texts do.
            let expected = matches(&text, &topic) && !topic.starts_with('$');
            prop_assert_eq!(filter(pattern).matches(Topic::new(&topic), who, AclEffect::Allow), expected, "{}", pattern);
        }
    }

    /// Whatever the name, an allowing rule reaches nothing outside the literal reading of itself.
    #[test]
    fn f075_no_name_widens_a_rule(user in "[ab+#/$%uc]{0,4}", topic in "[ab+#/$]{1,6}") {
        let who = RequesterNames { user: Some(&user), client: &user, claims: &[] };
        for pattern in ["a/%u", "a/%c/#", "%u/a"] {
            if filter(pattern).matches(Topic::new(&topic), who, AclEffect::Allow) {
                let literal = pattern.replace("%u", &user).replace("%c", &user);
                let own = literal.trim_end_matches("/#");
                prop_assert!(topic == own || topic.starts_with(&format!("{own}/")), "{} by {:?}", topic, user);
                prop_assert!(!user.contains(['+', '#', '/']));
            }
        }
    }
}

#[test]
fn f075_names_with_wildcards_or_slashes_allow_nothing() {
    for name in ["#", "+", "a/b", "/", "", "x+", "x#"] {
        let who = RequesterNames { user: Some(name), client: name, claims: &[] };
        for pattern in ["home/%u", "home/%u/#", "home/%c", "home/x%c/+"] {
            for topic in ["home", "home/", "home/a", "home/a/b", "home/#", "home/+", "home/x/a"] {
                assert!(!filter(pattern).matches(Topic::new(topic), who, AclEffect::Allow), "{pattern} {topic} {name}");
                assert!(!filter(pattern).covers(topic, who, AclEffect::Allow), "{pattern} {topic} {name}");
            }
        }
    }
}

#[test]
fn f075_names_with_wildcards_do_not_escape_a_denial() {
    let who = RequesterNames { user: Some("a/b"), client: "c", claims: &[] };
    assert!(filter("home/%u").matches(Topic::new("home/a/b"), who, AclEffect::Deny));
    assert!(filter("home/%u").covers("home/a/b", who, AclEffect::Deny));
    assert!(!filter("home/%u").matches(Topic::new("garden/a/b"), who, AclEffect::Deny));
}

#[test]
fn f076_no_name_and_no_wildcard_reaches_dollar_topics() {
    let who = RequesterNames { user: Some("$SYS"), client: "$SYS", claims: &[] };
    for pattern in ["%u/#", "%c/#", "+/#", "#"] {
        assert!(!filter(pattern).matches(Topic::new("$SYS/broker/uptime"), who, AclEffect::Allow), "{pattern}");
        assert!(!filter(pattern).covers("$SYS/#", who, AclEffect::Allow), "{pattern}");
    }
    assert!(Filter::parse("$%u/#", Names::Substituted).is_err());
}

#[test]
fn the_name_of_nobody_matches_nothing() {
    for effect in [AclEffect::Allow, AclEffect::Deny] {
        assert!(!filter("home/%u").matches(Topic::new("home/"), NOBODY, effect));
        assert!(filter("home/%c").matches(Topic::new("home/client"), NOBODY, effect));
    }
}

#[test]
fn rules_for_shares_and_malformed_filters_are_refused() {
    let fault = |text| Filter::parse(text, Names::Substituted).unwrap_err();
    assert_eq!(fault("$share/g/a"), FileFault::FilterShared);
    for text in ["", "a#", "a/#/b", "a+/b", "a\0b"] {
        assert!(matches!(fault(text), FileFault::FilterInvalid(_)), "{text:?}");
    }
}

#[test]
fn texts_longer_than_their_head_are_compared_to_the_end() {
    let long = "a-first-level-of-some-length/and/a/second";
    for (pattern, topic, expected) in [
        (long.to_owned(), long.to_owned(), true),
        (long.to_owned(), format!("{long}x"), false),
        (long.to_owned(), long[..long.len() - 1].to_owned(), false),
        (format!("{long}/#"), long.to_owned(), true),
        (format!("{long}/#"), format!("{long}/x/y"), true),
        (format!("{long}/#"), format!("{long}x"), false),
        (format!("{long}/+"), format!("{long}/x"), true),
        (format!("{long}/+"), format!("{}/x", long.to_uppercase()), false),
        ("a-level-of-16-by/#".to_owned(), "a-level-of-16-by".to_owned(), true),
        ("a-level-of-16-by/#".to_owned(), "a-level-of-16-byt".to_owned(), false),
    ] {
        let found = filter(&pattern).matches(Topic::new(&topic), NOBODY, AclEffect::Allow);
        assert_eq!(found, expected, "{pattern} {topic}");
    }
}
