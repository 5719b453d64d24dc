//! Maps between MQTT and the smart space: `[[map.ingest]]` and `[[map.emit]]`.
//!
//! ```toml
//! [map]
//! prefixes = ["ex: http://example.org/"]
//!
//! [[map.ingest]]
//! topic = "sensors/+room/+sensor"             # a name behind + or # can be used below
//! triples = ["<http://example.org/sensor/{sensor}> sosa:hasSimpleResult {$.value}"]
//! mode = "replace"                            # the newest value only; or "append", and of those keep = 100
//!
//! [[map.emit]]
//! query = "SELECT ?sensor ?v { ?sensor sosa:hasSimpleResult ?v FILTER(?v > 30) }"
//! topic = "alarm/{sensor}"
//! ```

use std::path::Path;

use tidegate_map::limits::{CHAIN_MAX, KEEP_MAX, RULES_MAX};
use tidegate_map::{Emit, EmitOn, EmitRule, Ingest, IngestMode, IngestRule, MapFault, Prefixes};
use tidegate_wire_mqtt::QoS;

use super::setting::{Setting, WholeNumber};
use super::{ConfigEntry, ConfigProblem, ConfigValue, Fields, Origin, read_fields, suggest};

/// A rule as it stands in a file: its kind and its fields.
#[derive(Clone, Debug)]
pub struct RawMap {
    pub kind: MapDirection,
    pub at: Origin,
    pub fields: Vec<ConfigEntry>,
}

/// Whether a map reads messages into the space or makes messages of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapDirection {
    Ingest,
    Emit,
}

impl MapDirection {
    /// By the key of the list.
    pub fn of(path: &str) -> Option<Self> {
        match path {
            "map.ingest" => Some(Self::Ingest),
            "map.emit" => Some(Self::Emit),
            _ => None,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Ingest => "map.ingest",
            Self::Emit => "map.emit",
        }
    }

    /// Every field with its meaning.
    pub fn fields(self) -> Fields {
        match self {
            Self::Ingest => INGEST,
            Self::Emit => EMIT,
        }
    }

    fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Ingest => &["topic", "triples"],
            Self::Emit => &["query", "topic"],
        }
    }
}

const INGEST: Fields = &[
    ("topic", "A topic filter whose wildcards may have names: `sensors/+room/#rest`. Needed."),
    (
        "triples",
        "A list of triples, in which `{room}`, `{$.value}` and the like stand for parts of the message. Needed.",
    ),
    ("graph", "The IRI of a named graph for all of them; unset: the default graph."),
    ("mode", "`replace`: the newest value of a subject and property only; `append`: the last `keep` messages."),
    ("keep", "How many messages an `append` map keeps of each combination of captures; 100 if nothing is said."),
    ("chain", "How many maps in a row a message may have come through; 0: none that a map has published."),
];

const EMIT: Fields = &[
    ("query", "A standing SELECT query. Needed."),
    ("topic", "The topic of the message for each solution, with variables in braces: `alarm/{sensor}`. Needed."),
    ("on", "`added` (if nothing is said), `removed` or `both`: when a message is sent."),
    ("qos", "0, 1 or 2; 0 if nothing is said."),
    ("retain", "Whether the message is retained."),
];

/// All maps, sound, each with where it stands.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    pub ingest: Vec<(IngestRule, Ingest, Origin)>,
    pub emit: Vec<(EmitRule, Emit, Origin)>,
}

impl Maps {
    pub fn is_empty(&self) -> bool {
        self.ingest.is_empty() && self.emit.is_empty()
    }

    /// What they say, wherever it stands.
    pub fn texts(&self) -> (Vec<&IngestRule>, Vec<&EmitRule>) {
        (self.ingest.iter().map(|(rule, ..)| rule).collect(), self.emit.iter().map(|(rule, ..)| rule).collect())
    }
}

