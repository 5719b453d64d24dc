//! SSAP over TCP or TLS: requests on connections that are used again, and a connection for each subscription, as every broker
//! of Smart-M3 has it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_control::hints::{Asks, Hints};
use tidegate_wire_ssap::{SsapQuery, SsapRequest};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::{Semaphore, mpsc};

use super::address::within;
use super::idle::Idle;
use super::query_task::WatchReporter;
use super::tls::{BrokerRoute, Stream};
use super::{CheckAnswer, SpaceQuery};
use crate::error::Error;
use crate::limits::{ANSWER_TIMEOUT, LINES_MAX, WRITE_TIMEOUT};
use crate::session::BrokerRefusal;
use crate::session::hub::WatchId;
use crate::session::ssap::{Confirmed, SsapIdentity, SsapInput, SsapReader};
use crate::session::watch::{Attempt, ExchangeFailure, Input};

/// A broker that speaks SSAP.
#[derive(Debug)]
pub(crate) struct SsapEndpoint {
    road: BrokerRoute,
    speaker: SsapIdentity,
    /// The class as which it would like to be served, said with each request.
    class: Option<String>,
    transactions: AtomicU64,
    idle: Idle<SsapLine>,
    places: Semaphore,
    /// A broker that stumbles over parameters that it does not know: it gets none.
    is_plain: AtomicBool,
    /// A broker that speaks of pace and still does not know what it is to be asked what was missed.
    cannot_tell: AtomicBool,
    /// What brokers called the latest subscription of each watch.
    names: Mutex<BTreeMap<WatchId, (Attempt, String)>>,
}

/// A check on the connection of a subscription: what was missed?
#[derive(Debug)]
pub(crate) struct MissedCheck {
    /// The number of the check.
    pub(crate) attempt: Attempt,
    /// The last notification that was heard.
    pub(crate) last: u64,
    pub(crate) asks: Asks,
}

/// A connection and what was read from it.
struct SsapLine {
    stream: Stream,
    listener: SsapReader,
}

