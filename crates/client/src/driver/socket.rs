//! Subscriptions over WebSocket, many on one socket. Each socket has a task, which comes back with full jitter; what
//! breaks it is told to every subscription on it, with the time until the next try.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tidegate_control::hints::{Asks, Delegate, Hints};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tracing::debug;

use super::address::within;
use super::http::{KpHeaders, basic, hints_of, text_of};
use super::query_task::News;
use super::space::Endpoint;
use super::tls::{BrokerRoute, Stream};
use super::{DriverClock, SpaceQuery, chance};
use crate::error::Error;
use crate::limits::{
    ANSWER_BYTES_MAX, CONNECT_TIMEOUT, PING_INTERVAL, PINGS_MAX, SUBSCRIPTIONS_PER_SOCKET, WRITE_TIMEOUT,
};
use crate::session::hub::WatchId;
use crate::session::reconnect::Reconnect;
use crate::session::sepa::{self, SepaInput};
use crate::session::watch::{Attempt, ExchangeFailure, Input};

/// All sockets of a space.
pub(crate) struct SocketPool {
    endpoint: Arc<Endpoint>,
    news: mpsc::Sender<News>,
    lanes: Vec<SocketLane>,
    /// Where each subscription is: the one that stands, and the newest that was asked for.
    at: BTreeMap<(WatchId, Attempt), usize>,
    live: BTreeMap<WatchId, Attempt>,
}

struct SocketLane {
    orders: mpsc::Sender<SocketOrder>,
    load: usize,
}

struct SocketOrder {
    id: WatchId,
    attempt: Attempt,
    /// None to leave.
    wish: Option<SubscribeRequest>,
}

/// A request without an answer.
#[derive(Clone, Copy)]
struct AskedRequest {
    id: WatchId,
    attempt: Attempt,
    /// What was missed on the subscription of this attempt is asked; it goes on.
    of: Option<Attempt>,
}

/// A subscription that is asked for.
struct SubscribeRequest {
    what: SpaceQuery,
    resume: Option<(Attempt, u64)>,
    /// It stands, and only what was missed is wanted.
    is_check: bool,
    asks: Asks,
}

impl SocketPool {
    pub(crate) fn new(endpoint: Arc<Endpoint>, news: mpsc::Sender<News>) -> Self {
        Self { endpoint, news, lanes: Vec::new(), at: BTreeMap::new(), live: BTreeMap::new() }
    }

    pub(crate) fn subscribe(
        &mut self,
        id: WatchId,
        attempt: Attempt,
        what: SpaceQuery,
        resume: Option<(Attempt, u64)>,
        asks: Asks,
    ) {
        // An attempt that failed has no place any more, or a long outage would fill socket after socket.
        self.leave_all(id, self.live.get(&id).copied().or(resume.map(|(before, _)| before)));
        let place = self.lanes.iter().position(|lane| lane.load < SUBSCRIPTIONS_PER_SOCKET).unwrap_or_else(|| {
            self.lanes.push(self.lane());
            self.lanes.len() - 1
        });
        let Some(lane) = self.lanes.get_mut(place) else { return };
        // Room for everybody to come and to leave. If there is none all the same, the attempt times out.
        if lane
            .orders
            .try_send(SocketOrder { id, attempt, wish: Some(SubscribeRequest { what, resume, is_check: false, asks }) })
            .is_ok()
        {
            lane.load += 1;
            self.at.insert((id, attempt), place);
        }
    }

    /// Asks what was missed on a subscription that stands; false if that cannot be asked now.
    pub(crate) fn ask_missed(
        &mut self,
        id: WatchId,
        attempt: Attempt,
        what: SpaceQuery,
        since: (Attempt, u64),
        asks: Asks,
    ) -> bool {
        let Some(lane) = self.at.get(&(id, since.0)).and_then(|place| self.lanes.get(*place)) else { return false };
        let wish = Some(SubscribeRequest { what, resume: Some(since), is_check: true, asks });
        lane.orders.try_send(SocketOrder { id, attempt, wish }).is_ok()
    }

    /// This one stands; what was before is not needed any more.
    pub(crate) fn stands(&mut self, id: WatchId, attempt: Attempt) {
        self.live.insert(id, attempt);
        self.leave_all(id, Some(attempt));
    }