/// Compiles all rules; what is wrong goes to `problems`.
pub fn compile(raw: &[RawMap], prefixes: &PrefixList, problems: &mut Vec<ConfigProblem>) -> Maps {
    let mut known = Prefixes::default();
    for text in &prefixes.0 {
        if let Err(fault) = known.add(text) {
            problems.push(ConfigProblem::of_key(&Origin::Default, "map.prefixes", fault.message));
        }
    }
    let mut maps = Maps::default();
    for RawMap { kind, at, fields } in raw {
        let before = problems.len();
        let mut rules = (IngestRule::default(), EmitRule::default());
        read_fields(kind.path(), kind.fields(), fields, problems, |field, value| {
            set(*kind, &mut rules, field, value).map_err(|expected| value.unfit(&expected))
        });
        for needed in kind.needed().iter().filter(|name| !fields.iter().any(|field| field.path == **name)) {
            problems.push(ConfigProblem::of_key(at, kind.path(), format!("a map needs \"{needed}\"")));
        }
        if problems.len() > before {
            continue;
        }
        let judged = match kind {
            MapDirection::Ingest => {
                Ingest::new(&rules.0, &known).map(|map| maps.ingest.push((rules.0, map, at.clone())))
            }
            MapDirection::Emit => Emit::new(&rules.1, &known).map(|map| maps.emit.push((rules.1, map, at.clone()))),
        };
        problems.extend(judged.err().map(|fault| problem(*kind, at, fields, &fault)));
    }
    if maps.ingest.len().max(maps.emit.len()) > RULES_MAX {
        problems.push(ConfigProblem::general(format!("there are more than {RULES_MAX} maps of one kind")));
    }
    maps
}

/// A fault at the place of its field.
fn problem(kind: MapDirection, at: &Origin, fields: &[ConfigEntry], fault: &MapFault) -> ConfigProblem {
    let origin = fields.iter().find(|field| field.path == fault.field).map_or(at, |field| &field.origin);
    let meant =
        fault.unknown.as_ref().and_then(|(name, known)| suggest::did_you_mean(name, known.iter().map(String::as_str)));
    let problem = ConfigProblem::of_key(origin, &format!("{}.{}", kind.path(), fault.field), fault.message.clone());
    problem.with_hint(meant.or_else(|| fault.hint.clone()))
}

/// Or what was expected.
fn set(kind: MapDirection, rules: &mut (IngestRule, EmitRule), field: &str, value: &ConfigValue) -> Result<(), String> {
    let (ingest, emit) = rules;
    match (kind, field) {
        (MapDirection::Ingest, "topic") => ingest.topic = text(value)?,
        (_, "topic") => emit.topic = text(value)?,
        (_, "query") => emit.query = text(value)?,
        (_, "graph") => ingest.graph = Some(text(value)?),
        (_, "triples") => match value {
            ConfigValue::List(list) => ingest.triples.clone_from(list),
            _ => return Err("a list of texts, each a triple such as \"<urn:s:{sensor}> <urn:value> {$.v}\"".to_owned()),
        },
        (_, "mode") => {
            ingest.mode = match (value.text(), ingest.mode) {
                (Some("replace"), _) => IngestMode::Replace,
                (Some("append"), IngestMode::Append { keep }) => IngestMode::Append { keep },
                (Some("append"), IngestMode::Replace) => IngestMode::Append { keep: KEEP },
                _ => return Err("\"replace\" or \"append\"".to_owned()),
            };
        }
        (_, "keep") => {
            let keep = number::<1, { KEEP_MAX as u64 }>(value)? as usize;
            ingest.mode = IngestMode::Append { keep };
        }
        (_, "chain") => ingest.chain = number::<0, { CHAIN_MAX as u64 }>(value)? as u8,
        (_, "qos") => emit.qos = QoS::from_bits(number::<0, 2>(value)? as u8).unwrap_or_default(),
        (_, "retain") => emit.retain = bool::read(value, None).ok_or_else(bool::expected)?,
        _ => {
            emit.on = match value.text() {
                Some("added") => EmitOn::Added,
                Some("removed") => EmitOn::Removed,
                Some("both") => EmitOn::Both,
                _ => return Err("\"added\", \"removed\" or \"both\"".to_owned()),
            };
        }
    }
    Ok(())
}

