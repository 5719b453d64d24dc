//! Who else has to do with a client: its place among all publishers, whose messages fill its queue, and whose queues its
//! messages fill.
//!
//! Told of every client of the broker once. Decides nothing.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::report::{ClientReport, ReceiverReport};

use super::words::{messages, number, per_second};
use crate::situation::usual_of;
use crate::view;

/// Instead of a usual rate.
pub(super) const NEW: &str = "new, has no usual rate yet";
/// Receivers that are named for one publisher.
const FILLED_MAX: usize = 5;

/// Name, rate, and what is usual.
type Named = (Arc<str>, f64, Option<f64>);

/// What is known of others.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    own_rate: Option<f64>,
    own_origin: u64,
    /// Its place among all publishers whose rate is known, the rarest first, and how many those are.
    pub(super) rank: Option<(usize, usize)>,
    /// Names and rates of those who fill its queue, by number.
    names: HashMap<u64, Option<Named>>,
    /// Receivers that lose its messages: name, how many of its, of how many.
    pub(super) fills: Vec<(Arc<str>, u64, u64)>,
}

impl Neighbours {
    pub(super) fn of(client: &ClientReport) -> Self {
        let names = client.receiver.crowding.iter().map(|flow| (flow.origin, None)).collect();
        let own_rate = view::learned_rate(client);
        Self { own_rate, own_origin: client.origin, rank: own_rate.map(|_| (1, 0)), names, fills: Vec::new() }
    }

    /// Somebody, possibly itself.
    pub(super) fn note(&mut self, other: &ClientReport) {
        if let (Some(own), Some(rate), Some((place, all))) =
            (self.own_rate, view::learned_rate(other), self.rank.as_mut())
        {
            *all += 1;
            *place += usize::from(rate < own);
        }
        if let Some(name) = self.names.get_mut(&other.origin) {
            *name = Some((Arc::clone(&other.client_id), other.rate.unwrap_or(0.0), usual_of(other)));
        }
        let receiver = &other.receiver;
        let own = receiver.crowding.iter().find(|flow| flow.origin == self.own_origin && flow.lost > 0);
        if let Some(flow) = own.filter(|_| receiver.is_losing) {
            self.fills.push((Arc::clone(&other.client_id), flow.lost, receiver.lost_of_late));
            self.fills.sort_by_key(|(_, lost, _)| core::cmp::Reverse(*lost));
            self.fills.truncate(FILLED_MAX);
        }
    }

    /// Whose queues its messages fill.
    pub(super) fn filled(&self) -> Vec<String> {
        let words = |(receiver, own, all): &(Arc<str>, u64, u64)| {
            format!("its messages fill the queue of {receiver:?}: {own} of {all} lost there of late were its own")
        };
        self.fills.iter().map(words).collect()
    }

    /// Whose messages fill its queue.
    pub(super) fn crowding(&self, receiver: &ReceiverReport) -> Vec<String> {
        let one = |flow: &tidegate_core::report::CrowdingFlow| {
            let who = match self.names.get(&flow.origin).and_then(Option::as_ref) {
                Some((id, rate, usual)) => {
                    let usual = usual.map_or_else(
                        || NEW.to_owned(),
                        |usual| format!("{} × its usual {}", number(rate / usual.max(1e-3)), per_second(usual)),
                    );
                    format!("{id:?}, which sends {} ({usual})", per_second(*rate))
                }
                None => "a publisher that is gone".to_owned(),
            };
            let mut facts = Vec::new();
            if flow.lost > 0 {
                facts.push(format!("{} of {} lost of late", flow.lost, receiver.lost_of_late));
            }
            if flow.waiting > 0 {
                facts.push(format!("{} waiting", messages(flow.waiting)));
            }
            format!("of {who}: {}", facts.join(", "))
        };
        let flows = receiver.crowding.iter().filter(|flow| flow.lost + flow.waiting > 0);
        let is_trouble = receiver.is_losing || receiver.is_slow;
        flows.filter(|_| is_trouble).map(one).collect()
    }

    pub(super) fn crowding_json(&self, receiver: &ReceiverReport) -> Vec<Value> {
        let one = |flow: &tidegate_core::report::CrowdingFlow| {
            let known = self.names.get(&flow.origin).and_then(Option::as_ref);
            json!({
                "client_id": known.map(|(id, ..)| &**id),
                "rate": known.map(|(_, rate, _)| view::rounded(*rate)),
                "usual_rate": known.and_then(|(_, _, usual)| usual.map(view::rounded)),
                "lost": flow.lost,
                "waiting": flow.waiting,
            })
        };
        receiver.crowding.iter().map(one).collect()
    }

    pub(super) fn fills_json(&self) -> Vec<Value> {
        let one = |(id, own, all): &(Arc<str>, u64, u64)| json!({ "client_id": &**id, "lost": own, "of": all });
        self.fills.iter().map(one).collect()
    }

    /// The publisher that fills its queue the most, by name.
    pub(super) fn guilty(&self, receiver: &ReceiverReport) -> Option<&str> {
        let first = receiver.crowding.first()?;
        self.names.get(&first.origin)?.as_ref().map(|(id, ..)| &**id)
    }
}
