//! What is wrong with the broker right now, and with whom: the facts that the sentence (`sentence`) and the alarms are made of.
//!
//! Pure: told of every client once (`note`), then what waits for the worst of the losing receivers (`note_waiting`) and of those
//! whose messages fill their queues (`note_blamed`). Knows neither sockets nor clocks; `watch` gathers it and shows it to everybody.

mod publisher;
mod sentence;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::report::{ClientReport, CrowdingFlow};

use crate::alarms::ALARMS_MAX;
use crate::bridges::TroubledBridge;
pub(crate) use publisher::{FLOOD_FACTOR, NEWCOMER_RATE_MAX, TroubledPublisher, usual_of};
pub(crate) use sentence::{CardSubject, Mood, TroubleCard, name_conflict, reads_in_words};

/// Whose part of a receiver's losses, and of what waits for it, is less is not to blame for them.
const GUILTY_PART: f64 = 0.2;
/// The part of all messages from which on a newcomer is worth a word.
const LOUD_PART: f64 = 0.9;
/// Messages a second below which a receiver takes nothing.
const TAKES_MIN: f64 = 1.0;
/// Losing receivers whose queues are looked into, the worst: each costs a question to its shard.
const LOOKED_INTO_MAX: usize = 8;

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
    /// Publishers that send far more than is usual for them while nobody is known to suffer by it, the busiest first; as many as
    /// one may want to see. And how many there are.
    pub(crate) unusual: Vec<TroubledPublisher>,
    pub(crate) sending_unusually: usize,
    /// Messages a second that all send together, and the newcomer who sends the most of them.
    pub(crate) all_send: f64,
    pub(crate) newcomer: Option<TroubledPublisher>,
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
    /// How often they have tried to come in all the same.
    pub(crate) ban_tries: u64,
    /// Bridges that are down, as many as alarms may be about; and how many there are.
    pub(crate) bridges: Vec<TroubledBridge>,
    pub(crate) bridges_down: usize,
    /// The broker behind a guard cannot be reached: where it is, and that in words.
    pub(crate) upstream: Option<(String, String)>,
    /// Nobody is slowed for what it sends.
    pub(crate) is_gate_off: bool,
    /// Who sends the most, while the gate is off: nobody else says so then.
    pub(crate) busiest: Option<TroubledPublisher>,
    /// The level of pressure, by number and name, and why.
    pub(crate) level: (u8, &'static str),
    pub(crate) cause: Option<&'static str>,
    /// The part of the memory budget that is used.
    pub(crate) memory: f64,
    /// What is wrong with the disk.
    pub(crate) disk: Option<String>,
}

/// A receiver that takes too little.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TroubledReceiver {
    pub(crate) client_id: Arc<str>,
    pub(crate) is_losing: bool,
    /// It has no connection: nobody reads for it.
    pub(crate) is_away: bool,
    pub(crate) loss_rate: f64,
    pub(crate) lost: u64,
    pub(crate) fill: f64,
    /// Messages a second that it takes.
    pub(crate) takes: f64,
    /// Who sends most of what it loses, if that is no flooder: to send much may be its work.
    pub(crate) source: Option<TroubledPublisher>,
    /// Whose messages were lost, and wait; of how many that wait.
    crowding: Vec<CrowdingFlow>,
    queued: u64,
}

/// Why a publisher is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blame {
    /// Whose queue its messages fill.
    pub(crate) receiver: Arc<str>,
    /// Whether they are much of what was lost there; else they are much of what waits, and others lose for it.
    pub(crate) is_of_losses: bool,
    /// Whether the receiver takes anything at all: who takes nothing loses by itself, whoever sends.
    pub(crate) is_taking: bool,
    /// How much of what is lost there is its own, in hundredths.
    pub(crate) part: Option<u8>,
    /// It has been too much for that receiver since it came.
    pub(crate) is_newcomer: bool,
}