/// Messages of an `append` map that are kept, unless it says how many.
const KEEP: usize = 100;

fn text(value: &ConfigValue) -> Result<String, String> {
    let text = value.text().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| "text in quotes".to_owned())
}

fn number<const MIN: u64, const MAX: u64>(value: &ConfigValue) -> Result<u64, String> {
    WholeNumber::<MIN, MAX>::read(value, None)
        .map(|WholeNumber(number)| number)
        .ok_or_else(WholeNumber::<MIN, MAX>::expected)
}

/// Prefixes of the operator's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixList(pub Vec<String>);

impl Setting for PrefixList {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        let list: Vec<String> = match value {
            ConfigValue::List(list) => list.clone(),
            ConfigValue::Bare(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
            _ => return None,
        };
        list.iter().all(|text| Prefixes::default().add(text).is_ok()).then_some(Self(list))
    }

    fn expected() -> String {
        "a list of prefixes such as [\"ex: http://example.org/\"]".to_owned()
    }

    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A user that need not be named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserName(pub Option<String>);

impl Setting for UserName {
    fn read(value: &ConfigValue, _: Option<&Path>) -> Option<Self> {
        value.text().filter(|text| !text.is_empty()).map(|text| Self(Some(text.to_owned())))
    }

    fn expected() -> String {
        "the name of a user, in quotes".to_owned()
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "unset".to_owned(), |name| format!("{name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file;

    fn maps(text: &str) -> (Maps, Vec<String>) {
        let contents = file::parse(Path::new("t.toml"), text);
        let mut problems = contents.problems;
        let maps = compile(&contents.maps, &PrefixList::default(), &mut problems);
        (maps, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn both_kinds_are_read() {
        let text = "[[map.ingest]]\ntopic = \"s/+x\"\ntriples = [\"<urn:{x}> a {$}\"]\nkeep = 5\n\
                    [[map.emit]]\nquery = \"SELECT ?s { ?s ?p ?o }\"\ntopic = \"a/{s}\"\nqos = 1\non = \"both\"\n";
        let (maps, problems) = maps(text);
        assert_eq!(problems, [""; 0]);
        assert_eq!(maps.ingest[0].0.mode, IngestMode::Append { keep: 5 });
        assert_eq!((maps.emit[0].0.qos, maps.emit[0].0.on), (QoS::AtLeastOnce, EmitOn::Both));
    }

    #[test]
    fn f146_every_fault_of_a_map_has_its_line_and_a_suggestion() {
        let text = "[[map.ingest]]\ntopic = \"s/+room\"\ntriples = [\"<urn:{rom}> a {$}\"]\n\
                    [[map.ingest]]\ntopc = \"s\"\nmode = \"replce\"\n\
                    [[map.emit]]\nquery = \"SELECT ?s { ?s ?p ?o }\"\ntopic = \"a/{o}\"\n\
                    [[map.emti]]\nx = 1\n";
        let mut found = maps(text).1;
        found.sort();
        let mut expected = [
            "t.toml:3:1: map.ingest.triples: there is no placeholder \"rom\"; did you mean \"room\"?",
            "t.toml:5:1: map.ingest.topc: unknown key; did you mean \"topic\"?",
            "t.toml:6:1: map.ingest.mode: \"replce\" does not fit: expected \"replace\" or \"append\"",
            "t.toml:5:1: map.ingest: a map needs \"topic\"",
            "t.toml:5:1: map.ingest: a map needs \"triples\"",
            "t.toml:9:1: map.emit.topic: there is no variable \"o\"; did you mean \"s\"?",
            "t.toml:10:7: map.emti: unknown key; did you mean \"map.emit\"?",
        ]
        .map(ToOwned::to_owned)
        .to_vec();
        expected.sort();
        assert_eq!(found, expected);
    }
}
