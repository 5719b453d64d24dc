//! The known name nearest to one that is not known.

/// `; did you mean "…"?` if something is near.
pub(super) fn did_you_mean<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (distance, best) = candidates.into_iter().map(|name| (strsim::osa_distance(wrong, name), name)).min()?;
    // A third of the name may be wrong; more is another name.
    (distance <= wrong.chars().count().max(6) / 3).then(|| format!("; did you mean \"{best}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["clients.interval", "clients.alpha"];
        assert_eq!(did_you_mean("clients.intervall", known).unwrap(), "; did you mean \"clients.interval\"?");
        assert_eq!(did_you_mean("colour", known), None);
    }
}
