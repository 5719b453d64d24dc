//! The clients of a drain: who publishes the backlog, who counts it at the other end, and two of the hub's own that are timed.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tidegate_program::Stop;
use tidegate_sim::histogram::Histogram;
use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Delivery, Encode, Limits, Packet, PacketId, Properties, Publish, QoS, Sender, decode,
};

use crate::packets::{self, PEER};
use crate::plain::PlainClient;

/// Messages of a publisher under way.
const WINDOW: u64 = 100;
/// Between two messages of the hub's own clients: 500 a second.
const BEAT: Duration = Duration::from_millis(2);
/// How long a socket is waited for at once.
const GLANCE: Duration = Duration::from_millis(50);
/// Longest time without an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A socket whose packets are read one after the other.
struct PacketLine {
    socket: TcpStream,
    inbox: Vec<u8>,
    read: usize,
    limits: Limits,
}

impl PacketLine {
    fn new(client: PlainClient) -> Result<Self> {
        let socket = client.into_socket();
        socket.set_read_timeout(Some(GLANCE))?;
        let limits = Limits { packet_bytes_max: 1 << 20, ..packets::limits() }.with_sender(Sender::Server);
        Ok(Self { socket, inbox: Vec::new(), read: 0, limits })
    }

    fn send(&mut self, packet: &Packet<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        let _ = packet.encode(PEER, &mut bytes);
        Ok(self.socket.write_all(&bytes)?)
    }

    /// Gives each packet that is there to `each`; waits a moment if there is none.
    fn hear(&mut self, mut each: impl FnMut(&Packet<'_>)) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        match self.socket.read(&mut buffer) {
            Ok(0) => bail!("the broker closed a connection"),
            Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        while let Ok(Decoded::Packet { packet, consumed }) =
            decode(&self.inbox[self.read..], PEER.version, &self.limits)
        {
            each(&packet);
            self.read += consumed;
        }
        self.inbox.drain(..self.read);
        self.read = 0;
        Ok(())
    }
}

/// Publishes so many messages at QoS 1, each with its number, and returns when all are acknowledged.
pub(crate) fn publish(address: SocketAddr, topic: &str, count: u64) -> Result<()> {
    let mut line = PacketLine::new(PlainClient::connect(address, "bench-site")?)?;
    let (mut sent, mut done, mut heard) = (0, 0, Instant::now());
    while done < count {
        let mut bytes = Vec::new();
        while sent < count && sent - done < WINDOW {
            let packet_id = PacketId::new((sent % 60_000) as u16 + 1).unwrap_or(PacketId::MIN);
            let payload = format!("{sent:064}");
            let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
            let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
            let _ = Publish { delivery, retain: false, topic, properties, payload }.encode(PEER, &mut bytes);
            sent += 1;
        }
        line.socket.write_all(&bytes)?;
        let before = done;
        line.hear(|packet| done += u64::from(matches!(packet, Packet::Ack(ack) if ack.kind == AckKind::PubAck)))?;
        if done > before {
            heard = Instant::now();
        } else if heard.elapsed() > ANSWER_MAX {
            bail!("the site acknowledged {done} of {count} messages");
        }
    }
    Ok(())
}

/// What has arrived of a backlog.
pub(super) struct NumberedArrivals {
    /// Different messages.
    pub(super) count: u64,
    /// When the first was there.
    pub(super) first: Option<Instant>,
}

/// Counts what arrives at the hub.
pub(super) struct Counter {
    line: PacketLine,
    numbers: BTreeSet<u64>,
}

impl Counter {
    pub(super) fn listen(address: SocketAddr, filter: &str) -> Result<Self> {
        let mut client = PlainClient::connect(address, "bench-counter")?;
        client.subscribe(&[filter.to_owned()], QoS::AtLeastOnce)?;
        Ok(Self { line: PacketLine::new(client)?, numbers: BTreeSet::new() })
    }

