//! Threads for questions that take long. A fixed number of them, and a bounded queue: a password hash costs a tenth of a
//! second on purpose, and must never be paid for by those who are connected.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::ask::Busy;
use crate::authenticate::{Authenticator, Credentials, Refusal};
use crate::inbox::{Inbox, lock};
use crate::letter::Letter;
use crate::limits::PASSWORD_QUEUE_PER_THREAD;
use crate::visitors::Key;

/// A question, and who wants to know.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) asker: Asker,
    pub(crate) credentials: Credentials,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    /// The rules that the authenticator belongs to.
    pub(crate) generation: u64,
}

/// Who wants to know.
pub(crate) enum Asker {
    /// A visitor of a shard thread.
    Visitor { shard: usize, key: Key },
    /// Somebody at another door. It must not wait for anything.
    Caller(Caller),
}

/// What an operator's door does with the answer.
pub(crate) type Caller = Box<dyn FnOnce(Result<Option<Arc<str>>, Refusal>) + Send>;

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Visitor { shard, key } => write!(f, "visitor {key:?} of shard {shard}"),
            Self::Caller(_) => f.write_str("caller"),
        }
    }
}

/// The queue; shared by those who ask and those who answer.
#[derive(Debug)]
pub(crate) struct Questions {
    state: Mutex<State>,
    changed: Condvar,
    max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Question>,
    closed: bool,
}

impl Questions {
    pub(crate) fn new(threads: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), max: threads.max(1) * PASSWORD_QUEUE_PER_THREAD }
    }

    /// Asks. `Err`: too many are waiting.
    pub(crate) fn ask(&self, question: Question) -> Result<(), Busy> {
        let mut state = lock(&self.state);
        if state.waiting.len() >= self.max || state.closed {
            return Err(Busy);
        }
        state.waiting.push_back(question);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// No more questions; those that wait are forgotten.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// The next question; `None` when there will be none.
    pub(crate) fn next(&self) -> Option<Question> {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return None;
            }
            if let Some(question) = state.waiting.pop_front() {
                return Some(question);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts the threads that answer.
pub(crate) fn start(
    threads: usize,
    questions: &Arc<Questions>,
    inboxes: &Arc<[Inbox]>,
) -> io::Result<Vec<JoinHandle<()>>> {
    (0..threads.max(1))
        .map(|number| {
            let (questions, inboxes) = (Arc::clone(questions), Arc::clone(inboxes));
            thread::Builder::new().name(format!("password-{number}")).spawn(move || answer(&questions, &inboxes))
        })
        .collect()
}

fn answer(questions: &Questions, inboxes: &[Inbox]) {
    while let Some(Question { asker, credentials, authenticator, generation }) = questions.next() {
        let verdict = authenticator.authenticate(&credentials);
        match asker {
            asker @ Asker::Visitor { shard, .. } => {
                if let Some(inbox) = inboxes.get(shard) {
                    let question = Question { asker, credentials, authenticator, generation };
                    // Never refused: it carries no socket, and there are no more of them than questions.
                    let _ = inbox.send(Letter::Checked { question: Box::new(question), verdict });
                }
            }
            Asker::Caller(reply) => reply(verdict),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authenticate::Anonymous;
    use crate::visitors::Visitors;

    fn question() -> Question {
        let credentials =
            Credentials { client_id: "c".into(), user_name: None, password: None, certificate_name: None };
        let asker = Asker::Visitor { shard: 0, key: Visitors::default().next_key() };
        Question { asker, credentials, authenticator: Arc::new(Anonymous), generation: 0 }
    }

    #[test]
    fn a_full_queue_takes_no_question() {
        let questions = Questions::new(1);
        for _ in 0..PASSWORD_QUEUE_PER_THREAD {
            questions.ask(question()).unwrap();
        }
        assert_eq!(questions.ask(question()), Err(Busy));
        assert!(questions.next().is_some());
        questions.ask(question()).unwrap();
        questions.close();
        assert!(questions.next().is_none());
        assert_eq!(questions.ask(question()), Err(Busy));
    }
}
