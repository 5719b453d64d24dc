//! Real floods over real sockets, for as long as these live: a newcomer drowns a slow receiver, by either version of MQTT,
//! beside others who do their work.

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

const TIME_OUT: Duration = Duration::from_millis(200);
/// Messages of QoS 1 that the flooder of MQTT 5 has under way.
const WINDOW: usize = 16;

/// By hand, with version 4 (3.1.1) or 5.
fn connected(broker: &Broker, client_id: &str, version: u8) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address("mqtt")).expect("accepted");
    let mut body = b"\x00\x04MQTT".to_vec();
    body.extend([version, 2, 0, 0]);
    body.extend((version == 5).then_some(0));
    body.extend([0, client_id.len() as u8]);
    body.extend(client_id.as_bytes());
    stream.write_all(&[&[0x10, body.len() as u8], &body[..]].concat()).expect("CONNECT");
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("CONNACK");
    stream.read_exact(&mut vec![0; head[1].into()]).expect("CONNACK");
    stream.set_read_timeout(Some(TIME_OUT)).expect("a timeout");
    stream.set_write_timeout(Some(TIME_OUT)).expect("a timeout");
    stream
}

/// 4 KiB to the topic t.
fn publish(version: u8, qos: u8) -> Vec<u8> {
    let mut body = vec![0, 1, b't'];
    if qos > 0 {
        body.extend([0, 1]);
    }
    body.extend((version == 5).then_some(0));
    body.resize(body.len() + 4096, b'x');
    let length = [0x80 | (body.len() & 0x7f) as u8, (body.len() >> 7) as u8];
    [&[0x30 | qos << 1][..], &length, &body].concat()
}

impl Flood {
    pub(crate) fn new() -> Self {
        Self { is_on: Arc::new(AtomicBool::new(true)), threads: Vec::new() }
    }

    /// "flooder" with MQTT 3.1.1, and "historian".
    pub(crate) fn begin(broker: &Broker) -> Self {
        Self::new().with_reader(broker, "historian").with_old(broker, "flooder")
    }

    fn with(mut self, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let is_on = Arc::clone(&self.is_on);
        self.threads.push(std::thread::spawn(move || work(&is_on)));
        self
    }

    /// Takes some 100 KB a second.
    pub(crate) fn with_reader(self, broker: &Broker, client_id: &str) -> Self {
        let mut reader = connected(broker, client_id, 4);
        reader.write_all(b"\x82\x06\x00\x01\x00\x01t\x00").expect("SUBSCRIBE");
        reader.read_exact(&mut [0; 5]).expect("SUBACK");
        self.with(move |is_on| {
            let mut part = [0; 2048];
            while is_on.load(Ordering::Relaxed) {
                let _ = reader.read(&mut part);
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    }

    /// MQTT 3.1.1, QoS 0: as much as is taken.
    pub(crate) fn with_old(self, broker: &Broker, client_id: &str) -> Self {
        let mut flooder = connected(broker, client_id, 4);
        self.with(move |is_on| {
            let packet = publish(4, 0);
            let mut left = &packet[..];
            while is_on.load(Ordering::Relaxed) {
                // Whoever is slowed, or has lost its connection, writes less.
                match flooder.write(left) {
                    Ok(written) => left = &left[written..],
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
                if left.is_empty() {
                    left = &packet;
                }
            }
        })
    }

    /// MQTT 5, QoS 1: as much as is answered, taken or refused.
    pub(crate) fn with_new(self, broker: &Broker, client_id: &str) -> Self {
        let mut flooder = connected(broker, client_id, 5);
        flooder.set_write_timeout(None).expect("no timeout");
        self.with(move |is_on| {
            let packet = publish(5, 1);
            let mut under_way = 0;
            while is_on.load(Ordering::Relaxed) {
                if under_way < WINDOW {
                    if flooder.write_all(&packet).is_err() {
                        return;
                    }
                    under_way += 1;
                    continue;
                }
                // Every answer is a PUBACK; who is not read for a while waits for it.
                let mut head = [0; 2];
                match flooder.read_exact(&mut head) {
                    Ok(()) => {
                        let _ = flooder.read_exact(&mut vec![0; head[1].into()]);
                        under_way -= 1;
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        })
    }

    /// Others who do their work: a message each twice a second.
    pub(crate) fn with_sensors(self, broker: &Broker, count: usize) -> Self {
        let mut sensors: Vec<TcpStream> =
            (0..count).map(|number| connected(broker, &format!("sensor-{number:02}"), 4)).collect();
        self.with(move |is_on| {
            while is_on.load(Ordering::Relaxed) {
                for sensor in &mut sensors {
                    let _ = sensor.write_all(b"\x30\x0a\x00\x04work21.5");
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        })
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
