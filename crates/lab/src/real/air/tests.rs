//! What becomes of messages on a line.

use super::line::{Door, Kind, Line, MESSAGE_BYTES_MAX, Piece, Radio, TooLong, Way};

const REQUEST: &str =
    "<SSAP_message><message_type>REQUEST</message_type><transaction_type>SUBSCRIBE</transaction_type></SSAP_message>";
const FAREWELL: &str =
    "<SSAP_message><message_type>REQUEST</message_type><transaction_type>UNSUBSCRIBE</transaction_type></SSAP_message>";
const ANSWER: &str = "<SSAP_message><message_type>CONFIRM</message_type></SSAP_message>";
const NOTIFICATION: &str = "<SSAP_message><message_type>INDICATION</message_type></SSAP_message>";

fn kinds(pieces: &[Piece]) -> Vec<Kind> {
    pieces.iter().map(|piece| piece.kind).collect()
}

fn texts(pieces: &[Piece]) -> String {
    pieces.iter().map(|piece| String::from_utf8_lossy(&piece.bytes)).collect()
}

/// Nothing is lost unless it is asked for.
fn calm(line: &mut Line, way: Way, bytes: &[u8]) -> Vec<Piece> {
    line.on_bytes(way, bytes, 0.0, &mut Radio::new(1, 1)).unwrap()
}

/// Everything is.
fn storm(line: &mut Line, way: Way, bytes: &[u8]) -> Vec<Piece> {
    line.on_bytes(way, bytes, 1.0, &mut Radio::new(1, 1)).unwrap()
}

/// A frame with text: what a client sends is masked.
fn frame(way: Way, text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).unwrap();
    assert!(len < 126);
    match way {
        Way::Down => [&[0x81, len], text.as_bytes()].concat(),
        Way::Up => [&[0x81, 0x80 | len, 0, 0, 0, 0], text.as_bytes()].concat(),
    }
}

/// A line behind the handshake of a WebSocket.
fn socket() -> Line {
    let mut line = Line::new(Door::Http);
    let wish = b"GET /subscribe HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n";
    let granted = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n";
    assert_eq!(kinds(&storm(&mut line, Way::Up, wish)), [Kind::Rest], "a handshake is never lost");
    assert_eq!(kinds(&storm(&mut line, Way::Down, granted)), [Kind::Rest]);
    line
}

#[test]
fn messages_of_ssap_are_cut_out_of_any_split_of_the_stream() {
    let up = format!("{REQUEST}\n{FAREWELL}");
    let down = format!("{ANSWER}{NOTIFICATION} {NOTIFICATION}");
    for size in [1, 7, 64, 10_000] {
        let mut line = Line::new(Door::Ssap);
        let mut all = |way, text: &str| -> Vec<Piece> {
            text.as_bytes().chunks(size).flat_map(|chunk| calm(&mut line, way, chunk)).collect()
        };
        let (sent, heard) = (all(Way::Up, &up), all(Way::Down, &down));
        assert_eq!((texts(&sent), texts(&heard)), (up.clone(), down.clone()));
        assert_eq!(kinds(&sent), [Kind::Request, Kind::Farewell]);
        assert_eq!(kinds(&heard), [Kind::Answer, Kind::Notification, Kind::Notification]);
    }
}

#[test]
fn a_lost_message_of_ssap_leaves_the_next_one_whole() {
    let mut line = Line::new(Door::Ssap);
    assert!(storm(&mut line, Way::Down, NOTIFICATION.as_bytes())[0].is_lost);
    let pieces = calm(&mut line, Way::Down, ANSWER.as_bytes());
    assert!(!pieces[0].is_lost && texts(&pieces) == ANSWER);
}

