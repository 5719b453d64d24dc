//! A document from a web server, and a question to one: HTTP over TCP or TLS, one request each, within a time and a size. On
//! threads that may wait.
//!
//! It asks as HTTP/1.0 has it, so that an answer is what comes until the end. Knows neither redirects nor proxies: whoever
//! is asked about users is asked directly.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Where a document is: `https://HOST[:PORT]/PATH`, or the same with `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAddress {
    is_encrypted: bool,
    host: String,
    port: u16,
    path: String,
}

impl WebAddress {
    /// Reads an address; none if it is not one, or has a user in it.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_encrypted, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return None,
        };
        let (place, path) = rest.split_once('/').map_or((rest, ""), |(place, path)| (place, path));
        let usual = if is_encrypted { 443 } else { 80 };
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, usual),
            Some((host, port)) => (host, port.strip_prefix(':')?.parse().ok()?),
            None => match place.split_once(':') {
                Some((host, port)) => (host, port.parse().ok()?),
                None => (place, usual),
            },
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_sound = !host.is_empty() && is_plain(host) && is_plain(path) && !host.contains(['@', '?', '#']);
        is_sound.then(|| Self { is_encrypted, host: host.to_owned(), port, path: format!("/{path}") })
    }

    /// What is asked for there.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The host and the port to connect to.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Whether TLS is spoken.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The host as an address has it.
    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// As the field `Host` has it: with the port unless that is the usual one (RFC 9110, 7.2).
    pub fn authority(&self) -> String {
        let usual = if self.is_encrypted { 443 } else { 80 };
        if self.port == usual { self.bracketed() } else { format!("{}:{}", self.bracketed(), self.port) }
    }

    /// Where it is, for logs and whoever asks: without the path, which is a secret at many a webhook.
    pub fn origin(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.bracketed(), self.port)
    }

    /// Whether what comes from there cannot be replaced on the way.
    pub fn is_safe(&self) -> bool {
        let is_here = self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        self.is_encrypted || is_here
    }
}

impl fmt::Display for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

/// Who asks: the authorities that it believes, the time and the size that an answer may have.
#[derive(Clone, Debug)]
pub struct WebClient {
    tls: Arc<ClientConfig>,
    timeout: Duration,
    bytes_max: usize,
}

/// An answer: its status, and what came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl WebClient {
    /// Believes the authorities of this file, or else those of the system.
    pub fn new(ca: Option<&Path>, timeout: Duration, bytes_max: usize) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(path) => {
                for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
                    roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let tls = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        Ok(Self { tls, timeout, bytes_max })
    }

    /// Fetches a document; another status than 200 is an error.
    pub fn get(&self, at: &WebAddress) -> io::Result<Vec<u8>> {
        let head = format!("GET {} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n\r\n", at.path, at.authority());
        match self.ask(at, head.as_bytes())? {
            WebAnswer { status: 200, body } => Ok(body),
            WebAnswer { status, .. } => Err(io::Error::other(format!("the answer is {status}, and 200 is expected"))),
        }
    }

    /// Sends JSON; every status is an answer.
    pub fn post(&self, at: &WebAddress, body: &[u8]) -> io::Result<WebAnswer> {
        let head = format!(
            "POST {} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n",
            at.path,
            at.authority(),
            body.len()
        );
        self.ask(at, &[head.as_bytes(), body].concat())
    }

    fn ask(&self, at: &WebAddress, request: &[u8]) -> io::Result<WebAnswer> {
        let until = Instant::now() + self.timeout;
        let stream = connect(at, until)?;
        if !at.is_encrypted {
            return self.talk(stream, request, until);
        }
        let name = ServerName::try_from(at.host.clone()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
        self.talk(StreamOwned::new(session, stream), request, until)
    }

    fn talk(&self, mut stream: impl Read + Write, request: &[u8], until: Instant) -> io::Result<WebAnswer> {
        stream.write_all(request)?;
        stream.flush()?;
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Many servers close without a last word of TLS; a document that was cut is no JSON.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            // One read may wait as long again; one that drips may not.
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if bytes.len() > self.bytes_max {
                return Err(io::Error::other(format!("the answer has more than {} bytes", self.bytes_max)));
            }
        }
        parse(&bytes).ok_or_else(|| io::Error::other("the answer is not HTTP"))
    }
}