/// A number by which things are ordered that change a little all the time: those about as large stay in the order of their
/// names, and nobody who looks at a list sees it jump. A fifth more is more.
fn magnitude(value: f64) -> i32 {
    (4.0 * value.max(1e-3).log2()).floor() as i32
}

impl TroubleReport {
    /// One client, as it is now; `limit_of` says what an operator has set for it.
    pub(crate) fn note(&mut self, client: &ClientReport, limit_of: impl Fn(&ClientReport) -> Option<f64>) {
        if client.state.is_held_back() {
            self.held_back += 1;
            self.note_publisher(TroubledPublisher::of(client, limit_of(client), None));
        } else if publisher::sends_unusually(client) && limit_of(client).is_none() {
            self.sending_unusually += 1;
            insert(&mut self.unusual, TroubledPublisher::of(client, None, None), TroubledPublisher::weight);
        }
        self.all_send += client.rate.unwrap_or(0.0);
        if publisher::is_loud_newcomer(client)
            && limit_of(client).is_none()
            && self.newcomer.as_ref().is_none_or(|it| Some(it.rate) < client.rate)
        {
            self.newcomer = Some(TroubledPublisher::of(client, None, None));
        }
        if self.is_gate_off && client.link.is_some() {
            self.note_busy(client, limit_of(client));
        }
        if client.takeovers > 0 {
            self.conflicting += 1;
            insert(&mut self.conflicts, (Arc::clone(&client.client_id), client.takeovers), |(_, takeovers)| *takeovers);
        }
        let receiver = &client.receiver;
        if receiver.is_losing || receiver.is_slow {
            self.note_receiver(TroubledReceiver {
                client_id: Arc::clone(&client.client_id),
                is_losing: receiver.is_losing,
                is_away: client.link.is_none(),
                loss_rate: receiver.loss_rate,
                lost: receiver.lost_of_late,
                fill: receiver.fill,
                takes: receiver.takes,
                source: None,
                crowding: receiver.crowding.clone(),
                queued: client.queued.0 as u64,
            });
        }
    }

    /// Everybody was noted, and who is to blame is known. Of a newcomer nobody knows what is usual for it; who is nearly all of
    /// what is sent here is worth a look beside the others, though nobody suffers.
    pub(crate) fn note_newcomer(&mut self) {
        let others = self.newcomer.as_ref().map_or(0.0, |it| self.all_send - it.rate);
        let Some(newcomer) = self.newcomer.take().filter(|it| others > 0.0 && it.rate >= LOUD_PART * self.all_send)
        else {
            return;
        };
        // Without the gate the busiest is named anyway.
        if !self.is_gate_off && self.publishers.iter().all(|it| it.client_id != newcomer.client_id) {
            self.sending_unusually += 1;
            insert(&mut self.unusual, newcomer, TroubledPublisher::weight);
        }
    }

