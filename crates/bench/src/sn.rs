//! `tidegate bench sn`: what a message over MQTT-SN costs, beside the same over MQTT of the same broker.
//!
//! Nobody listens: what is measured is the way in. At QoS 1 each client waits for its answer; at QoS 0 it sends a few messages and a
//! ping, and waits for the answer to that, so that what is counted was read.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;
use tidegate_wire_mqtt::{Connect, Delivery, Encode, Packet, PacketId, Peer, Properties, Publish, Version};

use crate::arguments::BenchArgs;
use crate::json::print_or_write;
use crate::process::{RunningBroker, start_doors};
use crate::procfs;

/// Clients, each for itself.
const CLIENTS: usize = 8;
/// Messages of QoS 0 before a ping.
const BATCH: u32 = 16;
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Seconds that each case is measured if nothing is said.
const SECS: f64 = 3.0;
const PAYLOAD: &[u8; 20] = b"21.5 degrees, or so.";

/// The bytes of MQTT-SN that are needed, by section 5.4.
mod bytes {
    use super::PAYLOAD;

    pub(super) const PING: &[u8] = &[2, 0x16];
    pub(super) const PONG: &[u8] = &[2, 0x17];
    pub(super) const CONNACK: &[u8] = &[3, 5, 0];

    /// A clean session, without a keep-alive that would matter.
    pub(super) fn connect(client_id: &str) -> Vec<u8> {
        [&[client_id.len() as u8 + 6, 4, 4, 1, 2, 0][..], client_id.as_bytes()].concat()
    }

    /// To the short topic "tt".
    pub(super) fn publish(qos: u8, number: u16) -> Vec<u8> {
        let number = number.to_be_bytes();
        [&[PAYLOAD.len() as u8 + 7, 0x0c, qos << 5 | 2, b't', b't', number[0], number[1]][..], PAYLOAD].concat()
    }

    pub(super) fn puback(number: u16, code: u8) -> [u8; 7] {
        let number = number.to_be_bytes();
        [7, 0x0d, b't', b't', number[0], number[1], code]
    }
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tongue {
    Sn,
    Mqtt,
}

/// What a client has seen.
#[derive(Clone, Copy, Debug, Default)]
struct SnTally {
    sent: u64,
    refused: u64,
    unanswered: u64,
}

/// Measures and reports.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let time = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let (mut text, mut rows) = (String::new(), Vec::new());
    for qos in [0, 1] {
        for tongue in [Tongue::Sn, Tongue::Mqtt] {
            if stop.is_wanted() {
                bail!("interrupted");
            }
            // In memory alone, as nothing of these clients lasts.
            let broker = start_doors(&["--sn"], &["store.keep=false"])?;
            rows.push(measure(&broker, tongue, qos, time, &mut text)?);
        }
    }
    print_or_write(&text, &json!({ "sn": rows }), args.json.as_deref())?;
    Ok(0)
}

fn measure(broker: &RunningBroker, tongue: Tongue, qos: u8, time: Duration, text: &mut String) -> Result<Value> {
    let pid = broker.pid.context("its process")?;
    let (name, at) = match tongue {
        Tongue::Sn => ("mqtt-sn", broker.sn.context("our broker says nothing of MQTT-SN")?),
        Tongue::Mqtt => ("mqtt", broker.address),
    };
    let clients: Result<Vec<Speaker>> = (0..CLIENTS).map(|number| Speaker::open(tongue, at, number)).collect();
    let mut clients = clients?;
    drive_all(&mut clients, qos, time / 10)?;
    let (before, begun) = (procfs::cpu_ns(pid), Instant::now());
    let SnTally { sent, refused, unanswered } = drive_all(&mut clients, qos, time)?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = before.zip(procfs::cpu_ns(pid)).map(|(before, after)| after.saturating_sub(before) as f64);
    let (rate, cpu_us) = (sent as f64 / seconds, cpu.map(|ns| ns / 1000.0 / sent.max(1) as f64));
    let cost = cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
    let _ = writeln!(
        text,
        "{name:<8} QoS {qos} {rate:>8.0} messages/s, {cost} µs of CPU each; {refused} refused, {unanswered} unanswered"
    );
    Ok(json!({
        "protocol": name, "qos": qos, "per_s": rate, "cpu_us": cpu_us, "sent": sent, "refused": refused,
        "unanswered": unanswered,
    }))
}

fn drive_all(clients: &mut [Speaker], qos: u8, time: Duration) -> Result<SnTally> {
    let end = Instant::now() + time;
    let tallies: Result<Vec<SnTally>> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|client| scope.spawn(move || client.drive(qos, end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a client ended"))).collect()
    });
    Ok(tallies?.into_iter().fold(SnTally::default(), |all, one| SnTally {
        sent: all.sent + one.sent,
        refused: all.refused + one.refused,
        unanswered: all.unanswered + one.unanswered,
    }))
}

