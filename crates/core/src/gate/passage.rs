//! The gate of a guard: messages that only pass through, on their way to another broker.
//!
//! Neither kept nor answered here, they cannot be held or refused: who is beyond a limit is not read until its time has
//! come, whatever version and quality of service. TCP carries that to the client. Nobody is ended for it either, however long
//! it lasts: a client that is not read was told nothing that it could have listened to. Whoever drives this keeps the other broker
//! from taking the silence for an end.

use core::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::rhythm::Verdict;

use super::GateArrival;
use crate::input::Flow;
use crate::message::Publication;
use crate::session::Session;
use crate::state::ShardState;

/// A connection is asked about again after this at the latest: an operator may have lifted the limit.
const PASS_PAUSE_MAX: Duration = Duration::from_secs(10);

impl ShardState {
    /// Whether a message passes now. Colours it.
    pub(crate) fn admit_to_pass(
        &mut self,
        arrival: GateArrival,
        publication: &mut Publication<'_>,
        now: Timestamp,
    ) -> Flow {
        let slot = self.sessions.get(arrival.session).and_then(Session::publisher);
        let (verdict, is_slowed) = self.tell_rhythm(arrival, publication, slot, now);
        let wait = match verdict {
            Verdict::Pass => {
                if is_slowed {
                    self.calm_down(arrival.session, now);
                }
                return Flow::On;
            }
            Verdict::Hold(wait) => {
                // It will be told of again. (One that is refused owes nothing.)
                self.give_back(arrival.session);
                wait
            }
            Verdict::Refuse(wait) | Verdict::Disconnect(wait) => wait,
        };
        // Nothing is learned from a message that counts twice.
        self.note_crowded_out(arrival.session);
        self.note_slowed(arrival.session, now + wait, now);
        self.pause(arrival.conn, now + wait.min(PASS_PAUSE_MAX), now);
        Flow::Wait
    }
}
