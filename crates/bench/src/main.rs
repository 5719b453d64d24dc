//! `tidegate-bench`, which `tidegate bench` runs: what a broker costs, beside its peers in the same run, and which goals are met.
//!
//! Each case gets fresh brokers, ours and the peers' in turn, so that a noisy machine disturbs all alike. The brokers
//! are processes of their own: their CPU time is read from outside and the generator's share is told apart. Everything
//! that was started ends with the benchmark, also on Ctrl-C and on errors (`process.rs`).

mod admin;
mod amqp;
mod arguments;
mod beats;
mod bridge;
mod cases;
mod clients;
mod cluster;
mod coap;
mod connection;
mod doors;
mod durable;
mod engine;
mod gate;
mod goals;
mod guard;
mod handshakes;
mod harm;
mod json;
mod measure;
mod outcome;
mod overload;
mod packets;
mod peers;
mod plain;
mod process;
mod procfs;
mod publisher;
mod receive;
mod relay;
mod report;
mod send;
mod sink;
mod slot;
mod sn;
mod space;
mod stream;
mod tally;
mod timer;
mod worker_queue;

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;

use arguments::BenchArgs;
use cases::{BenchCase, CaseKind};
use goals::GoalVerdict;
use measure::RunSettings;
use outcome::CaseOutcome;
use process::{BrokerNeeds, BrokerSource, Counters, Tune};
use report::{BrokerRole, ReportEntry};
use tidegate_program::{MISUSE, Stop, Usage};
use tidegate_sim::histogram;

/// The allocator of the broker: its smart space is measured inside this program.
#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The warm-up before measuring: caches, buffers and the windows are full after a tenth of it.
const WARM_UP: Duration = Duration::from_millis(400);

/// How long a case is measured, unless it is said.
const SECS: f64 = 3.0;

/// What the arguments mean together.
#[derive(Debug)]
struct BenchPlan {
    own: BrokerSource,
    peers: Vec<BrokerSource>,
    /// How to get the peers that were not found.
    missing: Vec<&'static str>,
    cases: Vec<BenchCase>,
}

impl BenchPlan {
    fn of(args: &BenchArgs) -> Result<Self> {
        Self::judge(args).context(Usage)
    }

    fn judge(args: &BenchArgs) -> Result<Self> {
        let groups = cases::groups();
        if let Some(unknown) = args.groups.iter().find(|group| !groups.contains(&group.as_str())) {
            bail!("{unknown:?} is no group of cases; there are: {}", groups.join(", "));
        }
        let mut cases = cases::chosen(&args.groups, &args.only);
        if cases.is_empty() {
            let names: Vec<_> = cases::CASES.iter().map(|case| case.name).collect();
            let only = args.only.join(",");
            bail!("--only {only:?} is in no such case's name; there are: {}", names.join(", "));
        }
        let own = match &args.url {
            Some(url) => BrokerSource::Running { address: loopback(url)?, pid: args.pid },
            None => BrokerSource::own(),
        };
        if args.url.is_some() {
            // The settings of a broker that already runs are not ours to choose.
            let is_own = |kind| {
                matches!(
                    kind,
                    CaseKind::Shards(_)
                        | CaseKind::Gate(_)
                        | CaseKind::Durable(_)
                        | CaseKind::Space(_)
                        | CaseKind::Admin(_)
                )
            };
            cases.retain(|case| !is_own(case.kind));
        }
        let mut plan = Self { own, peers: Vec::new(), missing: Vec::new(), cases };
        plan.find_peers(args)?;
        Ok(plan)
    }