/// A client that is connected.
#[derive(Debug)]
enum Speaker {
    Sn(UdpSocket),
    Mqtt(TcpStream),
}

impl Speaker {
    fn open(tongue: Tongue, at: SocketAddr, number: usize) -> Result<Self> {
        let id = format!("bench-{}-{number}", std::process::id());
        if tongue == Tongue::Sn {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(at)?;
            socket.set_read_timeout(Some(ANSWER_MAX))?;
            socket.send(&bytes::connect(&id))?;
            let mut answer = [0; 64];
            let length = socket.recv(&mut answer).context("no CONNACK of MQTT-SN")?;
            if &answer[..length] != bytes::CONNACK {
                bail!("MQTT-SN: not let in: {:?}", &answer[..length]);
            }
            return Ok(Self::Sn(socket));
        }
        let mut stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let connect = Connect {
            version: Version::V311,
            is_bridge: false,
            clean_start: true,
            keep_alive: 0,
            properties: Properties::EMPTY,
            client_id: &id,
            will: None,
            user_name: None,
            password: None,
        };
        stream.write_all(&encoded(&Packet::Connect(connect)))?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).context("no CONNACK")?;
        if answer != [0x20, 2, 0, 0] {
            bail!("MQTT: not let in: {answer:?}");
        }
        Ok(Self::Mqtt(stream))
    }

    fn drive(&mut self, qos: u8, end: Instant) -> Result<SnTally> {
        let mut tally = SnTally::default();
        for number in (1..=u16::MAX).cycle() {
            if Instant::now() >= end {
                break;
            }
            match (&mut *self, qos) {
                (Self::Sn(socket), 0) => {
                    for _ in 0..BATCH {
                        socket.send(&bytes::publish(0, 0))?;
                    }
                    socket.send(bytes::PING)?;
                    tally.sent += u64::from(BATCH);
                    // At QoS 0 a refusal is an answer, too.
                    tally.refused += hear_datagrams(socket, &mut tally.unanswered, |heard| heard == bytes::PONG);
                }
                (Self::Sn(socket), _) => {
                    socket.send(&bytes::publish(1, number))?;
                    tally.sent += 1;
                    let (taken, refused) = (bytes::puback(number, 0), bytes::puback(number, 1));
                    let mut is_refused = false;
                    hear_datagrams(socket, &mut tally.unanswered, |heard| {
                        is_refused |= heard == refused;
                        heard == taken || is_refused
                    });
                    tally.refused += u64::from(is_refused);
                }
                (Self::Mqtt(stream), 0) => {
                    let one = encoded(&Packet::Publish(publish(Delivery::AtMostOnce)));
                    let mut all = one.repeat(BATCH as usize);
                    all.extend(encoded(&Packet::PingReq));
                    stream.write_all(&all)?;
                    stream.read_exact(&mut [0; 2]).context("no PINGRESP")?;
                    tally.sent += u64::from(BATCH);
                }
                (Self::Mqtt(stream), _) => {
                    let Some(packet_id) = PacketId::new(number) else { continue };
                    let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
                    stream.write_all(&encoded(&Packet::Publish(publish(delivery))))?;
                    stream.read_exact(&mut [0; 4]).context("no PUBACK")?;
                    tally.sent += 1;
                }
            }
        }
        Ok(tally)
    }
}

fn publish(delivery: Delivery) -> Publish<'static> {
    Publish { delivery, retain: false, topic: "tt", properties: Properties::EMPTY, payload: PAYLOAD }
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = packet.encode(Peer::new(Version::V311), &mut bytes);
    bytes
}

/// Hears until this is it, or counts that it did not come. The answer is how many other datagrams came.
fn hear_datagrams(socket: &UdpSocket, unanswered: &mut u64, mut is_it: impl FnMut(&[u8]) -> bool) -> u64 {
    let (mut buffer, mut others) = ([0; 256], 0);
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) if is_it(&buffer[..length]) => return others,
            Ok(_) => others += 1,
            Err(_) => {
                *unanswered += 1;
                return others;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_the_specification_has_them() {
        assert_eq!(bytes::connect("ab"), b"\x08\x04\x04\x01\x02\x00ab");
        assert_eq!(bytes::publish(1, 0x0102), b"\x1b\x0c\x22tt\x01\x0221.5 degrees, or so.");
        assert_eq!(bytes::puback(7, 1), *b"\x07\x0dtt\x00\x07\x01");
    }
}
