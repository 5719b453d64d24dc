//! Errors of configurations, and enums that are chosen by name.
//!
//! Every mechanism comes as two types: a *configuration* (plain public fields, `Default` is the practical variant) and a
//! *plan* made of it once by `build`. Only plans reach the control code, so it never meets a value out of range. An
//! error names the field, the value and what is allowed.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::time::Duration;

use crate::time::seconds;

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field, as it is written in Rust and in configuration files.
    pub field: &'static str,
    /// The value that was given.
    pub value: String,
    /// What would have been accepted.
    pub allowed: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} is not allowed: expected {}", self.field, self.value, self.allowed)
    }
}

impl core::error::Error for ConfigError {}

/// The value itself if it is a number in `low..=high`.
pub(crate) fn number(field: &'static str, value: f64, low: f64, high: f64) -> Result<f64, ConfigError> {
    // NaN is in no range.
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError { field, value: value.to_string(), allowed: format!("a number in {low}..={high}") })
}

/// The value itself if it is a whole number in `low..=high`.
pub(crate) fn count(field: &'static str, value: u64, low: u64, high: u64) -> Result<u64, ConfigError> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError { field, value: value.to_string(), allowed: format!("a whole number in {low}..={high}") })
}

/// The value in seconds if it is in `low..=high`.
pub(crate) fn span(field: &'static str, value: Duration, low: Duration, high: Duration) -> Result<f64, ConfigError> {
    if (low..=high).contains(&value) {
        return Ok(seconds(value));
    }
    Err(ConfigError { field, value: format!("{value:?}"), allowed: format!("a duration in {low:?}..={high:?}") })
}

/// Nothing if the value is at most that of another field; else an error that names both.
pub(crate) fn at_most(
    field: &'static str,
    value: Duration,
    other: &'static str,
    most: Duration,
) -> Result<(), ConfigError> {
    if value <= most {
        return Ok(());
    }
    Err(ConfigError { field, value: format!("{value:?}"), allowed: format!("at most {other} = {most:?}") })
}

/// A name that no variant has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What was to be chosen.
    pub what: &'static str,
    /// The beginning of what was written.
    pub given: String,
    /// The names there are.
    pub allowed: &'static [&'static str],
}

/// Characters of a wrong name that an error repeats; the rest is cut.
pub(crate) const GIVEN_CHARS_MAX: usize = 40;

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}: expected one of {}", self.what, self.given, self.allowed.join(", "))
    }
}

impl core::error::Error for UnknownName {}

/// Declares an enum whose variants are chosen by name (`name`, `NAMES`, `ALL`, `FromStr`, `Display`).
macro_rules! named {
    (
        $what:literal;
        $(#[$meta:meta])*
        pub enum $Enum:ident { $($(#[$variant_meta:meta])* $Variant:ident = $name:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Enum { $($(#[$variant_meta])* $Variant,)+ }

        impl $Enum {
            /// Every variant, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$Variant,)+];
            /// The names of all variants, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name,)+];

            /// The name by which this variant is selected.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $name,)+ }
            }
        }

        impl core::str::FromStr for $Enum {
            type Err = crate::config::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($name => Ok(Self::$Variant),)+
                    _ => Err(crate::config::UnknownName {
                        what: $what,
                        given: text.chars().take(crate::config::GIVEN_CHARS_MAX).collect(),
                        allowed: Self::NAMES,
                    }),
                }
            }
        }

        impl core::fmt::Display for $Enum {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro declares public enums")]
mod tests {
    use super::*;

    named! {
        "colour";
        /// A test subject.
        pub enum Colour {
            /// The first.
            #[default]
            Red = "red",
            /// The second.
            DarkBlue = "dark-blue",
        }
    }

    #[test]
    fn an_error_names_field_value_and_range() {
        let error = number("alpha", 0.5, 1.1, 8.0).unwrap_err();
        assert_eq!(error.to_string(), "alpha = 0.5 is not allowed: expected a number in 1.1..=8");
        let error = span("floor", Duration::ZERO, Duration::from_millis(1), Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "floor = 0ns is not allowed: expected a duration in 1ms..=1s");
        let error = count("learn", 0, 1, 64).unwrap_err();
        assert_eq!(error.to_string(), "learn = 0 is not allowed: expected a whole number in 1..=64");
    }

    #[test]
    fn no_range_contains_nan() {
        assert!(number("alpha", f64::NAN, f64::NEG_INFINITY, f64::INFINITY).is_err());
    }

    #[test]
    fn names_go_both_ways_and_an_unknown_one_lists_them() {
        for colour in Colour::ALL {
            assert_eq!(colour.name().parse(), Ok(*colour));
        }
        let error = "purple".parse::<Colour>().unwrap_err();
        assert_eq!(error.to_string(), r#"unknown colour "purple": expected one of red, dark-blue"#);
        let long = "x".repeat(1_000_000).parse::<Colour>().unwrap_err();
        assert_eq!(long.given.len(), GIVEN_CHARS_MAX);
    }
}
