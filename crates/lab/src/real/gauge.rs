//! What this broker can do on this machine, measured before anything else: checks a second, and what a check and an update cost.
//! The host is slowed to the capacity that was asked for, and the model is given what was measured.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tidegate_client::PacerConfig;
use tidegate_control::pacer::Preset;
use tokio::task::JoinSet;

use super::plan::RealArgs;
use super::room::Room;

/// KPs that ask, one question at a time each: enough to keep a broker busy that runs in turns; it may send some of them away.
const ASKING: usize = 40;
/// Publishers that change things.
const CHANGING: usize = 6;
/// Changes of each of them.
const CHANGES: usize = 100;
/// What is still under way when all is done may take so long.
const SETTLE: Duration = Duration::from_millis(100);
/// How long each part lasts.
const PART: Duration = Duration::from_millis(800);
/// And with a host that is slow.
const SLOW_PART: Duration = Duration::from_millis(1500);
/// The slowest host: then the moments in which it runs would be too short.
const SLOW_MAX: f64 = 200.0;
/// A host that is as fast as asked for, within this, need not be slowed any better.
const NEAR: f64 = 0.05;
/// Attempts to come near.
const ATTEMPTS: usize = 3;

/// What a broker can do, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gauge {
    /// How much slower the host was made.
    pub(super) slow: f64,
    /// Checks that it can answer a second, as slow as that, and as fast as it is.
    pub(super) capacity: f64,
    pub(super) capacity_unslowed: f64,
    /// Seconds until a check is answered while nobody else asks.
    pub(super) lone_latency: f64,
    /// Seconds of CPU for a check, for an update with its notification, and for doing nothing for a second.
    pub(super) check_cpu: f64,
    pub(super) update_cpu: f64,
    pub(super) idle_cpu: f64,
    /// Bytes of a question, of its answer, and of a notification.
    pub(super) request_bytes: f64,
    pub(super) answer_bytes: f64,
    pub(super) notification_bytes: f64,
}

/// Measures.
pub(super) async fn gauge(args: &RealArgs) -> Result<Gauge> {
    let calm = RealArgs { loss: 0.0, delay: Duration::ZERO, ..args.clone() };
    let mut room = Room::open(&calm, ASKING, 0).await?;
    let fast = ask(&room, ASKING, PART).await?;
    if fast.count < 1.0 {
        bail!("the broker answers no check");
    }
    let updates = change(&room).await?;
    let mut slow = args.slow.unwrap_or((fast.rate() / args.capacity).clamp(1.0, SLOW_MAX));
    room.host.slow_down(slow);
    let mut checks = ask(&room, ASKING, SLOW_PART).await?;
    for _ in 1..ATTEMPTS {
        let away = checks.rate() / args.capacity;
        if args.slow.is_some() || slow == 1.0 || (away - 1.0).abs() < NEAR {
            break;
        }
        slow = (slow * away).clamp(1.0, SLOW_MAX);
        room.host.slow_down(slow);
        checks = ask(&room, ASKING, SLOW_PART).await?;
    }
    if checks.count < 1.0 {
        bail!("a host that is {slow:.0} times slower answers no check: use --slow");
    }
    let idle_cpu = idle(&room).await;
    let lone = ask(&room, 1, PART).await?;
    let check_cpu = (checks.cpu / checks.count - idle_cpu / checks.rate()).max(1e-7);
    Ok(Gauge {
        slow,
        capacity: checks.rate(),
        capacity_unslowed: fast.rate(),
        lone_latency: lone.seconds / lone.count.max(1.0),
        check_cpu,
        // On a slow host everything takes more: caches are cold after each rest.
        update_cpu: updates.cpu / updates.count.max(1.0) * (check_cpu * fast.count / fast.cpu.max(1e-9)),
        idle_cpu,
        request_bytes: fast.up / fast.count,
        answer_bytes: fast.down / fast.count,
        notification_bytes: updates.down / updates.count.max(1.0),
    })
}

/// So many of something in a time.
#[derive(Clone, Copy, Debug)]
struct Spent {
    count: f64,
    seconds: f64,
    cpu: f64,
    up: f64,
    down: f64,
}

impl Spent {
    fn rate(&self) -> f64 {
        self.count / self.seconds
    }
}

/// CPU of a second in which nobody wants anything.
async fn idle(room: &Room<'_>) -> f64 {
    let (before, began) = (room.host.cpu(), Instant::now());
    tokio::time::sleep(PART).await;
    let spent = room.host.cpu().zip(before).map_or(0.0, |(after, before)| after - before);
    spent / began.elapsed().as_secs_f64()
}

/// So many KPs ask, one question after the other each.
async fn ask(room: &Room<'_>, who: usize, time: Duration) -> Result<Spent> {
    let kps = room.kps(who, &PacerConfig::from(Preset::None)).await?;
    let until = Instant::now() + time;
    spend(room, kps, |kp| kp.ask_on(until)).await
}

/// Publishers of all doors change as much each.
async fn change(room: &Room<'_>) -> Result<Spent> {
    // They watch, so that each update has a notification.
    let _watching = room.kps(ASKING, &PacerConfig::from(Preset::None)).await?;
    let publishers = room.publishers(CHANGING, ASKING).await?;
    let book = room.book.clone();
    spend(room, publishers, move |publisher| publisher.change_often(CHANGES, book.clone())).await
}

async fn spend<W, F>(room: &Room<'_>, who: Vec<W>, does: impl Fn(W) -> F) -> Result<Spent>
where
    F: Future<Output = u64> + Send + 'static,
{
    let (before, cpu, began) = (room.air.traffic(), room.host.cpu().unwrap_or(0.0), Instant::now());
    let mut busy = JoinSet::new();
    for one in who {
        busy.spawn(does(one));
    }
    let mut count = 0;
    while let Some(done) = busy.join_next().await {
        count += done?;
    }
    let seconds = began.elapsed().as_secs_f64();
    // What follows from the last of them, too: a map works behind its messages.
    tokio::time::sleep(SETTLE).await;
    let traffic = room.air.traffic().since(&before);
    Ok(Spent {
        count: count as f64,
        seconds,
        cpu: room.host.cpu().unwrap_or(0.0) - cpu,
        up: traffic.bytes_up as f64,
        down: traffic.bytes_down as f64,
    })
}
