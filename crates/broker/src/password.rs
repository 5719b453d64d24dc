//! Threads for questions that take long. A fixed number of them, and a bounded waiting room: a password hash costs a tenth
//! of a second on purpose, and must never be paid for by those who are connected.
//!
//! Networks take turns, so that many from one do not keep one from another waiting; one network fills at most half of the
//! room. Nothing is hashed for those who have left meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_store::VitalThread;

use crate::ask::Busy;
use crate::attempts::network;
use crate::authenticate::{Authenticator, Credentials, LoginGrant, LoginRefusal};
use crate::handshakes::HandshakeKey;
use crate::inbox::{Inbox, lock};
use crate::known::Print;
use crate::limits::{PASSWORD_QUEUE_PER_THREAD, PASSWORD_TIME};
use crate::thread_message::ThreadMessage;

/// A question, and who wants to know.
#[derive(Debug)]
pub(crate) struct PasswordCheck {
    pub(crate) asker: CheckRequester,
    pub(crate) credentials: Credentials,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    /// The rules that the authenticator belongs to.
    pub(crate) generation: u64,
    /// Where it comes from.
    pub(crate) from: IpAddr,
    /// By which it is known again.
    pub(crate) print: Option<Print>,
}

/// Who wants to know.
pub(crate) enum CheckRequester {
    /// A handshake of a shard thread.
    Handshake { shard: usize, key: HandshakeKey, presence: Weak<()> },
    /// Somebody at another door. It must not wait for anything.
    Caller(Caller),
}

/// What an operator's door does with the answer.
pub(crate) type Caller = Box<dyn FnOnce(Result<LoginGrant, LoginRefusal>) + Send>;

impl CheckRequester {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Handshake { presence, .. } if presence.strong_count() == 0)
    }
}

impl fmt::Debug for CheckRequester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake { shard, key, .. } => write!(f, "handshake {key:?} of shard {shard}"),
            Self::Caller(_) => f.write_str("caller"),
        }
    }
}

/// The waiting room; shared by those who ask and those who answer.
#[derive(Debug)]
pub(crate) struct Questions {
    state: Mutex<CheckQueue>,
    changed: Condvar,
    threads: u32,
    max: usize,
}

#[derive(Debug, Default)]
struct CheckQueue {
    /// By network; none is empty.
    waiting: BTreeMap<IpAddr, VecDeque<PasswordCheck>>,
    /// The networks in the order of their turns.
    turns: VecDeque<IpAddr>,
    count: usize,
    closed: bool,
}

impl CheckQueue {
    fn push(&mut self, question: PasswordCheck) {
        let from = network(question.from);
        let queue = self.waiting.entry(from).or_default();
        if queue.is_empty() {
            self.turns.push_back(from);
        }
        queue.push_back(question);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<PasswordCheck> {
        let from = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&from)?;
        let question = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&from);
        } else {
            self.turns.push_back(from);
        }
        self.count -= usize::from(question.is_some());
        question
    }

    /// Forgets those who have left.
    fn tidy(&mut self) {
        self.waiting.retain(|_, queue| {
            queue.retain(|question| !question.asker.is_gone());
            !queue.is_empty()
        });
        self.turns.retain(|from| self.waiting.contains_key(from));
        self.count = self.waiting.values().map(VecDeque::len).sum();
    }

    fn has_room(&self, from: IpAddr, max: usize) -> bool {
        let of_this = self.waiting.get(&network(from)).map_or(0, VecDeque::len);
        self.count < max && of_this < max.div_ceil(2)
    }
}

