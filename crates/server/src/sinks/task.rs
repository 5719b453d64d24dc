//! One sink: a socket, a clock and chance around a [`SinkMachine`]. Decides nothing.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand_xoshiro::Xoshiro256PlusPlus;
use tidegate_broker::Handle as Broker;
use tidegate_control::Timestamp;
use tidegate_sink::{SinkAction, SinkConfig, SinkMachine, SinkPhase, SinkVerdict};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tracing::{info, warn};

use super::SinkBoard;
use super::receiver::Receiver;
use crate::own_clients::{OwnSession, TaskClock, chance, read_some, write_some};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// How often the board is brought up to date, and the spool is asked for.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// How long the answer to what is under way is waited for, when the process ends.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

type Delivery = Pin<Box<dyn Future<Output = (Receiver, SinkVerdict)> + Send>>;

/// What happened.
enum Happening {
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    Answered(Box<Receiver>, SinkVerdict),
    Time,
    Stop,
}

pub(super) struct SinkTask {
    machine: SinkMachine,
    name: String,
    session: OwnSession,
    /// Here, unless it delivers.
    receiver: Option<Receiver>,
    delivery: Option<Delivery>,
    local: Option<(OwnedReadHalf, OwnedWriteHalf)>,
    out: Vec<u8>,
    board: Arc<SinkBoard>,
    rng: Xoshiro256PlusPlus,
    clock: TaskClock,
    show_at: Instant,
    shown: Option<SinkPhase>,
    /// What was said of its trouble last.
    told: Option<String>,
    /// Messages given up of which the log has been told.
    refusals_told: u64,
    /// Its session has its subscriptions, and that was told.
    is_attached: bool,
}

impl SinkTask {
    pub(super) fn new(
        name: &str,
        config: SinkConfig,
        receiver: Receiver,
        board: Arc<SinkBoard>,
        broker: Broker,
    ) -> Self {
        Self {
            name: name.to_owned(),
            session: OwnSession::new(broker, &config.local_id),
            machine: SinkMachine::new(config, Timestamp::ZERO),
            receiver: Some(receiver),
            delivery: None,
            local: None,
            out: Vec::new(),
            board,
            rng: chance(),
            clock: TaskClock::start(),
            show_at: Instant::now(),
            shown: None,
            told: None,
            refusals_told: 0,
            is_attached: false,
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Until the process ends.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut buffer = vec![0; READ_BYTES];
        if let Some(filters) = self.session.filters().await {
            self.machine.note_subscribed(filters.iter().map(String::as_str));
        }
        loop {
            self.machine.turn(self.now(), &mut self.rng);
            while let Some(action) = self.machine.poll_action() {
                self.act(action);
            }
            self.out.append(&mut self.machine.take_output());
            self.show();
            match self.wait(&mut buffer, &mut stopped).await {
                Happening::Stop => return self.end().await,
                happening => self.note(happening, &buffer),
            }
        }
    }

    fn act(&mut self, action: SinkAction) {
        match action {
            SinkAction::Attach => {
                let now = self.now();
                match self.session.attach() {
                    Ok(stream) => {
                        self.local = Some(stream.into_split());
                        self.machine.handle_attached(now);
                    }
                    Err(error) => self.machine.handle_lost(&error.to_string(), now, &mut self.rng),
                }
            }
            SinkAction::Close => {
                self.local = None;
                self.out.clear();
            }
            SinkAction::Deliver => {
                if let (Some(mut receiver), Some(batch)) = (self.receiver.take(), self.machine.batch().cloned()) {
                    self.delivery = Some(Box::pin(async move {
                        let verdict = receiver.deliver(&batch).await;
                        (receiver, verdict)
                    }));
                }
            }
        }
    }

    async fn wait(&mut self, buffer: &mut [u8], stopped: &mut watch::Receiver<bool>) -> Happening {
        let due = self.machine.poll_timeout(self.now()).map(|at| self.clock.at(at));
        let due = due.map_or(self.show_at, |due| due.min(self.show_at));
        let wants_read = self.machine.wants_read();
        let (read, write) = match &mut self.local {
            Some((read, write)) => (Some(read).filter(|_| wants_read), Some(write).filter(|_| !self.out.is_empty())),
            None => (None, None),
        };
        tokio::select! {
            read = read_some(read, buffer) => Happening::Read(read),
            written = write_some(write, &self.out) => Happening::Written(written),
            (receiver, verdict) = answered(&mut self.delivery) => Happening::Answered(Box::new(receiver), verdict),
            () = sleep_until(due.into()) => Happening::Time,
            _ = stopped.changed() => Happening::Stop,
        }
    }

    fn note(&mut self, happening: Happening, buffer: &[u8]) {
        let now = self.now();
        match happening {
            Happening::Read(Ok(0)) => self.machine.handle_lost("the connection was closed", now, &mut self.rng),
            Happening::Read(Ok(count)) => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
                self.machine.handle_bytes(&buffer[..count], now, wall_ms, &mut self.rng);
            }
            Happening::Written(Ok(count)) => drop(self.out.drain(..count.min(self.out.len()))),
            Happening::Read(Err(error)) | Happening::Written(Err(error)) => {
                self.machine.handle_lost(&error.to_string(), now, &mut self.rng);
            }
            Happening::Answered(receiver, verdict) => {
                (self.receiver, self.delivery) = (Some(*receiver), None);
                self.machine.handle_answer(verdict, now, &mut self.rng);
            }
            Happening::Time | Happening::Stop => {}
        }
    }

