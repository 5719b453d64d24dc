//! The first request of a connection, before anybody knows who asks: who says so, and whether a stream is wanted. Bodies are
//! not looked at.

use core::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::answer::{Manner, Pace, preflight, put_fault, put_problem};
use crate::event::EventId;
use crate::head::{self, Fault, Head, Method, fault};
use crate::pages::Pages;
use crate::target::{self, Parameters, Resource};

/// What the first bytes of a client come to.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// Nothing wrong so far; more is needed.
    Incomplete,
    /// A page asks whether it may ask: no matter who.
    Answer {
        /// Bytes of the request.
        consumed: usize,
        answer: Vec<u8>,
    },
    /// A request of somebody; its bytes are to be kept.
    Hello(Box<HttpHello>),
    /// It ends here.
    Refuse {
        answer: Vec<u8>,
        /// For the log.
        why: &'static str,
    },
}

/// Who asks, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpHello {
    pub shown: Shown,
    /// What a stream is asked for by, if one is wanted.
    pub(crate) stream: Option<String>,
    /// Where it wants to go on.
    pub(crate) after: Option<EventId>,
    /// It wants to go on somewhere, whether this server has said so or not.
    pub(crate) is_back: bool,
    /// What was shown, to know it again.
    pub(crate) proof: Proof,
    /// The page that asks.
    pub origin: Option<String>,
}

impl HttpHello {
    /// What the client is called: a stream that is to go on by its token, a new one by a new token, others by their address.
    pub fn client_id(&self, peer: &str, make_token: impl FnOnce() -> String) -> String {
        let ids = tidegate_core::access::HTTP_IDS;
        match (&self.stream, &self.after) {
            (Some(_), Some(after)) => format!("{ids}{}", after.token),
            (Some(_), None) => format!("{ids}{}", make_token()),
            (None, _) => format!("{ids}{peer}"),
        }
    }
}

/// What somebody shows: a name and a password, or a token as a password without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub user_name: Option<String>,
    pub password: Option<Vec<u8>>,
}

/// What was shown, as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    authorization: Option<String>,
    access_token: Option<String>,
}

impl Proof {
    pub(crate) fn of(head: &Head, parameters: &Parameters) -> Self {
        Self { authorization: head.authorization.clone(), access_token: parameters.access_token.clone() }
    }

    fn read(&self) -> Result<Shown, Fault> {
        let bearer = |token: &str| Shown { user_name: None, password: Some(token.as_bytes().to_vec()) };
        match (&self.authorization, &self.access_token) {
            (None, None) => Ok(Shown::default()),
            // RFC 6750, section 2: one way at a time.
            (Some(_), Some(_)) => Err(fault(400, "who asks is said once: by Authorization or by access_token")),
            (None, Some(token)) => Ok(bearer(token)),
            (Some(text), None) => {
                let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
                match () {
                    () if scheme.eq_ignore_ascii_case("bearer") => Ok(bearer(rest.trim())),
                    () if scheme.eq_ignore_ascii_case("basic") => {
                        read_basic(rest.trim()).ok_or(fault(401, "this is no name and password"))
                    }
                    () => Err(fault(401, "only Basic and Bearer are understood")),
                }
            }
        }
    }
}

fn read_basic(text: &str) -> Option<Shown> {
    let decoded = STANDARD.decode(text).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    // No name would be nobody, who may be let in elsewhere.
    (!name.is_empty()).then(|| Shown { user_name: Some(name), password: Some(decoded[colon + 1..].to_vec()) })
}

/// Whether a request asks for a stream.
pub(crate) fn is_stream(head: &Head, resource: &Resource) -> bool {
    head.method == Method::Get && head.accepts_events && matches!(resource, Resource::Topics | Resource::Topic(_))
}

/// Looks at the first bytes of a client that comes from there.
pub fn first(bytes: &[u8], peer: IpAddr, pages: &dyn Pages) -> First {
    match read(bytes, peer, pages) {
        Ok(first) => first,
        Err((fault, manner)) => {
            let mut answer = Vec::new();
            put_fault(fault, &manner, &mut answer);
            First::Refuse { answer, why: fault.why }
        }
    }
}

