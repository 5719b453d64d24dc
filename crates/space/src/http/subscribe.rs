//! `/subscribe`: standing queries over a WebSocket, as many as a client likes on one socket.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::SinkExt;
use tidegate_control::admission::Class;
use tidegate_control::hints::Asks;
use tidegate_graph::{GraphError, SubscriberId};
use tidegate_http::PeerAddress;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::info;

use super::guard::Authenticated;
use super::problem::SpaceProblem;
use super::{HttpState, asks};
use crate::access_policy::{AccessPolicy, ConnectionRights, KpIdentity, RIGHTS_CHANGED, banned};
use crate::attendance::{SENT_AWAY, Seat};
use crate::counts::ConnectionKind;
use crate::handle::SpaceHandle;
use crate::limits::{BATCH_BYTES, OUTLET_EVENTS, SOCKET_MESSAGE_BYTES_MAX, SUBSCRIPTIONS_MAX, WRITE_TIMEOUT};
use crate::machine::notification::{SpaceNotification, delegation_hints};
use crate::machine::request::{DeclinedBy, Refused, RequestOrigin, ResponseBody, SpaceResponse, Watched};
use crate::machine::request_queue::Caller;
use crate::notifications::{ENDED, NotificationInlet, NotificationOutlet, RESTARTING, SpaceRequest, outlet};
use crate::panics::Part;
use crate::parsers::TextReading;
use crate::sepa::{SepaError, SepaRequest, SepaSubscription, read};
use crate::ssap::uuid;

/// Requests of one socket that may be under way; more wait in it.
const WINDOW: usize = 16;
/// Bytes that are asked of a socket at once. Each look at it clears as many first, and there is one after each message.
const READ_BYTES: usize = 4 << 10;
/// How often a silent socket is asked whether somebody is there.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How often it is looked whether a token was taken back: a number is compared.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn upgrade(
    State(door): State<Arc<HttpState>>,
    Extension(PeerAddress(from)): Extension<PeerAddress>,
    user: Option<Extension<Authenticated>>,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Result<Response, SpaceProblem> {
    let policy = Arc::clone(&door.policy);
    let shown = user.map(|Extension(shown)| shown);
    let (ends, shown_s) = shown.as_ref().map_or((None, None), |shown| (shown.ends, shown.shown_s));
    let (user, ends) = (shown.map(|Authenticated { user, .. }| user), ends.map(Instant::from_std));
    let rights = ConnectionRights::new(Arc::clone(&policy), user.clone());
    let handle = door.handle.restricted(rights.rights.as_ref());
    let kp = SocketKp { user, ends, shown_s, address: from, name: asks(&headers).client };
    let place = door
        .places
        .take(ConnectionKind::Socket, &handle.shared.counts)
        .ok_or_else(|| SpaceProblem::busy(PING_INTERVAL))?;
    let response = socket
        .max_message_size(SOCKET_MESSAGE_BYTES_MAX)
        .max_frame_size(SOCKET_MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BYTES)
        .on_upgrade(move |socket| async move {
            let shared = Arc::clone(&handle.shared);
            let _ = shared.panics.catch_async(Part::Http, attend(socket, handle, (policy, rights), kp)).await;
            drop(place);
        });
    Ok(response)
}

/// What is remembered of a request until it is answered.
#[derive(Default)]
struct PendingSubscribe {
    alias: Option<String>,
    is_return: bool,
    /// The rights that it was asked with.
    scope: u64,
}

/// A new name for a subscription. Whoever knows it can go on with it, so it is not to be guessed.
pub(super) fn spuid() -> String {
    format!("sepa://subscription/{}", uuid())
}

/// Who has a socket, by what it said when it came: nobody gains by another name in each message.
struct SocketKp {
    user: Option<Arc<str>>,
    /// When the token is over that the socket was opened with.
    ends: Option<Instant>,
    /// When that was shown.
    shown_s: Option<u64>,
    address: IpAddr,
    name: Option<Box<str>>,
}

struct Socket {
    handle: SpaceHandle,
    policy: Arc<dyn AccessPolicy>,
    kp: SocketKp,
    seat: Seat,
    rights: ConnectionRights,
    subscriptions: HashMap<u64, SepaSubscription>,
    under_way: VecDeque<(PendingSubscribe, TextReading<Option<GraphError>>)>,
    outlet: Arc<NotificationOutlet>,
    out: VecDeque<Message>,
    out_bytes: usize,
}

async fn attend(
    mut socket: WebSocket,
    handle: SpaceHandle,
    (policy, rights): (Arc<dyn AccessPolicy>, ConnectionRights),
    kp: SocketKp,
) {
    let (outlet, mut inlet) = outlet(&handle);
    let (subscriptions, under_way, out) = (HashMap::new(), VecDeque::new(), VecDeque::new());
    let seat = Seat::take(&handle.shared, kp.user.clone(), kp.address, kp.name.as_deref());
    let mut state = Socket { handle, policy, kp, seat, rights, subscriptions, under_way, outlet, out, out_bytes: 0 };
    state.serve(&mut socket, &mut inlet).await;
    for id in state.subscriptions.into_keys() {
        state.handle.depart(SubscriberId(id), &state.outlet);
    }
}