    /// What is under way is waited for a moment, so that it does not come twice after a restart.
    async fn end(mut self) {
        let last = async {
            if let Some(delivery) = self.delivery.take() {
                let (_, verdict) = delivery.await;
                self.machine.handle_answer(verdict, self.now(), &mut self.rng);
                self.out.append(&mut self.machine.take_output());
            }
            if let Some((_, write)) = &mut self.local {
                let _ = write.write_all(&self.out).await;
            }
        };
        let _ = tokio::time::timeout(GOODBYE_MAX, last).await;
    }

    /// Tells everybody how it is, when that changes and now and then.
    fn show(&mut self) {
        if !self.is_attached && self.machine.is_subscribed() {
            self.is_attached = true;
            self.board.seen().waits = None;
        }
        let status = self.machine.status(self.now());
        let is_new = self.shown != Some(status.phase);
        if !is_new && Instant::now() < self.show_at {
            return;
        }
        self.show_at = Instant::now() + SHOW_EVERY;
        self.shown = Some(status.phase);
        if is_new && status.phase == SinkPhase::Up {
            self.told = None;
            info!(event = "sink_up", sink = self.name, "the sink takes messages");
        }
        if let Some(trouble) = status.trouble.as_ref().filter(|trouble| self.told.as_ref() != Some(trouble)) {
            let event = if status.phase == SinkPhase::Down { "sink_down" } else { "sink_trouble" };
            warn!(event, sink = self.name, "{trouble}");
            self.told = Some(trouble.clone());
        }
        let is_refused_more = status.counts.refused > self.refusals_told;
        if let Some(refusal) = status.refusal.as_ref().filter(|_| is_refused_more) {
            let more = status.counts.refused - self.refusals_told;
            warn!(event = "sink_refused", sink = self.name, messages = more, "given up: {refusal}");
            self.refusals_told = status.counts.refused;
        }
        self.board.seen().status = status;
        let board = Arc::clone(&self.board);
        self.session.ask_spool(move |spool| board.seen().spool = spool);
    }
}

/// The answer to what is being delivered; never, if nothing is.
async fn answered(delivery: &mut Option<Delivery>) -> (Receiver, SinkVerdict) {
    match delivery {
        Some(delivery) => delivery.await,
        None => pending().await,
    }
}
