//! The head of a request: RFC 9112, as far as a server of topics has to know it. The bytes are httparse's.
//!
//! What could be read in two ways is refused: a length that is given twice, a body whose length is said by two headers, a
//! second host. A proxy before this door that reads it the other way would let one client speak in another's name.

use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX};

/// What a request wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    /// One that is known to nobody here.
    Other,
}

/// How the body's end is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(usize),
    Chunked,
}

/// Why a request is not understood: the status, and words for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) why: &'static str,
}

pub(crate) const fn fault(status: u16, why: &'static str) -> Fault {
    Fault { status, why }
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is what one field of the head says, whatever the others say")]
pub(crate) struct Head {
    pub(crate) method: Method,
    /// Path and query, as they were sent.
    pub(crate) target: String,
    pub(crate) is_keep_alive: bool,
    pub(crate) host: Option<String>,
    pub(crate) origin: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) accepts_events: bool,
    /// A browser shows it to somebody.
    pub(crate) accepts_page: bool,
    pub(crate) content_type: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) last_event_id: Option<String>,
    /// A page asks whether it may ask.
    pub(crate) is_preflight: bool,
    pub(crate) expects_continue: bool,
    pub(crate) body: BodyLength,
    /// Bytes of all this.
    pub(crate) size: usize,
}

/// Reads the head at the front of `bytes`; none if there is more to come.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Head>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let size = match request.parse(bytes) {
        Ok(httparse::Status::Complete(size)) if size <= HEAD_BYTES_MAX => size,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) => return Err(fault(431, "the head of the request is too large")),
        Err(httparse::Error::TooManyHeaders) => return Err(fault(431, "there are too many headers")),
        Err(httparse::Error::Version) => return Err(fault(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")),
        Err(_) => return Err(fault(400, "this is no HTTP request")),
    };
    let is_11 = request.version == Some(1);
    let fields = Fields(request.headers);
    let host = fields.once("host")?;
    if is_11 && host.is_none() {
        return Err(fault(400, "a request of HTTP/1.1 names its host"));
    }
    let method = match request.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    };
    let is_keep_alive = if is_11 { !fields.has("connection", "close") } else { fields.has("connection", "keep-alive") };
    Ok(Some(Head {
        method,
        target: origin_form(request.path.unwrap_or_default())?,
        is_keep_alive,
        host,
        origin: fields.once("origin")?,
        authorization: fields.once("authorization")?,
        accepts_events: fields.accepts("text/event-stream"),
        accepts_page: fields.accepts("text/html"),
        content_type: fields.once("content-type")?,
        if_none_match: fields.once("if-none-match")?,
        last_event_id: fields.once("last-event-id")?,
        is_preflight: method == Method::Options && fields.once("access-control-request-method")?.is_some(),
        expects_continue: is_11 && fields.has("expect", "100-continue"),
        body: body_length(&fields, is_11)?,
        size,
    }))
}

/// RFC 9112, section 6.3.
fn body_length(fields: &Fields<'_, '_>, is_11: bool) -> Result<BodyLength, Fault> {
    let coding = fields.once("transfer-encoding")?;
    let length = fields.once("content-length")?;
    match (coding, length) {
        (Some(_), Some(_)) => Err(fault(400, "a body has one length, and not two")),
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => {
            if is_11 {
                Ok(BodyLength::Chunked)
            } else {
                Err(fault(400, "HTTP/1.0 has no chunks"))
            }
        }
        (Some(_), None) => Err(fault(501, "no transfer coding but chunked is understood here")),
        (None, Some(length)) => {
            // Digits and nothing else: no sign, no second number.
            let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = if is_number { length.parse().ok() } else { None };
            length.map(BodyLength::Known).ok_or(fault(400, "the length of the body is no number"))
        }
        (None, None) => Ok(BodyLength::Known(0)),
    }
}

/// Path and query of a target in any of its forms (RFC 9112, section 3.2).
fn origin_form(target: &str) -> Result<String, Fault> {
    if target.starts_with('/') || target == "*" {
        return Ok(target.to_owned());
    }
    let after = target.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https" | "HTTP" | "HTTPS"));
    let (_, rest) = after.ok_or(fault(400, "the target is no path"))?;
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    Ok(if rest[at..].starts_with('/') { rest[at..].to_owned() } else { format!("/{}", &rest[at..]) })
}

struct Fields<'h, 'b>(&'h [httparse::Header<'b>]);

impl Fields<'_, '_> {
    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s [u8]> {
        self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }

