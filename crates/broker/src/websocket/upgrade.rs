//! The HTTP request that becomes a WebSocket: `GET /mqtt` with the subprotocol `mqtt`, and nothing else.
//!
//! Pure: the head of a request in, an answer out. Everything that is asked for once must be there once; a header that
//! comes twice is refused, never half believed.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::limits::{HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX};

/// What the bytes of a client come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Nothing wrong so far; more is needed.
    Incomplete,
    /// It is a WebSocket from here on.
    Accept {
        /// Bytes of the request.
        consumed: usize,
        answer: Vec<u8>,
    },
    /// It is not. Answer and close.
    Refuse {
        answer: Vec<u8>,
        /// What was wrong, for the log.
        why: &'static str,
    },
}

/// Which pages may talk to us through a browser. What is no browser says nothing about pages, and has a reach of its own.
#[derive(Clone, Copy, Debug)]
pub enum AllowedPages<'a> {
    /// Those that the operator has listed by origin.
    Listed(&'a [String]),
    /// Nobody comes in without a password, and no page has one: those from this machine, and those of the name that the
    /// request was sent to.
    OfOurName,
    /// Everybody comes in: the same, if the name is one that nobody else can point at this machine (DNS rebinding). The
    /// operator's door and the one of SPARQL hold to the same rule.
    OfThisMachine,
}

/// The only path.
const PATH: &str = "/mqtt";
/// Subprotocols by preference: the second is what clients of MQTT 3.1 ask for.
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];
/// Section 1.3 of RFC 6455.
const ACCEPT_KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Reads the request at the start of `input`, which came from this address.
pub fn upgrade(input: &[u8], peer: IpAddr, pages: AllowedPages<'_>) -> Upgrade {
    let mut headers = [httparse::EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let consumed = match request.parse(input) {
        Ok(httparse::Status::Complete(consumed)) if consumed <= HTTP_HEAD_BYTES_MAX => consumed,
        Ok(httparse::Status::Partial) if input.len() < HTTP_HEAD_BYTES_MAX => return Upgrade::Incomplete,
        Ok(_) => return refuse(431, "Request Header Fields Too Large", "request head too large"),
        Err(httparse::Error::TooManyHeaders) => {
            return refuse(431, "Request Header Fields Too Large", "too many headers");
        }
        Err(_) => return refuse(400, "Bad Request", "not an HTTP request"),
    };
    match judge(&request).and_then(|accepted| judge_page(request.headers, peer, pages).map(|()| accepted)) {
        Ok((key, protocol)) => Upgrade::Accept { consumed, answer: accept(key, protocol) },
        Err((status, phrase, why)) => refuse(status, phrase, why),
    }
}

type Fault = (u16, &'static str, &'static str);

/// The key and the subprotocol of a request that is in order.
fn judge<'a>(request: &httparse::Request<'_, 'a>) -> Result<(&'a str, &'static str), Fault> {
    let bad = |why| (400, "Bad Request", why);
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some(PATH) {
        return Err((404, "Not Found", "no such path"));
    }
    if request.method != Some("GET") {
        return Err((405, "Method Not Allowed", "not a GET"));
    }
    if request.version != Some(1) {
        return Err(bad("not HTTP/1.1"));
    }
    let headers = &*request.headers;
    once(headers, "Host").map_err(bad)?;
    // Who says two origins says nothing that can be judged; see `judge_page` for one.
    if headers.iter().filter(|header| header.name.eq_ignore_ascii_case("Origin")).count() > 1 {
        return Err(bad("a header comes twice"));
    }
    if !has_token(headers, "Upgrade", "websocket") || !has_token(headers, "Connection", "upgrade") {
        return Err((426, "Upgrade Required", "no upgrade to websocket"));
    }
    if once(headers, "Sec-WebSocket-Version").map_err(bad)? != "13" {
        return Err((426, "Upgrade Required", "WebSocket version is not 13"));
    }
    let key = once(headers, "Sec-WebSocket-Key").map_err(bad)?;
    if STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != 16 {
        return Err(bad("Sec-WebSocket-Key is not 16 bytes"));
    }
    // [MQTT-6.0.0-3], [MQTT-6.0.0-4]
    let protocol = PROTOCOLS.into_iter().find(|protocol| has_token(headers, "Sec-WebSocket-Protocol", protocol));
    Ok((key, protocol.ok_or_else(|| bad("subprotocol mqtt is not offered"))?))
}

