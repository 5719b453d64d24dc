//! The gate of a guard: messages that only pass through, on their way to another broker.
//!
//! Neither kept nor answered here, they cannot be held or refused: who is beyond a limit is not read until its time has
//! come, whatever version and quality of service. TCP carries that to the client. Never for longer than a moment at a
//! time, so that whoever drives this can keep the other broker from taking the silence for an end.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::Verdict;

use super::GateArrival;
use super::refuse::Cause;
use crate::input::{Ending, Flow};
use crate::message::Publication;
use crate::state::ShardState;

/// A connection is looked at again after this, and goes on waiting if it has to.
const PASS_PAUSE_MAX: Duration = Duration::from_secs(1);

impl ShardState {
    /// Whether a message passes now. Colours it.
    pub(crate) fn admit_to_pass(
        &mut self,
        arrival: GateArrival,
        publication: &mut Publication<'_>,
        now: Timestamp,
    ) -> Result<Flow, Ending> {
        let slot = self.sessions.get(arrival.session).and_then(|session| session.publisher);
        let (verdict, is_slowed) = self.tell_rhythm(arrival, publication, slot, now);
        match verdict {
            Verdict::Pass => {
                if is_slowed {
                    self.calm_down(arrival.session, now);
                }
                Ok(Flow::On)
            }
            Verdict::Hold(wait) | Verdict::Refuse(wait) => {
                self.give_back(arrival.session);
                // It will be told of again: nothing is learned from a message that counts twice.
                self.note_crowded_out(arrival.session);
                self.note_slowed(arrival.session, now + wait, now);
                self.pause(arrival.conn, now + wait.min(PASS_PAUSE_MAX), now);
                Ok(Flow::Wait)
            }
            Verdict::Disconnect(wait) => Err(self.give_up(arrival, Cause::Rhythm, wait, now)),
        }
    }
}
