//! A portion of a connection's bytes, packet by packet: the one loop that calls out, to the face of the connection.

use tidegate_control::Timestamp;

use super::{ConnId, Progress, Shard, Then};
use crate::input::{COST_BYTES, Flow, Moment, Portion, ReadStep, whole};
use crate::limits::PACKETS_PER_INPUT_MAX;

impl Shard {
    /// Bytes of a connected client that were read as this portion: `read` is given what is left of them, packet by packet,
    /// as many as there are (bounded).
    ///
    /// A publisher is not to be taken for too fast because we were too slow: bytes that could not be read before are taken
    /// to have come evenly.
    pub fn handle_portion_by(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        portion: &Portion,
        now: Timestamp,
        read: impl FnMut(&mut Self, &[u8], &Moment) -> ReadStep,
    ) -> Progress {
        self.state.begin_portion(conn, portion.dry_at, now);
        let observed = self.state.begin_observing(conn);
        let progress = self.go_through(conn, bytes, portion, now, read);
        self.state.gate.end_reading();
        if let Some(before) = observed {
            self.state.end_observing(conn, before, portion.dry_at, now);
        }
        progress
    }

    /// As many whole packets as there are.
    #[inline]
    fn go_through(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        portion: &Portion,
        now: Timestamp,
        mut read: impl FnMut(&mut Self, &[u8], &Moment) -> ReadStep,
    ) -> Progress {
        let Portion { since, units, .. } = *portion;
        let mut consumed = 0;
        // In eighths of a unit.
        let (mut used, most) = (0_u64, u64::from(units) * 8);
        let lag = now.as_nanos().saturating_sub(since.as_nanos());
        let lag_per_byte = lag as f64 / bytes.len().max(1) as f64;
        for _ in 0..PACKETS_PER_INPUT_MAX {
            if used >= most {
                break;
            }
            match self.state.begin_packet(conn, consumed > 0, now) {
                Then::Continue => {}
                Then::Close => {
                    return Progress { consumed: bytes.len(), at_least: 0, then: Then::Close, units: whole(used) };
                }
                Then::Pause => return Progress { consumed, at_least: 1, then: Then::Pause, units: whole(used) },
            }
            let (rest, copies) = (&bytes[consumed..], self.state.copies);
            let handled = match read(self, rest, &Moment::new(since, now, lag_per_byte, rest.len())) {
                ReadStep::Packet { size, is_publication, handled } => {
                    used += 8 + (size / COST_BYTES) as u64 + (self.state.copies - copies);
                    let is_waiting = matches!(handled, Ok(Flow::Wait));
                    self.state.end_packet(conn, (!is_waiting).then_some(size), is_publication, now);
                    consumed += if is_waiting { 0 } else { size };
                    handled
                }
                ReadStep::Incomplete { at_least } => {
                    if !rest.is_empty() {
                        self.state.expect_rest(conn, at_least, now);
                    }
                    return self.state.progress(conn, consumed, at_least, used);
                }
                ReadStep::Broken(ending) => Err(ending),
            };
            if let Err(ending) = handled {
                let (why, will) = ending.into_parts();
                self.state.end_connection(conn, why, will, now);
                return Progress { consumed: bytes.len(), at_least: 0, then: Then::Close, units: whole(used) };
            }
        }
        if consumed > 0 {
            self.state.end_portion(conn);
        }
        self.state.progress(conn, consumed, 1, used)
    }
}
