//! The two clients of a hand-over, which know all addresses: one whose session lasts, and one that publishes to it without pause.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tidegate_program::Stop;
use tidegate_wire_mqtt::{
    Ack, AckKind, Decoded, Delivery, Encode, Packet, PacketId, Properties, Publish, QoS, ReasonCode, decode,
};

use crate::packets::{self, PEER, SessionLifetime};

const TOPIC: &str = "bench/hand-over";
/// Messages of the publisher under way.
const WINDOW: usize = 16;
/// How long a node may take to answer a greeting before another is tried.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Between two tries of all nodes, and the longest wait for a socket.
const GLANCE: Duration = Duration::from_millis(5);
/// A node that answers nothing for so long is left, as by clients that have a keep-alive.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// A socket whose packets are read one after the other.
struct Line {
    socket: TcpStream,
    inbox: Vec<u8>,
}

impl Line {
    /// None if nobody lets this client in there; else whether its session was there.
    fn open(address: SocketAddr, id: &str, stay: SessionLifetime) -> Option<(Self, bool)> {
        let socket = TcpStream::connect_timeout(&address, ANSWER_MAX).ok()?;
        socket.set_nodelay(true).ok()?;
        socket.set_read_timeout(Some(GLANCE)).ok()?;
        let mut line = Self { socket, inbox: Vec::new() };
        let mut hello = Vec::new();
        packets::connect_as(id, None, None, stay, &mut hello).ok()?;
        line.socket.write_all(&hello).ok()?;
        let (begun, mut answer) = (Instant::now(), None);
        while answer.is_none() && begun.elapsed() < ANSWER_MAX {
            line.fill().ok()?;
            // No more than the greeting: what a session has waiting may come with it.
            line.next(|packet| {
                if let Packet::ConnAck(connack) = packet {
                    answer = Some((connack.reason == ReasonCode::Success, connack.session_present));
                }
            });
        }
        answer.filter(|(is_in, _)| *is_in).map(|(_, present)| (line, present))
    }

    /// At whatever node, as soon as one lets it in.
    fn roam(addresses: &[SocketAddr], id: &str, stay: SessionLifetime, until: Instant) -> Result<(Self, bool)> {
        while Instant::now() < until {
            if let Some(found) = addresses.iter().find_map(|address| Self::open(*address, id, stay)) {
                return Ok(found);
            }
            std::thread::sleep(GLANCE);
        }
        bail!("no node lets {id} in")
    }

