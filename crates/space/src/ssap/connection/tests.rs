use oxrdf::{GraphNameRef, LiteralRef, NamedNodeRef, Quad, QuadRef};
use tidegate_graph::SpaceLimits;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Service;
use crate::limits::{BATCH_BYTES, LARGE_QUADS, SSAP_BUFFERS_BYTES_MAX, SSAP_MESSAGE_TIMEOUT, SSAP_ROOM_WAIT};

fn message(kind: &str, parameters: &str) -> String {
    format!(
        "<SSAP_message><node_id>kp</node_id><space_id>X</space_id><transaction_type>{kind}</transaction_type>\
         <message_type>REQUEST</message_type><transaction_id>1</transaction_id>{parameters}</SSAP_message>"
    )
}

/// A connection that nobody serves, and the client's end of it.
async fn connection(service: &Service) -> (SsapConnection, NotificationInlet, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let door =
        Arc::new(SsapState::new(service.handle(), Arc::new(crate::places::Places::new(8)), Arc::new(crate::Everybody)));
    let (outlet, inlet) = outlet(&door.handle);
    let (farewell, _) = mpsc::channel(SSAP_FAREWELLS);
    (SsapConnection::new(Box::new(stream.into_split().1), peer, door, outlet, farewell, None), inlet, client)
}

impl SsapConnection {
    async fn answer_one(&mut self) {
        let (outcome, understood) = next(&mut self.under_way).await;
        self.hear(outcome, understood);
    }
}

#[tokio::test]
async fn notifications_share_a_write_only_while_they_are_small() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let (mut connection, mut inlet, _client) = connection(&service).await;
    let everything = "<parameter name=\"type\">sparql</parameter>\
                      <parameter name=\"query\">SELECT ?o { ?s ?p ?o }</parameter>";
    connection.buffer.push(message("SUBSCRIBE", everything).as_bytes());
    connection.begin();
    connection.answer_one().await;
    assert_eq!(connection.subscriptions.len(), 1, "{}", connection.out);
    connection.out.clear();
    for letter in ["a", "b", "c", "d", "e"] {
        let (name, text) = (NamedNodeRef::new_unchecked("urn:a"), letter.repeat(BATCH_BYTES / 2));
        let quad = QuadRef::new(name, name, LiteralRef::new_simple_literal(&text), GraphNameRef::DefaultGraph);
        let ask = SpaceRequest::Edit { remove: Vec::new(), insert: vec![Quad::from(quad)] };
        service.handle().ask(ask, RequestOrigin::new(0, None)).await.unwrap();
    }
    let mut written = 0;
    for _ in 0..3 {
        let Some((id, told)) = inlet.next().await else { panic!("nothing is told") };
        connection.tell(id, told);
        connection.tell_more(&mut inlet);
        let bytes = std::mem::take(&mut connection.out).len();
        assert!(bytes < 2 * BATCH_BYTES, "{bytes} bytes share a write");
        written += bytes;
    }
    assert!(written > 5 * BATCH_BYTES / 2 && inlet.try_next().is_none(), "all of it is told: {written} bytes");
}

/// Changes as many as may be under way, and half a message behind them that takes room which others want.
async fn full(service: &Service) -> (SsapConnection, TcpStream) {
    let (mut connection, _inlet, client) = connection(service).await;
    let triples = "<parameter name=\"insert_graph\" encoding=\"RDF-M3\"><triple_list><triple><subject \
                   type=\"uri\">urn:a</subject><predicate>urn:p</predicate><object type=\"uri\">urn:o</object></triple>\
                   </triple_list></parameter>";
    connection.buffer.push(message("INSERT", triples).repeat(SSAP_WINDOW).as_bytes());
    connection.begin();
    assert_eq!((connection.under_way.len(), connection.buffer.bytes()), (SSAP_WINDOW, &b""[..]));
    connection.buffer.push(b"<SSAP_message>");
    while connection.buffer.wanted() == 0 {
        connection.buffer.push(&[b'x'; READ_BYTES]);
    }
    let room = connection.door.room.take(connection.buffer.wanted()).await.unwrap();
    connection.buffer.grant(room);
    connection.buffer.pace();
    (connection, client)
}

