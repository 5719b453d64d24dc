//! As much of a WebSocket as a subscriber needs: it asks, and reads what it is told.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A subscriber.
pub(crate) struct SubscriberSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
}

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;

impl SubscriberSocket {
    pub(crate) async fn connect(at: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(at).await.context("the door of HTTP is closed")?;
        stream.set_nodelay(true)?;
        let head = format!(
            "GET /subscribe HTTP/1.1\r\nHost: {at}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut socket = Self { stream, buffer: Vec::new() };
        let end = loop {
            if let Some(end) = socket.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            socket.fill().await?;
        };
        if !socket.buffer.starts_with(b"HTTP/1.1 101") {
            bail!("no WebSocket: {}", String::from_utf8_lossy(&socket.buffer));
        }
        socket.buffer.drain(..end);
        Ok(socket)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the broker has closed a subscriber's connection");
        }
        Ok(())
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        // A mask of zeros leaves everything as it is.
        let mut frame = vec![0x80 | kind];
        match u16::try_from(payload.len()) {
            Ok(length) if length < 126 => frame.push(0x80 | length as u8),
            Ok(length) => {
                frame.push(0xfe);
                frame.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => bail!("a message is too long"),
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        Ok(self.stream.write_all(&frame).await?)
    }

    /// Sends a message.
    pub(crate) async fn tell(&mut self, text: &[u8]) -> Result<()> {
        self.send(TEXT, text).await
    }

    /// Subscribes, and waits for the whole result.
    pub(crate) async fn subscribe(&mut self, sparql: &str) -> Result<()> {
        let ask = serde_json::json!({"subscribe": {"sparql": sparql, "alias": "a"}}).to_string();
        self.send(TEXT, ask.as_bytes()).await?;
        let answer = self.next().await?;
        if find(&answer, b"\"sequence\":0").is_none() {
            bail!("not subscribed: {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>> {
        loop {
            let Some((kind, start, end)) = frame(&self.buffer) else {
                self.fill().await?;
                continue;
            };
            let payload = self.buffer[start..end].to_vec();
            self.buffer.drain(..end);
            match kind {
                TEXT => return Ok(payload),
                // An answer to a ping.
                PING => self.send(PING + 1, &payload).await?,
                CLOSE => bail!("the broker has closed a subscriber's connection"),
                _ => {}
            }
        }
    }
}

/// Kind, begin and end of the payload of the first frame, if it is complete. Ours are never fragmented.
fn frame(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (kind, short) = (bytes.first()? & 15, usize::from(bytes.get(1)? & 127));
    let (start, length) = match short {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        _ => (2, short),
    };
    (bytes.len() >= start + length).then_some((kind, start, start + length))
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_when_they_are_whole() {
        assert_eq!(frame(&[0x81, 2, b'a']), None);
        assert_eq!(frame(&[0x81, 2, b'a', b'b', 0x89]), Some((1, 2, 4)));
        let mut long = vec![0x81, 126, 1, 0];
        long.resize(4 + 256, b'x');
        assert_eq!(frame(&long), Some((1, 4, 260)));
    }
}