    /// Gives each packet that is there to `each`; waits a moment if there is none.
    fn hear(&mut self, mut each: impl FnMut(&Packet<'_>)) -> Result<()> {
        // First what came with a greeting, for which nobody waits.
        while self.next(&mut each) {}
        self.fill()?;
        while self.next(&mut each) {}
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        match self.socket.read(&mut buffer) {
            Ok(0) => bail!("the node closed a connection"),
            Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Gives one packet to `with`, if one is there.
    fn next(&mut self, with: impl FnOnce(&Packet<'_>)) -> bool {
        let Ok(Decoded::Packet { packet, consumed }) = decode(&self.inbox, PEER.version, &packets::limits()) else {
            return false;
        };
        with(&packet);
        self.inbox.drain(..consumed);
        true
    }
}

/// A client whose session lasts, and all that it has received.
pub(super) struct Stayer {
    addresses: Vec<SocketAddr>,
    line: Option<Line>,
    pub(super) received: BTreeSet<u64>,
}

impl Stayer {
    const ID: &str = "bench-stayer";

    /// With a new session, subscribed.
    pub(super) fn begin(addresses: Vec<SocketAddr>, until: Instant) -> Result<Self> {
        // Whatever an earlier one has left is gone.
        Line::roam(&addresses, Self::ID, SessionLifetime::Clean, until)?;
        let (mut line, _) = Line::roam(&addresses, Self::ID, SessionLifetime::Lasting, until)?;
        let mut wish = Vec::new();
        packets::subscribe(PEER, TOPIC, QoS::AtLeastOnce, &mut wish)?;
        line.socket.write_all(&wish)?;
        let mut is_granted = false;
        while !is_granted {
            line.hear(|packet| is_granted |= matches!(packet, Packet::SubAck(_)))?;
            if Instant::now() > until {
                bail!("the subscription is not answered");
            }
        }
        Ok(Self { addresses, line: Some(line), received: BTreeSet::new() })
    }

    /// Takes what is there. A connection that ends is no failure: that is what is measured.
    pub(super) fn take(&mut self) {
        let Some(line) = &mut self.line else { return std::thread::sleep(GLANCE) };
        let (mut answers, received) = (Vec::new(), &mut self.received);
        let heard = line.hear(|packet| {
            if let Packet::Publish(publish) = packet {
                received.extend(std::str::from_utf8(publish.payload).ok().and_then(|text| text.parse::<u64>().ok()));
                answers.extend(publish.delivery.packet_id());
            }
        });
        let mut bytes = Vec::new();
        for id in answers {
            let _ = Packet::Ack(Ack::success(AckKind::PubAck, id)).encode(PEER, &mut bytes);
        }
        if heard.and_then(|()| Ok(line.socket.write_all(&bytes)?)).is_err() {
            self.line = None;
        }
    }

    /// Goes to whoever lets it in once its connection has ended, and not before: who is about to end would let it in as well. Whether its session
    /// was there.
    pub(super) fn come_back(&mut self, until: Instant) -> Result<bool> {
        while self.line.is_some() && Instant::now() < until {
            self.take();
        }
        self.line = None;
        let (line, present) = Line::roam(&self.addresses, Self::ID, SessionLifetime::Lasting, until)?;
        self.line = Some(line);
        Ok(present)
    }
}

/// What publisher and measurer share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) is_over: AtomicBool,
    /// Messages that were acknowledged.
    pub(super) acknowledged: AtomicU64,
}

/// Publishes numbers, from `first` on, until it is told to stop; those that were acknowledged. What was not is sent again.
pub(super) fn publish(
    addresses: &[SocketAddr],
    first: u64,
    shared: &Shared,
    until: Instant,
    stop: &Stop,
) -> Result<BTreeSet<u64>> {
    let (mut acknowledged, mut next, mut again) = (BTreeSet::new(), first, Vec::new());
    while !shared.is_over.load(Ordering::Relaxed) && !stop.is_wanted() {
        let (mut line, _) = Line::roam(addresses, "bench-publisher", SessionLifetime::Clean, until)?;
        let mut under_way: BTreeMap<PacketId, u64> = BTreeMap::new();
        let (mut id, mut heard) = (PacketId::MIN, Instant::now());
        while !shared.is_over.load(Ordering::Relaxed) && heard.elapsed() < SILENCE_MAX {
            let mut bytes = Vec::new();
            while under_way.len() < WINDOW {
                let number = again.pop().unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                let (delivery, payload) = (Delivery::AtLeastOnce { packet_id: id, dup: false }, number.to_string());
                let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
                let _ = Publish { delivery, retain: false, topic: TOPIC, properties, payload }.encode(PEER, &mut bytes);
                under_way.insert(id, number);
                id = id.checked_add(1).unwrap_or(PacketId::MIN);
            }
            let sent = line.socket.write_all(&bytes);
            let before = acknowledged.len();
            let read = line.hear(|packet| {
                if let Packet::Ack(ack) = packet
                    && ack.kind == AckKind::PubAck
                {
                    acknowledged.extend(under_way.remove(&ack.packet_id));
                }
            });
            if acknowledged.len() > before {
                heard = Instant::now();
                shared.acknowledged.fetch_add((acknowledged.len() - before) as u64, Ordering::Relaxed);
            }
            if sent.is_err() || read.is_err() {
                break;
            }
        }
        again.extend(under_way.into_values());
    }
    Ok(acknowledged)
}
