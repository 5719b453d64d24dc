//! Subscribing, polling and checking: the side of the [`GraphSpace`] that subscribers see.

use oxrdf::Variable;

use crate::error::{GraphError, Limit};
use crate::masks::Mask;
use crate::query::{Query, Row};
use crate::rows::ResultDelta;
use crate::space::{GraphSpace, context};
use crate::subscriber::{Subscriber, SubscriberEvent};

/// The name of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberId(pub u64);

/// A new subscriber and what it sees first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSubscriber {
    /// The number of the subscriber.
    pub subscriber: SubscriberId,
    /// The result now: notification 0.
    pub baseline: ResultBaseline,
}

/// A whole result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultBaseline {
    /// The number of this notification.
    pub sequence: u64,
    /// The version of the dataset it is the result of.
    pub version: u64,
    /// The columns.
    pub variables: Vec<Variable>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The answer to "what did I miss?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchUp {
    /// Exactly this.
    Missed {
        /// It counts as the notification of this number.
        sequence: u64,
        /// The version of the dataset it leads to.
        version: u64,
        /// What entered and left since.
        delta: ResultDelta,
    },
    /// That is no longer known; here is the whole result, in place of everything before.
    Fresh(ResultBaseline),
}

impl GraphSpace {
    /// Subscribes to a query. Equal queries are evaluated once for all.
    pub fn subscribe(&mut self, query: &Query) -> Result<NewSubscriber, GraphError> {
        let snapshot = self.dataset.snapshot();
        let dictionary = &mut self.dataset.dictionary;
        let entry = self.standing.query(query, &snapshot, dictionary, &context(&self.limits));
        self.subscribe_to_new(entry)
    }

    /// Subscribes to the quads that match any of the masks.
    pub fn subscribe_masks(&mut self, masks: &[Mask]) -> Result<NewSubscriber, GraphError> {
        let entry = self.standing.masks(masks, &mut self.dataset.dictionary, &context(&self.limits));
        self.subscribe_to_new(entry)
    }

    fn subscribe_to_new(&mut self, entry: Result<usize, GraphError>) -> Result<NewSubscriber, GraphError> {
        match entry {
            Ok(entry) => self.subscribe_to(entry),
            Err(error) => {
                self.dataset.sweep();
                Err(error)
            }
        }
    }

    pub(crate) fn subscribe_to(&mut self, number: usize) -> Result<NewSubscriber, GraphError> {
        let outcome = self.try_subscribe(number);
        if outcome.is_err() {
            self.standing.drop_unused(number, &mut self.dataset.dictionary);
            self.dataset.sweep();
        }
        outcome
    }

    fn try_subscribe(&mut self, number: usize) -> Result<NewSubscriber, GraphError> {
        if self.subscribers.len() >= self.limits.subscribers_max {
            return Err(Limit::Subscribers.into());
        }
        let baseline = self.baseline(number, 0)?;
        let entry = self.standing.entry_mut(number).ok_or(GraphError::Unknown)?;
        self.subscribers_made += 1;
        entry.subscribers.push(self.subscribers_made);
        self.subscribers.insert(self.subscribers_made, Subscriber::new(number, entry.journal.last()));
        Ok(NewSubscriber { subscriber: SubscriberId(self.subscribers_made), baseline })
    }

    fn baseline(&self, number: usize, sequence: u64) -> Result<ResultBaseline, GraphError> {
        let entry = self.standing.entry(number).ok_or(GraphError::Unknown)?;
        let rows = entry.baseline(&self.dataset.snapshot(), &context(&self.limits))?;
        let version = entry.version().unwrap_or(self.version());
        Ok(ResultBaseline { sequence, version, variables: entry.names(), rows })
    }

    /// The columns of what a subscriber is told.
    pub fn variables(&self, subscriber: SubscriberId) -> Option<Vec<Variable>> {
        Some(self.standing.entry(self.subscribers.get(&subscriber.0)?.query)?.names())
    }

    /// Ends a subscription; no event follows.
    pub fn unsubscribe(&mut self, subscriber: SubscriberId) -> Result<(), GraphError> {
        let gone = self.subscribers.remove(&subscriber.0).ok_or(GraphError::Unknown)?;
        if let Some(entry) = self.standing.entry_mut(gone.query) {
            entry.subscribers.retain(|id| *id != subscriber.0);
            self.standing.drop_unused(gone.query, &mut self.dataset.dictionary);
            self.dataset.sweep();
        }
        Ok(())
    }

    /// Subscribers that have events since they were last named here or polled empty.
    pub fn ready(&mut self) -> Vec<SubscriberId> {
        std::mem::take(&mut self.ready)
    }

