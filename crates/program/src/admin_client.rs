//! As much of HTTP as a question to one of the broker's own doors needs: one request, one answer, within bounds.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::StreamOwned;
use serde_json::Value;

use crate::AdminError;
use crate::streamed::{self, StreamedAnswer};
use crate::tls::{self, Trust};

/// Time to connect, and between two pieces of an answer. The broker answers within 15 s, or says that it cannot.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of an answer: a thousand clients have about 700 KiB, and an answer of the smart space has 32 MiB at most.
const ANSWER_BYTES_MAX: u64 = 33 * 1024 * 1024;

/// A connection, with TLS or without.
trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// A broker to ask.
#[derive(Debug)]
pub struct AdminClient {
    /// Host and port.
    host: String,
    authorization: Option<String>,
    /// With TLS: whom to trust.
    trust: Option<Trust>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct AdminRequest<'a> {
    /// GET, POST, …
    pub method: &'a str,
    /// The path, from the slash on.
    pub path: &'a str,
    /// What the answer may be.
    pub accept: &'a str,
    /// What the body is; empty without one.
    pub kind: &'a str,
    /// The bytes of the body.
    pub body: &'a [u8],
}

/// All that came back.
#[derive(Debug)]
pub struct AdminAnswer(Vec<u8>);

impl AdminAnswer {
    /// Status and body; none if it is not HTTP.
    pub fn parts(&self) -> Option<(u16, &[u8])> {
        parse(&self.0)
    }
}

impl AdminClient {
    /// The endpoint at this URL, which a flag has given.
    pub fn of(
        flag: &str,
        url: &str,
        port: u16,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, AdminError> {
        let secure = url.strip_prefix("https://");
        let host = secure.or_else(|| url.strip_prefix("http://")).unwrap_or(url).trim_end_matches('/');
        if host.contains("://") || host.contains('/') || host.is_empty() {
            let wrong = format!(
                "{flag} {url:?}: expected http://HOST:PORT or https://HOST:PORT, as the broker says at its start"
            );
            return Err(AdminError::usage(wrong));
        }
        if host.parse::<u16>().is_ok_and(|port| port > 0) {
            let (host, trust) = (format!("127.0.0.1:{host}"), secure.map(|_| Trust::default()));
            return Ok(Self { host, authorization: authorization(user, password)?, trust });
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        let trust = secure.map(|_| Trust::default());
        Ok(Self { host, authorization: authorization(user, password)?, trust })
    }

    /// Trusts these where the URL is one of TLS; an error if it is not, and somebody named whom to trust.
    pub fn with_trust(mut self, trust: Trust) -> Result<Self, AdminError> {
        match &mut self.trust {
            Some(mine) => *mine = trust,
            None if trust != Trust::default() => {
                let wrong = format!("--cafile and --insecure are for TLS: expected https://{}", self.host);
                return Err(AdminError::usage(wrong));
            }
            None => {}
        }
        Ok(self)
    }

    /// The endpoint at this address, without a user.
    pub fn at(address: std::net::SocketAddr) -> Self {
        Self { host: address.to_string(), authorization: None, trust: None }
    }

    /// Host and port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where it is, as it is typed.
    fn url(&self) -> String {
        format!("{}://{}", if self.trust.is_some() { "https" } else { "http" }, self.host)
    }

    /// Asks for what is at this place.
    pub fn get(&self, path: &str) -> Result<Value, AdminError> {
        self.request("GET", path, None)
    }

    /// Asks; an answer that is a problem is an error.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, AdminError> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request =
            AdminRequest { method, path, accept: "application/json", kind: "application/json", body: body.as_bytes() };
        let answer = self.exchange(&request).map_err(|error| AdminError::unreachable(&self.url(), &error))?;
        let (status, body) = answer.parts().ok_or_else(|| {
            AdminError::failure(format!("{} does not speak HTTP as a broker's admin endpoint does", self.host))
        })?;
        let value = serde_json::from_slice(body).unwrap_or(Value::Null);
        if (200..300).contains(&status) { Ok(value) } else { Err(AdminError::refused(status, &value)) }
    }

    /// Asks, whatever comes back.
    pub fn exchange(&self, request: &AdminRequest<'_>) -> std::io::Result<AdminAnswer> {
        self.talk(self.connect()?, request)
    }

    /// Asks, and writes out an answer of any length as it comes.
    pub fn stream(&self, request: &AdminRequest<'_>, out: &mut dyn Write) -> std::io::Result<StreamedAnswer> {
        streamed::talk(self.connect()?, request, (&self.host, self.authorization.as_deref()), out)
    }

    fn connect(&self) -> std::io::Result<Box<dyn ReadWrite>> {
        let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "no such address");
        for address in self.host.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return self.enter(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn enter(&self, stream: TcpStream) -> std::io::Result<Box<dyn ReadWrite>> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        stream.set_write_timeout(Some(READ_TIMEOUT))?;
        let Some(trust) = &self.trust else { return Ok(Box::new(stream)) };
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let session = tls::session(name, trust).map_err(|error| std::io::Error::other(format!("{error:#}")))?;
        Ok(Box::new(StreamOwned::new(session, stream)))
    }

    fn talk(&self, mut stream: impl Read + Write, request: &AdminRequest<'_>) -> std::io::Result<AdminAnswer> {
        let AdminRequest { method, path, accept, kind, body } = *request;
        let authorization = self.authorization.as_ref().map(|it| format!("Authorization: {it}\r\n"));
        let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        // HTTP/1.0: the answer comes in one piece, and ends with the connection.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAccept: {accept}\r\nContent-Length: {}\r\n{kind}{}\r\n",
            self.host,
            body.len(),
            authorization.unwrap_or_default()
        );
        stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut answer = Vec::new();
        let length = stream.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer)?;
        if length as u64 > ANSWER_BYTES_MAX {
            return Err(std::io::Error::other("the answer is longer than answers may be"));
        }
        Ok(AdminAnswer(answer))
    }
}

