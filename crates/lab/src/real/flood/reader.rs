//! A reader that takes less than there is: it subscribes to everything, and reads so many bytes a second and no more.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_wire_mqtt::{Decoded, Packet, decode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use super::{RARE_TOPIC, READER_BYTES, packets};

/// What the system may keep for it: else a part of the queue would be there, and not in the broker.
const SYSTEM_BYTES: u32 = 16 << 10;
/// Bytes that it reads at once.
const READ_BYTES: usize = 8 << 10;

pub(super) struct Reader {
    stream: TcpStream,
    began: Instant,
    buffer: Vec<u8>,
    /// Seconds that messages of the rare publisher were under way.
    latencies: Vec<f64>,
}

impl Reader {
    pub(super) async fn open(broker: SocketAddr, began: Instant) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(SYSTEM_BYTES)?;
        let mut stream = socket.connect(broker).await?;
        stream.write_all(&packets::connect("reader")?).await?;
        stream.write_all(&packets::subscribe("#")?).await?;
        let mut reader = Self { stream, began, buffer: Vec::new(), latencies: Vec::new() };
        // It has subscribed when it is told so: CONNACK and SUBACK are packets, too.
        let mut answers = 0;
        while answers < 2 {
            reader.fill().await.filter(|bytes| *bytes > 0).context("the reader is not let in")?;
            answers += reader.take();
        }
        Ok(reader)
    }

    /// Reads until it is over; how long the messages of the rare publisher were under way.
    pub(super) async fn read(mut self, mut is_over: oneshot::Receiver<()>) -> Vec<f64> {
        let mut due = Instant::now();
        loop {
            tokio::select! {
                _ = &mut is_over => return self.latencies,
                () = sleep_until(due.into()) => {}
            }
            let began = Instant::now();
            let read = tokio::select! {
                _ = &mut is_over => return self.latencies,
                read = self.fill() => read,
            };
            let Some(bytes @ 1..) = read else { return self.latencies };
            self.take();
            // Who waits for bytes saves no time for later.
            due = due.max(began) + Duration::from_secs_f64(bytes as f64 / READER_BYTES);
        }
    }

    async fn fill(&mut self) -> Option<usize> {
        let mut piece = [0; READ_BYTES];
        let bytes = self.stream.read(&mut piece).await.ok()?;
        self.buffer.extend_from_slice(&piece[..bytes]);
        Some(bytes)
    }

    /// Takes the packets that are whole; how many.
    fn take(&mut self) -> usize {
        let (mut taken, mut count) = (0, 0);
        while let Ok(Decoded::Packet { packet, consumed }) =
            decode(&self.buffer[taken..], packets::PEER.version, &packets::limits())
        {
            if let Packet::Publish(publish) = packet
                && publish.topic == RARE_TOPIC
                && let Some(sent) = std::str::from_utf8(publish.payload).ok().and_then(|text| text.parse::<f64>().ok())
            {
                self.latencies.push(self.began.elapsed().as_secs_f64() - sent);
            }
            taken += consumed;
            count += 1;
        }
        self.buffer.drain(..taken);
        count
    }
}
