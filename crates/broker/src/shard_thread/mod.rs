//! One thread, one shard, one readiness loop: wait, read, turn, write.
//!
//! The loop decides *when* and *how much*; *what* is decided by the core. The order inside a turn is part of the
//! contract with it (see [`Shard`]), with one addition: what goes to other shards is put into their inboxes *before*
//! anything is written to a socket, so that whoever acts on an answer finds its effects everywhere.

mod accept;
mod beacon;
mod connection;
mod containers;
mod datagrams;
mod greet;
mod guard;
mod guard_arrival;
mod lateness;
mod outlaw;
mod report;
mod requests;
mod secure_datagrams;
mod serve;
#[cfg(test)]
mod tests;
mod token;
mod upstream;
mod windows;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use mio::{Events, Poll};
use tidegate_control::Timestamp;
use tidegate_control::order::ReadOrder;
use tidegate_core::access::Identity;
use tidegate_core::classes::PriorityMode;
use tidegate_core::{Batch, BatchLane, ConnId, Shard};
use tidegate_wire_mqtt::{Limits, ReasonCode};
use tracing::error;

pub(crate) use accept::AcceptingListener;
pub(crate) use beacon::BeaconDoor;
use connection::Connections;
use containers::ContainerDoor;
use datagrams::DatagramDoor;
pub(crate) use datagrams::ForwardedDatagram;
use lateness::Lateness;
use requests::WebDoor;
pub(crate) use secure_datagrams::SecureDatagram;
use secure_datagrams::SecureDoor;
pub(crate) use token::INBOX;
use token::Subject;
use upstream::Upstreams;
use windows::Windows;

use crate::ask::{self, AskedQuestion};
use crate::chance::Chance;
use crate::config::ListenerKind;
use crate::departed::Departed;
use crate::event_log::EventLog;
use crate::first_packet::connect_limits;
use crate::handshakes::{HandshakeKey, HandshakeTable};
use crate::limits::{
    ANSWERS_PER_TURN_MAX, BATCH_RETRY, EVENTS_MAX, INBOX_BATCHES_MAX, INBOX_INTEREST_MAX, SCRATCH_BYTES,
};
use crate::login_ends::LoginEnds;
use crate::operator::OperatorSetting;
use crate::pressure::Meter;
use crate::shared_state::SharedState;
use crate::store_link::ShardWriter;
use crate::system::System;
use crate::tap::Tap;
use crate::thread_message::{Rules, ThreadMessage};

/// Everything that one thread owns.
#[derive(Debug)]
pub(crate) struct ShardThread {
    index: usize,
    shared: Arc<SharedState>,
    rules: Rules,
    /// What a CONNECT may ask for, by the rules.
    connect_limits: Limits,
    pub(crate) shard: Shard,
    /// What the maps want to see.
    pub(crate) tap: Option<Arc<Tap>>,
    /// The way to the store, if there is one.
    shard_writer: Option<ShardWriter>,
    poll: Poll,
    /// The time of this turn.
    pub(crate) now: Timestamp,
    /// Sockets that became ready in this turn were silent then: the last turn, or the machine, kept us from looking.
    silent_at: Timestamp,
    /// How long the last turn took.
    took: Duration,
    lateness: Lateness,
    turn_number: u32,
    /// The one read buffer.
    scratch: Box<[u8]>,
    connections: Connections,
    /// Connections that became ready since the last turn read; each at most once.
    ready: Vec<ConnId>,
    /// Those that the turns before have left unread.
    order: ReadOrder,
    /// Bytes that may still be read in this turn, while there is no order.
    read_left: usize,
    /// Connections that the core does not want to read for now.
    paused: Vec<ConnId>,
    /// Connections to write besides those that the core names.
    write_next: Vec<ConnId>,
    /// Connections that are to be closed, and when that is done anyway. In order: all have the same time.
    closings: VecDeque<(Timestamp, ConnId)>,
    /// Where datagrams come: CoAP, MQTT-SN.
    doors: Vec<DatagramDoor>,
    /// How the gateway of MQTT-SN lets itself be found; on the first thread only.
    beacon: Option<Box<BeaconDoor>>,
    /// Where CoAP is spoken over DTLS, if it is.
    coaps: Option<Box<SecureDoor>>,
    /// Those who speak HTTP, once there are any.
    web: Option<Box<WebDoor>>,
    /// Those who speak AMQP, once there are any.
    amqp: Option<Box<ContainerDoor>>,
    handshakes: HandshakeTable,
    /// Connections to the broker behind, of a guard.
    upstreams: Upstreams,
    /// What clients have not read yet.
    windows: Windows,
    /// Visitors to go on with, in order; each at most once.
    visitors_next: Vec<HandshakeKey>,
    /// Steps of TLS handshakes that may still be made in this turn.
    tls_steps_left: usize,
    /// The listeners; on the first thread only.
    listeners: Vec<AcceptingListener>,
    /// Who had the last TLS handshake.
    next_shard: usize,
    /// Room for batches from the inbox; empty between uses.
    batches: VecDeque<Batch>,
    /// A batch was refused: try again then.
    batch_retry: Option<Timestamp>,
    event_log: EventLog,
    /// Questions of operators, and what is kept for them.
    asked: VecDeque<AskedQuestion>,
    departed: Departed,
    meter: Meter,
    /// Accepting, while it is paced.
    accept_paced: Timestamp,
    chance: Chance,
    /// `$SYS`; on the first thread only.
    system: Option<System>,
    /// The counters have changed and are to be shown then.
    stats_due: Option<Timestamp>,
    stats_shown_at: Timestamp,
    /// When connections end because their logins do.
    login_ends: LoginEnds,
    /// The broker goes down; by then at the latest.
    draining: Option<Timestamp>,
    /// Nobody may be told anything; when to look again.
    silenced: Option<Timestamp>,
    /// Whoever waits for the end of this turn.
    ticks: Vec<SyncSender<()>>,
}