fn authorization(user: Option<&str>, password: Option<&str>) -> Result<Option<String>, AdminError> {
    let Some(user) = user else { return Ok(None) };
    let password = match password {
        Some(password) => password.to_owned(),
        None => rpassword::prompt_password(format!("password of {user}: "))
            .map_err(|error| AdminError::usage(format!("no password: {error}; give one with -P")))?,
    };
    Ok(Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))))
}

/// Status and body.
fn parse(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    Some((words.next()?.parse().ok()?, &answer[end + 4..]))
}

/// A piece of a path, with everything escaped that could mean something else.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let piece = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer = b"HTTP/1.0 404 Not Found\r\ncontent-type: x\r\n\r\n{\"a\":1}";
        assert_eq!(parse(answer), Some((404, &b"{\"a\":1}"[..])));
        for bad in [&b"SSH-2.0-x\r\n\r\n"[..], b"HTTP/1.1 200", b"", b"HTTP/1.1 abc\r\n\r\n"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn identifiers_survive_a_path() {
        assert_eq!(escaped("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
        assert_eq!(escaped("meter-17"), "meter-17");
    }

    #[test]
    fn an_address_may_be_short() {
        let host = |admin: &str| {
            let client = AdminClient::of("--admin", admin, 18830, None, None);
            client.map(|client| client.host).map_err(|error| error.exit_code())
        };
        assert_eq!(host("http://127.0.0.1:1/"), Ok("127.0.0.1:1".to_owned()));
        assert_eq!(host("broker"), Ok("broker:18830".to_owned()));
        assert_eq!(host("https://x"), Ok("x:18830".to_owned()));
        assert_eq!(host("ftp://x"), Err(2));
        assert_eq!(host("18831"), Ok("127.0.0.1:18831".to_owned()), "as --mqtt takes it");
    }

    #[test]
    fn whom_to_trust_is_for_tls() {
        let client = |url: &str| AdminClient::of("--admin", url, 18830, None, None).unwrap();
        let trust = || Trust { everybody: true, ..Trust::default() };
        assert_eq!(client("https://x").with_trust(trust()).unwrap().url(), "https://x:18830");
        assert!(client("x").with_trust(trust()).unwrap_err().to_string().contains("expected https://x:18830"));
        assert_eq!(client("x").with_trust(Trust::default()).unwrap().url(), "http://x:18830");
    }
}