    /// Ends all subscriptions of a watch.
    pub(crate) fn leave(&mut self, id: WatchId) {
        self.live.remove(&id);
        self.leave_all(id, None);
    }

    /// This one has ended by itself.
    pub(crate) fn ended(&mut self, id: WatchId, attempt: Attempt) {
        if self.live.get(&id) == Some(&attempt) {
            self.live.remove(&id);
        }
    }

    fn leave_all(&mut self, id: WatchId, but: Option<Attempt>) {
        let all: Vec<_> =
            self.at.range((id, Attempt(0))..=(id, Attempt(u32::MAX))).map(|(key, at)| (*key, *at)).collect();
        for ((id, attempt), place) in all {
            if Some(attempt) == but {
                continue;
            }
            self.at.remove(&(id, attempt));
            if let Some(lane) = self.lanes.get_mut(place) {
                lane.load = lane.load.saturating_sub(1);
                let _ = lane.orders.try_send(SocketOrder { id, attempt, wish: None });
            }
        }
    }

    fn lane(&self) -> SocketLane {
        let (orders, incoming) = mpsc::channel(SUBSCRIPTIONS_PER_SOCKET * 4);
        if let Endpoint::Http(endpoint) = &*self.endpoint {
            let task = SocketTask {
                road: endpoint.subscribe.clone(),
                kp: endpoint.requests.kp.clone(),
                orders: incoming,
                news: self.news.clone(),
                asked: BTreeMap::new(),
                live: BTreeMap::new(),
                past: BTreeMap::new(),
            };
            tokio::spawn(task.run());
        }
        SocketLane { orders, load: 0 }
    }
}

type Socket = WebSocketStream<Stream>;

struct SocketTask {
    road: BrokerRoute,
    kp: KpHeaders,
    orders: mpsc::Receiver<SocketOrder>,
    news: mpsc::Sender<News>,
    /// Requests without an answer, by alias.
    asked: BTreeMap<String, AskedRequest>,
    /// Those that stand, by the broker's name.
    live: BTreeMap<String, (WatchId, Attempt)>,
    /// Those that stood on the connection before.
    past: BTreeMap<(WatchId, Attempt), String>,
}

impl SocketTask {
    async fn run(mut self) {
        let (clock, mut rng) = (DriverClock::new(), chance());
        let mut reconnect = Reconnect::default();
        let mut not_before = clock.now();
        while let Some(order) = self.orders.recv().await {
            if order.wish.is_none() {
                continue;
            }
            let now = clock.now();
            if now < not_before {
                self.refuse(&order, ExchangeFailure::Failed(Some(not_before.since(now)))).await;
                continue;
            }
            let error = match self.connect().await {
                Ok(socket) => {
                    reconnect.on_success(clock.now());
                    match self.serve(socket, order).await {
                        Some(error) => error,
                        None => return,
                    }
                }
                Err(error) => {
                    let hints = if let Error::Busy { hints, .. } = &error { Some(&**hints) } else { None };
                    not_before = clock.now() + reconnect.on_failure(clock.now(), hints, &mut rng);
                    let _ = self.news.send((order.id, Err((order.attempt, error)))).await;
                    continue;
                }
            };
            let delay = reconnect.on_failure(clock.now(), None, &mut rng);
            not_before = clock.now() + delay;
            debug!(event = "socket_lost", address = %self.road.address.authority(), %error, ?delay);
            self.lose(delay).await;
        }
    }