#[test]
fn frames_are_cut_and_known_by_their_words() {
    let mut line = socket();
    let sent = [
        frame(Way::Up, r#"{"subscribe":{"sparql":"SELECT"}}"#),
        frame(Way::Up, r#"{"unsubscribe":{"spuid":"s"}}"#),
        vec![0x8a, 0x80, 0, 0, 0, 0],
    ];
    let heard = [
        frame(Way::Down, r#"{"notification":{"sequence":0,"spuid":"s"}}"#),
        frame(Way::Down, r#"{"notification":{"sequence":3,"spuid":"s"}}"#),
        frame(Way::Down, r#"{"notification":{"resumed":true,"sequence":4}}"#),
        frame(Way::Down, r#"{"error":"too_many_requests"}"#),
    ];
    let mut all =
        |way, bytes: Vec<u8>| -> Vec<Piece> { bytes.chunks(5).flat_map(|chunk| calm(&mut line, way, chunk)).collect() };
    assert_eq!(kinds(&all(Way::Up, sent.concat())), [Kind::Request, Kind::Farewell, Kind::Rest]);
    let kinds = kinds(&all(Way::Down, heard.concat()));
    assert_eq!(kinds, [Kind::Answer, Kind::Notification, Kind::Answer, Kind::Answer]);
}

#[test]
fn a_lost_frame_leaves_the_next_one_and_a_sign_of_life_is_never_lost() {
    let mut line = socket();
    let text = frame(Way::Down, r#"{"notification":{"sequence":3}}"#);
    let pieces = storm(&mut line, Way::Down, &[text.clone(), vec![0x89, 0]].concat());
    assert_eq!(pieces.iter().map(|piece| piece.is_lost).collect::<Vec<_>>(), [true, false]);
    assert!(!calm(&mut line, Way::Down, &text)[0].is_lost);
}

#[test]
fn an_exchange_of_http_is_lost_whole_and_takes_its_direction_with_it() {
    let mut line = Line::new(Door::Http);
    let ask = b"POST /sparql HTTP/1.1\r\nContent-Length: 4\r\n\r\n";
    assert_eq!(kinds(&calm(&mut line, Way::Up, ask)), [Kind::Request]);
    assert_eq!(kinds(&calm(&mut line, Way::Up, b"ASK{")), [Kind::Rest], "its body");
    let lost = storm(&mut line, Way::Down, b"HTTP/1.1 200 OK\r\n\r\n");
    assert!(lost[0].kind == Kind::Answer && lost[0].is_lost);
    assert!(calm(&mut line, Way::Down, b"the rest of it")[0].is_lost, "half an answer is none");
    assert!(!calm(&mut line, Way::Up, ask)[0].is_lost, "the other direction goes on");
}

#[test]
fn chance_is_that_of_the_seed_the_kp_and_the_kind() {
    let draw = |seed, kp, loss: f64| -> Vec<bool> {
        let (mut radio, mut line) = (Radio::new(seed, kp), Line::new(Door::Ssap));
        (0..2000)
            .map(|number| {
                if number % 3 == 0 {
                    // How often somebody asks changes nothing about notifications.
                    line.on_bytes(Way::Up, REQUEST.as_bytes(), loss, &mut radio).unwrap();
                }
                line.on_bytes(Way::Down, NOTIFICATION.as_bytes(), loss, &mut radio).unwrap()[0].is_lost
            })
            .collect()
    };
    let lost = draw(1, 1, 0.2).iter().filter(|is_lost| **is_lost).count();
    assert!((350..450).contains(&lost), "{lost} of 2000 at 20 %");
    assert_eq!(draw(1, 1, 0.2), draw(1, 1, 0.2));
    assert!(draw(1, 1, 0.2) != draw(1, 2, 0.2) && draw(1, 1, 0.2) != draw(2, 1, 0.2));
    assert!(!draw(1, 1, 0.0).contains(&true) && !draw(1, 1, 1.0).contains(&false));
}

#[test]
fn a_message_without_an_end_is_not_waited_for() {
    let mut line = Line::new(Door::Ssap);
    let endless = vec![b'x'; MESSAGE_BYTES_MAX + 1];
    assert_eq!(line.on_bytes(Way::Up, &endless, 0.0, &mut Radio::new(1, 1)), Err(TooLong));
}
