//! One client of the smart space over HTTP: it asks, waits for the answer, and asks again.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidegate_program::Stop;
use tidegate_sim::zoo::model::Phases;
use tidegate_sim::zoo::space::{self, AskerTask, Askers};

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
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Http {
    pub(super) fn connect(at: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(at).context("the door of HTTP is closed")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { at, stream, buffer: Vec::new() })
    }

    /// The status of the answer, which is read to its end.
    pub(super) fn post(&mut self, path: &str, kind: &str, body: &str) -> Result<u16> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.at,
            body.len()
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body.as_bytes())?;
        self.buffer.clear();
        loop {
            if let Some((status, length)) = whole(&self.buffer)
                && self.buffer.len() >= length
            {
                return Ok(status);
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
        let status = self.post("/store?default", "application/n-triples", &text)?;
        if status >= 300 {
            bail!("the load was answered with {status}");
        }
        Ok(())
    }
}

/// Status and length of the answer, if its head is complete.
fn whole(bytes: &[u8]) -> Option<(u16, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some((status, end + length.unwrap_or_default()))
}

/// Asks from the beginning to the end, or while the trouble lasts.
pub(super) fn ask(
    at: SocketAddr,
    askers: &Askers,
    number: usize,
    begun: Instant,
    phases: Phases,
    stop: &Stop,
) -> Result<Vec<TimedRequest>> {
    let (first, last) = if askers.is_trouble { (phases.lead, phases.trouble_end()) } else { (0.0, phases.end()) };
    let end = begun + Duration::from_secs_f64(last);
    let mut due = begun + Duration::from_secs_f64(first);
    let (mut http, mut asked, mut count) = (Http::connect(at)?, Vec::new(), 0_u64);
    thread::sleep(due.saturating_duration_since(Instant::now()));
    while due < end && !stop.is_wanted() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        count += 1;
        let (path, kind, text) = request(askers.what, number, count);
        let answer = http.post(path, kind, &text);
        let now = Instant::now();
        let nanos = |at: Instant| u64::try_from(at.saturating_duration_since(begun).as_nanos()).unwrap_or(u64::MAX);
        let is_answered = matches!(answer, Ok(status) if status < 300);
        asked.push(TimedRequest { due_ns: nanos(due), done_ns: is_answered.then(|| nanos(now)) });
        if answer.is_err() {
            http = Http::connect(at)?;
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

fn request(what: AskerTask, number: usize, count: u64) -> (&'static str, &'static str, String) {
    const UPDATE: (&str, &str) = ("/update", "application/sparql-update");
    let (path, kind) =
        if matches!(what, AskerTask::Query(_)) { ("/query", "application/sparql-query") } else { UPDATE };
    (path, kind, what.text(number, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_length_has_come() {
        assert_eq!(whole(b"HTTP/1.1 200 OK\r\ncontent-le"), None);
        assert_eq!(whole(b"HTTP/1.1 503 Busy\r\nContent-Length: 7\r\n\r\nab"), Some((503, 47)));
        assert_eq!(whole(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 27)));
    }
}
