//! What the operator's door costs: a scrape with many clients, and open dashboards beside traffic.
//!
//! `cargo run --release -p tidegate-admin --example dashboards [CLIENTS] [DASHBOARDS] [SECONDS]`
//!
//! A broker of this process with one shard, so many silent clients, one publisher and one subscriber. The traffic is
//! measured by turns without dashboards and with them; costs are CPU time of the threads concerned, from
//! `/proc`, so that a busy machine disturbs them less. Everything is on the loopback and ends by itself.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_admin::{Admin, Keeper, Reloaded, Steward};
use tidegate_broker::Broker;
use tidegate_broker::authenticate::Anonymous;
use tidegate_broker::config::{Config, Listener, ListenerKind};
use tidegate_core::access::Open;
use tidegate_core::settings::{BackOff, Settings};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pairs of runs.
const ROUNDS: usize = 7;

/// Messages that the publisher has under way, so that delivery is measured and not buffers.
const WINDOW: u64 = 200;

#[derive(Debug)]
struct Nobody;

impl Steward for Nobody {
    fn reload(&self) -> Result<Reloaded, Vec<String>> {
        Err(Vec::new())
    }

    fn drain(&self) {}

    fn backup(&self, _: &Path) -> Result<String, String> {
        Err(String::new())
    }

    fn keeper(&self) -> Option<Keeper> {
        None
    }

    fn unready(&self) -> Option<&'static str> {
        None
    }
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut next = |usual: usize| arguments.next().unwrap_or(Ok(usual));
    let (clients, dashboards, seconds) = (next(10_000)?, next(100)?.min(120), next(5)?.clamp(1, 60));
    let bind: SocketAddr = ([127, 0, 0, 1], 0).into();
    let listeners = vec![Listener { kind: ListenerKind::Mqtt, bind, tls: None }];
    // The publisher is a flooder if there ever was one: with the gate, the gate would be measured.
    let back_off = BackOff { rhythm: None, ..BackOff::default() };
    let settings = Settings { back_off, ..Settings::default() };
    let config = Config { listeners, shards: 1, settings, ..Config::default() };
    let broker = Broker::start(config, Arc::new(Anonymous), Arc::new(Open))?;
    let at = broker.addresses().first().map(|(_, at)| *at).ok_or("no address")?;
    let admin = Admin::start(bind, broker.handle(), Arc::new(Nobody))?;

    let idle: Vec<TcpStream> =
        (0..clients).map(|number| connect(at, &format!("idle-{number}"))).collect::<Outcome<_>>()?;
    println!("{} clients connected", broker.handle().stats().connections);
    scrape(admin.address())?;

    let time = Duration::from_secs(seconds as u64);
    quiet(admin.address(), dashboards, time)?;
    let (mut ratios, mut door) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let without = traffic(at, time)?;
        let pages = open(admin.address(), dashboards)?;
        let with = traffic(at, time)?;
        // Neighbours in time are compared: the machine is not the same all the time.
        ratios.push(with.shard_us / without.shard_us);
        door.push(with.door_share);
        drop(pages);
        // Those who left are noticed at the next look.
        std::thread::sleep(Duration::from_secs(2));
    }
    ratios.sort_by(f64::total_cmp);
    door.sort_by(f64::total_cmp);
    println!(
        "data plane: CPU of the shard for a message, with {dashboards} dashboards to without: median {:.3} ({:.3} to {:.3})",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1]
    );
    println!("the door's own thread: {:.1} % of one core with {dashboards} dashboards", door[ROUNDS / 2] * 100.0);
    drop(idle);
    Ok(())
}

/// MQTT 3.1.1 by hand: the few packets that are needed.
fn connect(at: SocketAddr, id: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    let length = u8::try_from(id.len())?;
    let mut packet = vec![0x10, 12 + length, 0, 4];
    packet.extend_from_slice(b"MQTT\x04\x02\0\0\0");
    packet.push(length);
    packet.extend_from_slice(id.as_bytes());
    stream.write_all(&packet)?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    if answer == [0x20, 2, 0, 0] { Ok(stream) } else { Err(format!("not let in: {answer:?}").into()) }
}

/// What one run came to.
struct Run {
    /// CPU microseconds of the shard for each message.
    shard_us: f64,
    /// The door's share of one core.
    door_share: f64,
}

