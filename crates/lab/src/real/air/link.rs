//! A port of its own for each KP, whose connections go on to the broker. Decides nothing: what is lost is said by `line`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::line::{Door, Kind, Line, Piece, Radio, Way};
use crate::real::copies::Copies;

/// Pieces under way in one direction: then the sender is not read any more, as with any full pipe.
const UNDER_WAY_MAX: usize = 256;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The weather: the same for all links of a run.
#[derive(Debug)]
pub(crate) struct Air {
    loss: f64,
    /// Each way.
    delay: Duration,
    /// Nothing is lost or delayed before this: everybody can come in.
    is_rough: AtomicBool,
    traffic: Mutex<Traffic>,
    copies: Arc<Mutex<Copies>>,
}

/// What was on all links so far. Bytes are those of the messages, lost ones as well: they were on the air.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    pub(crate) notifications: u64,
    pub(crate) requests_lost: u64,
    pub(crate) answers_lost: u64,
    pub(crate) notifications_lost: u64,
}

impl Traffic {
    fn count(&mut self, way: Way, piece: &Piece) {
        let bytes = piece.bytes.len() as u64;
        match way {
            Way::Up => self.bytes_up += bytes,
            Way::Down => self.bytes_down += bytes,
        }
        let lost = u64::from(piece.is_lost);
        match piece.kind {
            Kind::Request => (self.requests, self.requests_lost) = (self.requests + 1, self.requests_lost + lost),
            Kind::Answer => (self.answers, self.answers_lost) = (self.answers + 1, self.answers_lost + lost),
            Kind::Notification => {
                self.notifications += 1;
                self.notifications_lost += lost;
            }
            Kind::Farewell | Kind::Rest => {}
        }
    }

    /// What came since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            bytes_up: self.bytes_up - before.bytes_up,
            bytes_down: self.bytes_down - before.bytes_down,
            requests: self.requests - before.requests,
            answers: self.answers - before.answers,
            notifications: self.notifications - before.notifications,
            requests_lost: self.requests_lost - before.requests_lost,
            answers_lost: self.answers_lost - before.answers_lost,
            notifications_lost: self.notifications_lost - before.notifications_lost,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_up + self.bytes_down
    }

    /// The share of the messages that were lost.
    pub(crate) fn lost_share(&self) -> f64 {
        let all = self.requests + self.answers + self.notifications;
        let lost = self.requests_lost + self.answers_lost + self.notifications_lost;
        lost as f64 / all.max(1) as f64
    }
}

impl Air {
    pub(crate) fn new(loss: f64, delay: Duration, copies: &Arc<Mutex<Copies>>) -> Arc<Self> {
        Arc::new(Self {
            loss,
            delay,
            is_rough: AtomicBool::new(false),
            traffic: Mutex::default(),
            copies: Arc::clone(copies),
        })
    }

    /// From now on messages are lost and delayed.
    pub(crate) fn roughen(&self) {
        self.is_rough.store(true, Ordering::Relaxed);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The link of one KP.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
}

struct LinkState {
    air: Arc<Air>,
    broker: SocketAddr,
    door: Door,
    kp: usize,
    radio: Mutex<Radio>,
}

impl Link {
    /// Listens; it ends with the runtime.
    pub(crate) async fn open(
        air: &Arc<Air>,
        (door, broker): (Door, SocketAddr),
        (seed, kp): (u64, usize),
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let radio = Mutex::new(Radio::new(seed, kp as u64));
        let state = Arc::new(LinkState { air: Arc::clone(air), broker, door, kp, radio });
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    if let Ok(far) = TcpStream::connect(state.broker).await {
                        state.carry(near, far);
                    }
                });
            }
        });
        Ok(Self { address })
    }

    /// What a client connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl LinkState {
    /// Both directions, until either side ends.
    fn carry(self: Arc<Self>, near: TcpStream, far: TcpStream) {
        // What is delayed is delayed by us alone.
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let line = Arc::new(Mutex::new(Line::new(self.door)));
        let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
        for (way, from, to) in [(Way::Up, from_near, to_far), (Way::Down, from_far, to_near)] {
            let (pieces, arriving) = mpsc::channel(UNDER_WAY_MAX);
            tokio::spawn(deliver(arriving, to));
            tokio::spawn(Arc::clone(&self).listen(way, from, Arc::clone(&line), pieces));
        }
    }

    async fn listen(
        self: Arc<Self>,
        way: Way,
        mut from: OwnedReadHalf,
        line: Arc<Mutex<Line>>,
        pieces: mpsc::Sender<(Instant, Vec<u8>)>,
    ) {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(len @ 1..) = from.read(&mut buffer).await {
            let is_rough = self.air.is_rough.load(Ordering::Relaxed);
            let (loss, delay) = if is_rough { (self.air.loss, self.air.delay) } else { (0.0, Duration::ZERO) };
            let due = Instant::now() + delay;
            let Ok(decided) = self.decide(&line, way, &buffer[..len], loss) else { return };
            for piece in decided {
                if !piece.is_lost && pieces.send((due, piece.bytes)).await.is_err() {
                    return;
                }
            }
        }
    }

    fn decide(
        &self,
        line: &Mutex<Line>,
        way: Way,
        bytes: &[u8],
        loss: f64,
    ) -> Result<Vec<Piece>, super::line::TooLong> {
        let mut radio = self.radio.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = line.lock().unwrap_or_else(PoisonError::into_inner).on_bytes(way, bytes, loss, &mut radio)?;
        let mut traffic = self.air.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in &decided {
            traffic.count(way, piece);
            if piece.is_lost && piece.kind == Kind::Notification {
                self.air
                    .copies
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .on_lost(self.kp, Instant::now().into_std());
            }
        }
        Ok(decided)
    }
}

/// Writes what arrives when it is due, in order; afterwards nothing more comes from this side.
async fn deliver(mut arriving: mpsc::Receiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) {
    while let Some((due, bytes)) = arriving.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