    /// The next event of a subscriber, if there is one.
    pub fn poll(&mut self, subscriber: SubscriberId) -> Result<Option<SubscriberEvent>, GraphError> {
        let known = self.subscribers.get_mut(&subscriber.0).ok_or(GraphError::Unknown)?;
        Ok(known.poll(&self.limits.queue))
    }

    /// The same, with all changes that wait as one.
    pub fn poll_all(&mut self, subscriber: SubscriberId) -> Result<Option<SubscriberEvent>, GraphError> {
        let known = self.subscribers.get_mut(&subscriber.0).ok_or(GraphError::Unknown)?;
        Ok(known.poll_all(&self.limits.queue))
    }

    /// How often the result has changed since what the subscriber was told last.
    pub fn changes_waiting(&self, subscriber: SubscriberId) -> Option<u64> {
        let known = self.subscribers.get(&subscriber.0)?;
        Some(self.standing.entry(known.query)?.journal.last().saturating_sub(known.last_change()?))
    }

    /// What a subscriber missed after the notification of this number. The answer takes the place of all that waits.
    pub fn check(&mut self, subscriber: SubscriberId, since: u64) -> Result<CatchUp, GraphError> {
        let known = self.subscribers.get(&subscriber.0).ok_or(GraphError::Unknown)?;
        if let Some(error) = known.ended() {
            return Err(error.clone());
        }
        let number = known.query;
        let entry = self.standing.entry(number).ok_or(GraphError::Unknown)?;
        let (change, version) = (entry.journal.last(), entry.version().unwrap_or(self.version()));
        let missed = known.change_of(since).and_then(|change| entry.journal.since(change));
        let fresh = if missed.is_none() { Some(self.baseline(number, 0)?) } else { None };
        let known = self.subscribers.get_mut(&subscriber.0).ok_or(GraphError::Unknown)?;
        let sequence = known.caught_up(change, &self.limits.queue);
        Ok(match (missed, fresh) {
            (Some(delta), _) => CatchUp::Missed { sequence, version, delta },
            (None, Some(baseline)) => CatchUp::Fresh(ResultBaseline { sequence, ..baseline }),
            (None, None) => return Err(GraphError::Unknown),
        })
    }

    /// True if the subscriber's query is followed change by change, not evaluated again.
    pub fn is_followed(&self, subscriber: SubscriberId) -> Option<bool> {
        Some(self.standing.entry(self.subscribers.get(&subscriber.0)?.query)?.is_followed())
    }
}

#[cfg(test)]
mod tests {
    use oxrdf::NamedNode;

    use super::*;
    use crate::limits::QueryLimits;
    use crate::masks::MaskGraph;
    use crate::space::SpaceLimits;

    #[test]
    fn a_subscription_that_fails_midway_holds_no_terms() {
        let mut space = GraphSpace::new(1, SpaceLimits::default());
        // Followed, evaluated again, and masks: each finds no number for the last of its terms.
        let followed = "SELECT ?a { ?a <urn:a> ?b . ?b <urn:b> ?c . ?c <urn:c> ?d }";
        let again = "SELECT ?a (COUNT(*) AS ?n) { ?a <urn:a> ?b . ?b <urn:b> ?c . ?c <urn:c> ?d } GROUP BY ?a";
        let union = "SELECT ?a { { ?a <urn:a> <urn:b> } UNION { ?a <urn:c> <urn:d> } }";
        let node = |text: &str| NamedNode::new_unchecked(text);
        let mask = |predicate: &str, object: &str| Mask {
            subject: None,
            predicate: Some(node(predicate)),
            object: Some(node(object).into()),
            graph: MaskGraph::Default,
        };
        let query = |text: &str| Query::parse(text, &QueryLimits::default()).unwrap();
        space.dataset.dictionary.end_at(2);
        for text in [followed, again, union] {
            assert_eq!(space.subscribe(&query(text)).err(), Some(Limit::Terms.into()), "{text}");
            assert_eq!(space.terms(), (0, 0), "{text}");
        }
        let masks = [mask("urn:a", "urn:b"), mask("urn:c", "urn:d")];
        assert_eq!(space.subscribe_masks(&masks).err(), Some(Limit::Terms.into()));
        assert_eq!((space.terms(), space.standing_queries()), ((0, 0), 0));
        space.dataset.dictionary.end_at(4);
        let subscribed = space.subscribe(&query(followed)).unwrap();
        assert_eq!(space.terms().0, 3, "there is room, and it is held");
        space.unsubscribe(subscribed.subscriber).unwrap();
        assert_eq!(space.terms(), (0, 0));
    }
}
