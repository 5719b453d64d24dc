//! From a message to a change of the smart space.

use oxrdf::{GraphName, NamedNode, Quad, Term};
use tidegate_graph::{Mask, MaskGraph};

use crate::additions::{Additions, quad_of};
use crate::fault::MapFault;
use crate::limits::{CHAIN_MAX, KEEP_MAX, TRIPLES_MAX};
use crate::loss::Loss;
use crate::pattern::TopicPattern;
use crate::term::{Prefixes, TripleTemplate, build_iri, parse, parse_iri};
use crate::text::{MappedMessage, TextPiece};

/// A rule as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngestRule {
    /// The topic filter of the messages that are mapped.
    pub topic: String,
    /// The triples that a message becomes, as templates.
    pub triples: Vec<String>,
    /// In which graph; none is the default graph.
    pub graph: Option<String>,
    /// What becomes of what they said before.
    pub mode: IngestMode,
    /// Longest chain of messages of maps that is taken; 0 takes those of clients only.
    pub chain: u8,
}

/// What becomes of what was said before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IngestMode {
    /// The newest value of a subject and a property is the only one.
    #[default]
    Replace,
    /// All are there, up to so many messages for each combination of captures.
    Append {
        /// The number of additions that stay.
        keep: usize,
    },
}

/// A rule that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingest {
    pattern: TopicPattern,
    triples: Vec<TripleTemplate>,
    graph: Option<Vec<TextPiece>>,
    mode: IngestMode,
    chain: u8,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub struct IncomingMessage<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// When, as `xsd:dateTime` has it.
    pub now: &'a str,
    /// A name that no other message has.
    pub id: &'a str,
    /// How long the chain of messages of maps is that it ends; 0 if a client sent it.
    pub chain: u8,
}

/// What is to be changed: first what matches goes, then these come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The masks of the quads to remove.
    pub remove: Vec<Mask>,
    /// The quads to insert.
    pub insert: Vec<Quad>,
}

impl Edit {
    /// What nobody else will remove if this change is refused: see [`Additions::owe`]. What a newer reading takes the place of
    /// is not among it, for the next reading does the same.
    pub fn debt(&self) -> Vec<Quad> {
        self.remove.iter().filter_map(quad_of).collect()
    }
}

impl Ingest {
    /// Compiles a rule.
    pub fn new(rule: &IngestRule, prefixes: &Prefixes) -> Result<Self, MapFault> {
        let pattern = TopicPattern::parse(&rule.topic)?;
        let names = pattern.names();
        if rule.triples.is_empty() || rule.triples.len() > TRIPLES_MAX {
            return Err(MapFault::new("triples", format!("a rule has 1 to {TRIPLES_MAX} triples")));
        }
        let triples = rule.triples.iter().map(|text| parse(text, &names, prefixes)).collect::<Result<_, _>>()?;
        let graph = rule.graph.as_ref().map(|text| {
            let text = text.trim_start_matches('<').trim_end_matches('>');
            parse_iri(text, &names, "graph")
        });
        if rule.chain > CHAIN_MAX {
            return Err(MapFault::new("chain", format!("expected a whole number from 0 to {CHAIN_MAX}")));
        }
        if matches!(rule.mode, IngestMode::Append { keep } if !(1..=KEEP_MAX).contains(&keep)) {
            return Err(MapFault::new("keep", format!("expected a whole number from 1 to {KEEP_MAX}")));
        }
        Ok(Self { graph: graph.transpose()?, triples, mode: rule.mode, chain: rule.chain, pattern })
    }

    /// The messages it wants, as MQTT has it.
    pub fn filter(&self) -> &str {
        self.pattern.filter()
    }

    /// What a message changes; none if it is not for this rule. `number` is the rule's, by which `kept` knows it.
    pub fn apply(
        &self,
        number: usize,
        arrived: &IncomingMessage<'_>,
        kept: &mut Additions,
    ) -> Option<Result<Edit, Loss>> {
        let captures = self.pattern.captures(arrived.topic)?;
        if arrived.chain > self.chain {
            return Some(Err(Loss::ChainTooLong));
        }
        let source = MappedMessage {
            topic: arrived.topic,
            payload: arrived.payload,
            captures,
            document: std::cell::OnceCell::new(),
            now: arrived.now,
            id: arrived.id,
        };
        Some(self.edit(number, &source, kept))
    }

