//! What a long queue costs: `long_queue [MESSAGES] [PAYLOAD_BYTES] [FOLDER]`, a million of 100 bytes in a temporary folder
//! if nothing is said. A broker in a process of its own keeps them for a client that is away, is killed, starts again, and
//! hands them out. Times and resident memory are printed; the order is checked.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_broker::store_link::StoreConfig;
use tidegate_core::access::Open;
use tidegate_core::settings::Settings;
use tidegate_store::Durability;
use tidegate_wire_mqtt::{
    Ack, AckKind, Connect, Decoded, Delivery, Encode, Limits, Packet, PacketId, Peer, Properties, Publish, QoS, Sender,
    Subscribe, Subscription, SubscriptionList, SubscriptionOptions, TopicFilter, Version, decode,
};

const VERSION: Version = Version::V311;
/// Messages that the publisher has under way.
const WINDOW: u32 = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, dir] = &arguments[..]
        && word == "serve"
    {
        return serve(Path::new(dir));
    }
    let number = |index: usize, usual| arguments.get(index).map_or(Ok(usual), |text| text.parse::<usize>());
    let (count, bytes) = (u32::try_from(number(0, 1_000_000)?)?, number(1, 100)?);
    let folder = tempfile::tempdir_in(arguments.get(2).map_or_else(std::env::temp_dir, Into::into))?;
    measure(folder.path(), count, bytes)
}

/// The broker, until it is killed; it says its address.
fn serve(dir: &Path) -> Result<(), Box<dyn Error>> {
    let listeners = vec![Listener::new(ListenerKind::Mqtt, SocketAddr::from(([127, 0, 0, 1], 0)))];
    let settings = Settings { queue_messages_max: usize::MAX, queue_bytes_max: usize::MAX, ..Settings::default() };
    let store =
        Some(StoreConfig { dir: dir.to_owned(), durability: Durability::Always, strict: false, size_max: None });
    let config = Config { listeners, shards: 1, settings, store, ..Config::default() };
    let broker = Broker::start(config, Arc::new(Anonymous), Arc::new(Open))?;
    let address = broker.addresses().first().map(|(_, address)| *address).ok_or("no door")?;
    println!("{address}");
    io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

fn measure(dir: &Path, count: u32, bytes: usize) -> Result<(), Box<dyn Error>> {
    let (mut broker, address) = start(dir)?;
    let (mut reader, _) = Client::connect(address, "reader")?;
    reader.subscribe("t")?;
    drop(reader);
    println!("empty:        {}", memory(&broker)?);
    let (begun, before) = (Instant::now(), memory(&broker)?.resident);
    Client::connect(address, "sender")?.0.publish(count, bytes)?;
    let took = begun.elapsed();
    let now = memory(&broker)?;
    let each = (now.resident.saturating_sub(before) * 1024) as f64 / f64::from(count);
    println!("queued:       {now}; {each:.0} B each; {count} messages of {bytes} B in {took:.2?}");
    broker.kill()?;
    broker.wait()?;

    let begun = Instant::now();
    let (mut broker, address) = start(dir)?;
    let (mut reader, present) = Client::connect(address, "reader")?;
    println!("started:      {}; CONNACK after {:.2?}, session present: {present}", memory(&broker)?, begun.elapsed());
    let begun = Instant::now();
    reader.read_all(count)?;
    println!("handed out:   {}; in order, in {:.2?}", memory(&broker)?, begun.elapsed());
    broker.kill()?;
    broker.wait()?;
    Ok(())
}

fn start(dir: &Path) -> Result<(Child, SocketAddr), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut broker = command.arg("serve").arg(dir).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(broker.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    Ok((broker, line.trim().parse()?))
}

struct Memory {
    resident: u64,
    peak: u64,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB resident, {} MiB at most", self.resident / 1024, self.peak / 1024)
    }
}

