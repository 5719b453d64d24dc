//! What is run: the numbers of the command line, checked.

use std::time::Duration;

use clap::Args;
use tidegate_control::pacer::Preset;
use tidegate_control::time::parse_time;

use super::air::Door;

/// Arguments of `tidegate lab real`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RealArgs {
    /// Knowledge processors, each with a link and a persistent query of its own
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub(super) kps: u32,
    /// Publishers, which change what the KPs watch
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(super) publishers: u32,
    /// What the KPs do, each in a run of its own: names of `tidegate kp watch --control`, and `ours` for active
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = control)]
    #[arg(default_value = "none,fixed,adaptive-equation3,active-p19,ours")]
    pub(super) control: Vec<Preset>,
    /// Share of the requests, answers and notifications of KPs that never arrive
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = loss)]
    pub(super) loss: f64,
    /// How long a message to or from a KP is under way
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = delay)]
    pub(super) delay: Duration,
    /// The host is slowed until it can answer so many checks a second
    #[arg(long, value_name = "N", default_value_t = 1000.0, value_parser = capacity, conflicts_with = "slow")]
    pub(super) capacity: f64,
    /// The host is this many times slower than it is
    #[arg(long, value_name = "TIMES", value_parser = slow)]
    pub(super) slow: Option<f64>,
    /// What all KPs would ask at their first interval, as a multiple of what the host can answer
    #[arg(long, value_name = "TIMES", default_value_t = 1.5, value_parser = load, conflicts_with = "interval")]
    pub(super) load: f64,
    /// The first interval of the KPs' checks; else it follows from the load
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(super) interval: Option<Duration>,
    /// How often what a KP watches is changed, by second
    #[arg(long, value_name = "RATE", default_value_t = 0.3, value_parser = rate)]
    pub(super) updates: f64,
    /// Seconds that are measured in each run
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = seconds)]
    pub(super) secs: f64,
    /// Seconds before that
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub(super) warm_up: f64,
    /// Runs of each control, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) seeds: u32,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u32,
    /// How KPs speak to the broker, in turn: ssap, http
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "ssap,http", value_parser = door)]
    pub(super) door: Vec<Door>,
    /// How publishers speak to it, in turn: ssap, http, mqtt
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "ssap,http,mqtt")]
    pub(super) publisher_door: Vec<PublisherDoor>,
    /// A setting of the broker, as for `tidegate serve`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Only the KPs, or only the flood of MQTT
    #[arg(long, value_name = "PART")]
    pub(super) only: Option<Part>,
    /// Print the figures as JSON instead of tables
    #[arg(long)]
    pub(super) json: bool,
    /// Where to write tables and figures
    #[arg(long, value_name = "DIR", default_value = "lab-real")]
    pub(super) out: std::path::PathBuf,
}

/// How a publisher speaks to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PublisherDoor {
    /// UPDATE of SSAP
    Ssap,
    /// SPARQL over HTTP
    Http,
    /// PUBLISH, which a map takes into the space
    Mqtt,
}

/// A part of the testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// KPs that watch and check
    Kps,
    /// A publisher that floods
    Flood,
}

impl RealArgs {
    pub(super) fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    /// The longest that an answer is awaited: that of the evaluation.
    pub(super) const PATIENCE: Duration = Duration::from_secs(2);

    /// A message is lost, or the answer to it.
    pub(super) fn exchange_loss(&self) -> f64 {
        1.0 - (1.0 - self.loss).powi(2)
    }

    /// The door of a KP.
    pub(super) fn door_of(&self, kp: usize) -> Door {
        self.door.get(kp % self.door.len().max(1)).copied().unwrap_or(Door::Ssap)
    }

    pub(super) fn publisher_door_of(&self, publisher: usize) -> PublisherDoor {
        let doors = &self.publisher_door;
        doors.get(publisher % doors.len().max(1)).copied().unwrap_or(PublisherDoor::Http)
    }
}

/// The name of a control in tables: ours is what ships.
pub(super) fn control_name(control: Preset) -> &'static str {
    if control == Preset::default() { "ours" } else { control.name() }
}

fn control(text: &str) -> Result<Preset, String> {
    if text == "ours" {
        return Ok(Preset::default());
    }
    text.parse().map_err(|error: tidegate_control::UnknownName| error.to_string())
}

fn door(text: &str) -> Result<Door, String> {
    match text {
        "ssap" => Ok(Door::Ssap),
        "http" => Ok(Door::Http),
        _ => Err("expected ssap or http".to_owned()),
    }
}

fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("expected a number from {low} to {high}"))
}

fn loss(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    share.ok().filter(|share| (0.0..=0.9).contains(share)).ok_or_else(|| "expected a share from 0% to 90%".to_owned())
}

fn time(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = parse_time(text).filter(|time| (least..=most).contains(time));
    time.ok_or_else(|| format!("expected a time from {least:?} to {most:?}"))
}

fn delay(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { time(text, Duration::ZERO, Duration::from_secs(5)) }
}

fn interval(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(20), Duration::from_secs(600))
}

fn capacity(text: &str) -> Result<f64, String> {
    number(text.strip_suffix("/s").unwrap_or(text), 10.0, 1e6)
}

fn slow(text: &str) -> Result<f64, String> {
    number(text, 1.0, 200.0)
}

fn load(text: &str) -> Result<f64, String> {
    number(text, 0.01, 100.0)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text.strip_suffix("/s").unwrap_or(text), 0.0, 100.0)
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text.strip_suffix('s').unwrap_or(text), 0.5, 600.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_read_or_refused_with_what_was_expected() {
        assert_eq!((loss("5%"), loss("0.05")), (Ok(0.05), Ok(0.05)));
        assert!(loss("100%").is_err() && loss("-1").is_err() && loss("x%").is_err());
        assert_eq!(delay("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!((capacity("200/s"), slow("4"), rate("0.5/s")), (Ok(200.0), Ok(4.0), Ok(0.5)));
        assert!(slow("0.5").is_err_and(|text| text.contains("from 1 to 200")));
        assert_eq!(control("ours"), Ok(Preset::Active));
        assert!(control("active-p20").is_err_and(|text| text.contains("active-p19")));
        for preset in Preset::ALL {
            assert_eq!(control(control_name(*preset)), Ok(*preset));
        }
    }
}
