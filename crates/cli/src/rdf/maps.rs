//! `tidegate map test`: what a message would become.

use std::fmt::Write;

use anyhow::Result;
use tidegate_graph::{Mask, MaskGraph};
use tidegate_map::{Additions, Edit, IncomingMessage};

use crate::arguments::MapTestArgs;
use tidegate_server::config::load;
use tidegate_server::log::iso_time;

/// Prints the triples: `-` goes, `+` comes.
pub(crate) fn test(args: &MapTestArgs) -> Result<u8> {
    let loaded = load(&args.serve.sources())?;
    let now = iso_time();
    let payload = args.payload.as_bytes();
    let arrived = IncomingMessage { topic: &args.topic, payload, now: &now, id: "id", chain: 0 };
    let (mut text, mut kept, mut code) = (String::new(), Additions::new(0), 1);
    for (number, (_, ingest, at)) in loaded.maps.ingest.iter().enumerate() {
        match ingest.apply(number, &arrived, &mut kept) {
            None => {}
            Some(Err(loss)) => {
                let _ = writeln!(text, "# {at}: nothing, {}", loss.name());
            }
            Some(Ok(edit)) => {
                let _ = writeln!(text, "# {at}");
                show(&edit, &mut text);
                code = 0;
            }
        }
    }
    if text.is_empty() {
        match loaded.maps.ingest.len() {
            0 => eprintln!("no [[map.ingest]] is configured; name a file with --config, such as examples/sosa.toml"),
            number => eprintln!("none of {number} [[map.ingest]] is for the topic {:?}", args.topic),
        }
    }
    tidegate_program::out(&text);
    Ok(code)
}

fn show(edit: &Edit, text: &mut String) {
    for Mask { subject, predicate, object, graph } in &edit.remove {
        let any = || "*".to_owned();
        let subject = subject.as_ref().map_or_else(any, ToString::to_string);
        let predicate = predicate.as_ref().map_or_else(any, ToString::to_string);
        let object = object.as_ref().map_or_else(any, ToString::to_string);
        let graph = if let MaskGraph::Named(name) = graph { format!(" {name}") } else { String::new() };
        let _ = writeln!(text, "- {subject} {predicate} {object}{graph}");
    }
    for quad in &edit.insert {
        let _ = writeln!(text, "+ {quad}");
    }
}
