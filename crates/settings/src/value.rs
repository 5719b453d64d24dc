//! A value as it was written, before anybody knows what it is for.

use std::fmt;

use toml::de::DeValue;

/// A value as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// A string of TOML.
    Text(String),
    /// A whole number of TOML.
    Integer(i64),
    /// Another number of TOML.
    Fraction(f64),
    /// A boolean of TOML.
    Boolean(bool),
    /// From the environment or a flag, where everything is text.
    Bare(String),
    /// A list of strings of TOML.
    List(Vec<String>),
    /// Something no setting takes (a date), by the name of its type.
    Other(&'static str),
}

impl ConfigValue {
    /// The value of a TOML file.
    pub fn of_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Boolean(value) => Self::Boolean(*value),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Self::Other("a number too large"), Self::Integer),
            DeValue::Float(number) => number.as_str().parse().map_or(Self::Other("a number too long"), Self::Fraction),
            DeValue::Datetime(_) => Self::Other("a date"),
            DeValue::Array(list) => {
                let texts = list.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
                texts.collect::<Option<_>>().map_or(Self::Other("a list of other things than text"), Self::List)
            }
            DeValue::Table(_) => Self::Other("a section"),
        }
    }

    /// A text, with or without quotes.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Bare(text) => Some(text),
            _ => None,
        }
    }

    /// Without the quotes of a file: what somebody would type as a flag. None for lists and what no setting takes.
    pub fn plain(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Bare(text) => Some(text.clone()),
            Self::Integer(number) => Some(number.to_string()),
            Self::Fraction(number) => Some(number.to_string()),
            Self::Boolean(value) => Some(value.to_string()),
            Self::List(_) | Self::Other(_) => None,
        }
    }

    /// What is wrong with it, where something else is expected.
    pub fn unfit(&self, expected: &str) -> String {
        format!("{self} does not fit: expected {expected}")
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Bare(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(*value),
            Self::Bare(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Bare(text) => write!(f, "{text:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Fraction(_) => f.write_str("(a fraction)"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::List(list) => write!(f, "{list:?}"),
            Self::Other(kind) => write!(f, "({kind})"),
        }
    }
}
