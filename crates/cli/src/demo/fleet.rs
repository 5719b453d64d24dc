//! The people of the demonstration: well-behaved publishers, one that loses its temper, and a subscriber that needs some
//! time for each message. Each is a thread with a connection of its own, and ends with the run.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_wire_mqtt::{Limits, QoS, ReasonCode, Subscription, SubscriptionOptions, TopicFilter, Version};

use crate::client::{BlockingClient, BrokerAddress, ClientError, ConnectOptions, Happened};

/// What the subscriber needs for one message: a database that takes 500 a second.
pub(super) const SERVICE: Duration = Duration::from_millis(2);

/// Below this every message is for the subscriber.
const ROOT: &str = "demo";

/// What all of them share.
#[derive(Debug)]
pub(super) struct DemoShared {
    started: Instant,
    is_over: AtomicBool,
    /// The flooder's messages per second, at the moment.
    pub(super) flooder_rate: AtomicU32,
    /// Messages that the flooder has tried to send, and those that it was told to send later.
    pub(super) offered: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Messages of the others: when each was sent and, if it arrived, how long it took.
    trips: Mutex<Vec<Trip>>,
}

/// One message of a well-behaved publisher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) sent: Duration,
    pub(super) took: Option<Duration>,
}

impl DemoShared {
    pub(super) fn new(flooder_rate: u32) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            flooder_rate: AtomicU32::new(flooder_rate),
            offered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            trips: Mutex::default(),
        })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the demo: all its clients leave.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// A message sets out; its number goes with it.
    fn set_out(&self) -> usize {
        let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner);
        trips.push(Trip { sent: self.elapsed(), took: None });
        trips.len() - 1
    }

    fn arrive(&self, number: usize) {
        let now = self.elapsed();
        let mut trips = self.trips.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trip) = trips.get_mut(number) {
            trip.took.get_or_insert(now.saturating_sub(trip.sent));
        }
    }

    pub(super) fn trips(&self) -> Vec<Trip> {
        self.trips.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn connect(at: SocketAddr, client_id: &str) -> Result<BlockingClient, ClientError> {
    let target = BrokerAddress { host: at.ip().to_string(), port: at.port(), tls: None, from: None };
    BlockingClient::connect(&target, ConnectOptions::new(Version::V5, client_id))
}

/// The thread of one of them; it ends with the run, or with its connection.
pub(super) type Actor = JoinHandle<Result<(), ClientError>>;

/// A publisher that keeps its rhythm.
pub(super) fn sensor(stage: &Arc<DemoShared>, at: SocketAddr, number: u32, qos: QoS) -> Result<Actor> {
    let stage = Arc::clone(stage);
    let name = format!("sensor-{number:02}");
    let mut client = connect(at, &name)?;
    let interval = Duration::from_secs(1) / (1 + number % 10);
    let act = move || {
        // Not all at once.
        let mut due = Instant::now() + interval.mul_f64(f64::from(number * 7 % 20) / 20.0);
        while !stage.is_over() {
            if !until(&mut client, due, |_| ())? {
                continue;
            }
            due += interval;
            let trip = stage.set_out();
            client.publish(&format!("{ROOT}/{name}"), trip.to_string().as_bytes(), qos, false)?;
        }
        client.disconnect();
        Ok(())
    };
    spawn("sensor", act)
}

/// A publisher whose rate changes when the stage says so. It ignores what it is told.
pub(super) fn flooder(stage: &Arc<DemoShared>, at: SocketAddr) -> Result<Actor> {
    let stage = Arc::clone(stage);
    let mut client = connect(at, "flooder")?;
    let act = move || {
        let mut due = Instant::now();
        while !stage.is_over() {
            let refused = |reason: ReasonCode| {
                stage.refused.fetch_add(u64::from(reason.is_failure()), Ordering::Relaxed);
            };
            if !until(&mut client, due, refused)? || !client.has_room() {
                continue;
            }
            due += Duration::from_secs(1) / stage.flooder_rate.load(Ordering::Relaxed).max(1);
            stage.offered.fetch_add(1, Ordering::Relaxed);
            client.publish(&format!("{ROOT}/flooder"), b"again and again", QoS::AtLeastOnce, false)?;
        }
        client.disconnect();
        Ok(())
    };
    spawn("flooder", act)
}

/// Subscribes to everything, and takes its time for each message.
pub(super) fn database(stage: &Arc<DemoShared>, at: SocketAddr) -> Result<Actor> {
    let stage = Arc::clone(stage);
    let mut client = connect(at, "database")?;
    let filter = format!("{ROOT}/#");
    let filter = TopicFilter::parse(&filter, &Limits::default()).ok().context("a filter")?;
    let options = SubscriptionOptions::with_qos(QoS::AtLeastOnce);
    client.subscribe(&[Subscription { filter, options }])?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !matches!(client.next(Some(deadline))?, Happened::Subscribed(_)) {
        anyhow::ensure!(Instant::now() < deadline, "the broker did not answer a subscription");
    }
    let act = move || {
        let mut free_at = Instant::now();
        while !stage.is_over() {
            let soon = Instant::now() + Duration::from_millis(50);
            let Happened::Message(message) = client.next(Some(soon))? else { continue };
            free_at = free_at.max(Instant::now()) + SERVICE;
            std::thread::sleep(free_at.saturating_duration_since(Instant::now()));
            let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
            if let Some(number) = number {
                stage.arrive(number);
            }
        }
        client.disconnect();
        Ok(())
    };
    spawn("database", act)
}

/// Takes what comes until it is time; false if something came before, or it was not yet time.
fn until(
    client: &mut BlockingClient,
    due: Instant,
    mut published: impl FnMut(ReasonCode),
) -> Result<bool, ClientError> {
    let soon = Instant::now() + Duration::from_millis(50);
    // Short waits are not worth a system call's rounding.
    if let Happened::Published(_, reason, _) = client.next(Some(due.min(soon)))? {
        published(reason);
    }
    Ok(Instant::now() >= due)
}

fn spawn(name: &str, act: impl FnOnce() -> Result<(), ClientError> + Send + 'static) -> Result<Actor> {
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(act)?)
}
