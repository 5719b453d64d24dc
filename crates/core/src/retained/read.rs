//! The retained message of one topic, for a protocol whose clients ask for it.

use alloc::boxed::Box;
use alloc::sync::Arc;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::ReasonCode;

use crate::access::Action;
use crate::event::Event;
use crate::shard::ConnId;
use crate::state::ShardState;

/// What a topic says now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedState {
    /// What it says.
    pub payload: Box<[u8]>,
    /// Of which type that is, as its publisher says.
    pub content_type: Option<Box<str>>,
    /// Seconds left to live, if it has a lifetime.
    pub seconds_left: Option<u32>,
}

impl ShardState {
    pub(crate) fn read_retained(
        &mut self,
        conn: ConnId,
        topic: &str,
        now: Timestamp,
    ) -> Result<Option<RetainedState>, ReasonCode> {
        if let Err(reason) = self.has_retained(conn, topic, now) {
            if let Some(session) = self.session_of(conn) {
                let client_id = Arc::clone(session.client_id());
                self.tell(Event::Denied { client_id, what: "read", topic: topic.into() });
            }
            return Err(reason);
        }
        let Some(message) = self.retained.get(topic) else { return Ok(None) };
        let view = message.view();
        Ok((!view.is_expired(now)).then(|| RetainedState {
            payload: view.payload.into(),
            content_type: view.properties.content_type().map(Into::into),
            seconds_left: view.seconds_left(now),
        }))
    }

    /// Whether there is one that a client may read, without a word to anybody if it may not.
    pub(crate) fn has_retained(&mut self, conn: ConnId, topic: &str, now: Timestamp) -> Result<bool, ReasonCode> {
        let session = self.connection(conn).and_then(|connection| self.sessions.get(connection.session()));
        let Some(session) = session else { return Err(ReasonCode::UnspecifiedError) };
        let may = |action| self.may(session.identity(), session.client_id(), action, topic);
        if !may(Action::Subscribe) || !may(Action::Receive) {
            return Err(ReasonCode::NotAuthorized);
        }
        Ok(self.retained.get(topic).is_some_and(|message| !message.view().is_expired(now)))
    }
}
