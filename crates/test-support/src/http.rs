//! As much of HTTP as a test needs to be sure which bytes were sent.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::broker::PATIENCE;

/// A request as it is, and the answer as it comes until the other side closes.
#[must_use]
pub fn exchange(host: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(host).expect("the door is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time that can be set");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// The code of an answer.
#[must_use]
pub fn code(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

/// What comes after the head of an answer.
#[must_use]
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default()
}
