//! An hour of single clients: of those who were among the first in a top list, and of those whom somebody looks at. Pure:
//! told of clients when `watch` walks over all of them, it never looks at a clock and asks nobody.
//!
//! Bounded by the number of clients and of points; who was not heard of for the longest time makes room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::report::ClientReport;

use crate::limits::{HISTORY_TENS, TRACK_GAP_S, TRACK_STEP_S, TRACKED_CLIENTS_MAX};
use crate::situation::usual_of;
use crate::view;

/// Names of the values of a point, in order; rates are messages a second since the look before. What is not known is null, and
/// over a time without looks there is no point.
const FIELDS: [&str; 7] = ["at", "received", "delivered", "refused", "lost", "queued", "usual"];

/// The counters of a client at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ClientCounts {
    at: u64,
    received: u64,
    delivered: u64,
    refused: u64,
    lost: u64,
}

#[derive(Debug, Default)]
struct ClientTrack {
    last: ClientCounts,
    points: VecDeque<[f32; FIELDS.len() - 1]>,
    /// Seconds of the Unix epoch, one for each point.
    times: VecDeque<u64>,
}

/// The clients that are followed.
#[derive(Debug, Default)]
pub(crate) struct ClientHistories {
    tracks: HashMap<Arc<str>, ClientTrack>,
    /// Whom somebody looks at, and until when that is remembered.
    wanted: HashMap<Arc<str>, u64>,
}

impl ClientHistories {
    /// Somebody looks at this one: it is followed for an hour from now on, whatever it does.
    pub(crate) fn want(&mut self, client_id: &str, at: u64) {
        self.wanted.retain(|_, until| *until > at);
        if self.wanted.len() < TRACKED_CLIENTS_MAX || self.wanted.contains_key(client_id) {
            self.wanted.insert(client_id.into(), at + 3600);
        }
    }

    pub(crate) fn is_wanted(&self, client_id: &str) -> bool {
        self.wanted.contains_key(client_id)
    }

    /// A look at a client that is wanted or among the first.
    pub(crate) fn note(&mut self, client: &ClientReport, at: u64) {
        let ledger = &client.ledger;
        let counts = ClientCounts {
            at,
            received: ledger.received,
            delivered: ledger.delivered,
            refused: ledger.refused(),
            lost: view::drops(ledger),
        };
        let usual = usual_of(client).map_or(f32::NAN, |usual| usual as f32);
        self.push(&client.client_id, counts, client.queued.0 as f32, usual);
    }

    /// `usual` is no number while it is being learned.
    fn push(&mut self, client_id: &Arc<str>, counts: ClientCounts, queued: f32, usual: f32) {
        if !self.tracks.contains_key(client_id) && self.tracks.len() >= TRACKED_CLIENTS_MAX {
            let oldest = self.tracks.iter().min_by_key(|(_, track)| track.last.at).map(|(name, _)| Arc::clone(name));
            oldest.map(|name| self.tracks.remove(&name));
        }
        let track = self.tracks.entry(Arc::clone(client_id)).or_default();
        let last = track.last;
        // A rate over a time in which nobody looked would be spread over all of it.
        if last.at == 0 || counts.at.saturating_sub(last.at) > TRACK_GAP_S {
            track.last = counts;
            return;
        }
        let seconds = counts.at.saturating_sub(last.at);
        if seconds < TRACK_STEP_S {
            return;
        }
        track.last = counts;
        // Another session of the same name counts from zero.
        let rate = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f32 / seconds as f32;
        track.points.push_back([
            rate(counts.received, last.received),
            rate(counts.delivered, last.delivered),
            rate(counts.refused, last.refused),
            rate(counts.lost, last.lost),
            queued,
            usual,
        ]);
        track.times.push_back(counts.at);
        while track.points.len() > HISTORY_TENS {
            track.points.pop_front();
            track.times.pop_front();
        }
    }

    /// What is known of a client; no points if nothing is.
    pub(crate) fn json(&self, client_id: &str) -> Value {
        let row = |(at, values): (&u64, &[f32; FIELDS.len() - 1])| {
            let mut row = vec![json!(at)];
            row.extend(values.iter().map(|value| json!(view::rounded(f64::from(*value)))));
            Value::Array(row)
        };
        let points: Vec<Value> = self
            .tracks
            .get(client_id)
            .map_or_else(Vec::new, |track| track.times.iter().zip(&track.points).map(row).collect());
        json!({ "fields": FIELDS, "points": points })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(at: u64, received: u64) -> ClientCounts {
        ClientCounts { at, received, ..ClientCounts::default() }
    }

    #[test]
    fn rates_are_those_between_two_looks_and_an_hour_is_kept() {
        let (mut histories, name) = (ClientHistories::default(), Arc::from("meter-17"));
        for second in 0..8000_u64 {
            histories.push(&name, counts(1000 + second, 5 * second), 3.0, 4.0);
        }
        let known = histories.json("meter-17");
        let points = known["points"].as_array().unwrap();
        assert_eq!(points.len(), HISTORY_TENS);
        assert_eq!(points[0], json!([1000 + 7990 - 3590, 5.0, 0.0, 0.0, 0.0, 3.0, 4.0]));
        // A new session begins at zero: what it has sent since is its rate.
        histories.push(&name, counts(9010, 200), 0.0, 0.0);
        assert_eq!(
            histories.json("meter-17")["points"][HISTORY_TENS - 1],
            json!([9010, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        );
        assert_eq!(histories.json("nobody")["points"], json!([]));
    }

    #[test]
    fn what_is_not_known_is_null_and_a_time_without_looks_has_no_points() {
        let (mut histories, name) = (ClientHistories::default(), Arc::from("meter-17"));
        for second in [0, 10, 20, 260, 270_u64] {
            histories.push(&name, counts(1000 + second, 5 * second), 0.0, f32::NAN);
        }
        let known = histories.json("meter-17");
        let points: Vec<(&Value, &Value)> =
            known["points"].as_array().unwrap().iter().map(|point| (&point[0], &point[6])).collect();
        let null = &Value::Null;
        assert_eq!(points, [(&json!(1010), null), (&json!(1020), null), (&json!(1270), null)]);
    }

    #[test]
    fn who_was_not_heard_of_for_the_longest_time_makes_room() {
        let mut histories = ClientHistories::default();
        for number in 0..=(TRACKED_CLIENTS_MAX as u64) {
            histories.push(&Arc::from(format!("c{number}")), counts(10 + number, 0), 0.0, 0.0);
        }
        assert_eq!(histories.tracks.len(), TRACKED_CLIENTS_MAX);
        assert!(!histories.tracks.contains_key("c0"));
        for number in 0..2 * TRACKED_CLIENTS_MAX {
            histories.want(&format!("c{number}"), 0);
        }
        assert_eq!(histories.wanted.len(), TRACKED_CLIENTS_MAX);
        histories.want("late", 3601);
        assert!(histories.is_wanted("late") && !histories.is_wanted("c1"), "an hour has passed");
    }
}
