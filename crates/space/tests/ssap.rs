//! Conversations of the four families of SSAP clients, byte by byte, over real sockets.

#![allow(clippy::unwrap_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::io::Write;

use common::{
    Broker, CONFIRM, NO_BLANKS, Peer, confirmed, graph, message, message_of, parameter, pattern, question, start,
    triple,
};
use tidegate_space::limits;

const LAMP: &str = "http://ex.org/lamp1";
const STATE: &str = "http://ex.org/hasState";

fn insert(id: u32, literal: &str) -> String {
    message("INSERT", id, &(graph("insert_graph", &triple(LAMP, STATE, literal)) + CONFIRM))
}

fn subscribed(broker: &Broker, node: &str, subject: &str) -> (Peer, String) {
    let mut peer = Peer::new(broker.ssap());
    peer.send(&message_of(node, "SUBSCRIBE", 7, &question(&pattern(subject))));
    let answer = peer.next();
    let name = parameter(&answer, "subscription_id").to_owned();
    (peer, name)
}

fn results(triples: &str) -> String {
    format!("<parameter name=\"results\"><triple_list>{triples}</triple_list></parameter>")
}

#[test]
fn java_half_closes_every_request_and_reads_to_the_end() {
    let broker = start();
    let ask = |text: &str| {
        let mut peer = Peer::new(broker.ssap());
        peer.send(&(text.to_owned() + "\n"));
        peer.half_close();
        peer.rest()
    };
    assert_eq!(ask(&message("JOIN", 1, "<parameter name=\"credentials\">XYZZY</parameter>")), confirmed("JOIN", 1, ""));
    assert_eq!(ask(&insert(2, "on")), confirmed("INSERT", 2, NO_BLANKS));
    let found = ask(&message("QUERY", 3, &question(&pattern(LAMP))));
    assert_eq!(found, confirmed("QUERY", 3, &results(&triple(LAMP, STATE, "on"))));
    let gone = ask(&message("REMOVE", 4, &(graph("remove_graph", &pattern(LAMP)) + CONFIRM)));
    assert_eq!(gone, confirmed("REMOVE", 4, ""));
    assert_eq!(ask(&message("QUERY", 5, &question(&pattern(LAMP)))), confirmed("QUERY", 5, &results("")));
    assert_eq!(ask(&message("LEAVE", 6, "")), confirmed("LEAVE", 6, ""));
}

#[test]
fn python_2_half_closes_its_subscription_and_is_told_all_the_same() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    peer.send(&message("SUBSCRIBE", 7, &question(&pattern(LAMP))));
    peer.half_close();
    let baseline = peer.next();
    let name = parameter(&baseline, "subscription_id").to_owned();
    let id = format!("<parameter name=\"subscription_id\">{name}</parameter>");
    assert_eq!(baseline, confirmed("SUBSCRIBE", 7, &(id.clone() + &results(""))));
    let mut writer = Peer::new(broker.ssap());
    writer.send(&insert(1, "on"));
    writer.next();
    assert_eq!(
        peer.next(),
        format!(
            "<SSAP_message><message_type>INDICATION</message_type><transaction_type>SUBSCRIBE</transaction_type>\
             <transaction_id>7</transaction_id><space_id>X</space_id><node_id>kp1</node_id>\
             <parameter name=\"ind_sequence\">1</parameter>{id}<parameter name=\"new_results\"><triple_list>{}\
             </triple_list></parameter><parameter name=\"obsolete_results\"><triple_list></triple_list></parameter>\
             </SSAP_message>",
            triple(LAMP, STATE, "on")
        )
    );
    // Its end is asked for elsewhere, confirmed here, and then there is nothing to keep the connection for.
    writer.send(&message("UNSUBSCRIBE", 9, &id));
    assert_eq!(peer.rest(), confirmed("UNSUBSCRIBE", 9, &id));
}

