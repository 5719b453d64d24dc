//! The bytes below: TCP, TLS, WebSocket, or both. Split in a half that reads and a task that writes, so that neither
//! waits for the other.

use std::io;

use futures_util::stream::SplitStream;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::driver::address::{BrokerUrl, within};
use crate::driver::tls::{BrokerRoute, Stream};
use crate::error::Error;
use crate::limits::{CONNECT_TIMEOUT, WRITE_BYTES, WRITE_TIMEOUT};

/// The half that reads.
pub(super) enum MqttReader {
    Plain(ReadHalf<Stream>),
    Socket(SplitStream<WebSocketStream<Stream>>),
}

/// An open connection. Dropping `writer` ends it after what was given to it is written.
pub(super) struct MqttLink {
    pub(super) reader: MqttReader,
    pub(super) writer: mpsc::Sender<Vec<u8>>,
}

impl MqttLink {
    pub(super) async fn open(road: &BrokerRoute) -> Result<Self, Error> {
        let (address, stream) = (&road.address, road.open().await?);
        // Small: what waits for the socket waits in the session.
        let (writer, mut chunks) = mpsc::channel::<Vec<u8>>(4);
        if !address.scheme.starts_with("ws") {
            let (reader, mut half) = tokio::io::split(stream);
            tokio::spawn(async move {
                while let Some(chunk) = chunks.recv().await {
                    for piece in chunk.chunks(WRITE_BYTES) {
                        if !matches!(within(WRITE_TIMEOUT, write(&mut half, piece)).await, Ok(Ok(()))) {
                            return;
                        }
                    }
                }
                let _ = within(WRITE_TIMEOUT, half.shutdown()).await;
            });
            return Ok(Self { reader: MqttReader::Plain(reader), writer });
        }
        let socket = within(CONNECT_TIMEOUT, upgrade(address, stream)).await??;
        let (mut sink, stream) = socket.split();
        tokio::spawn(async move {
            while let Some(chunk) = chunks.recv().await {
                // Where a packet ends is not where a frame ends. [MQTT-6.0.0-2]
                for piece in chunk.chunks(WRITE_BYTES) {
                    let piece = Message::Binary(piece.to_vec().into());
                    if !matches!(within(WRITE_TIMEOUT, sink.send(piece)).await, Ok(Ok(()))) {
                        return;
                    }
                }
            }
            let _ = within(WRITE_TIMEOUT, sink.close()).await;
        });
        Ok(Self { reader: MqttReader::Socket(stream), writer })
    }
}

/// TLS keeps what its socket did not take until it is flushed.
async fn write(half: &mut WriteHalf<Stream>, piece: &[u8]) -> io::Result<()> {
    half.write_all(piece).await?;
    half.flush().await
}

impl MqttReader {
    /// Appends what has arrived. May be given up while waiting.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let ended = || Err(io::ErrorKind::UnexpectedEof.into());
        match self {
            Self::Plain(half) => match half.read_buf(buffer).await? {
                0 => ended(),
                _ => Ok(()),
            },
            Self::Socket(stream) => match stream.next().await {
                Some(Ok(Message::Binary(bytes))) => {
                    buffer.extend_from_slice(&bytes);
                    Ok(())
                }
                Some(Ok(Message::Close(_))) | None => ended(),
                Some(Ok(_)) => Ok(()),
                Some(Err(error)) => Err(io::Error::other(error)),
            },
        }
    }
}

async fn upgrade(address: &BrokerUrl, stream: Stream) -> Result<WebSocketStream<Stream>, Error> {
    let path = if address.path.is_empty() { "/mqtt" } else { &address.path };
    let url = format!("{}://{}{path}", address.scheme, address.authority());
    let unreachable = |error| Error::Unreachable { address: address.authority(), error: io::Error::other(error) };
    let mut request = url.into_client_request().map_err(unreachable)?;
    request.headers_mut().insert("sec-websocket-protocol", hyper::header::HeaderValue::from_static("mqtt"));
    Ok(client_async(request, stream).await.map_err(unreachable)?.0)
}
