//! A real flood over real sockets: a newcomer drowns a slow receiver, for as long as this lives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_test_support::Broker;

pub(crate) struct Flood {
    is_on: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// MQTT 3.1.1, by hand.
fn connected(broker: &Broker, client_id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address("mqtt")).expect("accepted");
    let mut hello = vec![0x10, 12 + client_id.len() as u8, 0, 4];
    hello.extend(b"MQTT\x04\x02\x00\x00\x00");
    hello.push(client_id.len() as u8);
    hello.extend(client_id.as_bytes());
    stream.write_all(&hello).expect("CONNECT");
    stream.read_exact(&mut [0; 4]).expect("CONNACK");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    stream
}

impl Flood {
    /// "flooder" sends 4 KiB as often as they are taken; "historian" takes some 100 KB a second.
    pub(crate) fn begin(broker: &Broker) -> Self {
        let is_on = Arc::new(AtomicBool::new(true));
        let mut reader = connected(broker, "historian");
        reader.write_all(b"\x82\x06\x00\x01\x00\x01t\x00").expect("SUBSCRIBE");
        reader.read_exact(&mut [0; 5]).expect("SUBACK");
        let mut flooder = connected(broker, "flooder");
        let (reads, writes) = (Arc::clone(&is_on), Arc::clone(&is_on));
        let threads = vec![
            std::thread::spawn(move || {
                let mut part = [0; 2048];
                while reads.load(Ordering::Relaxed) {
                    let _ = reader.read(&mut part);
                    std::thread::sleep(Duration::from_millis(20));
                }
            }),
            std::thread::spawn(move || {
                let mut packet = vec![0x30, 0x83, 0x20, 0, 1, b't'];
                packet.resize(6 + 4096, b'x');
                let mut left = &packet[..];
                while writes.load(Ordering::Relaxed) {
                    // Whoever is slowed, or has lost its connection, writes less.
                    match flooder.write(left) {
                        Ok(written) => left = &left[written..],
                        Err(_) => std::thread::sleep(Duration::from_millis(20)),
                    }
                    if left.is_empty() {
                        left = &packet;
                    }
                }
            }),
        ];
        Self { is_on, threads }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_on.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
