//! What one client does, or what becomes of the messages of some topics, written down while somebody follows it: `tidegate log`.
//!
//! Nothing is written down unless somebody fetches it: a log ends by itself when that stops, and while there is none a message
//! costs a look at a flag. What finds no room is counted. A payload is never written down, only its length. What is written is
//! what the shard decided, found by comparing its counters before and after: a fate cannot be told here that is not counted.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::ArrivalTime;
use tidegate_wire_mqtt::{Delivery, PacketId, QoS, ReasonCode, TopicFilter, topic};

use crate::event::{Event, LedgerSide, Stats};
use crate::face::OutgoingPublication;
use crate::handover::Confirmation;
use crate::input::{Ending, Flow};
use crate::ledger::Loss;
use crate::limits::{ACTIVITIES_MAX, ACTIVITY_LEASE, ACTIVITY_LOGS_MAX, ACTIVITY_TOPIC_BYTES};
use crate::message::Shareable;
use crate::publish::Incoming;
use crate::shard::ConnId;
use crate::state::ShardState;
use crate::subscribe::own_filters;

/// Whom or what somebody follows; what is given must be met, all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityFilter {
    /// This client, whatever it does.
    pub client: Option<Arc<str>>,
    /// A topic filter, which has been checked: messages to these topics, and subscriptions to this or to a topic of it.
    pub topic: Option<Box<str>>,
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    pub at: Timestamp,
    /// Whose it is.
    pub client_id: Arc<str>,
    pub deed: Deed,
}

/// What was done, by a client or to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// What logs have, too: connected, refused, denied, slowed, disconnected.
    Happened(Box<Event>),
    /// The client sent a message.
    Published { message: MessageSketch, outcome: PublishOutcome },
    /// The client asked for a subscription.
    Subscribed {
        filter: Box<str>,
        /// The quality that it has, or why it has none.
        granted: Result<QoS, ReasonCode>,
    },
    /// The client wants no more of this.
    Unsubscribed {
        filter: Box<str>,
        /// There was such a subscription.
        existed: bool,
    },
    /// A message was put on its way to the client.
    Sent {
        message: MessageSketch,
        /// By which the client acknowledges it; none at QoS 0.
        number: Option<PacketId>,
        /// It was sent before.
        is_repeated: bool,
    },
    /// A message for the client waits in its queue.
    Queued { message: MessageSketch },
    /// A message for the client was lost: this one, or for want of room another in its place.
    Lost { message: MessageSketch, reason: Loss },
    /// The client has said what became of a message that it was sent.
    Confirmed { number: PacketId, confirmation: Confirmation },
}

/// A message without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSketch {
    /// Cut if it is long.
    pub topic: Box<str>,
    pub qos: QoS,
    pub retain: bool,
    pub payload_bytes: u32,
}

/// What became of a message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Taken, for so many receivers here, other shards and maps.
    Passed { places: u64 },
    /// It waits because its client is too fast.
    Held,
    /// It is not read yet: its connection is paused.
    Unread,
    /// Not taken, or taken before.
    Gone(Loss),
}

/// What was written down since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedActivities {
    /// In the order in which it happened.
    pub activities: Vec<Activity>,
    /// Lines that found no room.
    pub missed: u64,
}

/// There are as many logs as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogsFull;

/// The logs that are followed.
#[derive(Debug, Default)]
pub(crate) struct ActivityLogs {
    logs: Vec<ActivityLog>,
    /// The time of this turn; events have none of their own.
    now: Timestamp,
}

#[derive(Debug)]
struct ActivityLog {
    key: u64,
    filter: ActivityFilter,
    /// Until when, unless somebody asks again.
    until: Timestamp,
    recorded: RecordedActivities,
}

impl ActivityFilter {
    /// None if it asks for nothing, or if this is no topic filter.
    pub fn new(client: Option<&str>, topic: Option<&str>) -> Option<Self> {
        let is_sound = topic.is_none_or(|topic| TopicFilter::parse(topic, &own_filters()).is_ok());
        let is_something = client.is_some() || topic.is_some();
        (is_sound && is_something).then(|| Self { client: client.map(Arc::from), topic: topic.map(Box::from) })
    }

    fn wants(&self, client_id: &str, name: Option<&str>) -> bool {
        self.client.as_deref().is_none_or(|client| client == client_id)
            && match (&self.topic, name) {
                (None, _) => true,
                (Some(filter), Some(name)) => topic::matches(filter, name),
                // What has no topic is told of a client that somebody asked for.
                (Some(_), None) => self.client.is_some(),
            }
    }

    /// The same for a subscription: to the same filter, or to one of its topics.
    fn wants_subscription(&self, client_id: &str, to: &str) -> bool {
        let client = Self { client: self.client.clone(), topic: None };
        let is_same = |filter: &str| filter == to || topic::matches(filter, to);
        client.wants(client_id, None) && self.topic.as_deref().is_none_or(is_same)
    }
}

