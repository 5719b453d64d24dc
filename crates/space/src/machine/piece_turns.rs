//! Whose turn it is between two pieces of a large change: time of the writer, by the share of each.
//!
//! ```text
//! a piece took t        requests are owed 3 t
//! requests took t       they are owed t less
//! nothing is owed       a piece is next, although requests wait
//! nobody waits          a piece is next
//! others are pressed    a piece is followed by a rest (`yielding`), in which only requests are done
//! ```
//! So whoever comes waits for one piece at most, a large change has a quarter of the writer however many come, and all of
//! it while nobody does. Pure: time is an argument; driven by `front_desk`.

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::limits::REQUESTS_PER_PIECE;

/// What the writer was told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOf {
    Piece,
    Request,
}

/// Time that requests are owed for pieces.
#[derive(Debug, Default)]
pub(crate) struct PieceTurns {
    since: Option<(TurnOf, Timestamp)>,
    owed: u64,
    /// No piece is done before.
    rests_until: Timestamp,
}

impl PieceTurns {
    /// The writer is back from what it was told; a piece is followed by such a rest.
    pub(crate) fn settle(&mut self, now: Timestamp, rest: impl FnOnce(Duration) -> Duration) {
        let Some((turn, began)) = self.since.take() else { return };
        if turn == TurnOf::Piece {
            self.rests_until = now + rest(now.since(began));
        }
        let took = now.since(began).as_nanos().try_into().unwrap_or(u64::MAX);
        self.owed = match turn {
            // What was owed before is forgotten: a piece is only done when nobody waits or nothing is owed.
            TurnOf::Piece => u64::saturating_mul(took, REQUESTS_PER_PIECE.into()),
            TurnOf::Request => self.owed.saturating_sub(took),
        };
    }

    /// For how long no piece is done.
    pub(crate) fn rest(&self, now: Timestamp) -> Duration {
        self.rests_until.since(now)
    }

    /// Whether a piece goes before requests that wait.
    pub(crate) fn is_piece_first(&self) -> bool {
        self.owed == 0
    }

    pub(crate) fn begin(&mut self, turn: TurnOf, now: Timestamp) {
        self.since = Some((turn, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_waits_for_one_piece_and_pieces_have_their_share() {
        let (mut turns, mut now) = (PieceTurns::default(), Timestamp::from_secs_f64(1.0));
        let (mut pieces, mut requests, mut in_a_row) = (Duration::ZERO, Duration::ZERO, 0);
        for n in 0..10_000 {
            turns.settle(now, |_| Duration::ZERO);
            let (turn, time) = if turns.is_piece_first() {
                (TurnOf::Piece, Duration::from_micros(1_000 + 700 * (n % 3)))
            } else {
                (TurnOf::Request, Duration::from_micros(30 + n % 50))
            };
            turns.begin(turn, now);
            now = now + time;
            match turn {
                TurnOf::Piece => (pieces, in_a_row) = (pieces + time, in_a_row + 1),
                TurnOf::Request => (requests, in_a_row) = (requests + time, 0),
            }
            assert!(in_a_row <= 1, "requests wait, and pieces go on");
        }
        let share = pieces.as_secs_f64() / (pieces + requests).as_secs_f64();
        assert!((0.23..0.27).contains(&share), "{share}");
    }

    #[test]
    fn time_in_which_the_writer_waited_is_nobodys() {
        let (mut turns, second) = (PieceTurns::default(), Duration::from_secs(1));
        let start = Timestamp::from_secs_f64(1.0);
        turns.begin(TurnOf::Piece, start);
        turns.settle(start + Duration::from_millis(1), |_| Duration::ZERO);
        assert!(!turns.is_piece_first());
        // Nothing was begun, so nothing is settled.
        turns.settle(start + second, |_| Duration::ZERO);
        assert!(!turns.is_piece_first());
        turns.begin(TurnOf::Request, start + second);
        turns.settle(start + second + Duration::from_millis(3), |_| Duration::ZERO);
        assert!(turns.is_piece_first());
    }

    #[test]
    fn a_piece_rests_as_it_is_told() {
        let (mut turns, start) = (PieceTurns::default(), Timestamp::from_secs_f64(1.0));
        turns.begin(TurnOf::Piece, start);
        let end = start + Duration::from_millis(2);
        turns.settle(end, |took| took * 3);
        assert_eq!(turns.rest(end + Duration::from_millis(1)), Duration::from_millis(5));
        turns.begin(TurnOf::Request, end);
        turns.settle(end + Duration::from_millis(6), |_| panic!("requests do not rest"));
        assert_eq!(turns.rest(end + Duration::from_millis(6)), Duration::ZERO);
    }
}
