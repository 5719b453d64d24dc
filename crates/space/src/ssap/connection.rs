//! One connection: requests are answered in order, subscriptions are told of changes, and neither waits for the other
//! longer than it takes to write a message.
//!
//! Small changes that follow each other are under way together, up to a window; everything else waits for what came before
//! it and is waited for: a question sees every change that was sent before it, and no change overtakes a large one.

mod subscribed;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::hints::Asks;
use tidegate_graph::{QueryLimits, SubscriberId};
use tidegate_wire_ssap::{Scanned, Scanner, SsapHeader, Status, Transaction};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use super::buffer::{Buffer, READ_BYTES};
use super::plan::{Plan, PlanStep, ReplyForm, header_of, look};
use super::read::{AnswerKind, ReadOutcome, Understood, WaitingFor, class_of, declined_by, discard, understand};
use super::write::{self, SsapSubscription};
use super::{SsapState, SubscriptionEnd, subscription_name, uuid};
use crate::access_policy::{ConnectionRights, KpIdentity, RIGHTS_CHANGED, banned};
use crate::attendance::{SENT_AWAY, Seat};
use crate::counts::{ConnectionKind, Ssap};
use crate::handle::SpaceHandle;
use crate::limits::{
    SSAP_FAREWELLS, SSAP_LINGER_TIME, SSAP_MESSAGE_BYTES_MAX, SSAP_WINDOW, SUBSCRIPTIONS_MAX, WRITE_TIMEOUT,
};
use crate::machine::request::{DeclinedBy, Refused, RequestOrigin, ResponseBody, SpaceResponse};
use crate::notifications::{NotificationInlet, NotificationOutlet, SpaceRequest, outlet};
use crate::panics::{Panicked, Part};

/// A request that was started.
struct StartedRequest {
    header: SsapHeader,
    kind: AnswerKind,
    /// Its client wants to know about pace.
    is_told: bool,
    /// The rights that it was asked with.
    scope: u64,
    waiting: WaitingFor,
}

/// Both directions of a connection, with TLS or without.
pub(super) struct Sides {
    pub(super) reader: ReadSide,
    pub(super) writer: WriteSide,
}

pub(super) type ReadSide = Box<dyn AsyncRead + Unpin + Send>;
type WriteSide = Box<dyn AsyncWrite + Unpin + Send>;

struct SsapConnection {
    door: Arc<SsapState>,
    /// The space as whoever it is may see it.
    handle: SpaceHandle,
    rights: ConnectionRights,
    peer: SocketAddr,
    /// The user whom its certificate names.
    user: Option<Arc<str>>,
    /// The node of its first message: nobody gains by another name in each.
    node: Option<Box<str>>,
    seat: Seat,
    /// Its number: its changes are made in the order in which they were sent.
    flow: u64,
    writer: WriteSide,
    scanner: Scanner,
    buffer: Buffer,
    /// What was read and cannot begin yet.
    parked: Option<Plan>,
    under_way: VecDeque<StartedRequest>,
    are_changes: bool,
    subscriptions: HashMap<u64, SsapSubscription>,
    outlet: Arc<NotificationOutlet>,
    farewell: mpsc::Sender<SubscriptionEnd>,
    out: String,
    /// Nothing more will be read.
    is_over: bool,
    /// It ended in the middle of a message: for how long what still comes is thrown away.
    lingers: Option<Duration>,
    /// It is being read, and what is missing could come.
    is_reading: bool,
    /// When the socket was last written to, and when what was read began.
    wrote: Instant,
    since: Instant,
    /// When it was last looked whether it goes on at a pace.
    looked: Instant,
}

/// Why a connection ends, in the log.
type Ended = &'static str;

/// Serves a connection of this user, if its certificate names one, to its end.
pub(super) async fn attend(sides: Sides, peer: SocketAddr, door: Arc<SsapState>, user: Option<Arc<str>>) {
    let Sides { reader, writer } = sides;
    let (outlet, inlet) = outlet(&door.handle);
    let (farewell, farewells) = mpsc::channel(SSAP_FAREWELLS);
    let mut connection = SsapConnection::new(writer, peer, door, outlet, farewell, user.clone());
    let shared = Arc::clone(&connection.door.handle.shared);
    let served = connection.serve(reader, inlet, farewells);
    let why = shared.panics.catch_async(Part::Ssap, served).await.unwrap_or("an internal error");
    debug!(event = "ssap_closed", %peer, user = user.as_deref(), why, "an SSAP connection is closed");
    for (id, subscription) in connection.subscriptions.drain() {
        connection.door.forget(&subscription.name, &connection.farewell);
        connection.door.handle.depart(SubscriberId(id), &connection.outlet);
    }
}

