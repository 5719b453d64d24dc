//! How many bridges a message has come through, as a user property that each of them counts up.
//!
//! No-local keeps a message from going back the way it came. A ring of three brokers is not seen by it; the count ends that after
//! [`HOPS_MAX`] copies. Before MQTT 5 there is no place for it: a ring that has a link of 3.1.1 is not seen at all.

use tidegate_wire_mqtt::{Properties, Property};

use crate::limits::HOPS_MAX;

/// The name of the user property.
pub const HOPS_PROPERTY: &str = "bridge-hops";

/// The properties of a message as they go on, with one hop more; none if it has come far enough. What belongs to one connection
/// (alias, subscription) stays behind.
pub(crate) fn go_on(properties: Properties<'_>) -> Option<Vec<u8>> {
    let count = |(name, text): (&str, &str)| (name == HOPS_PROPERTY).then(|| text.parse::<u8>().unwrap_or(HOPS_MAX));
    // Whoever says it twice is believed the larger.
    let hops = properties.user_properties().filter_map(count).max().unwrap_or(0);
    if hops >= HOPS_MAX {
        return None;
    }
    let mut encoded = Vec::new();
    properties.encode(&mut encoded, |property| match property {
        Property::TopicAlias(_) | Property::SubscriptionId(_) => false,
        Property::UserProperty(name, _) => *name != HOPS_PROPERTY,
        _ => true,
    });
    let text = (hops + 1).to_string();
    Properties::new(&[Property::UserProperty(HOPS_PROPERTY, &text)]).encode(&mut encoded, |_| true);
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU16, NonZeroU32};

    use super::*;

    #[test]
    fn each_bridge_counts_one_and_the_ninth_does_not_pass_it_on() {
        let list = [
            Property::MessageExpiry(5),
            Property::TopicAlias(NonZeroU16::MIN),
            Property::SubscriptionId(NonZeroU32::MIN),
            Property::UserProperty("unit", "°C"),
        ];
        let mut encoded = Vec::new();
        Properties::new(&list).encode(&mut encoded, |_| true);
        for hop in 1..=HOPS_MAX {
            encoded = go_on(Properties::from_encoded(&encoded)).unwrap();
            let properties = Properties::from_encoded(&encoded);
            assert_eq!((properties.topic_alias(), properties.subscription_id()), (None, None));
            assert_eq!(properties.message_expiry(), Some(5));
            let found: Vec<_> = properties.user_properties().collect();
            assert_eq!(found, [("unit", "°C"), (HOPS_PROPERTY, hop.to_string().as_str())]);
        }
        assert_eq!(go_on(Properties::from_encoded(&encoded)), None);
    }

    #[test]
    fn f047_who_lies_about_its_hops_gets_no_further() {
        for text in ["", "-1", "255", "256", "many"] {
            let list = [Property::UserProperty(HOPS_PROPERTY, text)];
            assert_eq!(go_on(Properties::new(&list)), None, "{text:?}");
        }
        let twice = [Property::UserProperty(HOPS_PROPERTY, "1"), Property::UserProperty(HOPS_PROPERTY, "8")];
        assert_eq!(go_on(Properties::new(&twice)), None);
    }
}