impl std::fmt::Debug for SsapLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SsapLine").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl SsapEndpoint {
    pub(crate) fn new(road: BrokerRoute, speaker: SsapIdentity, class: Option<String>) -> Self {
        Self {
            road,
            speaker,
            class,
            transactions: AtomicU64::new(1),
            idle: Idle::default(),
            places: Semaphore::new(LINES_MAX),
            is_plain: AtomicBool::new(false),
            cannot_tell: AtomicBool::new(false),
            names: Mutex::default(),
        }
    }

    /// A request and its answer.
    pub(crate) async fn ask(
        &self,
        request: &SsapRequest<'_>,
        asks: &Asks,
        patience: Duration,
    ) -> Result<Confirmed, Error> {
        within(patience, self.ask_once(request, asks)).await?
    }

    async fn ask_once(&self, request: &SsapRequest<'_>, asks: &Asks) -> Result<Confirmed, Error> {
        let transaction = self.transactions.fetch_add(1, Ordering::Relaxed);
        let text = self.speaker.say(request, transaction, &self.polite(asks));
        let _place = self.places.acquire().await.map_err(|_| Error::Closed)?;
        let mut line = self.line().await?;
        line.write(&text).await?;
        let answer = loop {
            match line.hear().await? {
                SsapInput::Confirmed { transaction: of, answer } if of == transaction => break answer,
                // The answer to a request that was given up, or a notification of somebody else's.
                _ => {}
            }
        };
        self.put_back(line);
        answer.map_err(Error::from)
    }

    /// Takes part, and finds out whether the broker can be told about pace: one that closes at what it does not know is
    /// told nothing from then on.
    pub(crate) async fn join(&self, asks: &Asks, patience: Duration) -> Result<(), Error> {
        let request = SsapRequest::Join { credentials: None };
        let error = match self.ask(&request, asks, patience).await {
            // An old broker says so to whoever has joined before.
            Ok(_) | Err(Error::Rejected(_)) => return Ok(()),
            Err(error @ (Error::Lost(_) | Error::Failed(_) | Error::Unsupported(_))) => error,
            Err(error) => return Err(error),
        };
        if self.is_plain.swap(true, Ordering::Relaxed) {
            return Err(error);
        }
        match self.ask(&request, asks, patience).await {
            Ok(_) | Err(Error::Rejected(_)) => Ok(()),
            Err(_) => {
                self.is_plain.store(false, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// What is said about pace, and the class that is asked for: nothing to a broker that does not know such words. The name of
    /// the client is its node.
    fn polite<'a>(&self, asks: &'a Asks) -> Cow<'a, Asks> {
        match &self.class {
            _ if self.is_plain.load(Ordering::Relaxed) => Cow::Owned(Asks::default()),
            None => Cow::Borrowed(asks),
            Some(class) => Cow::Owned(Asks { class: Some(class.as_str().into()), ..asks.clone() }),
        }
    }

    /// A connection that is not known to be dead.
    async fn line(&self) -> Result<SsapLine, Error> {
        loop {
            let Some(mut line) = self.idle.take() else { break };
            // Whoever says something now, or its end, said it to somebody else.
            if poll_fn(|context| Poll::Ready(line.poll_read(context).is_pending())).await {
                return Ok(line);
            }
        }
        Ok(SsapLine { stream: self.road.open().await?, listener: SsapReader::default() })
    }

    fn put_back(&self, line: SsapLine) {
        self.idle.put(line, self.places.available_permits() == 0);
    }

    pub(crate) async fn check(&self, what: &SpaceQuery, asks: &Asks, patience: Duration) -> Result<CheckAnswer, Error> {
        let answer = self.ask(&SsapRequest::Query(question(what)), asks, patience).await?;
        let rows = rows_of(&answer)?;
        Ok(CheckAnswer::Whole { rows, version: None, hints: answer.hints })
    }

    /// Whether a broker that says this can be asked what was missed: only ours has such words, and knows them.
    pub(crate) fn can_tell(&self, hints: &Hints) -> bool {
        hints.permitted.is_some() && !self.cannot_tell.load(Ordering::Relaxed)
    }

    /// Subscribes, and tells what comes until it is over or nobody has `orders` any more.
    pub(crate) async fn follow(
        &self,
        what: &SpaceQuery,
        attempt: Attempt,
        resume: Option<(Attempt, u64)>,
        asks: &Asks,
        tell: &WatchReporter,
        mut orders: mpsc::Receiver<MissedCheck>,
    ) {
        let name = self.names.lock().ok().and_then(|names| names.get(&tell.id).cloned());
        let resume = name.zip(resume).filter(|((of, _), (before, _))| of == before);
        let resume = resume.map(|((_, name), (_, last))| (name, last));
        let began = tokio::select! {
            began = within(ANSWER_TIMEOUT, self.subscribe(what, resume, asks)) => began.and_then(|began| began),
            // Nobody asks what was missed before there is a subscription.
            _ = orders.recv() => return,
        };
        let (mut line, answer) = match began {
            Ok(began) => began,
            Err(error) => return tell.refused(attempt, error).await,
        };
        let rows = match rows_of(&answer) {
            Ok(rows) => rows,
            Err(error) => return tell.refused(attempt, error).await,
        };
        if let (Some(name), Ok(mut names)) = (&answer.subscription, self.names.lock()) {
            names.insert(tell.id, (attempt, name.clone()));
        }
        tell.input(match answer.resumed.clone() {
            Some((sequence, delta)) => Input::Resumed { attempt, sequence, delta },
            None => Input::Subscribed { attempt, sequence: 0, rows },
        })
        .await;
        let name = answer.subscription;
        let mut asked = None;
        loop {
            let heard = tokio::select! {
                heard = line.hear() => heard,
                order = orders.recv() => match order {
                    Some(since) => {
                        asked = Some((self.transactions.fetch_add(1, Ordering::Relaxed), since.attempt));
                        match self.ask_since(&mut line, what, name.as_deref(), &since, asked).await {
                            Ok(()) => continue,
                            Err(error) => Err(error),
                        }
                    }
                    None => return self.goodbye(line, name, tell.id, attempt).await,
                },
            };
            match heard {
                Ok(SsapInput::Changed { sequence, delta, spread }) => {
                    tell.input(Input::Changed { attempt, sequence, delta, spread }).await;
                }
                Ok(SsapInput::Delegated { sequence, every }) => {
                    tell.input(Input::Delegated { attempt, sequence, every }).await;
                }
                Ok(SsapInput::Ended(hints)) => return tell.input(Input::Ended { attempt, hints }).await,
                Ok(SsapInput::Confirmed { transaction, answer }) => {
                    let check = asked.take_if(|(of, _)| *of == transaction);
                    if let Some((_, check)) = check
                        && !self.answer_since(check, answer, tell).await
                    {
                        // There is another subscription now, of which nothing is known: begin anew.
                        return tell.input(Input::Ended { attempt, hints: Hints::default() }).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(event = "subscription_lost", %error);
                    return tell.input(Input::Ended { attempt, hints: Hints::default() }).await;
                }
            }
        }
    }

    /// On the connection of the subscription itself, so that the answer stands in order with its notifications.
    async fn ask_since(
        &self,
        line: &mut SsapLine,
        what: &SpaceQuery,
        name: Option<&str>,
        since: &MissedCheck,
        asked: Option<(u64, Attempt)>,
    ) -> Result<(), Error> {
        let resume = name.map(|name| (name, since.last));
        let transaction = asked.map_or(0, |(transaction, _)| transaction);
        let request = SsapRequest::Subscribe(question(what));
        line.write(&self.speaker.say_again(&request, transaction, &self.polite(&since.asks), resume)).await
    }

    /// Passes on what was missed. False if the subscription did not go on.
    async fn answer_since(
        &self,
        attempt: Attempt,
        answer: Result<Confirmed, BrokerRefusal>,
        tell: &WatchReporter,
    ) -> bool {
        match answer {
            Ok(Confirmed { resumed: Some((sequence, delta)), hints, .. }) => {
                tell.input(Input::Missed { attempt, sequence, delta, hints }).await;
                true
            }
            Ok(Confirmed { knows_return, .. }) => {
                self.cannot_tell.fetch_or(!knows_return, Ordering::Relaxed);
                let failure = if knows_return { ExchangeFailure::Failed(None) } else { ExchangeFailure::Unsupported };
                tell.input(Input::Refused { attempt, failure }).await;
                false
            }
            Err(refusal) => {
                tell.refused(attempt, refusal.into()).await;
                true
            }
        }
    }

    /// Forgets a watch.
    pub(crate) fn forget(&self, id: WatchId) {
        if let Ok(mut names) = self.names.lock() {
            names.remove(&id);
        }
    }

    async fn subscribe(
        &self,
        what: &SpaceQuery,
        resume: Option<(String, u64)>,
        asks: &Asks,
    ) -> Result<(SsapLine, Confirmed), Error> {
        let transaction = self.transactions.fetch_add(1, Ordering::Relaxed);
        let mut line = SsapLine { stream: self.road.open().await?, listener: SsapReader::default() };
        let resume = resume.as_ref().filter(|_| !self.is_plain.load(Ordering::Relaxed));
        let resume = resume.map(|(name, last)| (name.as_str(), *last));
        let request = SsapRequest::Subscribe(question(what));
        line.write(&self.speaker.say_again(&request, transaction, &self.polite(asks), resume)).await?;
        loop {
            if let SsapInput::Confirmed { transaction: of, answer } = line.hear().await?
                && of == transaction
            {
                return Ok((line, answer?));
            }
        }
    }

    /// Ends a subscription on its own connection; a broker that does not read there sees it close.
    async fn goodbye(&self, mut line: SsapLine, name: Option<String>, id: WatchId, attempt: Attempt) {
        let Some(name) = name else { return };
        let newest = self.names.lock().ok().and_then(|names| names.get(&id).cloned());
        if newest.is_some_and(|(of, newest)| of != attempt && newest == name) {
            // It goes on, on another connection.
            return;
        }
        let transaction = self.transactions.fetch_add(1, Ordering::Relaxed);
        let request = SsapRequest::Unsubscribe { subscription_id: name.into() };
        let _ = line.write(&self.speaker.say(&request, transaction, &Asks::default())).await;
        let _ = line.stream.shutdown().await;
    }
}

impl SsapLine {
    async fn write(&mut self, text: &str) -> Result<(), Error> {
        let sent = async {
            self.stream.write_all(text.as_bytes()).await?;
            self.stream.flush().await
        };
        within(WRITE_TIMEOUT, sent).await?.map_err(Error::Lost)
    }

    async fn hear(&mut self) -> Result<SsapInput, Error> {
        loop {
            if let Some(heard) = self.listener.hear() {
                return heard.map_err(Error::from);
            }
            poll_fn(|context| self.poll_read(context)).await.map_err(Error::Lost)?;
        }
    }

    /// Reads what is there.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Not kept while waiting: there may be thousands of lines.
        let mut buffer = [0; 8192];
        let mut buffer = ReadBuf::new(&mut buffer);
        std::task::ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        match buffer.filled() {
            [] => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            read => {
                self.listener.push(read);
                Poll::Ready(Ok(()))
            }
        }
    }
}

fn question(what: &SpaceQuery) -> SsapQuery<'_> {
    match what {
        SpaceQuery::Sparql(text) => SsapQuery::Sparql((&**text).into()),
        SpaceQuery::Patterns(patterns) => SsapQuery::Patterns(patterns.to_vec()),
    }
}

/// The rows of an answer; a truth value is a row, too.
fn rows_of(answer: &Confirmed) -> Result<Vec<crate::session::row::Row>, Error> {
    match answer.truth {
        Some(_) if !answer.rows.is_empty() => Err(BrokerRefusal::Nonsense("rows and a truth value".to_owned()).into()),
        Some(truth) => Ok(vec![crate::session::sparql::truth_row(truth)]),
        None => Ok(answer.rows.clone()),
    }
}

/// What an error means to a watch.
pub(crate) fn failure_of(error: &Error) -> ExchangeFailure {
    match error {
        Error::Busy { hints, .. } => ExchangeFailure::Denied((**hints).clone()),
        Error::TimedOut => ExchangeFailure::TimedOut,
        _ => ExchangeFailure::Failed(None),
    }
}
