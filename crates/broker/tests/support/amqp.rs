//! A container made of nothing but a socket: enough of AMQP to attach, send and receive.

use std::net::SocketAddr;

use super::{Stream, tcp};

/// A container with one session.
pub(crate) struct Amqp {
    stream: Box<dyn Stream>,
    next_delivery: u32,
}

/// A frame: the code of its performative, what that says, and what follows it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) code: u8,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    /// Whether these bytes are somewhere in it.
    pub(crate) fn has(&self, bytes: &[u8]) -> bool {
        self.body.windows(bytes.len()).any(|window| window == bytes)
    }
}

pub(crate) const PLAIN: &[u8] = b"AMQP\x00\x01\x00\x00";
pub(crate) const SASL: &[u8] = b"AMQP\x03\x01\x00\x00";

impl Amqp {
    /// A socket, and no word yet.
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), next_delivery: 0 }
    }

    /// Connected over TCP, without SASL, with a session.
    pub(crate) fn open(address: SocketAddr, name: &str) -> Self {
        let mut client = Self::new(tcp(address));
        assert_eq!(client.greet(PLAIN), PLAIN);
        client.begin(name);
        client
    }

    /// The header that is the answer to this one.
    pub(crate) fn greet(&mut self, header: &[u8]) -> Vec<u8> {
        self.stream.write_all(header).unwrap();
        let mut answer = [0; 8];
        self.stream.read_exact(&mut answer).unwrap();
        answer.to_vec()
    }

    /// Says what it is called, and begins a session.
    pub(crate) fn begin(&mut self, name: &str) {
        self.send(0, 0x10, &[text(name)]);
        self.send(0, 0x11, &[vec![0x40], uint(0), uint(2048), uint(2048)]);
        assert_eq!(self.frame().code, 0x10);
        assert_eq!(self.frame().code, 0x11);
    }

    /// A frame with these fields.
    pub(crate) fn send(&mut self, kind: u8, code: u8, fields: &[Vec<u8>]) {
        self.send_with(kind, code, fields, &[]);
    }

    fn send_with(&mut self, kind: u8, code: u8, fields: &[Vec<u8>], payload: &[u8]) {
        let bytes = frame(kind, code, fields, payload);
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next frame that says something; none if the connection ends.
    pub(crate) fn try_frame(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head).ok()?;
            let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let mut body = vec![0; size - 8];
            self.stream.read_exact(&mut body).ok()?;
            if !body.is_empty() {
                return Some(Frame { code: body[2], body });
            }
        }
    }

    pub(crate) fn frame(&mut self) -> Frame {
        self.try_frame().expect("a frame")
    }

    /// The next frame of this kind; others are not looked at.
    pub(crate) fn await_frame(&mut self, code: u8) -> Frame {
        loop {
            let frame = self.frame();
            if frame.code == code {
                return frame;
            }
        }
    }

    /// A link to a topic, and its credit.
    pub(crate) fn attach_sender(&mut self, handle: u32, topic: &str) -> u32 {
        let target = described(0x29, &[text(topic)]);
        let null = || vec![0x40];
        let name = format!("sender-{handle}");
        let fields = [text(&name), uint(handle), vec![0x42], null(), null(), null(), target, null(), null(), uint(0)];
        self.send(0, 0x12, &fields);
        assert_eq!(self.frame().code, 0x12);
        credit_of(&self.await_frame(0x13)).unwrap()
    }

    /// A link to a filter, with credit.
    pub(crate) fn attach_receiver(&mut self, handle: u32, filter: &str, credit: u32) {
        let source = described(0x28, &[text(filter)]);
        let name = format!("receiver-{handle}");
        let fields = [text(&name), uint(handle), vec![0x41], vec![0x40], vec![0x40], source, described(0x29, &[])];
        self.send(0, 0x12, &fields);
        let answer = self.frame();
        assert!(answer.code == 0x12 && answer.has(filter.as_bytes()), "{answer:?}");
        self.send(0, 0x13, &[uint(0), uint(2048), uint(0), uint(2048), uint(handle), uint(0), uint(credit)]);
        self.sync();
    }

    /// All that was said so far is heard when this returns.
    pub(crate) fn sync(&mut self) {
        let null = || vec![0x40];
        let window = [uint(0), uint(2048), uint(0), uint(2048)];
        let echo = [null(), null(), null(), null(), vec![0x42], vec![0x41]];
        self.send(0, 0x13, &[&window[..], &echo].concat());
        self.await_frame(0x13);
    }

    /// Sends a message, and says nothing of its answer.
    pub(crate) fn transfer(&mut self, handle: u32, is_settled: bool, payload: &[u8]) -> u32 {
        let id = self.next_delivery;
        self.next_delivery += 1;
        let tag = [&[0xa0, 4][..], &id.to_be_bytes()].concat();
        let settled = vec![if is_settled { 0x41 } else { 0x42 }];
        let message = [&[0, 0x53, 0x75, 0xb0][..], &(payload.len() as u32).to_be_bytes(), payload].concat();
        self.send_with(0, 0x14, &[uint(handle), uint(id), tag, uint(0), settled], &message);
        id
    }

    /// Sends a message, which is accepted.
    pub(crate) fn publish(&mut self, handle: u32, payload: &[u8]) {
        self.transfer(handle, false, payload);
        let answer = self.await_frame(0x15);
        assert!(answer.has(&[0, 0x53, 0x24]), "{answer:?}");
    }

    /// The payload of the next message, which is accepted if somebody waits for that.
    pub(crate) fn message(&mut self) -> Vec<u8> {
        let frame = self.await_frame(0x14);
        let at = frame.body.windows(4).rposition(|part| part[..3] == [0, 0x53, 0x75]).expect("a data section");
        let data = &frame.body[at + 3..];
        let payload = if data[0] == 0xa0 { &data[2..] } else { &data[5..] };
        self.send(0, 0x15, &[vec![0x41], uint(0), uint(u32::MAX / 2), vec![0x41], described(0x24, &[])]);
        payload.to_vec()
    }
}

