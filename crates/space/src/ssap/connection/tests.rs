use oxrdf::{GraphNameRef, LiteralRef, NamedNodeRef, Quad, QuadRef};
use tidegate_graph::SpaceLimits;
use tokio::net::TcpListener;

use super::*;
use crate::Service;

fn message(kind: &str, parameters: &str) -> String {
    format!(
        "<SSAP_message><node_id>kp</node_id><space_id>X</space_id><transaction_type>{kind}</transaction_type>\
         <message_type>REQUEST</message_type><transaction_id>1</transaction_id>{parameters}</SSAP_message>"
    )
}

/// A connection that nobody serves, and the client's end of it.
async fn connection(service: &Service) -> (Connection, Inlet, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let door = Arc::new(Door::new(service.handle()));
    let (outlet, inlet) = outlet(&door.handle);
    let (farewell, _) = mpsc::channel(SSAP_FAREWELLS);
    (Connection::new(stream.into_split().1, peer, door, outlet, farewell), inlet, client)
}

impl Connection {
    async fn answer_one(&mut self) {
        let answered = next(&mut self.under_way).await;
        self.answer(answered);
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
        let ask = Ask::Edit { remove: Vec::new(), insert: vec![Quad::from(quad)] };
        service.handle().ask(ask, Asker::new(0, None)).await.unwrap();
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