/// One publisher, one subscriber, QoS 0, 64 bytes.
fn traffic(at: SocketAddr, time: Duration) -> Outcome<Run> {
    let mut reader = connect(at, "reader")?;
    reader.write_all(b"\x82\x06\0\x01\0\x01t\0")?;
    reader.read_exact(&mut [0; 5])?;
    let mut writer = connect(at, "writer")?;
    let mut message = vec![0x30, 67, 0, 1, b't'];
    message.extend_from_slice(&[b'x'; 64]);
    let (arrived, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (bytes, length) = (Arc::clone(&arrived), message.len() as u64);
    reader.set_read_timeout(Some(Duration::from_millis(100)))?;
    let over = Arc::clone(&is_over);
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while !over.load(Ordering::Relaxed) {
            if let Ok(count) = reader.read(&mut buffer) {
                bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    });
    let (began, shard, door) = (Instant::now(), cpu("shard")?, cpu("admin")?);
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
    let (shard, door) = (cpu("shard")? - shard, cpu("admin")? - door);
    let elapsed = began.elapsed().as_secs_f64();
    let messages = arrived.load(Ordering::Relaxed) / length;
    // A message that got lost keeps its place in the window for good: such a run says nothing.
    let end = Instant::now() + Duration::from_secs(10);
    while arrived.load(Ordering::Relaxed) / length < sent && Instant::now() < end {
        std::thread::yield_now();
    }
    let lost = sent - arrived.load(Ordering::Relaxed) / length;
    if lost > 0 {
        return Err(format!("{lost} of {sent} messages were lost").into());
    }
    is_over.store(true, Ordering::Relaxed);
    reading.join().map_err(|_| "the reader failed")?;
    println!("  {:.0} messages/s, shard {:.2} s of CPU, door {:.3} s", messages as f64 / elapsed, shard, door);
    Ok(Run { shard_us: shard * 1e6 / messages.max(1) as f64, door_share: door / elapsed })
}

/// CPU seconds of the threads whose names begin so.
fn cpu(name: &str) -> Outcome<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")?.flatten() {
        if std::fs::read_to_string(thread.path().join("comm"))?.starts_with(name) {
            // Nanoseconds on a processor come first.
            let text = std::fs::read_to_string(thread.path().join("schedstat"))?;
            sum += text.split(' ').next().unwrap_or_default().parse::<f64>()? / 1e9;
        }
    }
    Ok(sum)
}

fn request(at: SocketAddr, path: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    Ok(stream)
}

/// Pages that listen and read what they are told.
fn open(at: SocketAddr, count: usize) -> Outcome<Vec<Page>> {
    let mut pages = Vec::new();
    for _ in 0..count {
        let stream = request(at, "/api/v1/events")?;
        let (reader, mut first) = (stream.try_clone()?, String::new());
        let mut reader = BufReader::new(reader);
        reader.read_line(&mut first)?;
        if !first.contains(" 200 ") {
            return Err(format!("not fed: {first}").into());
        }
        std::thread::Builder::new()
            .stack_size(64 * 1024)
            .spawn(move || std::io::copy(&mut reader, &mut std::io::sink()))?;
        pages.push(Page(stream));
    }
    Ok(pages)
}

/// A page that is open; closed for both of its ends when it is dropped.
struct Page(TcpStream);

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The same without traffic: what dashboards alone make a shard do, as a share of one core.
fn quiet(door: SocketAddr, dashboards: usize, time: Duration) -> Outcome<()> {
    let share = || -> Outcome<f64> {
        let (began, before) = (Instant::now(), cpu("shard")?);
        std::thread::sleep(time);
        Ok((cpu("shard")? - before) / began.elapsed().as_secs_f64() * 100.0)
    };
    let without = share()?;
    let pages = open(door, dashboards)?;
    let with = share()?;
    drop(pages);
    println!("no traffic: the shard uses {without:.2} % of one core, and {with:.2} % with {dashboards} dashboards");
    Ok(())
}

fn scrape(at: SocketAddr) -> Outcome<()> {
    let (mut times, before) = (Vec::new(), cpu("admin")?);
    let mut bytes = 0;
    for _ in 0..200 {
        let began = Instant::now();
        let mut text = String::new();
        request(at, "/metrics")?.read_to_string(&mut text)?;
        times.push(began.elapsed());
        bytes = text.len();
    }
    let each = (cpu("admin")? - before) / 200.0;
    times.sort();
    println!(
        "scrape: {bytes} bytes, p50 {:.2} ms, p99 {:.2} ms, {:.2} ms of CPU",
        times[100].as_secs_f64() * 1e3,
        times[198].as_secs_f64() * 1e3,
        each * 1e3
    );
    Ok(())
}
