//! Numbers, times and names in the words of `why`.

use std::time::Duration;

/// As a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:=@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A client as `tidegate ban` takes it: an identifier that looks like an address would be taken for one.
pub(crate) fn for_ban(client_id: &str) -> String {
    let address = client_id.split_once('/').map_or(client_id, |(address, _)| address);
    let literal = if address.parse::<std::net::IpAddr>().is_ok() { "--client " } else { "" };
    format!("{literal}{}", quoted(client_id))
}

/// What ends a session that is kept.
pub(crate) fn end_session(client_id: &str) -> String {
    format!("tidegate kick --session {}", quoted(client_id))
}

pub(crate) fn messages(count: u64) -> String {
    counted(count, "message")
}

/// So many of these: one has no ending.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", number(rate))
}

/// What somebody has set, as it was set: in whole numbers of the shortest time that has one.
pub(crate) fn whole_per_second(rate: f64) -> String {
    let whole = |(secs, unit): (f64, &str)| {
        let count = rate * secs;
        (count >= 0.5 && (count - count.round()).abs() < 1e-6 * count).then(|| format!("{count:.0}/{unit}"))
    };
    let units = [(1.0, "s"), (60.0, "m"), (3600.0, "h"), (86_400.0, "d")];
    units.into_iter().find_map(whole).unwrap_or_else(|| per_second(rate))
}

/// Three digits that mean something.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

pub(crate) fn span(duration: Duration) -> String {
    let secs = duration.as_secs_f64();
    match secs {
        secs if secs < 0.01 => format!("{:.1} ms", secs * 1000.0),
        secs if secs < 0.9995 => format!("{:.0} ms", secs * 1000.0),
        secs if secs < 9.95 => format!("{secs:.1} s"),
        secs if secs < 120.0 => format!("{secs:.0} s"),
        secs if secs < 7200.0 => format!("{:.0} min", secs / 60.0),
        secs if secs < 172_800.0 => format!("{:.0} h", secs / 3600.0),
        secs => format!("{:.0} d", secs / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_called_like_an_address_is_banned_by_name() {
        assert_eq!((for_ban("a b").as_str(), for_ban("10.1.2.3").as_str()), ("'a b'", "--client 10.1.2.3"));
    }

    #[test]
    fn times_and_numbers_are_written_as_one_says_them() {
        let spans = [0.0042, 0.86, 0.9996, 2.199, 9.96, 14.1, 125.0].map(|secs| span(Duration::from_secs_f64(secs)));
        assert_eq!(spans, ["4.2 ms", "860 ms", "1.0 s", "2.2 s", "10 s", "14 s", "2 min"]);
        assert_eq!([0, 1, 2].map(|count| counted(count, "request")), ["0 requests", "1 request", "2 requests"]);
    }

    #[test]
    fn limits_are_shown_as_they_were_set() {
        let of = |count: f64, secs: f64| whole_per_second(1.0 / (secs / count));
        assert_eq!([of(5.0, 1.0), of(2.0, 60.0), of(7.0, 3600.0)], ["5/s", "2/m", "7/h"]);
        assert_eq!([of(120.0, 60.0), whole_per_second(1.0 / 7.0)], ["2/s", "0.14/s"]);
    }
}
