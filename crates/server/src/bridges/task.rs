//! One bridge: sockets, a clock and chance around a [`BridgeMachine`]. Decides nothing.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_bridge::{BridgeAction, BridgeConfig, BridgeMachine, BridgePhase, BridgeSide};
use tidegate_broker::Handle as Broker;
use tidegate_control::Timestamp;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::BridgeBoard;
use super::to_other::{BridgeStream, OtherBroker};
use crate::own_clients::{OwnSession, TaskClock, chance, read_some, write_some};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// How often the board is brought up to date, and the spool is asked for.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// How long the last words may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

type ReadEnd = ReadHalf<Box<dyn BridgeStream>>;
type WriteEnd = WriteHalf<Box<dyn BridgeStream>>;
type OpeningStream = Pin<Box<dyn Future<Output = io::Result<Box<dyn BridgeStream>>> + Send>>;

/// One end of the bridge, if it is open.
#[derive(Default)]
struct OpenEnd {
    halves: Option<(ReadEnd, WriteEnd)>,
    /// Something was written that a layer below may have kept.
    is_unflushed: bool,
}

/// What happened.
enum Happening {
    Opened(io::Result<Box<dyn BridgeStream>>),
    Read(BridgeSide, io::Result<usize>),
    Written(BridgeSide, io::Result<usize>),
    Time,
    Stop,
}

pub(super) struct BridgeTask {
    machine: BridgeMachine,
    name: String,
    session: OwnSession,
    other: Arc<OtherBroker>,
    board: Arc<BridgeBoard>,
    rng: Xoshiro256PlusPlus,
    clock: TaskClock,
    opening: Option<OpeningStream>,
    local: OpenEnd,
    remote: OpenEnd,
    show_at: Instant,
    shown: Option<BridgePhase>,
    /// What was said of its trouble last.
    told: Option<String>,
    /// Its session has its subscriptions, and that was told.
    is_attached: bool,
}

