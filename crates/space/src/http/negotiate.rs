//! Which of the formats that we write a client likes best.

use axum::http::{HeaderMap, StatusCode, header};
use oxrdfio::{JsonLdProfileSet, RdfFormat};
use sparesults::QueryResultsFormat;

use super::problem::SpaceProblem;
use crate::machine::request::Form;

const RESULTS: [QueryResultsFormat; 4] =
    [QueryResultsFormat::Json, QueryResultsFormat::Xml, QueryResultsFormat::Csv, QueryResultsFormat::Tsv];

/// Those for one graph come first; the others also for several.
const GRAPHS: [RdfFormat; 6] = [
    RdfFormat::Turtle,
    RdfFormat::NTriples,
    RdfFormat::RdfXml,
    RdfFormat::JsonLd { profile: JsonLdProfileSet::empty() },
    RdfFormat::NQuads,
    RdfFormat::TriG,
];

/// A wish: a media range and how much it is wished for, in thousandths.
fn wishes(headers: &HeaderMap) -> Vec<(String, u32)> {
    let lists = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let wish = |part: &str| {
        let mut parameters = part.split(';').map(str::trim);
        let range = parameters.next()?.to_ascii_lowercase();
        let weight = parameters.find_map(|it| it.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
        Some((range, (weight.clamp(0.0, 1.0) * 1000.0) as u32))
    };
    lists.flat_map(|list| list.split(',')).filter_map(wish).filter(|(range, _)| !range.is_empty()).take(32).collect()
}

/// The best of the offers; the first if anything will do.
fn choose<T: Copy>(
    headers: &HeaderMap,
    offers: &[T],
    names: impl Fn(&T) -> Vec<&'static str>,
) -> Result<T, SpaceProblem> {
    let wishes = wishes(headers);
    let weight = |offer: &T| {
        let names = names(offer);
        // The most exact range counts.
        let exact = |range: &str| match range {
            _ if names.contains(&range) => 3,
            "*/*" => 1,
            _ if range
                .strip_suffix("/*")
                .is_some_and(|kind| names.iter().any(|name| name.split('/').next() == Some(kind))) =>
            {
                2
            }
            _ => 0,
        };
        let best = wishes.iter().map(|(range, weight)| (exact(range), *weight)).filter(|(exact, _)| *exact > 0).max();
        best.map_or(0, |(_, weight)| weight)
    };
    if wishes.is_empty() {
        return offers.first().copied().ok_or_else(|| SpaceProblem::usage("no format"));
    }
    // The first of equals: `max_by_key` would take the last.
    let best = offers.iter().rev().max_by_key(|offer| weight(offer)).filter(|offer| weight(offer) > 0);
    best.copied().ok_or_else(|| {
        let known: Vec<_> = offers.iter().filter_map(|offer| names(offer).first().copied()).collect();
        let detail = format!("none of the formats in Accept is written here; try {}", known.join(", "));
        SpaceProblem::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", detail)
    })
}

/// How rows or a truth value are written for this client.
pub(crate) fn results(headers: &HeaderMap) -> Result<Form, SpaceProblem> {
    let names = |format: &QueryResultsFormat| match format {
        QueryResultsFormat::Json => vec!["application/sparql-results+json", "application/json"],
        QueryResultsFormat::Xml => vec!["application/sparql-results+xml", "application/xml", "text/xml"],
        QueryResultsFormat::Csv => vec!["text/csv"],
        QueryResultsFormat::Tsv => vec!["text/tab-separated-values"],
        _ => vec![],
    };
    choose(headers, &RESULTS, names).map(Form::Results)
}

/// How triples are written for this client, or quads of several graphs.
pub(crate) fn graph(headers: &HeaderMap, are_quads: bool) -> Result<Form, SpaceProblem> {
    let names = |format: &RdfFormat| match format {
        RdfFormat::Turtle => vec!["text/turtle", "application/turtle", "application/x-turtle"],
        RdfFormat::NTriples => vec!["application/n-triples", "text/plain"],
        RdfFormat::RdfXml => vec!["application/rdf+xml", "application/xml", "text/xml"],
        RdfFormat::JsonLd { .. } => vec!["application/ld+json", "application/json"],
        RdfFormat::NQuads => vec!["application/n-quads", "text/x-nquads"],
        RdfFormat::TriG => vec!["application/trig", "application/x-trig"],
        _ => vec![],
    };
    let offers = if are_quads { &[GRAPHS[4], GRAPHS[5], GRAPHS[3]][..] } else { &GRAPHS[..] };
    choose(headers, offers, names).map(Form::Graph)
}

/// The media type of a form.
pub(crate) fn media_type(form: Form) -> &'static str {
    match form {
        Form::Results(format) => format.media_type(),
        Form::Graph(format) => format.media_type(),
        Form::Ssap => "application/xml",
    }
}

/// The name of a form, for what distinguishes answers.
pub(crate) fn form_name(form: Form) -> &'static str {
    match form {
        Form::Results(format) => format.file_extension(),
        Form::Graph(format) => format.file_extension(),
        Form::Ssap => "ssap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, text.parse().unwrap());
        headers
    }

    #[test]
    fn the_best_wish_wins_and_the_first_of_equals() {
        for (wish, expected) in [
            ("*/*", QueryResultsFormat::Json),
            ("text/csv", QueryResultsFormat::Csv),
            ("application/json", QueryResultsFormat::Json),
            ("text/csv;q=0.1, application/sparql-results+xml", QueryResultsFormat::Xml),
            ("text/*", QueryResultsFormat::Xml),
            ("text/csv;q=0, */*;q=0.5", QueryResultsFormat::Json),
            ("application/sparql-results+json;q=0, */*;q=0.5", QueryResultsFormat::Xml),
        ] {
            assert_eq!(results(&accept(wish)).unwrap(), Form::Results(expected), "{wish}");
        }
        assert_eq!(results(&HeaderMap::new()).unwrap(), Form::Results(QueryResultsFormat::Json));
        assert_eq!(results(&accept("image/png")).unwrap_err().answer.status, StatusCode::NOT_ACCEPTABLE);
        assert_eq!(results(&accept(",;q=x,")).unwrap(), Form::Results(QueryResultsFormat::Json));
    }

    #[test]
    fn graphs_have_formats_of_their_own() {
        assert_eq!(graph(&accept("text/turtle"), false).unwrap(), Form::Graph(RdfFormat::Turtle));
        assert_eq!(graph(&HeaderMap::new(), true).unwrap(), Form::Graph(RdfFormat::NQuads));
        assert!(graph(&accept("text/turtle"), true).is_err(), "turtle has no graphs");
    }
}
