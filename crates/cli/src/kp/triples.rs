//! Triples as they are typed: terms of the command line, or lines of standard input.

use anyhow::{Context, Result};
use tidegate_client::{Triple, TripleNode};
use tidegate_program::Usage;

use crate::arguments::TripleArgs;

/// Triples of standard input that are sent as one change.
const BATCH: usize = 1000;

/// Triples in portions: the one of the command line, or the lines of standard input.
pub(super) fn batches(
    args: &TripleArgs,
    is_pattern: bool,
) -> Result<Box<dyn Iterator<Item = Result<Vec<Triple<'static>>>>>> {
    match args.terms.as_slice() {
        [] => {
            let mut lines = std::io::stdin().lines();
            Ok(Box::new(std::iter::from_fn(move || {
                let portion = lines.by_ref().take(BATCH).map(|line| {
                    let line = line.context("standard input")?;
                    let mut terms = line.trim().splitn(3, char::is_whitespace);
                    match (terms.next(), terms.next(), terms.next()) {
                        (Some(subject), Some(predicate), Some(object)) => {
                            Ok(triple(subject, predicate, object.trim(), is_pattern))
                        }
                        _ => Err(anyhow::anyhow!("{line:?} is no triple").context(Usage)),
                    }
                });
                let portion: Result<Vec<_>> = portion.collect();
                match portion {
                    Ok(triples) if triples.is_empty() => None,
                    portion => Some(portion),
                }
            })))
        }
        [subject, predicate, object] => {
            check_terms(subject, predicate, object, is_pattern)?;
            let one = triple(subject, predicate, object, is_pattern);
            Ok(Box::new(std::iter::once(Ok(vec![one]))))
        }
        _ => Err(anyhow::anyhow!("a triple has three terms").context(Usage)),
    }
}

/// Subject and predicate are IRIs: without a colon somebody meant something else, and hears what to type.
fn check_terms(subject: &str, predicate: &str, object: &str, is_pattern: bool) -> Result<()> {
    let is_term = |text: &str| text.contains(':') || (is_pattern && text == "*");
    if let Some((_, rest)) = object.strip_prefix('"').and_then(|rest| rest.rsplit_once('"'))
        && !rest.is_empty()
    {
        let problem = format!(
            "{object:?} has a type or a language, and literals of triples are plain; try:  tidegate kp update 'INSERT DATA \
             {{ <{subject}> <{predicate}> {object} }}'"
        );
        return Err(anyhow::anyhow!(problem).context(Usage));
    }
    let mended = |text: &str| if is_term(text) { text.to_owned() } else { format!("urn:{text}") };
    let Some(wrong) = [subject, predicate].into_iter().find(|text| !is_term(text)) else { return Ok(()) };
    let verb = if is_pattern { "remove" } else { "insert" };
    let words = [&mended(subject), &mended(predicate), object].map(|word| {
        let is_plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "/._-+:=@%".contains(c));
        if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    });
    let problem = format!(
        "{wrong:?} is no subject or predicate: those are IRIs, which have a colon (urn:lamp, http://example.org/lamp); an \
         object is a literal, or an IRI in <>; try:  tidegate kp {verb} {}",
        words.join(" ")
    );
    Err(anyhow::anyhow!(problem).context(Usage))
}

fn triple(subject: &str, predicate: &str, object: &str, is_pattern: bool) -> Triple<'static> {
    let uri = |text: &str| {
        if is_pattern && text == "*" {
            return TripleNode::Any;
        }
        TripleNode::Uri(text.trim_start_matches('<').trim_end_matches('>').to_owned().into())
    };
    let object = match object.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        Some(_) => uri(object),
        None if is_pattern && object == "*" => TripleNode::Any,
        None => TripleNode::Literal(object.trim_matches('"').to_owned().into()),
    };
    Triple { subject: uri(subject), predicate: uri(predicate), object }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_are_written() {
        let one = triple("urn:a", "<urn:p>", "21.5", false);
        assert_eq!((one.subject, one.predicate), (TripleNode::Uri("urn:a".into()), TripleNode::Uri("urn:p".into())));
        assert_eq!(one.object, TripleNode::Literal("21.5".into()));
        assert_eq!(triple("a", "b", "<urn:o>", false).object, TripleNode::Uri("urn:o".into()));
        assert!(triple("*", "b", "*", true).is_pattern());
        assert!(!triple("*", "b", "*", false).is_pattern());
        let wrong = check_terms("lamp", "urn:state", "on now", false).unwrap_err();
        assert!(wrong.is::<Usage>(), "{wrong:#}");
        let words = format!("{wrong:#}");
        assert!(words.ends_with("try:  tidegate kp insert urn:lamp urn:state 'on now'"), "{words}");
        assert!(check_terms("*", "urn:p", "*", true).is_ok() && check_terms("*", "urn:p", "*", false).is_err());
        for typed in ["\"21.5\"^^xsd:decimal", "\"chaud\"@fr"] {
            let words = format!("{:#}", check_terms("urn:a", "urn:p", typed, false).unwrap_err());
            assert!(words.contains(&format!("kp update 'INSERT DATA {{ <urn:a> <urn:p> {typed} }}'")), "{words}");
        }
        assert!(check_terms("urn:a", "urn:p", "\"plain\"", false).is_ok());
        let two = TripleArgs { terms: vec!["a".into(), "b".into()] };
        assert!(batches(&two, false).err().is_some_and(|error| error.is::<Usage>()));
    }
}
