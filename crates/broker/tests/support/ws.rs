//! A WebSocket client: binary frames out, masked; payload in.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// The request that opens one.
pub(crate) const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                           Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                           Sec-WebSocket-Protocol: mqtt\r\n\r\n";

/// A stream of MQTT bytes inside a WebSocket.
pub(crate) struct Ws<S> {
    pub(crate) stream: S,
    payload: VecDeque<u8>,
    /// Opcodes of control frames that came.
    pub(crate) controls: Vec<u8>,
    /// Bytes per frame that is sent.
    frame_bytes: usize,
}

impl<S: Read + Write> Ws<S> {
    /// Does the handshake; frames have at most so many bytes.
    pub(crate) fn open(mut stream: S, frame_bytes: usize) -> Self {
        stream.write_all(REQUEST.as_bytes()).unwrap();
        stream.flush().unwrap();
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
        assert!(head.contains("Sec-WebSocket-Protocol: mqtt\r\n"), "{head}");
        Self { stream, payload: VecDeque::new(), controls: Vec::new(), frame_bytes }
    }

    pub(crate) fn send_frame(&mut self, first: u8, payload: &[u8]) -> io::Result<()> {
        let mask = [0x12, 0x34, 0x56, 0x78];
        let mut frame = vec![first];
        match payload.len() {
            len @ 0..=125 => frame.push(0x80 | len as u8),
            len => {
                frame.push(0xfe);
                frame.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        self.stream.write_all(&frame)?;
        self.stream.flush()
    }

    /// One frame. False: closed.
    pub(crate) fn receive_frame(&mut self) -> io::Result<bool> {
        let mut head = [0; 2];
        if let Err(error) = self.stream.read_exact(&mut head) {
            return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(false) } else { Err(error) };
        }
        assert_eq!(head[1] & 0x80, 0, "a server does not mask");
        let mut length = vec![
            0;
            match head[1] {
                126 => 2,
                127 => 8,
                _ => 0,
            }
        ];
        self.stream.read_exact(&mut length)?;
        let long = length.iter().fold(0_usize, |sum, &byte| sum << 8 | usize::from(byte));
        let mut payload = vec![0; if length.is_empty() { usize::from(head[1]) } else { long }];
        self.stream.read_exact(&mut payload)?;
        match head[0] {
            0x82 => self.payload.extend(payload),
            control => self.controls.push(control & 0x0f),
        }
        Ok(true)
    }
}

/// The head of an HTTP answer.
pub(crate) fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

impl<S: Read + Write> Read for Ws<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.payload.is_empty() {
            if !self.receive_frame()? {
                return Ok(0);
            }
        }
        self.payload.read(buffer)
    }
}

impl<S: Read + Write> Write for Ws<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.frame_bytes);
        self.send_frame(0x82, &bytes[..count])?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
