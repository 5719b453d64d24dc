//! `tidegate kp`: a client of the smart space as a line protocol.

mod print;
mod triples;

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_client::{ConfigError, Error, PacerConfig, Parameter, PersistentQuery, ResultChange, Space, SpaceConfig};

use crate::arguments::{FollowArgs, KpArgs, KpCommand};
use print::{Parts, columns, print_change, print_pacer, print_row};
use tidegate_program::{Usage, certificate_hint, harmless};
use triples::batches;

/// How often the pacer is shown.
const GLANCE: Duration = Duration::from_secs(1);

/// An error of the client, with the exit code that it means.
#[derive(Debug)]
pub(crate) struct KpError {
    error: Error,
    /// Whether it was over SSAP without TLS, which has no words for somebody who expects TLS.
    is_plain_ssap: bool,
}

impl KpError {
    pub(crate) fn exit_code(&self) -> u8 {
        match &self.error {
            // Somebody is there, and cannot be trusted.
            Error::Unreachable { error, .. } if is_untrusted(&error.to_string()) => 1,
            Error::Unreachable { .. } => 3,
            Error::Denied(_) => 4,
            Error::Busy { .. } => 5,
            Error::Address { .. } | Error::Config(_) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for KpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.error.to_string();
        f.write_str(&harmless(&words))?;
        match &self.error {
            Error::Unreachable { .. } | Error::Lost(_) | Error::Trust(_) if certificate_hint(&words).is_some() => {
                write!(f, "; {}", certificate_hint(&words).unwrap_or_default())
            }
            Error::Unreachable { .. } | Error::Lost(_) if is_untrusted(&words) => {
                f.write_str(if words.contains("UnknownIssuer") { UNKNOWN_ISSUER } else { OTHER_NAMES })
            }
            Error::Unreachable { error, .. } | Error::Lost(error) if self.is_plain_ssap && is_cut(error) => {
                f.write_str("; if this port speaks TLS, try ssaps://, with --cafile for a certificate of your own")
            }
            Error::Unreachable { .. } => f.write_str("; is the broker running? Start it with `tidegate`"),
            _ => Ok(()),
        }
    }
}

/// The words of `tidegate pub` for a certificate that nobody vouches for, and for one with other names.
const UNKNOWN_ISSUER: &str =
    "; if you trust this broker, name its certificate, or that of who signed it, with --cafile FILE";
const OTHER_NAMES: &str = "; the certificate is for other names: give one of them with --space";

/// Whether a connection was refused here, for the certificate of who answered.
fn is_untrusted(words: &str) -> bool {
    words.contains("UnknownIssuer") || words.contains("NotValidForName") || words.contains("not valid for name")
}

/// Whether somebody was there and hung up.
fn is_cut(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl From<Error> for KpError {
    fn from(error: Error) -> Self {
        Self { error, is_plain_ssap: false }
    }
}

impl std::error::Error for KpError {}

/// Does it; the exit code.
pub(crate) fn run(args: &KpArgs) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let is_plain_ssap = args.at().to_ascii_lowercase().starts_with("ssap://");
    runtime.block_on(Box::pin(act(args))).map_err(|mut error| {
        if let Some(error) = error.downcast_mut::<KpError>() {
            error.is_plain_ssap = is_plain_ssap;
        }
        error
    })?;
    Ok(0)
}

/// The certificates of `--cafile`, which is for addresses with TLS.
fn trusted(args: &KpArgs) -> Result<Option<Vec<u8>>> {
    let Some(path) = &args.cafile else { return Ok(None) };
    if !["https://", "ssaps://"].iter().any(|scheme| args.at().to_ascii_lowercase().starts_with(scheme)) {
        return Err(anyhow::anyhow!("--cafile is for https:// and ssaps://, and --space is neither").context(Usage));
    }
    let wrong = |error| anyhow::anyhow!("--cafile {}: cannot be read: {error}", path.display()).context(Usage);
    std::fs::read(path).map(Some).map_err(wrong)
}

async fn act(args: &KpArgs) -> Result<()> {
    if let KpCommand::Subscribe(how) | KpCommand::Watch(how) = &args.command {
        // What is wrong whether or not there is a broker is said first.
        check_pacer(how)?;
    }
    if let Some(warning) = unused(args) {
        eprintln!("warning: {warning}");
    }
    let password = crate::arguments::password(std::env::var("TIDEGATE_PASSWORD").ok().as_deref())?;
    let (node, class) = (args.node.clone(), args.class.clone());
    let config = SpaceConfig { ca: trusted(args)?, node, class, ..SpaceConfig::default() };
    let space =
        Space::connect_with(&with_password(&args.at(), password.as_deref()), config).await.map_err(KpError::from)?;
    match &args.command {
        KpCommand::Insert(of) => {
            for batch in batches(of, false)? {
                space.insert(&batch?).await.map_err(KpError::from)?;
            }
        }
        KpCommand::Remove(of) => {
            for batch in batches(of, true)? {
                space.remove(&batch?).await.map_err(KpError::from)?;
            }
        }
        KpCommand::Update { sparql } if is_query(sparql) => {
            let wrong = anyhow::anyhow!("this is a query, and changes nothing:  tidegate kp query '…'");
            return Err(wrong.context(Usage));
        }
        KpCommand::Update { sparql } => space.update(sparql).await.map_err(KpError::from)?,
        KpCommand::Query { sparql } if is_update(sparql) => {
            let wrong = anyhow::anyhow!("this changes data, and is no question:  tidegate kp update '…'");
            return Err(wrong.context(Usage));
        }
        KpCommand::Query { sparql } if makes_triples(sparql) && !args.at().to_ascii_lowercase().starts_with("ssap") => {
            let wrong = anyhow::anyhow!("this makes triples, and kp query prints rows:  tidegate rdf query '…'");
            return Err(wrong.context(Usage));
        }
        KpCommand::Query { sparql } => {
            let mut out = std::io::stdout().lock();
            let order = columns(sparql);
            for row in space.query(sparql).await.map_err(KpError::from)? {
                print_row(&mut out, "", &row, &order, args.json)?;
            }
        }
        KpCommand::Subscribe(how) => follow(&space, how, args.json, false).await?,
        KpCommand::Watch(how) => follow(&space, how, args.json, true).await?,
    }
    Ok(())
}

/// Whether a text is an update by the first word behind its prologue; who is wrong about that is told better by the parser.
pub(crate) fn is_update(sparql: &str) -> bool {
    let starts = ["INSERT", "DELETE", "LOAD", "CLEAR", "CREATE", "DROP", "COPY", "MOVE", "ADD", "WITH"];
    starts.contains(&first_word(sparql).as_str())
}

/// Whether a text is a query, in the same way.
pub(crate) fn is_query(sparql: &str) -> bool {
    ["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"].contains(&first_word(sparql).as_str())
}

/// Whether the answer to a query is a graph.
fn makes_triples(sparql: &str) -> bool {
    ["CONSTRUCT", "DESCRIBE"].contains(&first_word(sparql).as_str())
}

/// The first word behind the prologue, in capital letters.
fn first_word(sparql: &str) -> String {
    let mut words = sparql.split_whitespace().map(str::to_ascii_uppercase);
    while let Some(word) = words.next() {
        match word.as_str() {
            "PREFIX" => drop((words.next(), words.next())),
            "BASE" => drop(words.next()),
            word => return word.split(['{', '*', '(', '?', '$']).next().unwrap_or_default().to_owned(),
        }
    }
    String::new()
}

async fn follow(space: &Space, how: &FollowArgs, is_json: bool, with_pacer: bool) -> Result<()> {
    let pacer = check_pacer(how)?;
    for (parameter, why) in unread(how, &pacer) {
        eprintln!("warning: {parameter} makes no difference with --control {}: {why}", how.control);
    }
    let parts = Parts::of(&pacer, how.poll);
    let query = space.persistent_query(&how.sparql).pacer(pacer);
    let query = if how.poll { query.poll() } else { query };
    let mut query = query.open().await.map_err(KpError::from)?;
    let (mut changes, order) = (0, columns(&how.sparql));
    while how.count.is_none_or(|count| changes < count) {
        match next(&mut query, with_pacer).await {
            KpEvent::Change(change) => {
                changes += 1;
                print_change(&change, &order, is_json)?;
            }
            KpEvent::Glance => print_pacer(&query.stats().await.map_err(KpError::from)?, parts, is_json)?,
            KpEvent::Over => break,
        }
    }
    Ok(())
}

fn check_pacer(how: &FollowArgs) -> Result<PacerConfig> {
    let pacer = pacer(how).map_err(|error| KpError::from(Error::from(error)))?;
    pacer.build().map_err(|error| KpError::from(Error::from(error)))?;
    Ok(pacer)
}

/// What was given and SSAP has no word for: who gives a password believes that it is asked for.
fn unused(args: &KpArgs) -> Option<&'static str> {
    let at = args.at();
    let (_, rest) = at.split_once("://").filter(|(scheme, _)| scheme.to_ascii_lowercase().starts_with("ssap"))?;
    let has_user = rest.split('/').next().is_some_and(|authority| authority.contains('@'));
    let words = "SSAP knows no users: the name and password in the address are not sent, and nobody has checked them";
    has_user.then_some(words)
}