    async fn connect(&self) -> Result<Socket, Error> {
        let address = &self.road.address;
        let scheme = if self.road.is_secure() { "wss" } else { "ws" };
        let url = format!("{scheme}://{}{}", address.authority(), address.path);
        let mut request = url.into_client_request().map_err(nonsense)?;
        if let Some(credentials) = basic(address)
            && let Ok(value) = credentials.parse()
        {
            request.headers_mut().insert("authorization", value);
        }
        for (name, text) in self.kp.pairs() {
            // A name that no header can have is not said.
            text.parse().ok().and_then(|value| request.headers_mut().insert(name, value));
        }
        let stream = self.road.open().await?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(ANSWER_BYTES_MAX))
            .max_frame_size(Some(ANSWER_BYTES_MAX))
            .read_buffer_size(16 << 10)
            .write_buffer_size(0);
        let greeting = client_async_with_config(request, stream, Some(config));
        match within(CONNECT_TIMEOUT, greeting).await? {
            Ok((socket, _)) => Ok(socket),
            Err(SocketError::Http(response)) => {
                let status = response.status();
                Err(match status.as_u16() {
                    401 | 403 => Error::Denied(status.to_string()),
                    429 | 503 => {
                        let hints = Box::new(hints_of(response.headers()));
                        Error::Busy { retry_after: hints.retry_after, why: None, hints }
                    }
                    _ => Error::Unsupported(format!("no subscriptions there: {status}")),
                })
            }
            Err(error) => Err(nonsense(error)),
        }
    }

    /// Until the socket breaks, or nobody has orders any more.
    async fn serve(&mut self, mut socket: Socket, first: SocketOrder) -> Option<Error> {
        let mut heard_at = Instant::now();
        let mut pings = 0;
        if let Err(error) = self.obey(&mut socket, first).await {
            return Some(error);
        }
        loop {
            let done = tokio::select! {
                order = self.orders.recv() => {
                    let Some(order) = order else {
                        let _ = within(WRITE_TIMEOUT, socket.close(None)).await;
                        return None;
                    };
                    self.obey(&mut socket, order).await
                }
                message = socket.next() => {
                    (heard_at, pings) = (Instant::now(), 0);
                    match message {
                        Some(Ok(Message::Text(text))) => self.hear(&mut socket, &text).await,
                        Some(Ok(Message::Close(_))) | None => Err(Error::Lost(std::io::ErrorKind::UnexpectedEof.into())),
                        // Answering pings is the library's affair.
                        Some(Ok(_)) => Ok(()),
                        Some(Err(error)) => Err(nonsense(error)),
                    }
                },
                () = sleep_until(heard_at + PING_INTERVAL * (pings + 1)) => {
                    pings += 1;
                    if pings > PINGS_MAX { Err(Error::TimedOut) } else { say(&mut socket, Message::Ping(bytes::Bytes::new())).await }
                }
            };
            if let Err(error) = done {
                return Some(error);
            }
        }
    }

    async fn obey(&mut self, socket: &mut Socket, order: SocketOrder) -> Result<(), Error> {
        let SocketOrder { id, attempt, wish } = order;
        let Some(SubscribeRequest { what, resume, is_check, asks }) = wish else {
            self.past.remove(&(id, attempt));
            self.asked.retain(|_, asked| (asked.id, asked.attempt) != (id, attempt));
            let name = self.live.iter().find(|(_, live)| **live == (id, attempt)).map(|(name, _)| name.clone());
            let Some(name) = name else { return Ok(()) };
            self.live.remove(&name);
            return say(socket, Message::text(sepa::unsubscribe(&name))).await;
        };
        match text_of(&what) {
            Ok(text) => {
                let alias = format!("{}.{}", id.0, attempt.0);
                let name = resume.and_then(|(before, last)| Some((self.name_of(id, before)?, last)));
                if is_check && name.is_none() {
                    // It is gone meanwhile, and whoever asks hears that, too.
                    let _ = self.news.send((id, Err((attempt, Error::Closed)))).await;
                    return Ok(());
                }
                let of = resume.map(|(before, _)| before).filter(|_| is_check);
                let resume = name.as_ref().map(|(name, last)| (name.as_str(), *last));
                let wish = sepa::subscribe(&text, &alias, resume, &asks);
                self.asked.insert(alias, AskedRequest { id, attempt, of });
                say(socket, Message::text(wish)).await
            }
            Err(error) => {
                let _ = self.news.send((id, Err((attempt, error)))).await;
                Ok(())
            }
        }
    }

    async fn hear(&mut self, socket: &mut Socket, text: &str) -> Result<(), Error> {
        let news = match sepa::read(text)? {
            None => return Ok(()),
            Some(SepaInput::Notification { spuid, alias, sequence, delta, resumed, hints }) => {
                let asked = alias.as_ref().and_then(|alias| self.asked.remove(alias));
                let every = hints.interval.filter(|_| hints.delegate == Some(Delegate::Check));
                if let Some(AskedRequest { id, attempt, of: Some(live) }) = asked {
                    if resumed {
                        (id, Ok(Input::Missed { attempt, sequence, delta, hints: *hints }))
                    } else {
                        // There is another subscription now, of which nothing is known: begin anew.
                        self.live.retain(|_, standing| *standing != (id, live));
                        let failure = ExchangeFailure::Failed(None);
                        let _ = self.news.send((id, Ok(Input::Refused { attempt, failure }))).await;
                        let ended = Input::Ended { attempt: live, hints: Hints::default() };
                        let _ = self.news.send((id, Ok(ended))).await;
                        return say(socket, Message::text(sepa::unsubscribe(&spuid))).await;
                    }
                } else if let Some(AskedRequest { id, attempt, of: None }) = asked {
                    self.past.retain(|(of, _), _| *of != id);
                    self.live.insert(spuid, (id, attempt));
                    let input = if resumed {
                        Input::Resumed { attempt, sequence, delta }
                    } else {
                        Input::Subscribed { attempt, sequence, rows: delta.added }
                    };
                    if every.is_some() {
                        let _ = self.news.send((id, Ok(input))).await;
                        (id, Ok(Input::Delegated { attempt, sequence, every }))
                    } else {
                        (id, Ok(input))
                    }
                } else if let Some((id, attempt)) = self.live.get(&spuid).copied() {
                    if hints.delegate.is_some() {
                        (id, Ok(Input::Delegated { attempt, sequence, every }))
                    } else {
                        (id, Ok(Input::Changed { attempt, sequence: Some(sequence), delta, spread: hints.spread }))
                    }
                } else {
                    // Nobody wants it any more.
                    return say(socket, Message::text(sepa::unsubscribe(&spuid))).await;
                }
            }
            Some(SepaInput::Unsubscribed { spuid, hints }) => {
                let Some((id, attempt)) = self.live.remove(&spuid) else { return Ok(()) };
                (id, Ok(Input::Ended { attempt, hints: *hints }))
            }
            Some(SepaInput::Refused { alias, refusal }) => {
                // Some brokers do not repeat the alias; if only one request is open, it is that one.
                let alias = alias.or_else(|| self.asked.keys().next().filter(|_| self.asked.len() == 1).cloned());
                let asked = alias.and_then(|alias| self.asked.remove(&alias));
                let Some(AskedRequest { id, attempt, .. }) = asked else { return Ok(()) };
                (id, Err((attempt, refusal.into())))
            }
        };
        let _ = self.news.send(news).await;
        Ok(())
    }

    /// What the broker called a subscription.
    fn name_of(&self, id: WatchId, attempt: Attempt) -> Option<String> {
        let live = self.live.iter().find(|(_, live)| **live == (id, attempt)).map(|(name, _)| name);
        live.or_else(|| self.past.get(&(id, attempt))).cloned()
    }

    /// Tells everybody on this socket that it is gone.
    async fn lose(&mut self, delay: Duration) {
        let hints = Hints { retry_after: Some(delay), ..Hints::default() };
        self.past.extend(self.live.iter().map(|(name, of)| (*of, name.clone())));
        let asked = std::mem::take(&mut self.asked).into_values().map(|asked| (asked.id, asked.attempt));
        let all = asked.chain(std::mem::take(&mut self.live).into_values());
        for (id, attempt) in all {
            let _ = self.news.send((id, Ok(Input::Ended { attempt, hints: hints.clone() }))).await;
        }
    }

    async fn refuse(&self, order: &SocketOrder, failure: ExchangeFailure) {
        let _ = self.news.send((order.id, Ok(Input::Refused { attempt: order.attempt, failure }))).await;
    }
}

async fn say(socket: &mut Socket, message: Message) -> Result<(), Error> {
    within(WRITE_TIMEOUT, socket.send(message)).await?.map_err(nonsense)
}

fn nonsense(error: SocketError) -> Error {
    match error {
        SocketError::Io(error) => Error::Lost(error),
        other => Error::Lost(std::io::Error::other(other)),
    }
}