impl ShardThread {
    pub(crate) fn new(
        index: usize,
        shared: Arc<SharedState>,
        rules: Rules,
        poll: Poll,
        (shard, shard_writer): (Shard, Option<ShardWriter>),
    ) -> Self {
        let (now, chance) = (shared.clock.now(), Chance::new());
        Self {
            index,
            connect_limits: connect_limits(&rules.settings),
            shard,
            tap: None,
            shard_writer,
            shared,
            rules,
            poll,
            now,
            silent_at: now,
            took: Duration::ZERO,
            lateness: Lateness::default(),
            turn_number: 0,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            connections: Connections::default(),
            ready: Vec::new(),
            order: ReadOrder::default(),
            read_left: 0,
            paused: Vec::new(),
            write_next: Vec::new(),
            closings: VecDeque::new(),
            doors: Vec::new(),
            beacon: None,
            coaps: None,
            web: None,
            amqp: None,
            handshakes: HandshakeTable::default(),
            upstreams: Upstreams::default(),
            windows: Windows::default(),
            visitors_next: Vec::new(),
            tls_steps_left: 0,
            listeners: Vec::new(),
            next_shard: index,
            batches: VecDeque::new(),
            batch_retry: None,
            event_log: EventLog::default(),
            asked: VecDeque::new(),
            departed: Departed::default(),
            meter: Meter::new(now),
            accept_paced: Timestamp::ZERO,
            chance,
            system: (index == 0).then(|| System::new(now)),
            stats_due: None,
            stats_shown_at: now,
            login_ends: LoginEnds::default(),
            draining: None,
            silenced: None,
            ticks: Vec::new(),
        }
    }

