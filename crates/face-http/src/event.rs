//! Events as the WHATWG writes them: lines of `id:` and `data:`, and an empty one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::face::OutgoingPublication;

use crate::json::put_text;

/// Which event of which stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    /// What the stream is called.
    pub(crate) token: String,
    /// How many events it had with this one.
    pub(crate) number: u64,
}

impl EventId {
    /// What a client has shown; none if it is nothing that this server says.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (token, number) = text.rsplit_once('-')?;
        let is_token = (1..=64).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // So few that counting on from there has no end.
        let is_number = (1..=15).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_token && is_number { number.parse().ok() } else { None };
        number.map(|number| Self { token: token.to_owned(), number })
    }
}

/// Appends a message as an event.
pub(crate) fn put_message(token: &str, number: u64, message: &OutgoingPublication<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("id: {token}-{number}\ndata: {{\"topic\":").as_bytes());
    put_text(message.topic(), out);
    if let Ok(text) = core::str::from_utf8(message.payload()) {
        out.extend_from_slice(b",\"payload\":");
        put_text(text, out);
    } else {
        out.extend_from_slice(b",\"payload_base64\":\"");
        out.extend_from_slice(STANDARD.encode(message.payload()).as_bytes());
        out.push(b'"');
    }
    if let Some(content_type) = message.properties().content_type() {
        out.extend_from_slice(b",\"content_type\":");
        put_text(content_type, out);
    }
    if message.retain() {
        out.extend_from_slice(b",\"retain\":true");
    }
    out.extend_from_slice(b"}\n\n");
}

/// Appends the event that says how many events are missing, or that nobody knows.
pub(crate) fn put_missed(count: Option<u64>, out: &mut Vec<u8>) {
    let count = count.map_or_else(|| "null".to_owned(), |count| count.to_string());
    out.extend_from_slice(format!("event: missed\ndata: {{\"count\":{count}}}\n\n").as_bytes());
}

/// Says nothing, so that somebody hears it.
pub(crate) const HEARTBEAT: &[u8] = b":\n\n";

/// How long the event is that begins these bytes.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\n\n").map(|at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_were_given_and_nothing_else() {
        assert_eq!(EventId::read("t0a-12"), Some(EventId { token: "t0a".into(), number: 12 }));
        for bad in ["", "-", "t", "t-", "-1", "t-x", "t-+1", "a b-1", "a/b-1", "t-9999999999999999"] {
            assert_eq!(EventId::read(bad), None, "{bad}");
        }
        assert_eq!(EventId::read(&format!("{}-1", "t".repeat(65))), None);
    }

    #[test]
    fn what_is_missing_is_an_event_of_its_own() {
        let (mut some, mut unknown) = (Vec::new(), Vec::new());
        put_missed(Some(3), &mut some);
        put_missed(None, &mut unknown);
        assert_eq!(some, b"event: missed\ndata: {\"count\":3}\n\n");
        assert_eq!(unknown, b"event: missed\ndata: {\"count\":null}\n\n");
        assert_eq!((length(&some), length(b"data: x\n")), (Some(some.len()), None));
    }
}