/// A browser on this machine lends its reach to every page it shows: a page from elsewhere must not talk to a broker that
/// trusts this machine, nor, wherever the browser is, to one that lets everybody in. Where the operator has listed pages, those may and no others, wherever the browser is.
fn judge_page(headers: &[httparse::Header<'_>], peer: IpAddr, pages: AllowedPages<'_>) -> Result<(), Fault> {
    let bad = |why| (400, "Bad Request", why);
    let host = once(headers, "Host").map_err(bad)?;
    let is_browser = headers.iter().any(|header| header.name.eq_ignore_ascii_case("Origin"));
    let origin = if is_browser { Some(once(headers, "Origin").map_err(bad)?) } else { None };
    judge_origin(peer, host, origin, pages).map_err(|why| (403, "Forbidden", why))
}

/// The same of what matters of such a request: the host that it was sent to, and the page that sent it, if there is one.
pub(crate) fn judge_origin(
    peer: IpAddr,
    host: &str,
    origin: Option<&str>,
    pages: AllowedPages<'_>,
) -> Result<(), &'static str> {
    let forbidden = |why| Err(why);
    let host = name_in(host);
    match (pages, origin) {
        (AllowedPages::Listed(listed), Some(origin)) => {
            if !listed.iter().any(|page| page == "*" || page.eq_ignore_ascii_case(origin)) {
                return forbidden("this page's origin is not among those that are allowed");
            }
            return Ok(());
        }
        (AllowedPages::Listed(_), None) => return Ok(()),
        (AllowedPages::OfThisMachine, origin) if (peer.is_loopback() || origin.is_some()) && !is_here(&host) => {
            return forbidden("without users this door answers to addresses and to localhost only");
        }
        (AllowedPages::OfOurName | AllowedPages::OfThisMachine, _) => {}
    }
    // A port that a container publishes looks like a peer from afar, whoever is behind it.
    let is_judged = peer.is_loopback() || matches!(pages, AllowedPages::OfThisMachine);
    if is_judged && origin.is_some_and(|origin| is_foreign(&host, origin)) {
        return forbidden("a page from elsewhere may not use this machine's broker");
    }
    Ok(())
}

/// The same where a browser shows who its user is by itself, whatever page asks: a password that it was asked for once, a
/// certificate. There a page from elsewhere would speak in the name of that user, wherever the browser is.
pub(crate) fn judge_request_origin(
    peer: IpAddr,
    host: &str,
    origin: Option<&str>,
    pages: AllowedPages<'_>,
) -> Result<(), &'static str> {
    judge_origin(peer, host, origin, pages)?;
    let is_listed = matches!(pages, AllowedPages::Listed(_));
    if !is_listed && origin.is_some_and(|origin| is_foreign(&name_in(host), origin)) {
        return Err("a page from elsewhere may not ask here unless it is listed");
    }
    Ok(())
}

/// Whether a page is neither of the name that the request was sent to nor of the machine that its browser runs on.
fn is_foreign(host: &str, origin: &str) -> bool {
    let from = name_in(origin.split_once("://").map_or(origin, |(_, authority)| authority));
    let is_local = from == "localhost" || from.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !is_local && from != host
}

/// The name or address in an authority, without its port.
fn name_in(authority: &str) -> String {
    let without_port = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    without_port.map_or(authority, |(host, _)| host).trim_matches(['[', ']']).to_ascii_lowercase()
}

/// Whether a name is one of this machine that nobody else can arrange.
fn is_here(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// The value of a header that must be there exactly once.
fn once<'a>(headers: &[httparse::Header<'a>], name: &str) -> Result<&'a str, &'static str> {
    let mut values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    match (values.next(), values.next()) {
        (Some(header), None) => core::str::from_utf8(header.value).map(str::trim).map_err(|_| "header is not text"),
        (None, _) => Err("a header is missing"),
        (Some(_), Some(_)) => Err("a header comes twice"),
    }
}

/// Whether a list in a header, maybe spread over several, has this word.
fn has_token(headers: &[httparse::Header<'_>], name: &str, token: &str) -> bool {
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(name))
        .filter_map(|header| core::str::from_utf8(header.value).ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case(token))
}

fn accept(key: &str, protocol: &str) -> Vec<u8> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(ACCEPT_KEY_SUFFIX.as_bytes());
    let accept = STANDARD.encode(context.finish());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    )
    .into_bytes()
}

