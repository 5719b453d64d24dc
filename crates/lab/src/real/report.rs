//! What is shown: tables on the terminal, a table and JSON for programs, figures.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_sim::experiment::{figure, with_interval};
use tidegate_sim::report::VERSION;
use tidegate_sim::report::svg::{Bar, bars};
use tidegate_sim::statistics::Estimate;

use super::Testbed;
use super::air::Door;
use super::figures::{COLUMNS, Column, Figures};
use super::flood::Flooded;
use super::freshness::{self, FreshnessMark};
use super::plan::{PublisherDoor, control_name};

/// Columns that stand beside each other on a terminal.
const ACROSS: usize = 4;
const NAME_WIDTH: usize = 20;
const CELL_WIDTH: usize = 26;

impl Testbed<'_> {
    /// In words, what was run.
    pub(super) fn head(&self) -> String {
        let Some(gauge) = &self.gauge else { return String::new() };
        let args = self.args;
        let doors: Vec<&str> = args.door.iter().map(|door| door_name(*door)).collect();
        let publishers: Vec<&str> = args.publisher_door.iter().map(|door| publisher_name(*door)).collect();
        let interval = self.interval().as_secs_f64();
        format!(
            "tidegate {VERSION}: a broker slowed {:.1} times, to {:.0} checks/s ({:.0}/s as it is); a check takes {:.0} µs of \
             CPU, an update with its notification {:.0} µs, and a lone check {:.0} ms\n\
             {} KPs over {}, first interval {} ({:.2} times what the broker can answer), {} publishers over {}, {} updates/s for \
             each KP\n\
             {} of all messages of KPs lost, {} ms under way; seeds {} to {}, {} s each, after {} s\n",
            gauge.slow,
            gauge.capacity,
            gauge.capacity_unslowed,
            gauge.check_cpu * 1e6,
            gauge.update_cpu * 1e6,
            gauge.lone_latency * 1e3,
            args.kps,
            doors.join(" and "),
            seconds(interval),
            f64::from(args.kps) / (interval * gauge.capacity),
            args.publishers,
            publishers.join(", "),
            args.updates,
            percent(args.loss),
            args.delay.as_secs_f64() * 1e3,
            args.seed,
            args.seed + args.seeds - 1,
            args.secs,
            args.warm_up
        )
    }

    /// For people: a line for each control, real ± interval and the model behind a bar.
    pub(super) fn tables(&self) -> String {
        let mut text = String::new();
        if !self.contests.is_empty() {
            for columns in COLUMNS.chunks(ACROSS) {
                let _ = write!(text, "{:<NAME_WIDTH$}", "real | model");
                for column in columns {
                    let head = if column.unit.is_empty() {
                        column.head.to_owned()
                    } else {
                        format!("{}, {}", column.head, column.unit)
                    };
                    let _ = write!(text, "{head:>CELL_WIDTH$}");
                }
                text.push('\n');
                for contest in &self.contests {
                    let _ = write!(text, "{:<NAME_WIDTH$}", control_name(contest.control));
                    for column in columns {
                        let _ = write!(text, "{:>CELL_WIDTH$}", cell(column, &contest.real, &contest.model));
                    }
                    text.push('\n');
                }
                text.push('\n');
            }
        }
        if !self.flooded.is_empty() {
            text.push_str(&flood_table(&self.flooded));
        }
        text
    }

    /// What the columns mean.
    pub(super) fn legend(&self) -> String {
        let mut text = String::new();
        if !self.contests.is_empty() {
            for column in &COLUMNS {
                let _ = writeln!(text, "{:<NAME_WIDTH$}{}", column.head, column.meaning);
            }
            let _ = writeln!(
                text,
                "± half of the 95 % interval over the seeds; behind the bar what the model says, - where it says nothing"
            );
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let args = self.args;
        let gauge = self.gauge.as_ref().map(|gauge| {
            json!({
                "slow": gauge.slow, "capacity_per_s": gauge.capacity, "capacity_unslowed_per_s": gauge.capacity_unslowed,
                "lone_latency_s": gauge.lone_latency, "check_cpu_s": gauge.check_cpu, "update_cpu_s": gauge.update_cpu,
                "idle_cpu": gauge.idle_cpu, "request_bytes": gauge.request_bytes,
                "answer_bytes": gauge.answer_bytes, "notification_bytes": gauge.notification_bytes,
                "interval_s": self.interval().as_secs_f64(),
            })
        });
        let contests: Vec<Value> = self
            .contests
            .iter()
            .map(|contest| {
                let metrics = COLUMNS
                    .iter()
                    .map(|column| (column.name.to_owned(), metric(column, &contest.real, &contest.model)));
                json!({"control": control_name(contest.control), "metrics": metrics.collect::<serde_json::Map<_, _>>()})
            })
            .collect();
        let flood: Vec<Value> = self.flooded.iter().map(flood_json).collect();
        json!({
            "version": VERSION,
            "settings": {
                "kps": args.kps, "publishers": args.publishers, "loss": args.loss, "delay_s": args.delay.as_secs_f64(),
                "updates_per_s": args.updates, "seconds": args.secs, "warm_up": args.warm_up, "seed": args.seed,
                "seeds": args.seeds,
            },
            "host": gauge, "controls": contests, "flood": flood,
        })
    }

    /// The same as a table for programs.
    pub(super) fn csv(&self) -> String {
        let mut text = "control,metric,unit,real,real_half_width,runs,model,model_half_width\n".to_owned();
        for contest in &self.contests {
            for column in &COLUMNS {
                let (real, model) = (column.estimate(&contest.real), column.estimate(&contest.model));
                let pair = |estimate: Option<Estimate>| match estimate {
                    Some(Estimate { mean, half_width, .. }) if half_width.is_finite() => format!("{mean},{half_width}"),
                    Some(Estimate { mean, .. }) => format!("{mean},"),
                    None => ",".to_owned(),
                };
                let (name, unit, runs) = (column.name, column.unit, contest.real.len());
                let _ = writeln!(
                    text,
                    "{},{name},{unit},{},{runs},{}",
                    control_name(contest.control),
                    pair(real),
                    pair(model)
                );
            }
        }
        text
    }

    /// Files with figures.
    pub(super) fn figures(&self) -> Vec<(&'static str, String)> {
        let mut figures = Vec::new();
        if !self.contests.is_empty() {
            figures.push(("freshness.svg", self.freshness_figure()));
        }
        if !self.flooded.is_empty() {
            let cases: Vec<Bar> = self.flooded.iter().flat_map(flood_bars).collect();
            let title = "A flood of 20 MB: what of it crosses the network";
            figures
                .push(("flood.svg", bars(title, "MB acknowledged by TCP", "tidegate lab real --only flood", &cases)));
        }
        figures
    }

    /// Requests for each useful answer against staleness.
    fn freshness_figure(&self) -> String {
        let [stale, price] = [&COLUMNS[0], &COLUMNS[2]];
        let marks = self.contests.iter().filter_map(|contest| {
            let mean = |column: &Column| column.estimate(&contest.model).map(|estimate| estimate.mean);
            Some(FreshnessMark {
                name: control_name(contest.control).to_owned(),
                price: price.estimate(&contest.real),
                stale: stale.estimate(&contest.real)?,
                model: mean(price).zip(mean(stale)),
            })
        });
        let marks: Vec<FreshnessMark> = marks.collect();
        let caption = format!("{} KPs, {} seeds of {} s", self.args.kps, self.args.seeds, self.args.secs);
        freshness::svg(&marks, &caption)
    }
}

