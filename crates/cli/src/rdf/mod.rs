//! `tidegate rdf`: the smart space from a shell, over its own HTTP door; and `tidegate map test`, without any.

mod maps;
mod pieces;

use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::arguments::{RdfArgs, RdfCommand, SpaceArgs, TextArgs};
use crate::kp::{is_query, is_update};
pub(crate) use maps::test as test_map;
use pieces::Unsplit;
use tidegate_program::{AdminClient, AdminRequest, StreamedAnswer, escaped};
use tidegate_program::{AdminError, Usage};

/// Names of formats: of results, of graphs, and whether it can name graphs.
const RESULTS: &[(&str, &str)] = &[
    ("csv", "text/csv"),
    ("tsv", "text/tab-separated-values"),
    ("json", "application/sparql-results+json"),
    ("xml", "application/sparql-results+xml"),
];
const GRAPHS: &[(&str, &str)] = &[
    ("ttl", "text/turtle"),
    ("nt", "application/n-triples"),
    ("nq", "application/n-quads"),
    ("trig", "application/trig"),
    ("rdf", "application/rdf+xml"),
    ("jsonld", "application/ld+json"),
];

/// Runs one of them.
pub(crate) fn run(args: &RdfArgs) -> Result<u8> {
    let door = door(&args.space)?;
    match &args.command {
        RdfCommand::Query { text, format } => {
            let accept = match (find(RESULTS, format), find(GRAPHS, format)) {
                (Some(results), _) => format!("{results}, text/turtle;q=0.5"),
                (None, Some(graph)) => format!("{graph}, text/csv;q=0.5"),
                (None, None) => return Err(unknown(format, &[RESULTS, GRAPHS])),
            };
            let body = sparql(text)?;
            if is_update(&body) {
                return Err(
                    anyhow::anyhow!("this changes data, and is no question:  tidegate rdf update '…'").context(Usage)
                );
            }
            let query = request("POST", "/query", &accept, "application/sparql-query", body.as_bytes());
            print(&door, &query)
        }
        RdfCommand::Update { text } => {
            let body = sparql(text)?;
            if is_query(&body) {
                return Err(
                    anyhow::anyhow!("this is a query, and changes nothing:  tidegate rdf query '…'").context(Usage)
                );
            }
            let update = request("POST", "/update", "application/json", "application/sparql-update", body.as_bytes());
            let answer: Value = serde_json::from_slice(&ask(&door, &update)?).unwrap_or_default();
            let changed = if answer["changed"] == true { "changed" } else { "nothing to change" };
            eprintln!("{changed}, version {}", answer["version"]);
            Ok(0)
        }
        RdfCommand::Load { files, graph, format, replace } => {
            for (number, file) in files.iter().enumerate() {
                let kind = kind_of(file, format.as_deref())?;
                load(&door, file, kind, &store_path(graph.as_deref()), *replace && number == 0)?;
            }
            Ok(0)
        }
        RdfCommand::Dump { graph, format } => {
            let usual = if graph.is_some() { "ttl" } else { "nq" };
            let format = format.as_deref().unwrap_or(usual);
            let accept = find(GRAPHS, format).ok_or_else(|| unknown(format, &[GRAPHS]))?;
            print(&door, &request("GET", &store_path(graph.as_deref()), accept, "", &[]))
        }
    }
}

fn request<'a>(method: &'a str, path: &'a str, accept: &'a str, kind: &'a str, body: &'a [u8]) -> AdminRequest<'a> {
    AdminRequest { method, path, accept, kind, body }
}

fn door(args: &SpaceArgs) -> Result<AdminClient> {
    crate::arguments::warn_of_lone_password(args.username.as_deref(), args.password.as_deref());
    let password = crate::arguments::password(args.password.as_deref())?;
    let url = args.url.clone().unwrap_or_else(|| crate::arguments::address_of("listeners.http"));
    let client = AdminClient::of("--space", &url, 7878, args.username.as_deref(), password.as_deref())?;
    Ok(client.with_trust(args.trust.trust(&url))?)
}

