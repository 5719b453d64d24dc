//! `tidegate demo flood`: what one misbehaving publisher does to twenty others, with control off and with the defaults.
//!
//! Two runs against a broker of this process, on free ports of this machine, with the same people: first everybody keeps
//! its rhythm, then one publishes a hundred times as much. The others' messages are followed to the end of the
//! subscriber's work. What is printed was measured; nothing is made up. Off is what `tidegate bench harm` calls off.

mod fleet;
mod live;
mod report;

pub(crate) use live::LiveDemo;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_admin::{Admin, ProcessControl, Reloaded, UserDirectory};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_control::rhythm::{Enforcement, RhythmConfig};
use tidegate_core::access::Open;
use tidegate_core::classes::Priority;
use tidegate_core::settings::{BackOff, Settings};
use tidegate_wire_mqtt::QoS;

use crate::arguments::FloodArgs;
use crate::operate::why_text;
use fleet::{Actor, DemoShared, database, flooder, sensor};
use report::{DemoRun, Report};
use tidegate_program::{AdminClient, out, say};

/// Well-behaved publishers.
const SENSORS: u32 = 20;
/// What the flooder publishes while it behaves, per second.
const USUAL_RATE: u32 = 10;
/// How long everybody behaves. Too short for claims, which take a minute: with the defaults it is the fair queue of the
/// subscriber that is shown. Enforced rhythms are learned from the first intervals.
const CALM: Duration = Duration::from_secs(5);
/// The last so much of that is what the flood is compared with.
const BEFORE: Duration = Duration::from_secs(3);

/// Which control the broker of a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DemoControl {
    /// None: one line for everybody, and whoever comes to a full one is lost.
    Off,
    /// As it ships.
    Default,
    /// As it ships, and whoever breaks its rhythm is held and refused.
    Always,
}

impl DemoControl {
    /// As a configuration says it.
    const fn words(self) -> &'static str {
        match self {
            Self::Off => "backoff.mode = \"off\", priority.mode = \"off\": one line for everybody",
            Self::Default => "the defaults: each publisher has a line of its own, and nobody is held",
            Self::Always => "backoff.enforce = \"always\": and whoever breaks its rhythm is held and refused",
        }
    }

    fn settings(self) -> Settings {
        let settings = Settings::default();
        let defaults = BackOff::default();
        match self {
            Self::Off => {
                Settings { back_off: BackOff { rhythm: None, ..defaults }, priority: Priority::off(), ..settings }
            }
            Self::Default => settings,
            Self::Always => {
                let always = |rhythm| RhythmConfig { enforcement: Enforcement::Always, ..rhythm };
                Settings { back_off: BackOff { rhythm: defaults.rhythm.map(always), ..defaults }, ..settings }
            }
        }
    }
}

/// `tidegate demo flood`.
pub(crate) fn flood(args: &FloodArgs) -> Result<u8> {
    let rate = USUAL_RATE.saturating_mul(args.times);
    let seconds = (CALM + args.flood).as_secs_f64() * 2.0;
    let control = if args.always { DemoControl::Always } else { DemoControl::Default };
    if !args.json {
        say!(
            "{SENSORS} publishers keep their rhythm ({} messages/s together); one of {USUAL_RATE}/s starts to send \
             {rate}/s;\none subscriber takes {} messages/s. Two runs, {seconds:.0} s in all:\n\
             CONTROL OFF  {}\nCONTROL ON   {}\n",
            (0..SENSORS).map(|number| 1 + number % 10).sum::<u32>(),
            1000 / fleet::SERVICE.as_millis(),
            DemoControl::Off.words(),
            control.words(),
        );
    }
    let off = run(DemoControl::Off, rate, args).context("the run with control off")?;
    let on = run(control, rate, args).context("the run with control on")?;
    let report = Report { off, on, times: args.times };
    if args.json {
        say!("{:#}", report.json());
    } else {
        out(&report.text());
    }
    Ok(0)
}

