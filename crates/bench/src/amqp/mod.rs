//! `tidegate bench amqp`: what a message over AMQP 1.0 costs in and out, beside RabbitMQ's plugin where it is installed.
//!
//! Some pairs of containers, each a thread of its own: one sends a few messages, and goes on when each of them has been answered
//! and has come out of the other. So what is counted was delivered, and nobody waits in a queue that nobody reads.

mod container;
mod rabbit;
mod wire;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;

use crate::arguments::BenchArgs;
use crate::json::print_or_write;
use crate::process::start_doors;
use crate::procfs;
use container::{Container, Heard};

/// Pairs of containers.
const PAIRS: usize = 8;
/// Messages that a sender sends at a time.
const BATCH: u32 = 32;
/// Seconds that each case is measured if nothing is said.
const SECS: f64 = 3.0;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AmqpCase {
    name: &'static str,
    /// Nobody waits for answers (QoS 0).
    is_settled: bool,
    /// Somebody listens.
    has_receiver: bool,
}

/// In alone, and in and out: the difference is what out costs.
const CASES: [AmqpCase; 3] = [
    AmqpCase { name: "in, unsettled", is_settled: false, has_receiver: false },
    AmqpCase { name: "in and out, settled", is_settled: true, has_receiver: true },
    AmqpCase { name: "in and out, unsettled", is_settled: false, has_receiver: true },
];

/// A server, and what an address of it looks like.
struct Server<'a> {
    name: &'a str,
    address: SocketAddr,
    pid: u32,
    prefix: &'a str,
}

/// What a pair has seen.
#[derive(Clone, Copy, Debug, Default)]
struct PairTally {
    sent: u64,
    refused: u64,
    lost: u64,
}

/// Measures and reports.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let time = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let (mut text, mut rows) = (String::new(), Vec::new());
    let own = start_doors(&["--amqp"], &["store.keep=false"])?;
    let address = own.amqp.context("our broker says nothing of AMQP")?;
    let server = Server { name: "tidegate", address, pid: own.pid.context("its process")?, prefix: "bench/" };
    measure_all(&server, time, &stop, &mut text, &mut rows)?;
    drop(own);
    let is_alone = args.peer.as_deref() == Some(Path::new("none"));
    match rabbit::find() {
        _ if is_alone => {}
        Some(script) => {
            let (broker, _names) = rabbit::start(&script, &stop)?;
            let pid = broker.pid.context("its process")?;
            let server = Server { name: "rabbitmq", address: broker.address, pid, prefix: "/topic/bench." };
            measure_all(&server, time, &stop, &mut text, &mut rows)?;
        }
        None => {
            let _ = writeln!(text, "{}", rabbit::GET_RABBITMQ);
        }
    }
    print_or_write(&text, &json!({ "amqp": rows }), args.json.as_deref())?;
    Ok(0)
}

fn measure_all(
    server: &Server<'_>,
    time: Duration,
    stop: &Stop,
    text: &mut String,
    rows: &mut Vec<Value>,
) -> Result<()> {
    for case in CASES {
        if stop.is_wanted() {
            bail!("interrupted");
        }
        let row = measure(server, case, time).with_context(|| format!("{}, {}", server.name, case.name))?;
        let _ = writeln!(text, "{}", row.0);
        rows.push(row.1);
    }
    Ok(())
}

fn measure(server: &Server<'_>, case: AmqpCase, time: Duration) -> Result<(String, Value)> {
    let pairs: Result<Vec<_>> = (0..PAIRS).map(|number| Pair::open(server, case, number)).collect();
    let mut pairs = pairs?;
    // Whoever is measured has grown its buffers by then.
    drive_all(&mut pairs, time / 10)?;
    let (before, begun) = (procfs::cpu_ns(server.pid), Instant::now());
    let tally = drive_all(&mut pairs, time)?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = before.zip(procfs::cpu_ns(server.pid)).map(|(before, after)| after.saturating_sub(before) as f64);
    let PairTally { sent, refused, lost } = tally;
    let cpu_us = cpu.map(|ns| ns / 1000.0 / sent.max(1) as f64);
    let cost = cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
    let (name, what, rate) = (server.name, case.name, sent as f64 / seconds);
    let line =
        format!("{name:<9} {what:<22} {rate:>8.0} messages/s, {cost} µs of CPU each; {refused} refused, {lost} lost");
    let row = json!({
        "server": name, "case": what, "per_s": rate, "cpu_us": cpu_us, "sent": sent, "refused": refused, "lost": lost,
    });
    Ok((line, row))
}

fn drive_all(pairs: &mut [Pair], time: Duration) -> Result<PairTally> {
    let end = Instant::now() + time;
    let tallies: Result<Vec<PairTally>> = std::thread::scope(|scope| {
        let threads: Vec<_> = pairs.iter_mut().map(|pair| scope.spawn(move || pair.drive(end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a pair ended"))).collect()
    });
    Ok(tallies?.into_iter().fold(PairTally::default(), |all, one| PairTally {
        sent: all.sent + one.sent,
        refused: all.refused + one.refused,
        lost: all.lost + one.lost,
    }))
}

/// A sender, and who hears it.
#[derive(Debug)]
struct Pair {
    sender: Container,
    receiver: Option<Container>,
    is_settled: bool,
}

impl Pair {
    fn open(server: &Server<'_>, case: AmqpCase, number: usize) -> Result<Self> {
        let address = format!("{}{number}", server.prefix);
        let id = format!("{}-{}-{number}", case.name.replace(", ", "-").replace(' ', "-"), std::process::id());
        let mut receiver = None;
        if case.has_receiver {
            let mut container = Container::open(server.address, &format!("out-{id}"))?;
            container.attach_receiver(&address, case.is_settled)?;
            receiver = Some(container);
        }
        let mut sender = Container::open(server.address, &format!("in-{id}"))?;
        sender.attach_sender(&address)?;
        Ok(Self { sender, receiver, is_settled: case.is_settled })
    }

    fn drive(&mut self, end: Instant) -> Result<PairTally> {
        let mut tally = PairTally::default();
        while Instant::now() < end {
            let sent = self.sender.send(BATCH, self.is_settled)?;
            tally.sent += u64::from(sent);
            let taken = if self.is_settled { sent } else { self.await_answers(sent)? };
            tally.refused += u64::from(sent - taken);
            tally.lost += u64::from(self.await_messages(taken)?);
        }
        Ok(tally)
    }

    /// How many of these were taken.
    fn await_answers(&mut self, sent: u32) -> Result<u32> {
        let (mut answered, mut taken) = (0, 0);
        while answered < sent {
            match self.sender.hear()? {
                Heard::Answers(count, of_these) => (answered, taken) = (answered + count, taken + of_these),
                Heard::Silence => bail!("{} of {sent} messages have no answer", sent - answered),
                Heard::Message(_) | Heard::Other => {}
            }
        }
        Ok(taken)
    }

    /// How many of these did not come out.
    fn await_messages(&mut self, sent: u32) -> Result<u32> {
        let Some(receiver) = &mut self.receiver else { return Ok(0) };
        let (mut came, mut open) = (0, None::<(u32, u32)>);
        while came < sent {
            match receiver.hear()? {
                Heard::Message(id) => {
                    came += 1;
                    open = id.map(|id| (open.map_or(id, |(first, _)| first), id)).or(open);
                }
                Heard::Silence => break,
                Heard::Answers(..) | Heard::Other => {}
            }
        }
        if let Some((first, last)) = open {
            receiver.accept(first, last)?;
        }
        Ok(sent - came)
    }
}
