//! The client against a recorded conversation of a plain SIB: no numbers that can be trusted, no checks, no hints, a space
//! as a sign of life. The texts are as RedSIB forms them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a step that cannot be done has failed the test")]

mod common;

use std::time::Duration;

use common::{soon, triple};
use tidegate_client::{ChangeSource, Error, Level, Row, Space, SpaceConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What comes in and what is answered: the words that a request must have, and the answer, in which `ID` is the number of
/// the transaction. An empty answer closes.
type Line = (&'static str, &'static str);

fn confirm(kind: &str, parameters: &str) -> String {
    format!(
        "<SSAP_message><message_type>CONFIRM</message_type><transaction_type>{kind}</transaction_type>\
         <transaction_id>ID</transaction_id><space_id>X</space_id><node_id>kp1</node_id><parameter \
         name=\"status\">m3:Success</parameter>{parameters}</SSAP_message>"
    )
}

fn value(text: &str) -> String {
    format!(
        "<sparql xmlns=\"http://www.w3.org/2005/sparql-results#\"><head><variable name=\"o\"/></head><results><result>\
         <binding name=\"o\"><literal>{text}</literal></binding></result></results></sparql>"
    )
}

fn indication(number: u32, new: &str, old: &str) -> String {
    format!(
        " <SSAP_message><message_type>INDICATION</message_type><transaction_type>SUBSCRIBE</transaction_type>\
         <space_id>X</space_id><node_id>kp1</node_id><transaction_id>7</transaction_id><parameter \
         name=\"ind_sequence\">{number}</parameter><parameter name=\"subscription_id\">http://subscribe_graph#kp1_7\
         </parameter><parameter name=\"new_results\">{new}</parameter><parameter \
         name=\"obsolete_results\">{old}</parameter></SSAP_message>"
    )
}

/// One request of a connection.
async fn request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    const END: &[u8] = b"</SSAP_message>";
    loop {
        if let Some(place) = bytes.windows(END.len()).position(|window| window == END) {
            return Some(String::from_utf8(bytes.drain(..place + END.len()).collect()).unwrap());
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Plays a broker: every connection finds its answers in the script, by the kind of request, the first unused first.
async fn play(listener: TcpListener, script: Vec<(String, String)>) {
    let script = std::sync::Arc::new(std::sync::Mutex::new(script));
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let script = script.clone();
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            while let Some(text) = request(&mut stream, &mut bytes).await {
                // It closes at what it does not know.
                if text.contains("pace-") || text.contains("ind_sequence") {
                    return;
                }
                let found = {
                    let mut script = script.lock().unwrap();
                    let place = script.iter().position(|(words, _)| text.contains(words.as_str()));
                    place.map(|place| script.remove(place).1)
                };
                let Some(answer) = found.filter(|answer| !answer.is_empty()) else { return };
                let id = text.split("<transaction_id>").nth(1).unwrap().split('<').next().unwrap();
                stream.write_all(answer.replace("ID", id).as_bytes()).await.unwrap();
            }
        });
    }
}

async fn space(script: Vec<(String, String)>) -> Result<Space, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ssap://{}", listener.local_addr().unwrap());
    tokio::spawn(play(listener, script));
    let config = SpaceConfig { node: Some("kp1".into()), ..SpaceConfig::default() };
    Space::connect_with(&url, config).await
}

fn line((words, answer): Line) -> (String, String) {
    (words.to_owned(), answer.to_owned())
}

fn texts(rows: &[Row]) -> Vec<&str> {
    rows.iter().filter_map(|row| row.text("o")).collect()
}

const LAMP: &str = "SELECT ?o { <urn:lamp> <urn:state> ?o }";

#[tokio::test]
async fn a_gap_in_the_numbers_of_a_plain_sib_ends_in_a_new_subscription() {
    let subscribed = |text: &str| {
        let id = "<parameter name=\"subscription_id\">http://subscribe_graph#kp1_7</parameter>";
        confirm("SUBSCRIBE", &format!("{id}<parameter name=\"results\">{}</parameter>", value(text)))
    };
    let lost =
        format!("{}{}{}", subscribed("a"), indication(1, &value("b"), &value("a")), indication(3, &value("d"), ""));
    let script = vec![
        ("JOIN".to_owned(), confirm("JOIN", "")),
        ("INSERT".to_owned(), confirm("INSERT", "<parameter name=\"bnodes\"><urilist></urilist></parameter>")),
        (">SUBSCRIBE".to_owned(), lost),
        (">SUBSCRIBE".to_owned(), format!("   \n{}", subscribed("d"))),
    ];
    let space = soon(space(script)).await.unwrap();
    space.insert(&[triple("urn:lamp", "a")]).await.unwrap();
    let mut query = soon(space.persistent_query(LAMP).control(Level::Active).open()).await.unwrap();
    let mut lost = 0;
    loop {
        let change = soon(query.next()).await.unwrap();
        lost += change.lost;
        if change.source == ChangeSource::Check || texts(&query.view().await.unwrap()) == ["d"] {
            break;
        }
    }
    assert_eq!((lost, texts(&query.view().await.unwrap())), (1, vec!["d"]));
}

#[tokio::test]
async fn a_loss_without_any_trace_is_found_by_query_and_difference() {
    let id = "<parameter name=\"subscription_id\">s</parameter>";
    let subscribed =
        |text: &str| confirm("SUBSCRIBE", &format!("{id}<parameter name=\"results\">{}</parameter>", value(text)));
    let found = confirm("QUERY", &format!("<parameter name=\"results\">{}</parameter>", value("b")));
    let script = vec![
        ("JOIN".to_owned(), confirm("JOIN", "")),
        (">SUBSCRIBE".to_owned(), subscribed("a")),
        (">QUERY".to_owned(), found),
        (">SUBSCRIBE".to_owned(), subscribed("b")),
    ];
    let space = soon(space(script)).await.unwrap();
    let query = space.persistent_query(LAMP).control(Level::Fixed).interval(Duration::from_millis(100));
    let mut query = soon(query.open()).await.unwrap();
    assert_eq!(texts(&soon(query.next()).await.unwrap().added), ["a"]);
    let change = soon(query.next()).await.unwrap();
    assert_eq!((texts(&change.added), texts(&change.removed), change.lost), (vec!["b"], vec!["a"], 1));
}

#[tokio::test]
async fn answers_without_sense_are_errors_within_a_bounded_time() {
    for answer in ["<SSAP_message>x</SSAP_message>", "<SSAP_message><a></SSAP_message>", ""] {
        let error = soon(space(vec![line(("JOIN", answer))])).await.unwrap_err();
        assert!(matches!(error, Error::Nonsense(_) | Error::Lost(_)), "{answer}: {error}");
    }
    let failed = confirm("QUERY", "").replace("m3:Success", "m3:SIB.Error");
    let script = vec![("JOIN".to_owned(), confirm("JOIN", "")), (">QUERY".to_owned(), failed)];
    let space = soon(space(script)).await.unwrap();
    assert!(matches!(space.query(LAMP).await, Err(Error::Failed(_))));
    // Whoever says nothing at all is given up.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ssap://{}", listener.local_addr().unwrap());
    let config = SpaceConfig { patience: Some(Duration::from_millis(50)), ..SpaceConfig::default() };
    assert!(matches!(soon(Space::connect_with(&url, config)).await, Err(Error::TimedOut)));
}