impl Socket {
    async fn serve(&mut self, socket: &mut WebSocket, inlet: &mut NotificationInlet) {
        let mut looked_at = (Instant::now(), self.policy.generation());
        loop {
            if !self.out.is_empty() {
                self.out_bytes = 0;
                match flush(&mut self.out, socket).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        let spuid = self.subscriptions.values().next().map_or("?", |it| &it.spuid);
                        let seconds = WRITE_TIMEOUT.as_secs();
                        return info!(event = "subscriber_cut", spuid, seconds, "cut: it reads too slowly");
                    }
                }
            }
            let reads = self.under_way.len() < WINDOW;
            tokio::select! {
                biased;
                // First of all: whoever always has something to say would never see its end.
                () = end_of(self.kp.ends) => return say_goodbye(socket, TOKEN_ENDED).await,
                () = self.seat.is_sent_away() => return say_goodbye(socket, SENT_AWAY).await,
                () = end_of(self.kp.shown_s.map(|_| looked_at.0 + LOOK_INTERVAL)) => {
                    let before = std::mem::replace(&mut looked_at, (Instant::now(), self.policy.generation()));
                    if before.1 != looked_at.1 && self.is_taken_back() {
                        return say_goodbye(socket, TOKEN_TAKEN_BACK).await;
                    }
                }
                (asked, outcome, unread) = next(&mut self.under_way) => match unread {
                    Some(error) => self.say(SepaError::unread(&error, asked.alias.as_deref()).text()),
                    None => self.answer(asked, outcome),
                },
                Some((id, told)) = inlet.next() => {
                    self.tell(id, told);
                    self.tell_more(inlet);
                }
                message = socket.recv(), if reads => match message {
                    Some(Ok(Message::Text(text))) => self.hear(&text),
                    Some(Ok(Message::Binary(bytes))) => self.hear(std::str::from_utf8(&bytes).unwrap_or_default()),
                    // Pings are answered below us.
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                },
                () = sleep_until(Instant::now() + PING_INTERVAL) => {
                    self.out.push_back(Message::Ping(bytes::Bytes::new()));
                }
            }
        }
    }

    fn is_taken_back(&self) -> bool {
        let shown = self.kp.user.as_deref().zip(self.kp.shown_s);
        shown.is_some_and(|(user, shown_s)| self.policy.is_taken_back(user, shown_s))
    }

    /// A name in the first message counts, if none came with the handshake: browsers cannot say it there.
    fn caller(&mut self, asks: &Asks) -> Result<Caller, String> {
        if self.kp.name.is_none() {
            self.kp.name.clone_from(&asks.client);
            if let Some(name) = &self.kp.name {
                self.seat.name(name);
            }
        }
        let SocketKp { user, address, name, .. } = &self.kp;
        let kp =
            KpIdentity { user: user.as_deref(), address: *address, name: Some(name.as_deref().unwrap_or("socket")) };
        match self.policy.banned_for(&kp) {
            Some(left) => Err(banned(left)),
            None => Ok(self.handle.caller(&*self.policy, &kp, asks, ConnectionKind::Socket)),
        }
    }

    fn say(&mut self, text: String) {
        self.out_bytes += text.len();
        self.out.push_back(Message::Text(text.into()));
    }

    /// With other rights whatever stands is over: it was asked with those that are gone.
    fn renew_rights(&mut self) {
        if !self.rights.renew() {
            return;
        }
        self.handle = self.handle.restricted(self.rights.rights.as_ref());
        for (id, subscription) in std::mem::take(&mut self.subscriptions) {
            self.handle.unsubscribe(SubscriberId(id), &self.outlet);
            self.say(SepaError::ended(RIGHTS_CHANGED, subscription.alias.as_deref()).text());
            self.say(subscription.unsubscribed(None));
        }
    }

    fn hear(&mut self, text: &str) {
        self.renew_rights();
        match read(text) {
            Err(wrong) => self.say(wrong.text()),
            Ok(SepaRequest::Subscribe(wanted))
                if self.subscriptions.len() + self.under_way.len() >= SUBSCRIPTIONS_MAX =>
            {
                self.say(SepaError::too_many(wanted.alias.as_deref()).text());
            }
            Ok(SepaRequest::Subscribe(mut wanted)) => {
                let (asks, alias, is_return) = (&wanted.asks, wanted.alias.take(), wanted.seen.is_some());
                let caller = match self.caller(asks) {
                    Ok(caller) => caller,
                    Err(words) => return self.say(SepaError::banned(&words, alias.as_deref()).text()),
                };
                let asker = RequestOrigin::new(0, asks.deadline).of(caller).with_delegation(asks.delegate);
                let bytes = wanted.sparql.len();
                let (outlet, class) = (Some(Arc::clone(&self.outlet)), Class::Subscribe);
                let reading = self.handle.read(bytes, class, asker, move |limits| match wanted.query(limits) {
                    Ok(query) => {
                        let (what, seen) = (Watched::Query(Box::new(query)), wanted.seen);
                        (None, Ok(SpaceRequest::Subscribe { what, name: spuid(), seen, outlet }))
                    }
                    Err(GraphError::Cancelled) => (None, Err(Refused::Late)),
                    Err(error) => (Some(error), Err(Refused::Declined(DeclinedBy::Mistake))),
                });
                self.under_way.push_back((PendingSubscribe { alias, is_return, scope: self.handle.scope() }, reading));
            }
            Ok(SepaRequest::Unsubscribe { spuid, alias }) => {
                let found = self.subscriptions.iter().find(|(_, it)| it.spuid == spuid).map(|(id, _)| *id);
                match found.and_then(|id| Some((id, self.subscriptions.remove(&id)?))) {
                    Some((id, subscription)) => {
                        self.handle.unsubscribe(SubscriberId(id), &self.outlet);
                        self.say(subscription.unsubscribed(None));
                    }
                    None => self.say(SepaError::no_such(&spuid, alias.as_deref()).text()),
                }
            }
        }
    }

    fn answer(&mut self, asked: PendingSubscribe, outcome: Result<SpaceResponse, Refused>) {
        self.renew_rights();
        let PendingSubscribe { alias, is_return, scope: asked_by } = asked;
        match outcome {
            // Asked with rights that are gone.
            Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), .. })
                if asked_by != self.handle.scope() =>
            {
                self.handle.unsubscribe(subscribed.id, &self.outlet);
                self.say(SepaError::ended(RIGHTS_CHANGED, alias.as_deref()).text());
            }
            Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), hints, .. }) => {
                let subscription = SepaSubscription::new(&subscribed, alias);
                self.say(subscription.begin(&subscribed.begun, is_return, &hints));
                self.subscriptions.insert(subscribed.id.0, subscription);
            }
            Ok(_) => self.say(SepaError::refused(&Refused::Closing, alias.as_deref()).text()),
            Err(refused) => self.say(SepaError::refused(&refused, alias.as_deref()).text()),
        }
    }

    /// What is there already goes in the same piece, as long as a slow reader can take that in time.
    fn tell_more(&mut self, inlet: &mut NotificationInlet) {
        while self.out.len() < OUTLET_EVENTS
            && self.out_bytes < BATCH_BYTES
            && let Some((id, told)) = inlet.try_next()
        {
            self.tell(id, told);
        }
    }

    fn tell(&mut self, id: SubscriberId, told: SpaceNotification) {
        self.renew_rights();
        let Some(subscription) = self.subscriptions.get(&id.0) else { return };
        match told {
            SpaceNotification::Changed { sequence, delta, .. } => {
                let text = subscription.notification(sequence, &delta);
                self.say(text);
            }
            SpaceNotification::Delegated { sequence, every } => {
                let text = subscription.delegated(sequence, &delegation_hints(every));
                self.say(text);
            }
            SpaceNotification::Ended(_) | SpaceNotification::Restarting { .. } => {
                let (words, spread) = match told {
                    SpaceNotification::Ended(Some(error)) => (error.to_string(), None),
                    SpaceNotification::Restarting { spread } => (RESTARTING.to_owned(), spread),
                    _ => (ENDED.to_owned(), None),
                };
                let alias = subscription.alias.as_deref();
                let texts = [SepaError::ended(&words, alias).text(), subscription.unsubscribed(spread)];
                self.subscriptions.remove(&id.0);
                for text in texts {
                    self.say(text);
                }
            }
        }
    }
}

