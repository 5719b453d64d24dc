//! The known name nearest to one that is not known.

/// `; did you mean "…"?` if something is near.
pub(super) fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (distance, best) = candidates.into_iter().map(|name| (distance(wrong, name), name)).min()?;
    // A third of the name may be wrong; more is another name.
    (distance <= wrong.chars().count().max(6) / 3).then(|| format!("; did you mean \"{best}\"?"))
}

/// Letters to change, add or remove (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replaced = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        let known = ["clients.interval", "clients.alpha"];
        assert_eq!(did_you_mean("clients.intervall", known).unwrap(), "; did you mean \"clients.interval\"?");
        assert_eq!(did_you_mean("colour", known), None);
    }
}
