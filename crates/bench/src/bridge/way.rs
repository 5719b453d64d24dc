//! A way between two brokers that can be closed: an outage without anybody being killed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

#[derive(Debug, Default)]
struct WayState {
    is_closed: bool,
    streams: Vec<TcpStream>,
}

/// See the module. Ends with the program.
#[derive(Debug)]
pub(super) struct Way {
    port: u16,
    state: Arc<Mutex<WayState>>,
}

impl Way {
    pub(super) fn to(hub: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (port, state) = (listener.local_addr()?.port(), Arc::new(Mutex::new(WayState::default())));
        let own = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut state = own.lock().unwrap_or_else(PoisonError::into_inner);
                if state.is_closed {
                    continue;
                }
                let Ok(other) = TcpStream::connect(hub) else { continue };
                let _ = (stream.set_nodelay(true), other.set_nodelay(true));
                let clones = (stream.try_clone(), other.try_clone(), stream.try_clone(), other.try_clone());
                let (Ok(one), Ok(two), Ok(from), Ok(to)) = clones else { continue };
                state.streams.extend([one, two]);
                std::thread::spawn(move || pass(from, to));
                std::thread::spawn(move || pass(other, stream));
            }
        });
        Ok(Self { port, state })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_closed = false;
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