#[test]
fn c_keeps_one_connection_for_everything_but_subscriptions() {
    let broker = start();
    let mut main = Peer::new(broker.ssap());
    main.send(&message("JOIN", 1, ""));
    assert_eq!(main.next(), confirmed("JOIN", 1, ""));
    let (mut subscription, name) = subscribed(&broker, "kp1", LAMP);
    main.send(&insert(2, "on"));
    assert_eq!(main.next(), confirmed("INSERT", 2, NO_BLANKS));
    assert!(subscription.next().contains("INDICATION"));
    let id = format!("<parameter name=\"subscription_id\">{name}</parameter>");
    main.send(&message("UNSUBSCRIBE", 3, &id));
    assert_eq!(subscription.next(), confirmed("UNSUBSCRIBE", 3, &id));
    // The main connection got nothing: its next answer is the one to its next request.
    main.send(&message("LEAVE", 4, ""));
    assert_eq!(main.next(), confirmed("LEAVE", 4, ""));
    // The subscription's connection takes requests again.
    subscription.send(&message("QUERY", 5, &question(&pattern(LAMP))));
    assert!(subscription.next().contains("m3:Success"));
}

#[test]
fn python_3_begins_with_a_line_and_closes_at_once() {
    let broker = start();
    let (mut subscription, name) = subscribed(&broker, "kp1", LAMP);
    let mut goodbye = Peer::new(broker.ssap());
    let id = format!("<parameter name=\"subscription_id\">{name}</parameter>");
    goodbye.send(&format!("\n{}", message("UNSUBSCRIBE", 9, &id)));
    drop(goodbye);
    assert_eq!(subscription.next(), confirmed("UNSUBSCRIBE", 9, &id));
}

#[test]
fn pipelined_requests_are_answered_in_order_and_see_each_other() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let mut text = String::new();
    for round in 0..100 {
        text += &message(
            "UPDATE",
            round,
            &(graph("insert_graph", &triple(LAMP, STATE, &round.to_string()))
                + &graph("remove_graph", &pattern(LAMP))
                + CONFIRM),
        );
        if round % 10 == 9 {
            text += &message("QUERY", 1000 + round, &question(&pattern(LAMP)));
        }
    }
    peer.send(&text);
    for round in 0..100 {
        assert_eq!(peer.next(), confirmed("UPDATE", round, NO_BLANKS));
        if round % 10 == 9 {
            let expected = results(&triple(LAMP, STATE, &round.to_string()));
            assert_eq!(peer.next(), confirmed("QUERY", 1000 + round, &expected));
        }
    }
}

/// Changes of one connection, sent at once, that undo a part of what came before them.
#[test]
fn a_large_change_is_not_overtaken_by_a_later_one_of_its_connection() {
    const MANY: usize = limits::LARGE_QUADS;
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let one = |number: usize| triple("u:s", "u:p", &number.to_string());
    let some = |numbers: std::ops::Range<usize>| numbers.map(one).collect::<String>();
    let insert = |id, triples: &str| message("INSERT", id, &(graph("insert_graph", triples) + CONFIRM));
    let remove = |id, triples: &str| message("REMOVE", id, &(graph("remove_graph", triples) + CONFIRM));
    let ask = |id| message("QUERY", id, &question(&pattern("u:s")));
    let large = insert(1, &some(0..MANY));
    assert!(large.len() <= limits::INLINE_BYTES, "{} bytes are not read where they arrive", large.len());
    // What was brought with many is taken away, and what comes behind a removal of many stays.
    peer.send(&(large + &remove(2, &one(7)) + &insert(3, &some(MANY..MANY + 10)) + &ask(4)));
    peer.send(&(remove(5, &pattern("u:s")) + &insert(6, &one(8)) + &ask(7)));
    assert_eq!(peer.next(), confirmed("INSERT", 1, NO_BLANKS));
    assert_eq!(peer.next(), confirmed("REMOVE", 2, ""));
    assert_eq!(peer.next(), confirmed("INSERT", 3, NO_BLANKS));
    let found = peer.next();
    assert!(!found.contains(&one(7)), "it was removed behind its insertion");
    assert_eq!(found.matches("<triple>").count(), MANY + 9);
    assert_eq!(peer.next(), confirmed("REMOVE", 5, ""));
    assert_eq!(peer.next(), confirmed("INSERT", 6, NO_BLANKS));
    assert_eq!(peer.next(), confirmed("QUERY", 7, &results(&one(8))));
}