impl SsapConnection {
    fn new(
        writer: WriteSide,
        peer: SocketAddr,
        door: Arc<SsapState>,
        outlet: Arc<NotificationOutlet>,
        farewell: mpsc::Sender<SubscriptionEnd>,
        user: Option<Arc<str>>,
    ) -> Self {
        let now = Instant::now();
        let rights = ConnectionRights::new(Arc::clone(&door.policy), user.clone());
        Self {
            handle: door.handle.restricted(rights.rights.as_ref()),
            flow: door.handle.new_flow(),
            seat: Seat::take(&door.handle.shared, user.clone(), peer.ip(), None),
            rights,
            door,
            peer,
            user,
            node: None,
            writer,
            scanner: Scanner::default(),
            buffer: Buffer::default(),
            parked: None,
            under_way: VecDeque::new(),
            are_changes: true,
            subscriptions: HashMap::new(),
            outlet,
            farewell,
            out: String::new(),
            is_over: false,
            lingers: None,
            is_reading: true,
            wrote: now,
            since: now,
            looked: now,
        }
    }

    async fn serve(
        &mut self,
        mut reader: ReadSide,
        mut inlet: NotificationInlet,
        mut farewells: mpsc::Receiver<SubscriptionEnd>,
    ) -> Ended {
        let (mut piece, door) = (vec![0; READ_BYTES], Arc::clone(&self.door));
        loop {
            self.begin();
            if let Err(why) = self.flush().await {
                return why;
            }
            let is_idle = self.under_way.is_empty() && self.parked.is_none();
            if self.is_over && is_idle && self.subscriptions.is_empty() {
                if let Some(time) = self.lingers {
                    let _ = self.writer.shutdown().await;
                    discard(reader, time).await;
                }
                return "done";
            }
            let reads = self.goes_on_reading();
            let (alarm, wanted) = (self.alarm(), self.buffer.wanted());
            tokio::select! {
                biased;
                () = self.seat.is_sent_away() => return self.go().await,
                (outcome, understood) = next(&mut self.under_way) => self.hear(outcome, understood),
                Some(farewell) = farewells.recv() => self.leave(&farewell),
                Some((id, told)) = inlet.next() => {
                    self.tell(id, told);
                    self.tell_more(&mut inlet);
                }
                Ok(room) = door.room.take(wanted), if reads && wanted > 0 => {
                    self.buffer.grant(room);
                    self.looked = Instant::now();
                }
                read = reader.read(&mut piece), if reads && wanted == 0 => match read {
                    Ok(0) => self.is_over = true,
                    Ok(length) => {
                        if self.buffer.bytes().is_empty() {
                            self.since = Instant::now();
                        }
                        self.buffer.push(&piece[..length]);
                    }
                    Err(_) => return "reset",
                },
                () = sleep_until(alarm) => {
                    if let Some(why) = self.ring() {
                        return why;
                    }
                }
            }
        }
    }

    /// Begins what can begin.
    fn begin(&mut self) {
        while let Some(next) = self.next_plan() {
            let is_change = next.is_small_change();
            let may_begin = self.under_way.is_empty() || is_change && self.are_changes;
            if !may_begin || self.under_way.len() >= SSAP_WINDOW {
                self.parked = Some(next);
                return;
            }
            self.are_changes = is_change;
            self.start(next);
        }
    }

    fn next_plan(&mut self) -> Option<Plan> {
        if let Some(parked) = self.parked.take() {
            return Some(parked);
        }
        match self.scanner.scan(self.buffer.bytes(), SSAP_MESSAGE_BYTES_MAX) {
            Scanned::Message(range) => {
                let next = self.look(range.clone());
                self.buffer.drain(range.end);
                self.since = Instant::now();
                Some(next)
            }
            Scanned::TooLarge => {
                let header = header_of(self.buffer.bytes());
                self.buffer.clear();
                // Nothing more of it is scanned, and its sender may still be writing.
                (self.is_over, self.lingers) = (true, Some(SSAP_LINGER_TIME));
                let words = format!("a message of more than {SSAP_MESSAGE_BYTES_MAX} bytes");
                Some(Plan { header, asks: Box::default(), step: PlanStep::Close(Status::KpRequest, words) })
            }
            Scanned::Incomplete => {
                // Blanks between messages are nothing to keep, and no message that could be late.
                if self.buffer.is_blank() {
                    self.buffer.clear();
                    self.scanner = Scanner::default();
                }
                None
            }
        }
    }

