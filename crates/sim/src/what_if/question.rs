//! A question about a trace, as it is written on a command line, and the load that it speaks of.

use std::time::Duration;

use tidegate_control::time::parse_time;
use tidegate_core::settings::Rate;
use tidegate_core::trace::{ALL, Arrival, MESSAGES_MAX, NUMBERS_MAX, Trace};

use super::settings::Asked;
use crate::chance::Stream;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    pub devices: Vec<Devices>,
    pub limits: Vec<Limit>,
    pub(super) settings: Asked,
    /// Messages a second that the reader takes; none for as many as come.
    pub reader: Option<f64>,
    /// Decides when copies of a device send.
    pub seed: u64,
}

/// So many times the devices of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Devices {
    /// None for everybody.
    pub group: Option<u8>,
    pub factor: f64,
}

/// A limit for each publisher of a group; 0 is everybody.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub group: u8,
    pub rate: Rate,
    /// As it is written in a configuration.
    pub text: String,
}

/// Devices may be so many times as many.
const FACTORS: std::ops::RangeInclusive<f64> = 0.01..=1000.0;
/// A copy of a device that sends seldom begins within this time, seconds.
const SHIFT_MAX: f64 = 60.0;

impl Question {
    /// Reads `x3` and `sensors=x3`, `sensors=5/s` and `all=20/s`, `backoff.enforce=always`, and the reader's messages a second.
    pub fn read(
        trace: &Trace,
        devices: &[String],
        limits: &[String],
        set: &[String],
        reader: Option<f64>,
    ) -> Result<Self, String> {
        let mut question = Self { reader, seed: 1, ..Self::default() };
        for text in devices {
            let (group, factor) = text.split_once('=').unwrap_or((ALL, text));
            let number = factor.trim().trim_start_matches(['x', 'X', '×']).parse().ok();
            let factor = number.filter(|factor| FACTORS.contains(factor));
            let factor =
                factor.ok_or_else(|| format!("--devices {text}: expected x3, x1.5 or GROUP=x3, up to x1000"))?;
            let group = Some(group_named(trace, "--devices", group)?).filter(|group| *group > 0);
            question.devices.push(Devices { group, factor });
        }
        for text in limits {
            let (name, rate) = text.split_once('=').unwrap_or((ALL, text));
            let expected = || format!("--limit {text}: expected GROUP=5/s, all=20/s, all=30/m or all=100/h");
            let limit = Limit {
                group: group_named(trace, "--limit", name)?,
                rate: rate_of(rate).ok_or_else(expected)?,
                text: rate.trim().to_owned(),
            };
            if question.limits.iter().any(|other| other.group == limit.group) {
                return Err(format!("--limit {text}: there is a limit for {name} already"));
            }
            question.limits.push(limit);
        }
        for text in set {
            question.settings.read(text)?;
        }
        if let Some(rate) = question.settings.take_rate() {
            let expected = || format!("--set limits.rate={rate}: expected 5/s, 30/m or 100/h");
            let limit = Limit { group: 0, rate: rate_of(&rate).ok_or_else(expected)?, text: rate };
            question.limits.retain(|limit| limit.group != 0);
            question.limits.push(limit);
        }
        Ok(question)
    }

    /// Whether it is about more than the load.
    pub fn has_settings(&self) -> bool {
        !self.limits.is_empty() || !self.settings.is_empty()
    }