    /// mosquitto or what is to stand in its place, then rumqttd. Who wants no peer gets none.
    fn find_peers(&mut self, args: &BenchArgs) -> Result<()> {
        let is_none = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("none"));
        match (&args.peer, &args.peer_cmd) {
            (_, Some(command)) if !command.contains("{port}") => {
                bail!("--peer-cmd {command:?}: say with {{port}} where the port belongs")
            }
            (_, Some(command)) => self.peers.push(BrokerSource::Command(command.clone())),
            (Some(_), None) if is_none(&args.peer) => {}
            (Some(path), None) if path.exists() => self.peers.push(BrokerSource::Mosquitto(path.clone())),
            (Some(path), None) => bail!("--peer {}: no such file", path.display()),
            (None, None) => match peers::find_mosquitto() {
                Some(path) => self.peers.push(BrokerSource::Mosquitto(path)),
                None => self.missing.push(peers::GET_MOSQUITTO),
            },
        }
        let is_alone = is_none(&args.peer) || args.peer_cmd.is_some();
        match &args.rumqttd {
            Some(_) if is_none(&args.rumqttd) => {}
            Some(path) if path.exists() => self.peers.push(BrokerSource::Rumqttd(path.clone())),
            Some(path) => bail!("--rumqttd {}: no such file", path.display()),
            None if is_alone => {}
            None => match peers::find_rumqttd() {
                Some(path) => self.peers.push(BrokerSource::Rumqttd(path)),
                None => self.missing.push(peers::GET_RUMQTTD),
            },
        }
        Ok(())
    }

    /// Which brokers take part in a case.
    fn sources(&self, case: &BenchCase) -> Vec<BrokerSource> {
        match case.kind {
            // No peer that can be installed here has these doors.
            CaseKind::Space(_) | CaseKind::Admin(_) => vec![self.own.clone()],
            CaseKind::Relay(_) => vec![self.own.clone(), BrokerSource::Relay],
            CaseKind::Shards(_) => {
                [1, 2].map(|shards| BrokerSource::Tidegate { shards: Some(shards), tune: Tune::USUAL }).to_vec()
            }
            CaseKind::Gate(scenario) => {
                let own = scenario.tunes().iter().map(|tune| BrokerSource::Tidegate { shards: None, tune: *tune });
                // rumqttd speaks no version in which a subscriber can say how much it takes.
                let peers =
                    self.peers.iter().filter(|peer| peer.role() == BrokerRole::Mosquitto && scenario.has_peers());
                own.chain(peers.cloned()).collect()
            }
            CaseKind::Durable(promise) => {
                let own = promise.tunes().iter().map(|tune| BrokerSource::Tidegate { shards: None, tune: *tune });
                // rumqttd keeps no sessions on disk.
                let peers =
                    self.peers.iter().filter(|peer| peer.role() == BrokerRole::Mosquitto && promise.has_peers());
                own.chain(peers.cloned()).collect()
            }
            _ => std::iter::once(&self.own).chain(&self.peers).cloned().collect(),
        }
    }

    /// Who takes part at all, by name and version.
    fn versions(&self) -> Vec<String> {
        std::iter::once(&self.own).chain(&self.peers).map(peers::version).collect()
    }
}

fn main() -> ExitCode {
    match run(&BenchArgs::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<Usage>() { MISUSE } else { 1 })
        }
    }
}

