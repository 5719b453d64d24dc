//! Who else has to do with a client: its place among all publishers, whose messages fill its queue, and whose queues its
//! messages fill.
//!
//! Told of every client of the broker once. Decides nothing.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::origin_of;
use tidegate_core::report::{ClientReport, ReceiverReport};

use super::words::{messages, number, per_second};
use crate::situation::usual_of;
use crate::view;

/// Instead of a usual rate.
pub(super) const NEW: &str = "new, has no usual rate yet";
/// Behind a receiver that has never had room for it.
const FROM_THE_BEGINNING: &str =
    "; it has been too much there since it came, and what is usual for it does not count there";
/// Receivers that are named for one publisher.
const FILLED_MAX: usize = 5;

/// Messages below which a queue is nothing to speak of.
const WAITING_MIN: u64 = 100;

/// Name, rate, and what is usual.
type Named = (Arc<str>, f64, Option<f64>);

/// A receiver whose queue its messages fill.
#[derive(Clone, Debug)]
pub(super) struct FilledReceiver {
    client_id: Arc<str>,
    /// How many of its messages were lost there of late, and of how many.
    own: u64,
    all: u64,
    /// Its messages a second that are lost there.
    loss_rate: f64,
    /// Messages a second that the receiver takes, of everybody.
    takes: f64,
    /// It has been too much for that receiver since it came.
    is_newcomer: bool,
}

/// What is known of others.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    own_rate: Option<f64>,
    own_origin: u64,
    /// Its place among all publishers whose rate is known, the rarest first, and how many those are.
    pub(super) rank: Option<(usize, usize)>,
    /// Names and rates of those who fill its queue, by number.
    names: HashMap<u64, Option<Named>>,
    /// The same of those who have gone.
    gone: HashMap<u64, Arc<str>>,
    /// Messages a second that everybody sends.
    all_send: f64,
    /// Receivers that lose its messages, the most first.
    pub(super) fills: Vec<FilledReceiver>,
    /// For whom the most waits, and how much.
    longest: Option<(Arc<str>, u64)>,
}

impl Neighbours {
    pub(super) fn of(client: &ClientReport) -> Self {
        let names = client.receiver.crowding.iter().map(|flow| (flow.origin, None)).collect();
        let own_rate = view::learned_rate(client);
        Self { own_rate, own_origin: client.origin, rank: own_rate.map(|_| (1, 0)), names, ..Self::default() }
    }

    /// Of one that has gone.
    pub(super) fn of_gone(client_id: &str) -> Self {
        Self { own_origin: origin_of(client_id), ..Self::default() }
    }

    /// Whether somebody fills its queue who is not connected.
    pub(super) fn misses_names(&self) -> bool {
        self.names.values().any(Option::is_none)
    }

    /// Whether this one, who has gone, is one of them.
    pub(super) fn is_missed(&self, client_id: &str) -> bool {
        self.names.get(&origin_of(client_id)).is_some_and(Option::is_none)
    }

    /// One of them, who has gone.
    pub(super) fn note_gone(&mut self, client_id: &Arc<str>) {
        self.gone.insert(origin_of(client_id), Arc::clone(client_id));
    }

    /// Somebody, possibly itself.
    pub(super) fn note(&mut self, other: &ClientReport) {
        self.all_send += other.rate.unwrap_or(0.0);
        if let (Some(own), Some(rate), Some((place, all))) =
            (self.own_rate, view::learned_rate(other), self.rank.as_mut())
        {
            *all += 1;
            *place += usize::from(rate < own);
        }
        if let Some(name) = self.names.get_mut(&other.origin) {
            *name = Some((Arc::clone(&other.client_id), other.rate.unwrap_or(0.0), usual_of(other)));
        }
        let queued = other.queued.0 as u64;
        if queued >= WAITING_MIN && self.longest.as_ref().is_none_or(|(_, most)| *most < queued) {
            self.longest = Some((Arc::clone(&other.client_id), queued));
        }
        let receiver = &other.receiver;
        let own = receiver.crowding.iter().find(|flow| flow.origin == self.own_origin && flow.lost > 0);
        if let Some(flow) = own.filter(|_| receiver.is_losing) {
            let loss_rate = receiver.loss_rate * flow.lost as f64 / receiver.lost_of_late.max(1) as f64;
            let (client_id, all, takes) = (Arc::clone(&other.client_id), receiver.lost_of_late, receiver.takes);
            let is_newcomer = flow.is_newcomer;
            self.fills.push(FilledReceiver { client_id, own: flow.lost, all, loss_rate, takes, is_newcomer });
            self.fills.sort_by_key(|filled| core::cmp::Reverse(filled.own));
            self.fills.truncate(FILLED_MAX);
        }
    }

