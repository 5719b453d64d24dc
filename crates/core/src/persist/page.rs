//! Pages of long queues, read when their turn comes: who wants one, and what came of it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_control::Timestamp;
use tidegate_wire_mqtt::Properties;

use super::{SavedMessage, Spot, StoreChange};
use crate::ledger::Loss;
use crate::limits::{AWAY_WINDOW_BYTES, FETCHES_MAX};
use crate::message::{Message, Precedence, Publication};
use crate::state::ShardState;

/// Messages to be read from the store, for one session.
#[derive(Debug)]
pub struct Fetch {
    job: u64,
    session: u32,
    generation: u32,
    /// It is one of the few that are under way.
    has_place: bool,
    /// Each with its place in the session's order.
    pub messages: Vec<(u64, Spot)>,
}

/// Who wants a page, and how many are on their way.
#[derive(Debug, Default)]
pub(crate) struct PageRequests {
    /// Each session once.
    wanting: VecDeque<(u32, u32)>,
    under_way: usize,
    jobs: u64,
}

impl ShardState {
    pub(crate) fn poll_fetch(&mut self) -> Option<Fetch> {
        while self.page_requests.under_way < FETCHES_MAX {
            let (session, generation) = self.page_requests.wanting.pop_front()?;
            if self.sessions.generation(session) != Some(generation) {
                continue;
            }
            let window = self.settings.queue_memory_max;
            let job = self.page_requests.jobs + 1;
            let Some(owner) = self.sessions.get_mut(session).filter(|owner| owner.queue().is_some()) else { continue };
            let messages = owner.with_queue(&mut self.stats, |queue, _| queue.choose(window, job));
            self.note_absent(session);
            if !messages.is_empty() {
                self.page_requests.jobs = job;
                self.page_requests.under_way += 1;
                return Some(Fetch { job, session, generation, has_place: true, messages });
            }
        }
        None
    }

    pub(crate) fn handle_fetch_put_off(&mut self, fetch: &mut Fetch) {
        if core::mem::take(&mut fetch.has_place) {
            self.page_requests.under_way -= 1;
        }
    }

    pub(crate) fn handle_fetched<'a>(
        &mut self,
        fetch: &Fetch,
        mut read: impl FnMut(usize) -> Option<(u64, SavedMessage<'a>)>,
        now: Timestamp,
    ) {
        let Fetch { job, session: index, generation, has_place, ref messages } = *fetch;
        self.page_requests.under_way -= usize::from(has_place);
        if self.sessions.generation(index) != Some(generation) {
            return;
        }
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.queue().is_some()) else { return };
        let (tally, mut lost) = (self.memory.tally(), Vec::new());
        session.with_queue(&mut self.stats, |queue, _| {
            queue.end_job(job);
            for (at, &(place, _)) in messages.iter().enumerate() {
                lost.extend(queue.fill(place, |class| {
                    let (number, saved) = read(at)?;
                    let publication = as_publication(&saved, Precedence::of(class));
                    let message = Message::new(&publication, tally);
                    message.set_number(number);
                    Some(Arc::new(message))
                }));
            }
        });
        let kept = session.kept();
        for paged in lost {
            self.journal.push(StoreChange::Dequeued { session: kept, place: paged.place });
            self.lose_delivery(index, Loss::Unreadable, paged.class);
        }
        self.journal.end_whole();
        self.note_absent(index);
        self.pump(index, now);
    }

    /// A session may want the next page.
    pub(crate) fn want_page(&mut self, index: u32) {
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.conn().is_some()) else { return };
        let window = self.settings.queue_memory_max;
        if session.queue_mut().is_some_and(|queue| queue.wants_page(window)) {
            let generation = self.sessions.generation(index).unwrap_or(0);
            self.page_requests.wanting.push_back((index, generation));
        }
    }

    /// A turn is synced: what it brought for a long queue need not stay in memory.
    pub(crate) fn page_out(&mut self, index: u32) {
        let (journal, settings) = (&self.journal, &self.settings);
        let Some(session) = self.sessions.get_mut(index).filter(|session| session.queue().is_some()) else { return };
        let is_kept = |turn| journal.is_met(super::Until::Synced(turn));
        let window = settings.queue_memory_max;
        let window = if session.conn().is_none() { window.min(AWAY_WINDOW_BYTES) } else { window };
        session.with_queue(&mut self.stats, |queue, _| queue.settle(is_kept, &settings.priority, window));
        self.note_absent(index);
        self.want_page(index);
    }
}

pub(super) fn as_publication<'a>(saved: &SavedMessage<'a>, standing: Precedence) -> Publication<'a> {
    let SavedMessage { qos, retain, expires, origin, topic, properties, payload, .. } = *saved;
    let properties = if properties.is_empty() { Properties::EMPTY } else { Properties::from_encoded(properties) };
    Publication { topic, payload, properties, qos, retain, expires, origin, standing }
}
