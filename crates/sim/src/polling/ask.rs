//! The life of a check: due, sent, at the broker's door, served, answered or given up.

use std::time::Duration;

use tidegate_control::admission::Class;
use tidegate_control::hints::{Accept, Asks, Hints};
use tidegate_control::pacer::Outcome;

use super::client::{Control, NEVER};
use super::front::{Arrival, Asked, Asker, Visit};
use super::{Event, InService, Reply, Word, World};

impl World<'_> {
    pub(super) fn due(&mut self, asker: Asker) {
        let state = &mut self.clients[asker.client as usize];
        if state.attempt != asker.attempt || state.sent != NEVER || state.done {
            return;
        }
        if let Some(delay) = state.on_due(self.now) {
            return self.after(delay, Event::Due(asker));
        }
        if state.ticket.is_some()
            && self.config.clients.no_show > 0.0
            && self.radio.happens(self.config.clients.no_show)
        {
            // It stays away, and comes back one interval later without its place.
            state.ticket = None;
            return self.after_secs(self.config.clients.interval, Event::Due(asker));
        }
        state.sent = self.now.as_nanos();
        if state.tried == NEVER {
            state.tried = state.sent;
        }
        self.ledger.sent += 1;
        self.tally.first_sent.get_or_insert(self.at);
        self.after_secs(self.config.clients.request_timeout, Event::GiveUp(asker));
        let loss = self.config.link.request_loss;
        if loss > 0.0 && self.radio.happens(loss) {
            self.ledger.request_lost += 1;
        } else {
            self.after_secs(self.config.link.rtt / 2.0, Event::Arrive(asker));
        }
    }

    pub(super) fn arrive(&mut self, asker: Asker) {
        self.ledger.arrived += 1;
        self.tally.second(self.at).offered += 1;
        self.tally.offered += u64::from(self.is_measured());
        let key = self.key();
        let deadline = Duration::from_secs_f64(self.config.clients.request_timeout * DEADLINE_SHARE);
        let state = &mut self.clients[asker.client as usize];
        let asks = Asks { deadline: Some(deadline), ticket: state.ticket.take(), ..Asks::default() };
        let (class, asks) = match &state.control {
            Control::Session(session) => session.asked(asker.attempt),
            Control::Pacer(pacer) if state.speaks => {
                (Class::Query, Asks { want: Some(pacer.want()), accept: Some(Accept::Ticket), ..asks })
            }
            Control::Pacer(_) | Control::Baseline(_) | Control::Own(_) => (Class::Query, asks),
        };
        let arrival = self.front.on_request(self.now, &Asked { asker, class, asks, key });
        let service = 1.0 / self.config.host.capacity;
        match arrival {
            Arrival::Waits => {}
            Arrival::Denied(hints) => self.deny(asker, *hints),
            Arrival::Dropped => self.chores += self.config.host.drop_cost * service,
        }
        self.serve();
    }

    /// Gives work to servers that are free.
    fn serve(&mut self) {
        while let Some(server) = self.serving.iter().position(Option::is_none) {
            let Some(taken) = self.front.take(self.now) else { break };
            let answers =
                taken.joined.len() as f64 * self.config.host.answer_cost * self.config.host.mean_service(self.at);
            let chores = std::mem::take(&mut self.chores) / self.config.host.factor(self.at);
            let news = std::mem::take(&mut self.news) / self.config.host.factor(self.at);
            let service = self.config.host.draw(self.at, &mut self.service) + answers + chores + news;
            let service = self.config.host.lasts(self.at, service);
            self.after_secs(service, Event::Served { server: server as u32 });
            self.serving[server] = Some(InService {
                job: taken.job,
                first: taken.first,
                joined: taken.joined,
                started: self.now,
                queued: taken.queued,
                news: Duration::from_secs_f64(news),
            });
        }
        for (asker, hints) in self.front.sent_away() {
            self.deny(asker, *hints);
        }
    }

    fn deny(&mut self, asker: Asker, hints: Hints) {
        self.chores += self.config.host.denial_cost / self.config.host.capacity;
        self.send_reply(asker, Word::Denied, hints);
    }

    pub(super) fn served(&mut self, server: u32) {
        if let Some(done) = self.serving[server as usize].take() {
            self.front.on_served(done.job, self.now.since(done.started).saturating_sub(done.news));
            self.answer(done.first, done.queued);
            for visit in done.joined {
                self.answer(visit, done.queued);
            }
        }
        self.serve();
    }

    fn answer(&mut self, Visit { asker, hints }: Visit, queued: Duration) {
        let state = &self.clients[asker.client as usize];
        let (losses, lost_at_sum) = (state.lost, state.lost_at_sum);
        let version = if self.config.updates.slides.is_some() { self.slide } else { state.version };
        let hints = self.front.told(&hints, queued);
        self.send_reply(asker, Word::Answer { losses, lost_at_sum, version }, hints);
    }

    fn send_reply(&mut self, asker: Asker, word: Word, hints: Hints) {
        let reply = Reply { asker, word, hints };
        let slot = if let Some(slot) = self.replies_free.pop() {
            self.replies[slot as usize] = reply;
            slot
        } else {
            self.replies.push(reply);
            self.replies.len() as u32 - 1
        };
        self.after_secs(self.config.link.rtt / 2.0, Event::Reply { slot });
    }

    pub(super) fn reply(&mut self, slot: u32) {
        let Reply { asker, word, hints } = self.replies[slot as usize].clone();
        self.replies_free.push(slot);
        let state = &mut self.clients[asker.client as usize];
        let in_time = state.attempt == asker.attempt && state.sent != NEVER;
        let is_session = matches!(state.control, Control::Session(_));
        match word {
            Word::Answer { .. } if is_session && in_time => self.answer_session(asker, hints),
            // A session takes no answer to a request that it has given up.
            Word::Answer { .. } if is_session => self.tally.wasted += u64::from(self.is_measured()),
            Word::Answer { losses, lost_at_sum, version } => {
                let changed = version > state.known;
                // A late answer may have shown some of them already.
                let losses = losses.min(state.lost);
                self.learn(asker.client, losses, lost_at_sum, version);
                if in_time {
                    self.succeed(asker, losses, changed, hints);
                } else {
                    self.tally.wasted += u64::from(self.is_measured());
                    self.clients[asker.client as usize].on_late_answer(self.now, losses);
                }
            }
            Word::Denied if in_time => {
                self.ledger.denied += 1;
                self.tally.denied += u64::from(self.is_measured());
                if is_session {
                    return self.deny_session(asker.client, hints);
                }
                // Whoever keeps no appointments has no use for a ticket.
                let state = &mut self.clients[asker.client as usize];
                state.ticket = hints.ticket.filter(|_| state.speaks);
                self.end(asker, &Outcome::Denied { hints });
            }
            Word::Denied => {}
        }
    }

    fn succeed(&mut self, asker: Asker, losses: u32, changed: bool, hints: Hints) {
        let latency = Duration::from_nanos(self.now.as_nanos() - self.clients[asker.client as usize].sent);
        self.note_success(asker.client, losses);
        let not_modified = losses == 0 && !changed;
        self.end(asker, &Outcome::Answered { latency, losses, not_modified, hints });
    }

    /// A check under way was answered in time.
    pub(super) fn note_success(&mut self, client: u32, losses: u32) {
        let measured = self.is_measured();
        let now = self.now.as_nanos();
        let state = &mut self.clients[client as usize];
        let latency = now - state.sent;
        self.ledger.answered += 1;
        self.tally.second(self.at).useful += 1;
        if state.succeeded == NEVER {
            // A burst begins with its first request, not with the client's own least delay before it.
            self.tally.first_answer.add(self.at - self.tally.first_sent.unwrap_or(0.0));
            state.done = self.config.clients.once;
        }
        if measured {
            self.tally.useful += 1;
            self.tally.lossy += u64::from(losses > 0);
            self.tally.losses += u64::from(losses);
            self.tally.useful_of[usize::from(state.group)] += 1;
            self.tally.latency.add(latency as f64 * 1e-9);
            self.tally.time_to_success.add((now - state.tried) as f64 * 1e-9);
            if state.succeeded != NEVER {
                self.tally.gap.add((now - state.succeeded) as f64 * 1e-9);
            }
            state.successes = state.successes.saturating_add(1);
        }
        state.succeeded = now;
        state.tried = NEVER;
    }

    pub(super) fn give_up(&mut self, asker: Asker) {
        let state = &self.clients[asker.client as usize];
        if state.attempt == asker.attempt && state.sent != NEVER {
            self.ledger.timed_out += 1;
            self.tally.timed_out += u64::from(self.is_measured());
            self.end(asker, &Outcome::TimedOut);
        }
    }

    fn end(&mut self, asker: Asker, outcome: &Outcome) {
        let state = &mut self.clients[asker.client as usize];
        state.sent = NEVER;
        state.attempt += 1;
        let attempt = state.attempt;
        let delay = state.on_outcome(self.now, outcome);
        if asker.client == TRACED
            && let Control::Pacer(pacer) = &state.control
        {
            let snapshot = pacer.snapshot();
            self.trace.push((self.at, snapshot.ast.as_secs_f64(), snapshot.rbt.as_secs_f64()));
        }
        if let Some(delay) = delay {
            self.after(delay, Event::Due(Asker { client: asker.client, attempt }));
        }
    }
}

/// The client of which AST and RBT are kept.
const TRACED: u32 = 0;
/// A client says that it waits a little less long than it does: the answer has to travel (CONTROL §8.2).
const DEADLINE_SHARE: f64 = 0.9;
