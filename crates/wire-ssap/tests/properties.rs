//! What is written is read back, and no bytes at all make the codec panic.

use proptest::prelude::*;
use tidegate_wire_ssap::{Graph, Scanned, Scanner, SsapMessage, SsapQuery, SsapRequest, Triple, TripleNode};

fn text() -> impl Strategy<Value = String> {
    // Characters of XML without the carriage return, and what is special in it.
    "([ -~]|é|😀|\\]\\]>|</SSAP_message>|&amp;|<!--|\n){0,12}"
}

/// A URI that is neither a wildcard nor begins with a prefix that is expanded.
fn uri() -> impl Strategy<Value = TripleNode<'static>> {
    text().prop_map(|text| TripleNode::Uri(format!("u:{text}").into()))
}

fn object() -> impl Strategy<Value = TripleNode<'static>> {
    prop_oneof![uri(), Just(TripleNode::Any), text().prop_map(|text| TripleNode::Literal(format!("l{text}").into()))]
}

fn triples() -> impl Strategy<Value = Vec<Triple<'static>>> {
    let triple =
        (uri(), uri(), object()).prop_map(|(subject, predicate, object)| Triple { subject, predicate, object });
    proptest::collection::vec(triple, 0..4)
}

fn requests() -> impl Strategy<Value = SsapRequest<'static>> {
    let identifier = "[a-z]{1,8}";
    prop_oneof![
        Just(SsapRequest::Leave),
        text().prop_map(|text| SsapRequest::Join { credentials: Some(text.into()) }),
        (triples(), any::<bool>())
            .prop_map(|(triples, confirm)| SsapRequest::Insert { graph: Graph::Triples(triples), confirm }),
        (text(), any::<bool>())
            .prop_map(|(text, confirm)| SsapRequest::Remove { graph: Graph::RdfXml(text.into()), confirm }),
        (triples(), triples(), any::<bool>()).prop_map(|(insert, remove, confirm)| SsapRequest::Update {
            insert: Graph::Triples(insert),
            remove: Some(Graph::Triples(remove)),
            confirm
        }),
        triples().prop_map(|patterns| SsapRequest::Query(SsapQuery::Patterns(patterns))),
        text().prop_map(|text| SsapRequest::Subscribe(SsapQuery::Sparql(text.into()))),
        identifier.prop_map(|id| SsapRequest::Unsubscribe { subscription_id: id.into() }),
        (text(), any::<bool>())
            .prop_map(|(text, confirm)| SsapRequest::PersistentUpdate { update: text.into(), confirm }),
        identifier.prop_map(|id| SsapRequest::CancelPersistentUpdate { update_id: id.into() }),
    ]
}

proptest! {
    #[test]
    fn a_request_is_read_back_as_it_was_written(request in requests(), id in any::<u64>(), node in text()) {
        let node = format!("n{node}n");
        let mut out = String::new();
        request.write(id, &node, "X", &[("pace-want-ms", "12")], &mut out);
        prop_assert!(out.is_ascii());
        prop_assert_eq!(Scanner::default().scan(out.as_bytes(), out.len()), Scanned::Message(0..out.len()));
        let message = SsapMessage::parse(out.as_bytes()).unwrap();
        prop_assert_eq!(&*message.header.node_id, node.as_str());
        prop_assert_eq!(message.text("pace-want-ms").unwrap(), Some("12".into()));
        prop_assert_eq!(SsapRequest::read(&message).unwrap(), request);
    }

    #[test]
    fn damaged_messages_are_refused_or_read_but_never_panic(
        request in requests(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let mut out = String::new();
        request.write(1, "kp", "X", &[], &mut out);
        let mut bytes = out.into_bytes();
        for (place, byte, is_cut) in damage {
            let place = place.index(bytes.len());
            if is_cut && bytes.len() > 1 { bytes.remove(place); } else { bytes[place] = byte; }
        }
        let _ = Scanner::default().scan(&bytes, 1 << 20);
        if let Ok(message) = SsapMessage::parse(&bytes) {
            let _ = SsapRequest::read(&message);
        }
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_messages(requests in proptest::collection::vec(requests(), 1..4), piece in 1..50_usize) {
        let mut stream = String::new();
        for request in &requests {
            request.write(1, "kp", "X", &[], &mut stream);
            stream.push('\n');
        }
        let (mut scanner, mut buffer, mut found) = (Scanner::default(), Vec::new(), 0);
        for piece in stream.as_bytes().chunks(piece) {
            buffer.extend_from_slice(piece);
            while let Scanned::Message(range) = scanner.scan(&buffer, 1 << 20) {
                prop_assert!(SsapMessage::parse(&buffer[range.clone()]).is_ok());
                buffer.drain(..range.end);
                found += 1;
            }
        }
        prop_assert_eq!(found, requests.len());
    }
}
