//! Exchanges as real clients have them, byte by byte, and messages that must be refused.

use tidegate_wire_ssap::{
    AnswerWriter, Graph, ReceivedReply, SsapFault, SsapMessage, SsapQuery, SsapRequest, Status, Transaction, Triple,
    TripleNode, read_triples, write_boolean, write_triples,
};

const HEAD: &str = "<SSAP_message><node_id>kp1</node_id><space_id>X</space_id>";

fn request(transaction: &str, id: u32, parameters: &str) -> String {
    format!(
        "{HEAD}<transaction_type>{transaction}</transaction_type><message_type>REQUEST</message_type>\
         <transaction_id>{id}</transaction_id>{parameters}</SSAP_message>"
    )
}

fn confirm(transaction: &str, id: u32, parameters: &str) -> String {
    format!(
        "<SSAP_message><message_type>CONFIRM</message_type><transaction_type>{transaction}</transaction_type>\
         <transaction_id>{id}</transaction_id><space_id>X</space_id><node_id>kp1</node_id>{parameters}</SSAP_message>"
    )
}

fn lamp(state: &'static str) -> Triple<'static> {
    Triple {
        subject: TripleNode::Uri("http://ex.org/lamp1".into()),
        predicate: TripleNode::Uri("http://ex.org/hasState".into()),
        object: TripleNode::Literal(state.into()),
    }
}

const LAMP_ON: &str = "<triple_list><triple><subject type=\"uri\">http://ex.org/lamp1</subject>\
                       <predicate>http://ex.org/hasState</predicate><object type=\"literal\"><![CDATA[on]]></object>\
                       </triple></triple_list>";

fn refuse(text: &str) -> SsapFault {
    match SsapMessage::parse(text.as_bytes()).and_then(|message| SsapRequest::read(&message).map(|_| ())) {
        Ok(()) => panic!("accepted: {text}"),
        Err(fault) => fault,
    }
}

#[test]
fn insert_with_its_answer() {
    let graph = format!("<parameter name=\"insert_graph\" encoding=\"RDF-M3\">{LAMP_ON}</parameter>");
    let text = request("INSERT", 2, &format!("{graph}<parameter name=\"confirm\">TRUE</parameter>"));
    let message = SsapMessage::parse(text.as_bytes()).unwrap();
    let expected = SsapRequest::Insert { graph: Graph::Triples(vec![lamp("on")]), confirm: true };
    assert_eq!(SsapRequest::read(&message), Ok(expected));
    let mut out = String::new();
    AnswerWriter::confirm(&message.header, Status::Success, &mut out).blank_nodes([("b1", "332a80fd")]).finish();
    let parameters = "<parameter name=\"status\">m3:Success</parameter><parameter name=\"bnodes\"><urilist>\
                      <uri tag=\"b1\">332a80fd</uri></urilist></parameter>";
    assert_eq!(out, confirm("INSERT", 2, parameters));
}

#[test]
fn update_removes_by_wildcard_and_may_be_sparql() {
    let any = "<triple_list><triple><subject type=\"uri\">http://ex.org/lamp1</subject><predicate>http://ex.org/hasState\
               </predicate><object type=\"uri\">http://www.nokia.com/NRC/M3/sib#any</object></triple></triple_list>";
    let text = request(
        "UPDATE",
        4,
        &format!(
            "<parameter name=\"insert_graph\" encoding=\"RDF-M3\">{LAMP_ON}</parameter><parameter name=\"remove_graph\" \
             encoding=\"RDF-M3\">{any}</parameter><parameter name=\"confirm\">FALSE</parameter>"
        ),
    );
    let message = SsapMessage::parse(text.as_bytes()).unwrap();
    let Ok(SsapRequest::Update { insert, remove: Some(Graph::Triples(removed)), confirm: false }) =
        SsapRequest::read(&message)
    else {
        panic!("{:?}", SsapRequest::read(&message))
    };
    assert_eq!(insert, Graph::Triples(vec![lamp("on")]));
    assert!(removed[0].is_pattern() && removed[0].object == TripleNode::Any);

    let sparql = "<parameter name=\"insert_graph\" encoding=\"SPARQL-UPDATE\">INSERT DATA { &lt;a:a&gt; &lt;a:b&gt; 1 }\
                  </parameter>";
    let text = request("UPDATE", 5, sparql);
    let message = SsapMessage::parse(text.as_bytes()).unwrap();
    let insert = Graph::Sparql("INSERT DATA { <a:a> <a:b> 1 }".into());
    assert_eq!(SsapRequest::read(&message), Ok(SsapRequest::Update { insert, remove: None, confirm: true }));
}

#[test]
fn queries_in_every_wrapping() {
    let query = "SELECT ?o WHERE { <http://ex.org/lamp1> <http://ex.org/hasState> ?o }";
    let escaped = query.replace('<', "&lt;").replace('>', "&gt;");
    for (wrapped, order) in [(escaped.clone(), 0), (format!("<![CDATA[{query}]]>"), 0), (escaped, 1)] {
        let mut parameters = [
            "<parameter name=\"type\">sparql</parameter>".to_owned(),
            format!("<parameter name=\"query\">{wrapped}</parameter>"),
        ];
        parameters.rotate_left(order);
        let text = request("QUERY", 6, &parameters.concat());
        let message = SsapMessage::parse(text.as_bytes()).unwrap();
        assert_eq!(SsapRequest::read(&message), Ok(SsapRequest::Query(SsapQuery::Sparql(query.into()))));
        let mut out = String::new();
        AnswerWriter::confirm(&message.header, Status::Success, &mut out)
            .with("results", |out| write_boolean(true, out))
            .finish();
        assert!(out.ends_with(
            "<parameter name=\"results\"><sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head></head>\
             <boolean>true</boolean></sparql></parameter></SSAP_message>"
        ));
    }
}

#[test]
fn rdf_xml_as_elements_escaped_or_cdata() {
    let document = "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\"><a/></rdf:RDF>";
    let escaped = document.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    for wrapped in [document.to_owned(), escaped, format!("<![CDATA[{document}]]>")] {
        let graph = format!("<parameter name=\"insert_graph\" format=\"RDF-XML\">{wrapped}</parameter>");
        let text = request("INSERT", 2, &graph);
        let message = SsapMessage::parse(text.as_bytes()).unwrap();
        let expected = SsapRequest::Insert { graph: Graph::RdfXml(document.into()), confirm: true };
        assert_eq!(SsapRequest::read(&message), Ok(expected));
    }
}

#[test]
fn a_subscription_from_its_confirmation_to_its_end() {
    let query = format!("<parameter name=\"type\">RDF-M3</parameter><parameter name=\"query\">{LAMP_ON}</parameter>");
    let text = request("SUBSCRIBE", 7, &query);
    let message = SsapMessage::parse(text.as_bytes()).unwrap();
    assert_eq!(SsapRequest::read(&message), Ok(SsapRequest::Subscribe(SsapQuery::Patterns(vec![lamp("on")]))));

    let mut out = String::new();
    AnswerWriter::indication(&message.header, 1, "s&1", &mut out)
        .with("new_results", |out| write_triples(&[lamp("on")], out))
        .with("obsolete_results", |out| write_triples(&[], out))
        .finish();
    let reply = ReceivedReply::read(SsapMessage::parse(out.as_bytes()).unwrap()).unwrap();
    assert_eq!(reply.header().transaction(), Some(Transaction::Subscribe));
    assert_eq!(reply.sequence(), Ok(Some(1)));
    assert_eq!(reply.text("subscription_id"), Ok(Some("s&1".into())));
    assert_eq!(read_triples(reply.inside("new_results").unwrap()), Ok(vec![lamp("on")]));
    assert_eq!(reply.inside("obsolete_results"), Some("<triple_list></triple_list>"));

    out.clear();
    AnswerWriter::ended(&message.header, Status::Closing, "s&1", &mut out).finish();
    assert!(out.starts_with(
        "<SSAP_message><message_type>INDICATION</message_type><transaction_type>UNSUBSCRIBE</transaction_type>\
         <transaction_id>7</transaction_id>"
    ));
}

#[test]
fn output_is_ascii_and_never_ends_a_message_early() {
    let hostile = "é\u{1F600}</SSAP_message>]]>\r\n\u{1}\"'&";
    let triple = Triple {
        subject: TripleNode::Uri("http://ex.org/é".into()),
        predicate: TripleNode::Uri("p".into()),
        object: TripleNode::Literal(hostile.into()),
    };
    let mut out = String::new();
    write_triples([&triple], &mut out);
    assert!(out.is_ascii() && !out.contains("</SSAP_message"), "{out}");
    let read = read_triples(&out).unwrap();
    assert_eq!(read[0].subject, triple.subject);
    // Control characters cannot be said in XML at all.
    assert_eq!(read[0].object, TripleNode::Literal(hostile.replace('\u{1}', "\u{FFFD}").into()));
}

#[test]
fn refusals_name_the_status_and_keep_the_header() {
    let status = |text: &str| refuse(text).status;
    assert_eq!(status(&request("REGISTER", 1, "")), Status::NotImplemented);
    assert_eq!(status(&request("INSERT", 1, "")), Status::Incomplete);
    let wql = "<parameter name=\"type\">WQL-VALUES</parameter><parameter name=\"query\">x</parameter>";
    assert_eq!(status(&request("QUERY", 1, wql)), Status::NotImplemented);
    let n3 = "<parameter name=\"insert_graph\" encoding=\"N3\">x</parameter>";
    assert_eq!(status(&request("INSERT", 1, n3)), Status::NotImplemented);
    assert_eq!(status(&format!("{HEAD}</SSAP_message>")), Status::Incomplete);
    assert_eq!(status("<other></other>"), Status::Syntax);
    assert_eq!(status(&request("JOIN", 1, "<node_id>again</node_id>")), Status::Syntax);
    assert_eq!(status(&request("JOIN", 1, "text")), Status::Syntax);
    assert_eq!(status(&request("JOIN", 1, "<parameter>x</parameter>")), Status::Syntax);
    assert_eq!(status(&confirm("JOIN", 1, "")), Status::NotImplemented, "answers are not for brokers");

    let broken = refuse(&request("INSERT", 9, "<parameter name=\"confirm\">TRUE</wrong>"));
    assert!(broken.is_broken && broken.status == Status::Syntax);
    assert_eq!(&*broken.header.transaction_id, "9", "the sender can be told");
    assert!(refuse(&request("JOIN", 1, "<parameter name=\"credentials\">&unknown;</parameter>")).is_broken);
    assert!(refuse(&request("JOIN", 1, "<parameter name=\"credentials\">\u{0}</parameter>")).is_broken);
}

/// Entities that expand to more entities, depth without end, attributes without number.
#[test]
fn f097_bombs_are_refused_at_once() {
    let bomb = format!("<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>{}", request("JOIN", 1, ""));
    assert_eq!(refuse(&bomb).status, Status::Syntax);
    let deep = format!("<parameter name=\"credentials\">{}</parameter>", "<a>".repeat(100_000));
    assert_eq!(refuse(&request("JOIN", 1, &deep)).status, Status::Syntax);
    let many = "<parameter name=\"a\">x</parameter>".repeat(33);
    assert_eq!(refuse(&request("JOIN", 1, &many)).status, Status::Syntax);
    let wide = " aaaa='x'".repeat(100_000);
    let wide = request("JOIN", 1, &format!("<parameter name=\"a\"{wide}>x</parameter>"));
    assert!(SsapMessage::parse(wide.as_bytes()).is_ok(), "only the names that matter are looked at");
    let long = format!("<node_id>{}</node_id>", "x".repeat(2000));
    assert_eq!(refuse(&format!("<SSAP_message>{long}</SSAP_message>")).status, Status::Syntax);
}