fn memory(broker: &Child) -> Result<Memory, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", broker.id()))?;
    let find = |name: &str| -> Result<u64, Box<dyn Error>> {
        let line = text.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
        Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
    };
    Ok(Memory { resident: find("VmRSS:")?, peak: find("VmHWM:")? })
}

struct Client {
    socket: TcpStream,
    input: Vec<u8>,
    used: usize,
}

impl Client {
    /// With a session that lasts; whether there was one.
    fn connect(address: SocketAddr, client_id: &str) -> Result<(Self, bool), Box<dyn Error>> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut client = Self { socket, input: Vec::new(), used: 0 };
        client.send(&Connect {
            version: VERSION,
            is_bridge: false,
            clean_start: false,
            keep_alive: 0,
            properties: Properties::EMPTY,
            client_id,
            will: None,
            user_name: None,
            password: None,
        })?;
        let present = client.next(|packet| match packet {
            Packet::ConnAck(packet) => Some(packet.session_present),
            _ => None,
        })?;
        Ok((client, present.ok_or("no CONNACK")?))
    }

    fn send(&mut self, packet: &impl Encode) -> io::Result<()> {
        let mut bytes = Vec::new();
        let _ = packet.encode(Peer::new(VERSION), &mut bytes);
        self.socket.write_all(&bytes)
    }

    /// The next packet.
    fn next<T>(&mut self, look: impl FnOnce(&Packet<'_>) -> T) -> Result<T, Box<dyn Error>> {
        let limits = Limits::default().with_sender(Sender::Server);
        loop {
            if let Decoded::Packet { packet, consumed } = decode(&self.input[self.used..], VERSION, &limits)? {
                self.used += consumed;
                return Ok(look(&packet));
            }
            self.input.drain(..std::mem::take(&mut self.used));
            let mut more = [0; 16_384];
            match self.socket.read(&mut more)? {
                0 => return Err("the broker has closed the connection".into()),
                len => self.input.extend_from_slice(&more[..len]),
            }
        }
    }

    fn subscribe(&mut self, filter: &str) -> Result<(), Box<dyn Error>> {
        let filter = TopicFilter::parse(filter, &Limits::default())?;
        let list = [Subscription { filter, options: SubscriptionOptions::with_qos(QoS::AtLeastOnce) }];
        let (packet_id, properties) = (PacketId::MIN, Properties::EMPTY);
        self.send(&Subscribe { packet_id, properties, subscriptions: SubscriptionList::new(&list) })?;
        self.next(|_| ())
    }

    fn publish(&mut self, count: u32, bytes: usize) -> Result<(), Box<dyn Error>> {
        let mut acknowledged = 0;
        let mut out = Vec::new();
        for number in 0..count {
            let payload = format!("{number:<bytes$}");
            let packet_id = PacketId::new((number % 60_000) as u16 + 1).ok_or("zero")?;
            let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
            let (properties, payload) = (Properties::EMPTY, payload.as_bytes());
            let packet = Publish { delivery, retain: false, topic: "t", properties, payload };
            let _ = packet.encode(Peer::new(VERSION), &mut out);
            if (number + 1) % (WINDOW / 2) == 0 || number + 1 == count {
                self.socket.write_all(&std::mem::take(&mut out))?;
                while number + 1 - acknowledged > if number + 1 == count { 0 } else { WINDOW / 2 } {
                    self.next(|_| ())?;
                    acknowledged += 1;
                }
            }
        }
        Ok(())
    }

    fn read_all(&mut self, count: u32) -> Result<(), Box<dyn Error>> {
        for expected in 0..count {
            let (number, packet_id) = self.next(|packet| match packet {
                Packet::Publish(packet) => {
                    let text = String::from_utf8_lossy(packet.payload);
                    (text.trim().parse::<u32>().ok(), packet.delivery.packet_id())
                }
                _ => (None, None),
            })?;
            if number != Some(expected) {
                return Err(format!("{number:?} instead of {expected}").into());
            }
            self.send(&Ack::success(AckKind::PubAck, packet_id.ok_or("no identifier")?))?;
        }
        Ok(())
    }
}