/// One run.
fn run(control: DemoControl, rate: u32, args: &FloodArgs) -> Result<DemoRun> {
    let name = if control == DemoControl::Off { "off" } else { "on" };
    let DemoBroker { door, stage, actors, .. } = &mut DemoBroker::open(control)?;
    progress(&format!("control {name}: everybody keeps its rhythm"));
    std::thread::sleep(CALM);
    let flooded_at = stage.elapsed();
    let (offered, refused) = (stage.offered.load(Ordering::Relaxed), stage.refused.load(Ordering::Relaxed));
    let before = door.get("/api/v1/clients/flooder")?;
    progress(&format!("control {name}: one publisher sends {rate}/s"));
    stage.flooder_rate.store(rate, Ordering::Relaxed);
    std::thread::sleep(args.flood);
    let ended_at = stage.elapsed();
    let why = why_text(door, "flooder")?;
    let culprit = report::culprit(&door.get("/api/v1/clients/database/why")?);
    let after = door.get("/api/v1/clients/flooder")?;
    let offered = stage.offered.load(Ordering::Relaxed) - offered;
    let refused = stage.refused.load(Ordering::Relaxed) - refused;
    let subscriber = door.get("/api/v1/clients/database")?;
    let [dropped, queued] = ["drops", "queue_messages"].map(|name| subscriber[name].as_u64().unwrap_or(0));
    // Nobody waits longer than this for the last of the others' messages: later counts as late.
    std::thread::sleep(report::LATE);
    stage.end();
    for actor in actors.drain(..) {
        // Whose connection was ended early has ended its thread; that is part of the show.
        let _ = actor.join();
    }
    progress("");
    let passed = after["passed"].as_u64().unwrap_or(0).saturating_sub(before["passed"].as_u64().unwrap_or(0));
    let held = after["held"].as_u64().unwrap_or(0);
    let calm = flooded_at.saturating_sub(BEFORE)..flooded_at;
    Ok(DemoRun::new(
        &stage.trips(),
        calm,
        flooded_at..ended_at,
        report::Flooder { offered, passed, held, refused, dropped, queued },
        report::DemoWords { culprit, why },
    ))
}

/// A broker of its own on free ports of this machine, and everybody in it. Closed when it is dropped.
struct DemoBroker {
    door: AdminClient,
    stage: Arc<DemoShared>,
    actors: Vec<Actor>,
    _admin: Admin,
    _broker: Broker,
}

impl DemoBroker {
    fn open(control: DemoControl) -> Result<Self> {
        let bind = ([127, 0, 0, 1], 0).into();
        let config = Config {
            listeners: vec![Listener::new(ListenerKind::Mqtt, bind)],
            shards: 1,
            settings: control.settings(),
            drain_timeout: Duration::from_secs(2),
            ..Config::default()
        };
        let broker = Broker::start(config, Arc::new(Anonymous), Arc::new(Open))?;
        let at = broker.addresses().first().map(|(_, at)| *at).context("the broker has no address")?;
        let admin = Admin::start(bind, broker.handle(), Arc::new(NoProcess(control)), None)?;
        let stage = DemoShared::new(USUAL_RATE);
        let mut actors = vec![database(&stage, at)?, flooder(&stage, at)?];
        for number in 0..SENSORS {
            let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number as usize % 3];
            actors.push(sensor(&stage, at, number, qos)?);
        }
        let at = admin.address().context("the admin API has no address")?;
        Ok(Self { door: AdminClient::at(at), stage, actors, _admin: admin, _broker: broker })
    }
}

/// On a terminal: what is going on, in one line that is overwritten.
fn progress(text: &str) {
    use std::io::{IsTerminal, Write};
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[K{text}");
        let _ = out.flush();
    }
}

/// This process has no configuration to read again.
#[derive(Debug)]
struct NoProcess(DemoControl);

impl ProcessControl for NoProcess {
    fn reload(&self) -> Result<Reloaded, Vec<String>> {
        Err(vec!["a demonstration has no configuration".to_owned()])
    }

    fn backup(&self, _: &std::path::Path) -> Result<String, String> {
        Err("a demonstration keeps nothing".to_owned())
    }

    fn drain(&self) {}

    fn directory(&self) -> Option<UserDirectory> {
        None
    }

    fn unready(&self) -> Option<&'static str> {
        None
    }

    fn is_gate_off(&self) -> bool {
        self.0 == DemoControl::Off
    }
}