impl Questions {
    pub(crate) fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let max = threads * PASSWORD_QUEUE_PER_THREAD;
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        Self { state: Mutex::default(), changed: Condvar::new(), threads, max }
    }

    /// Asks. `Err`: too many are waiting.
    pub(crate) fn ask(&self, question: PasswordCheck) -> Result<(), Busy> {
        let mut state = lock(&self.state);
        if !state.has_room(question.from, self.max) {
            state.tidy();
        }
        if !state.has_room(question.from, self.max) || state.closed {
            return Err(Busy);
        }
        state.push(question);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// How long those who wait now will take, about.
    pub(crate) fn backlog(&self) -> Duration {
        let count = u32::try_from(lock(&self.state).count).unwrap_or(u32::MAX);
        PASSWORD_TIME.saturating_mul(count) / self.threads
    }

    /// No more questions; those that wait are forgotten.
    pub(crate) fn close(&self) {
        *lock(&self.state) = CheckQueue { closed: true, ..CheckQueue::default() };
        self.changed.notify_all();
    }

    /// The next question of somebody who is still there; `None` when there will be none.
    pub(crate) fn next(&self) -> Option<PasswordCheck> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            match state.pop() {
                Some(question) if question.asker.is_gone() => {}
                Some(question) => return Some(question),
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Starts the threads that answer, of this name.
pub(crate) fn start(
    name: &str,
    threads: usize,
    questions: &Arc<Questions>,
    inboxes: &Arc<[Inbox]>,
) -> io::Result<Vec<JoinHandle<()>>> {
    (0..threads.max(1))
        .map(|number| {
            let (questions, inboxes) = (Arc::clone(questions), Arc::clone(inboxes));
            thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                let _vital = VitalThread::guard();
                answer(&questions, &inboxes);
            })
        })
        .collect()
}

fn answer(questions: &Questions, inboxes: &[Inbox]) {
    while let Some(question) = questions.next() {
        let verdict = question.authenticator.login(&question.credentials);
        match question.asker {
            CheckRequester::Handshake { shard, .. } => {
                if let Some(inbox) = inboxes.get(shard) {
                    // Never refused: it carries no socket, and there are no more of them than questions.
                    let _ = inbox.send(ThreadMessage::Checked { question: Box::new(question), verdict });
                }
            }
            CheckRequester::Caller(reply) => reply(verdict),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authenticate::Anonymous;
    use crate::handshakes::HandshakeTable;

    fn question(from: u8, presence: &Arc<()>) -> PasswordCheck {
        let credentials = Credentials { client_id: "c".into(), ..Credentials::default() };
        let key = HandshakeTable::default().next_key();
        let asker = CheckRequester::Handshake { shard: 0, key, presence: Arc::downgrade(presence) };
        let from = IpAddr::from([10, 0, 0, from]);
        PasswordCheck { asker, credentials, authenticator: Arc::new(Anonymous), generation: 0, from, print: None }
    }

    #[test]
    fn a_full_room_takes_no_question_and_one_network_fills_half_of_it() {
        let (questions, here) = (Questions::new(1), Arc::new(()));
        for from in [1, 2] {
            for _ in 0..PASSWORD_QUEUE_PER_THREAD / 2 {
                questions.ask(question(from, &here)).unwrap();
            }
            assert_eq!(questions.ask(question(from, &here)), Err(Busy));
        }
        assert_eq!(questions.ask(question(3, &here)), Err(Busy));
        assert_eq!(questions.backlog(), PASSWORD_TIME * PASSWORD_QUEUE_PER_THREAD as u32);
        assert!(questions.next().is_some());
        questions.ask(question(3, &here)).unwrap();
        questions.close();
        assert!(questions.next().is_none());
        assert_eq!(questions.ask(question(1, &here)), Err(Busy));
    }

    #[test]
    fn f065_networks_take_turns() {
        let (questions, here) = (Questions::new(1), Arc::new(()));
        for from in [1, 1, 1, 2, 2, 3] {
            questions.ask(question(from, &here)).unwrap();
        }
        let order: Vec<IpAddr> = (0..6).map(|_| questions.next().unwrap().from).collect();
        assert_eq!(order, [1, 2, 3, 1, 2, 1].map(|from| IpAddr::from([10, 0, 0, from])));
    }

    #[test]
    fn nothing_is_hashed_for_those_who_have_left_and_they_leave_room() {
        let (questions, here, left) = (Questions::new(1), Arc::new(()), Arc::new(()));
        for _ in 0..PASSWORD_QUEUE_PER_THREAD / 2 {
            questions.ask(question(1, &left)).unwrap();
        }
        drop(left);
        questions.ask(question(1, &here)).unwrap();
        let left = Arc::new(());
        questions.ask(question(2, &left)).unwrap();
        drop(left);
        questions.ask(question(3, &here)).unwrap();
        let order = [questions.next(), questions.next()].map(|question| question.unwrap().from);
        assert_eq!(order, [1, 3].map(|from| IpAddr::from([10, 0, 0, from])));
        assert_eq!(questions.backlog(), Duration::ZERO);
    }
}
