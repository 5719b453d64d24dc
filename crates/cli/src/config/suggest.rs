//! "Did you mean …": the known name nearest to one that is not known.
//!
//! Two measures, the better one counts: edits in the name as written (`recieve_max`), and edits after its words have
//! been sorted, because people bring names from other brokers (`max_connections` for `connections_max`).

/// The candidate that was probably meant, if one is near enough.
pub(crate) fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &&str| distance(wrong, candidate).min(distance(&sorted(wrong), &sorted(candidate)));
    let best = candidates.into_iter().min_by_key(near)?;
    // A third of the name may be wrong; more is another name.
    (near(&best) <= wrong.chars().count().max(3) / 3).then_some(best)
}

/// The sentence to append to an error; empty if nothing is near.
pub(crate) fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(wrong, candidates).map(|name| format!("did you mean \"{name}\"?"))
}

fn sorted(name: &str) -> String {
    let mut words: Vec<&str> = name.split(['_', '-', '.']).collect();
    words.sort_unstable();
    words.join("_")
}

/// Levenshtein's distance, case aside. Names are short, so the plain table will do.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
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
        assert_eq!(near("colour"), None);
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
