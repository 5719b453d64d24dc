//! `tidegate rdf`: the smart space from a shell, over its own HTTP door; and `tidegate map test`, without any.

mod maps;

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::arguments::{RdfArgs, RdfCommand, SpaceArgs, TextArgs};
use crate::kp::{is_query, is_update};
pub(crate) use maps::test as test_map;
use tidegate_program::{AdminClient, AdminRequest, escaped};
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
            print(&ask(&door, &query)?)
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
                let body = read(file)?;
                // The first takes the place of what is there, the others are added to it.
                let method = if *replace && number == 0 { "PUT" } else { "POST" };
                let path = store_path(graph.as_deref());
                ask(&door, &request(method, &path, "application/json", kind, &body))?;
            }
            Ok(0)
        }
        RdfCommand::Dump { graph, format } => {
            let usual = if graph.is_some() { "ttl" } else { "nq" };
            let format = format.as_deref().unwrap_or(usual);
            let accept = find(GRAPHS, format).ok_or_else(|| unknown(format, &[GRAPHS]))?;
            print(&ask(&door, &request("GET", &store_path(graph.as_deref()), accept, "", &[]))?)
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

fn ask(door: &AdminClient, request: &AdminRequest<'_>) -> Result<Vec<u8>> {
    let answer = door.exchange(request).map_err(|error| {
        let at = door.host();
        AdminError::unreached(format!("cannot ask the smart space at http://{at}: {error}; name it with --space URL"))
    })?;
    let (status, body) = answer
        .parts()
        .ok_or_else(|| AdminError::failure(format!("{} does not answer as a smart space does", door.host())))?;
    if (200..300).contains(&status) {
        return Ok(body.to_vec());
    }
    Err(AdminError::refused(status, &serde_json::from_slice(body).unwrap_or_default()).into())
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

fn print(bytes: &[u8]) -> Result<u8> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // Whoever reads it has read enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        outcome => outcome.map(|()| 0).map_err(Into::into),
    }
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
