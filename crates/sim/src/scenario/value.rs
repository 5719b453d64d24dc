//! Values as people write them into a scenario: a unit where there can be a doubt, and an error that says what was meant.

use super::suggest::did_you_mean;

/// A value of a scenario file, or of `--set`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `"200/s"`
    Text(String),
    /// `1.5`
    Number(f64),
    /// `true`
    Flag(bool),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

impl Value {
    /// A value from the command line, where nothing is quoted.
    pub fn from_argument(text: &str) -> Self {
        match (text.parse::<f64>(), text) {
            (Ok(number), _) => Self::Number(number),
            (_, "true") => Self::Flag(true),
            (_, "false") => Self::Flag(false),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// Seconds, of a text with a unit.
    pub(super) fn seconds(&self, low: f64, high: f64) -> Result<f64, String> {
        let wanted = "expected a time with a unit, such as \"10s\" or \"250ms\"";
        let text = match self {
            Self::Text(text) => text,
            Self::Number(number) => return Err(format!("{wanted}; did you mean \"{number}s\"?")),
            Self::Flag(_) => return Err(wanted.to_owned()),
        };
        let (number, unit) = split(text).ok_or(wanted)?;
        let factor = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(wanted.to_owned()),
        };
        within(number * factor, low, high, "s")
    }

    /// Per second, of a text such as `"200/s"`.
    pub(super) fn rate(&self, low: f64, high: f64) -> Result<f64, String> {
        let wanted = "expected a rate with a unit, such as \"200/s\" or \"6/min\"";
        let text = match self {
            Self::Text(text) => text,
            Self::Number(number) => return Err(format!("{wanted}; did you mean \"{number}/s\"?")),
            Self::Flag(_) => return Err(wanted.to_owned()),
        };
        let (number, unit) = split(text).ok_or(wanted)?;
        let seconds = match unit {
            "/s" => 1.0,
            "/min" => 60.0,
            "/h" => 3600.0,
            _ => return Err(wanted.to_owned()),
        };
        within(number / seconds, low, high, "/s")
    }

    /// A share, of `"20%"`.
    pub(super) fn share(&self, low: f64, high: f64) -> Result<f64, String> {
        let wanted = "expected a share in percent, such as \"20%\"";
        match self {
            Self::Text(text) => match split(text) {
                Some((number, "%")) => within(number / 100.0, low, high, ""),
                _ => Err(wanted.to_owned()),
            },
            Self::Number(number) => Err(format!("{wanted}; did you mean \"{}%\"?", number * 100.0)),
            Self::Flag(_) => Err(wanted.to_owned()),
        }
    }

    /// A number without a unit.
    pub(super) fn number(&self, low: f64, high: f64) -> Result<f64, String> {
        match self {
            Self::Number(number) => within(*number, low, high, ""),
            _ => Err("expected a number without quotes".to_owned()),
        }
    }

    /// A whole number.
    pub(super) fn count(&self, low: u32, high: u32) -> Result<u32, String> {
        let number = self.number(low.into(), high.into())?;
        if number.fract() == 0.0 { Ok(number as u32) } else { Err(format!("expected a whole number, not {number}")) }
    }

    pub(super) fn flag(&self) -> Result<bool, String> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            _ => Err("expected true or false without quotes".to_owned()),
        }
    }

    /// One of some names.
    pub(super) fn one_of<T: Copy>(&self, names: &[(&'static str, T)]) -> Result<T, String> {
        let all = || names.iter().map(|(name, _)| *name);
        let Self::Text(text) = self else {
            return Err(format!("expected one of {}", all().collect::<Vec<_>>().join(", ")));
        };
        names.iter().find(|(name, _)| name == text).map(|(_, value)| *value).ok_or_else(|| {
            let hint = did_you_mean(text, all()).unwrap_or_default();
            format!("expected one of {}{hint}", all().collect::<Vec<_>>().join(", "))
        })
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

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn units_are_read_and_missed() {
        assert_eq!(text("250ms").seconds(0.0, 10.0), Ok(0.25));
        assert_eq!(text("2 min").seconds(0.0, 1e3), Ok(120.0));
        assert_eq!(text("6/min").rate(0.0, 10.0), Ok(0.1));
        assert_eq!(text("20%").share(0.0, 1.0), Ok(0.2));
        let missed = Value::Number(10.0).seconds(0.0, 100.0).unwrap_err();
        assert!(missed.ends_with("did you mean \"10s\"?"), "{missed}");
        assert!(Value::Number(0.2).share(0.0, 1.0).unwrap_err().contains("\"20%\""));
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