fn refuse(status: u16, phrase: &str, why: &'static str) -> Upgrade {
    let extra = match status {
        405 => "Allow: GET\r\n",
        426 => "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        _ => "",
    };
    let body = format!("{phrase}: {why}. This is MQTT over WebSocket at {PATH}, subprotocol mqtt.\n");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} {phrase}\r\n{extra}Content-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    Upgrade::Refuse { answer: answer.into_bytes(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn f085_a_page_from_elsewhere_does_not_reach_this_machines_broker() {
        let far: IpAddr = "192.0.2.7".parse().unwrap();
        for (origin, peer, is_welcome) in [
            ("https://evil.example", HERE, false),
            ("null", HERE, false),
            ("https://evil.example", far, true),
            ("http://localhost:3000", HERE, true),
            ("http://127.0.0.1:8083", HERE, true),
            ("http://[::1]:8083", HERE, true),
        ] {
            let request = GOOD.replacen("\r\n", &format!("\r\nOrigin: {origin}\r\n"), 1);
            for pages in [AllowedPages::OfOurName, AllowedPages::OfThisMachine] {
                let is_welcome = is_welcome && (peer == HERE || matches!(pages, AllowedPages::OfOurName));
                let accepted = matches!(upgrade(request.as_bytes(), peer, pages), Upgrade::Accept { .. });
                assert_eq!(accepted, is_welcome, "{origin} from {peer}, {pages:?}");
            }
        }
    }

    #[test]
    fn a_page_from_elsewhere_does_not_ask_in_the_name_of_whom_a_browser_has_logged_in() {
        let far: IpAddr = "192.0.2.7".parse().unwrap();
        let listed = ["https://app.example".to_owned()];
        for peer in [HERE, far] {
            let asks = |origin, pages| judge_request_origin(peer, "broker.example:8082", origin, pages).is_ok();
            for evil in ["https://evil.example", "null", "https://broker.example.evil.example", ""] {
                assert!(!asks(Some(evil), AllowedPages::OfOurName), "{evil} from {peer}");
                assert!(!asks(Some(evil), AllowedPages::OfThisMachine), "{evil} from {peer}");
                assert!(!asks(Some(evil), AllowedPages::Listed(&listed)), "{evil} from {peer}");
            }
            for own in [None, Some("https://broker.example"), Some("http://Broker.example:8082"), Some("http://[::1]")]
            {
                assert!(asks(own, AllowedPages::OfOurName), "{own:?} from {peer}");
            }
            assert!(asks(Some("https://app.example"), AllowedPages::Listed(&listed)));
        }
    }

    #[test]
    fn f085_a_name_that_others_can_point_at_us_is_not_ours() {
        let far: IpAddr = "192.0.2.7".parse().unwrap();
        let listed = ["http://app.example".to_owned()];
        let accepts = |host: &str, origin: &str, peer: IpAddr, pages: AllowedPages<'_>| {
            let origin = if origin.is_empty() { String::new() } else { format!("\r\nOrigin: {origin}") };
            let request = GOOD.replacen("Host: localhost", &format!("Host: {host}{origin}"), 1);
            matches!(upgrade(request.as_bytes(), peer, pages), Upgrade::Accept { .. })
        };
        for host in
            ["attacker.example:8083", "attacker.example", "localhost.evil.example", "127.0.0.1.nip.io", "[x]", ""]
        {
            let origin = format!("http://{host}");
            for origin in [&origin, "http://localhost:8083", ""] {
                assert!(!accepts(host, origin, HERE, AllowedPages::OfThisMachine), "{host} {origin}");
            }
            // With users nobody gets anywhere without a password: a proxy may say whatever name it has.
            assert!(accepts(host, &origin, HERE, AllowedPages::OfOurName), "{host}");
            // From afar names are what a broker is found by; a page is judged wherever its browser is.
            assert!(accepts(host, "", far, AllowedPages::OfThisMachine), "{host}");
            assert!(!accepts(host, &origin, far, AllowedPages::OfThisMachine), "{host}");
            // Whoever lists pages has thought of names.
            assert!(accepts(host, "http://app.example", HERE, AllowedPages::Listed(&listed)), "{host}");
            assert!(!accepts(host, &origin, HERE, AllowedPages::Listed(&listed)), "{host}");
        }
        for host in ["localhost", "LOCALHOST:8083", "127.0.0.1:8083", "[::1]:8083", "[::1]", "10.0.0.7:80"] {
            for origin in [&format!("http://{host}"), "http://localhost:3000", ""] {
                assert!(accepts(host, origin, HERE, AllowedPages::OfThisMachine), "{host} {origin}");
            }
        }
    }

    #[test]
    fn f085_where_pages_are_listed_no_other_page_comes_in() {
        let far: IpAddr = "192.0.2.7".parse().unwrap();
        let (listed, any) = (["https://app.example:8443".to_owned()], ["*".to_owned()]);
        let status = |origin: &str, peer: IpAddr, origins: &[String]| {
            let head = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
            let request = GOOD.replacen("\r\n", &format!("\r\n{head}"), 1);
            match upgrade(request.as_bytes(), peer, AllowedPages::Listed(origins)) {
                Upgrade::Refuse { answer, .. } => String::from_utf8(answer).unwrap()[9..12].to_owned(),
                _ => "101".to_owned(),
            }
        };
        for peer in [HERE, far] {
            assert_eq!(status("HTTPS://App.example:8443", peer, &listed), "101");
            assert_eq!(status("", peer, &listed), "101", "no browser");
            for other in ["https://app.example", "http://app.example:8443", "null", "http://localhost", "\u{0}\u{e9}"] {
                let expected = if other.starts_with('\u{0}') { "400" } else { "403" };
                assert_eq!(status(other, peer, &listed), expected, "{other} from {peer}");
            }
            assert_eq!(status("https://evil.example", peer, &any), "101");
            assert_eq!(status("https://evil.example", peer, &[]), "403", "an empty list is no page at all");
        }
    }

    const GOOD: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
                        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                        Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n\r\n";

    fn status(request: &str) -> String {
        match upgrade(request.as_bytes(), HERE, AllowedPages::OfThisMachine) {
            Upgrade::Incomplete => "incomplete".into(),
            Upgrade::Accept { .. } => "101".into(),
            Upgrade::Refuse { answer, .. } => String::from_utf8(answer).unwrap()[9..12].to_owned(),
        }
    }

    #[test]
    fn the_example_of_rfc_6455() {
        let Upgrade::Accept { consumed, answer } =
            upgrade(&[GOOD.as_bytes(), b"\x82"].concat(), HERE, AllowedPages::OfThisMachine)
        else {
            panic!("refused")
        };
        assert_eq!(consumed, GOOD.len());
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
        assert!(answer.contains("Sec-WebSocket-Protocol: mqtt\r\n"), "{answer}");
    }

    #[test]
    fn every_beginning_is_incomplete() {
        for end in 0..GOOD.len() {
            assert_eq!(status(&GOOD[..end]), "incomplete", "{end}");
        }
    }

    #[test]
    fn f084_f087_what_is_refused() {
        let change = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        let cases = [
            (change("/mqtt ", "/mqtt?token=1 "), "101"),
            (change("/mqtt ", "/ "), "404"),
            (change("/mqtt ", "/mqtt/../etc "), "404"),
            (change("/mqtt ", "/..%2f "), "404"),
            (change("GET", "POST"), "405"),
            (change("HTTP/1.1", "HTTP/1.0"), "400"),
            (change("Host: localhost\r\n", ""), "400"),
            (change("Host: localhost\r\n", "Host: localhost\r\nHost: y\r\n"), "400"),
            (change("Upgrade: websocket\r\n", ""), "426"),
            (change("keep-alive, Upgrade", "keep-alive"), "426"),
            (change("Version: 13", "Version: 8"), "426"),
            (change("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="), "400"),
            (change("Sec-WebSocket-Key", "Sec-WebSocket-Key: x\r\nSec-WebSocket-Key"), "400"),
            (change("mqttv3.1, mqtt", "chat"), "400"),
            (change("Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n", ""), "400"),
            (change("mqttv3.1, mqtt", "mqttv3.1"), "101"),
            (change("Host: localhost", &format!("Host: localhost\r\nX: {}", "y".repeat(HTTP_HEAD_BYTES_MAX))), "431"),
            (change("Host: localhost", &format!("Host: localhost{}", "\r\nX: y".repeat(HTTP_HEADERS_MAX))), "431"),
            ("\x16\x03\x01\x02\x00".into(), "400"),
            ("\x10\x0c\x00\x04MQTT".into(), "400"),
        ];
        for (request, expected) in cases {
            assert_eq!(status(&request), expected, "{request}");
        }
    }
}
