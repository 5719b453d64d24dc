//! The agreement between those who put something in and the owner who sleeps, in every order of its steps.
//!
//! Each step is what one thread does at once: a section under a lock, or one operation on an atomic. All of them that
//! matter are sequentially consistent, so that every run of the threads is some order of these steps; the one look that is
//! not (`take_batches`, before the lock) may also miss what is there. Every state that can be reached is visited. Nobody
//! can take a step at the end only; then everything has arrived and the owner sleeps.

use std::collections::HashSet;

/// Which queue: of batches, or of messages.
const QUEUES: usize = 2;
/// What fits into one.
const ROOM: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ModelSender {
    /// About to put so many more in.
    Push(u8),
    /// About to ask whether the owner sleeps.
    Ask(u8),
    /// It does: about to wake it.
    Wake(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    SayAsleep,
    /// Looks for the last time, at this queue.
    LookLast(usize),
    Sleep,
    /// Asks for events without waiting for any.
    Glance,
    SayAwake,
    /// Looks whether it is worth locking this queue.
    Look(usize),
    Take(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelState {
    queued: [u8; QUEUES],
    waiting: [u8; QUEUES],
    asleep: bool,
    /// The waker was used, and the owner has not seen it.
    woken: bool,
    owner: Owner,
    /// With the queue that each uses.
    senders: Vec<(usize, ModelSender)>,
    taken: u8,
}

/// Protocols that look like ours and are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The owner looks for the last time before it says that it sleeps.
    LooksTooEarly,
    /// The sender asks whether the owner sleeps before it puts something in.
    AsksTooEarly,
    /// The owner looks at one queue only.
    ForgetsLetters,
}

impl ModelState {
    fn new(senders: &[(usize, u8)], fault: Fault) -> Self {
        let first =
            |count| if fault == Fault::AsksTooEarly { ModelSender::Ask(count) } else { ModelSender::Push(count) };
        Self {
            queued: [0; QUEUES],
            waiting: [0; QUEUES],
            asleep: false,
            woken: false,
            owner: if fault == Fault::LooksTooEarly { Owner::LookLast(0) } else { Owner::SayAsleep },
            senders: senders.iter().map(|(queue, count)| (*queue, first(*count))).collect(),
            taken: 0,
        }
    }

    /// All states that one step of one thread leads to.
    fn next(&self, fault: Fault) -> Vec<Self> {
        let mut next = self.owner_steps(fault);
        next.extend((0..self.senders.len()).filter_map(|sender| self.sender_step(sender, fault)));
        next
    }

    fn sender_step(&self, number: usize, fault: Fault) -> Option<Self> {
        let mut state = self.clone();
        let (queue, sender) = self.senders[number];
        let asks_first = fault == Fault::AsksTooEarly;
        state.senders[number].1 = match sender {
            ModelSender::Push(0) => return None,
            // It is given back, and tried again later: when there is room.
            ModelSender::Push(_) if self.queued[queue] >= ROOM => return None,
            ModelSender::Push(left) => {
                state.queued[queue] += 1;
                state.waiting[queue] = state.queued[queue];
                if asks_first && left == 1 { ModelSender::Push(0) } else { ModelSender::Ask(left - 1) }
            }
            ModelSender::Ask(left) => {
                state.asleep = false;
                if self.asleep { ModelSender::Wake(left) } else { ModelSender::Push(left) }
            }
            ModelSender::Wake(left) => {
                state.woken = true;
                ModelSender::Push(left)
            }
        };
        Some(state)
    }

    fn owner_steps(&self, fault: Fault) -> Vec<Self> {
        let looks_first = fault == Fault::LooksTooEarly;
        let queues = if fault == Fault::ForgetsLetters { 1 } else { QUEUES };
        let go = |change: fn(&mut Self), owner: Owner| {
            let mut state = self.clone();
            change(&mut state);
            state.owner = owner;
            state
        };
        let sleep_after_look = if looks_first { Owner::SayAsleep } else { Owner::Sleep };
        match self.owner {
            Owner::SayAsleep if looks_first => vec![go(|state| state.asleep = true, Owner::Sleep)],
            Owner::SayAsleep => vec![go(|state| state.asleep = true, Owner::LookLast(0))],
            Owner::LookLast(queue) if self.waiting[queue] > 0 => vec![go(|_| (), Owner::Glance)],
            Owner::LookLast(queue) if queue + 1 < queues => vec![go(|_| (), Owner::LookLast(queue + 1))],
            Owner::LookLast(_) => vec![go(|_| (), sleep_after_look)],
            Owner::Sleep if !self.woken => vec![],
            Owner::Sleep | Owner::Glance => vec![go(|state| state.woken = false, Owner::SayAwake)],
            Owner::SayAwake => vec![go(|state| state.asleep = false, Owner::Look(0))],
            Owner::Look(queue) => {
                let missed = go(|_| (), after_taking(queue, looks_first));
                if self.waiting[queue] > 0 { vec![missed, go(|_| (), Owner::Take(queue))] } else { vec![missed] }
            }
            Owner::Take(queue) => {
                let mut state = self.clone();
                state.taken += core::mem::take(&mut state.queued[queue]);
                state.waiting[queue] = 0;
                state.owner = after_taking(queue, looks_first);
                vec![state]
            }
        }
    }
}

fn after_taking(queue: usize, looks_first: bool) -> Owner {
    match queue + 1 {
        QUEUES if looks_first => Owner::LookLast(0),
        QUEUES => Owner::SayAsleep,
        next => Owner::Look(next),
    }
}

/// Visits every state; the answer is how many there are, or one in which something is slept over.
fn explore(senders: &[(usize, u8)], fault: Fault) -> Result<usize, ModelState> {
    let total: u8 = senders.iter().map(|(_, count)| count).sum();
    let first = ModelState::new(senders, fault);
    let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
    while let Some(state) = open.pop() {
        let next = state.next(fault);
        if next.is_empty() && (state.taken != total || state.owner != Owner::Sleep) {
            return Err(state);
        }
        for state in next {
            if seen.insert(state.clone()) {
                open.push(state);
            }
        }
    }
    Ok(seen.len())
}

const SENDERS: [(usize, u8); 3] = [(0, 3), (0, 2), (1, 2)];

#[test]
fn in_no_order_of_steps_is_anything_slept_over() {
    let states = explore(&SENDERS, Fault::None).expect("everything arrives");
    assert!(states > 1000, "{states}");
}

#[test]
fn the_model_finds_what_is_wrong_with_protocols_that_are_nearly_right() {
    for fault in [Fault::LooksTooEarly, Fault::AsksTooEarly, Fault::ForgetsLetters] {
        assert!(explore(&SENDERS, fault).is_err(), "{fault:?}");
    }
}