/// The named control with what was set beside it.
fn pacer(how: &FollowArgs) -> Result<PacerConfig, ConfigError> {
    let mut pacer = PacerConfig::from(how.control);
    pacer.interval = how.interval.unwrap_or(pacer.interval);
    pacer.detector.rule = how.detector.unwrap_or(pacer.detector.rule);
    pacer.initial = how.initial.unwrap_or(pacer.initial);
    for (parameter, value) in &how.set {
        pacer.set(*parameter, value)?;
    }
    Ok(pacer)
}

/// What was set and nothing reads, and why.
fn unread(how: &FollowArgs, pacer: &PacerConfig) -> Vec<(Parameter, &'static str)> {
    let named = [
        how.detector.map(|_| Parameter::Detector),
        how.initial.map(|_| Parameter::Initial),
        how.interval.map(|_| Parameter::Interval),
    ];
    let all = named.into_iter().flatten().chain(how.set.iter().map(|(parameter, _)| *parameter));
    all.filter_map(|parameter| Some((parameter, pacer.ignores(parameter)?))).collect()
}

enum KpEvent {
    Change(ResultChange),
    Glance,
    Over,
}

async fn next(query: &mut PersistentQuery, with_pacer: bool) -> KpEvent {
    let change = async { query.next().await.map_or(KpEvent::Over, KpEvent::Change) };
    if !with_pacer {
        return change.await;
    }
    tokio::time::timeout(GLANCE, change).await.unwrap_or(KpEvent::Glance)
}

