//! The physical limit: a process that copies bytes from one connection to another, one read and one write at a time.
//! No broker on the same sockets can be cheaper without batching, so its figure says how far there is to go.
//!
//! Connections belong together by the order of their arrival: first the one that is written to, then the one that is
//! read. Ends with its standard input, that is, with whoever started it.

use std::io::{ErrorKind, Read, Write};

use anyhow::Result;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// The largest number of connections; a case has a hundred.
const CONNECTIONS_MAX: usize = 1024;
const LISTENER: Token = Token(usize::MAX);

/// Copies until standard input ends.
pub(super) fn run() -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(0);
    });
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    println!("relay {}", listener.local_addr()?);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(CONNECTIONS_MAX);
    let mut relay = Relay { sockets: Vec::new(), waiting: Vec::new(), buffer: vec![0; 64 * 1024] };
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        for event in &events {
            if event.token() == LISTENER {
                relay.accept(&listener, &poll)?;
            } else {
                // Reader and writer have neighbouring places; whichever is ready, the pair may go on.
                relay.copy(event.token().0 / 2 * 2);
            }
        }
    }
}

struct Relay {
    sockets: Vec<TcpStream>,
    /// Per pair: what was read and not yet written. While there is something, nothing more is read.
    waiting: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Relay {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> Result<()> {
        while self.sockets.len() < CONNECTIONS_MAX {
            let mut socket = match listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            socket.set_nodelay(true)?;
            let token = Token(self.sockets.len());
            poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
            self.sockets.push(socket);
            self.waiting.push(Vec::new());
        }
        Ok(())
    }

    /// Copies what is there. Errors need no answer: the generator sees that bytes are missing.
    fn copy(&mut self, to: usize) {
        let (Some(waiting), Some([writer, reader])) = (self.waiting.get_mut(to), self.sockets.get_mut(to..to + 2))
        else {
            return;
        };
        loop {
            if !waiting.is_empty() {
                let Ok(count) = writer.write(waiting) else { return };
                waiting.drain(..count);
                continue;
            }
            let Ok(count @ 1..) = reader.read(&mut self.buffer) else { return };
            let written = writer.write(&self.buffer[..count]).unwrap_or(0);
            waiting.extend_from_slice(&self.buffer[written..count]);
            if written == count && count < self.buffer.len() {
                return;
            }
        }
    }
}
