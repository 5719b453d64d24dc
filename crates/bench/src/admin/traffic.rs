//! One publisher, one subscriber, QoS 0, 64 bytes, and what the shard needs for each message.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::cpu;
use crate::plain::PlainClient;
use crate::process::RunningBroker;

/// Messages that the publisher has under way, so that delivery is measured and not buffers.
const WINDOW: u64 = 200;

/// The last of them arrive within this time, or are lost.
const LAST_MAX: Duration = Duration::from_secs(10);

/// What one run came to.
pub(super) struct AdminRun {
    /// CPU microseconds of the shard for each message.
    pub(super) shard_us: f64,
    /// The door's share of one core.
    pub(super) door_share: f64,
}

/// A client that is let in; from here on bytes are enough.
pub(super) fn connect(at: SocketAddr, id: &str) -> Result<TcpStream> {
    PlainClient::connect(at, id).map(PlainClient::into_socket)
}

/// Runs for a time.
pub(super) fn run(broker: &RunningBroker, time: Duration) -> Result<AdminRun> {
    let mut reader = connect(broker.address, "reader")?;
    reader.write_all(b"\x82\x06\0\x01\0\x01t\0")?;
    reader.read_exact(&mut [0; 5])?;
    let mut writer = connect(broker.address, "writer")?;
    let mut message = vec![0x30, 67, 0, 1, b't'];
    message.extend_from_slice(&[b'x'; 64]);
    let length = message.len() as u64;
    let (arrived, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    reader.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (bytes, over) = (Arc::clone(&arrived), Arc::clone(&is_over));
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while !over.load(Ordering::Relaxed) {
            if let Ok(count) = reader.read(&mut buffer) {
                bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    });
    let (began, shard, door) = (Instant::now(), cpu(broker, "shard")?, cpu(broker, "admin")?);
    let mut sent = 0;
    while began.elapsed() < time {
        let under_way = sent - arrived.load(Ordering::Relaxed) / length;
        if under_way >= WINDOW {
            std::thread::yield_now();
            continue;
        }
        let batch = message.repeat(usize::try_from(WINDOW - under_way)?);
        writer.write_all(&batch)?;
        sent += WINDOW - under_way;
    }
    let (shard, door) = (cpu(broker, "shard")? - shard, cpu(broker, "admin")? - door);
    let elapsed = began.elapsed().as_secs_f64();
    let messages = arrived.load(Ordering::Relaxed) / length;
    let end = Instant::now() + LAST_MAX;
    while arrived.load(Ordering::Relaxed) / length < sent && Instant::now() < end {
        std::thread::yield_now();
    }
    is_over.store(true, Ordering::Relaxed);
    reading.join().map_err(|_| anyhow!("the reader failed"))?;
    // A message that got lost keeps its place in the window for good: such a run says nothing.
    let lost = sent - arrived.load(Ordering::Relaxed) / length;
    if lost > 0 {
        bail!("{lost} of {sent} messages were lost");
    }
    Ok(AdminRun { shard_us: shard * 1e6 / messages.max(1) as f64, door_share: door / elapsed })
}
