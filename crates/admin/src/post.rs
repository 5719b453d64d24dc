//! One JSON document to a server by HTTP, in a bounded time, from a thread of its own: metrics for a collector (`otlp`), alarms
//! for whoever wants to be called (`webhook`).
//!
//! Plain HTTP: TLS and credentials are what a collector or a relay on this machine or in this network is for. Knows nothing
//! of what is sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::limits::ANSWER_BYTES_MAX;
use crate::status::VERSION;

/// Where something is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// Name and port.
    host: String,
    path: String,
}

impl HttpTarget {
    /// `http://HOST[:PORT][/PATH]`, with the port and the path that are meant if none is said. None if it is anything else.
    pub(crate) fn parse(url: &str, usual_port: u16, usual_path: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"@?#".contains(&byte));
        // Behind the brackets of an address of IPv6, if it is one.
        let name_end = host.rfind(']').map_or(0, |at| at + 1);
        let has_port = match host[name_end..].split_once(':') {
            Some((_, port)) => port.parse::<u16>().ok().map(|_| true)?,
            None => false,
        };
        if host.is_empty() || host.starts_with(':') || !is_plain(host) || !is_plain(path) {
            return None;
        }
        let host = if has_port { host.to_owned() } else { format!("{host}:{usual_port}") };
        let path = if matches!(path, "" | "/") { usual_path } else { path };
        Some(Self { host, path: path.to_owned() })
    }

    /// Name and port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// One request; an answer other than success is an error. All of it ends in time, but for the search for the address.
    pub(crate) fn send(&self, body: &[u8], timeout: Duration) -> io::Result<()> {
        let addresses = self.host.to_socket_addrs()?;
        let deadline = Instant::now() + timeout;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no such address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => return self.talk(stream, body, deadline),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn talk(&self, mut stream: TcpStream, body: &[u8], deadline: Instant) -> io::Result<()> {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tidegate/{VERSION}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        let mut rest = &*request;
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(deadline)?))?;
            match in_time(stream.write(rest))? {
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = rest.get(written.unwrap_or(0)..).unwrap_or_default(),
            }
        }
        let line = first_line(&mut stream, deadline)?;
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
        match status {
            Some(200..=299) => Ok(()),
            Some(status) => Err(io::Error::other(format!("it answers {status}"))),
            None => Err(io::Error::other("this is no HTTP")),
        }
    }
}

/// The first line is enough; who keeps the connection open after it is not waited for.
fn first_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
    while !answer.contains(&b'\n') && answer.len() < ANSWER_BYTES_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match in_time(stream.read(&mut buffer))? {
            Some(0) => break,
            len => answer.extend_from_slice(buffer.get(..len.unwrap_or(0)).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

/// What is left of the time; an error if nothing is.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    let is_over = || io::Error::new(io::ErrorKind::TimedOut, "it takes too long");
    (!left.is_zero()).then_some(left).ok_or_else(is_over)
}

/// None if it was interrupted, or the time is over, which the next look at the clock tells.
fn in_time(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        result => result.map(Some),
    }
}

/// A thread that ends when it is told to, or is left behind.
#[derive(Debug)]
pub(crate) struct PostThread {
    stop: mpsc::SyncSender<()>,
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl PostThread {
    pub(crate) fn start(name: &str, run: impl FnOnce(&mpsc::Receiver<()>) + Send + 'static) -> io::Result<Self> {
        let ((stop, stopped), (end, ended)) = (mpsc::sync_channel(0), mpsc::sync_channel(0));
        let run = move || {
            let _end = end;
            run(&stopped);
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop, ended, thread })
    }

    /// True if it has ended in time.
    pub(crate) fn end(self, timeout: Duration) -> bool {
        drop(self.stop);
        let has_ended = self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
        has_ended && self.thread.join().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that does this with a connection.
    fn collector(talk: impl FnOnce(TcpStream) + Send + 'static) -> (HttpTarget, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = HttpTarget::parse(&format!("http://{}", listener.local_addr().unwrap()), 80, "/").unwrap();
        (collector, thread::spawn(move || talk(listener.accept().unwrap().0)))
    }

    #[test]
    fn a_server_that_keeps_the_connection_open_has_answered() {
        let (collector, thread) = collector(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").unwrap();
            // Until the other side is gone.
            let mut sink = Vec::new();
            let _ = stream.read_to_end(&mut sink);
        });
        collector.send(b"{}", Duration::from_secs(60)).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn a_server_that_drips_or_is_silent_comes_to_an_end() {
        let timeout = Duration::from_millis(50);
        let (silent, thread) = collector(|mut stream| {
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(silent.send(b"{}", timeout).unwrap_err().kind(), io::ErrorKind::TimedOut);
        thread.join().unwrap();
        let (dripping, thread) = collector(|mut stream| {
            while stream.write_all(b"H").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(dripping.send(b"{}", timeout).unwrap_err().kind(), io::ErrorKind::TimedOut);
        thread.join().unwrap();
        // It does not take what it is sent, either.
        let (release, hold) = mpsc::channel::<()>();
        let (full, thread) = collector(move |_stream| {
            let _ = hold.recv();
        });
        assert_eq!(full.send(&vec![b' '; 64 << 20], timeout).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(release);
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_does_not_end_is_left_behind() {
        let ends = PostThread::start("post", |stopped| assert!(stopped.recv().is_err())).unwrap();
        assert!(ends.end(Duration::from_secs(60)));
        let (release, hang) = mpsc::channel::<()>();
        let hangs = PostThread::start("post", move |_| assert!(hang.recv().is_err())).unwrap();
        assert!(!hangs.end(Duration::from_millis(10)));
        drop(release);
    }
}