    /// Understands a message. What is wrong with us costs that message, and the connection behind it.
    fn look(&self, range: std::ops::Range<usize>) -> Plan {
        let (shared, bytes) = (&self.door.handle.shared, self.buffer.bytes());
        let bytes = bytes.get(range).unwrap_or_default();
        let looked = shared.panics.catch(Part::Ssap, || {
            shared.probe(Part::Ssap);
            look(bytes, uuid)
        });
        looked.unwrap_or_else(|Panicked| {
            let step = PlanStep::Close(Status::SibError, "an internal error, which is logged".to_owned());
            Plan { header: header_of(bytes), asks: Box::default(), step }
        })
    }

    fn start(&mut self, Plan { header, asks, step }: Plan) {
        self.renew_rights();
        let scope = self.handle.scope();
        let node = self.node.get_or_insert_with(|| {
            self.seat.name(&header.node_id);
            (&*header.node_id).into()
        });
        let kp = KpIdentity { user: self.user.as_deref(), address: self.peer.ip(), name: Some(node) };
        if let Some(left) = self.door.policy.banned_for(&kp) {
            return self.conclude(&header, PlanStep::Close(Status::KpRequest, banned(left)));
        }
        let caller = self.door.handle.caller(&*self.door.policy, &kp, &asks, ConnectionKind::Ssap);
        let is_check = asks.version.is_some();
        let asker = RequestOrigin { is_check, ..RequestOrigin::new(0, asks.deadline).of(caller.in_flow(self.flow)) };
        let asker = asker.with_delegation(asks.delegate);
        let is_told = *asks != Asks::default();
        match step {
            PlanStep::Reply(..) | PlanStep::Close(..) | PlanStep::Unsubscribe(_) => {
                self.handle.note_declined(caller.client, declined_by(&step));
                self.conclude(&header, step);
            }
            PlanStep::Ask(ask, reply) => {
                // A number does not say with which rights it was seen.
                let seen = asks.version.filter(|_| !self.handle.is_restricted() && caller.limited.is_none());
                if let Some(version) = self.handle.unchanged_at(&ask, seen) {
                    self.handle.note_declined(caller.client, DeclinedBy::NoNeed);
                    self.door.handle.note_ssap(&header, Ssap::Done);
                    write::not_modified(&header, version, &mut self.out);
                    return;
                }
                let waiting = WaitingFor::Asked(self.handle.start(ask, asker));
                self.under_way.push_back(StartedRequest {
                    header,
                    kind: AnswerKind::Ask(reply),
                    is_told,
                    scope,
                    waiting,
                });
            }
            PlanStep::Subscribe(..) | PlanStep::Read(_) if self.has_too_many(&header) => {
                let words = "too many subscriptions on this connection";
                self.handle.note_declined(caller.client, DeclinedBy::Mistake);
                self.settle(&header, Status::OutOfResources, words);
            }
            PlanStep::Subscribe(what, rows, seen) => {
                let (name, is_return) = (subscription_name(), seen.is_some());
                let ask = SpaceRequest::Subscribe { what, name, seen, outlet: Some(Arc::clone(&self.outlet)) };
                let waiting = WaitingFor::Asked(self.handle.start(ask, asker));
                self.under_way.push_back(StartedRequest {
                    header,
                    kind: AnswerKind::Subscribe(rows, is_return),
                    is_told,
                    scope,
                    waiting,
                });
            }
            PlanStep::Read(bytes) => {
                let (handle, outlet) = (self.handle.clone(), Arc::clone(&self.outlet));
                let (length, class) = (bytes.len(), class_of(&header));
                let work = move |limits: &QueryLimits| understand(&bytes, limits, &handle, outlet);
                let waiting = WaitingFor::Read(self.handle.read(length, class, asker, work));
                self.under_way.push_back(StartedRequest { header, kind: AnswerKind::Unread, is_told, scope, waiting });
            }
        }
    }

    fn has_too_many(&self, header: &SsapHeader) -> bool {
        header.transaction() == Some(Transaction::Subscribe) && self.subscriptions.len() >= SUBSCRIPTIONS_MAX
    }

    /// Does what needs nothing of the space.
    fn conclude(&mut self, header: &SsapHeader, step: PlanStep) {
        match step {
            PlanStep::Reply(status, words) => self.settle(header, status, &words),
            PlanStep::Close(status, words) => {
                self.door.handle.note_ssap(header, Ssap::Refused);
                if header.is_answerable() {
                    write::status(header, status, &words, &mut self.out);
                }
                self.buffer.clear();
                self.is_over = true;
            }
            PlanStep::Unsubscribe(name) if self.door.end(&name, header) => {
                self.door.handle.note_ssap(header, Ssap::Done);
            }
            PlanStep::Unsubscribe(_) => self.settle(header, Status::KpRequest, "no such subscription"),
            PlanStep::Ask(..) | PlanStep::Subscribe(..) | PlanStep::Read(_) => {}
        }
    }

