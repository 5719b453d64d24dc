//! Dashboards as the broker sees them: connections that read events.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Those who left are noticed at the next look, which is once a second.
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// Sends a request; the answer ends with the connection.
pub(super) fn request(door: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(door)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {door}\r\nConnection: close\r\n\r\n")?;
    Ok(stream)
}

/// A page that is open until this is dropped.
pub(super) struct OpenPage {
    stream: TcpStream,
    reading: Option<JoinHandle<()>>,
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        // For both of its ends.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
    }
}

/// Pages that listen and read what they are told.
pub(super) fn open(door: SocketAddr, count: usize) -> Result<Vec<OpenPage>> {
    let mut pages = Vec::new();
    for number in 0..count {
        let stream = request(door, "/api/v1/events")?;
        let (mut reader, mut first) = (BufReader::new(stream.try_clone()?), String::new());
        reader.read_line(&mut first)?;
        if !first.contains(" 200 ") {
            bail!("page {} is not fed: {}", number + 1, first.trim());
        }
        let read = move || drop(std::io::copy(&mut reader, &mut std::io::sink()));
        let reading = std::thread::Builder::new().stack_size(64 * 1024).spawn(read)?;
        pages.push(OpenPage { stream, reading: Some(reading) });
    }
    Ok(pages)
}

/// Waits until the broker feeds nobody.
pub(super) fn await_none(door: SocketAddr) -> Result<()> {
    let end = Instant::now() + LEAVE_MAX;
    while Instant::now() < end {
        let metrics = BufReader::new(request(door, "/metrics")?);
        let lines = metrics.lines().map_while(Result::ok);
        let count = lines.filter_map(|line| line.strip_prefix("tidegate_dashboards ")?.parse::<u64>().ok());
        if count.last().context("no count of dashboards")? == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the broker still feeds pages that are gone")
}
