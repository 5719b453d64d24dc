//! Colour for the eye, where there is one: only on a terminal, and not where `NO_COLOR` is set (<https://no-color.org>).

use std::io::IsTerminal;

/// A text in the colour of a mood.
pub(super) fn by_mood(mood: &str, text: &str) -> String {
    painted(mood, text, is_wanted())
}

/// A text in the colour of a state: whoever is in trouble is seen first.
pub(super) fn by_state(state: &str, text: &str) -> String {
    painted(mood_of(state), text, is_wanted())
}

fn is_wanted() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

fn mood_of(state: &str) -> &'static str {
    match state {
        "losing" | "away-losing" | "floods" | "backed-off" | "paused" | "banned" | "down" | "failed" => "trouble",
        "slow" | "slowed" | "connecting" | "draining" => "notice",
        _ => "",
    }
}

fn painted(mood: &str, text: &str, is_wanted: bool) -> String {
    let colour = match mood {
        "calm" => "32",
        "notice" => "33",
        "trouble" => "1;31",
        _ => return text.to_owned(),
    };
    if is_wanted { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_left_out_where_it_is_not_wanted() {
        assert_eq!((mood_of("paused"), mood_of("slow"), mood_of("ok")), ("trouble", "notice", ""));
        assert_eq!(painted("trouble", "x", true), "\x1b[1;31mx\x1b[0m");
        assert_eq!((painted("trouble", "x", false), painted("?", "x", true)), ("x".to_owned(), "x".to_owned()));
    }
}