/// The address with the password of the environment, if it names a user and no password.
fn with_password(url: &str, password: Option<&str>) -> String {
    let (Some((scheme, rest)), Some(password)) = (url.split_once("://"), password) else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, _)) if !user.contains(':') => {
            let password = tidegate_program::escaped(password);
            format!("{scheme}://{user}:{password}{}", &rest[user.len()..])
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Cli, Command};

    #[test]
    fn an_update_is_told_from_a_question() {
        for update in ["INSERT DATA { <a> <b> 1 }", "prefix x: <y#> delete{ ?s ?p ?o } where { ?s ?p ?o }", "clear all"]
        {
            assert!(is_update(update), "{update}");
        }
        for question in ["SELECT * { ?s ?p ?o }", "PREFIX insert: <x#> ASK { insert:a ?p ?o }", "", "BASE"] {
            assert!(!is_update(question), "{question}");
        }
        for question in ["select*{ ?s ?p ?o }", "PREFIX insert: <x#> ASK{ insert:a ?p ?o }", "DESCRIBE <urn:a>"] {
            assert!(is_query(question), "{question}");
        }
        assert!(!is_query("INSERT DATA { <a> <b> 1 }") && !is_query(""));
    }

    #[test]
    fn a_password_of_the_environment_is_added_where_a_user_has_none() {
        assert_eq!(with_password("http://ann@h:1/", Some("a b")), "http://ann:a%20b@h:1/");
        assert_eq!(with_password("http://ann:x@h:1", Some("y")), "http://ann:x@h:1");
        assert_eq!(with_password("http://h:1/@", Some("y")), "http://h:1/@");
    }

    #[test]
    fn who_is_cut_off_over_plain_ssap_hears_of_tls() {
        let cut = |is_plain_ssap| {
            let error = Error::Lost(std::io::ErrorKind::ConnectionReset.into());
            KpError { error, is_plain_ssap }.to_string()
        };
        assert!(cut(true).contains("try ssaps://") && !cut(false).contains("ssaps"), "{}", cut(true));
        let authority = "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))";
        let error = Error::Unreachable { address: "h:1".to_owned(), error: std::io::Error::other(authority) };
        assert!(KpError::from(error).to_string().contains("CA:FALSE"));
        let issuer = std::io::Error::other("invalid peer certificate: UnknownIssuer");
        let error = KpError::from(Error::Unreachable { address: "h:1".to_owned(), error: issuer });
        assert!(error.to_string().ends_with("with --cafile FILE") && error.exit_code() == 1, "{error}");
    }

    #[test]
    fn what_ssap_has_no_word_for_is_said() {
        let unused = |words: &[&str]| {
            let words = [&["tidegate", "kp"], words, &["query", "ASK {}"]].concat();
            match Cli::try_parse_from(words).unwrap().command {
                Some(Command::Kp(args)) => unused(&args).is_some(),
                _ => panic!("another command"),
            }
        };
        assert!(unused(&["--space", "ssap://ann:wrong@h:1"]));
        assert!(unused(&["--space", "SSAPS://ann@h:1/x", "--class", "high"]));
        assert!(!unused(&["--space", "ssap://h:1", "--class", "high"]), "the class is sent");
        assert!(!unused(&["--space", "ssap://h:1/@"]));
        assert!(!unused(&["--space", "http://ann:right@h:1", "--class", "high"]));
    }
}
