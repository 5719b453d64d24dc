//! A receiver that reads slowly, twenty publishers that send now and then, and one that sends as fast as it can.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_sim::histogram::Histogram;
use tidegate_wire_mqtt::{Decoded, Packet, QoS, decode};

use crate::packets::{self, PEER, PayloadHead, PublishTemplate};
use crate::plain::PlainClient;

/// Publishers beside the flooder, and how many messages each sends in a second.
const OTHERS: (u32, f64) = (20, 10.0);
/// What the receiver takes: a read of so many bytes, so many times a second; some 2 000 messages.
const TAKES: (usize, u64) = (1900, 100);
/// What the system keeps for a receiver that reads slowly: a device, not a server.
const RECEIVE_BUFFER: usize = 8 * 1024;
const PAYLOAD: usize = 64;
/// The stream of the flooder.
const FLOODER: u32 = 1000;
/// How long what is on its way may take to arrive, read as fast as it comes.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// Nothing came for so long: nothing will.
const SILENCE: Duration = Duration::from_secs(2);
/// Messages a second where the cost is measured.
const STEADY: f64 = 10_000.0;

/// What the others had of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloodOutcome {
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Messages of the flooder that arrived.
    pub(super) flooder: u64,
}

/// A socket that messages are read from.
struct Taker {
    socket: TcpStream,
    inbox: Vec<u8>,
}

impl Taker {
    fn listen(address: SocketAddr, id: &str, filter: &str) -> Result<Self> {
        let mut client = PlainClient::connect(address, id)?;
        client.subscribe(&[filter.to_owned()], QoS::AtMostOnce)?;
        let socket = client.into_socket();
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        Ok(Self { socket, inbox: Vec::new() })
    }

    /// One read of so many bytes at most; whether there was anything.
    fn take(&mut self, most: usize, mut each: impl FnMut(PayloadHead)) -> Result<bool> {
        let mut buffer = vec![0; most];
        match self.socket.read(&mut buffer) {
            Ok(0) => anyhow::bail!("the broker closed the receiver's connection"),
            Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let mut read = 0;
        while let Ok(Decoded::Packet { packet, consumed }) =
            decode(&self.inbox[read..], PEER.version, &packets::limits())
        {
            if let Packet::Publish(publish) = packet
                && let Some(head) = PayloadHead::of(publish.payload)
            {
                each(head);
            }
            read += consumed;
        }
        self.inbox.drain(..read);
        Ok(true)
    }
}

pub(super) fn run(address: SocketAddr, time: Duration, scale: f64) -> Result<FloodOutcome> {
    let mut receiver = Taker::listen(address, "bench-slow", "g/#")?;
    let buffer = socket2::SockRef::from(&receiver.socket).set_recv_buffer_size(RECEIVE_BUFFER);
    buffer.context("the receiver's buffer")?;
    let others = ((f64::from(OTHERS.0) * scale) as u32).max(2);
    let mut lines = Vec::new();
    for stream in 0..others {
        let socket = PlainClient::connect(address, &format!("bench-other-{stream}"))?.into_socket();
        let topic = format!("g/other/{stream}");
        lines.push((socket, PublishTemplate::new(&topic, QoS::AtMostOnce, PAYLOAD, stream)?, 0_u64));
    }
    let flooder = PlainClient::connect(address, "bench-flooder")?.into_socket();
    let (begun, over) = (Instant::now(), AtomicBool::new(false));
    let now = || begun.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| flood(flooder, &over));
        let paced = scope.spawn(|| -> Result<u64> {
            let (interval, mut number) = (Duration::from_secs_f64(1.0 / OTHERS.1 / f64::from(others)), 0_u32);
            let mut due = Instant::now();
            while begun.elapsed() < time {
                let (socket, template, sent) = &mut lines[(number % others) as usize];
                let mut bytes = Vec::new();
                template.emit(&mut bytes, NonZeroU16::MIN, now(), *sent);
                socket.write_all(&bytes)?;
                (*sent, number, due) = (*sent + 1, number + 1, due + interval);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            over.store(true, Ordering::Relaxed);
            Ok(number.into())
        });
        let (mut latency, mut arrived, mut flooded) = (Histogram::new(), 0_u64, 0_u64);
        let mut note = |head: PayloadHead| {
            if head.stream == FLOODER {
                flooded += 1;
            } else {
                arrived += 1;
                latency.record(now().saturating_sub(head.time_ns));
            }
        };
        let rest = Duration::from_millis(1000 / TAKES.1);
        while !over.load(Ordering::Relaxed) {
            receiver.take(TAKES.0, &mut note)?;
            std::thread::sleep(rest);
        }
        let (end, mut heard) = (Instant::now() + DRAIN_MAX, Instant::now());
        while Instant::now() < end && heard.elapsed() < SILENCE {
            if receiver.take(64 * 1024, &mut note)? {
                heard = Instant::now();
            }
        }
        let sent = paced.join().map_err(|_| anyhow::anyhow!("the others have failed"))??;
        let ms = |part: f64| latency.quantile(part) as f64 / 1e6;
        let (p50_ms, p99_ms) = (ms(0.5), ms(0.99));
        Ok(FloodOutcome { sent, lost: sent.saturating_sub(arrived), p50_ms, p99_ms, flooder: flooded })
    })
}

/// As fast as it is taken, until it is over.
fn flood(mut socket: TcpStream, over: &AtomicBool) {
    let Ok(template) = PublishTemplate::new("g/flood", QoS::AtMostOnce, PAYLOAD, FLOODER) else { return };
    let _ = socket.set_write_timeout(Some(Duration::from_millis(50)));
    let mut bytes = Vec::new();
    for number in 0..100 {
        template.emit(&mut bytes, NonZeroU16::MIN, 0, number);
    }
    let mut from = 0;
    while !over.load(Ordering::Relaxed) {
        match socket.write(&bytes[from..]) {
            Ok(count) => from = (from + count) % bytes.len(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// A publisher and a subscriber at an even pace: messages that arrived, and the seconds that it took.
pub(super) fn steady(address: SocketAddr, time: Duration, scale: f64) -> Result<(u64, f64)> {
    let mut receiver = Taker::listen(address, "bench-steady", "s")?;
    let mut publisher = PlainClient::connect(address, "bench-steady-pub")?.into_socket();
    let template = PublishTemplate::new("s", QoS::AtMostOnce, PAYLOAD, 0)?;
    let (begun, over) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            let mut sent = 0_u64;
            while begun.elapsed() < time {
                let due = (begun.elapsed().as_secs_f64() * STEADY * scale) as u64;
                let mut bytes = Vec::new();
                while sent < due {
                    template.emit(&mut bytes, NonZeroU16::MIN, 0, sent);
                    sent += 1;
                }
                publisher.write_all(&bytes)?;
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, Ordering::Relaxed);
            Ok(())
        });
        let mut arrived = 0;
        while !over.load(Ordering::Relaxed) || receiver.take(64 * 1024, |_| arrived += 1)? {
            receiver.take(64 * 1024, |_| arrived += 1)?;
        }
        sender.join().map_err(|_| anyhow::anyhow!("the publisher has failed"))??;
        Ok((arrived, begun.elapsed().as_secs_f64()))
    })
}
