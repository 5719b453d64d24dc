//! Brokers that are gone, slow or lying: every wait is bounded, every failure is a value, nobody asks in a busy loop, and
//! the view that was right stays until a better one comes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::soon;
use tidegate_client::{Error, EventKind, Level, Mqtt, Space, SpaceConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LAMP: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

/// Answers every request on every connection with the same bytes; the number of connections is counted.
async fn always(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let number = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer, Arc::clone(&number)));
        }
    });
    (url, count)
}

async fn serve(mut stream: TcpStream, answer: &'static str, count: Arc<AtomicUsize>) {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|length| length > 0) {
        if bytes.windows(4).any(|window| window == b"\r\n\r\n") {
            count.fetch_add(1, Ordering::Relaxed);
            bytes.clear();
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

async fn space(url: &str) -> Space {
    let config = SpaceConfig { patience: Some(Duration::from_millis(300)), ..SpaceConfig::default() };
    soon(Space::connect_with(url, config)).await.unwrap()
}

#[tokio::test]
async fn an_answer_without_sense_is_a_typed_error() {
    for (answer, is_expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"bad\":",
            (|e| matches!(e, Error::Nonsense(_))) as fn(&Error) -> bool,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", |e| matches!(e, Error::Nonsense(_))),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", |e| !e.is_passing()),
        ("HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", |e| matches!(e, Error::Nonsense(_))),
        ("SSH-2.0-OpenSSH_9\r\n\r\n", |e| matches!(e, Error::Lost(_))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\nhalf of it", |e| matches!(e, Error::TimedOut)),
        ("", |e| matches!(e, Error::TimedOut)),
    ] {
        let (url, _) = always(answer).await;
        let error = soon(space(&url).await.query(LAMP)).await.unwrap_err();
        assert!(is_expected(&error), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn absurd_advice_neither_stops_a_client_for_ever_nor_makes_it_busy() {
    for advice in [
        "Retry-After: 18446744073709551615\r\n",
        "Retry-After: -1\r\npace-retry-after-ms: nonsense\r\npace-ticket: zzz\r\n",
        "pace-retry-after-ms: 0\r\npace-ticket: ffffffffffffffff-0\r\npace-stretch: 99999999999999\r\n",
    ] {
        let answer = format!("HTTP/1.1 503 Service Unavailable\r\n{advice}Content-Length: 0\r\n\r\n");
        let (url, count) = always(answer.leak()).await;
        let space = space(&url).await;
        assert!(matches!(soon(space.query(LAMP)).await, Err(Error::Busy { .. })), "{advice}");
        // Whoever waits gives up in time, and was not there more often than every 100 ms.
        let wait = Duration::from_millis(450);
        assert!(matches!(soon(space.waiting(wait).query(LAMP)).await, Err(Error::Busy { .. })), "{advice}");
        assert!(count.load(Ordering::Relaxed) <= 1 + 5, "{advice}: {count:?}");
    }
}

/// A refusal as a whole response.
fn refusal(status: &str, body: &str) -> &'static str {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\npace-retry-after-ms: 1\r\nContent-Length: {length}\r\n\r\n{body}").leak()
}

/// Why it failed; nothing if it comes back instead.
async fn failed<T>(space: &Space, work: impl Future<Output = Result<T, Error>>) -> Option<Error> {
    let mut events = space.events();
    let returning = async { while !matches!(soon(events.next()).await.unwrap().kind, EventKind::Returning { .. }) {} };
    tokio::select! {
        outcome = soon(work) => outcome.err(),
        () = returning => None,
    }
}

#[tokio::test]
async fn a_change_that_may_be_stored_is_not_sent_again_and_says_so() {
    const UNAVAILABLE: &str = "503 Service Unavailable";
    let problem = |name: &str| format!(r#"{{"type":"urn:tidegate:problem:{name}","detail":"said"}}"#);
    let change = "INSERT DATA { <urn:lamp> <urn:state> 'on' }";
    let unconfirmed = |e: &Error| matches!(e, Error::Unconfirmed(_)) && e.to_string().contains("may have been made");
    for (status, body, is_repeated) in [
        (UNAVAILABLE, problem("unconfirmed"), false),
        (UNAVAILABLE, problem("of another version"), false),
        (UNAVAILABLE, String::new(), false),
        (UNAVAILABLE, r#"{"type":"about:blank","error":"busy"}"#.to_owned(), false),
        (UNAVAILABLE, problem("busy"), true),
        (UNAVAILABLE, problem("late"), true),
        (UNAVAILABLE, problem("unwritable"), true),
        (UNAVAILABLE, problem("closing"), true),
        ("429 Too Many Requests", String::new(), true),
    ] {
        let (url, count) = always(refusal(status, &body)).await;
        let space = space(&url).await.waiting(common::PATIENCE);
        let error = Box::pin(failed(&space, space.update(change))).await;
        assert_eq!(error.as_ref().is_none(), is_repeated, "{status} {body}: {error:?}");
        assert!(error.as_ref().is_none_or(unconfirmed), "{status} {body}: {error:?}");
        assert_eq!(count.load(Ordering::Relaxed), 1, "{status} {body}");
    }
}

#[tokio::test]
async fn a_question_is_asked_again_only_if_the_answer_can_be_another() {
    let problem = r#"{"type":"urn:tidegate:problem:failed","detail":"said"}"#;
    for (status, body, is_repeated) in [
        ("500 Internal Server Error", problem, false),
        ("413 Payload Too Large", "", false),
        // Whoever stands before a broker that starts again.
        ("502 Bad Gateway", "", true),
        ("503 Service Unavailable", "", true),
    ] {
        let (url, _) = always(refusal(status, body)).await;
        let space = space(&url).await.waiting(common::PATIENCE);
        let error = Box::pin(failed(&space, space.query(LAMP))).await;
        assert_eq!(error.is_none(), is_repeated, "{status}: {error:?}");
    }
}

#[tokio::test]
async fn a_socket_that_talks_nonsense_is_left_and_come_back_to_with_jitter() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    // The first socket begins well, then lies: about numbers, with half a document, and with what is no text at all.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(lie(stream, count));
        }
    });
    let space = space(&url).await;
    let mut events = space.events();
    let query = space.persistent_query(LAMP).control(Level::Active);
    let mut query = soon(query.open()).await.unwrap();
    assert_eq!(soon(query.next()).await.unwrap().added[0].text("o"), Some("a"));
    let mut returns = 0;
    while connections.load(Ordering::Relaxed) < 4 {
        if let EventKind::Returning { .. } = soon(events.next()).await.unwrap().kind {
            returns += 1;
        }
        // Whatever it says, what was known stays known.
        assert!(!query.view().await.unwrap().is_empty());
    }
    assert!(connections.load(Ordering::Relaxed) <= returns + 2, "{connections:?} after {returns} planned returns");
    let stats = soon(query.stats()).await.unwrap();
    assert!(stats.counts.gaps > 0, "{stats:?}");
}

/// A broker that greets, confirms the first subscription of each socket, and then says something else each time.
async fn lie(stream: TcpStream, count: Arc<AtomicUsize>) {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    let number = count.fetch_add(1, Ordering::Relaxed);
    let rows = |text: &str| {
        format!(
            r#"{{"head":{{"vars":["o"]}},"results":{{"bindings":[{{"o":{{"type":"literal","value":"{text}"}}}}]}}}}"#
        )
    };
    while let Some(Ok(message)) = socket.next().await {
        let Ok(text) = message.to_text() else { return };
        let Some(alias) = text.split(r#""alias":""#).nth(1).and_then(|rest| rest.split('"').next()) else { continue };
        let told = |sequence: u64, text: &str, alias: &str| {
            let rows = rows(text);
            Message::text(format!(
                r#"{{"notification":{{"spuid":"s{number}","alias":"{alias}","sequence":{sequence},"addedResults":{rows}}}}}"#
            ))
        };
        let _ = socket.send(told(0, "a", alias)).await;
        let lies =
            [told(u64::MAX, "b", ""), told(1, "c", ""), Message::text("{\"notification\":"), Message::text("[]]")];
        let _ = socket.send(lies[number % lies.len()].clone()).await;
        let _ = socket.send(Message::text("{")).await;
    }
}

#[tokio::test]
async fn one_absurd_number_does_not_make_a_watch_blind() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ssap://{}", listener.local_addr().unwrap());
    let baselines = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(misnumber(stream, Arc::clone(&baselines)));
        }
    });
    let space = space(&url).await;
    let mut events = space.events();
    let mut query = soon(space.persistent_query(LAMP).control(Level::Active).open()).await.unwrap();
    assert_eq!(soon(query.next()).await.unwrap().added[0].text("o"), Some("a"));
    query.check().await.unwrap();
    while !matches!(soon(events.next()).await.unwrap().kind, EventKind::CheckAnswered { is_short: false }) {}
    query.check().await.unwrap();
    assert_eq!(soon(query.next()).await.unwrap().added[0].text("o"), Some("b"), "a baseline anew");
}

