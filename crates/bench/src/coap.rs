//! `tidegate bench coap`: what a confirmable PUT costs, beside libcoap's coap-server and aiocoap's where they are installed, and what an
//! observer costs that has nothing to hear.
//!
//! A server of CoAP keeps a state and answers; ours is a broker, which does that and looks who wants to know. All get the same requests, one at a
//! time from each of some sockets, so that what is counted was answered.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tidegate_program::Stop;

use crate::arguments::BenchArgs;
use crate::json::print_or_write;
use crate::process::{RunningBroker, free_port, start_coap, start_unheard};
use crate::procfs;

/// Sockets that ask, each for itself.
const ASKERS: usize = 8;
/// How long a server may take for an answer before its asker goes on.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// How often a server that has just been started is tried, and with which pause: ten seconds, and more if it is silent.
const TRIES: u16 = 100;
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Seconds that each server is measured if nothing is said.
const SECS: f64 = 3.0;
/// Observers at scale 1, and at one address.
const OBSERVERS: f64 = 10_000.0;
const ADDRESS_OBSERVERS: usize = 500;
/// Observers that are there before memory is looked at for the first time: tables and buffers have grown by then.
const FIRST: usize = 500;
/// Bytes that are the goal.
const GOAL: f64 = 500.0;
/// aiocoap's own way to have one resource.
const AIOCOAP: &str = "\
import asyncio, sys
import aiocoap, aiocoap.resource as resource
class State(resource.Resource):
    content = b''
    async def render_put(self, request):
        self.content = request.payload
        return aiocoap.Message(code=aiocoap.CHANGED)
async def main():
    site = resource.Site()
    site.add_resource(['bench'], State())
    await aiocoap.Context.create_server_context(site, bind=('127.0.0.1', int(sys.argv[1])))
    await asyncio.get_running_loop().create_future()
asyncio.run(main())
";

/// Measures and reports.
pub(super) fn run(args: &BenchArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let time = Duration::from_secs_f64(args.secs.unwrap_or(SECS));
    let (mut text, mut rows) = (String::new(), Vec::new());
    let own = start_coap()?;
    let at = own.coap.context("our broker says nothing of CoAP")?;
    rows.push(measure("tidegate", &own, (at, &["ps", "bench"]), time, &mut text)?);
    drop(own);
    for peer in [libcoap()?, aiocoap()?] {
        match peer {
            Ok((name, server)) => {
                rows.push(measure(name, &server, (server.address, &["bench"]), time, &mut text)?);
            }
            Err(missing) => {
                let _ = writeln!(text, "{missing}");
            }
        }
        if stop.is_wanted() {
            bail!("interrupted");
        }
    }
    let observers = ((OBSERVERS * args.scale) as usize).max(2 * FIRST);
    let bytes = idle(observers, &stop)?;
    let _ = writeln!(text, "observers: {observers} that hear nothing, {bytes:.0} B resident each; goal {GOAL:.0} B");
    let figures = json!({ "coap": rows, "observers": observers, "observer_bytes": bytes });
    print_or_write(&text, &figures, args.json.as_deref())?;
    Ok(0)
}

