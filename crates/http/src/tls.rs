//! TLS at a door: the handshake of one connection, within a time, and what becomes of a client that does not speak TLS.
//!
//! Certificates are somebody else's affair: a [`TlsSource`] says which are in force, so that a reload holds from the next
//! connection on. Knows no protocol above TLS.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info};

/// Whoever knows the certificates.
pub trait TlsSource: fmt::Debug + Send + Sync {
    /// What new connections are to be agreed on with.
    fn config(&self) -> Arc<ServerConfig>;

    /// The user that a verified certificate of a client names; none if it names nobody.
    fn user_of(&self, certificate: &[u8]) -> Option<String>;
}

/// A door with TLS.
#[derive(Debug)]
pub struct TlsDoor {
    name: &'static str,
    source: Arc<dyn TlsSource>,
    within: Duration,
    /// When a client without TLS was last spoken of, and how many came since.
    plain: Mutex<(Option<Instant>, u64)>,
}

/// A connection that has shaken hands.
#[derive(Debug)]
pub struct SecureStream {
    /// What is left to serve.
    pub stream: TlsStream<TcpStream>,
    /// The user whom the client's certificate names, if it has shown one.
    pub user: Option<String>,
}

/// What a client hears that speaks HTTP where TLS is spoken.
pub const PLAIN_REFUSAL: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\n\
    Content-Length: 135\r\nConnection: close\r\n\r\n\
    {\"type\":\"urn:tidegate:problem:tls-expected\",\"title\":\"Bad Request\",\"status\":400,\
    \"detail\":\"this port speaks TLS: use https:// or wss://\"}";

/// A client without TLS is spoken of so often at most: whoever tries again and again does not fill the log.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);
/// The first byte of every TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// Says this, and listens for a moment: whoever is still sending would not hear it if the socket was closed at once.
pub async fn last_words(mut stream: TcpStream, words: &str, bytes_max: usize) -> io::Result<()> {
    stream.write_all(words.as_bytes()).await?;
    stream.shutdown().await?;
    let (mut buffer, mut taken) = ([0; 1024], 0);
    while taken < bytes_max {
        match stream.read(&mut buffer).await? {
            0 => break,
            length => taken += length,
        }
    }
    Ok(())
}

impl TlsDoor {
    /// A door of this name, with so much time for a handshake.
    pub fn new(name: &'static str, source: Arc<dyn TlsSource>, within: Duration) -> Self {
        Self { name, source, within, plain: Mutex::default() }
    }

    /// Its name, in logs and settings.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Shakes hands. `Err` has the stream of a client that does not speak TLS, for a last word; nothing if there is nobody
    /// to speak to.
    pub async fn enter(&self, stream: TcpStream) -> Result<SecureStream, Option<TcpStream>> {
        // Answers are small, and somebody waits for them.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok();
        let mut first = [0];
        let shaken = timeout(self.within, async {
            if stream.peek(&mut first).await? != 0 && first[0] != HANDSHAKE {
                return Ok(Err(stream));
            }
            TlsAcceptor::from(self.source.config()).accept(stream).await.map(Ok)
        });
        let why = match shaken.await {
            Ok(Ok(Ok(stream))) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                match certificate.map(|certificate| self.source.user_of(certificate)) {
                    Some(None) => io::Error::other("the certificate has no name that a user could have"),
                    user => return Ok(SecureStream { user: user.flatten(), stream }),
                }
            }
            Ok(Ok(Err(plain))) => {
                self.note_plain(&plain);
                return Err(Some(plain));
            }
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        debug!(event = "tls_failed", listener = self.name, ?peer, error = %why, "a TLS handshake was not completed");
        Err(None)
    }

    fn note_plain(&self, stream: &TcpStream) {
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        plain.1 += 1;
        if plain.0.is_some_and(|said| said.elapsed() < PLAIN_INTERVAL) {
            return;
        }
        let peer = stream.peer_addr().map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
        let (name, times) = (self.name, plain.1);
        *plain = (Some(Instant::now()), 0);
        info!(
            event = "tls_expected",
            listener = name,
            peer,
            times,
            "a client without TLS came to {name}, which is for TLS"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_as_long_as_it_says() {
        let (head, body) = PLAIN_REFUSAL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
