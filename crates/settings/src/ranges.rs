//! Values whose range stands in the table of keys: read as numbers, with an error that says what was meant.
//!
//! The laboratory's keys are numbers of all magnitudes, so a fraction is as good as a whole number here. A unit is written where
//! there can be a doubt.

use crate::suggest::did_you_mean;
use crate::value::ConfigValue;

/// What is written as a number with a unit.
struct Measure {
    wanted: &'static str,
    /// Each unit with what it is multiplied by and divided by.
    units: &'static [(&'static str, f64, f64)],
    /// The unit that was meant by who wrote none, and how many of it are one.
    usual: (&'static str, f64),
    /// Behind a number in an error.
    shown: &'static str,
}

const TIME: Measure = Measure {
    wanted: "expected a time with a unit, such as \"10s\" or \"250ms\"",
    units: &[
        ("us", 1e-6, 1.0),
        ("ms", 1e-3, 1.0),
        ("s", 1.0, 1.0),
        ("m", 60.0, 1.0),
        ("min", 60.0, 1.0),
        ("h", 3600.0, 1.0),
    ],
    usual: ("s", 1.0),
    shown: "s",
};

const RATE: Measure = Measure {
    wanted: "expected a rate with a unit, such as \"200/s\" or \"6/min\"",
    units: &[("/s", 1.0, 1.0), ("/min", 1.0, 60.0), ("/h", 1.0, 3600.0)],
    usual: ("/s", 1.0),
    shown: "/s",
};

const SHARE: Measure = Measure {
    wanted: "expected a share in percent, such as \"20%\"",
    units: &[("%", 1.0, 100.0)],
    usual: ("%", 100.0),
    shown: "",
};

impl ConfigValue {
    /// Seconds, of a text with a unit.
    pub fn seconds(&self, low: f64, high: f64) -> Result<f64, String> {
        self.measured(&TIME, low, high)
    }

    /// Per second, of a text such as `"200/s"`.
    pub fn rate(&self, low: f64, high: f64) -> Result<f64, String> {
        self.measured(&RATE, low, high)
    }

    /// A share, of `"20%"`.
    pub fn share(&self, low: f64, high: f64) -> Result<f64, String> {
        self.measured(&SHARE, low, high)
    }

    fn measured(&self, measure: &Measure, low: f64, high: f64) -> Result<f64, String> {
        let Measure { wanted, units, usual: (unit, factor), shown } = measure;
        if let Some(number) = self.as_number() {
            return Err(format!("{wanted}; did you mean \"{}{unit}\"?", number * factor));
        }
        let (number, unit) = self.text().and_then(split).ok_or(*wanted)?;
        let (_, times, per) = units.iter().find(|(name, ..)| *name == unit).ok_or(*wanted)?;
        within(number * times / per, low, high, shown)
    }

    /// A number without a unit.
    pub fn number(&self, low: f64, high: f64) -> Result<f64, String> {
        let number = self.as_number().ok_or("expected a number without quotes")?;
        within(number, low, high, "")
    }

    /// A whole number.
    pub fn count(&self, low: u32, high: u32) -> Result<u32, String> {
        let number = self.number(low.into(), high.into())?;
        if number.fract() == 0.0 { Ok(number as u32) } else { Err(format!("expected a whole number, not {number}")) }
    }

    /// Yes or no.
    pub fn flag(&self) -> Result<bool, String> {
        self.boolean().ok_or_else(|| "expected true or false without quotes".to_owned())
    }

    /// One of some names.
    pub fn one_of<T: Copy>(&self, names: &[(&'static str, T)]) -> Result<T, String> {
        let all = || names.iter().map(|(name, _)| *name);
        let wanted = || format!("expected one of {}", all().collect::<Vec<_>>().join(", "));
        let text = self.text().ok_or_else(wanted)?;
        names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let hint = did_you_mean(text, all()).map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("{}{hint}", wanted())
        })
    }

    /// Whole or not, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Fraction(number) => Some(*number),
            Self::Bare(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

fn within(number: f64, low: f64, high: f64, unit: &str) -> Result<f64, String> {
    if (low..=high).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number}{unit} is not within {low}{unit} and {high}{unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> ConfigValue {
        ConfigValue::Text(text.to_owned())
    }

    #[test]
    fn units_are_read_and_missed() {
        assert_eq!(text("250ms").seconds(0.0, 10.0), Ok(0.25));
        assert_eq!(text("2 min").seconds(0.0, 1e3), Ok(120.0));
        assert_eq!(text("6/min").rate(0.0, 10.0), Ok(0.1));
        assert_eq!(text("20%").share(0.0, 1.0), Ok(0.2));
        for number in [ConfigValue::Integer(10), ConfigValue::Fraction(10.0), ConfigValue::Bare("10".to_owned())] {
            let missed = number.seconds(0.0, 100.0).unwrap_err();
            assert!(missed.ends_with("did you mean \"10s\"?"), "{missed}");
        }
        assert!(ConfigValue::Fraction(0.2).share(0.0, 1.0).unwrap_err().contains("\"20%\""));
        for bad in ["", "s", "10", "10 parsecs", "-1s", "1e9s"] {
            assert!(text(bad).seconds(0.0, 1e6).is_err(), "{bad}");
        }
        assert_eq!(text("200s").seconds(0.0, 100.0).unwrap_err(), "200s is not within 0s and 100s");
    }

    #[test]
    fn names_are_suggested() {
        let error = text("fifi").one_of(&[("fifo", 1), ("drr", 2)]).unwrap_err();
        assert_eq!(error, "expected one of fifo, drr; did you mean \"fifo\"?");
    }
}
