//! What the subscriptions of one session have of things that are bounded. The client is told 0x97, "quota exceeded", when
//! there is nothing left.

use core::ops::{Add, Sub};

use tidegate_wire_mqtt::TopicFilter;

use crate::limits::{FILTER_LEVELS_MAX, SHARED_SUBSCRIPTIONS_MAX, WILDCARD_IDS_MAX};
use crate::subscriptions::SubscriberOptions;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Levels of all filters.
    levels: u32,
    /// Subscriptions with an identifier and a wildcard.
    wildcard_ids: u32,
    /// Shared subscriptions.
    shared: u32,
}

impl Shares {
    /// Those of one subscription.
    pub(crate) fn of(filter: &TopicFilter<'_>, wish: SubscriberOptions) -> Self {
        let pattern = filter.pattern();
        // Of one name each shared subscription is delivered for itself, with its own identifier.
        let is_wild = filter.group().is_none() && pattern.contains(['+', '#']);
        Self {
            levels: pattern.split('/').count() as u32,
            wildcard_ids: u32::from(is_wild && wish.id.is_some()),
            shared: u32::from(filter.group().is_some()),
        }
    }

    pub(crate) fn exceed(&self) -> bool {
        self.levels > FILTER_LEVELS_MAX
            || self.wildcard_ids > WILDCARD_IDS_MAX
            || self.shared > SHARED_SUBSCRIPTIONS_MAX
    }
}

impl Add for Shares {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            levels: self.levels + other.levels,
            wildcard_ids: self.wildcard_ids + other.wildcard_ids,
            shared: self.shared + other.shared,
        }
    }
}

impl Sub for Shares {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            levels: self.levels - other.levels,
            wildcard_ids: self.wildcard_ids - other.wildcard_ids,
            shared: self.shared - other.shared,
        }
    }
}
