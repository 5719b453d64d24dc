//! `tidegate bench harm`: whether overload control does harm. The scenarios of `tidegate_sim::zoo` on sockets, with
//! default settings and with control off, in turns, and beside mosquitto.
//!
//! A *pair* is one run with control and one without, each on a fresh broker. Two pairs are run; if they do not agree that
//! all is well, a third decides: HARM is what is worse in two of them (`zoo::judge`). The exit code is 1 if there is any.

mod fleet;
mod report;
mod space;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tidegate_sim::zoo::judge::{self, Harm};
use tidegate_sim::zoo::model::{Phases, Scenario};
use tidegate_sim::zoo::table;
use tidegate_sim::zoo::tally::Figures;

use crate::arguments::BenchArgs;
use crate::bench::cases::Users;
use crate::bench::outcome::Cores;
use crate::bench::peers;
use crate::bench::process::{Source, Tune, Wish};
use crate::bench::procfs::{self, Meter};
use crate::bench::report::Role;
use crate::stop::Stop;
use crate::target::Usage;
use fleet::Fleet;

/// Seconds of trouble, unless it is said.
const SECS: f64 = 0.9;
const SECS_QUICK: f64 = 0.5;
/// What comes before and after is so many times as long.
const LEAD: f64 = 0.4;
const AFTER: f64 = 0.6;
/// What a quick run leaves out: variants of others.
const NOT_QUICK: &[&str] = &[
    "calm-tripling-311",
    "calm-gateway-q0-311",
    "calm-gateway-q2",
    "outage-1000-311",
    "outage-1000-q0",
    "pause-1s-q1-311",
    "pauses-q1",
    "idle-reader-q0",
    "idle-readers-20",
    "share-slow",
    "flood-q0-v5",
    "flood-q1-311",
    "flood-q2-311",
    "flood-obeying-311",
    "firmware-4-of-24",
    "firmware-q0",
    "flood-two-shards-q2",
    "one-user-311",
    "four-users",
    "rare-all-q0",
    "rare-all-q2",
    "pairs-blast",
    "fan-in-200k",
    "space-slow-queries-writers",
    "space-crowd",
];
/// Control off.
const OFF: Tune = Tune { name: "off", role: Role::Own, settings: &["backoff.mode=off", "priority.mode=off"] };
/// Control as it is shipped.
const ON: Tune = Tune { name: "on", role: Role::Own, settings: &[] };
/// Pairs that are run at most: what is worse in two of three stands.
const PAIRS_MAX: usize = 3;

/// One run of a scenario.
#[derive(Clone, Debug)]
struct Run {
    figures: Vec<Figures>,
    cores: Cores,
}

/// All runs of a scenario.
#[derive(Debug)]
struct Row {
    scenario: &'static Scenario,
    on: Vec<Run>,
    off: Vec<Run>,
    peer: Option<Run>,
    harms: Vec<Harm>,
}

struct Zoo {
    phases: Phases,
    /// Pairs at first.
    pairs: usize,
    peer: Option<Source>,
    stop: Stop,
}

pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let is_wanted = |name: &str| match args.only.as_slice() {
        [] => !args.quick || !NOT_QUICK.contains(&name),
        only => only.iter().any(|part| name.contains(part)),
    };
    let scenarios: Vec<_> = table::all().filter(|scenario| is_wanted(scenario.name)).collect();
    let desks: Vec<_> = space::all().filter(|scenario| is_wanted(scenario.name)).collect();
    if scenarios.is_empty() && desks.is_empty() {
        let names: Vec<_> = table::all().map(|it| it.name).chain(space::all().map(|it| it.name)).collect();
        let said = anyhow::anyhow!("--only {:?} is in no scenario's name; there are: {}", args.only, names.join(", "));
        return Err(said.context(Usage));
    }
    let trouble = args.secs.unwrap_or(if args.quick { SECS_QUICK } else { SECS });
    let phases = Phases { lead: trouble * LEAD, trouble, after: trouble * AFTER };
    procfs::raise_file_limit();
    let peer = find_peer(args)?;
    let zoo = Zoo { phases, pairs: if args.quick { 1 } else { 2 }, peer, stop: Stop::on_signals()? };
    let is_quiet = args.json.as_deref() == Some(Path::new("-"));
    let say = |text: &str| {
        if !is_quiet {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    say(&report::head(&zoo.phases, zoo.peer.as_ref(), args.quick));
    let began = Instant::now();
    let (mut rows, mut failures, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    for scenario in scenarios {
        match zoo.run(scenario) {
            Ok(row) => {
                say(&report::lines(&row));
                rows.push(row);
            }
            Err(error) if zoo.stop.is_wanted() => return Err(error),
            Err(error) => {
                say(&format!("{}\n    failed: {error:#}\n", scenario.name));
                failures.push((scenario.name, format!("{error:#}")));
            }
        }
    }
    for desk in desks {
        match space::run(desk, &zoo.stop, zoo.pairs, trouble) {
            Ok(row) => {
                say(&space::lines(&row));
                shown.push(row);
            }
            Err(error) if zoo.stop.is_wanted() => return Err(error),
            Err(error) => {
                say(&format!("{}\n    failed: {error:#}\n", desk.name));
                failures.push((desk.name, format!("{error:#}")));
            }
        }
    }
    say(&report::summary(&rows, &shown, &failures, began.elapsed()));
    if let Some(path) = &args.json {
        let text = format!("{}\n", report::json(&rows, &shown, &failures, trouble));
        if is_quiet {
            std::io::stdout().lock().write_all(text.as_bytes())?;
        } else {
            std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
        }
    }
    let is_harmed = rows.iter().any(|row| !row.harms.is_empty()) || shown.iter().any(|row| !row.harms.is_empty());
    Ok(u8::from(is_harmed || !failures.is_empty()))
}

/// mosquitto, where it is; none if none is wanted.
fn find_peer(args: &BenchArgs) -> Result<Option<Source>> {
    match args.peer.as_deref() {
        Some(path) if path == Path::new("none") => Ok(None),
        None if args.quick => Ok(None),
        Some(path) if path != Path::new("mosquitto") => {
            if !path.exists() {
                bail!("--peer {}: no such file", path.display());
            }
            Ok(Some(Source::Mosquitto(path.to_owned())))
        }
        _ => {
            let found: Option<PathBuf> = peers::find_mosquitto();
            if found.is_none() {
                eprintln!("SKIPPED beside mosquitto: {}", peers::GET_MOSQUITTO);
            }
            Ok(found.map(Source::Mosquitto))
        }
    }
}

impl Zoo {
    fn run(&self, scenario: &'static Scenario) -> Result<Row> {
        let own = |tune| Source::Tidegate { shards: Some(u32::from(scenario.shards)), tune };
        let (on, off) = (own(ON), own(OFF));
        let mut row = Row { scenario, on: Vec::new(), off: Vec::new(), peer: None, harms: Vec::new() };
        let mut pairs = Vec::new();
        while pairs.len() < self.pairs
            || (pairs.len() < PAIRS_MAX && pairs.iter().any(|pair: &Vec<_>| !pair.is_empty()))
        {
            let seed = pairs.len() as u64 + 1;
            // By turns: whoever is first finds the machine as it is.
            if pairs.len().is_multiple_of(2) {
                row.on.push(self.once(scenario, &on, seed)?);
                row.off.push(self.once(scenario, &off, seed)?);
            } else {
                row.off.push(self.once(scenario, &off, seed)?);
                row.on.push(self.once(scenario, &on, seed)?);
            }
            let last = |runs: &[Run]| runs.last().map(|run| run.figures.clone()).unwrap_or_default();
            pairs.push(judge::harms(scenario, &last(&row.on), &last(&row.off)));
        }
        if let Some(peer) = &self.peer {
            row.peer = Some(self.once(scenario, peer, 1)?);
        }
        row.harms = judge::standing(&pairs);
        Ok(row)
    }

    fn once(&self, scenario: &Scenario, source: &Source, seed: u64) -> Result<Run> {
        let users = if scenario.has_users() { Users::One } else { Users::Nobody };
        let broker = source.start(&Wish { users, ..Wish::NONE }, &self.stop)?;
        let mut fleet = Fleet::new(scenario, self.phases, seed, broker.address, self.stop.clone())?;
        fleet.connect().with_context(|| source.name())?;
        let (meter, began) = (Meter::start(broker.pid), Instant::now());
        let figures = fleet.run(self.phases)?;
        let (_, cores) = meter.stop(began.elapsed().as_secs_f64());
        Ok(Run { figures, cores })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_quick_run_leaves_out_exists() {
        let is_there =
            |name: &&&str| table::all().any(|it| it.name == **name) || space::all().any(|it| it.name == **name);
        assert_eq!(NOT_QUICK.iter().filter(|name| !is_there(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
