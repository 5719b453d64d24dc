//! Where a broker is.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::Error;
use crate::limits::{CONNECT_TIMEOUT, SIGN_INTERVAL};

/// A URL, as far as we need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerUrl {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Without a slash at its end.
    pub(crate) path: String,
    pub(crate) user: Option<(String, String)>,
}

impl BrokerUrl {
    pub(crate) fn read(text: &str, ports: &[(&str, u16)]) -> Result<Self, Error> {
        let wrong = |why| Error::Address { address: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no scheme, such as http://"))?;
        let scheme = scheme.to_ascii_lowercase();
        let standard = ports.iter().find(|(name, _)| *name == scheme);
        let (_, standard) = standard.ok_or_else(|| wrong("a scheme that is not known here"))?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |place| rest.split_at(place));
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (unescape(name), unescape(password))
        });
        let (host, port) = if let Some(rest) = place.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("[ without ]"))?;
            (host, rest.strip_prefix(':'))
        } else {
            place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)))
        };
        if host.is_empty() {
            return Err(wrong("no host"));
        }
        let port = port.map_or(Ok(*standard), |port| port.parse().map_err(|_| wrong("no number of a port")))?;
        Ok(Self { scheme, host: host.to_owned(), port, path: path.trim_end_matches('/').to_owned(), user })
    }

    /// `host:port`, as HTTP and people write it.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(crate) async fn open(&self) -> Result<TcpStream, Error> {
        let unreachable = |error| Error::Unreachable { address: self.authority(), error };
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = within(CONNECT_TIMEOUT, connecting).await?.map_err(unreachable)?;
        // Requests are small and wait for their answers.
        stream.set_nodelay(true).map_err(Error::Lost)?;
        // Whoever vanished without a word is noticed even where nothing is ever sent.
        let signs = TcpKeepalive::new().with_time(SIGN_INTERVAL).with_interval(SIGN_INTERVAL);
        SockRef::from(&stream).set_tcp_keepalive(&signs).map_err(Error::Lost)?;
        Ok(stream)
    }
}

/// An outcome within a time.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Result<T, Error> {
    timeout(time, work).await.map_err(|_| Error::TimedOut)
}

fn unescape(text: &str) -> String {
    // As a form has it, but a plus is a plus.
    let pair = format!("x={}", text.replace('+', "%2B"));
    form_urlencoded::parse(pair.as_bytes()).next().map_or_else(String::new, |(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text| BrokerUrl::read(text, &[("http", 7878), ("ssap", 10010)]);
        let plain = read("SSAP://localhost").unwrap();
        assert_eq!((plain.scheme.as_str(), plain.authority().as_str()), ("ssap", "localhost:10010"));
        let full = read("http://me:a%3A+b@[::1]:80/space/").unwrap();
        assert_eq!((full.authority().as_str(), full.path.as_str()), ("[::1]:80", "/space"));
        assert_eq!(full.user, Some(("me".into(), "a:+b".into())));
        for bad in ["", "localhost", "ftp://x", "http://", "http://x:y", "http://[::1", "http://x:99999"] {
            assert!(matches!(read(bad), Err(Error::Address { .. })), "{bad}");
        }
    }
}
