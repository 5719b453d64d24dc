//! The task behind an MQTT client: a session, a clock, and a connection that comes back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_control::hints::Hints;
use tidegate_wire_mqtt::{PacketId, QoS, ReasonCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;
use tracing::{debug, info};

use super::link::MqttLink;
use super::{MqttStats, PublishAck, PublishError};
use crate::driver::events::Notices;
use crate::driver::tls::BrokerRoute;
use crate::driver::{DriverClock, chance};
use crate::error::Error;
use crate::limits::{FILTERS_MAX, INBOX_MAX, OUTPUT_BYTES_MAX};
use crate::session::event::EventKind;
use crate::session::mqtt::{MqttEvent, MqttMessage, MqttSession, Token};

type Answer = oneshot::Sender<Result<PublishAck, PublishError>>;

/// What the handles of a client ask of its task.
#[derive(Debug)]
pub(super) enum MqttCommand {
    Publish(MqttMessage, Answer),
    Subscribe(String, QoS, oneshot::Sender<ReasonCode>),
    Stats(oneshot::Sender<MqttStats>),
}

pub(super) struct MqttTask {
    road: BrokerRoute,
    session: MqttSession,
    clock: DriverClock,
    rng: Xoshiro256PlusPlus,
    orders: mpsc::Receiver<MqttCommand>,
    /// A message that waits for room; nobody else is heard meanwhile.
    held: Option<(MqttMessage, Answer)>,
    answers: BTreeMap<Token, Answer>,
    subscribing: BTreeMap<Token, oneshot::Sender<ReasonCode>>,
    filters: usize,
    made: u64,
    inbox: mpsc::Sender<MqttMessage>,
    /// Messages that came and nobody has taken.
    unread: VecDeque<(MqttMessage, Option<PacketId>)>,
    output: Vec<u8>,
    /// Whoever waits for the first connection.
    connected: Option<oneshot::Sender<Result<(), Error>>>,
    stats: MqttStats,
    /// What the broker said with its refusal or goodbye.
    hints: Option<Hints>,
    notices: Arc<Notices>,
}

/// Whether there is anybody left to work for.
enum TaskEnd {
    Lost,
    Closed,
}

impl MqttTask {
    pub(super) fn new(
        road: BrokerRoute,
        session: MqttSession,
        orders: mpsc::Receiver<MqttCommand>,
        inbox: mpsc::Sender<MqttMessage>,
        connected: oneshot::Sender<Result<(), Error>>,
        notices: Arc<Notices>,
    ) -> Self {
        Self {
            road,
            session,
            clock: DriverClock::new(),
            rng: chance(),
            orders,
            held: None,
            answers: BTreeMap::new(),
            subscribing: BTreeMap::new(),
            filters: 0,
            made: 0,
            inbox,
            unread: VecDeque::new(),
            output: Vec::new(),
            connected: Some(connected),
            stats: MqttStats::default(),
            hints: None,
            notices,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            match Box::pin(MqttLink::open(&self.road)).await {
                Ok(link) => {
                    if let TaskEnd::Closed = self.serve(link).await {
                        return;
                    }
                    self.notices.tell(None, EventKind::Cut);
                }
                Err(error) => {
                    debug!(event = "mqtt_unreachable", address = %self.road.address.authority(), %error);
                    if let Some(connected) = self.connected.take() {
                        let _ = connected.send(Err(error));
                        return;
                    }
                }
            }
            // The first connection has an answer, good or bad, unless the broker is of an older kind.
            if self.hints.is_none()
                && let Some(connected) = self.connected.take()
            {
                let _ = connected.send(Err(Error::Lost(std::io::ErrorKind::UnexpectedEof.into())));
                return;
            }
            // What was not taken was not acknowledged, and comes again.
            self.unread.retain(|(_, id)| id.is_none());
            let now = self.clock.now();
            let delay = self.session.handle_lost(now, self.hints.take().as_ref(), &mut self.rng);
            info!(event = "mqtt_lost", address = %self.road.address.authority(), ?delay);
            self.notices.tell(None, EventKind::Returning { after: delay });
            if let TaskEnd::Closed = self.wait(delay).await {
                return;
            }
        }
    }

    /// Takes orders while there is no connection.
    async fn wait(&mut self, delay: std::time::Duration) -> TaskEnd {
        let until = self.clock.instant(self.clock.now() + delay);
        loop {
            tokio::select! {
                order = self.orders.recv(), if self.held.is_none() => match order {
                    Some(order) => self.obey(order),
                    None => return TaskEnd::Closed,
                },
                () = sleep_until(until) => return TaskEnd::Lost,
            }
            self.tell();
        }
    }

    async fn serve(&mut self, link: MqttLink) -> TaskEnd {
        let MqttLink { mut reader, writer } = link;
        let inbox = self.inbox.clone();
        self.session.handle_opened(self.clock.now());
        self.output.clear();
        let mut bytes = Vec::new();
        loop {
            self.output.extend(self.session.take_output());
            // A socket that takes nothing gets nothing new, and there is nothing to wake for: its writer ends if it stays so.
            let is_full = self.output.len() >= OUTPUT_BYTES_MAX;
            let due = self.session.poll_timeout().filter(|_| !is_full).map(|at| self.clock.instant(at));
            let timer = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let has_output = !self.output.is_empty();
            let mut goes_on = true;
            tokio::select! {
                order = self.orders.recv(), if self.held.is_none() => {
                    let Some(order) = order else {
                        self.session.goodbye();
                        self.output.extend(self.session.take_output());
                        let _ = writer.send(std::mem::take(&mut self.output)).await;
                        return TaskEnd::Closed;
                    };
                    self.obey(order);
                }
                read = reader.read(&mut bytes) => {
                    goes_on = read.is_ok() && self.session.handle_bytes(&bytes, self.clock.now());
                    bytes.clear();
                }
                place = writer.reserve(), if has_output => match place {
                    Ok(place) => place.send(std::mem::take(&mut self.output)),
                    Err(_) => goes_on = false,
                },
                place = inbox.reserve(), if !self.unread.is_empty() => {
                    if let (Ok(place), Some((message, id))) = (place, self.unread.pop_front()) {
                        self.session.hand_over(message.qos, id);
                        place.send(message);
                    } else {
                        // Nobody reads messages any more; they are dropped unread.
                        self.unread.clear();
                    }
                }
                () = timer => {}
            }
            if goes_on && self.output.len() < OUTPUT_BYTES_MAX {
                goes_on = self.session.turn(self.clock.now());
            }
            self.tell();
            if !goes_on {
                return TaskEnd::Lost;
            }
        }
    }

    fn obey(&mut self, order: MqttCommand) {
        match order {
            MqttCommand::Publish(message, answer) => self.publish(message, answer),
            MqttCommand::Subscribe(_, _, answer) if self.filters >= FILTERS_MAX => {
                let _ = answer.send(ReasonCode::QuotaExceeded);
            }
            MqttCommand::Subscribe(filter, qos, answer) => {
                let token = self.token();
                self.filters += 1;
                self.subscribing.insert(token, answer);
                self.session.subscribe(token, &filter, qos);
            }
            MqttCommand::Stats(answer) => {
                let (waiting, waiting_bytes, under_way) = self.session.load();
                let _ = answer.send(MqttStats { waiting, waiting_bytes, under_way, ..self.stats });
            }
        }
    }

    fn publish(&mut self, message: MqttMessage, answer: Answer) {
        let bytes = message.topic.len() + message.payload.len();
        if answer.is_closed() {
            // Whoever wanted it has gone while it waited for room.
            return;
        }
        if self.session.must_wait(bytes) {
            self.held = Some((message, answer));
            return;
        }
        let token = self.token();
        match self.session.publish(token, message) {
            Ok(()) => {
                self.answers.insert(token, answer);
            }
            Err(_) => {
                let _ = answer.send(Err(PublishError::Full));
            }
        }
    }

    fn token(&mut self) -> Token {
        self.made += 1;
        Token(self.made)
    }

    /// Passes on what happened.
    fn tell(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                MqttEvent::Connected { .. } => {
                    self.stats.connects += 1;
                    self.notices.tell(None, EventKind::Connected);
                    info!(event = "mqtt_connected", address = %self.road.address.authority());
                    if let Some(connected) = self.connected.take() {
                        let _ = connected.send(Ok(()));
                    }
                }
                MqttEvent::Refused { reason, hints } => {
                    self.notices.tell(None, EventKind::refused(&hints));
                    // An older broker is greeted again; to everybody else the first refusal is the answer.
                    let is_older = reason == ReasonCode::UnsupportedProtocolVersion;
                    if !is_older && let Some(connected) = self.connected.take() {
                        let _ = connected.send(Err(refusal(reason, &hints)));
                    }
                    self.hints = Some(hints);
                }
                MqttEvent::Ended { reason, hints } => {
                    info!(event = "mqtt_ended", reason = reason.name());
                    self.hints = Some(hints);
                }
                MqttEvent::Nonsense(words) => {
                    if let Some(connected) = self.connected.take() {
                        let _ = connected.send(Err(Error::Nonsense(words)));
                    }
                }
                MqttEvent::Published { token, after } => self.answer(token, Ok(PublishAck { after })),
                MqttEvent::Rejected { token, reason, detail, hints } => {
                    let retry_after = hints.retry_after;
                    self.notices.tell(None, EventKind::refused(&hints));
                    self.answer(token, Err(PublishError::Rejected { reason, detail, retry_after }));
                }
                MqttEvent::Dropped { token } => self.answer(token, Err(PublishError::Dropped)),
                MqttEvent::TooLarge { token } => self.answer(token, Err(PublishError::TooLarge)),
                MqttEvent::Subscribed { token, reason } => {
                    if let Some(answer) = self.subscribing.remove(&token) {
                        let _ = answer.send(reason);
                    }
                }
                MqttEvent::Message(_, None) if self.unread.len() >= INBOX_MAX => self.stats.unread += 1,
                MqttEvent::Message(message, id) => self.unread.push_back((message, id)),
            }
        }
        if let Some((message, answer)) = self.held.take() {
            self.publish(message, answer);
        }
    }

    fn answer(&mut self, token: Token, outcome: Result<PublishAck, PublishError>) {
        if let Some(answer) = self.answers.remove(&token) {
            let _ = answer.send(outcome);
        }
    }
}

fn refusal(reason: ReasonCode, hints: &Hints) -> Error {
    match reason {
        ReasonCode::ServerBusy | ReasonCode::ServerUnavailable | ReasonCode::QuotaExceeded => {
            Error::Busy { retry_after: hints.retry_after, why: None, hints: Box::new(hints.clone()) }
        }
        other => Error::Denied(other.name().to_owned()),
    }
}
