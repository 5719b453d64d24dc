//! `tidegate bench`: what a message costs, beside a peer in the same run.
//!
//! Each case gets fresh brokers, ours and the peer's in turn, so that a noisy machine disturbs both alike. The brokers
//! are processes of their own: their CPU time is read from outside and the generator's share is told apart. Everything
//! that was started ends with the benchmark, also on Ctrl-C and on errors (`process.rs`).

mod cases;
mod connection;
mod engine;
mod histogram;
mod measure;
mod packets;
mod process;
mod procfs;
mod publisher;
mod receive;
mod relay;
mod report;
mod send;
mod stream;
mod timer;

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::BenchArgs;
use crate::stop::Stop;
use crate::target::Usage;
use cases::{Case, Kind};
use measure::Setting;
use process::Source;
use report::Entry;

/// The warm-up before measuring: caches, buffers and the windows are full after a tenth of it.
const WARM_UP: Duration = Duration::from_millis(400);

/// What the arguments mean together.
#[derive(Debug)]
struct Plan {
    own: Source,
    peer: Option<Source>,
    cases: Vec<Case>,
}

impl Plan {
    fn of(args: &BenchArgs) -> Result<Self> {
        Self::judge(args).context(Usage)
    }

    fn judge(args: &BenchArgs) -> Result<Self> {
        let cases = cases::chosen(args.only.as_deref());
        if cases.is_empty() {
            let names: Vec<_> = cases::CASES.iter().map(|case| case.name).collect();
            bail!("--only {:?} is in no case's name; there are: {}", args.only, names.join(", "));
        }
        let own = match &args.url {
            Some(url) => Source::Running { address: loopback(url)?, pid: args.pid },
            None => Source::Tidegate,
        };
        let peer = match (&args.peer, &args.peer_cmd) {
            (_, Some(command)) if !command.contains("{port}") => {
                bail!("--peer-cmd {command:?}: say with {{port}} where the port belongs")
            }
            (_, Some(command)) => Some(Source::Command(command.clone())),
            (Some(path), None) if path == Path::new("none") => None,
            (Some(path), None) if path.exists() => Some(Source::Mosquitto(path.clone())),
            (Some(path), None) => bail!("--peer {}: no such file", path.display()),
            (None, None) => find_mosquitto().map(Source::Mosquitto),
        };
        Ok(Self { own, peer, cases })
    }

    /// Which brokers take part in a case.
    fn sources(&self, case: &Case) -> Vec<Source> {
        match case.kind {
            Kind::Relay(_) => vec![Source::Relay],
            _ => std::iter::once(&self.own).chain(&self.peer).cloned().collect(),
        }
    }
}

/// Measures and reports. The exit code is 1 if a case could not be measured.
pub(crate) fn run(args: &BenchArgs) -> Result<u8> {
    if args.as_relay {
        return relay::run().map(|()| 0);
    }
    let plan = Plan::of(args)?;
    let stop = Stop::on_signals()?;
    let time = Duration::from_secs_f64(args.secs);
    let files_max = procfs::raise_file_limit();
    let setting = Setting { time, warm_up: WARM_UP.min(time), files_max, stop };
    let say = |text: &str| {
        // Nobody may be reading any more; what was started still has to end in order.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    if !args.json {
        let peer = plan.peer.as_ref().map(Source::name);
        say(&format!("{}\n", report::header(&plan.own.name(), peer.as_deref())));
    }
    let mut entries: Vec<Entry> = Vec::new();
    let mut number = std::process::id();
    for case in &plan.cases {
        let first = entries.len();
        for source in plan.sources(case) {
            number = number.wrapping_add(1);
            entries.push(measured(case, &source, &setting, number));
            if setting.stop.is_wanted() {
                bail!("interrupted");
            }
        }
        if !args.json {
            say(&report::lines(&entries[first..]));
        }
    }
    if args.json {
        say(&format!("{}\n", report::to_json(&entries, args.secs)));
    } else {
        say(&format!("\n{}", report::notes(&entries)));
    }
    Ok(u8::from(entries.iter().any(|entry| entry.outcome.is_err())))
}

/// One case on one broker that lives no longer. A failure is a result like any other: the next case may work.
fn measured(case: &Case, source: &Source, setting: &Setting, number: u32) -> Entry {
    let outcome = source.start(&setting.stop).and_then(|mut broker| measure::run(case, &mut broker, setting, number));
    Entry { case: case.name, broker: source.name(), outcome: outcome.map_err(|error| format!("{error:#}")) }
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

/// Debian puts it into a folder that is not on everybody's PATH.
fn find_mosquitto() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("mosquitto")).find(|file| file.is_file())
}

#[cfg(test)]
mod tests;