#[test]
fn sparql_asks_and_changes_in_the_same_message() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let mut ask = |id, text: &str| {
        let text = text.replace('<', "&lt;").replace('>', "&gt;");
        let parameters =
            format!("<parameter name=\"type\">sparql</parameter><parameter name=\"query\">{text}</parameter>");
        peer.send(&message("QUERY", id, &parameters));
        peer.next()
    };
    assert!(ask(1, "INSERT DATA { <urn:a> <urn:b> 'é' }").contains("<boolean>true</boolean>"));
    assert!(ask(2, "INSERT DATA { <urn:a> <urn:b> 'é' }").contains("<boolean>false</boolean>"));
    assert!(
        ask(3, "SELECT ?o { <urn:a> <urn:b> ?o }").contains(
            "<head><variable name=\"o\"/></head><results><result><binding name=\"o\"><literal>&#233;</literal>"
        )
    );
    assert!(ask(4, "ASK { <urn:a> <urn:b> ?o }").contains("<head></head><boolean>true</boolean>"));
    let graph = ask(5, "CONSTRUCT { ?s <http://ex.org/c> ?o } { ?s ?p ?o }");
    assert!(graph.contains("<parameter name=\"results\"><rdf:RDF") && graph.is_ascii(), "{graph}");
    let wrong = ask(6, "SELEC");
    assert!(wrong.contains("m3:KP.Error.Request") && !wrong.contains("results"), "{wrong}");
    assert!(ask(7, "SELECT * { SERVICE <urn:x> { ?s ?p ?o } }").contains("m3:KP.Error.Request"));
}

#[test]
fn sparql_subscriptions_have_an_empty_text_for_an_empty_side() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let query = "SELECT ?o { &lt;http://ex.org/lamp1&gt; ?p ?o }";
    let parameters =
        format!("<parameter name=\"type\">sparql</parameter><parameter name=\"query\">{query}</parameter>");
    peer.send(&message("SUBSCRIBE", 7, &parameters));
    assert!(peer.next().contains("<head><variable name=\"o\"/></head><results></results></sparql>"));
    let mut writer = Peer::new(broker.ssap());
    writer.send(&insert(1, "on"));
    let told = peer.next();
    assert!(told.contains("<binding name=\"o\"><literal>on</literal></binding>"), "{told}");
    assert!(told.ends_with("<parameter name=\"obsolete_results\"></parameter></SSAP_message>"), "{told}");
}

#[test]
fn an_update_is_one_change_and_what_changes_nothing_is_not_told() {
    let broker = start();
    let (mut peer, _) = subscribed(&broker, "kp1", LAMP);
    let mut writer = Peer::new(broker.ssap());
    let update = |id, from: &str, to: &str| {
        let (insert, remove) = (triple(LAMP, STATE, to), triple(LAMP, STATE, from));
        message("UPDATE", id, &(graph("insert_graph", &insert) + &graph("remove_graph", &remove) + CONFIRM))
    };
    for text in [insert(1, "on"), insert(2, "on"), update(3, "on", "on"), update(4, "on", "off")] {
        writer.send(&text);
        assert!(writer.next().contains("m3:Success"));
    }
    let (first, second) = (peer.next(), peer.next());
    assert_eq!((parameter(&first, "ind_sequence"), parameter(&second, "ind_sequence")), ("1", "2"));
    assert!(parameter(&second, "new_results").contains("off") && parameter(&second, "obsolete_results").contains("on"));
}

#[test]
fn nobody_is_answered_who_wants_no_answer() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let silent = insert(1, "on").replace("TRUE", "FALSE");
    peer.send(&(silent + &message("LEAVE", 2, "")));
    assert_eq!(peer.next(), confirmed("LEAVE", 2, ""));
}

#[test]
fn blank_nodes_become_names_that_are_told() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let blank = "<triple><subject type=\"bnode\">b1</subject><predicate>p</predicate><object type=\"literal\">x</object></triple>";
    peer.send(&message("INSERT", 1, &(graph("insert_graph", blank) + CONFIRM)));
    let answer = peer.next();
    let name = answer.split_once("<uri tag=\"b1\">").unwrap().1.split_once("</uri>").unwrap().0.to_owned();
    assert_eq!(name.len(), 36);
    peer.send(&message("QUERY", 2, &question(&pattern(&name))));
    assert!(peer.next().contains("<![CDATA[x]]>"));
}