    /// Who sends the most, and is worth a word for it. Of several who send about as much the first by name.
    fn note_busy(&mut self, client: &ClientReport, limit: Option<f64>) {
        let busy = TroubledPublisher::of(client, limit, None);
        let rank = |it: &TroubledPublisher| (magnitude(it.rate), Reverse(Arc::clone(&it.client_id)));
        if busy.rate >= publisher::UNUSUAL_RATE_MIN && self.busiest.as_ref().is_none_or(|it| rank(it) < rank(&busy)) {
            self.busiest = Some(busy);
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

    /// The losing receivers whose queues are worth a look, by name.
    pub(crate) fn to_look_into(&self) -> Vec<Arc<str>> {
        let losing = self.receivers.iter().filter(|receiver| receiver.is_losing);
        losing.take(LOOKED_INTO_MAX).map(|receiver| Arc::clone(&receiver.client_id)).collect()
    }

    /// One of them, looked into: whose messages wait for it.
    pub(crate) fn note_waiting(&mut self, client: &ClientReport) {
        if let Some(receiver) = self.receivers.iter_mut().find(|known| known.client_id == client.client_id) {
            (receiver.crowding, receiver.queued) = (client.receiver.crowding.clone(), client.queued.0 as u64);
        }
    }

    /// The publishers who are to blame for what losing receivers lose, by number. Not only whose messages were lost: of a full
    /// queue the longest flow pays by its bytes, and who sends many small ones may have all the places.
    pub(crate) fn blamed(&self) -> HashMap<u64, Blame> {
        let is_much = |part: u64, all: u64| part > 0 && part as f64 >= GUILTY_PART * all as f64;
        let mut blamed = HashMap::new();
        for receiver in self.receivers.iter().filter(|receiver| receiver.is_losing && receiver.lost > 0) {
            // Nobody knows whose messages somebody who is away has lost.
            let is_unknown = receiver.crowding.iter().all(|flow| flow.lost == 0);
            for flow in &receiver.crowding {
                let is_of_losses = is_unknown || is_much(flow.lost, receiver.lost);
                if is_much(flow.lost, receiver.lost) || is_much(flow.waiting, receiver.queued) {
                    let is_taking = receiver.takes >= TAKES_MIN;
                    let part = (flow.lost > 0).then(|| (100 * flow.lost / receiver.lost).min(100) as u8);
                    let (client_id, is_newcomer) = (Arc::clone(&receiver.client_id), flow.is_newcomer);
                    let blame = Blame { receiver: client_id, is_of_losses, is_taking, part, is_newcomer };
                    let known: &mut Blame = blamed.entry(flow.origin).or_insert_with(|| blame.clone());
                    if is_of_losses && !known.is_of_losses {
                        *known = blame;
                    }
                }
            }
        }
        blamed
    }

    /// A client that is to blame. Who sends what is usual for it, or is new and sends little, is not called a flooder for a
    /// receiver that is too slow; nor is anybody who is new for one that takes nothing.
    pub(crate) fn note_blamed(&mut self, client: &ClientReport, limit: Option<f64>, blame: &Blame) {
        let is_stranger = usual_of(client).is_none();
        let fills = Some(Arc::clone(&blame.receiver)).filter(|_| blame.is_taking || !is_stranger);
        let Blame { part, is_newcomer, is_taking, .. } = *blame;
        let is_newcomer = is_newcomer && is_taking;
        let place = self.publishers.iter().position(|known| known.client_id == client.client_id);
        // Whether it was counted as a flooder; none if it was not counted. Who is held back was, also beyond the list.
        let (was_flooding, trouble) = if let Some(place) = place {
            let known = self.publishers.remove(place);
            (Some(known.is_flooding()), TroubledPublisher { fills, part, is_newcomer, ..known })
        } else {
            let is_counted = client.state.is_held_back();
            let was_flooding = is_counted.then(|| TroubledPublisher::of(client, limit, None).is_flooding());
            (was_flooding, TroubledPublisher { part, is_newcomer, ..TroubledPublisher::of(client, limit, fills) })
        };
        let is_flooding = trouble.is_flooding();
        if !is_flooding && blame.is_of_losses {
            self.note_source(&blame.receiver, &trouble);
        }
        if was_flooding.is_none() && !is_flooding {
            return;
        }
        if was_flooding.is_none() && publisher::sends_unusually(client) {
            // It is more than unusual.
            self.unusual.retain(|known| known.client_id != client.client_id);
            self.sending_unusually = self.sending_unusually.saturating_sub(1);
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
        if let Some(receiver) = receiver.filter(|it| it.source.as_ref().is_none_or(|it| it.rate < publisher.rate)) {
            receiver.source = Some(publisher.clone());
        }
    }

    /// Whether nobody has to wait, is slow or loses, as far as is known.
    pub(crate) fn does_nobody_suffer(&self) -> bool {
        self.flooding + self.waiting + self.losing + self.slow == 0 && self.level.0 == 0 && !self.is_blame_missing
    }

    /// The losing receiver whose queue the messages of this client fill.
    pub(crate) fn occupied_by(&self, client_id: &str) -> Option<Arc<str>> {
        self.publishers.iter().find(|it| *it.client_id == *client_id)?.fills.clone()
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