/// A connection whose every wait ends by then, about: each is given what is left at the start.
fn connect(at: &WebAddress, until: Instant) -> io::Result<TcpStream> {
    let mut why = io::Error::other("the name has no address");
    for address in (at.host.as_str(), at.port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                stream.set_read_timeout(Some(left))?;
                stream.set_write_timeout(Some(left))?;
                return Ok(stream);
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Status line, head, and everything after it.
fn parse(bytes: &[u8]) -> Option<WebAnswer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let status = words.next().filter(|version| version.starts_with("HTTP/1.")).and(words.next())?.parse().ok()?;
    let is_chunked = head.lines().any(|line| line.to_ascii_lowercase().starts_with("transfer-encoding:"));
    // Nobody may answer so to HTTP/1.0.
    (!is_chunked).then(|| WebAnswer { status, body: bytes[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_read_and_shown_in_full() {
        for (text, shown) in [
            ("https://id.example/jwks.json", "https://id.example:443/jwks.json"),
            ("http://localhost:8080", "http://localhost:8080/"),
            ("http://[::1]:81/a?b=c", "http://[::1]:81/a?b=c"),
        ] {
            assert_eq!(WebAddress::parse(text).map(|at| at.to_string()).as_deref(), Some(shown));
        }
        let hook = WebAddress::parse("https://hooks.example/services/T0/SECRET?key=SECRET").unwrap();
        assert_eq!(hook.origin(), "https://hooks.example:443");
        for bad in [
            "",
            "id.example",
            "ftp://x/",
            "https://",
            "https://u@x/",
            "https://x:70000/",
            "http://a b/",
            "http://x/\r\n",
        ] {
            assert_eq!(WebAddress::parse(bad), None, "{bad}");
        }
        let is_safe = |text| WebAddress::parse(text).unwrap().is_safe();
        assert!(
            is_safe("https://x/")
                && is_safe("http://127.0.0.1/")
                && is_safe("http://localhost/")
                && !is_safe("http://x/")
        );
    }

    #[test]
    fn the_host_is_named_with_an_unusual_port_and_brackets() {
        for (text, authority) in [
            ("https://id.example/", "id.example"),
            ("https://id.example:8443/", "id.example:8443"),
            ("http://[::1]/", "[::1]"),
            ("http://[::1]:8080/", "[::1]:8080"),
        ] {
            assert_eq!(WebAddress::parse(text).unwrap().authority(), authority);
        }
    }

    /// Answers one request with these bytes.
    fn serve(answer: &'static [u8]) -> (WebAddress, std::thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = WebAddress::parse(&format!("http://{}/x", listener.local_addr().unwrap())).unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 1024];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(answer).unwrap();
            request.truncate(count);
            request
        });
        (at, served)
    }

    fn client() -> WebClient {
        WebClient::new(None, Duration::from_secs(20), 100).unwrap()
    }

    #[test]
    fn a_document_comes_whole_and_anything_else_is_an_error() {
        let (at, served) = serve(b"HTTP/1.1 200 OK\r\nContent-Type: x\r\n\r\n{}");
        assert_eq!(client().get(&at).unwrap(), b"{}");
        let asked = format!("GET /x HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n", at.port);
        assert!(served.join().unwrap().starts_with(asked.as_bytes()));
        for (answer, words) in [
            (&b"HTTP/1.1 404 No\r\n\r\n"[..], "the answer is 404"),
            (b"hello", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "not HTTP"),
        ] {
            let (at, served) = serve(answer);
            let error = client().get(&at).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            served.join().unwrap();
        }
    }

    #[test]
    fn a_long_answer_is_not_read_to_its_end() {
        static LONG: [u8; 200] = [b'x'; 200];
        let (at, served) = serve(&LONG);
        assert!(client().get(&at).unwrap_err().to_string().contains("more than 100 bytes"));
        served.join().unwrap();
    }

    #[test]
    fn nobody_there_is_an_error() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let at = WebAddress::parse(&format!("http://{free}/")).unwrap();
        assert!(client().get(&at).is_err());
    }
}
