//! Frames: from the bytes of a client to its payload, in place; and the heads of the frames that we send.
//!
//! The decoder is told bytes in any pieces and keeps no payload of data frames; of a control frame it keeps at most 125
//! bytes. Whatever the pieces, the payload and the faults are the same.

use crate::limits::WS_FRAME_BYTES_MAX;

/// Why a WebSocket is closed; the numbers of RFC 6455, section 7.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// Nothing is wrong.
    Normal = 1000,
    /// A frame that must not be.
    ProtocolError = 1002,
    /// A text frame. [MQTT-6.0.0-1]
    UnsupportedData = 1003,
    /// More than we take in one frame.
    TooBig = 1009,
}

/// A control frame of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFrame<'a> {
    /// To be answered with the same bytes.
    Ping(&'a [u8]),
    /// Nothing to be done.
    Pong,
    /// To be answered, and nothing comes after it.
    Close,
}

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
/// The bit that marks a control frame, and the longest payload of one.
const CONTROL_BIT: u8 = 0x8;
const CONTROL_BYTES_MAX: u64 = 125;
/// Bytes of the longest head: two, eight of length, four of mask.
const HEAD_BYTES_MAX: usize = 14;

/// Takes the frames off a client's stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The head of the frame that is being read, as far as it has come.
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    /// The frame whose payload is being read.
    frame: Option<Frame>,
    /// A data message has begun and its last frame has not.
    fragmented: bool,
    /// Payload of the control frame that is being read.
    control: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    opcode: u8,
    left: u64,
    /// The mask, turned so that its first byte is for the next byte of payload.
    mask: [u8; 4],
}

impl Decoder {
    /// Replaces the bytes in `buffer` by the payload of the data frames in them, and says how much that is.
    pub fn decode(
        &mut self,
        buffer: &mut [u8],
        mut on_control: impl FnMut(ControlFrame<'_>),
    ) -> Result<usize, CloseCode> {
        let (mut at, mut filled) = (0, 0);
        loop {
            let Some(mut frame) = self.frame.take() else {
                if at == buffer.len() {
                    return Ok(filled);
                }
                at += self.read_head(&buffer[at..])?;
                continue;
            };
            let count = frame.left.min((buffer.len() - at) as u64) as usize;
            unmask(&mut buffer[at..at + count], &mut frame.mask);
            if frame.opcode & CONTROL_BIT == 0 {
                buffer.copy_within(at..at + count, filled);
                filled += count;
            } else {
                self.control.extend_from_slice(&buffer[at..at + count]);
            }
            at += count;
            frame.left -= count as u64;
            if frame.left > 0 {
                self.frame = Some(frame);
                return Ok(filled);
            }
            self.finish(frame.opcode, &mut on_control);
            if frame.opcode == CLOSE {
                // Nothing after a close is looked at (section 5.5.1).
                return Ok(filled);
            }
        }
    }

    /// Takes bytes of a head; when it is whole, a frame begins. Says how many bytes were taken.
    fn read_head(&mut self, bytes: &[u8]) -> Result<usize, CloseCode> {
        let mut taken = 0;
        loop {
            let needed = head_len(&self.head[..self.head_len]);
            let missing = needed - self.head_len;
            if missing == 0 {
                break;
            }
            let count = missing.min(bytes.len() - taken);
            self.head[self.head_len..self.head_len + count].copy_from_slice(&bytes[taken..taken + count]);
            self.head_len += count;
            taken += count;
            if self.head_len >= 2 {
                self.check_start(self.head[0], self.head[1])?;
            }
            if count < missing {
                return Ok(taken);
            }
        }
        self.begin()?;
        Ok(taken)
    }

    /// Judges the first two bytes of a frame as soon as they are there.
    fn check_start(&self, first: u8, second: u8) -> Result<(), CloseCode> {
        let (fin, opcode, length) = (first & 0x80 != 0, first & 0x0f, u64::from(second & 0x7f));
        let masked = second & 0x80 != 0;
        // Reserved bits belong to extensions, and none was agreed on. A client masks every frame (section 5.1).
        if first & 0x70 != 0 || !masked {
            return Err(CloseCode::ProtocolError);
        }
        match opcode {
            CONTINUATION if self.fragmented => Ok(()),
            BINARY if !self.fragmented => Ok(()),
            TEXT if !self.fragmented => Err(CloseCode::UnsupportedData),
            CLOSE | PING | PONG if fin && length <= CONTROL_BYTES_MAX => Ok(()),
            _ => Err(CloseCode::ProtocolError),
        }
    }

    fn begin(&mut self) -> Result<(), CloseCode> {
        let head = &self.head[..self.head_len];
        let (length_bytes, mask) = head[2..].split_at(head.len() - 6);
        let length = length_bytes.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        let length = match length_bytes.len() {
            0 => u64::from(head[1] & 0x7f),
            // The shortest form that fits must be used (section 5.2).
            2 if length <= 125 => return Err(CloseCode::ProtocolError),
            8 if length <= 0xffff => return Err(CloseCode::ProtocolError),
            _ => length,
        };
        if length > WS_FRAME_BYTES_MAX {
            return Err(CloseCode::TooBig);
        }
        let opcode = head[0] & 0x0f;
        if opcode & CONTROL_BIT == 0 {
            self.fragmented = head[0] & 0x80 == 0;
        }
        self.frame = Some(Frame { opcode, left: length, mask: [mask[0], mask[1], mask[2], mask[3]] });
        self.head_len = 0;
        Ok(())
    }

    fn finish(&mut self, opcode: u8, on_control: &mut impl FnMut(ControlFrame<'_>)) {
        match opcode {
            PING => on_control(ControlFrame::Ping(&self.control)),
            CLOSE => on_control(ControlFrame::Close),
            PONG => on_control(ControlFrame::Pong),
            _ => return,
        }
        self.control = Vec::new();
    }
}

/// Bytes of the head that begins like this, as far as it can be known; at least two.
fn head_len(start: &[u8]) -> usize {
    match start.get(1).map(|second| second & 0x7f) {
        None => 2,
        Some(126) => 2 + 2 + 4,
        Some(127) => 2 + 8 + 4,
        Some(_) => 2 + 4,
    }
}

/// Takes the mask off, and turns it by as many bytes.
fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    let mut chunks = bytes.chunks_exact_mut(4);
    for chunk in &mut chunks {
        for (byte, key) in chunk.iter_mut().zip(*mask) {
            *byte ^= key;
        }
    }
    let rest = chunks.into_remainder();
    for (byte, key) in rest.iter_mut().zip(*mask) {
        *byte ^= key;
    }
    let turn = rest.len();
    mask.rotate_left(turn);
}

/// Appends the head of an unmasked binary frame with this much payload.
pub(crate) fn put_binary_head(len: usize, out: &mut Vec<u8>) {
    out.push(0x80 | BINARY);
    match len {
        0..=125 => out.push(len as u8),
        126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

/// Appends a whole pong.
pub(crate) fn put_pong(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x80 | PONG, payload.len() as u8]);
    out.extend_from_slice(payload);
}

/// Appends a whole close frame.
pub(crate) fn put_close(code: CloseCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x80 | CLOSE, 2]);
    out.extend_from_slice(&(code as u16).to_be_bytes());
}

#[cfg(test)]
#[path = "frame_tests.rs"]
pub(crate) mod tests;