    /// The part of all messages that somebody sends who sends so many a second; none if nobody was noted.
    pub(super) fn part_of_all(&self, rate: f64) -> Option<f64> {
        (self.all_send > 0.0).then(|| (rate / self.all_send).min(1.0))
    }

    /// The receiver with the longest queue, if one is long.
    pub(super) fn longest_queue(&self) -> Option<&Arc<str>> {
        self.longest.as_ref().map(|(client_id, _)| client_id)
    }

    /// What of that queue, looked into, is its own, if that is much: nothing is lost yet, and who asks would not hear of it.
    pub(super) fn waiting(&self, receiver: &ClientReport) -> Option<String> {
        let (id, all) = (&receiver.client_id, receiver.queued.0 as u64);
        let own = receiver.receiver.crowding.iter().find(|flow| flow.origin == self.own_origin)?.waiting;
        let is_much = all >= WAITING_MIN && own * 2 >= all;
        is_much
            .then(|| format!("its messages fill the queue of {id:?}: {own} of the {all} that wait there are its own"))
    }

    /// Whose queues its messages fill.
    pub(super) fn filled(&self) -> Vec<String> {
        let words = |FilledReceiver { client_id, own, all, is_newcomer, .. }: &FilledReceiver| {
            let since = if *is_newcomer && self.own_rate.is_some() { FROM_THE_BEGINNING } else { "" };
            format!(
                "its messages fill the queue of {client_id:?}: {own} of {all} lost there of late were its own{since}"
            )
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
                    let since = if flow.is_newcomer && !usual.starts_with(NEW) {
                        "; too much here from its beginning"
                    } else {
                        ""
                    };
                    let usual = format!("{usual}{since}");
                    format!("{id:?}, which sends {} ({usual})", per_second(*rate))
                }
                None => match self.gone.get(&flow.origin) {
                    Some(id) => format!("{id:?}, which has gone since"),
                    None => "a publisher that is gone".to_owned(),
                },
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
                "client_id": self.name_of(flow.origin),
                "rate": known.map(|(_, rate, _)| view::rounded(*rate)),
                "usual_rate": known.and_then(|(_, _, usual)| usual.map(view::rounded)),
                "lost": flow.lost,
                "waiting": flow.waiting,
            })
        };
        receiver.crowding.iter().map(one).collect()
    }

    pub(super) fn fills_json(&self) -> Vec<Value> {
        let one =
            |filled: &FilledReceiver| json!({ "client_id": &*filled.client_id, "lost": filled.own, "of": filled.all });
        self.fills.iter().map(one).collect()
    }

    /// The publisher that fills its queue the most, by name.
    pub(super) fn guilty(&self, receiver: &ReceiverReport) -> Option<&str> {
        self.name_of(receiver.crowding.first()?.origin)
    }

    fn name_of(&self, origin: u64) -> Option<&str> {
        let known = self.names.get(&origin).and_then(Option::as_ref);
        known.map(|(id, ..)| id).or_else(|| self.gone.get(&origin)).map(|id| &**id)
    }

    /// Whether it has been too much since it came for the receiver that loses the most of its messages.
    pub(super) fn is_newcomer(&self) -> bool {
        self.fills.first().is_some_and(|filled| filled.is_newcomer)
    }

    /// The receiver that loses the most of its messages, and how many a second it would take of them with room for others:
    /// four fifths of what reaches it now, where one sends so many. None if it takes nothing: that is its own fault.
    pub(super) fn bearable(&self, rate: f64) -> Option<(&str, Option<f64>)> {
        let filled = self.fills.first()?;
        let arrives = rate - filled.loss_rate;
        // The difference of two large numbers says nothing.
        let arrives = if arrives < rate / 20.0 { filled.takes } else { arrives.min(filled.takes) };
        Some((&filled.client_id, Some(0.8 * arrives).filter(|_| filled.takes >= 1.0)))
    }
}