#[test]
fn rules_stand_until_they_are_cancelled() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let rule = "INSERT { ?s &lt;http://ex.org/copy&gt; ?o } WHERE { ?s &lt;http://ex.org/hasState&gt; ?o }";
    let parameters = format!("<parameter name=\"query\" encoding=\"SPARQL-UPDATE\">{rule}</parameter>{CONFIRM}");
    peer.send(&message("PERSISTENT_UPDATE", 1, &parameters));
    let answer = peer.next();
    let name = parameter(&answer, "update_id").to_owned();
    assert_eq!(name.len(), 36, "{answer}");
    let mut count = |id, literal: &str| {
        peer.send(&insert(id, literal));
        peer.next();
        peer.send(&message("QUERY", id + 1, &question(&pattern(LAMP))));
        peer.next().matches("<triple>").count()
    };
    assert_eq!(count(2, "a"), 2);
    let cancel = message("CANCEL_PERSISTENT_UPDATE", 9, &format!("<parameter name=\"update_id\">{name}</parameter>"));
    let mut other = Peer::new(broker.ssap());
    other.send(&cancel);
    assert_eq!(other.next(), confirmed("CANCEL_PERSISTENT_UPDATE", 9, ""));
    assert_eq!(count(4, "b"), 3);
    other.send(&cancel);
    assert!(other.next().contains("m3:KP.Error.Request"));
}

#[test]
fn f097_what_is_no_message_is_answered_if_it_can_be_and_ends_there() {
    let broker = start();
    let ask = |text: &str| {
        let mut peer = Peer::new(broker.ssap());
        // The other side may close before all of it is sent.
        let _ = peer.stream.write_all(text.as_bytes());
        peer.half_close();
        peer.rest()
    };
    let broken = message("INSERT", 1, "<parameter name=\"insert_graph\"><x></y></parameter>");
    assert!(ask(&broken).contains("m3:KP.Error.Message.Syntax"));
    let bomb = format!("<!DOCTYPE x [<!ENTITY a \"aaaa\">]>{}", message("JOIN", 1, ""));
    assert!(!ask(&bomb).contains("m3:Success"));
    let deep = message("INSERT", 1, &("<a>".repeat(10_000) + &"</a>".repeat(10_000)));
    assert!(!ask(&deep).contains("m3:Success"));
    assert_eq!(ask("<SSAP_message><node_id>never ends"), "");
    // Two documents in one stream are two requests.
    let two = message("JOIN", 1, "") + &message("LEAVE", 2, "");
    assert_eq!(ask(&two), confirmed("JOIN", 1, "") + &confirmed("LEAVE", 2, ""));
    assert!(ask(&message("DANCE", 1, "")).contains("m3:SIB.Failure.NotImplemented"));
    let encoding = message("INSERT", 1, "<parameter name=\"insert_graph\" encoding=\"N3\">x</parameter>");
    assert!(ask(&encoding).contains("m3:SIB.Failure.NotImplemented"));
}

#[test]
fn f098_transactions_out_of_order_have_defined_answers() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    // Before JOIN, twice, and with a number that was used: all of it works.
    for text in [insert(1, "on"), message("JOIN", 1, ""), message("JOIN", 1, ""), message("LEAVE", 1, "")] {
        peer.send(&text);
        assert!(peer.next().contains("m3:Success"));
    }
    // Two subscriptions with the same number have different names; LEAVE ends neither.
    let (mut first, a) = subscribed(&broker, "kp1", LAMP);
    let (mut second, b) = subscribed(&broker, "kp1", LAMP);
    assert_ne!(a, b);
    peer.send(&(message("LEAVE", 2, "") + &insert(3, "off")));
    assert!(first.next().contains("INDICATION") && second.next().contains("INDICATION"));
    let unknown = "<parameter name=\"subscription_id\">nobody's</parameter>";
    peer.next();
    peer.next();
    peer.send(&message("UNSUBSCRIBE", 4, unknown));
    assert!(peer.next().contains("m3:KP.Error.Request"));
}

#[test]
fn blanks_between_messages_are_nothing_however_many() {
    let broker = start();
    let mut peer = Peer::new(broker.ssap());
    let blanks = " ".repeat(1 << 20);
    for _ in 0..=tidegate_space::limits::SSAP_MESSAGE_BYTES_MAX >> 20 {
        peer.send(&blanks);
    }
    peer.send(&insert(2, "on"));
    assert_eq!(peer.next(), confirmed("INSERT", 2, NO_BLANKS));
}
