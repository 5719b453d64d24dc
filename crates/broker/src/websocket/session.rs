//! One WebSocket: the decoder of what comes in, and the envelope of what goes out.
//!
//! Outgoing MQTT bytes stay where they are: one head is written for all that is there, and the bytes follow in the same
//! vectored write. What the socket did not take remains with its owner; this only remembers how much of the frame it
//! still owes. Pongs and the close frame go between frames.

use std::io::{self, IoSlice, Write};

use super::frame::{self, CloseCode, ControlFrame, Decoder};
use crate::limits::WS_FRAME_SEND_MAX;
use crate::link::SentBytes;

/// The state of one WebSocket after its handshake.
#[derive(Debug, Default)]
pub(crate) struct WebSocket {
    decoder: Decoder,
    /// Control frames and heads that are still to be written, before anything else. A head comes last.
    ahead: Vec<u8>,
    /// Bytes of payload that the frame in progress still owes.
    owed: usize,
    /// A ping that was not answered yet. Only the last counts (section 5.5.3), so a flood of pings costs nothing.
    ping: Option<Vec<u8>>,
    /// The close frame is to be sent, or was.
    closing: Option<CloseCode>,
    close_sent: bool,
    /// The client has said close.
    peer_closed: bool,
}

impl WebSocket {
    /// Replaces raw bytes by the payload in them, and says how much that is.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, CloseCode> {
        if self.peer_closed || self.closing.is_some() {
            return Ok(0);
        }
        let (ping, peer_closed) = (&mut self.ping, &mut self.peer_closed);
        let result = self.decoder.decode(buffer, |control| match control {
            ControlFrame::Ping(data) => *ping = Some(data.to_vec()),
            ControlFrame::Pong => {}
            ControlFrame::Close => *peer_closed = true,
        });
        if self.peer_closed {
            self.close(CloseCode::Normal);
        }
        if let Err(code) = result {
            self.close(code);
        }
        result
    }

    /// True if the client has ended it.
    pub(crate) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Say goodbye, after the frame in progress.
    pub(crate) fn close(&mut self, code: CloseCode) {
        self.closing.get_or_insert(code);
    }

    /// Something waits that is not MQTT.
    pub(crate) fn wants_write(&self) -> bool {
        !self.ahead.is_empty()
            || (self.owed == 0 && (self.ping.is_some() || (self.closing.is_some() && !self.close_sent)))
    }

    /// Writes as much as `out` takes. Bytes that belong to a frame in progress are counted as taken, once written.
    pub(crate) fn send(&mut self, out: &mut impl Write, mut slices: [&[u8]; 2]) -> io::Result<SentBytes> {
        let mut taken = 0;
        loop {
            self.prepare(slices[0].len() + slices[1].len());
            let first = &slices[0][..slices[0].len().min(self.owed)];
            let second = &slices[1][..slices[1].len().min(self.owed - first.len())];
            if self.ahead.is_empty() && first.is_empty() && second.is_empty() {
                return Ok(SentBytes { taken, blocked: false });
            }
            let written =
                match out.write_vectored(&[IoSlice::new(&self.ahead), IoSlice::new(first), IoSlice::new(second)]) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(SentBytes { taken, blocked: true });
                    }
                    Err(error) => return Err(error),
                };
            let ahead = written.min(self.ahead.len());
            self.ahead.drain(..ahead);
            let payload = written - ahead;
            self.owed -= payload;
            taken += payload;
            let from_first = payload.min(slices[0].len());
            slices = [&slices[0][from_first..], &slices[1][payload - from_first..]];
        }
    }

    /// Between frames: control frames first, then the head of a frame for what is there.
    fn prepare(&mut self, available: usize) {
        if self.owed > 0 || !self.ahead.is_empty() || self.close_sent {
            return;
        }
        if let Some(ping) = self.ping.take() {
            frame::put_pong(&ping, &mut self.ahead);
        }
        if available > 0 {
            self.owed = available.min(WS_FRAME_SEND_MAX);
            frame::put_binary_head(self.owed, &mut self.ahead);
        } else if let Some(code) = self.closing {
            frame::put_close(code, &mut self.ahead);
            self.close_sent = true;
        }
        if self.ahead.is_empty() {
            self.ahead = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::masked;
    use super::*;

    /// A socket that takes a few bytes at a time.
    struct Narrow {
        taken: Vec<u8>,
        width: usize,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let count = slices.iter().map(|slice| slice.len()).sum::<usize>().min(self.width).min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= count;
            self.taken.extend(slices.iter().flat_map(|slice| slice.iter()).take(count));
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes the frames off again, as a client would.
    fn payload_of(mut bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut payload, mut opcodes) = (Vec::new(), Vec::new());
        while let [first, second, ..] = bytes {
            let (len, head) = match second {
                126 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
                127 => (u64::from_be_bytes(bytes[2..10].try_into().unwrap()) as usize, 10),
                len => (usize::from(*len), 2),
            };
            opcodes.push(first & 0x0f);
            if first & 0x0f == 2 {
                payload.extend_from_slice(&bytes[head..head + len]);
            }
            bytes = &bytes[head + len..];
        }
        (payload, opcodes)
    }

    #[test]
    fn what_the_socket_did_not_take_is_taken_later() {
        for width in [1, 2, 3, 7, 1000] {
            let data: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
            let (mut socket, mut at) = (Narrow { taken: Vec::new(), width, room: 0 }, 0);
            let mut web_socket = WebSocket::default();
            while at < data.len() {
                socket.room = 777;
                let middle = at + (data.len() - at) / 3;
                let sent = web_socket.send(&mut socket, [&data[at..middle], &data[middle..]]).unwrap();
                at += sent.taken;
                assert_eq!(sent.blocked, at < data.len());
            }
            assert_eq!(payload_of(&socket.taken).0, data);
        }
    }

    #[test]
    fn a_pong_waits_for_the_end_of_the_frame() {
        let mut web_socket = WebSocket::default();
        let mut socket = Narrow { taken: Vec::new(), width: 100, room: 4 };
        assert_eq!(web_socket.send(&mut socket, [b"hello", b""]).unwrap(), SentBytes { taken: 2, blocked: true });
        let mut ping = masked(0x89, b"?", [1, 2, 3, 4]);
        assert_eq!(web_socket.receive(&mut ping), Ok(0));
        socket.room = 100;
        assert_eq!(web_socket.send(&mut socket, [b"llo", b""]).unwrap(), SentBytes { taken: 3, blocked: false });
        assert_eq!(socket.taken, b"\x82\x05hello\x8a\x01?");
    }

    #[test]
    fn a_close_is_answered_and_a_fault_is_told() {
        let mut web_socket = WebSocket::default();
        let mut socket = Narrow { taken: Vec::new(), width: 100, room: 100 };
        assert_eq!(web_socket.receive(&mut masked(0x88, b"", [1, 2, 3, 4])), Ok(0));
        assert!(web_socket.peer_closed() && web_socket.wants_write());
        web_socket.send(&mut socket, [b"", b""]).unwrap();
        assert_eq!(socket.taken, b"\x88\x02\x03\xe8");
        assert!(!web_socket.wants_write());

        let mut web_socket = WebSocket::default();
        let mut socket = Narrow { taken: Vec::new(), width: 100, room: 100 };
        assert_eq!(web_socket.receive(&mut [0x81, 0x80]), Err(CloseCode::UnsupportedData));
        web_socket.send(&mut socket, [b"", b""]).unwrap();
        assert_eq!(socket.taken, b"\x88\x02\x03\xeb");
    }
}
