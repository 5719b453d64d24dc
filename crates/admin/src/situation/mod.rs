//! What is wrong with the broker right now, and with whom: the facts that the sentence (`sentence`) and the alarms are made of.
//!
//! Pure: told of every client once (`note`), then of those whose messages fill the queues of losing receivers
//! (`name_crowding`). Knows neither sockets nor clocks; `watch` gathers it and shows it to everybody.

mod sentence;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::report::{ClientReport, ClientState};

use crate::alarms::ALARMS_MAX;
use crate::bridges::TroubledBridge;
use crate::view;
pub(crate) use sentence::{CardSubject, Mood, TroubleCard, name_conflict};

/// Whose part of a receiver's losses is less is not to blame for them.
const GUILTY_PART: f64 = 0.2;
/// So many times what is usual is a flood.
pub(crate) const FLOOD_FACTOR: f64 = 2.0;

/// Messages a second of a newcomer that are nobody's usual traffic while others wait.
const NEWCOMER_RATE_MAX: f64 = 100.0;

/// Everything that is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TroubleReport {
    /// Publishers that send too much, or have to wait, the worst first; as many as alarms may be about.
    pub(crate) publishers: Vec<TroubledPublisher>,
    /// Receivers that lose or are slow, the worst first; as many as alarms may be about.
    pub(crate) receivers: Vec<TroubledReceiver>,
    /// How many publishers are refused, not read or have to wait.
    pub(crate) held_back: usize,
    /// How many publishers send more than they should, and how many have to wait and do not.
    pub(crate) flooding: usize,
    pub(crate) waiting: usize,
    /// Not all clients were asked whether they are to blame: who floods without being held back may be missing.
    pub(crate) is_blame_missing: bool,
    /// How many receivers lose, and how many are slow and do not lose.
    pub(crate) losing: usize,
    pub(crate) slow: usize,
    /// Names that two clients have, with how often their connections were taken over of late, the most first; as many as
    /// alarms may be about. And how many there are.
    pub(crate) conflicts: Vec<(Arc<str>, u32)>,
    pub(crate) conflicting: usize,
    /// Who is banned, by name and in words, as many as alarms may be about; and how many there are.
    pub(crate) banned: Vec<(String, String)>,
    pub(crate) bans: usize,
    /// Bridges that are down, as many as alarms may be about; and how many there are.
    pub(crate) bridges: Vec<TroubledBridge>,
    pub(crate) bridges_down: usize,
    /// The broker behind a guard cannot be reached: where it is, and that in words.
    pub(crate) upstream: Option<(String, String)>,
    /// Nothing is learned of publishers, and nobody is slowed for what it sends.
    pub(crate) is_gate_off: bool,
    /// The level of pressure, by number and name, and why.
    pub(crate) level: (u8, &'static str),
    pub(crate) cause: Option<&'static str>,
    /// The part of the memory budget that is used.
    pub(crate) memory: f64,
    /// What is wrong with the disk.
    pub(crate) disk: Option<String>,
}

/// A publisher that sends too much, or has to wait.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TroubledPublisher {
    pub(crate) client_id: Arc<str>,
    pub(crate) state: ClientState,
    pub(crate) rate: f64,
    pub(crate) usual: Option<f64>,
    /// What an operator has set for it, in messages a second.
    pub(crate) limit: Option<f64>,
    /// Whether it is held back for its rate, and not for want of memory or a disk that is slow.
    pub(crate) is_for_rate: bool,
    /// Whose queue its messages fill.
    pub(crate) fills: Option<Arc<str>>,
}

/// A receiver that takes too little.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TroubledReceiver {
    pub(crate) client_id: Arc<str>,
    pub(crate) is_losing: bool,
    pub(crate) loss_rate: f64,
    pub(crate) lost: u64,
    pub(crate) fill: f64,
    /// Who sends most of what it loses, and how much, if that is no flooder: to send much may be its work.
    pub(crate) source: Option<(Arc<str>, f64)>,
    /// Numbers of publishers, and what was lost of theirs.
    crowding: Vec<(u64, u64)>,
}

