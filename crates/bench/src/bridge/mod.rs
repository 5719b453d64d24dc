//! `tidegate bench bridge`: how fast a bridge drains what waited during an outage, and what the other broker's own clients feel
//! meanwhile; ours beside mosquitto's own bridge, each to a Tidegate and to a mosquitto.
//!
//! A run: both brokers stand, with a way between them that this program can close. It is closed, the site publishes its backlog at
//! QoS 1, and the hub's own clients are timed undisturbed; then the way is opened, and they are timed from the first message of the backlog to the last.
//!
//! The rate is that from the first message of the backlog to the last. How long the bridge took to look for the other side again is
//! said beside it: that is a pause which each broker chooses, and no part of how fast it drains.

pub(crate) mod line;
mod way;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;

use crate::arguments::BenchArgs;
use crate::goals::{rate_line, ratio_line};
use crate::peers;
use crate::process::{BrokerNeeds, BrokerSource, start_site};
use line::{NumberedArrivals, TimedSpan};
use way::Way;

/// Messages that wait, at scale 1.
const BACKLOG: f64 = 100_000.0;
/// Messages a second that are the goal between two of ours.
const GOAL: f64 = 50_000.0;
/// How many times its undisturbed p99 the hub's own clients may have while our bridge drains.
const DISTURBANCE_GOAL: f64 = 2.0;
/// How long a drain may take.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// How long two brokers may take to find each other.
const MEET_MAX: Duration = Duration::from_secs(60);
/// How long the hub's clients are timed undisturbed, unless it is said.
const SECS: f64 = 3.0;

/// What one pair of brokers brought.
#[derive(Debug)]
struct DrainOutcome {
    site: String,
    hub: String,
    messages: u64,
    /// From the opened way to the first message, and from that to the last.
    found_after: f64,
    seconds: f64,
    /// The hub's own clients, p50 and p99 in ms: undisturbed, and during the drain.
    calm: (f64, f64),
    drain: (f64, f64),
}

impl DrainOutcome {
    fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds.max(1e-9)
    }

    /// The p99 of the hub's own clients during the drain, by the undisturbed one.
    fn disturbance(&self) -> f64 {
        self.drain.1 / self.calm.1.max(1e-9)
    }

    fn line(&self) -> String {
        format!(
            "{:<10} -> {:<10} {:>8} messages in {:>6.1} s: {:>8.0}/s, begun after {:.1} s; the hub's own clients p50/p99 {:.2}/{:.2} ms, \
             during the drain {:.2}/{:.2} ms ({:.1} times)",
            self.site,
            self.hub,
            self.messages,
            self.seconds,
            self.rate(),
            self.found_after,
            self.calm.0,
            self.calm.1,
            self.drain.0,
            self.drain.1,
            self.disturbance()
        )
    }

    fn json(&self) -> Value {
        json!({
            "site": self.site, "hub": self.hub, "messages": self.messages, "begun_after_s": self.found_after,
            "seconds": self.seconds, "per_s": self.rate(), "disturbance": self.disturbance(),
            "calm_p50_ms": self.calm.0, "calm_p99_ms": self.calm.1, "drain_p50_ms": self.drain.0, "drain_p99_ms": self.drain.1,
        })
    }
}

/// Measures and reports; the exit code is 1 if a pair could not be measured.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let mut brokers = vec![BrokerSource::own()];
    let is_alone = args.peer.as_deref() == Some(Path::new("none"));
    match peers::find_mosquitto().filter(|_| !is_alone) {
        Some(path) => brokers.push(BrokerSource::Mosquitto(path)),
        None => say(&format!("{}\n", peers::GET_MOSQUITTO)),
    }
    let backlog = (BACKLOG * args.scale).max(100.0) as u64;
    let calm = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let (mut rows, mut has_failed) = (Vec::new(), false);
    for hub in &brokers {
        for site in &brokers {
            if stop.is_wanted() {
                bail!("interrupted");
            }
            match drain(site, hub, backlog, calm, &stop) {
                Ok(outcome) => {
                    say(&format!("{}\n", outcome.line()));
                    if [site, hub].iter().all(|broker| matches!(broker, BrokerSource::Tidegate { .. })) {
                        say(&format!("{}\n", rate_line("between two Tidegates", outcome.rate(), GOAL)));
                    }
                    if matches!(site, BrokerSource::Tidegate { .. }) {
                        let what = format!("p99 of {}'s own clients during the drain", hub.name());
                        say(&format!("{}\n", ratio_line(&what, outcome.disturbance(), DISTURBANCE_GOAL)));
                    }
                    rows.push(outcome.json());
                }
                Err(error) => {
                    has_failed = true;
                    say(&format!("{:<10} -> {:<10} failed: {error:#}\n", site.name(), hub.name()));
                }
            }
        }
    }
    if let Some(path) = &args.json {
        let text = format!("{}\n", json!({ "bridge": rows }));
        if path.as_path() == Path::new("-") {
            say(&text);
        } else {
            std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
        }
    }
    Ok(u8::from(has_failed))
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn drain(site: &BrokerSource, hub: &BrokerSource, backlog: u64, calm: Duration, stop: &Stop) -> Result<DrainOutcome> {
    let needs = BrokerNeeds { queue_max: Some(u32::try_from(backlog * 2)?), is_kept: true, ..BrokerNeeds::NONE };
    let hub_broker = hub.start(&needs, stop)?;
    let way = Way::to(hub_broker.address)?;
    let site_broker = start_site(site, way.port(), &needs, stop)?;
    let mut arrivals = line::Counter::listen(hub_broker.address, "drain/#")?;
    // They have found each other when something gets through.
    let met = Instant::now();
    while arrivals.count(1, Duration::from_millis(200))? == 0 {
        if met.elapsed() > MEET_MAX {
            bail!("nothing gets through");
        }
        line::publish(site_broker.address, "drain/hello", 1)?;
    }
    way.close();
    line::publish(site_broker.address, "drain/backlog", backlog)?;
    let undisturbed = line::time_clients(hub_broker.address, &TimedSpan::begun(), Some(calm))?;
    let span = TimedSpan::default();
    std::thread::scope(|scope| {
        let timed = scope.spawn(|| line::time_clients(hub_broker.address, &span, None));
        way.open();
        let begun = Instant::now();
        let counted = arrivals.count_numbered(backlog, DRAIN_MAX, &span, stop);
        let ended = Instant::now();
        span.end();
        let during = timed.join().map_err(|_| anyhow::anyhow!("the hub's clients have failed"))??;
        let NumberedArrivals { count: messages, first } = counted?;
        let first = first.unwrap_or(ended);
        let (found_after, seconds) = ((first - begun).as_secs_f64(), (ended - first).as_secs_f64());
        if messages < backlog {
            bail!("{messages} of {backlog} messages arrived in {:.0} s", found_after + seconds);
        }
        let (site, hub) = (site.name(), hub.name());
        Ok(DrainOutcome { site, hub, messages, found_after, seconds, calm: undisturbed, drain: during })
    })
}
