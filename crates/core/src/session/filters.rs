//! The filters that a session's client has subscribed to, and the retained messages that are still to be sent for them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tidegate_wire_mqtt::TopicFilter;

use super::Session;
use crate::retained::Walk;
use crate::shares::Shares;
use crate::subscriptions::SubscriberOptions;

/// What the filters of a shared subscription begin with.
const SHARED: &str = "$share/";

/// Filters and wishes, sorted by filter. A list and no tree: a node of that has room for eleven, and nearly every client has one or
/// two (280 bytes for one, against 32). A client that has its ten thousand moves 28 bytes for each behind a new one.
#[derive(Debug, Default)]
pub(super) struct Filters(Vec<(Box<str>, SubscriberOptions)>);

impl Filters {
    fn place(&self, filter: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(filter))
    }

    fn get(&self, filter: &str) -> Option<SubscriberOptions> {
        Some(self.0[self.place(filter).ok()?].1)
    }

    /// The wish that it had before.
    fn insert(&mut self, filter: &str, wish: SubscriberOptions) -> Option<SubscriberOptions> {
        match self.place(filter) {
            Ok(place) => Some(core::mem::replace(&mut self.0[place].1, wish)),
            Err(place) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (filter.into(), wish));
                None
            }
        }
    }

    fn remove(&mut self, filter: &str) -> Option<SubscriberOptions> {
        let place = self.place(filter).ok()?;
        Some(self.0.remove(place).1)
    }

    /// Those from this one on, and the names alone.
    fn names_from(&self, filter: &str) -> impl Iterator<Item = &str> {
        let (Ok(place) | Err(place)) = self.place(filter);
        self.0[place..].iter().map(|(filter, _)| &**filter)
    }
}

impl Session {
    /// All of them as the client wrote them, `$share/…` included.
    pub(crate) fn subscriptions(&self) -> impl ExactSizeIterator<Item = (&str, &SubscriberOptions)> {
        self.subscriptions.0.iter().map(|(filter, wish)| (&**filter, wish))
    }

    pub(crate) fn subscription(&self, filter: &str) -> Option<SubscriberOptions> {
        self.subscriptions.get(filter)
    }

    /// Those that are the client's alone.
    pub(crate) fn unshared_filters(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.names_from("").filter(|filter| !filter.starts_with(SHARED))
    }

    /// Those that it shares with others.
    pub(crate) fn shared_filters(&self) -> impl Iterator<Item = &str> {
        self.subscriptions.names_from(SHARED).take_while(|filter| filter.starts_with(SHARED))
    }

    /// What its subscriptions would have of things that are bounded, with this one.
    pub(crate) fn shares_with(&self, filter: &TopicFilter<'_>, wish: SubscriberOptions) -> Shares {
        let before = self.subscription(filter.as_str()).map(|before| Shares::of(filter, before));
        self.shares - before.unwrap_or_default() + Shares::of(filter, wish)
    }

    pub(crate) fn add_subscription(&mut self, filter: &TopicFilter<'_>, wish: SubscriberOptions) {
        let before = self.subscriptions.insert(filter.as_str(), wish);
        let before = before.map(|before| Shares::of(filter, before)).unwrap_or_default();
        self.shares = self.shares - before + Shares::of(filter, wish);
    }

    /// False if there is none.
    pub(crate) fn remove_subscription(&mut self, filter: &TopicFilter<'_>) -> bool {
        let Some(wish) = self.subscriptions.remove(filter.as_str()) else { return false };
        self.shares = self.shares - Shares::of(filter, wish);
        if let Some(bursts) = &mut self.bursts {
            bursts.remove(filter.as_str());
            self.bursts.take_if(|bursts| bursts.is_empty());
        }
        true
    }

    /// What is retained now is to be sent for this subscription; from the start, if that was under way.
    pub(crate) fn start_burst(&mut self, filter: &TopicFilter<'_>) {
        self.put_burst_back(filter.as_str().into(), Walk::new(filter.pattern()));
    }

    pub(crate) fn has_bursts(&self) -> bool {
        self.bursts.is_some()
    }

    pub(crate) fn take_burst(&mut self) -> Option<(Box<str>, Walk)> {
        let burst = self.bursts.as_mut()?.pop_first();
        self.bursts.take_if(|bursts| bursts.is_empty());
        burst
    }

    pub(crate) fn put_burst_back(&mut self, filter: Box<str>, walk: Walk) {
        self.bursts.get_or_insert_default().insert(filter, walk);
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