impl TroubledPublisher {
    fn of(client: &ClientReport, limit: Option<f64>, fills: Option<Arc<str>>) -> Self {
        let (client_id, usual) = (Arc::clone(&client.client_id), usual_of(client));
        let is_for_rate = client.publisher.is_some_and(|publisher| publisher.slowed_since.is_some());
        Self { client_id, state: client.state, rate: client.rate.unwrap_or(0.0), usual, limit, is_for_rate, fills }
    }

    /// How many times its usual rate it sends; none while nothing is usual, or it is not read.
    pub(crate) fn factor(&self) -> Option<f64> {
        self.usual.map(|usual| self.rate / usual.max(1e-3))
    }

    /// Whether it sends more than it should. Of one that is not read nobody knows what it sends: it sends more than is taken.
    /// Of a newcomer nobody knows what it should: it floods if somebody suffers, if it was refused, or sends very much. Who
    /// is held to a limit that an operator has set is dealt with already, unless somebody suffers.
    pub(crate) fn is_flooding(&self) -> bool {
        if self.limit.is_some() {
            return self.fills.is_some();
        }
        match (self.state, self.factor()) {
            (ClientState::Paused, _) => self.is_for_rate || self.fills.is_some(),
            (_, Some(factor)) => factor > FLOOD_FACTOR,
            (state, None) => self.fills.is_some() || state == ClientState::BackedOff || self.rate >= NEWCOMER_RATE_MAX,
        }
    }

    /// Whether a limit that an operator has set does more than delay: its messages are refused, dropped or not read. Who has
    /// set it may have forgotten it, or have set it too low.
    pub(crate) fn loses_by_limit(&self) -> bool {
        let is_lossy = matches!(self.state, ClientState::BackedOff | ClientState::Paused);
        self.limit.is_some() && is_lossy && !self.is_flooding()
    }

    fn weight(&self) -> (bool, i32, Reverse<Arc<str>>) {
        (self.is_flooding(), magnitude(self.rate), Reverse(Arc::clone(&self.client_id)))
    }
}

/// A number by which things are ordered that change a little all the time: those about as large stay in the order of their
/// names, and nobody who looks at a list sees it jump. A fifth more is more.
fn magnitude(value: f64) -> i32 {
    (4.0 * value.max(1e-3).log2()).floor() as i32
}

/// What a client is used to, by its claim or its rhythm.
pub(crate) fn usual_of(client: &ClientReport) -> Option<f64> {
    client.publisher.and_then(|publisher| publisher.usual).or_else(|| view::learned_rate(client))
}

impl TroubleReport {
    /// One client, as it is now; `limit_of` says what an operator has set for it.
    pub(crate) fn note(&mut self, client: &ClientReport, limit_of: impl Fn(&ClientReport) -> Option<f64>) {
        if client.state.is_held_back() {
            self.held_back += 1;
            self.note_publisher(TroubledPublisher::of(client, limit_of(client), None));
        }
        if client.takeovers > 0 {
            self.conflicting += 1;
            insert(&mut self.conflicts, (Arc::clone(&client.client_id), client.takeovers), |(_, takeovers)| *takeovers);
        }
        let receiver = &client.receiver;
        if receiver.is_losing || receiver.is_slow {
            let crowding = receiver.crowding.iter().map(|flow| (flow.origin, flow.lost)).collect();
            self.note_receiver(TroubledReceiver {
                client_id: Arc::clone(&client.client_id),
                is_losing: receiver.is_losing,
                loss_rate: receiver.loss_rate,
                lost: receiver.lost_of_late,
                fill: receiver.fill,
                source: None,
                crowding,
            });
        }
    }