    pub(super) fn limit_of_all(&self) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.group == 0)
    }

    pub(super) fn devices_in_words(&self, trace: &Trace) -> String {
        let part = |devices: &Devices| match devices.group {
            Some(group) => format!("{} x{}", super::name_of(trace, group), devices.factor),
            None => format!("devices x{}", devices.factor),
        };
        self.devices.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    /// The trace with the devices that are asked about; none if there are as many as were recorded.
    pub(super) fn applied_to(&self, trace: &Trace) -> Result<Option<Trace>, String> {
        let factor_of = |group: u8| {
            let mine = self.devices.iter().filter(|it| it.group.is_none_or(|of| of == group));
            mine.map(|devices| devices.factor).product::<f64>()
        };
        let groups = trace.group_of_publishers();
        let factors: Vec<f64> = groups.iter().map(|group| factor_of(*group)).collect();
        if factors.iter().all(|factor| *factor == 1.0) {
            return Ok(None);
        }
        let chance = Stream::of(self.seed, "devices");
        let shifts = shifts(trace);
        // Of each publisher: the numbers of those that stand for it, and by how much they are later.
        let mut copies: Vec<Vec<(u32, u64)>> = Vec::with_capacity(factors.len());
        let mut next = trace.publishers();
        for (publisher, factor) in factors.iter().enumerate() {
            let mut chance = chance.member(publisher as u64);
            let count = factor.floor() as u32 + u32::from(chance.happens(factor.fract()));
            let own = (count > 0).then_some((publisher as u32, 0));
            let more = (1..count).map(|_| {
                next += 1;
                (next - 1, (chance.unit() * shifts[publisher] * 1e6) as u64)
            });
            copies.push(own.into_iter().chain(more).collect());
        }
        if next >= NUMBERS_MAX {
            return Err(format!("more than {} publishers", NUMBERS_MAX - 1));
        }
        let of = |arrival: &Arrival| &copies[arrival.publisher as usize];
        let messages: usize = trace.arrivals().iter().map(|arrival| of(arrival).len()).sum();
        if messages > MESSAGES_MAX {
            return Err(format!("{messages} messages, of which {MESSAGES_MAX} at most can be looked at"));
        }
        if messages == 0 {
            return Err("nobody would be left who publishes".to_owned());
        }
        let copied = |arrival: &Arrival| {
            let arrival = *arrival;
            let copy = move |(publisher, later): &(u32, u64)| Arrival {
                micros: arrival.micros + later,
                publisher: *publisher,
                // Each to topics of its own.
                topic: arrival.topic.wrapping_add(publisher.wrapping_sub(arrival.publisher)) % NUMBERS_MAX,
                ..arrival
            };
            of(&arrival).iter().map(copy).collect::<Vec<_>>()
        };
        let arrivals = trace.arrivals().iter().flat_map(copied).collect();
        Ok(Some(Trace::new(arrivals).with_groups(trace.groups().to_vec())))
    }
}

/// The time within which a copy of each publisher begins: about as long as it waits between two messages.
fn shifts(trace: &Trace) -> Vec<f64> {
    let mut seen = vec![(0_u64, 0_u64, 0_u64); trace.publishers() as usize];
    for arrival in trace.arrivals() {
        let (count, first, last) = &mut seen[arrival.publisher as usize];
        *first = if *count == 0 { arrival.micros } else { *first };
        (*count, *last) = (*count + 1, arrival.micros);
    }
    let mean = |(count, first, last): &(u64, u64, u64)| match count.checked_sub(1) {
        Some(gaps) if gaps > 0 => ((last - first) as f64 * 1e-6 / gaps as f64).min(SHIFT_MAX),
        _ => SHIFT_MAX,
    };
    seen.iter().map(mean).collect()
}

fn group_named(trace: &Trace, flag: &str, name: &str) -> Result<u8, String> {
    let name = name.trim();
    if name == ALL {
        return Ok(0);
    }
    match trace.groups().iter().position(|group| group.name == name) {
        Some(place) => Ok(place as u8 + 1),
        None if trace.groups().is_empty() => Err(format!(
            "{flag} {name}: the trace tells no groups apart; record it with --group {name}=PATTERN, or say all"
        )),
        None => {
            let names: Vec<&str> = trace.groups().iter().map(|group| group.name.as_str()).collect();
            Err(format!("{flag} {name}: the trace knows {} and all", names.join(", ")))
        }
    }
}

/// "COUNT/TIME", as `limits.rate` takes it: so many at once, and then evenly.
pub(super) fn rate_of(text: &str) -> Option<Rate> {
    let (count, per) = text.trim().split_once('/')?;
    let count: u32 = count.trim().parse().ok().filter(|count| *count > 0)?;
    let per = per.trim();
    let per =
        if per.starts_with(|c: char| c.is_ascii_digit()) { parse_time(per) } else { parse_time(&format!("1{per}")) };
    let per = per.filter(|per| (Duration::from_millis(1)..=Duration::from_secs(30 * 86_400)).contains(per))?;
    (per / count >= Duration::from_micros(1)).then(|| Rate::new(count, per, count))
}
