//! Settings of the back-off with words of their own: its mode, when it is enforced, and rates such as "500/s".

use std::path::Path;
use std::time::Duration;

use tidegate_control::rhythm::{Enforcement, RhythmRule};
use tidegate_core::settings::Rate;

use super::setting::Setting;
use super::{ConfigValue, units};

/// How publishers that break their rhythm are slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackOffMode {
    Practical,
    Paper,
    PaperTable,
    Off,
}

const MODES: &[(&str, BackOffMode)] = &[
    ("practical", BackOffMode::Practical),
    ("paper", BackOffMode::Paper),
    ("paper-table", BackOffMode::PaperTable),
    ("off", BackOffMode::Off),
];

impl BackOffMode {
    /// The rule of the core; none: nobody is slowed.
    pub fn rule(self) -> Option<RhythmRule> {
        match self {
            Self::Practical => Some(RhythmRule::Practical),
            Self::Paper => Some(RhythmRule::Paper),
            Self::PaperTable => Some(RhythmRule::PaperTable),
            Self::Off => None,
        }
    }
}

impl Setting for BackOffMode {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let text = value.text()?;
        MODES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode)
    }

    fn expected() -> String {
        "\"practical\", \"paper\" (as published), \"paper-table\" (rounded as in its Table I) or \"off\"".to_owned()
    }

    fn show(&self) -> String {
        let name = MODES.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name);
        format!("\"{name}\"")
    }
}

/// When the practical rule has consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnforceSetting(pub Enforcement);

impl Setting for EnforceSetting {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        value.text()?.parse().ok().map(Self)
    }

    fn expected() -> String {
        "\"pressure\" (who sends more comes last where something is scarce) or \"always\" (and is held, refused, \
         disconnected)"
            .to_owned()
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.0.name())
    }
}

/// So many per time: "500/s", "10/m", "1/1d".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSetting {
    count: u32,
    per: Duration,
}

impl RateSetting {
    /// The pace of a default.
    pub fn of(rate: &Rate) -> Self {
        let per_second = Duration::from_secs(1).as_nanos() / rate.interval().as_nanos().max(1);
        Self { count: u32::try_from(per_second).unwrap_or(u32::MAX).max(1), per: Duration::from_secs(1) }
    }

    /// As the core takes it; without a burst, a whole count may come at once.
    pub fn rate(self, burst: Option<u32>) -> Rate {
        Rate::new(self.count, self.per, burst.unwrap_or(self.count))
    }

    /// Reads "COUNT/TIME". A unit alone is one of it.
    pub fn parse(text: &str) -> Option<Self> {
        let (count, per) = text.trim().split_once('/')?;
        let count: u32 = count.trim().parse().ok().filter(|count| *count > 0)?;
        let per = per.trim();
        let per = units::parse_duration(per).or_else(|| units::parse_duration(&format!("1{per}")))?;
        // Beyond that nothing is a rate: a month between two, or a thousand a millisecond.
        let is_rate = per >= Duration::from_millis(1) && per <= MONTH && per / count <= MONTH;
        (is_rate && per / count >= Duration::from_micros(1)).then_some(Self { count, per })
    }
}

const MONTH: Duration = Duration::from_secs(30 * 86_400);

impl Setting for RateSetting {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        Self::parse(value.text()?)
    }

    fn expected() -> String {
        "a rate such as \"500/s\", \"10/m\" or \"1/1d\", at most a million a second and at least one a month".to_owned()
    }

    fn show(&self) -> String {
        let per = units::show_duration(self.per);
        let unit = per.strip_prefix('1').filter(|unit| unit.starts_with(|first: char| first.is_alphabetic()));
        format!("\"{}/{}\"", self.count, unit.unwrap_or(&per))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f143_rates_at_their_ends() {
        for (text, interval) in [
            ("500/s", Duration::from_millis(2)),
            ("10/m", Duration::from_secs(6)),
            ("1/1d", Duration::from_secs(86_400)),
            ("1000000/s", Duration::from_micros(1)),
            (" 3 / 30s ", Duration::from_secs(10)),
        ] {
            assert_eq!(RateSetting::parse(text).map(|pace| pace.rate(None).interval()), Some(interval), "{text}");
        }
        for bad in ["", "0/s", "-1/s", "1", "1/", "/s", "1/x", "18446744073709551615/s", "1/31d", "2000000/s", "1.5/s"]
        {
            assert_eq!(RateSetting::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["500/s", "10/m", "1/d", "3/30s", "7/90m"] {
            let pace = RateSetting::parse(text).unwrap();
            assert_eq!(RateSetting::parse(pace.show().trim_matches('"')), Some(pace), "{text}");
        }
        for (name, mode) in MODES {
            assert_eq!(mode.show(), format!("\"{name}\""));
        }
    }
}
