//! Which topic there is which topic here: `topic FILTER DIRECTION QOS LOCAL REMOTE` of mosquitto, in our words.
//!
//! A filter stands behind the prefix of its side: with `filter = "sensors/#"`, `remote_prefix = "building7/"` what is published here
//! at `sensors/hall` goes to `building7/sensors/hall`. The first topic whose filter matches decides.

use tidegate_wire_mqtt::{Limits, QoS, TopicFilter, topic};

use crate::limits::{TOPIC_LEVELS_MAX, TOPICS_MAX};

/// Which way messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicDirection {
    /// From here to the other broker.
    #[default]
    Out,
    /// From the other broker to here.
    In,
    /// Both.
    Both,
}

/// One topic of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeTopic {
    /// The filter without prefixes.
    pub filter: String,
    /// Which way.
    pub direction: TopicDirection,
    /// The best quality of service.
    pub qos: QoS,
    /// What topics here begin with, and topics there do not.
    pub local_prefix: String,
    /// What topics there begin with, and topics here do not.
    pub remote_prefix: String,
}

/// What is wrong with a topic, and with which field of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicMapFault {
    /// Which topic, from 0.
    pub index: usize,
    /// The field.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

/// All topics of a bridge, sound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicMap {
    rules: Vec<TopicRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TopicRule {
    topic: BridgeTopic,
    local_filter: String,
    remote_filter: String,
}

impl TopicMap {
    /// Or everything that is wrong.
    pub fn new(topics: Vec<BridgeTopic>) -> Result<Self, Vec<TopicMapFault>> {
        let mut faults = Vec::new();
        if topics.len() > TOPICS_MAX {
            let message = format!("there are {} topics, and a bridge has {TOPICS_MAX} at most", topics.len());
            faults.push(TopicMapFault { index: TOPICS_MAX, field: "filter", message });
        }
        let rules: Vec<TopicRule> = topics.into_iter().map(TopicRule::new).collect();
        for (index, rule) in rules.iter().enumerate() {
            faults.extend(rule.faults().into_iter().map(|(field, message)| TopicMapFault { index, field, message }));
        }
        if faults.is_empty() { Ok(Self { rules }) } else { Err(faults) }
    }

    /// Filters to subscribe to here, each once, with the best quality of service.
    pub fn local_filters(&self) -> Vec<(&str, QoS)> {
        let out = self.rules.iter().filter(|rule| rule.topic.direction != TopicDirection::In);
        merged(out.map(|rule| (rule.local_filter.as_str(), rule.topic.qos)))
    }

    /// Filters to subscribe to there.
    pub fn remote_filters(&self) -> Vec<(&str, QoS)> {
        let into = self.rules.iter().filter(|rule| rule.topic.direction != TopicDirection::Out);
        merged(into.map(|rule| (rule.remote_filter.as_str(), rule.topic.qos)))
    }

    /// What a topic here is called there, and its best quality of service; none if it is no topic of this bridge.
    pub fn outward(&self, name: &str) -> Option<(String, QoS)> {
        let is_meant =
            |rule: &&TopicRule| rule.topic.direction != TopicDirection::In && topic::matches(&rule.local_filter, name);
        let BridgeTopic { qos, local_prefix, remote_prefix, .. } = &self.rules.iter().find(is_meant)?.topic;
        Some((format!("{remote_prefix}{}", name.strip_prefix(local_prefix.as_str())?), *qos))
    }

    /// What a topic there is called here.
    pub fn inward(&self, name: &str) -> Option<(String, QoS)> {
        let is_meant = |rule: &&TopicRule| {
            rule.topic.direction != TopicDirection::Out && topic::matches(&rule.remote_filter, name)
        };
        let BridgeTopic { qos, local_prefix, remote_prefix, .. } = &self.rules.iter().find(is_meant)?.topic;
        Some((format!("{local_prefix}{}", name.strip_prefix(remote_prefix.as_str())?), *qos))
    }

    /// The topics as they were given.
    pub fn topics(&self) -> impl Iterator<Item = &BridgeTopic> {
        self.rules.iter().map(|rule| &rule.topic)
    }
}

impl TopicRule {
    fn new(topic: BridgeTopic) -> Self {
        let local_filter = format!("{}{}", topic.local_prefix, topic.filter);
        let remote_filter = format!("{}{}", topic.remote_prefix, topic.filter);
        Self { topic, local_filter, remote_filter }
    }

    fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (field, prefix) in
            [("local_prefix", &self.topic.local_prefix), ("remote_prefix", &self.topic.remote_prefix)]
        {
            if prefix.contains(['+', '#', '\0']) {
                faults.push((field, format!("{prefix:?} has a wildcard: a prefix is a plain beginning of a topic")));
            }
        }
        if !faults.is_empty() {
            return faults;
        }
        let limits = Limits { topic_levels_max: TOPIC_LEVELS_MAX, ..Limits::default() };
        for filter in [&self.local_filter, &self.remote_filter] {
            match TopicFilter::parse(filter, &limits) {
                Err(violation) => {
                    faults.push(("filter", format!("{filter:?} is no topic filter: {}", violation.detail)));
                }
                Ok(parsed) if parsed.group().is_some() => {
                    faults.push(("filter", format!("{filter:?} is shared: a bridge has a session of its own")));
                }
                Ok(_) => {}
            }
            if !faults.is_empty() {
                // One filter is one fault, on whichever side it is found first.
                break;
            }
        }
        if self.topic.direction != TopicDirection::In && self.remote_filter.starts_with("$SYS") {
            faults.push(("remote_prefix", "topics below $SYS are the other broker's own".to_owned()));
        }
        if self.topic.direction != TopicDirection::Out && self.local_filter.starts_with("$SYS") {
            faults.push((
                "local_prefix",
                "topics below $SYS are this broker's own; give them another local_prefix".to_owned(),
            ));
        }
        faults
    }
}

fn merged<'a>(filters: impl Iterator<Item = (&'a str, QoS)>) -> Vec<(&'a str, QoS)> {
    let mut merged: Vec<(&str, QoS)> = Vec::new();
    for (filter, qos) in filters {
        match merged.iter_mut().find(|(known, _)| *known == filter) {
            Some((_, best)) => *best = qos.max(*best),
            None => merged.push((filter, qos)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(filter: &str, direction: TopicDirection, local: &str, remote: &str) -> BridgeTopic {
        let (filter, local_prefix, remote_prefix) = (filter.to_owned(), local.to_owned(), remote.to_owned());
        BridgeTopic { filter, direction, qos: QoS::AtLeastOnce, local_prefix, remote_prefix }
    }

    #[test]
    fn prefixes_are_changed_both_ways_and_the_first_topic_decides() {
        let map = TopicMap::new(vec![
            rule("sensors/#", TopicDirection::Out, "", "building7/"),
            rule("cmd/+", TopicDirection::In, "from-hub/", "building7/"),
            rule("x/#", TopicDirection::Both, "a/", "b/"),
            BridgeTopic { qos: QoS::ExactlyOnce, ..rule("#", TopicDirection::Out, "", "rest/") },
        ])
        .unwrap();
        let out = |name| map.outward(name).map(|(name, qos)| (name, qos.bits()));
        let inn = |name| map.inward(name).map(|(name, _)| name);
        assert_eq!(out("sensors/hall"), Some(("building7/sensors/hall".into(), 1)));
        assert_eq!(out("cmd/x"), Some(("rest/cmd/x".into(), 2)), "what only comes in does not go out by that topic");
        assert_eq!(out("a/x/1"), Some(("b/x/1".into(), 1)));
        assert_eq!(out("$SYS/broker/uptime"), None, "# does not stand for the broker's own");
        assert_eq!(inn("building7/cmd/x"), Some("from-hub/cmd/x".into()));
        assert_eq!((inn("building7/cmd/x/y"), inn("sensors/hall")), (None, None));
        assert_eq!(inn("b/x"), Some("a/x".into()));
        assert_eq!(map.remote_filters(), [("building7/cmd/+", QoS::AtLeastOnce), ("b/x/#", QoS::AtLeastOnce)]);
        assert_eq!(map.local_filters().len(), 3);
    }

    #[test]
    fn every_fault_of_a_topic_has_its_field() {
        let fields = |topic| -> Vec<&'static str> {
            TopicMap::new(vec![topic]).unwrap_err().iter().map(|fault| fault.field).collect()
        };
        assert_eq!(fields(rule("a/#/b", TopicDirection::Out, "", "")), ["filter"]);
        assert_eq!(fields(rule("", TopicDirection::Out, "", "")), ["filter"]);
        assert_eq!(fields(rule("#", TopicDirection::Out, "+/", "#")), ["local_prefix", "remote_prefix"]);
        assert_eq!(fields(rule("broker/#", TopicDirection::Both, "$SYS/", "$SYS/")), ["remote_prefix", "local_prefix"]);
        assert_eq!(fields(rule("g/a", TopicDirection::In, "", "$share/")), ["filter"]);
        assert!(TopicMap::new(vec![rule("broker/#", TopicDirection::In, "hub/", "$SYS/")]).is_ok());
        let many = vec![rule("a", TopicDirection::Out, "", ""); TOPICS_MAX + 1];
        assert!(TopicMap::new(many).unwrap_err()[0].message.contains("256 at most"));
    }

    proptest! {
        #[test]
        fn what_goes_out_by_a_topic_of_both_ways_comes_back_as_itself(
            local in "([a-c]{1,2}/)?", remote in "([a-c]{1,2}/)?", level in "[a-d]{1,3}", rest in "[a-d/]{0,6}",
        ) {
            let map = TopicMap::new(vec![rule("#", TopicDirection::Both, &local, &remote)]);
            prop_assert!(map.is_ok());
            let (map, name) = (map.unwrap(), format!("{local}{level}{rest}"));
            if let Some((there, _)) = map.outward(&name) {
                prop_assert!(there.starts_with(&remote));
                prop_assert_eq!(map.inward(&there).map(|(name, _)| name), Some(name));
            }
        }
    }
}
