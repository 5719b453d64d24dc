//! `tidegate lab real`: a real broker, real clients, and a network that loses and delays, beside what the model says of the same.
//!
//! A run is a [`room`]: a broker process, which is slowed ([`host`], [`duty`]), KPs behind links ([`kp`], [`air`]), publishers
//! ([`publisher`]), and a book of what is true and who knows it ([`copies`]). Before all runs the broker is measured ([`gauge`]);
//! the model is told the result ([`predict`]). Nothing here decides about pace: KPs are the client library as it is.

mod air;
mod copies;
mod duty;
mod figures;
mod flood;
mod freshness;
mod gauge;
mod host;
mod kp;
mod plan;
mod predict;
mod publisher;
mod report;
mod room;

use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_control::pacer::Preset;
use tidegate_program::{Stop, say};

use figures::Figures;
use flood::Flooded;
use gauge::Gauge;
pub(crate) use plan::RealArgs;
use plan::{Part, control_name};
use room::Room;

/// Everything that was measured.
struct Testbed<'a> {
    args: &'a RealArgs,
    gauge: Option<Gauge>,
    contests: Vec<Contest>,
    flooded: Vec<Flooded>,
}

/// What became of one control.
#[derive(Clone, Debug)]
struct Contest {
    control: Preset,
    real: Vec<Figures>,
    model: Vec<Figures>,
}

pub(crate) fn run(args: &RealArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    raise_descriptors();
    let mut testbed = Testbed { args, gauge: None, contests: Vec::new(), flooded: Vec::new() };
    if args.wants(Part::Kps) {
        testbed.gauge = Some(within(gauge::gauge(args)).context("measuring the broker")?);
        if !args.json {
            say!("{}", testbed.head());
        }
        testbed.contest(&stop)?;
    }
    if args.wants(Part::Flood) {
        progress("flood");
        testbed.flooded = within(flood::run(&stop)).context("flood")?;
    }
    progress("");
    testbed.show()?;
    Ok(0)
}

impl Testbed<'_> {
    /// The first interval of the KPs.
    fn interval(&self) -> Duration {
        self.gauge.as_ref().map_or(Duration::ZERO, |gauge| predict::interval(self.args, gauge))
    }

    /// All controls with all seeds; the seeds outside, so that what else happens on this machine meets every control.
    fn contest(&mut self, stop: &Stop) -> Result<()> {
        let (args, Some(gauge)) = (self.args, self.gauge) else { return Ok(()) };
        for control in &args.control {
            let model = predict::predict(args, &gauge, *control)?;
            self.contests.push(Contest { control: *control, real: Vec::new(), model });
        }
        for number in 0..args.seeds {
            let seed = u64::from(args.seed) + u64::from(number);
            for contest in &mut self.contests {
                let name = control_name(contest.control);
                progress(&format!("{name}, seed {seed}"));
                let pacer = predict::pacer(args, &gauge, contest.control)?;
                let figures = within(async {
                    let room = Room::open(args, args.kps as usize, seed).await?;
                    room.run(&pacer, gauge.slow, stop).await
                });
                contest.real.push(Figures::of(&figures.with_context(|| format!("{name}, seed {seed}"))?));
            }
        }
        Ok(())
    }

    fn show(&self) -> Result<()> {
        let (folder, json) = (&self.args.out, serde_json::to_string_pretty(&self.json())?);
        super::write(&folder.join("real.json"), &json)?;
        super::write(&folder.join("real.csv"), &self.csv())?;
        for (file, svg) in self.figures() {
            super::write(&folder.join(file), &svg)?;
        }
        let mut out = std::io::stdout().lock();
        if self.args.json {
            writeln!(out, "{json}")?;
        } else {
            writeln!(out, "{}\n{}see {}", self.tables(), self.legend(), folder.display())?;
        }
        Ok(())
    }
}

/// Says what is under way, to whoever looks.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{what:<60}\r");
    }
}

/// In a runtime of its own, on this thread: everything in it ends with it, and the broker has the other processors for itself.
fn within<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(future)
}

/// Each KP has some ten descriptors.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
