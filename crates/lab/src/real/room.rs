//! A broker with its KPs and publishers: set up calmly, then slowed and roughened, then measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_client::{PacerConfig, Space};
use tidegate_program::Stop;
use tidegate_sim::chance::Stream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::air::{Air, Link, Traffic};
use super::copies::Freshness;
use super::host::Host;
use super::kp::{Book, Kp, Phase};
use super::plan::RealArgs;
use super::publisher::Publisher;

/// KPs that come in at the same time.
const COMING_MAX: usize = 16;
/// How long all KPs may take to say how it ended.
const LAST_WORD: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody wants it to end.
const LOOK: Duration = Duration::from_millis(50);

/// What one run brought.
#[derive(Clone, Debug)]
pub(super) struct RoomFigures {
    pub(super) freshness: Freshness,
    pub(super) traffic: Traffic,
    /// Useful answers, refusals, and requests without an answer, of all KPs.
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) unanswered: u64,
    /// Subscriptions that the broker handed over to checks.
    pub(super) delegations: u64,
    /// Seconds, median and 99 %, of checks that were answered; none if none was.
    pub(super) latency: Option<(f64, f64)>,
    /// CPU time of the broker, seconds.
    pub(super) cpu: Option<f64>,
    /// Seconds that were measured.
    pub(super) seconds: f64,
}

/// A broker and who is there.
pub(super) struct Room<'a> {
    pub(super) args: &'a RealArgs,
    pub(super) host: Host,
    pub(super) book: Book,
    pub(super) air: Arc<Air>,
    seed: u64,
}

impl<'a> Room<'a> {
    /// A broker that knows every item, and nobody else.
    pub(super) async fn open(args: &'a RealArgs, kps: usize, seed: u64) -> Result<Self> {
        let host = Host::start(&args.set)?;
        let book = Book::new(kps);
        let air = Air::new(args.loss, args.delay, &book.copies);
        let operator = Space::connect(&format!("http://{}", host.http)).await?.waiting(Duration::from_secs(10));
        let items = (0..kps).map(|kp| format!("<urn:testbed:{kp}> <urn:testbed:value> '0' ."));
        operator.update(&format!("INSERT DATA {{ {} }}", items.collect::<String>())).await?;
        Ok(Self { args, host, book, air, seed })
    }

    /// KPs that stand.
    pub(super) async fn kps(&self, count: usize, pacer: &PacerConfig) -> Result<Vec<Kp>> {
        let (mut coming, mut kps) = (JoinSet::new(), Vec::with_capacity(count));
        for number in 0..count {
            let door = self.args.door_of(number);
            let broker = match door {
                super::air::Door::Ssap => self.host.ssap,
                super::air::Door::Http => self.host.http,
            };
            let link =
                Link::open(&self.air, (door, broker), (self.seed, number)).await.context("no port for a link")?;
            let pacer = pacer.clone();
            coming.spawn(async move { Kp::open(number, door, &link, pacer).await });
            if coming.len() >= COMING_MAX {
                kps.extend(coming.join_next().await.transpose()?.transpose().context("a KP cannot come in")?);
            }
        }
        while let Some(kp) = coming.join_next().await {
            kps.push(kp?.context("a KP cannot come in")?);
        }
        Ok(kps)
    }

    /// Publishers, each with its items.
    pub(super) async fn publishers(&self, count: usize, kps: usize) -> Result<Vec<Publisher>> {
        let count = count.min(kps);
        let mut publishers = Vec::with_capacity(count);
        for number in 0..count {
            let items = (number..kps).step_by(count).collect();
            let door = self.args.publisher_door_of(number);
            publishers
                .push(Publisher::open(&self.host, door, number, items).await.context("a publisher cannot come in")?);
        }
        Ok(publishers)
    }

    /// The whole of a run.
    pub(super) async fn run(mut self, pacer: &PacerConfig, slow: f64, stop: &Stop) -> Result<RoomFigures> {
        let count = self.args.kps as usize;
        let kps = self.kps(count, pacer).await?;
        let publishers = self.publishers(self.args.publishers as usize, count).await?;
        let (phases, phase) = watch::channel(Phase::Before);
        for kp in kps {
            tokio::spawn(kp.live(self.book.clone(), phase.clone()));
        }
        self.air.roughen();
        self.host.slow_down(slow);
        for (number, publisher) in publishers.into_iter().enumerate() {
            let chance = Stream::of(self.seed, "real updates").member(number as u64);
            tokio::spawn(publisher.live(self.args.updates, chance, self.book.clone()));
        }
        pass(self.args.warm_up, stop).await?;
        let (before, cpu, began) = (self.air.traffic(), self.host.cpu(), Instant::now());
        self.book.measure(true);
        let _ = phases.send(Phase::Measured);
        pass(self.args.secs, stop).await?;
        self.book.measure(false);
        let (traffic, seconds) = (self.air.traffic().since(&before), began.elapsed().as_secs_f64());
        let cpu = self.host.cpu().zip(cpu).map(|(after, before)| after - before);
        let _ = phases.send(Phase::Over);
        if self.host.has_ended() {
            bail!("the broker has ended by itself");
        }
        self.wait_for_all(count).await?;
        let notes = self.book.notes();
        let (begin, end) = (notes.begin, notes.end);
        let latency = (notes.latency.count() > 0).then(|| (notes.latency.quantile(0.5), notes.latency.quantile(0.99)));
        Ok(RoomFigures {
            freshness: self.book.copies().freshness(),
            traffic,
            answered: end.answered - begin.answered,
            refused: end.denied - begin.denied,
            unanswered: end.failed - begin.failed,
            delegations: end.delegations - begin.delegations,
            latency,
            cpu,
            seconds,
        })
    }

    async fn wait_for_all(&self, count: usize) -> Result<()> {
        let until = Instant::now() + LAST_WORD;
        while self.book.notes().told < count {
            if Instant::now() > until {
                bail!("{} of {count} KPs did not say how it ended", count - self.book.notes().told);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// Lets time pass.
pub(super) async fn pass(seconds: f64, stop: &Stop) -> Result<()> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        if stop.is_wanted() {
            bail!("interrupted");
        }
        tokio::time::sleep_until((Instant::now() + LOOK).min(until).into()).await;
    }
    Ok(())
}