/// Measures and reports. The exit code is 1 if a case could not be measured; a missed goal is a result.
fn run(args: &BenchArgs) -> Result<u8> {
    if args.as_relay {
        return relay::run().map(|()| 0);
    }
    if args.groups == ["harm"] {
        return harm::run(args);
    }
    if args.groups == ["bridge"] {
        return bridge::run(args);
    }
    if args.groups == ["cluster"] {
        return cluster::run(args);
    }
    if args.groups == ["sink"] {
        return sink::run(args);
    }
    if args.groups == ["guard"] {
        return guard::run(args);
    }
    if args.groups == ["coap"] {
        return coap::run(args);
    }
    if args.groups == ["sn"] {
        return sn::run(args);
    }
    if args.groups == ["amqp"] {
        return amqp::run(args);
    }
    if args.groups == ["doors"] {
        return doors::run(args);
    }
    let plan = BenchPlan::of(args)?;
    let stop = Stop::on_signals()?;
    let secs = args.secs.unwrap_or(SECS);
    let time = Duration::from_secs_f64(secs);
    let files_max = procfs::raise_file_limit();
    let setting = RunSettings { time, warm_up: WARM_UP.min(time), files_max, scale: args.scale, stop };
    let is_quiet = args.json.as_deref() == Some(Path::new("-"));
    let say = |text: &str| {
        // Nobody may be reading any more; what was started still has to end in order.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let versions = plan.versions();
    if !is_quiet {
        let brokers = versions.join(", ");
        let head: Vec<&str> = std::iter::once(brokers.as_str()).chain(plan.missing.iter().copied()).collect();
        say(&format!("{}\n\n{}\n", head.join("\n"), report::header()));
    }
    let (mut entries, mut verdicts) = (Vec::new(), Vec::new());
    let mut number = std::process::id();
    for case in &plan.cases {
        let (first, judged) = (entries.len(), verdicts.len());
        for source in plan.sources(case) {
            number = number.wrapping_add(1);
            entries.push(measured(case, &source, &setting, number));
            if setting.stop.is_wanted() {
                bail!("interrupted");
            }
        }
        let rows = &entries[first..];
        let goals = case.goals.iter().filter(|goal| goal.can_be_judged(rows));
        verdicts.extend(goals.map(|goal| (case.name, goal.judge(rows))));
        if !is_quiet {
            let reached: Vec<GoalVerdict> = verdicts[judged..].iter().map(|(_, verdict)| verdict.clone()).collect();
            say(&format!("{}{}", report::lines(rows), report::goal_lines(&reached)));
        }
    }
    if !is_quiet {
        say(&format!("\n{}", report::notes(&entries, &verdicts)));
    }
    if let Some(path) = &args.json {
        let text = format!("{}\n", json::report(&entries, &verdicts, &versions, secs, args.scale));
        if is_quiet {
            say(&text);
        } else {
            std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
        }
    }
    Ok(u8::from(entries.iter().any(|entry| entry.outcome.is_err())))
}

/// One case on one broker that lives no longer. A failure is a result like any other: the next case may work.
fn measured(case: &BenchCase, source: &BrokerSource, setting: &RunSettings, number: u32) -> ReportEntry {
    let outcome = if let CaseKind::Gate(scenario) = case.kind {
        // These need a fresh broker more than once.
        gate::run(scenario, source, setting, number).map(CaseOutcome::Gate)
    } else if let CaseKind::Durable(promise) = case.kind {
        durable::run(promise, source, setting, number).map(CaseOutcome::Durable)
    } else if let CaseKind::Space(scenario) = case.kind {
        space::run(scenario, setting).map(CaseOutcome::Space)
    } else if let CaseKind::Admin(scenario) = case.kind {
        admin::run(scenario, setting).map(CaseOutcome::Space)
    } else {
        let started = source.start(&wish(case), &setting.stop);
        started.and_then(|mut broker| measure::run(case, &mut broker, setting, number))
    };
    let outcome = outcome.map_err(|error| format!("{error:#}"));
    ReportEntry { case: case.name, broker: source.name(), role: source.role(), outcome }
}

/// What the case asks of its broker.
fn wish(case: &BenchCase) -> BrokerNeeds {
    match case.kind {
        CaseKind::Overload { .. } => BrokerNeeds { counters: Counters::Often, ..BrokerNeeds::NONE },
        CaseKind::Storm { users, .. } => BrokerNeeds { users, ..BrokerNeeds::NONE },
        _ => BrokerNeeds::NONE,
    }
}

/// The address of a URL, which must be on this machine: a benchmark is a flood, and floods are for one's own brokers.
fn loopback(url: &str) -> Result<SocketAddr> {
    let rest = url.strip_prefix("mqtt://").with_context(|| format!("--url {url:?}: expected mqtt://HOST:PORT"))?;
    let place = rest.trim_end_matches('/');
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let place = if has_port { place.to_owned() } else { format!("{place}:1883") };
    let mut addresses = place.to_socket_addrs().with_context(|| format!("--url {url:?}"))?;
    let address = addresses.next().with_context(|| format!("--url {url:?}: no address"))?;
    if !address.ip().is_loopback() {
        bail!(
            "--url {url:?}: {} is not this machine; the benchmark floods a broker and therefore only goes to loopback \
             addresses. Run it on the broker's machine, with 127.0.0.1",
            address.ip()
        );
    }
    Ok(address)
}

#[cfg(test)]
mod tests;
