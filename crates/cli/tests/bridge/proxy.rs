//! A way between two brokers that can be closed, cut, slow and moved: a port that stays while the broker behind it comes and goes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct ProxyState {
    target: Option<SocketAddr>,
    delay: Duration,
    /// None: as many as there are.
    bytes_per_s: Option<u32>,
    open: Vec<TcpStream>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<Mutex<ProxyState>>,
}

impl Proxy {
    /// Leads nowhere yet.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(Mutex::new(ProxyState::default()));
        let proxy = Self { port, state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (target, delay, rate) = {
                    let state = state.lock().expect("nobody panics here");
                    (state.target, state.delay, state.bytes_per_s)
                };
                // Nobody there: it is closed at once.
                let Some(other) = target.and_then(|target| TcpStream::connect(target).ok()) else { continue };
                let both = [stream.try_clone(), other.try_clone(), stream.try_clone(), other.try_clone()];
                let [Ok(read_here), Ok(write_there), Ok(kept), Ok(kept_there)] = both else { continue };
                state.lock().expect("nobody panics here").open.extend([kept, kept_there]);
                std::thread::spawn(move || pass(read_here, write_there, delay, rate));
                std::thread::spawn(move || pass(other, stream, delay, rate));
            }
        });
        proxy
    }

    /// Leads there from now on, with this delay each way.
    pub(crate) fn lead_to(&self, port: u16, delay: Duration) {
        let mut state = self.state.lock().expect("nobody panics here");
        (state.target, state.delay) = (Some(([127, 0, 0, 1], port).into()), delay);
    }

    /// Connections that are made from now on pass so many bytes a second, each way.
    pub(crate) fn throttle(&self, bytes_per_s: Option<u32>) {
        self.state.lock().expect("nobody panics here").bytes_per_s = bytes_per_s;
    }

    /// Leads nowhere, and ends what is open.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().expect("nobody panics here");
        state.target = None;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration, rate: Option<u32>) {
    let mut buffer = [0; 4096];
    while let Ok(count) = from.read(&mut buffer) {
        if !delay.is_zero() {
            // The way is long: that is what this thread is for.
            std::thread::sleep(delay);
        }
        if let Some(rate) = rate {
            std::thread::sleep(Duration::from_secs(1) * count as u32 / rate);
        }
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
