//! The flooder: it sends at its usual pace, then as fast as it wants to, and never asks whether that is welcome. What it cannot
//! send because its connection is not read it sends as soon as it can, and at the end not at all.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout_at};

use super::{FLOOD, FLOOD_INTERVAL, FLOOD_TOPIC, PAYLOAD_BYTES, USUAL, USUAL_INTERVAL, packets};

/// A CONNACK of MQTT 3.1.1.
const CONNACK_BYTES: usize = 4;

pub(super) struct Sender {
    stream: TcpStream,
    message: Vec<u8>,
}

/// What was sent, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBytes {
    pub(super) offered: f64,
    pub(super) acked: f64,
}

impl Sender {
    pub(super) async fn open(broker: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(broker).await?;
        stream.write_all(&packets::connect("flooder")?).await?;
        stream.read_exact(&mut [0; CONNACK_BYTES]).await.context("the flooder is not let in")?;
        Ok(Self { stream, message: packets::publish(FLOOD_TOPIC, &[b'x'; PAYLOAD_BYTES])? })
    }

    pub(super) async fn send(mut self) -> Result<SentBytes> {
        let began = Instant::now();
        let flood = began + USUAL_INTERVAL * USUAL;
        let end = flood + FLOOD_INTERVAL * FLOOD;
        let mut written = 0_u64;
        for number in 0..USUAL + FLOOD {
            let due = match number.checked_sub(USUAL) {
                None => began + USUAL_INTERVAL * number,
                Some(number) => flood + FLOOD_INTERVAL * number,
            };
            sleep_until(due.into()).await;
            let (sent, is_cut) = self.write_until(end).await;
            written += sent;
            if is_cut || Instant::now() >= end {
                break;
            }
        }
        sleep_until(end.into()).await;
        let unacked = self.stream.local_addr().ok().and_then(unacknowledged).unwrap_or(0);
        let offered = self.message.len() as f64 * f64::from(USUAL + FLOOD);
        Ok(SentBytes { offered, acked: written.saturating_sub(unacked) as f64 })
    }

    /// One message, as far as there is room until then: bytes that the socket took, and whether the connection is over.
    async fn write_until(&mut self, end: Instant) -> (u64, bool) {
        let mut sent = 0;
        while sent < self.message.len() {
            match timeout_at(end.into(), self.stream.write(&self.message[sent..])).await {
                Err(_) => break,
                Ok(Ok(0) | Err(_)) => return (sent as u64, true),
                Ok(Ok(bytes)) => sent += bytes,
            }
        }
        (sent as u64, false)
    }
}

/// Bytes that this end of a connection has sent and the other has not acknowledged, or that are still to be sent, as Linux
/// tells it; none elsewhere.
fn unacknowledged(local: SocketAddr) -> Option<u64> {
    std::thread::sleep(Duration::from_millis(1));
    queue_of(&std::fs::read_to_string("/proc/net/tcp").ok()?, local.port())
}

/// The send queue of the connection with this local port. Columns: `sl local_address rem_address st tx_queue:rx_queue …`.
fn queue_of(table: &str, port: u16) -> Option<u64> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next().filter(|local| local.ends_with(&port))?;
        let queues = columns.nth(2)?;
        u64::from_str_radix(queues.split(':').next()?, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_of_a_connection_is_read_from_the_table_of_the_system() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1 0 100 0 0 10 0\n   \
            1: 0100007F:A1B2 0100007F:075B 01 0000C350:00000000 01:00000014 00000000     0        0 23 2 0 20 4 30 10 -1\n";
        assert_eq!(queue_of(table, 0xa1b2), Some(50_000));
        assert_eq!(queue_of(table, 0x075b), Some(0));
        assert_eq!(queue_of(table, 1), None);
    }
}