    /// One that is held back.
    fn note_publisher(&mut self, trouble: TroubledPublisher) {
        let is_flooding = trouble.is_flooding();
        self.flooding += usize::from(is_flooding);
        self.waiting += usize::from(!is_flooding);
        insert(&mut self.publishers, trouble, TroubledPublisher::weight);
    }

    /// One that loses or is slow.
    fn note_receiver(&mut self, trouble: TroubledReceiver) {
        self.losing += usize::from(trouble.is_losing);
        self.slow += usize::from(!trouble.is_losing);
        let weight = |it: &TroubledReceiver| {
            (it.is_losing, magnitude(it.loss_rate + it.fill), Reverse(Arc::clone(&it.client_id)))
        };
        insert(&mut self.receivers, trouble, weight);
    }

    /// The publishers who are to blame for what losing receivers lose, by number, with the name of such a receiver.
    pub(crate) fn blamed(&self) -> HashMap<u64, Arc<str>> {
        let losing = self.receivers.iter().filter(|receiver| receiver.is_losing && receiver.lost > 0);
        losing
            .flat_map(|receiver| {
                let is_guilty = |lost: u64| lost as f64 >= GUILTY_PART * receiver.lost as f64;
                let guilty = receiver.crowding.iter().filter(move |(_, lost)| is_guilty(*lost));
                guilty.map(|(origin, _)| (*origin, Arc::clone(&receiver.client_id)))
            })
            .collect()
    }

    /// A client that is to blame: it fills the queue of this receiver. Who sends what is usual for it is not called a
    /// flooder for a receiver that is too slow.
    pub(crate) fn note_blamed(&mut self, client: &ClientReport, limit: Option<f64>, receiver: &Arc<str>) {
        let fills = Some(Arc::clone(receiver));
        let place = self.publishers.iter().position(|known| known.client_id == client.client_id);
        // Whether it was counted as a flooder; none if it was not counted. Who is held back was, also beyond the list.
        let (was_flooding, trouble) = if let Some(place) = place {
            let known = self.publishers.remove(place);
            (Some(known.is_flooding()), TroubledPublisher { fills, ..known })
        } else {
            let is_counted = client.state.is_held_back();
            let was_flooding = is_counted.then(|| TroubledPublisher::of(client, limit, None).is_flooding());
            (was_flooding, TroubledPublisher::of(client, limit, fills))
        };
        let is_flooding = trouble.is_flooding();
        if !is_flooding {
            self.note_source(receiver, &trouble);
        }
        if was_flooding.is_none() && !is_flooding {
            return;
        }
        if is_flooding && was_flooding != Some(true) {
            self.flooding += 1;
            self.waiting = self.waiting.saturating_sub(usize::from(was_flooding.is_some()));
        }
        insert(&mut self.publishers, trouble, TroubledPublisher::weight);
    }

    /// Of several the one who sends most is named.
    fn note_source(&mut self, receiver: &Arc<str>, publisher: &TroubledPublisher) {
        let receiver = self.receivers.iter_mut().find(|known| known.client_id == *receiver);
        if let Some(receiver) = receiver.filter(|it| it.source.as_ref().is_none_or(|(_, rate)| *rate < publisher.rate))
        {
            receiver.source = Some((Arc::clone(&publisher.client_id), publisher.rate));
        }
    }

    /// Publishers that send more than they should.
    pub(crate) fn flooders(&self) -> impl Iterator<Item = &TroubledPublisher> {
        self.publishers.iter().filter(|publisher| publisher.is_flooding())
    }
}

/// Into a short list, the heaviest first. It has room for all that alarms may be about; the counts have everybody.
fn insert<T, W: PartialOrd>(list: &mut Vec<T>, item: T, weight: impl Fn(&T) -> W) {
    let own = weight(&item);
    let place = list.partition_point(|other| weight(other) >= own);
    if place < ALARMS_MAX {
        list.insert(place, item);
        list.truncate(ALARMS_MAX);
    }
}