/// Loads a document, in as many requests as it needs. The first of them takes the place of what is there, if that is wanted; the
/// others are added to it.
fn load(door: &AdminClient, file: &Path, kind: &str, path: &str, replaces: bool) -> Result<()> {
    let pieces = pieces::pieces(kind, read(file)?).map_err(|unsplit| {
        let most = pieces::BODY_BYTES_MAX >> 20;
        let why = match unsplit {
            Unsplit::Format => "only N-Triples and N-Quads are sent in pieces: convert it to one of them",
            Unsplit::Line => "a line of it is longer than that",
            Unsplit::Blank => {
                "its statements with blank nodes are longer than that, and have to come together: give those nodes IRIs"
            }
        };
        AdminError::failure(format!("{}: a request has at most {most} MiB; {why}", file.display()))
    })?;
    let all = pieces.len();
    for (number, piece) in pieces.iter().enumerate() {
        // The first takes the place of what is there.
        let method = if replaces && number == 0 { "PUT" } else { "POST" };
        if let Err(error) = ask(door, &request(method, path, "application/json", kind, piece)) {
            let so_far = format!("{}: {number} of {all} pieces are loaded, and not the rest", file.display());
            return Err(if all == 1 { error } else { error.context(so_far) });
        }
    }
    Ok(())
}

fn ask(door: &AdminClient, request: &AdminRequest<'_>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    answer(door, request, &mut body)?;
    Ok(body)
}

/// Prints an answer as it comes, however long it is.
fn print(door: &AdminClient, request: &AdminRequest<'_>) -> Result<u8> {
    answer(door, request, &mut std::io::stdout().lock()).map(|()| 0)
}

fn answer(door: &AdminClient, request: &AdminRequest<'_>, out: &mut dyn Write) -> Result<()> {
    let at = door.host();
    match door.stream(request, out) {
        Ok(StreamedAnswer::Whole | StreamedAnswer::Enough) => Ok(()),
        Ok(StreamedAnswer::Unwritten(why)) => {
            Err(AdminError::failure(format!("cannot print the answer: {why}")).into())
        }
        Ok(StreamedAnswer::Refused(status, why)) => {
            Err(AdminError::refused(status, &serde_json::from_slice(&why).unwrap_or_default()).into())
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(AdminError::failure(format!("{at} does not answer as a smart space does")).into())
        }
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(AdminError::failure(error.to_string()).into()),
        Err(error) => {
            let words = format!("cannot ask the smart space at http://{at}: {error}; name it with --space URL");
            Err(AdminError::unreached(words).into())
        }
    }
}

fn sparql(args: &TextArgs) -> Result<String> {
    if let Some(text) = &args.sparql {
        return Ok(text.clone());
    }
    let bytes = read(args.file.as_deref().unwrap_or(Path::new("-")))?;
    String::from_utf8(bytes).context("SPARQL is UTF-8")
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))
}

fn kind_of(file: &Path, format: Option<&str>) -> Result<&'static str> {
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let name = format.unwrap_or(match &*ending {
        "turtle" => "ttl",
        "owl" | "xml" | "rdfxml" => "rdf",
        "json" => "jsonld",
        "ntriples" => "nt",
        "nquads" => "nq",
        other => other,
    });
    find(GRAPHS, name).ok_or_else(|| unknown(name, &[GRAPHS]))
}

/// The whole store, one graph, or the default graph.
fn store_path(graph: Option<&str>) -> String {
    match graph {
        None => "/store".to_owned(),
        Some("default") => "/store?default".to_owned(),
        Some(iri) => format!("/store?graph={}", escaped(iri)),
    }
}

fn find(formats: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    formats.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

fn unknown(name: &str, formats: &[&[(&str, &str)]]) -> anyhow::Error {
    let known: Vec<&str> = formats.iter().flat_map(|list| list.iter().map(|(name, _)| *name)).collect();
    AdminError::usage(format!("no format {name:?}: say --format {}", known.join(", "))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_endings_and_names() {
        for (file, format, expected) in [
            ("a.ttl", None, Some("text/turtle")),
            ("a.OWL", None, Some("application/rdf+xml")),
            ("a.json", None, Some("application/ld+json")),
            ("-", Some("nq"), Some("application/n-quads")),
            ("a.txt", None, None),
            ("a.ttl", Some("csv"), None),
        ] {
            assert_eq!(kind_of(Path::new(file), format).ok(), expected, "{file}");
        }
        assert_eq!(store_path(Some("urn:a b")), "/store?graph=urn%3Aa%20b");
    }
}