/// A server of others, or how to get it.
type Peer = std::result::Result<(&'static str, RunningBroker), &'static str>;

fn libcoap() -> Result<Peer> {
    let has = |name: &&str| Command::new(name).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let Some(program) = ["coap-server-notls", "coap-server"].into_iter().find(has) else {
        return Ok(Err("skipped: libcoap's coap-server is not on the PATH: apt-get install libcoap3-bin"));
    };
    let port = free_port()?;
    let mut command = Command::new(program);
    // Ten resources that a PUT may make.
    command.args(["-A", "127.0.0.1", "-p", &port.to_string(), "-d", "10"]);
    Ok(Ok(("libcoap", start_unheard(command, (Ipv4Addr::LOCALHOST, port).into())?)))
}

fn aiocoap() -> Result<Peer> {
    let look = Command::new("python3").args(["-c", "import aiocoap"]).stderr(Stdio::null()).status();
    if !look.is_ok_and(|status| status.success()) {
        return Ok(Err("skipped: Python's aiocoap is not there: pip install aiocoap"));
    }
    let port = free_port()?;
    let mut command = Command::new("python3");
    command.args(["-c", AIOCOAP, &port.to_string()]);
    Ok(Ok(("aiocoap", start_unheard(command, (Ipv4Addr::LOCALHOST, port).into())?)))
}

/// A confirmable request for a path; its number and token are put in later.
fn request(method: u8, observe: bool, path: &[&str], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x42, method, 0, 0, 0, 0];
    // Observe is option 6, Uri-Path is 11: each is told by its distance from the one before.
    let mut before = 0;
    if observe {
        bytes.push(0x60);
        before = 6;
    }
    for level in path {
        bytes.push((11 - before) << 4 | level.len() as u8);
        bytes.extend_from_slice(level.as_bytes());
        before = 11;
    }
    if !payload.is_empty() {
        bytes.push(0xff);
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// Asks once, and again if need be. The code of the answer; none if there was none.
fn ask(socket: &UdpSocket, request: &mut [u8], number: u16) -> Option<u8> {
    let digits = number.to_be_bytes();
    request[2..4].copy_from_slice(&digits);
    request[4..6].copy_from_slice(&digits);
    let mut answer = [0; 256];
    for _ in 0..4 {
        let _ = socket.send(request);
        while let Ok(length) = socket.recv(&mut answer) {
            if length >= 4 && answer[2..4] == digits {
                return Some(answer[1]);
            }
        }
    }
    None
}

fn open(from: (Ipv4Addr, u16), to: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(from).with_context(|| format!("{}:{}", from.0, from.1))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(socket)
}

/// What an asker has seen.
#[derive(Clone, Copy, Default)]
struct Asked {
    taken: u64,
    refused: u64,
    unanswered: u64,
}

fn ask_for(to: SocketAddr, path: &[&str], time: Duration) -> Result<Asked> {
    let (socket, mut asked) = (open((Ipv4Addr::LOCALHOST, 0), to)?, Asked::default());
    let (mut request, begun) = (request(3, false, path, b"21.5 degrees, or so"), Instant::now());
    for number in (1..=u16::MAX).cycle() {
        if begun.elapsed() >= time {
            break;
        }
        match ask(&socket, &mut request, number) {
            // 2.xx; 4.29 and 5.03 are words of a gate.
            Some(code) if code >> 5 == 2 => asked.taken += 1,
            Some(_) => asked.refused += 1,
            None => asked.unanswered += 1,
        }
    }
    Ok(asked)
}

fn measure(
    name: &str,
    server: &RunningBroker,
    (at, path): (SocketAddr, &[&str]),
    time: Duration,
    text: &mut String,
) -> Result<Value> {
    let pid = server.pid.context("its process")?;
    // It listens when it answers; a Python begins slowly.
    let socket = open((Ipv4Addr::LOCALHOST, 0), at)?;
    let answered = (1..=TRIES).any(|number| {
        let is_answered = ask(&socket, &mut request(3, false, path, b"first"), number).is_some();
        // While nobody listens there, the system says so at once.
        if !is_answered {
            std::thread::sleep(TRY_EVERY);
        }
        is_answered
    });
    if !answered {
        bail!("{name} does not answer at {at}");
    }
    let (before, begun) = (procfs::cpu_ns(pid), Instant::now());
    let asked: Result<Vec<Asked>> = std::thread::scope(|scope| {
        let asker = |_| scope.spawn(|| ask_for(at, path, time));
        let askers: Vec<_> = (0..ASKERS).map(asker).collect();
        askers.into_iter().map(|asker| asker.join().unwrap_or_else(|_| bail!("an asker ended"))).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = before.zip(procfs::cpu_ns(pid)).map(|(before, after)| (after - before) as f64);
    let all = asked?.into_iter().fold(Asked::default(), |all, one| Asked {
        taken: all.taken + one.taken,
        refused: all.refused + one.refused,
        unanswered: all.unanswered + one.unanswered,
    });
    let answered = (all.taken + all.refused).max(1) as f64;
    let cpu_us = cpu.map(|ns| ns / 1000.0 / answered);
    let cost = cpu_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
    let Asked { taken, refused, unanswered } = all;
    let _ = writeln!(
        text,
        "{name:<9} {:>8.0} PUT/s, {cost} µs of CPU each; {refused} refused, {unanswered} unanswered",
        answered / seconds
    );
    Ok(json!({
        "server": name, "per_s": answered / seconds, "cpu_us": cpu_us, "taken": taken, "refused": refused,
        "unanswered": unanswered,
    }))
}

/// Resident bytes of an observer that has nothing to hear. Its socket is closed: nobody will write to it.
fn idle(observers: usize, stop: &Stop) -> Result<f64> {
    let broker = start_coap()?;
    let (at, pid) = (broker.coap.context("CoAP")?, broker.pid.context("its process")?);
    let mut request = request(1, true, &["ps", "idle"], &[]);
    let mut begin = 0;
    for number in 0..observers {
        if number == FIRST {
            begin = procfs::usage(pid).context("memory cannot be read here")?.rss_kib;
        }
        if stop.is_wanted() {
            bail!("interrupted");
        }
        let host = Ipv4Addr::new(127, 1, 0, (number / ADDRESS_OBSERVERS) as u8 + 1);
        let port = 20_000 + (number % ADDRESS_OBSERVERS) as u16;
        if ask(&open((host, port), at)?, &mut request, 1).is_none_or(|code| code >> 5 != 2) {
            bail!("observer {number} was not taken");
        }
    }
    let end = procfs::usage(pid).context("memory cannot be read here")?.rss_kib;
    Ok((end.saturating_sub(begin) * 1024) as f64 / (observers - FIRST) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_the_rfc_has_them() {
        assert_eq!(request(3, false, &["ps", "a"], b"x"), b"\x42\x03\0\0\0\0\xb2ps\x01a\xffx");
        assert_eq!(request(1, true, &["ps"], &[]), b"\x42\x01\0\0\0\0\x60\x52ps");
    }
}
