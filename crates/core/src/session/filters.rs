//! The filters that a session's client has subscribed to, and the retained messages that are still to be sent for them.

use alloc::boxed::Box;
use core::ops::Bound;

use tidegate_wire_mqtt::TopicFilter;

use super::Session;
use crate::retained::Walk;
use crate::shares::Shares;
use crate::subscriptions::SubscriberOptions;

/// What the filters of a shared subscription begin with.
const SHARED: &str = "$share/";

impl Session {
    /// All of them as the client wrote them, `$share/…` included.
    pub(crate) fn subscriptions(&self) -> impl ExactSizeIterator<Item = (&str, &SubscriberOptions)> {
        self.subscriptions.iter().map(|(filter, wish)| (&**filter, wish))
    }

    pub(crate) fn subscription(&self, filter: &str) -> Option<SubscriberOptions> {
        self.subscriptions.get(filter).copied()
    }

    /// Those that are the client's alone.
    pub(crate) fn unshared_filters(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.keys().map(|filter| &**filter).filter(|filter| !filter.starts_with(SHARED))
    }

    /// Those that it shares with others.
    pub(crate) fn shared_filters(&self) -> impl Iterator<Item = &str> {
        let from_there = self.subscriptions.range::<str, _>((Bound::Included(SHARED), Bound::Unbounded));
        from_there.map(|(filter, _)| &**filter).take_while(|filter| filter.starts_with(SHARED))
    }

    /// What its subscriptions would have of things that are bounded, with this one.
    pub(crate) fn shares_with(&self, filter: &TopicFilter<'_>, wish: SubscriberOptions) -> Shares {
        let before = self.subscription(filter.as_str()).map(|before| Shares::of(filter, before));
        self.shares - before.unwrap_or_default() + Shares::of(filter, wish)
    }

    pub(crate) fn add_subscription(&mut self, filter: &TopicFilter<'_>, wish: SubscriberOptions) {
        let before = self.subscriptions.insert(filter.as_str().into(), wish);
        let before = before.map(|before| Shares::of(filter, before)).unwrap_or_default();
        self.shares = self.shares - before + Shares::of(filter, wish);
    }

    /// False if there is none.
    pub(crate) fn remove_subscription(&mut self, filter: &TopicFilter<'_>) -> bool {
        let Some(wish) = self.subscriptions.remove(filter.as_str()) else { return false };
        self.shares = self.shares - Shares::of(filter, wish);
        self.bursts.remove(filter.as_str());
        true
    }

    /// What is retained now is to be sent for this subscription; from the start, if that was under way.
    pub(crate) fn start_burst(&mut self, filter: &TopicFilter<'_>) {
        self.put_burst_back(filter.as_str().into(), Walk::new(filter.pattern()));
    }

    pub(crate) fn has_bursts(&self) -> bool {
        !self.bursts.is_empty()
    }

    pub(crate) fn take_burst(&mut self) -> Option<(Box<str>, Walk)> {
        self.bursts.pop_first()
    }

    pub(crate) fn put_burst_back(&mut self, filter: Box<str>, walk: Walk) {
        self.bursts.insert(filter, walk);
    }

    /// From now on it is among those that go on with them in the next turn; false if it was.
    pub(crate) fn list_for_bursts(&mut self) -> bool {
        !core::mem::replace(&mut self.is_bursting, true)
    }

    /// Its turn has come.
    pub(crate) fn unlist_for_bursts(&mut self) {
        self.is_bursting = false;
    }
}