#[tokio::test]
async fn half_a_message_is_late_only_while_it_is_read() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let (mut connection, _client) = full(&service).await;
    let door = Arc::clone(&connection.door);
    let long_ago = Instant::now().checked_sub(SSAP_MESSAGE_TIMEOUT + SSAP_ROOM_WAIT).unwrap();
    let waits = async { door.room.take(u32::try_from(SSAP_BUFFERS_BYTES_MAX / READ_BYTES).unwrap()).await };
    tokio::select! {
        biased;
        _ = waits => panic!("the half message has some of the room"),
        () = async {
            assert!(door.room.is_wanted());
            (connection.since, connection.looked) = (long_ago, long_ago);
            assert!(!connection.goes_on_reading());
            assert_eq!(connection.ring(), None, "it is we who do not read");
            (connection.since, connection.looked) = (long_ago, long_ago);
            connection.answer_one().await;
            assert!(connection.goes_on_reading());
            assert_eq!(connection.ring(), None, "it has its time from now on");
            connection.looked = long_ago;
            assert_eq!(connection.ring(), Some("half a message in the way"));
            connection.since = long_ago;
            assert_eq!(connection.ring(), Some("half a message"));
        } => {}
    }
}

fn insert(count: usize) -> String {
    insert_from(0, count)
}

fn insert_from(first: usize, count: usize) -> String {
    let one = |number: usize| {
        format!(
            "<triple><subject type=\"uri\">u:s</subject><predicate>u:p</predicate><object type=\"literal\">{number}</object></triple>"
        )
    };
    let triples: String = (first..first + count).map(one).collect();
    let graph = format!(
        "<parameter name=\"insert_graph\" encoding=\"RDF-M3\"><triple_list>{triples}</triple_list></parameter>"
    );
    message("INSERT", &graph)
}

/// A REMOVE of what has this subject, and this predicate if there is one.
fn remove(predicate: &str) -> String {
    let any = "http://www.nokia.com/NRC/M3/sib#any";
    let predicate = if predicate.is_empty() { any } else { predicate };
    let triple = format!(
        "<triple><subject type=\"uri\">u:s</subject><predicate>{predicate}</predicate><object type=\"uri\">{any}</object></triple>"
    );
    let graph =
        format!("<parameter name=\"remove_graph\" encoding=\"RDF-M3\"><triple_list>{triple}</triple_list></parameter>");
    message("REMOVE", &graph)
}

#[tokio::test]
async fn a_change_that_may_be_made_apart_is_under_way_alone_and_small_ones_together() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    for large in [insert(LARGE_QUADS), remove("")] {
        let (mut connection, _inlet, _client) = connection(&service).await;
        let small = insert(1) + &remove("u:p");
        for message in [&small, &large, &small] {
            connection.buffer.push(message.as_bytes());
        }
        for together in [2, 1, 2] {
            connection.begin();
            assert_eq!(connection.under_way.len(), together);
            for _ in 0..together {
                connection.answer_one().await;
            }
        }
        assert!(connection.buffer.is_blank() && connection.parked.is_none());
    }
}

#[tokio::test]
async fn a_removal_that_turns_out_to_be_large_is_not_overtaken_by_what_its_connection_sends_behind_it() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let (mut connection, _inlet, _client) = connection(&service).await;
    let part = LARGE_QUADS / 2;
    for place in 0..8 {
        connection.buffer.push(insert_from(place * part, part).as_bytes());
    }
    // By its text it is a small change; what it takes away is made in pieces.
    connection.buffer.push(remove("u:p").as_bytes());
    for value in 0..3 {
        connection.buffer.push(insert_from(100_000 + value, 1).as_bytes());
    }
    connection.begin();
    assert_eq!(connection.under_way.len(), 12, "all of them are under way");
    for _ in 0..12 {
        connection.answer_one().await;
    }
    connection.out.clear();
    connection.buffer.push(query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }").as_bytes());
    connection.begin();
    connection.answer_one().await;
    assert!(connection.out.contains(">3<"), "what was sent behind the removal is there: {}", connection.out);
}

fn query(text: &str) -> String {
    let parameters = format!("<parameter name=\"type\">sparql</parameter><parameter name=\"query\">{text}</parameter>");
    message("QUERY", &parameters)
}

#[tokio::test]
async fn a_change_that_shows_a_ticket_is_under_way_alone() {
    let service = Service::start(SpaceLimits::default()).unwrap();
    let (mut connection, _inlet, _client) = connection(&service).await;
    let shown = "<parameter name=\"pace-ticket\">0000000000000001-0000000000000001</parameter></SSAP_message>";
    let ticketed = insert(1).replace("</SSAP_message>", shown);
    for message in [&insert(1), &ticketed, &insert(1)] {
        connection.buffer.push(message.as_bytes());
    }
    for _ in 0..3 {
        connection.begin();
        assert_eq!(connection.under_way.len(), 1);
        connection.answer_one().await;
    }
    assert!(connection.buffer.is_blank() && connection.parked.is_none());
}