    fn edit(&self, number: usize, source: &MappedMessage<'_>, kept: &mut Additions) -> Result<Edit, Loss> {
        let graph: Option<NamedNode> = self.graph.as_ref().map(|pieces| build_iri(pieces, source)).transpose()?;
        let name = graph.clone().map_or(GraphName::DefaultGraph, GraphName::from);
        let (mut edit, mut own) = (Edit::default(), Vec::new());
        for TripleTemplate { subject, predicate, object } in &self.triples {
            let node = |term: Term| if let Term::NamedNode(node) = term { Ok(node) } else { Err(Loss::ValueInvalid) };
            let (s, p) = (node(subject.build(source)?)?, node(predicate.build(source)?)?);
            // What only says what the topic says is not a reading: it does not take the place of anything.
            if self.mode == IngestMode::Replace && object.varies() {
                let graph = graph.clone().map_or(MaskGraph::Default, |graph| MaskGraph::Named(graph.into()));
                let mask = Mask { subject: Some(s.clone().into()), predicate: Some(p.clone()), object: None, graph };
                if !edit.remove.contains(&mask) {
                    edit.remove.push(mask);
                }
            }
            let quad = Quad::new(s, p, object.build(source)?, name.clone());
            if object.varies() || subject.varies() || predicate.varies() {
                own.push(quad.clone());
            }
            edit.insert.push(quad);
        }
        if let IngestMode::Append { keep } = self.mode {
            let mut gone = kept.add(number, source.captures.join("\n"), own, keep);
            edit.remove.append(&mut gone);
        }
        edit.remove.splice(0..0, kept.pay());
        Ok(edit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_graph::{GraphSpace, SpaceLimits};

    use super::*;

    fn rule(triples: &[&str], mode: IngestMode) -> IngestRule {
        let triples = triples.iter().map(|&text| text.to_owned()).collect();
        IngestRule { topic: "s/+room/+sensor".to_owned(), triples, mode, ..IngestRule::default() }
    }

    fn compiled(triples: &[&str]) -> Ingest {
        Ingest::new(&rule(triples, IngestMode::Replace), &Prefixes::default()).unwrap()
    }

    fn arrived<'a>(topic: &'a str, payload: &'a str) -> IncomingMessage<'a> {
        IncomingMessage { topic, payload: payload.as_bytes(), now: "2026-01-02T03:04:05Z", id: "m1", chain: 0 }
    }

    fn built(triple: &str, payload: &str) -> Result<String, Loss> {
        let edit = compiled(&[triple]).apply(0, &arrived("s/a b/ü", payload), &mut Additions::new(1)).unwrap()?;
        Ok(edit.insert[0].object.to_string())
    }

    #[test]
    fn terms_are_built_of_what_the_message_has() {
        for (object, payload, expected) in [
            ("{$.v}", r#"{"v":21.5}"#, r#""21.5"^^<http://www.w3.org/2001/XMLSchema#double>"#),
            ("{$.v}", r#"{"v":-3}"#, r#""-3"^^<http://www.w3.org/2001/XMLSchema#integer>"#),
            (
                "{$.v}",
                r#"{"v":{},"v":123456789012345678901234567890}"#,
                r#""123456789012345678901234567890"^^<http://www.w3.org/2001/XMLSchema#integer>"#,
            ),
            (
                "{$.l[1]}^^xsd:integer",
                r#"{"l":[1.5,-36893488147419103232]}"#,
                r#""-36893488147419103232"^^<http://www.w3.org/2001/XMLSchema#integer>"#,
            ),
            ("\"n {$.v}\"", r#"{"v":18446744073709551616}"#, r#""n 18446744073709551616""#),
            (
                "{$.v}",
                r#"{"v":1e30}"#,
                r#""1000000000000000000000000000000"^^<http://www.w3.org/2001/XMLSchema#double>"#,
            ),
            ("{$.v}", r#"{"v":true}"#, r#""true"^^<http://www.w3.org/2001/XMLSchema#boolean>"#),
            ("{$.v}", r#"{"v":"x\"> . <"}"#, r#""x\"> . <""#),
            ("{$}^^xsd:decimal", "21.5", r#""21.5"^^<http://www.w3.org/2001/XMLSchema#decimal>"#),
            ("\"{room}: {$.v} °C\"@en", r#"{"v":1}"#, "\"a b: 1 °C\"@en"),
            ("<urn:room:{room}:{$.v}>", r#"{"v":"a>b/c"}"#, "<urn:room:a%20b:a%3Eb%2Fc>"),
            ("<urn:x/{sensor}>", "", "<urn:x/%C3%BC>"),
            ("{now}", "", r#""2026-01-02T03:04:05Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>"#),
            ("{payload}", "on", "\"on\""),
            ("<urn:m:{id}>", "", "<urn:m:m1>"),
            ("\"a {{b}} \\\"c\\\"\"", "", "\"a {b} \\\"c\\\"\""),
            ("sosa:Sensor", "", "<http://www.w3.org/ns/sosa/Sensor>"),
            ("5 .", "", r#""5"^^<http://www.w3.org/2001/XMLSchema#integer>"#),
        ] {
            let triple = format!("<urn:s:{{sensor}}> a {object}");
            assert_eq!(built(&triple, payload).as_deref(), Ok(expected), "{object}");
        }
    }

    #[test]
    fn f107_hostile_levels_of_a_topic_are_text_and_nothing_else() {
        let ingest = compiled(&["<urn:s:{sensor}> <urn:of:{room}> \"{sensor}\""]);
        for hostile in ["x> . } ; DROP ALL ; INSERT DATA { <e:a> <e:b> \"\"\"\n\\", "{room}", "%3E", "\u{202e}", " "] {
            let topic = format!("s/k/{hostile}");
            let edit = ingest.apply(0, &arrived(&topic, ""), &mut Additions::new(1)).unwrap().unwrap();
            let [quad] = &edit.insert[..] else { panic!("{hostile:?} became {:?}", edit.insert) };
            assert_eq!(quad.object, Term::from(oxrdf::Literal::new_simple_literal(hostile)));
            let subject = quad.subject.to_string();
            let inside = subject.strip_prefix("<urn:s:").and_then(|rest| rest.strip_suffix('>')).unwrap();
            assert!(!inside.contains(['<', '>', '"', ' ', '{', '}', '\\', '\n', '/']), "{subject}");
        }
    }

    #[test]
    fn what_does_not_fit_has_a_name() {
        for (object, payload, loss) in [
            ("{$.v}", "not json", Loss::PayloadNotJson),
            ("{$.v}", "{}", Loss::PathMissing),
            ("{$.v}", r#"{"v":null}"#, Loss::PathMissing),
            ("{$.v}", r#"{"v":[1]}"#, Loss::ValueInvalid),
            ("{$.v}^^xsd:double", r#"{"v":"warm"}"#, Loss::ValueInvalid),
            ("{$.v}^^xsd:integer", r#"{"v":1.5}"#, Loss::ValueInvalid),
        ] {
            assert_eq!(built(&format!("<urn:s> a {object}"), payload), Err(loss), "{object} {payload}");
        }
        let long = "1".repeat(crate::limits::PAYLOAD_BYTES_MAX + 1);
        assert_eq!(built("<urn:s> a {$}", &long), Err(Loss::PayloadTooLong));
        assert_eq!(built("<urn:s> a {$}", &"[".repeat(100_000)), Err(Loss::PayloadNotJson));
    }

    #[test]
    fn a_rule_is_refused_with_a_reason() {
        for (triple, words) in [
            ("<urn:s:{rom}> a <urn:x>", "no placeholder \"rom\""),
            ("<{room}> a <urn:x>", "no absolute IRI"),
            ("{room} a <urn:x>", "the subject is an IRI"),
            ("<urn:s> \"p\" <urn:x>", "the predicate is an IRI"),
            ("<urn:s> a", "a subject, a predicate and an object"),
            ("<urn:s> a <urn:x> <urn:y>", "left over"),
            ("<urn:s> foo:bar 5", "no prefix \"foo\""),
            ("_:b a <urn:x>", "blank nodes"),
            ("<urn:s> a \"x", "has no"),
            ("<urn:s> a {$.}", "no name of a member"),
            ("<urn:s> a \"{room\"", "has no"),
            ("<urn:s> a \"warm\"^^xsd:double", "not of that"),
        ] {
            let fault = Ingest::new(&rule(&[triple], IngestMode::Replace), &Prefixes::default()).unwrap_err();
            assert!(fault.to_string().contains(words), "{triple}: {fault}");
            assert_eq!(fault.field, "triples");
        }
        assert_eq!(Ingest::new(&rule(&[], IngestMode::Replace), &Prefixes::default()).unwrap_err().field, "triples");
        let append = rule(&["<urn:s> a <urn:x>"], IngestMode::Append { keep: 0 });
        assert_eq!(Ingest::new(&append, &Prefixes::default()).unwrap_err().field, "keep");
    }

    #[test]
    fn the_newest_reading_takes_the_place_of_the_older_and_what_is_fixed_stays() {
        let ingest = compiled(&["<urn:s:{sensor}> a sosa:Sensor", "<urn:s:{sensor}> sosa:hasSimpleResult {$}"]);
        let (mut space, mut kept) = (GraphSpace::new(1, SpaceLimits::default()), Additions::new(1));
        for (topic, payload) in [("s/k/1", "1"), ("s/k/1", "2"), ("s/k/2", "7"), ("s/k/1", "3"), ("t/k/1", "9")] {
            if let Some(edit) = ingest.apply(0, &arrived(topic, payload), &mut kept) {
                let Edit { remove, insert } = edit.unwrap();
                space.edit(&remove, &insert).unwrap();
            }
        }
        let mut found: Vec<String> = space.snapshot().quads().map(|quad| quad.object.to_string()).collect();
        found.sort();
        let integer = |value: u8| format!("\"{value}\"^^<http://www.w3.org/2001/XMLSchema#integer>");
        let sensor = || "<http://www.w3.org/ns/sosa/Sensor>".to_owned();
        assert_eq!(found, [integer(3), integer(7), sensor(), sensor()]);
    }

    #[test]
    fn append_keeps_so_many() {
        let triples = ["<urn:o:{$.n}> sosa:hasSimpleResult {$.v}", "<urn:s:{sensor}> a sosa:Sensor"];
        let ingest = Ingest::new(&rule(&triples, IngestMode::Append { keep: 3 }), &Prefixes::default()).unwrap();
        let (mut space, mut kept) = (GraphSpace::new(1, SpaceLimits::default()), Additions::new(1));
        for number in 0..10 {
            let payload = format!(r#"{{"n":{number},"v":{}}}"#, number * 2);
            let Edit { remove, insert } = ingest.apply(0, &arrived("s/k/1", &payload), &mut kept).unwrap().unwrap();
            space.edit(&remove, &insert).unwrap();
        }
        assert_eq!(space.snapshot().quads().count(), 4);
    }

    #[test]
    fn what_a_refused_change_should_have_removed_goes_with_a_later_one() {
        let append = rule(&["<urn:o> sosa:hasSimpleResult {$}"], IngestMode::Append { keep: 2 });
        let ingest = Ingest::new(&append, &Prefixes::default()).unwrap();
        let (mut space, mut kept) = (GraphSpace::new(1, SpaceLimits::default()), Additions::new(1));
        for (number, payload) in ["0", "1", "2", "3", "4", "1", "6"].into_iter().enumerate() {
            let edit = ingest.apply(0, &arrived("s/k/1", payload), &mut kept).unwrap().unwrap();
            // Those of 2, 3 and 4 would have removed 0, 1 and 2; then 1 is said anew before it was removed.
            if (2..5).contains(&number) {
                assert_eq!(kept.owe(edit.debt()), 0);
            } else {
                space.edit(&edit.remove, &edit.insert).unwrap();
            }
        }
        let found = |space: &GraphSpace| {
            let mut found: Vec<String> = space.snapshot().quads().map(|quad| quad.object.to_string()).collect();
            found.sort();
            found.into_iter().filter_map(|text| text.chars().nth(1)).collect::<String>()
        };
        assert_eq!(found(&space), "16");
        let replace = Ingest::new(&rule(&["<urn:s> <urn:p> {$}"], IngestMode::Replace), &Prefixes::default()).unwrap();
        let edit = replace.apply(1, &arrived("s/k/1", "1"), &mut kept).unwrap().unwrap();
        assert!(edit.debt().is_empty(), "the next reading replaces by itself");
    }

    #[test]
    fn messages_of_maps_are_taken_only_up_to_the_length_that_is_allowed() {
        let allowing = IngestRule { chain: 2, ..rule(&["<urn:s> <urn:p> {$}"], IngestMode::Replace) };
        let ingest = Ingest::new(&allowing, &Prefixes::default()).unwrap();
        for (chain, is_taken) in [(0, true), (2, true), (3, false)] {
            let arrived = IncomingMessage { chain, ..arrived("s/a/b", "1") };
            let edit = ingest.apply(0, &arrived, &mut Additions::new(1)).unwrap();
            assert_eq!(edit.is_ok(), is_taken, "{chain}");
        }
        let closed = compiled(&["<urn:s> <urn:p> {$}"]);
        let mapped = IncomingMessage { chain: 1, ..arrived("s/a/b", "1") };
        assert_eq!(closed.apply(0, &mapped, &mut Additions::new(1)), Some(Err(Loss::ChainTooLong)));
    }

    proptest! {
        /// Whatever is sent: one triple of the rule's own subject and property, or a loss.
        #[test]
        fn a_device_cannot_leave_its_place(room in "[^/\0]{0,12}", value in any::<String>()) {
            let ingest = compiled(&["<urn:s:{room}:end> <urn:p> \"{$.v}!\""]);
            let (topic, payload) = (format!("s/{room}/x"), serde_json::json!({"v": value}).to_string());
            let edit = ingest.apply(0, &arrived(&topic, &payload), &mut Additions::new(1)).unwrap().unwrap();
            prop_assert_eq!(edit.insert.len(), 1);
            let quad = &edit.insert[0];
            let subject = quad.subject.to_string();
            let inside = subject.strip_prefix("<urn:s:").and_then(|rest| rest.strip_suffix(":end>")).unwrap();
            prop_assert!(inside.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)));
            let Term::Literal(literal) = &quad.object else { panic!("no literal") };
            prop_assert_eq!(literal.value(), format!("{value}!"));
            let update = format!("INSERT DATA {{ {quad} }}");
            prop_assert!(tidegate_graph::Update::parse(&update, &tidegate_graph::QueryLimits::default()).is_ok());
        }
    }
}
