//! Rank of publishers by rate.