fn cell(column: &Column, real: &[Figures], model: &[Figures]) -> String {
    let model = column.estimate(model).map_or_else(|| "-".to_owned(), |model| figure(model.mean));
    let real = column.estimate(real).map_or_else(|| "-".to_owned(), with_interval);
    format!("{real} | {model}")
}

fn metric(column: &Column, real: &[Figures], model: &[Figures]) -> Value {
    let estimate = |estimate: Option<Estimate>| match estimate {
        Some(Estimate { mean, half_width, .. }) => json!({"mean": mean, "half_width": half_width}),
        None => Value::Null,
    };
    json!({
        "unit": column.unit, "real": estimate(column.estimate(real)), "model": estimate(column.estimate(model)),
        "runs": column.values(real),
    })
}

fn flood_table(flooded: &[Flooded]) -> String {
    let mut text = format!("{:<NAME_WIDTH$}", "flood, real | model");
    for head in ["MB acknowledged, of 20", "rare, mean ms", "rare, longest ms", "rare, arrived"] {
        let _ = write!(text, "{head:>CELL_WIDTH$}");
    }
    text.push('\n');
    for Flooded { setting, real, model } in flooded {
        let pair = |real: f64, model: f64| {
            let word = |value: f64| if value.is_finite() { figure(value) } else { "-".to_owned() };
            format!("{} | {}", word(real), word(model))
        };
        let _ = writeln!(
            text,
            "{:<NAME_WIDTH$}{:>CELL_WIDTH$}{:>CELL_WIDTH$}{:>CELL_WIDTH$}{:>CELL_WIDTH$}",
            setting.name,
            pair(real.acked / 1e6, model.acked / 1e6),
            pair(real.rare_mean * 1e3, model.rare_mean * 1e3),
            pair(real.rare_max * 1e3, model.rare_max * 1e3),
            format!("{} of {} | {}", real.rare_arrived, real.rare_sent, model.rare_arrived),
        );
    }
    text
}

fn flood_bars(flooded: &Flooded) -> [Bar; 2] {
    let Flooded { setting, real, model } = flooded;
    let bar = |name: String, bytes: f64| Bar { name, mean: bytes / 1e6, ..Bar::default() };
    [bar(setting.name.to_owned(), real.acked), bar(format!("model: {}", setting.name), model.acked)]
}

fn flood_json(flooded: &Flooded) -> Value {
    let of = |figures: &super::flood::FloodFigures| {
        json!({
            "acknowledged_bytes": figures.acked, "offered_bytes": figures.offered, "rare_mean_s": figures.rare_mean,
            "rare_longest_s": figures.rare_max, "rare_arrived": figures.rare_arrived, "rare_sent": figures.rare_sent,
        })
    };
    json!({"setting": flooded.setting.name, "real": of(&flooded.real), "model": of(&flooded.model)})
}

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{:.0} ms", value * 1e3) } else { format!("{value:.2} s") }
}

fn percent(share: f64) -> String {
    format!("{} %", figure(share * 100.0))
}

const fn door_name(door: Door) -> &'static str {
    match door {
        Door::Ssap => "SSAP",
        Door::Http => "HTTP",
    }
}

const fn publisher_name(door: PublisherDoor) -> &'static str {
    match door {
        PublisherDoor::Ssap => "SSAP",
        PublisherDoor::Http => "HTTP",
        PublisherDoor::Mqtt => "MQTT",
    }
}