impl ActivityLogs {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.logs.is_empty()
    }

    fn note(&mut self, is_wanted: impl Fn(&ActivityFilter) -> bool, make: impl Fn() -> Activity) {
        for log in self.logs.iter_mut().filter(|log| is_wanted(&log.filter)) {
            let recorded = &mut log.recorded;
            if recorded.activities.len() < ACTIVITIES_MAX {
                recorded.activities.push(make());
            } else {
                recorded.missed += 1;
            }
        }
    }

    /// A turn begins: logs that nobody has asked for end.
    #[cold]
    pub(crate) fn begin_turn(&mut self, now: Timestamp) {
        self.now = now;
        self.logs.retain(|log| log.until > now);
    }
}

impl ShardState {
    pub(crate) fn take_activities(
        &mut self,
        key: u64,
        filter: &ActivityFilter,
        now: Timestamp,
    ) -> Result<RecordedActivities, LogsFull> {
        self.activities.begin_turn(now);
        let until = now + ACTIVITY_LEASE;
        let logs = &mut self.activities.logs;
        if let Some(log) = logs.iter_mut().find(|log| log.key == key) {
            log.until = until;
            return Ok(core::mem::take(&mut log.recorded));
        }
        if logs.len() >= ACTIVITY_LOGS_MAX {
            return Err(LogsFull);
        }
        logs.push(ActivityLog { key, filter: filter.clone(), until, recorded: RecordedActivities::default() });
        Ok(RecordedActivities::default())
    }

    /// Writes down what a session does with a topic, or without one.
    #[cold]
    fn note_activity(&mut self, session: u32, topic: Option<&str>, at: Timestamp, deed: impl Fn() -> Deed) {
        let Some(client_id) = self.sessions.get(session).map(|session| Arc::clone(session.client_id())) else { return };
        let make = || Activity { at, client_id: Arc::clone(&client_id), deed: deed() };
        self.activities.note(|filter| filter.wants(&client_id, topic), make);
    }

    #[cold]
    pub(crate) fn note_event_activity(&mut self, event: &Event) {
        let (client_id, topic) = match event {
            Event::Denied { client_id, topic, .. } => (client_id, Some(topic.as_str())),
            Event::Connected { client_id, .. }
            | Event::Refused { client_id, .. }
            | Event::Disconnected { client_id, .. }
            | Event::SessionEnded { client_id }
            | Event::Slowed { client_id, .. }
            | Event::Outlawed { client_id, .. }
            | Event::Drifted { client_id, .. }
            | Event::Recovered { client_id } => (client_id, None),
            Event::Store { .. } => return,
        };
        let at = self.activities.now;
        let deed = || Deed::Happened(Box::new(event.clone()));
        let make = || Activity { at, client_id: Arc::clone(client_id), deed: deed() };
        self.activities.note(|filter| filter.wants(client_id, topic), make);
    }

    #[cold]
    pub(crate) fn publish_followed(
        &mut self,
        conn: ConnId,
        incoming: &Incoming<'_>,
        came: ArrivalTime,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        let session = self.session_at(conn);
        let (before, copies) = (self.stats, self.copies);
        let done = self.publish_unfollowed(conn, incoming, came, now);
        let outcome = match &done {
            Ok(Flow::Wait) => PublishOutcome::Unread,
            _ if self.stats.publish_passed > before.publish_passed => {
                PublishOutcome::Passed { places: self.copies.saturating_sub(copies) }
            }
            _ => match new_loss(&before, &self.stats, LedgerSide::In) {
                Some(loss) => PublishOutcome::Gone(loss),
                None => PublishOutcome::Held,
            },
        };
        if let Some(session) = session {
            let (name, qos, bytes) = (incoming.topic, incoming.delivery.qos(), incoming.payload.len());
            let deed = || Deed::Published { message: sketch(name, qos, incoming.retain, bytes), outcome };
            self.note_activity(session, Some(name), now, deed);
        }
        done
    }

    #[cold]
    pub(crate) fn deliver_followed(
        &mut self,
        session: u32,
        message: &Shareable<'_>,
        now: Timestamp,
        deliver: impl FnOnce(&mut Self),
    ) {
        let before = self.stats;
        deliver(self);
        // What is sent is noted where everything is sent that goes out, now or later.
        let is_sent = self.stats.publish_sent > before.publish_sent;
        if is_sent || self.stats.inflight_messages > before.inflight_messages {
            return;
        }
        let publication = &message.publication;
        let (name, qos, retain, bytes) =
            (publication.topic, publication.qos, publication.retain, publication.payload.len());
        let is_queued = self.stats.queued_messages > before.queued_messages;
        let loss = new_loss(&before, &self.stats, LedgerSide::Out).filter(|_| !is_queued);
        self.note_activity(session, Some(name), now, || match loss {
            Some(reason) => Deed::Lost { message: sketch(name, qos, retain, bytes), reason },
            None => Deed::Queued { message: sketch(name, qos, retain, bytes) },
        });
    }