impl BridgeTask {
    pub(super) fn new(config: BridgeConfig, other: Arc<OtherBroker>, board: Arc<BridgeBoard>, broker: Broker) -> Self {
        Self {
            name: config.name.clone(),
            session: OwnSession::new(broker, &config.local_id),
            machine: BridgeMachine::new(config, Timestamp::ZERO),
            other,
            board,
            rng: chance(),
            clock: TaskClock::start(),
            opening: None,
            local: OpenEnd::default(),
            remote: OpenEnd::default(),
            show_at: Instant::now(),
            shown: None,
            told: None,
            is_attached: false,
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Until the process ends.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut buffers = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
        if let Some(filters) = self.session.filters().await {
            self.machine.note_subscribed(filters.iter().map(String::as_str));
        }
        loop {
            self.machine.turn(self.now(), &mut self.rng);
            while let Some(action) = self.machine.poll_action() {
                self.act(action);
            }
            self.show();
            let happening = self.wait(&mut buffers, &mut stopped).await;
            match happening {
                Happening::Stop => return self.end().await,
                happening => self.note(happening, &buffers),
            }
        }
    }

    fn act(&mut self, action: BridgeAction) {
        match action {
            BridgeAction::Open { address } => self.opening = Some(Box::pin(Arc::clone(&self.other).open(address))),
            BridgeAction::Attach => {
                let now = self.now();
                match self.session.attach() {
                    Ok(stream) => {
                        self.local = OpenEnd {
                            halves: Some(split(Box::new(stream) as Box<dyn BridgeStream>)),
                            is_unflushed: false,
                        };
                        self.machine.handle_opened(BridgeSide::Local, now);
                    }
                    Err(error) => {
                        self.machine.handle_lost(BridgeSide::Local, &error.to_string(), now, &mut self.rng);
                    }
                }
            }
            BridgeAction::Close => {
                (self.opening, self.local, self.remote) = (None, OpenEnd::default(), OpenEnd::default());
            }
        }
    }

    async fn wait(&mut self, buffers: &mut (Vec<u8>, Vec<u8>), stopped: &mut watch::Receiver<bool>) -> Happening {
        let due = self.machine.poll_timeout().map(|at| self.clock.at(at));
        let due = due.map_or(self.show_at, |due| due.min(self.show_at));
        let reads = [BridgeSide::Local, BridgeSide::Remote].map(|side| self.machine.wants_read(side));
        let (local_out, remote_out) = self.machine.outputs();
        let (local_read, local_write) = self.local.parts(reads[0], local_out);
        let (remote_read, remote_write) = self.remote.parts(reads[1], remote_out);
        tokio::select! {
            opened = opened(&mut self.opening) => Happening::Opened(opened),
            read = read_some(local_read, &mut buffers.0) => Happening::Read(BridgeSide::Local, read),
            read = read_some(remote_read, &mut buffers.1) => Happening::Read(BridgeSide::Remote, read),
            written = write_some(local_write, local_out) => Happening::Written(BridgeSide::Local, written),
            written = write_some(remote_write, remote_out) => Happening::Written(BridgeSide::Remote, written),
            () = sleep_until(due.into()) => Happening::Time,
            _ = stopped.changed() => Happening::Stop,
        }
    }

    fn note(&mut self, happening: Happening, buffers: &(Vec<u8>, Vec<u8>)) {
        let now = self.now();
        match happening {
            Happening::Opened(Ok(stream)) => {
                self.opening = None;
                self.remote = OpenEnd { halves: Some(split(stream)), is_unflushed: false };
                self.machine.handle_opened(BridgeSide::Remote, now);
            }
            Happening::Opened(Err(error)) => {
                self.opening = None;
                self.machine.handle_lost(BridgeSide::Remote, &error.to_string(), now, &mut self.rng);
            }
            Happening::Read(side, Ok(0)) => {
                self.machine.handle_lost(side, "the connection was closed", now, &mut self.rng);
            }
            Happening::Read(side, Ok(count)) => {
                let buffer = if side == BridgeSide::Local { &buffers.0 } else { &buffers.1 };
                self.machine.handle_bytes(side, &buffer[..count], now, &mut self.rng);
            }
            Happening::Written(side, Ok(count)) => {
                self.machine.handle_written(side, count);
                let end = if side == BridgeSide::Local { &mut self.local } else { &mut self.remote };
                end.is_unflushed = count > 0;
            }
            Happening::Read(side, Err(error)) | Happening::Written(side, Err(error)) => {
                self.machine.handle_lost(side, &error.to_string(), now, &mut self.rng);
            }
            Happening::Time | Happening::Stop => {}
        }
    }

    /// The last words, as far as the other broker takes them.
    async fn end(mut self) {
        self.machine.say_goodbye();
        let words = self.machine.outputs().1.clone();
        if let Some((_, mut write)) = self.remote.halves.take() {
            let say = async {
                write.write_all(&words).await?;
                write.shutdown().await
            };
            let _ = tokio::time::timeout(GOODBYE_MAX, say).await;
        }
    }

    /// Tells everybody how it is, when that changes and now and then.
    fn show(&mut self) {
        if !self.is_attached && self.machine.is_registered() {
            self.is_attached = true;
            self.board.seen().waits = None;
        }
        let status = self.machine.status(self.now());
        let is_new = self.shown != Some(status.phase);
        if !is_new && Instant::now() < self.show_at {
            return;
        }
        self.show_at = Instant::now() + SHOW_EVERY;
        let was_up = self.shown.replace(status.phase);
        let is_up = status.phase == BridgePhase::Up;
        if is_new && was_up.is_none_or(|before| (before == BridgePhase::Up) != is_up) {
            let topic = format!("$SYS/broker/connection/{}/state", self.name);
            if !self.session.say_system(topic, u8::from(is_up).to_string()) {
                // There is no room for it now: it is said again.
                self.shown = was_up;
            }
        }
        if is_new && is_up {
            self.told = None;
            info!(event = "bridge_up", bridge = self.name, "the bridge stands");
        }
        if let Some(trouble) = status.trouble.as_ref().filter(|trouble| self.told.as_ref() != Some(trouble)) {
            let event = if is_up { "bridge_trouble" } else { "bridge_down" };
            warn!(event, bridge = self.name, "{trouble}");
            self.told = Some(trouble.clone());
        }
        self.board.seen().status = status;
        let board = Arc::clone(&self.board);
        self.session.ask_spool(move |spool| board.seen().spool = spool);
    }
}

impl OpenEnd {
    /// What to read from, and what to write to if there is something to write.
    fn parts(&mut self, wants_read: bool, out: &[u8]) -> (Option<&mut ReadEnd>, Option<&mut WriteEnd>) {
        let has_output = !out.is_empty() || self.is_unflushed;
        match &mut self.halves {
            Some((read, write)) => (Some(read).filter(|_| wants_read), Some(write).filter(|_| has_output)),
            None => (None, None),
        }
    }
}

/// The stream that is being opened; never, if none is.
async fn opened(opening: &mut Option<OpeningStream>) -> io::Result<Box<dyn BridgeStream>> {
    match opening {
        Some(opening) => opening.await,
        None => pending().await,
    }
}