/// The credit that a flow gives.
pub(crate) fn credit_of(flow: &Frame) -> Option<u32> {
    counts_of(flow).map(|(_, credit)| credit)
}

/// How many deliveries the link had seen when it gave this credit, and the credit: what was sent since is not in it.
pub(crate) fn counts_of(flow: &Frame) -> Option<(u32, u32)> {
    // Its fields are numbers up to the one that is wanted.
    let mut rest = &flow.body[6..];
    let mut numbers = Vec::new();
    while numbers.len() < 7 {
        let (number, length) = match rest.first()? {
            0x43 => (0, 1),
            0x52 => (u32::from(rest[1]), 2),
            0x70 => (u32::from_be_bytes(rest[1..5].try_into().unwrap()), 5),
            _ => return None,
        };
        numbers.push(number);
        rest = &rest[length..];
    }
    Some((numbers[5], numbers[6]))
}

pub(crate) fn frame(kind: u8, code: u8, fields: &[Vec<u8>], payload: &[u8]) -> Vec<u8> {
    let body = [described(code, fields), payload.to_vec()].concat();
    [&((body.len() + 8) as u32).to_be_bytes()[..], &[2, kind, 0, 0], &body].concat()
}

pub(crate) fn described(code: u8, fields: &[Vec<u8>]) -> Vec<u8> {
    let list = fields.concat();
    let mut out = vec![0, 0x53, code, 0xd0];
    out.extend_from_slice(&(list.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(&(fields.len() as u32).to_be_bytes());
    out.extend(list);
    out
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&[0xa1, text.len() as u8], text.as_bytes()].concat()
}

pub(crate) fn symbol(text: &str) -> Vec<u8> {
    [&[0xa3, text.len() as u8], text.as_bytes()].concat()
}

pub(crate) fn uint(number: u32) -> Vec<u8> {
    [&[0x70][..], &number.to_be_bytes()].concat()
}
