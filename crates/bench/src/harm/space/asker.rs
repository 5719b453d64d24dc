//! One client of the smart space over HTTP, from an address of its own: it asks, waits for the answer, and asks again.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};
use tidegate_program::Stop;
use tidegate_sim::zoo::model::{Manners, Phases};
use tidegate_sim::zoo::space::{self, AskerNames, AskerTask, Askers};

/// The broker answers within 10 s, or says that it cannot.
const PATIENCE: Duration = Duration::from_secs(15);
/// Who is refused comes again after so long: at once, as clients do that know no hints.
const AGAIN: Duration = Duration::from_millis(2);
/// Bytes of an answer.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedRequest {
    pub(super) due_ns: u64,
    /// When it was answered; none if it was refused, or not answered.
    pub(super) done_ns: Option<u64>,
}

/// A connection that is kept.
pub(super) struct Http {
    at: SocketAddr,
    from: Ipv4Addr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) status: u16,
    /// When to come back.
    retry_after: Option<Duration>,
}

impl Http {
    pub(super) fn connect(at: SocketAddr) -> Result<Self> {
        Self::connect_from(Ipv4Addr::LOCALHOST, at)
    }

    /// The same from another address of this machine.
    fn connect_from(from: Ipv4Addr, at: SocketAddr) -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if from != Ipv4Addr::LOCALHOST {
            socket.bind(&SocketAddr::from((from, 0)).into())?;
        }
        socket.connect(&at.into()).context("the door of HTTP is closed")?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { at, from, stream, buffer: Vec::new() })
    }

    /// The answer, which is read to its end. `words` are lines of the head.
    pub(super) fn post(&mut self, path: &str, kind: &str, words: &str, body: &str) -> Result<Answered> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{words}\r\n",
            self.at,
            body.len()
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body.as_bytes())?;
        self.buffer.clear();
        loop {
            if let Some((answered, length)) = whole(&self.buffer)
                && self.buffer.len() >= length
            {
                return Ok(answered);
            }
            let mut part = [0; 16 * 1024];
            let count = self.stream.read(&mut part)?;
            if count == 0 || self.buffer.len() > ANSWER_MAX {
                bail!("the connection has ended");
            }
            self.buffer.extend_from_slice(&part[..count]);
        }
    }

    /// Loads so many triples, the first of which has this number.
    pub(super) fn load(&mut self, first: u32, count: u32) -> Result<()> {
        let mut text = String::new();
        for number in first..first + count {
            // Writing into a string cannot fail.
            let [s, p, o] = space::triple(number);
            let _ = writeln!(text, "<{s}> <{p}> <{o}> .");
        }
        let Answered { status, .. } = self.post("/store?default", "application/n-triples", "", &text)?;
        if status >= 300 {
            bail!("the load was answered with {status}");
        }
        Ok(())
    }
}

/// The answer and its length, if its head is complete.
fn whole(bytes: &[u8]) -> Option<(Answered, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let number = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    let retry_after = number("pace-retry-after-ms").map(Duration::from_millis);
    let length = number("content-length").and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    Some((Answered { status, retry_after }, end + length))
}

/// From where somebody asks: those who have a name of their own from an address of their own, others from that of their kind.
fn address(names: AskerNames, kind: usize, number: usize) -> Ipv4Addr {
    let part = |number: usize| u8::try_from(number % 250 + 1).unwrap_or(1);
    match names {
        AskerNames::Own => Ipv4Addr::new(127, 77, part(number / 250), part(number)),
        AskerNames::One | AskerNames::EachTime => Ipv4Addr::new(127, 78, 1, part(kind)),
    }
}

/// Asks from the beginning to the end, or while the trouble lasts. It is the asker of this number, of this kind.
pub(super) fn ask(
    at: SocketAddr,
    askers: &Askers,
    (kind_number, number): (usize, usize),
    begun: Instant,
    phases: Phases,
    stop: &Stop,
) -> Result<Vec<TimedRequest>> {
    let (first, last) = if askers.is_trouble { (phases.lead, phases.trouble_end()) } else { (0.0, phases.end()) };
    let end = begun + Duration::from_secs_f64(last);
    let mut due = begun + Duration::from_secs_f64(first);
    let from = address(askers.names, kind_number, number);
    let (mut http, mut asked, mut count) = (Http::connect_from(from, at)?, Vec::new(), 0_u64);
    thread::sleep(due.saturating_duration_since(Instant::now()));
    while due < end && !stop.is_wanted() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        count += 1;
        let (path, kind, text) = request(askers, number, count);
        let words = words(askers, number, count);
        let answer = loop {
            let answer = http.post(path, kind, &words, &text);
            // Who obeys comes back with the same when it was told to.
            let told = answer.as_ref().ok().and_then(|answered| answered.retry_after);
            match told.filter(|_| askers.manners == Manners::Obeys && Instant::now() < end) {
                Some(told) => thread::sleep(told),
                None => break answer,
            }
        };
        let now = Instant::now();
        let nanos = |at: Instant| u64::try_from(at.saturating_duration_since(begun).as_nanos()).unwrap_or(u64::MAX);
        let is_answered = matches!(answer, Ok(Answered { status, .. }) if status < 300);
        asked.push(TimedRequest { due_ns: nanos(due), done_ns: is_answered.then(|| nanos(now)) });
        if answer.is_err() {
            http = Http::connect_from(http.from, at)?;
        }
        due = match askers.per_s {
            // Due at its rate, whatever became of the last one.
            Some(rate) => due + Duration::from_secs_f64(1.0 / rate),
            None if is_answered => now,
            None => now + AGAIN,
        };
    }
    Ok(asked)
}

/// What is said about pace and names.
fn words(askers: &Askers, number: usize, count: u64) -> String {
    let patience = askers.patience_ms.map(|millis| format!("pace-deadline-ms: {millis}\r\n")).unwrap_or_default();
    let name = match askers.names {
        AskerNames::EachTime => format!("pace-client: zoo-{number}-{count}\r\n"),
        AskerNames::Own | AskerNames::One => String::new(),
    };
    patience + &name
}

fn request(askers: &Askers, number: usize, count: u64) -> (&'static str, &'static str, String) {
    const UPDATE: (&str, &str) = ("/update", "application/sparql-update");
    let (path, kind) =
        if matches!(askers.what, AskerTask::Query(_)) { ("/query", "application/sparql-query") } else { UPDATE };
    (path, kind, askers.text(number, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_length_has_come() {
        let answered =
            |status, millis: Option<u64>| Answered { status, retry_after: millis.map(Duration::from_millis) };
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\ncontent-le"), None);
        let busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 7\r\nPace-Retry-After-Ms: 40\r\n\r\nab";
        assert_eq!(whole(busy), Some((answered(503, Some(40)), busy.len() + 5)));
        assert_eq!(whole(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((answered(204, None), 27)));
    }

    #[test]
    fn who_has_a_name_of_its_own_has_an_address_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..600).map(|number| address(AskerNames::Own, 0, number)).collect();
        assert_eq!(all.len(), 600);
        assert_eq!(address(AskerNames::One, 2, 5), address(AskerNames::EachTime, 2, 6));
    }
}
