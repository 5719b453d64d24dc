use super::*;
use alloc::collections::BTreeSet;
use alloc::string::String;
use proptest::prelude::*;
use tidegate_wire_mqtt::{Limits, TopicFilter};

fn wish() -> SubscriberOptions {
    SubscriberOptions { qos: QoS::AtMostOnce, no_local: false, retain_as_published: false, is_latest: false, id: None }
}

#[derive(Clone, Debug)]
enum Operation {
    Subscribe(String, u32),
    Unsubscribe(String, u32),
    Interest(String, usize, bool),
    Match(String),
}

/// Few words, so that filters and topics meet; `$` at the start now and then.
fn filter() -> impl Strategy<Value = String> {
    let level = prop::sample::select(alloc::vec!["a", "b", "", "+", "$x"]);
    (prop::collection::vec(level, 1..4), any::<bool>()).prop_filter_map("an empty filter", |(levels, hash)| {
        let mut text = levels.join("/");
        if hash {
            text.push_str("/#");
        }
        TopicFilter::parse(&text, &Limits::default()).is_ok().then_some(text)
    })
}

fn topic() -> impl Strategy<Value = String> {
    let level = prop::sample::select(alloc::vec!["a", "b", "", "$x"]);
    prop::collection::vec(level, 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("an empty topic", |topic| !topic.is_empty())
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (filter(), 0..4_u32).prop_map(|(filter, session)| Operation::Subscribe(filter, session)),
        2 => (filter(), 0..4_u32).prop_map(|(filter, session)| Operation::Unsubscribe(filter, session)),
        1 => (filter(), prop::sample::select(alloc::vec![1, 2, 63, 64, 200]), any::<bool>()).prop_map(|(filter, shard, yes)| Operation::Interest(filter, shard, yes)),
        4 => topic().prop_map(Operation::Match),
    ]
}

/// A list of filters, each compared with the topic level by level.
#[derive(Default)]
struct Model {
    subscribers: BTreeSet<(String, u32)>,
    interest: BTreeSet<(String, usize)>,
}

impl Model {
    fn matches(&self, topic: &str) -> (Vec<u32>, ShardSet) {
        let fits = |text: &str| TopicFilter::parse(text, &Limits::default()).is_ok_and(|filter| filter.matches(topic));
        let mut sessions: Vec<u32> =
            self.subscribers.iter().filter(|(text, _)| fits(text)).map(|(_, session)| *session).collect();
        sessions.sort_unstable();
        let mut shards = ShardSet::default();
        self.interest.iter().filter(|(text, _)| fits(text)).for_each(|(_, shard)| shards.insert(*shard));
        (sessions, shards)
    }
}

proptest! {
    #[test]
    fn the_tree_matches_what_a_list_of_filters_matches(operations in prop::collection::vec(operation(), 1..120)) {
        let (mut tree, mut model) = (Subscriptions::new(1), Model::default());
        for operation in operations {
            match operation {
                Operation::Subscribe(filter, session) => {
                    let is_known = !model.subscribers.insert((filter.clone(), session));
                    let change = tree.subscribe(&filter, session, wish());
                    prop_assert_eq!(change == SubscribeOutcome::Replaced, is_known);
                }
                Operation::Unsubscribe(filter, session) => {
                    model.subscribers.remove(&(filter.clone(), session));
                    tree.unsubscribe(&filter, session);
                }
                Operation::Interest(filter, shard, true) => {
                    model.interest.insert((filter.clone(), shard));
                    tree.set_interest(&filter, shard, true);
                }
                Operation::Interest(filter, shard, false) => {
                    model.interest.remove(&(filter.clone(), shard));
                    tree.set_interest(&filter, shard, false);
                }
                Operation::Match(topic) => {
                    let found = tree.matches(&topic);
                    let mut sessions: Vec<u32> = found.subscribers.iter().map(|(session, _)| *session).collect();
                    sessions.sort_unstable();
                    prop_assert_eq!((sessions, found.shards), model.matches(&topic), "{}", topic);
                }
            }
            prop_assert_eq!(tree.len(), model.subscribers.len());
        }
        // Nothing is left behind when everything is gone.
        prop_assert!(tree.shapes.len() <= tree.tree.len());
        for (filter, session) in &model.subscribers {
            tree.unsubscribe(filter, *session);
        }
        for (filter, shard) in &model.interest {
            tree.set_interest(filter, *shard, false);
        }
        prop_assert!(tree.tree.is_leaf(ROOT));
        prop_assert_eq!(tree.shapes.len(), 1);
    }
}
