//! `tidegate bench harm`: whether overload control does harm. The scenarios of `tidegate_sim::zoo` on sockets, with
//! default settings and with control off, in turns, and beside mosquitto.
//!
//! A *pair* is one run with control and one without, each on a fresh broker. Where clients have been there for long, both
//! find what a broker learns of them in virtual time in their store (`world::learned`), as after a restart. If something is
//! worse with control more pairs are run, until it can be told whether that is chance (`zoo::verdict`). The exit code is 1
//! if there is HARM.

mod fleet;
mod plan;
mod report;
mod space;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tidegate_broker::store_link::write_learned;
use tidegate_control::Timestamp;
use tidegate_core::persist::SavedRhythm;
use tidegate_program::{Stop, Usage};
use tidegate_sim::zoo::judge::{self, Comparison, HarmFigure, SOCKETS};
use tidegate_sim::zoo::model::ZooScenario;
use tidegate_sim::zoo::space as zoo_space;
use tidegate_sim::zoo::tally::Figures;
use tidegate_sim::zoo::verdict::{self, HarmVerdict};
use tidegate_sim::zoo::{table, world};

use crate::arguments::BenchArgs;
use crate::cases::UserCheck;
use crate::outcome::Cores;
use crate::peers;
use crate::process::{BrokerNeeds, BrokerSource, Tune};
use crate::procfs::{self, CpuMeter};
use crate::report::BrokerRole;
use fleet::HarmFleet;
use plan::{HarmPlan, SECS, SECS_QUICK};

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
/// Where the processor's time is what is scarce, and a delivery with control may cost little more than without.
const COSTS: &[&str] = &["fan-in-500k", "fan-in-200k", "fan-in-blast", "pairs-blast"];
/// Control off.
const OFF: Tune = Tune { name: "off", role: BrokerRole::Own, settings: &["backoff.mode=off", "priority.mode=off"] };
/// Control as it is shipped.
const ON: Tune = Tune { name: "on", role: BrokerRole::Own, settings: &[] };
/// By what chance clients have behaved before they came.
const SEED_BEFORE: u64 = 1;

/// What a broker knows of its clients, and when it knew it.
type Before = (Vec<SavedRhythm>, Timestamp);

/// One run of a scenario.
#[derive(Clone, Debug)]
struct HarmRun {
    figures: Vec<Figures>,
    cores: Cores,
    /// The broker's processor time for a delivery; not a number where that cannot be known.
    cpu_us: f64,
}

/// All runs of a scenario.
#[derive(Debug)]
struct HarmRow {
    scenario: &'static ZooScenario,
    /// How many clients the broker knew before.
    known: usize,
    on: Vec<HarmRun>,
    off: Vec<HarmRun>,
    /// What became of the peer, or why it was not run.
    peer: Option<Result<HarmRun, String>>,
    verdict: HarmVerdict,
}

struct Zoo {
    secs: f64,
    peer: Option<BrokerSource>,
    stop: Stop,
}

pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let plan = chosen(args)?;
    procfs::raise_file_limit();
    let zoo = Zoo { secs: plan.secs, peer: find_peer(args)?, stop: Stop::on_signals()? };
    let is_quiet = args.json.as_deref() == Some(Path::new("-"));
    let say = |text: &str| {
        if !is_quiet {
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    };
    say(&report::head(&plan, zoo.peer.as_ref()));
    let began = Instant::now();
    let (mut rows, mut failures, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    for scenario in &plan.scenarios {
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
    for desk in &plan.desks {
        match space::run(desk, &zoo.stop, plan::space_phases(plan.secs)) {
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
        let text = format!("{}\n", report::json(&rows, &shown, &failures, plan.secs));
        if is_quiet {
            std::io::stdout().lock().write_all(text.as_bytes())?;
        } else {
            std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
        }
    }
    let mut verdicts = rows.iter().map(|row| &row.verdict).chain(shown.iter().map(|row| &row.verdict));
    Ok(u8::from(verdicts.any(|verdict| !verdict.harms.is_empty()) || !failures.is_empty()))
}

/// What the arguments choose.
fn chosen(args: &BenchArgs) -> Result<HarmPlan> {
    let is_wanted = |name: &str| match args.only.as_slice() {
        [] => !args.quick || !NOT_QUICK.contains(&name),
        only => only.iter().any(|part| name.contains(part)),
    };
    let scenarios: Vec<_> = table::all().filter(|scenario| is_wanted(scenario.name)).collect();
    let desks: Vec<_> = zoo_space::all().filter(|scenario| is_wanted(scenario.name)).collect();
    if scenarios.is_empty() && desks.is_empty() {
        let names: Vec<_> = table::all().map(|it| it.name).chain(zoo_space::all().map(|it| it.name)).collect();
        let said = anyhow::anyhow!("--only {:?} is in no scenario's name; there are: {}", args.only, names.join(", "));
        return Err(said.context(Usage));
    }
    Ok(HarmPlan { scenarios, desks, secs: args.secs.unwrap_or(if args.quick { SECS_QUICK } else { SECS }) })
}

/// mosquitto, where it is; none if none is wanted.
fn find_peer(args: &BenchArgs) -> Result<Option<BrokerSource>> {
    match args.peer.as_deref() {
        Some(path) if path == Path::new("none") => Ok(None),
        None if args.quick => Ok(None),
        Some(path) if path != Path::new("mosquitto") => {
            if !path.exists() {
                bail!("--peer {}: no such file", path.display());
            }
            Ok(Some(BrokerSource::Mosquitto(path.to_owned())))
        }
        _ => {
            let found: Option<PathBuf> = peers::find_mosquitto();
            if found.is_none() {
                eprintln!("SKIPPED beside mosquitto: {}", peers::GET_MOSQUITTO);
            }
            Ok(found.map(BrokerSource::Mosquitto))
        }
    }
}

impl Zoo {
    fn run(&self, scenario: &'static ZooScenario) -> Result<HarmRow> {
        let own = |tune| BrokerSource::Tidegate { shards: Some(u32::from(scenario.shards)), tune };
        let (on, off) = (own(ON), own(OFF));
        let before = world::learned(scenario, SEED_BEFORE);
        let (known, verdict) = (before.0.len(), HarmVerdict::default());
        let mut row = HarmRow { scenario, known, on: Vec::new(), off: Vec::new(), peer: None, verdict };
        let mut pairs: Vec<Vec<Comparison>> = Vec::new();
        while verdict::is_open(&pairs, &SOCKETS) {
            let seed = pairs.len() as u64 + 1;
            // By turns: whoever is first finds the machine as it is.
            let is_on_first = pairs.len().is_multiple_of(2);
            let first = self.once(scenario, if is_on_first { &on } else { &off }, &before, seed)?;
            let second = self.once(scenario, if is_on_first { &off } else { &on }, &before, seed)?;
            let (with, without) = if is_on_first { (first, second) } else { (second, first) };
            pairs.push(compare(scenario, &with, &without));
            row.on.push(with);
            row.off.push(without);
        }
        if let Some(peer) = &self.peer {
            // What a peer cannot do is not our failure.
            row.peer = Some(self.once(scenario, peer, &before, 1).map_err(|error| format!("{error:#}")));
        }
        row.verdict = HarmVerdict::of(&pairs, &SOCKETS);
        Ok(row)
    }

    fn once(&self, scenario: &ZooScenario, source: &BrokerSource, before: &Before, seed: u64) -> Result<HarmRun> {
        let users = if scenario.has_users() { UserCheck::One } else { UserCheck::Nobody };
        let (learned, at) = before;
        let prepare = |store: &Path| {
            if !learned.is_empty() {
                write_learned(store, learned, *at)?;
            }
            Ok(())
        };
        let broker = source.start_with(&BrokerNeeds { users, ..BrokerNeeds::NONE }, prepare, &self.stop)?;
        let phases = plan::phases(scenario, self.secs);
        let mut fleet = HarmFleet::new(scenario, phases, seed, broker.address, self.stop.clone())?;
        fleet.connect().with_context(|| source.name())?;
        let cpu = || broker.pid.and_then(procfs::cpu_ns);
        let (meter, began, cpu_before) = (CpuMeter::start(broker.pid), Instant::now(), cpu());
        let mut figures = fleet.run(phases)?;
        let spent = cpu_before.zip(cpu()).map_or(f64::NAN, |(before, after)| after.saturating_sub(before) as f64 / 1e3);
        let (_, cores) = meter.stop(began.elapsed().as_secs_f64());
        let delivered: u64 = figures.iter().map(|figures| figures.delivered).sum();
        // What comes after would not be the same with control and without.
        if matches!(source, BrokerSource::Tidegate { tune, .. } if *tune == ON) {
            fleet.watch(phases, &mut figures)?;
        }
        Ok(HarmRun { figures, cores, cpu_us: spent / delivered as f64 })
    }
}

/// One pair of runs.
fn compare(scenario: &ZooScenario, on: &HarmRun, off: &HarmRun) -> Vec<Comparison> {
    let mut found = judge::compare(scenario, &on.figures, &off.figures);
    if COSTS.contains(&scenario.name) && on.cpu_us.is_finite() && off.cpu_us.is_finite() {
        found.push(Comparison { cohort: "all", figure: HarmFigure::Cpu, on: on.cpu_us, off: off.cpu_us });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_of_a_quick_run_or_judged_by_its_cost_exists() {
        let is_there =
            |name: &&&str| table::all().any(|it| it.name == **name) || zoo_space::all().any(|it| it.name == **name);
        let named = NOT_QUICK.iter().chain(COSTS);
        assert_eq!(named.filter(|name| !is_there(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
