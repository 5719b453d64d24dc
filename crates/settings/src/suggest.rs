//! "Did you mean …": the known name nearest to one that is not known.
//!
//! Two measures, the better one counts: edits in the name as written (`recieve_max`), and edits after its words have
//! been sorted, because people bring names from other brokers (`max_connections` for `connections_max`).

/// The candidate that was probably meant, if one is near enough.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &&str| distance(wrong, candidate).min(distance(&sorted(wrong), &sorted(candidate)));
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let best = *candidates.iter().min_by_key(|candidate| near(candidate))?;
    // A third of the name may be wrong, to the nearest letter; more is another name.
    if near(&best) <= (wrong.chars().count().max(2) + 1) / 3 {
        return Some(best);
    }
    // Or it is the beginning of a name, up to the end of a word.
    let begins = |name: &&str| name.strip_prefix(wrong).is_some_and(|rest| rest.starts_with('_'));
    candidates.into_iter().filter(begins).min_by_key(|name| name.len())
}

/// The sentence to append to an error; empty if nothing is near.
pub fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(wrong, candidates).map(|name| format!("did you mean \"{name}\"?"))
}

fn sorted(name: &str) -> String {
    let mut words: Vec<&str> = name.split(['_', '-', '.']).collect();
    words.sort_unstable();
    words.join("_")
}

/// Edits between two names, case aside: a letter more, less or other, or two neighbours swapped.
fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["connections_max", "receive_max", "packet_bytes_max", "qos_max"];

    #[test]
    fn typos_and_swapped_words_are_understood() {
        let near = |wrong| nearest(wrong, KNOWN.iter().copied());
        assert_eq!(near("recieve_max"), Some("receive_max"));
        assert_eq!(near("max_connections"), Some("connections_max"));
        assert_eq!(near("packet_byte_max"), Some("packet_bytes_max"));
        assert_eq!(near("QoS_Max"), Some("qos_max"));
        assert_eq!(near("packet_bytes"), Some("packet_bytes_max"));
        assert_eq!(near("packet"), Some("packet_bytes_max"));
        assert_eq!(near("colour"), None);
        assert_eq!(nearest("clients.intervall", ["clients.alpha", "clients.interval"]), Some("clients.interval"));
        assert_eq!(nearest("stail", ["stale", "load"]), Some("stale"));
    }
}