    /// A field that is there once, or not at all.
    fn once(&self, name: &str) -> Result<Option<String>, Fault> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => match core::str::from_utf8(value) {
                Ok(text) => Ok(Some(text.trim_matches([' ', '\t']).to_owned())),
                Err(_) => Err(fault(400, "a header is no text")),
            },
            (Some(_), Some(_)) => Err(fault(400, "a header is there twice")),
        }
    }

    /// Whether a list, maybe spread over several fields, has this word.
    fn has(&self, name: &str, word: &str) -> bool {
        let texts = self.all(name).filter_map(|value| core::str::from_utf8(value).ok());
        texts.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
    }

    /// Whether a media type is asked for by name, and not with a weight of nothing.
    fn accepts(&self, kind: &str) -> bool {
        let texts = self.all("accept").filter_map(|value| core::str::from_utf8(value).ok());
        texts.flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_kind = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
            is_kind && !parts.any(|part| matches!(part, "q=0" | "q=0." | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> Head {
        read(text.as_bytes()).unwrap().unwrap()
    }

    fn refused(text: &str) -> u16 {
        read(text.as_bytes()).unwrap_err().status
    }

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let text =
            "POST /topics/a?qos=0 HTTP/1.1\r\nHost: x:1\r\nContent-Length: 3\r\nContent-Type: text/plain\r\n\r\n21!";
        for end in 0..text.len() - 3 {
            assert_eq!(read(&text.as_bytes()[..end]), Ok(None), "{end}");
        }
        let head = whole(text);
        assert_eq!(
            (head.method, head.target.as_str(), head.body),
            (Method::Post, "/topics/a?qos=0", BodyLength::Known(3))
        );
        assert_eq!((head.size, head.content_type.as_deref()), (text.len() - 3, Some("text/plain")));
        assert!(head.is_keep_alive && !head.accepts_events && !head.expects_continue);
    }

    #[test]
    fn white_space_around_a_value_is_no_part_of_it() {
        let head = whole("GET / HTTP/1.1\r\nHost: \t x \t\r\nContent-Type: text/plain\u{a0}\r\n\r\n");
        assert_eq!((head.host.as_deref(), head.content_type.as_deref()), (Some("x"), Some("text/plain\u{a0}")));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let with = |fields: &str| refused(&format!("POST /topics/a HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n"));
        assert_eq!(with("Content-Length: 3\r\nContent-Length: 3"), 400);
        assert_eq!(with("Content-Length: 3\r\nTransfer-Encoding: chunked"), 400);
        assert_eq!(with("Content-Length: +3"), 400);
        assert_eq!(with("Content-Length: 3, 4"), 400);
        assert_eq!(with("Content-Length: 99999999999999999999999"), 400);
        assert_eq!(with("Host: y"), 400);
        // A space of Unicode is no white space of HTTP (RFC 9110, section 5.5): whoever is in front may have read it as text.
        assert_eq!(with("Content-Length: 3\u{a0}"), 400);
        assert_eq!(with("Transfer-Encoding: \u{2003}chunked"), 501);
        assert_eq!(with("Transfer-Encoding: gzip, chunked"), 501);
        assert_eq!(with("Authorization: a\r\nAuthorization: b"), 400);
        assert_eq!(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), 400, "without a host");
        assert_eq!(refused("GET / HTTP/2.0\r\n\r\n"), 505);
        assert_eq!(refused("\u{1}\u{2}"), 400);
    }

    #[test]
    fn large_heads_are_refused_whether_they_end_or_not() {
        let long = format!("GET / HTTP/1.1\r\nHost: x\r\nCookie: {}", "c".repeat(HEAD_BYTES_MAX));
        assert_eq!(refused(&long), 431);
        assert_eq!(refused(&format!("{long}\r\n\r\n")), 431);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1))), 431);
    }

    #[test]
    fn connections_targets_and_types_are_read_as_the_standard_says() {
        assert!(!whole("GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n").is_keep_alive);
        assert!(!whole("GET / HTTP/1.0\r\n\r\n").is_keep_alive);
        assert!(whole("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").is_keep_alive);
        assert_eq!(whole("GET http://x:1/topics/a HTTP/1.1\r\nHost: x\r\n\r\n").target, "/topics/a");
        assert_eq!(whole("GET http://x?a HTTP/1.1\r\nHost: x\r\n\r\n").target, "/?a");
        assert_eq!(whole("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").target, "*");
        assert_eq!(refused("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"), 400);
        let accepts =
            |text: &str| whole(&format!("GET / HTTP/1.1\r\nHost: x\r\nAccept: {text}\r\n\r\n")).accepts_events;
        assert!(accepts("text/event-stream") && accepts("text/html, Text/Event-Stream;q=0.5"));
        assert!(!accepts("*/*") && !accepts("text/event-stream;q=0"), "a stream is asked for by name");
    }

    proptest! {
        #[test]
        fn nothing_that_comes_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(Some(head)) = read(&bytes) {
                prop_assert!(head.size <= bytes.len());
            }
        }
    }
}