    /// The request that came first is answered; it may have been read elsewhere.
    fn hear(&mut self, outcome: Result<SpaceResponse, Refused>, understood: Option<Understood>) {
        let Some(Understood { header, is_told, what }) = understood else { return self.answer(outcome) };
        match what {
            ReadOutcome::Asked(kind) => {
                if let Some(started) = self.under_way.front_mut() {
                    (started.header, started.is_told, started.kind) = (header, is_told, kind);
                }
                self.answer(outcome);
            }
            ReadOutcome::Unchanged(version) => {
                self.under_way.pop_front();
                self.door.handle.note_ssap(&header, Ssap::Done);
                write::not_modified(&header, version, &mut self.out);
            }
            ReadOutcome::Done(step) => {
                self.under_way.pop_front();
                self.conclude(&header, step);
            }
        }
    }

    /// Answers with a status and nothing else.
    fn settle(&mut self, header: &SsapHeader, status: Status, words: &str) {
        let outcome = match status {
            Status::Success => Ssap::Done,
            Status::OutOfResources => Ssap::Busy,
            _ => Ssap::Refused,
        };
        self.door.handle.note_ssap(header, outcome);
        write::status(header, status, words, &mut self.out);
    }

    fn answer(&mut self, outcome: Result<SpaceResponse, Refused>) {
        self.renew_rights();
        let Some(StartedRequest { header, kind, is_told, scope, .. }) = self.under_way.pop_front() else { return };
        self.door.handle.note_ssap(&header, outcome.as_ref().map_or_else(Ssap::from, |_| Ssap::Done));
        match (kind, outcome) {
            (AnswerKind::Ask(reply), Ok(answered)) => {
                write::answer(&header, &reply, &answered, is_told, &mut self.out);
            }
            (AnswerKind::Subscribe(..), Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), .. }))
                if scope != self.handle.scope() =>
            {
                // Asked with rights that are gone.
                self.handle.unsubscribe(subscribed.id, &self.outlet);
                write::status(&header, Status::KpRequest, RIGHTS_CHANGED, &mut self.out);
            }
            (
                AnswerKind::Subscribe(rows, is_return),
                Ok(SpaceResponse { answer: ResponseBody::Subscribed(subscribed), hints, .. }),
            ) => {
                self.door.register(&subscribed.name, &self.farewell);
                let subscription = SsapSubscription::new(header, &subscribed, rows);
                subscription.begin(&subscribed.begun, is_return, is_told.then_some(&hints), &mut self.out);
                self.subscriptions.insert(subscribed.id.0, subscription);
            }
            (AnswerKind::Subscribe(..) | AnswerKind::Unread, Ok(_)) => {
                write::status(&header, Status::SibError, "", &mut self.out);
            }
            (AnswerKind::Ask(reply), Err(refused)) => {
                let is_silent = matches!(
                    reply,
                    ReplyForm::Blanks { confirm: false, .. }
                        | ReplyForm::Status { confirm: false }
                        | ReplyForm::Rule { confirm: false }
                );
                if !is_silent {
                    write::refusal(&header, &refused, &mut self.out);
                }
            }
            (AnswerKind::Subscribe(..) | AnswerKind::Unread, Err(refused)) => {
                write::refusal(&header, &refused, &mut self.out);
            }
        }
    }

    /// An operator has ended the connection: its subscriptions are told.
    async fn go(&mut self) -> Ended {
        for subscription in self.subscriptions.values() {
            subscription.ended(Status::Reset, SENT_AWAY, None, &mut self.out);
        }
        let _ = self.flush().await;
        "sent away by an operator"
    }

    async fn flush(&mut self) -> Result<(), Ended> {
        if self.out.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let written = timeout(WRITE_TIMEOUT, write_out(&mut self.writer, self.out.as_bytes())).await;
        self.out.clear();
        self.out.shrink_to(READ_BYTES);
        self.wrote = Instant::now();
        // Meanwhile nothing was read.
        self.since += self.wrote - began;
        self.looked += self.wrote - began;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err("gone"),
            Err(_) => {
                let node = self.subscriptions.values().next().map_or("?", |it| &*it.header.node_id);
                let seconds = WRITE_TIMEOUT.as_secs();
                info!(event = "ssap_cut", peer = %self.peer, node, seconds, "cut: it reads too slowly");
                Err("too slow")
            }
        }
    }
}

async fn write_out(writer: &mut WriteSide, bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// The answer to the request that is to be answered next; never, if there is none.
async fn next(under_way: &mut VecDeque<StartedRequest>) -> (Result<SpaceResponse, Refused>, Option<Understood>) {
    match under_way.front_mut() {
        Some(started) => started.waiting.wait().await,
        None => std::future::pending().await,
    }
}