    #[cold]
    pub(crate) fn note_sending(&mut self, session: u32, copy: &OutgoingPublication<'_>) {
        let publication = copy.publication;
        let (number, is_repeated) = match copy.delivery {
            Delivery::AtMostOnce => (None, false),
            Delivery::AtLeastOnce { packet_id, dup } | Delivery::ExactlyOnce { packet_id, dup } => {
                (Some(packet_id), dup)
            }
        };
        let qos = copy.delivery.qos();
        let message = || sketch(publication.topic, qos, copy.retain, publication.payload.len());
        let deed = || Deed::Sent { message: message(), number, is_repeated };
        self.note_activity(session, Some(publication.topic), copy.now, deed);
    }

    #[cold]
    pub(crate) fn note_subscribed(&mut self, session: u32, filter: &str, granted: Result<QoS, ReasonCode>) {
        self.note_subscription(session, filter, || Deed::Subscribed { filter: cut(filter), granted });
    }

    #[cold]
    pub(crate) fn note_unsubscribed(&mut self, session: u32, filter: &str, existed: bool) {
        self.note_subscription(session, filter, || Deed::Unsubscribed { filter: cut(filter), existed });
    }

    fn note_subscription(&mut self, session: u32, to: &str, deed: impl Fn() -> Deed) {
        let Some(client_id) = self.sessions.get(session).map(|session| Arc::clone(session.client_id())) else { return };
        let at = self.activities.now;
        let make = || Activity { at, client_id: Arc::clone(&client_id), deed: deed() };
        self.activities.note(|filter| filter.wants_subscription(&client_id, to), make);
    }

    #[cold]
    pub(crate) fn note_confirmed(
        &mut self,
        conn: ConnId,
        number: PacketId,
        confirmation: Confirmation,
        now: Timestamp,
    ) {
        let Some(session) = self.session_at(conn) else { return };
        self.note_activity(session, None, now, || Deed::Confirmed { number, confirmation });
    }
}

/// The loss that was counted in between, if there was one.
fn new_loss(before: &Stats, after: &Stats, side: LedgerSide) -> Option<Loss> {
    let of_side = Loss::ALL.into_iter().filter(|loss| loss.side() == side);
    of_side.into_iter().find(|loss| loss.count(after) > loss.count(before))
}

fn sketch(topic: &str, qos: QoS, retain: bool, bytes: usize) -> MessageSketch {
    MessageSketch { topic: cut(topic), qos, retain, payload_bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
}

/// A line is for a person: what nobody reads to its end does not fill the memory.
fn cut(text: &str) -> Box<str> {
    if text.len() <= ACTIVITY_TOPIC_BYTES {
        return text.into();
    }
    let end = (0..=ACTIVITY_TOPIC_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let mut short = String::from(&text[..end]);
    short.push('…');
    short.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(client: Option<&str>, topic: Option<&str>) -> ActivityFilter {
        ActivityFilter { client: client.map(Arc::from), topic: topic.map(Box::from) }
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        assert_eq!(ActivityFilter::new(Some("a"), Some("x/#")), Some(filter(Some("a"), Some("x/#"))));
        for wrong in [None, Some("x/#/y"), Some(""), Some("a+")] {
            assert_eq!(ActivityFilter::new(None, wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn all_that_is_given_must_be_met() {
        let client = filter(Some("a"), None);
        assert!(client.wants("a", Some("x")) && client.wants("a", None) && !client.wants("b", Some("x")));
        let topic = filter(None, Some("x/#"));
        assert!(topic.wants("b", Some("x/y")) && !topic.wants("b", Some("y")) && !topic.wants("b", None));
        let both = filter(Some("a"), Some("x/#"));
        assert!(both.wants("a", Some("x/y")) && both.wants("a", None));
        assert!(!both.wants("a", Some("y")) && !both.wants("b", Some("x/y")));
        assert!(topic.wants_subscription("b", "x/#") && topic.wants_subscription("b", "x/1"));
        assert!(!topic.wants_subscription("b", "y/#") && client.wants_subscription("a", "y/#"));
    }

    #[test]
    fn a_long_topic_is_cut_between_letters() {
        let long = "é".repeat(ACTIVITY_TOPIC_BYTES);
        let short = cut(&long);
        assert!(short.len() <= ACTIVITY_TOPIC_BYTES + '…'.len_utf8() && short.ends_with("é…"), "{short}");
        assert_eq!(&*cut("a/b"), "a/b");
    }

    #[test]
    fn what_finds_no_room_is_counted_and_a_log_ends_with_its_lease() {
        let mut logs = ActivityLogs::default();
        let until = Timestamp::ZERO + ACTIVITY_LEASE;
        let recorded = RecordedActivities::default();
        logs.logs.push(ActivityLog { key: 1, filter: filter(None, None), until, recorded });
        let make = || Activity {
            at: Timestamp::ZERO,
            client_id: "a".into(),
            deed: Deed::Unsubscribed { filter: "x".into(), existed: true },
        };
        for _ in 0..ACTIVITIES_MAX + 3 {
            logs.note(|_| true, make);
        }
        assert_eq!((logs.logs[0].recorded.activities.len(), logs.logs[0].recorded.missed), (ACTIVITIES_MAX, 3));
        logs.begin_turn(Timestamp::ZERO);
        assert!(logs.is_on());
        logs.begin_turn(until);
        assert!(!logs.is_on());
    }
}