    fn take(&mut self) -> Result<u64> {
        let (mut answers, mut count, numbers) = (Vec::new(), 0, &mut self.numbers);
        self.line.hear(|packet| {
            if let Packet::Publish(publish) = packet {
                count += 1;
                answers.extend(publish.delivery.packet_id());
                if publish.topic == "drain/backlog" {
                    numbers.extend(std::str::from_utf8(publish.payload).ok().and_then(|text| text.parse::<u64>().ok()));
                }
            }
        })?;
        let mut bytes = Vec::new();
        for id in answers {
            let _ = Packet::Ack(Ack::success(AckKind::PubAck, id)).encode(PEER, &mut bytes);
        }
        self.line.socket.write_all(&bytes)?;
        Ok(count)
    }

    /// Any messages, in this time.
    pub(super) fn count(&mut self, wanted: u64, time: Duration) -> Result<u64> {
        let (end, mut count) = (Instant::now() + time, 0);
        while count < wanted && Instant::now() < end {
            count += self.take()?;
        }
        Ok(count)
    }

    /// Different ones of the backlog; the span begins with the first of them.
    pub(super) fn count_numbered(
        &mut self,
        wanted: u64,
        time: Duration,
        span: &TimedSpan,
        stop: &Stop,
    ) -> Result<NumberedArrivals> {
        let (end, mut first) = (Instant::now() + time, None);
        while (self.numbers.len() as u64) < wanted && Instant::now() < end && !stop.is_wanted() {
            self.take()?;
            if first.is_none() && !self.numbers.is_empty() {
                first = Some(Instant::now());
                span.begin();
            }
        }
        Ok(NumberedArrivals { count: self.numbers.len() as u64, first })
    }
}

/// When what is timed begins and ends, for threads that do not see it themselves.
#[derive(Debug, Default)]
pub(crate) struct TimedSpan {
    has_begun: AtomicBool,
    is_over: AtomicBool,
}

impl TimedSpan {
    /// One that has begun, and ends by time alone.
    pub(crate) fn begun() -> Self {
        Self { has_begun: AtomicBool::new(true), is_over: AtomicBool::new(false) }
    }

    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A publisher and a subscriber of the hub's own, timed while the span lasts: p50 and p99 in ms. What was sent before it began is not
/// counted: calm seconds before a short drain would hide what the drain does.
pub(crate) fn time_clients(address: SocketAddr, span: &TimedSpan, time: Option<Duration>) -> Result<(f64, f64)> {
    let mut subscriber = PlainClient::connect(address, "bench-own-sub")?;
    subscriber.subscribe(&["own/beat".to_owned()], QoS::AtMostOnce)?;
    let mut subscriber = PacketLine::new(subscriber)?;
    subscriber.socket.set_read_timeout(Some(BEAT))?;
    let mut publisher = PacketLine::new(PlainClient::connect(address, "bench-own-pub")?)?;
    let (begun, mut due, mut histogram) = (Instant::now(), Instant::now(), Histogram::default());
    while !span.is_over.load(Ordering::Relaxed) && time.is_none_or(|time| begun.elapsed() < time) {
        if Instant::now() >= due {
            let stamp = (begun.elapsed().as_nanos() as u64).to_string();
            let (delivery, properties, payload) = (Delivery::AtMostOnce, Properties::EMPTY, stamp.as_bytes());
            publisher.send(&Packet::Publish(Publish {
                delivery,
                retain: false,
                topic: "own/beat",
                properties,
                payload,
            }))?;
            due += BEAT;
        }
        subscriber.hear(|packet| {
            if let Packet::Publish(publish) = packet
                && let Some(sent) = std::str::from_utf8(publish.payload).ok().and_then(|text| text.parse::<u64>().ok())
                && span.has_begun.load(Ordering::Relaxed)
            {
                histogram.record(begun.elapsed().as_nanos() as u64 - sent);
            }
        })?;
    }
    let ms = |part: f64| histogram.quantile(part) as f64 / 1e6;
    Ok((ms(0.5), ms(0.99)))
}