/// What a client is told whose token is over.
const TOKEN_ENDED: &str = "the token has expired; come back with a new one";

/// And one whose token is not valid any more.
const TOKEN_TAKEN_BACK: &str = "the token was taken back; come back with a new one";

/// The last that a client hears (RFC 6455, 7.4.1: 1008).
async fn say_goodbye(socket: &mut WebSocket, reason: &'static str) {
    let code = axum::extract::ws::close_code::POLICY;
    let last = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let _ = timeout(WRITE_TIMEOUT, socket.send(last)).await;
}

/// Waits until then; for ever, if there is no end.
async fn end_of(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Sends all of it; messages that wait together share a write, and each has its time.
async fn flush(out: &mut VecDeque<Message>, socket: &mut WebSocket) -> Result<Result<(), axum::Error>, Elapsed> {
    while let Some(message) = out.pop_front() {
        if let Err(gone) = timeout(WRITE_TIMEOUT, socket.feed(message)).await? {
            return Ok(Err(gone));
        }
    }
    timeout(WRITE_TIMEOUT, socket.flush()).await
}

/// The answer to the request that came first; never, if there is none.
async fn next(
    under_way: &mut VecDeque<(PendingSubscribe, TextReading<Option<GraphError>>)>,
) -> (PendingSubscribe, Result<SpaceResponse, Refused>, Option<GraphError>) {
    let Some((_, reading)) = under_way.front_mut() else { return std::future::pending().await };
    let (outcome, unread) = reading.wait().await;
    (under_way.pop_front().map(|(asked, _)| asked).unwrap_or_default(), outcome, unread.flatten())
}