    /// Until the broker goes down.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.measure();
        // What was restored is there before anybody asks.
        self.shared.show(self.index, &self.shard);
        while !self.is_done() {
            self.wait(&mut events);
            self.turn(&events);
        }
        self.write_down();
        self.shared.show(self.index, &self.shard);
    }

    fn wait(&mut self, events: &mut Events) {
        let timeout = self.wake_at().map(|at| at.since(self.shared.clock.now()));
        let inbox = &self.shared.inboxes[self.index];
        let timeout = if inbox.fall_asleep() { timeout } else { Some(Duration::ZERO) };
        let mut waited = self.poll.poll(events, timeout);
        if waited.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            // A process that was stopped and goes on is told so, and nothing of its sockets.
            waited = self.poll.poll(events, Some(Duration::ZERO));
        }
        if let Err(error) = waited {
            error!(event = "poll_failed", %error, "cannot wait for sockets");
        }
        inbox.wake_up();
    }

    /// When to go on without being told; zero time from now if there is something left to do.
    fn wake_at(&self) -> Option<Timestamp> {
        let can_write = !self.write_next.is_empty() && self.shard.may_write() && self.silenced.is_none();
        let has_work = !self.ready.is_empty()
            || !self.order.is_empty()
            || can_write
            || !self.visitors_next.is_empty()
            || !self.asked.is_empty()
            || !self.upstreams.ready.is_empty();
        if has_work {
            return Some(Timestamp::ZERO);
        }
        [
            self.shard.poll_timeout(),
            self.shard_writer.as_ref().and_then(ShardWriter::due),
            self.handshakes.next_deadline(),
            self.upstreams.next_deadline(),
            self.upstreams.look_at,
            self.windows.due,
            self.closings.front().map(|&(at, _)| at),
            self.login_ends.next(),
            self.next_accept(),
            self.batch_retry,
            self.doors.iter().filter_map(DatagramDoor::due).min(),
            self.beacon.as_ref().map(|beacon| beacon.due()),
            self.coaps.as_ref().and_then(|door| door.due()),
            self.web.as_ref().and_then(|web| web.due()),
            self.amqp.as_ref().and_then(|amqp| amqp.due()),
            self.stats_due,
            self.meter.due(),
            self.system_due(),
            self.draining,
            self.silenced,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn turn(&mut self, events: &Events) {
        let before = std::mem::replace(&mut self.now, self.shared.clock.now());
        self.silent_at = before.max(self.shared.clock.before(self.now, self.took));
        self.shared.has_turned(self.index);
        // News first: what comes in is judged by the newest rules.
        self.take_messages();
        if let Some(shard_writer) = &mut self.shard_writer {
            shard_writer.hear(&mut self.shard, self.now);
        }
        self.advance_queued();
        for event in events {
            match token::subject(event.token()) {
                Subject::Connection(index) => self.on_connection_event(index, event),
                Subject::Handshake(index) => self.on_visitor_event(index, event),
                Subject::Listener(index) => self.accept(index),
                Subject::Datagrams(door) => self.on_datagrams(door),
                Subject::SecureDatagrams => self.on_secure_datagrams(),
                Subject::Beacon => self.on_beacon(),
                Subject::Upstream(index) => self.on_upstream_event(index, event),
                Subject::Asked(index) => self.on_asked_event(index),
                Subject::Inbox => {}
            }
        }
        self.read_downs();
        self.read_all();
        self.read_datagrams();
        self.read_secure_datagrams();
        self.accept_again();
        self.take_batches();
        self.publish_system();
        self.fire_timers(events);
        self.turn_datagrams();
        self.turn_beacon();
        self.turn_secure_datagrams();
        self.turn_requests();
        self.turn_containers();
        self.hand_tapped();
        self.answer_questions();
        self.write_down();
        self.send_batches();
        self.flush_ups();
        self.look_at_held(!self.order.is_empty());
        self.write_all();
        self.close_all();
        self.settle_requests();
        self.resume_paused();
        self.resume_downs();
        if let Some(shard_writer) = &mut self.shard_writer {
            shard_writer.fetch(&mut self.shard, self.now);
        }
        self.tell(events);
        self.measure();
        self.ticks.clear();
    }

    /// What this turn has changed that is to outlive the process.
    fn write_down(&mut self) {
        if let Some(shard_writer) = &mut self.shard_writer {
            shard_writer.write(&mut self.shard, self.now);
        }
    }

    /// What other shards have for ours.
    #[inline]
    fn take_batches(&mut self) {
        self.shared.inboxes[self.index].take_batches(&mut self.batches);
        while let Some(batch) = self.batches.pop_front() {
            self.shared.pressure.budget.batch_taken(self.index, batch.size());
            if let Err(error) = self.shard.handle_batch(&batch, self.now) {
                // Only a bug can cause it: all shards of a process are of one version.
                tracing::error!(event = "batch_unread", from = %batch.from(), %error, "cannot read what a shard says");
            }
        }
    }

    /// What our shard has for others.
    fn send_batches(&mut self) {
        self.batch_retry = None;
        for to in (0..self.shared.inboxes.len()).filter(|&to| to != self.index) {
            while let Some(batch) = self.shard.poll_batch(to) {
                let batches_max = match batch.lane() {
                    BatchLane::Interest => INBOX_INTEREST_MAX,
                    BatchLane::Messages => INBOX_BATCHES_MAX,
                };
                let bytes = batch.size();
                // Before the other side can take it out again.
                self.shared.pressure.budget.batch_sent(to, bytes);
                if let Err(batch) = self.shared.inboxes[to].push_batch(batch, batches_max) {
                    self.shared.pressure.budget.batch_taken(to, bytes);
                    self.shard.handle_batch_refused(to, batch);
                    self.batch_retry = Some(self.now + BATCH_RETRY);
                    break;
                }
            }
        }
    }

    fn take_messages(&mut self) {
        for message in self.shared.inboxes[self.index].take_messages() {
            match message {
                ThreadMessage::Doors(listeners) => self.open_doors(listeners),
                ThreadMessage::Datagrams(listener, socket, _) if listener.kind == ListenerKind::Coaps => {
                    self.open_coaps(listener, socket);
                }
                ThreadMessage::Datagrams(listener, socket, sn) => self.open_datagrams(listener, socket, &sn),
                ThreadMessage::Beacon(beacon) => self.open_beacon(beacon),
                ThreadMessage::Arrival(arrival) => self.welcome(*arrival),
                ThreadMessage::Datagram(datagram) => self.take_datagram(&datagram),
                ThreadMessage::SecureDatagram(datagram) => self.take_secure_datagram(&datagram),
                ThreadMessage::Handover(handover) => self.adopt(*handover),
                ThreadMessage::Checked { question, verdict } => self.on_checked(*question, verdict),
                // The tables of all of them are bounded by whoever sends these.
                ThreadMessage::Limit(OperatorSetting::Limit, whom, rate) => {
                    let _ = self.shard.set_limit(&whom, rate, self.now);
                }
                ThreadMessage::Limit(OperatorSetting::Grant, whom, rate) => {
                    let _ = self.shard.set_grant(&whom, rate, self.now);
                }
                ThreadMessage::Expel(whom) => self.expel(&whom),
                // It is heard after the messages: what one tells of is there by then.
                ThreadMessage::Kept => {}
                ThreadMessage::Tick(hand) => {
                    // This turn may have begun before the clock was set.
                    self.now = self.shared.clock.now();
                    self.ticks.push(hand);
                }
                ThreadMessage::Reload(rules) => self.reload(*rules),
                ThreadMessage::Ask(asked) => self.asked.push_back(*asked),
                ThreadMessage::Tap(tap) => self.set_tap(tap),
                ThreadMessage::Mapped(outgoing) => self.publish_mapped(&outgoing),
                ThreadMessage::System(news) => self.shard.handle_system(&news.0, news.1.as_bytes(), self.now),
                ThreadMessage::Shutdown => self.shut_down(),
                ThreadMessage::ShutdownWithin(time) => self.shut_down_within(time),
            }
        }
    }

    fn answer_questions(&mut self) {
        for _ in 0..ANSWERS_PER_TURN_MAX {
            let Some(AskedQuestion { question, reply, permit }) = self.asked.pop_front() else { return };
            reply(ask::answer(&question, &mut self.shard, &self.departed, self.now));
            drop(permit);
        }
    }

    fn reload(&mut self, rules: Rules) {
        // Two reloads at once may send their messages in another order than they took their numbers.
        if rules.generation < self.rules.generation {
            return;
        }
        self.connect_limits = connect_limits(&rules.settings);
        self.shard.set_settings(Arc::clone(&rules.settings));
        self.shard.set_policy(Arc::clone(&rules.policy));
        self.rules = rules;
        if self.rules.settings.priority.mode == PriorityMode::Off {
            self.release_held();
        }
        // Whoever is no user any more has to go; who may not use its identifier any more goes when it comes back.
        let authenticator = Arc::clone(&self.rules.authenticator);
        let is_stranger =
            |_: &str, identity: &Identity| !identity.is_own() && !authenticator.admits_identity(identity, "");
        self.shard.handle_expel(is_stranger, ReasonCode::NotAuthorized, self.now);
        self.renew_sessions();
    }

    fn shut_down(&mut self) {
        self.shut_down_within(self.rules.drain_timeout);
    }

    fn shut_down_within(&mut self, time: Duration) {
        if self.draining.is_none() {
            self.draining = Some(self.now + time);
            if let Some(shard_writer) = &mut self.shard_writer {
                shard_writer.write_rhythms(&mut self.shard, self.now);
            }
            self.close_doors();
            self.dismiss_arriving();
            self.dismiss_waiting();
            self.shard.handle_shutdown(ReasonCode::ServerShuttingDown, self.now);
        }
    }

    /// Nobody is left, or nobody is waited for any longer.
    fn is_done(&self) -> bool {
        let is_idle = self.shard_writer.as_ref().is_none_or(ShardWriter::is_idle);
        let is_empty =
            self.connections.is_empty() && self.handshakes.is_empty() && self.upstreams.is_empty() && is_idle;
        self.draining.is_some_and(|until| is_empty || until <= self.now)
    }
}