fn read(bytes: &[u8], peer: IpAddr, pages: &dyn Pages) -> Result<First, (Fault, Manner)> {
    let Some(head) = head::read(bytes).map_err(|fault| (fault, Manner::last()))? else { return Ok(First::Incomplete) };
    if let Err(why) = judge(&head, peer, pages) {
        let mut answer = Vec::new();
        // Not for the page to read.
        put_problem(403, why, Pace::default(), &Manner::last(), &mut answer);
        return Ok(First::Refuse { answer, why });
    }
    let manner = Manner { is_keep_alive: false, ..Manner::of(&head) };
    let refuse = |fault| (fault, manner.clone());
    if head.is_preflight && head.body == head::BodyLength::Known(0) {
        let mut answer = Vec::new();
        preflight(&Manner { is_keep_alive: true, ..manner }, &mut answer);
        return Ok(First::Answer { consumed: head.size, answer });
    }
    let (resource, parameters) = target::read(&head.target).map_err(refuse)?;
    let proof = Proof::of(&head, &parameters);
    let shown = proof.read().map_err(refuse)?;
    let last_id = head.last_event_id.as_deref().or(parameters.last_event_id.as_deref()).filter(|id| !id.is_empty());
    let stream = is_stream(&head, &resource).then(|| stream_key(&head.target));
    let after = stream.as_ref().and_then(|_| EventId::read(last_id?));
    let (is_back, origin) = (last_id.is_some(), head.origin);
    Ok(First::Hello(Box::new(HttpHello { shown, stream, after, is_back, proof, origin })))
}

/// What a stream is asked for by, whoever asks and wherever it goes on.
pub(crate) fn stream_key(target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let is_about_it = |pair: &&str| !pair.starts_with("access_token=") && !pair.starts_with("last_event_id=");
    let pairs: Vec<&str> = query.split('&').filter(is_about_it).collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Whether the page that asks may.
pub(crate) fn judge(head: &Head, peer: IpAddr, pages: &dyn Pages) -> Result<(), &'static str> {
    pages.judge(peer, head.host.as_deref().unwrap_or_default(), head.origin.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Any;

    impl Pages for Any {
        fn judge(&self, _: IpAddr, _: &str, origin: Option<&str>) -> Result<(), &'static str> {
            if origin == Some("http://evil") { Err("a page from elsewhere") } else { Ok(()) }
        }
    }

    fn ask(line: &str, fields: &str) -> First {
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        first(text.as_bytes(), [127, 0, 0, 1].into(), &Any)
    }

    fn hello(line: &str, fields: &str) -> HttpHello {
        match ask(line, fields) {
            First::Hello(hello) => *hello,
            other => panic!("{other:?}"),
        }
    }

    fn status(line: &str, fields: &str) -> String {
        match ask(line, fields) {
            First::Refuse { answer, .. } => String::from_utf8(answer[9..12].to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_asks_is_a_name_and_a_password_or_a_token_or_nobody() {
        assert_eq!(hello("GET /topics/a", "").shown, Shown::default());
        let basic = hello("GET /topics/a", "Authorization: basic YW5uOmE6Yg==\r\n").shown;
        assert_eq!((basic.user_name.as_deref(), basic.password.as_deref()), (Some("ann"), Some(&b"a:b"[..])));
        let bearer = hello("GET /topics/a", "Authorization: Bearer abc\r\n").shown;
        assert_eq!(bearer, Shown { user_name: None, password: Some(b"abc".to_vec()) });
        assert_eq!(hello("GET /topics/a?access_token=abc", "").shown, bearer);
        for bad in ["Authorization: Basic ***\r\n", "Authorization: Basic Og==\r\n", "Authorization: Digest x\r\n"] {
            assert_eq!(status("GET /topics/a", bad), "401", "{bad}");
        }
        assert_eq!(status("GET /topics/a?access_token=t", "Authorization: Bearer t\r\n"), "400");
    }

    #[test]
    fn streams_are_new_or_go_on() {
        let named = |hello: &HttpHello| hello.client_id("1.2.3.4:5", || "new".into());
        assert_eq!(named(&hello("POST /topics/a", "")), "$http/1.2.3.4:5");
        assert_eq!(named(&hello("GET /topics/a", "Accept: text/event-stream\r\n")), "$http/new");
        let back = hello("GET /topics/a", "Accept: text/event-stream\r\nLast-Event-ID: old-7\r\n");
        assert_eq!((named(&back).as_str(), back.is_back), ("$http/old", true));
        let lost = hello("GET /topics/a?last_event_id=42", "Accept: text/event-stream\r\n");
        assert_eq!((named(&lost).as_str(), lost.is_back), ("$http/new", true));
        assert_eq!(lost.stream, hello("GET /topics/a?access_token=t", "Accept: text/event-stream\r\n").stream);
        assert_eq!(hello("GET /", "Accept: text/event-stream\r\n").stream, None);
    }

    #[test]
    fn a_page_may_ask_whether_it_may_ask_and_one_that_may_not_hears_nothing() {
        let asked = "Origin: http://page\r\nAccess-Control-Request-Method: PUT\r\n";
        let First::Answer { answer, .. } = ask("OPTIONS /topics/a", asked) else { panic!("no answer") };
        let text = String::from_utf8(answer).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 204 ") && text.contains("access-control-allow-origin: http://page"),
            "{text}"
        );
        assert!(text.contains("authorization") && !text.contains("connection: close"), "{text}");
        let First::Refuse { answer, .. } = ask("POST /topics/a", "Origin: http://evil\r\n") else { panic!("let in") };
        let text = String::from_utf8(answer).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 ") && !text.contains("access-control"), "{text}");
    }
}
