//! Durations and sizes as people write them: `1h30m`, `250ms`, `64MiB`, `1MB`.
//!
//! A unit is always written: a bare `10` has been seconds in one broker and milliseconds in the next. Units go from
//! large to small and each occurs once, so a text has one meaning and a value one text.

use std::fmt::Write;
use std::time::Duration;

/// Units of time in milliseconds, largest first.
const TIME: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size in bytes. Powers of 1024 have the `i`; `K` and `k` are both found in the wild.
const SIZE: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Sizes are shown in the largest of these that divides them.
const SHOWN: &[(&str, u64)] =
    &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];

/// Reads `1h30m`; `None` if it is no duration or does not fit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut units = TIME;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)?;
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (name, next) = after.split_at(letters);
        let place = units.iter().position(|(unit, _)| *unit == name)?;
        total = total.checked_add(number.checked_mul(units[place].1)?)?;
        units = &units[place + 1..];
        rest = next;
    }
    Some(Duration::from_millis(total))
}

/// Writes a duration so that [`parse_duration`] reads it back, to the millisecond.
pub fn show_duration(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in TIME {
        if left / size > 0 {
            let _ = write!(text, "{}{unit}", left / size);
            left %= size;
        }
    }
    text
}

/// Reads `64MiB`; `None` if it is no size or does not fit.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text.trim())?;
    let (_, size) = SIZE.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.checked_mul(*size)
}

/// Writes a size so that [`parse_size`] reads it back exactly.
pub fn show_size(bytes: u64) -> String {
    match SHOWN.iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{}{unit}", bytes / size),
        None => format!("{bytes}B"),
    }
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_need_units_in_falling_order() {
        assert_eq!(parse_duration("10s"), Some(Duration::from_secs(10)));
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("1d2h3m4s5ms"), Some(Duration::from_millis(93_784_005)));
        for bad in ["", "10", "s", "10 parsecs", "30m1h", "1s1s", "-1s", "1.5h", "10S", "99999999999999999999s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_know_both_families() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("1MB"), Some(1_000_000));
        assert_eq!(parse_size("1 kB"), Some(1_000));
        assert_eq!(parse_size("0B"), Some(0));
        for bad in ["", "64", "64Mib", "64M", "MiB", "-1B", "1.5MiB", "99999999999GiB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn shown_values_are_the_shortest_usual_ones() {
        assert_eq!(show_duration(Duration::from_secs(7 * 86_400)), "7d");
        assert_eq!(show_duration(Duration::ZERO), "0s");
        assert_eq!(show_size(1 << 20), "1MiB");
        assert_eq!(show_size(1_000), "1kB");
        assert_eq!(show_size(1_001), "1001B");
    }

    proptest! {
        #[test]
        fn durations_read_back(millis in any::<u64>()) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
        }

        #[test]
        fn sizes_read_back(bytes in any::<u64>()) {
            prop_assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in "[0-9a-zA-Z .]{0,24}") {
            let _ = (parse_duration(&text), parse_size(&text));
        }
    }
}