/// A broker of SSAP that answers what was missed with a number that cannot be, and has another result from then on.
async fn misnumber(mut stream: TcpStream, baselines: Arc<AtomicUsize>) {
    const END: &str = "</SSAP_message>";
    let rows = |text: &str| {
        format!(
            "<parameter name=\"results\"><sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head><variable \
             name=\"o\"/></head><results><result><binding name=\"o\"><literal>{text}</literal></binding></result>\
             </results></sparql></parameter>"
        )
    };
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|length| length > 0) {
        while let Some(end) = String::from_utf8_lossy(&bytes).find(END) {
            let text = String::from_utf8(bytes.drain(..end + END.len()).collect()).unwrap();
            let part = |name: &str| text.split(name).nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default();
            let (kind, id) = (part("<transaction_type>"), part("<transaction_id>"));
            let more = match kind {
                "QUERY" => format!("<parameter name=\"pace-dbr-ms\">100</parameter>{}", rows("a")),
                "SUBSCRIBE" if text.contains("ind_sequence") => "<parameter name=\"resumed\">TRUE</parameter>\
                     <parameter name=\"ind_sequence\">4294967295</parameter>"
                    .to_owned(),
                "SUBSCRIBE" => {
                    let result = if baselines.fetch_add(1, Ordering::Relaxed) == 0 { "a" } else { "b" };
                    format!("<parameter name=\"subscription_id\">s</parameter>{}", rows(result))
                }
                _ => String::new(),
            };
            let answer = format!(
                "<SSAP_message><message_type>CONFIRM</message_type><transaction_type>{kind}</transaction_type>\
                 <transaction_id>{id}</transaction_id><space_id>X</space_id><node_id>k</node_id><parameter \
                 name=\"status\">m3:Success</parameter>{more}{END}"
            );
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_broker_of_mqtt_that_greets_and_then_raves_is_come_back_to_with_jitter() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mqtt://{}", listener.local_addr().unwrap());
    let greetings = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&greetings);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut bytes = [0; 256];
            let _ = stream.read(&mut bytes).await;
            // A good CONNACK of MQTT 5, and then a PUBACK for nobody and a packet that does not exist.
            let _ = stream.write_all(&[0x20, 3, 0, 0, 0, 0x40, 2, 0, 9, 0x00, 0xff, 0xff, 0xff, 0xff, 0x7f]).await;
            let _ = stream.read(&mut bytes).await;
        }
    });
    let mqtt = soon(Mqtt::connect(&url)).await.unwrap();
    let mut events = mqtt.events();
    let mut returns = 0;
    while greetings.load(Ordering::Relaxed) < 4 {
        if let EventKind::Returning { .. } = soon(events.next()).await.unwrap().kind {
            returns += 1;
        }
    }
    assert!(greetings.load(Ordering::Relaxed) <= returns + 2, "{greetings:?} after {returns} planned returns");
    assert!(soon(mqtt.stats()).await.is_ok(), "it is still there");
}
